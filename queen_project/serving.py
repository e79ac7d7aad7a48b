"""One broker and one HTTP server in one event loop, from the first look to the clean stop.

Stations of a stop: signal -> stop accepting -> close the sockets of viewers -> answer parked
pops -> let requests in flight finish (bounded) -> stop the broker -> go. A second signal, a
moment later, goes at once: a deploy is a crash that we are built for.

Imports serving_uvicorn and serving_daphne (only the one in use), serving_share,
brokers.{live,runtime}. Used by the broker command and workers.py.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from brokers.config import Config
from brokers.services.spool_directories import Directories
from queen_project.serving_share import Board, Sharer

logger = logging.getLogger(__name__)

SERVERS = ("uvicorn", "daphne")
BACKLOG = 2048
STOP_TIMEOUT_S = 30.0
EXIT_FAST = 1
SAME_WISH_S = 2.0
GC_ALLOCATIONS = 50_000
LIVE_CLOSE_S = 5.0


class ListenError(Exception):
    """The listener cannot be had; the text names address and reason."""


class Front(Protocol):
    """An HTTP server in our loop, with our signal handling: on our socket, or on connections
    that it is given.
    """

    async def open(self) -> None: ...

    async def wait_closed(self) -> None:
        """Return when the server has ended by itself, which it should not."""

    def connections(self) -> int: ...

    async def take(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted elsewhere."""

    def stop_accepting(self) -> None: ...

    async def finish(self) -> None:
        """Wait for the requests in flight, bounded; then close what is left."""


def bind(config: Config) -> socket.socket:
    """Bind and listen at once, so that a taken port is known before anything is started."""
    address, port = config.server.bind_addr, config.server.port
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ListenError(f"cannot listen on {address} port {port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What a worker has in common with the others: the listener's board, the hub of their
    hints, and their parent.

    `watch_parent` calls what it is given when the parent has ended.
    """

    board: Board
    worker: int
    mesh_socket: Path
    watch_parent: Callable[[Callable[[], None]], None]


def run(
    config: Config,
    listener: socket.socket,
    directories: Directories,
    *,
    server: str,
    ready: Callable[[], None],
    shared: Shared | None = None,
) -> None:
    """Serve until a signal; `ready` is called once requests are taken."""
    with asyncio.Runner(loop_factory=_loop_factory(server)) as runner:
        runner.run(_serve(config, listener, directories, shared, server=server, ready=ready))


async def _serve(
    config: Config,
    listener: socket.socket,
    directories: Directories,
    shared: Shared | None,
    *,
    server: str,
    ready: Callable[[], None],
) -> None:
    from brokers import runtime
    from brokers.services import background

    stopping = stop_on_signals()
    broker = runtime.Broker(config)
    background.attach(broker, directories, mesh_socket=shared.mesh_socket if shared else None)
    runtime.set_current(broker)
    # Only now: it would open a broker of its own, and keep a PostgreSQL running for it.
    from brokers.live import live
    from queen_project.asgi import application, door

    await broker.start()
    front = _front(server, application, door, None if shared else listener, config)
    await front.open()
    sharer = None
    if shared is not None:
        shared.watch_parent(stopping.set)
        sharer = Sharer(listener, shared.board, shared.worker, front)
        sharer.open()
    _relax_collector()
    ready()

    closed = asyncio.create_task(front.wait_closed())
    asked = asyncio.create_task(stopping.wait())
    await asyncio.wait([closed, asked], return_when=asyncio.FIRST_COMPLETED)
    logger.info("stopping: no new connections, waiting for the requests in flight")

    if sharer is not None:
        sharer.close()
        await sharer.settled()
    front.stop_accepting()
    await _bounded(live.close(broker), "the live pictures", LIVE_CLOSE_S)
    await _bounded(broker.drain(), "drain", config.server.drain_s + 1)
    await _bounded(front.finish(), "the HTTP server", config.server.drain_s + 5)
    await _bounded(broker.stop(), "the broker", STOP_TIMEOUT_S)
    for task in (closed, asked):
        task.cancel()
    logger.info("stopped")


def _relax_collector() -> None:
    """What the start has made lives as long as we do: the collector need not walk it again.

    Requests make little garbage in cycles and much that counting frees; at the default
    thresholds a tenth of the loop's time went into looking for what is not there.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 50)


async def _bounded(step: Any, name: str, timeout_s: float) -> None:
    """A step of the stop that hangs or fails must not keep the next one from its turn."""
    try:
        async with asyncio.timeout(timeout_s):
            await step
    except TimeoutError:
        logger.error("%s did not stop within %.0f s", name, timeout_s)
    except Exception:
        logger.exception("%s failed to stop", name)


def stop_on_signals(at_once: Callable[[], None] = lambda: os._exit(EXIT_FAST)) -> asyncio.Event:
    """Set by the first signal. One that follows within a moment is the same wish, told twice
    (by a terminal and by make, by an orchestrator); a later one means that we take too long.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    first_at = 0.0

    def on_signal() -> None:
        nonlocal first_at
        if not stopping.is_set() or not first_at:
            first_at = loop.time()
            stopping.set()
        elif loop.time() - first_at > SAME_WISH_S:
            logger.warning("second signal: going at once")
            at_once()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, on_signal)
    return stopping


def _loop_factory(server: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if server == "daphne":
        from queen_project import serving_daphne

        return serving_daphne.reactor_loop
    try:
        import uvloop
    except ImportError:  # not built for every platform; asyncio's own loop does it too
        return None
    return uvloop.new_event_loop


def _front(
    server: str, application: Any, door: Any, listener: socket.socket | None, config: Config
) -> Front:
    if server == "daphne":
        from queen_project.serving_daphne import DaphneFront

        return DaphneFront(application, listener, config)
    from queen_project.serving_uvicorn import UvicornFront

    return UvicornFront(application, door, listener, config)
