"""What tests of the mesh stand on: nodes on loopback, and a wire between two of them.

The wire is a proxy that a test can listen to, cut, freeze, and put bytes into.

Used by tests of unit, services and process. Imports mesh.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

from mesh.frames import HELLO, WELCOME
from mesh.hints import Hint, Pushed
from mesh.node import Node, Settings

SECRET = b"a secret that only these tests know"
TIMEOUT_S = 10.0


async def until(condition: Callable[[], Any], *, timeout_s: float = TIMEOUT_S) -> None:
    """Wait for a condition of this process while the loop goes on."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 (any condition of this process)
            await asyncio.sleep(0.002)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def at(*ports: int) -> tuple[tuple[str, int], ...]:
    return tuple(("127.0.0.1", port) for port in ports)


def pushed(queue_id: int, *partition_ids: int, queue: str = "orders") -> Pushed:
    return Pushed("tenant", queue, queue_id, {one: f"p{one}" for one in partition_ids})


class Ear:
    """Everything that a node hears."""

    def __init__(self, node: Node) -> None:
        self.heard: list[Hint] = []
        node.receivers.append(self.heard.append)

    def queue_ids(self) -> list[int]:
        return [hint.queue_id for hint in self.heard if isinstance(hint, Pushed)]


@contextlib.asynccontextmanager
async def running(
    name: str, *, hub: bool = False, resolve: Any = None, **settings: Any
) -> AsyncIterator[Node]:
    """A node that listens on a free port, unless told otherwise, until the block ends."""
    given = {"port": 0, "secret": SECRET, "heartbeat_s": 0.1, "dead_after_s": 1.0, **settings}
    extra = {} if resolve is None else {"resolve": resolve}
    node = Node(Settings(server_id=name, **given), hub=hub, **extra)
    if node.settings.listen:
        await node.listen()
    task = asyncio.create_task(node.run())
    try:
        yield node
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def knows(node: Node, *names: str) -> bool:
    return node.status()["servers"] == sorted(names)


class Wire:
    """A proxy before a listener. `up` is what the dialler sent, `down` what it was sent."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self.up = bytearray()
        self.down = bytearray()
        self.frozen = False
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._towards_listener: asyncio.StreamWriter | None = None
        self._towards_dialler: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "Wire":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def inject_up(self, data: bytes) -> None:
        """As if the dialler had sent it."""
        assert self._towards_listener is not None
        self._towards_listener.write(data)

    def inject_down(self, data: bytes) -> None:
        assert self._towards_dialler is not None
        self._towards_dialler.write(data)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.up, self.down = bytearray(), bytearray()
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, far_writer]
        self._towards_listener, self._towards_dialler = far_writer, writer
        up = asyncio.create_task(self._pump(reader, far_writer, self.up))
        down = asyncio.create_task(self._pump(far_reader, writer, self.down))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            writer.transport.abort()
            far_writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray
    ) -> None:
        while data := await reader.read(65_536):
            if not self.frozen:
                record += data
                writer.write(data)


def frames_of(record: bytes) -> list[bytes]:
    """The whole frames of a recorded direction, each with its head."""
    found, start = [], 0
    while start + 4 <= len(record):
        (length,) = struct.unpack_from(">I", record, start)
        if start + 4 + length > len(record):
            break
        found.append(bytes(record[start : start + 4 + length]))
        start += 4 + length
    return found


def kind_of(frame: bytes) -> int:
    return frame[4]


def sealed_frames(record: bytes) -> list[bytes]:
    """Those behind the handshake."""
    return [one for one in frames_of(record) if kind_of(one) not in (1, HELLO, WELCOME)]
