"""uvicorn inside our loop: httptools, our socket, our signals.

uvicorn would replace the SIGTERM handler, close idle connections after 5 s and answer a
broken request line with plain text; here it does none of that.

Imports brokers.{api,config}, serving_short. Used by serving.py.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from brokers.api.door import Door
from brokers.config import ServerConfig
from queen_project.serving_short import HotSide, ShortWay

BROKEN_REQUEST = b'{"error":"invalid HTTP request"}'


class Corked:
    """A transport that sends what one step of the loop writes in one piece.

    uvicorn writes head and body of an answer one after the other: two system calls, two
    packets, and a client that is woken twice.
    """

    __slots__ = ("_loop", "_transport", "_written")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def _send(self) -> None:
        if self._written:
            written, self._written = self._written, []
            self._transport.write(b"".join(written))

    def close(self) -> None:
        self._send()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class JsonProtocol(ShortWay):
    """Every body that we send is JSON, the one for what is not even HTTP too."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]

    def send_400_response(self, msg: str) -> None:
        self.transport.write(
            STATUS_LINE[400]
            + b"content-type: application/json\r\ncontent-length: %d\r\n" % len(BROKEN_REQUEST)
            + b"connection: close\r\n\r\n"
            + BROKEN_REQUEST
        )
        self.transport.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.opened = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # type: ignore[override]
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.opened.set()


class UvicornFront:
    """Without a listener it serves the connections that it is given."""

    def __init__(
        self, application: Any, door: Door, listener: socket.socket | None, config: ServerConfig
    ) -> None:
        hot = HotSide(door, body_bytes_max=config.body_bytes_max)
        protocol = type("Protocol", (JsonProtocol,), {"hot": hot})
        self._listeners = [] if listener is None else [listener]
        self._server = _Server(
            uvicorn.Config(
                application,
                http=protocol,
                ws="none",
                loop="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=config.keep_alive_s,
                timeout_graceful_shutdown=max(1, round(config.drain_s)),
            )
        )
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._serving = asyncio.create_task(self._server.serve(sockets=self._listeners))
        opened = asyncio.create_task(self._server.opened.wait())
        await asyncio.wait([self._serving, opened], return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if self._serving.done():
            self._serving.result()

    async def wait_closed(self) -> None:
        assert self._serving is not None
        await asyncio.wait([self._serving])

    def connections(self) -> int:
        return len(self._server.server_state.connections)

    async def take(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> Any:
        server = self._server
        make: Any = server.config.http_protocol_class
        return make(server.config, server.server_state, server.lifespan.state)

    def stop_accepting(self) -> None:
        self._server.should_exit = True
        for server in self._server.servers:
            server.close()

    async def finish(self) -> None:
        assert self._serving is not None
        await self._serving
