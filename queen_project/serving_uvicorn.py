"""uvicorn inside our loop: httptools, our socket, our signals.

uvicorn would replace the SIGTERM handler, close idle connections after 5 s and answer a
broken request line with plain text; here it does none of that. Nor does it bound the size of a
head, the time that a request takes to come, or the number of connections: here all three are.

One address can be asked to become a websocket, that of the dashboard; everywhere else such a
request is one like any other.

Imports brokers.{api,config,live.address}, serving_short, tls. Used by serving.py.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from brokers.api.door import Door
from brokers.config import Config, ListenerConfig
from brokers.live.address import SOCKET_PATH
from queen_project.serving_short import HotSide, ShortWay
from queen_project.tls import Certificate

# What the library has to say of a socket that is opened is nothing to be told of.
socket_logger = logging.getLogger(f"{__name__}.sockets")
socket_logger.setLevel(logging.WARNING)

BROKEN_REQUEST = b'{"error":"invalid HTTP request"}'
HEAD_TOO_LARGE = b'{"error":"the head of the request is too large"}'
TOO_SLOW = b'{"error":"the request took too long to come"}'
LOOK_EVERY_S = 1.0
# A TLS peer that does not answer our goodbye must not keep the connection, or a stop, waiting.
GOODBYE_S = 1.0
SOCKET_URL = SOCKET_PATH.encode("ascii")
# A viewer sends nothing but numbers.
SOCKET_BYTES_MAX = 1024


class Corked:
    """A transport that sends what one step of the loop writes in one piece.

    uvicorn writes head and body of an answer one after the other: two system calls, two
    packets, and a client that is woken twice.
    """

    __slots__ = ("_loop", "_tls", "_transport", "_written")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._tls = transport.get_extra_info("ssl_object") is not None
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)

    def write_whole(self, data: bytes) -> None:
        """An answer in one piece has nothing to wait for but what stands before it."""
        if self._written:
            self._written.append(data)
        else:
            self._transport.write(data)

    def _send(self) -> None:
        if self._written:
            written, self._written = self._written, []
            self._transport.write(b"".join(written))

    def close(self) -> None:
        self._send()
        self._transport.close()
        if self._tls:
            self._loop.call_later(GOODBYE_S, self._transport.abort)

    def uncorked(self) -> asyncio.Transport:
        """The transport itself, with all that was written before sent."""
        self._send()
        return self._transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class SocketProtocol(WebSocketsSansIOProtocol):
    """A websocket, of which nobody needs to read in the log that it was opened."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = socket_logger


class JsonProtocol(ShortWay):
    """Every body that we send is JSON, the one for what is not even HTTP too."""

    limits = ListenerConfig()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_open = True
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        corked = Corked(transport, self.loop)
        self.write_whole = corked.write_whole
        super().connection_made(corked)  # type: ignore[arg-type]
        most = self.limits.connections_max
        if most and len(self.connections) > most:
            self.transport.abort()

    def parse(self, data: bytes) -> None:
        if self._head_open:
            self._head_bytes += len(data)
        super().parse(data)
        # The parser keeps a header that does not end, whatever its size.
        if self._head_open and self._head_bytes > self.limits.header_bytes_max:
            self._refuse(431, HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open = True
        if self.begun_at is None:
            self.begun_at = self.loop.time()

    def on_headers_complete(self) -> None:
        most = self.limits.header_bytes_max
        if self._head_bytes > most and self._size_of_head() > most:
            self._refuse(431, HEAD_TOO_LARGE)
            raise ValueError("head too large")  # which ends the parser's work
        self._head_open, self._head_bytes = False, 0
        super().on_headers_complete()

    def _should_upgrade_to_ws(self) -> bool:
        """At one address, and never while an answer is still to be sent on this connection."""
        if self.url.partition(b"?")[0] != SOCKET_URL or self.pipeline:
            return False
        return self.cycle is None or self.cycle.response_complete

    def handle_websocket_upgrade(self) -> None:
        """Its frames are written whole: nothing is gained by holding them back."""
        self.begun_at = None
        self.transport = self.transport.uncorked()  # type: ignore[attr-defined]
        super().handle_websocket_upgrade()

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_open, self.begun_at = True, None

    def end_if_slow(self, begun_before: float) -> None:
        """Whoever sends a byte now and then must not hold a connection for ever."""
        if self.begun_at is None or self.begun_at > begun_before or self.transport is None:
            return
        if self.flow.read_paused:
            self.begun_at = self.loop.time()  # its bytes may be there: it is us who do not read
            return
        cycle = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()
        else:
            self._refuse(408, TOO_SLOW)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, BROKEN_REQUEST)

    def _refuse(self, status: int, body: bytes) -> None:
        if self.transport.is_closing() or self._last_words is not None:
            return
        self._head_open, self.begun_at = False, None
        self.end_with(
            STATUS_LINE[status]
            + b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
            + b"connection: close\r\n\r\n"
            + body
        )


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
        self, application: Any, door: Door, listener: socket.socket | None, config: Config
    ) -> None:
        hot = HotSide(
            door,
            body_bytes_max=config.server.body_bytes_max,
            head_bytes_max=config.listener.header_bytes_max,
        )
        self._listeners = [] if listener is None else [listener]
        self._limits = config.listener
        self._certificate = Certificate(config.listener) if config.listener.tls else None
        self._tls = self._certificate.context() if self._certificate is not None else None
        protocol = type("Protocol", (JsonProtocol,), {"hot": hot, "limits": config.listener})
        self._server = _Server(
            uvicorn.Config(
                application,
                http=protocol,
                ws=SocketProtocol,
                ws_max_size=SOCKET_BYTES_MAX,
                ws_per_message_deflate=False,
                ws_ping_interval=None,  # a viewer says what it has seen
                loop="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=config.server.keep_alive_s,
                timeout_graceful_shutdown=max(1, round(config.server.drain_s)),
            )
        )
        self._server.config.load()
        self._server.config.ssl = self._tls
        self._serving: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._serving = asyncio.create_task(self._server.serve(sockets=self._listeners))
        opened = asyncio.create_task(self._server.opened.wait())
        await asyncio.wait([self._serving, opened], return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        self._looking = asyncio.create_task(self._look_at_connections(), name="slow requests")
        if self._serving.done():
            self._serving.result()

    async def wait_closed(self) -> None:
        assert self._serving is not None
        await asyncio.wait([self._serving])

    def connections(self) -> int:
        return len(self._server.server_state.connections)

    async def take(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            self._protocol, connection, ssl=self._tls
        )

    def _protocol(self) -> Any:
        server = self._server
        make: Any = server.config.http_protocol_class
        return make(server.config, server.server_state, server.lifespan.state)

    async def _look_at_connections(self) -> None:
        """One look a second over all of them: a timer for each request would cost each one."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._certificate is not None and self._tls is not None:
                self._certificate.renew(self._tls)
            if not self._limits.request_s:
                continue
            begun_before = loop.time() - self._limits.request_s
            for connection in list(self._server.server_state.connections):
                if isinstance(connection, JsonProtocol):
                    connection.end_if_slow(begun_before)

    def stop_accepting(self) -> None:
        self._server.should_exit = True
        for server in self._server.servers:
            server.close()

    async def finish(self) -> None:
        assert self._serving is not None
        await self._serving
        if self._looking is not None:
            self._looking.cancel()
