"""One broker as several processes: a parent that starts the workers and keeps them there.

The parent owns the listening socket, the embedded PostgreSQL, the host's mesh node and the run
directory, and serves nothing: it hands hints to and fro. A worker is a broker like any other,
in an interpreter of its own: this process has threads (the supervisor's) and a loop, which no
fork survives unharmed, and a worker that is started again must begin like the first one.

A worker that dies is started again, later and later; one that never stands on its feet ends
everything, because what keeps it down is a mistake that somebody should see.

Imports serving, serving_share, worker_line, brokers.services.mesh, mesh. Used by the broker
command.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from brokers.config import Config
from brokers.services import mesh as mesh_service
from mesh.local import PATH_BYTES_MAX, LocalHub
from mesh.node import Node
from queen_project import serving
from queen_project.config import PROJECT_DIR
from queen_project.serving_share import Board
from queen_project.worker_line import EXIT_UNUSABLE, SERVING, Inherited, mesh_socket

logger = logging.getLogger(__name__)

LOCK = "LOCK"
LONGEST_SOCKET_NAME = "worker-99"
FALLS_MAX = 5
STEADY_S = 10.0
AGAIN_S_MIN = 0.25
AGAIN_S_MAX = 10.0
DOUBLINGS_MAX = 10
# A worker bounds its own stop (serving.py); this is for one that hangs.
STOP_MARGIN_S = 60.0


class WorkersFailed(Exception):
    """The broker cannot go on; the text says which worker, and how it ended."""


@dataclass(slots=True, eq=False)
class Worker:
    """A place that is always to be filled."""

    number: int
    process: asyncio.subprocess.Process | None = None
    served: asyncio.Event = field(default_factory=asyncio.Event)
    serving_since: float | None = None
    was_steady: bool = False
    falls: int = 0
    stop_code: int = 0


def run(
    config: Config,
    listener: socket.socket,
    *,
    server: str,
    ready: Callable[[], None],
) -> None:
    """Serve with `config.server.workers` processes until a signal; `ready` is called once all
    take requests. Raises WorkersFailed.
    """
    with _run_directory(config) as run_dir:
        parent = _Parent(config, listener, server=server, run_dir=run_dir)
        asyncio.run(_run(parent, config, run_dir, ready))


async def _run(parent: "_Parent", config: Config, run_dir: Path, ready: Callable[[], None]) -> None:
    async with _hub(config, run_dir):
        await parent.run(ready)


@contextlib.asynccontextmanager
async def _hub(config: Config, run_dir: Path) -> AsyncIterator[None]:
    """The host's mesh node, when there are peers, and the hub of its workers' hints.

    Without the hub everything is found a second later, so it is no reason not to serve.
    """
    node = Node(mesh_service.node_settings(config)) if mesh_service.wanted(config) else None
    hub = LocalHub(mesh_socket(run_dir), node)
    running = None if node is None else asyncio.create_task(node.run(), name="mesh")
    try:
        await hub.start()
    except OSError as error:
        logger.error("workers do not hear of each other's messages at once: %s", error)
    try:
        yield
    finally:
        await hub.stop()
        if running is not None:
            running.cancel()
            await asyncio.wait([running])


def pause_s(falls: int) -> float:
    """How long to wait before a worker is started that has fallen so many times in a row."""
    # Bounded before it is raised: a worker that falls all night has fallen thousands of times.
    return min(AGAIN_S_MIN * 2 ** min(falls - 1, DOUBLINGS_MAX), AGAIN_S_MAX)


class _Parent:
    def __init__(
        self, config: Config, listener: socket.socket, *, server: str, run_dir: Path
    ) -> None:
        self._config = config
        self._listener = listener
        self._server = server
        self._run_dir = run_dir
        self._workers = [Worker(number) for number in range(config.server.workers)]
        self._board = Board.make(config.server.workers)

    async def run(self, ready: Callable[[], None]) -> None:
        self._stopping = serving.stop_on_signals(self._go_at_once)
        keeping = [asyncio.create_task(self._keep(worker)) for worker in self._workers]
        telling = asyncio.create_task(self._tell_when_ready(ready))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([stopping, *keeping], return_when=asyncio.FIRST_COMPLETED)
            logger.info("stopping %d workers", len(self._workers))
            self._stopping.set()
            await self._stop(keeping)
        finally:
            for task in (telling, stopping):
                task.cancel()
            self._kill()
        for task in keeping:
            task.result()
        # One that had not got as far as to serve has nothing to tell of its end.
        hard = [one for one in self._workers if one.stop_code not in (0, -signal.SIGTERM)]
        if hard:
            told = ", ".join(f"worker {one.number}: {_ending(one.stop_code)}" for one in hard)
            raise WorkersFailed(f"not all workers stopped cleanly: {told}")
        logger.info("stopped")

    async def _tell_when_ready(self, ready: Callable[[], None]) -> None:
        for worker in self._workers:
            await worker.served.wait()
        ready()

    async def _keep(self, worker: Worker) -> None:
        """Fill the place, again and again, until the stop. Raises WorkersFailed."""
        while not self._stopping.is_set():
            try:
                code = await self._live(worker)
                ending = f"ended ({_ending(code)})"
            except OSError as error:
                # No file, process or memory to be had: that may pass, and the others serve.
                code, ending = 0, f"could not be started ({error.strerror})"
            self._board.away(worker.number)
            if self._stopping.is_set():
                worker.stop_code = code
                return
            again_s = self._after_death(worker, code, ending)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_s):
                    await self._stopping.wait()

    async def _live(self, worker: Worker) -> int:
        """One process, from its start to its end; its exit code."""
        worker.serving_since = None
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with theirs:
                worker.process = await self._spawn(worker, theirs)
            logger.info("worker %d is process %d", worker.number, worker.process.pid)
            if self._stopping.is_set():
                self._signal(worker, signal.SIGTERM)
            hearing = asyncio.create_task(self._hear(worker, ours))
            try:
                return await worker.process.wait()
            finally:
                worker.process = None
                hearing.cancel()
                await asyncio.wait([hearing])

    async def _spawn(self, worker: Worker, parent: socket.socket) -> asyncio.subprocess.Process:
        inherited = Inherited(
            worker=worker.number,
            listener=self._listener.fileno(),
            parent=parent.fileno(),
            board=self._board.file,
            run_dir=self._run_dir,
        )
        server = self._config.server
        command = [
            *(sys.executable, str(PROJECT_DIR / "manage.py"), "broker"),
            *("--server", self._server, "--workers", str(server.workers)),
            *("--port", str(server.port), "--bind", server.bind_addr),
            *("--as-worker", inherited.argument()),
        ]
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(inherited.listener, inherited.parent, inherited.board),
            # A Ctrl-C is the parent's, which passes it on: a worker that still starts would
            # end with a traceback.
            process_group=0,
        )

    async def _hear(self, worker: Worker, ours: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # it died in a hurry
            if await loop.sock_recv(ours, len(SERVING)) == SERVING:
                worker.serving_since = time.monotonic()
                worker.served.set()

    def _after_death(self, worker: Worker, code: int, ending: str) -> float:
        """Judge a worker that ended unasked; seconds to wait before it is started again."""
        since = worker.serving_since
        if since is not None and time.monotonic() - since >= STEADY_S:
            worker.was_steady, worker.falls = True, 0
        worker.falls += 1
        told = f"worker {worker.number} {ending}"
        if not worker.was_steady:
            if code == EXIT_UNUSABLE and not worker.served.is_set():
                raise WorkersFailed(f"{told}; what it said is above")
            if worker.falls >= FALLS_MAX:
                raise WorkersFailed(
                    f"{told}, for the {FALLS_MAX}th time without having served for"
                    f" {STEADY_S:.0f} s; what it said is above"
                )
        again_s = pause_s(worker.falls)
        logger.error("%s; starting it again in %.2f s", told, again_s)
        return again_s

    async def _stop(self, keeping: Sequence["asyncio.Task[None]"]) -> None:
        # What waits in the listener is the workers' until the last of them lets go of it.
        self._listener.close()
        for worker in self._workers:
            self._signal(worker, signal.SIGTERM)
        longest_s = 2 * self._config.server.drain_s + STOP_MARGIN_S
        _, late = await asyncio.wait(keeping, timeout=longest_s)
        if late:
            logger.error("%d workers did not stop within %.0f s", len(late), longest_s)
            self._kill()
            await asyncio.wait(late)

    def _go_at_once(self) -> None:
        self._kill()
        os._exit(serving.EXIT_FAST)

    def _kill(self) -> None:
        for worker in self._workers:
            self._signal(worker, signal.SIGKILL)

    def _signal(self, worker: Worker, signum: signal.Signals) -> None:
        if worker.process is not None:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(signum)


@contextlib.contextmanager
def _run_directory(config: Config) -> Iterator[Path]:
    """Where the sockets of this broker's workers lie: ours alone, and with a short path."""
    digest = hashlib.sha256(config.server.server_id.encode()).hexdigest()[:16]
    path = config.paths.data_dir / "run" / digest
    try:
        config.paths.data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise WorkersFailed(f"the directory {path} cannot be used: {error.strerror}") from error
    try:
        _take(lock, config)
        if len(os.fsencode(path / LONGEST_SOCKET_NAME)) > PATH_BYTES_MAX:
            # The lock may lie as deep as it likes; a socket may not.
            with tempfile.TemporaryDirectory(prefix="queen-run-", dir="/tmp") as other:
                yield Path(other)
            return
        yield path
        for name in os.listdir(path):
            if name != LOCK:
                (path / name).unlink(missing_ok=True)
    finally:
        os.close(lock)


def _take(lock: int, config: Config) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise WorkersFailed(
            f"a broker {config.server.server_id!r} runs already, with the data directory"
            f" {config.paths.data_dir}: give each a QUEEN_SERVER_ID of its own"
        ) from None


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
