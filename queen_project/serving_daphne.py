"""daphne inside our loop: Twisted's asyncio reactor runs on it, and never runs itself.

Importing daphne.server installs the reactor on a loop that it makes; the broker then runs
on that loop. daphne buffers a whole body before the application sees any of it, so limits
on bodies are weaker here than under uvicorn, and so is the one on slow requests: a byte now and
then keeps a connection. A head has at most 16 KiB and 500 headers, which is Twisted's own limit.

Imports brokers.config, tls. Used by serving.py.
"""

import asyncio
import logging
import socket
import time
from typing import Any

from daphne import server as daphne_server
from daphne.http_protocol import HTTPFactory
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
from OpenSSL import SSL
from twisted.internet import reactor as twisted_reactor
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.logger import ILogObserver, globalLogBeginner
from twisted.protocols.tls import TLSMemoryBIOFactory
from zope.interface import implementer

from brokers.config import Config
from queen_project.tls import Certificate

reactor: Any = twisted_reactor  # which kind it is was decided when daphne was imported

logger = logging.getLogger(__name__)

BODY_CHUNK_BYTES = 1_048_576
HANDSHAKE_S = 20
# Of a message either way, which autobahn does not tell apart: what is bounded on the way in by the
# consumer is on the way out a whole picture.
SOCKET_BYTES_MAX = 1_048_576


def reactor_loop() -> asyncio.AbstractEventLoop:
    return daphne_server.twisted_loop


class LimitedFactory(HTTPFactory):
    """Of more connections than there may be, the newest is closed at once."""

    def __init__(self, server: Any, connections_max: int) -> None:
        super().__init__(server)
        self._connections_max = connections_max
        self._connections = 0

    def buildProtocol(self, addr: Any) -> Any:
        if self._connections_max and self._connections >= self._connections_max:
            return None
        protocol = super().buildProtocol(addr)
        lost = protocol.connectionLost

        def count_and_lose(*args: Any) -> Any:
            self.count_lost()
            return lost(*args)

        protocol.connectionLost = count_and_lose
        self._connections += 1
        return protocol

    def count_lost(self) -> None:
        self._connections -= 1


class Socket(WebSocketProtocol):
    def serverClose(self, code: int | None = None) -> None:
        """Also with a code that only servers may send, such as 1001 at their stop."""
        self.sendCloseFrame(code=1000 if code is None else code)


class CountedSocketFactory(WebSocketFactory):
    """A connection that became a websocket is lost as one; its HTTP side hears nothing of it."""

    protocol = Socket

    def __init__(self, server: Any, connections: LimitedFactory) -> None:
        super().__init__(server, server="")
        self._counter = connections

    def buildProtocol(self, addr: Any) -> Any:
        protocol = super().buildProtocol(addr)
        lost = protocol.connectionLost

        def count_and_lose(*args: Any) -> Any:
            self._counter.count_lost()
            return lost(*args)

        protocol.connectionLost = count_and_lose
        return protocol


@implementer(IOpenSSLServerConnectionCreator)
class TlsContexts:
    """What Twisted asks for each new connection; a changed certificate is read again."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self._context = self._make()

    def serverConnectionForTLS(self, tlsProtocol: Any) -> Any:
        return SSL.Connection(self._current(), None)

    def _current(self) -> Any:
        if self._certificate.changed():
            try:
                self._context = self._make()
            except SSL.Error as error:
                logger.error("the new TLS certificate cannot be used, the old one stays: %s", error)
        return self._context

    def _make(self) -> Any:
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.use_certificate_chain_file(self._certificate.cert)
        context.use_privatekey_file(self._certificate.key)
        context.check_privatekey()
        return context


class DaphneFront:
    """What daphne's Server.run() does, without handing the process to the reactor.

    Without a listener it serves the connections that it is given.
    """

    def __init__(self, application: Any, listener: socket.socket | None, config: Config) -> None:
        self._listener = listener
        self._config = config.server
        self._limits = config.listener
        self._factory: Any = None
        self._server = daphne_server.Server(
            application,
            endpoints=["adopted"],
            signal_handlers=False,
            request_buffer_size=BODY_CHUNK_BYTES,
            verbosity=0,
            server_name="",
        )
        self._port: Any = None
        self._closed = asyncio.Event()

    async def open(self) -> None:
        server = self._server
        server.connections = {}
        server.http_factory = LimitedFactory(server, self._limits.connections_max)
        server.http_factory.timeOut = self._config.keep_alive_s
        self._factory = server.http_factory
        if self._limits.tls:
            contexts: Any = TlsContexts(Certificate(self._limits))
            self._factory = TLSMemoryBIOFactory(contexts, False, server.http_factory)
        server.ws_factory = CountedSocketFactory(server, server.http_factory)
        server.ws_factory.setProtocolOptions(
            allowNullOrigin=True,  # who may is for the application to say
            openHandshakeTimeout=HANDSHAKE_S,
            maxMessagePayloadSize=SOCKET_BYTES_MAX,
            maxFramePayloadSize=SOCKET_BYTES_MAX,
        )
        globalLogBeginner.beginLoggingTo([_discard], redirectStandardIO=False, discardBuffer=True)
        reactor.callLater(1, server.application_checker)
        if self._listener is not None:
            self._port = reactor.adoptStreamPort(
                self._listener.fileno(), self._listener.family, self._factory
            )
            self._listener.close()  # the reactor has its own duplicate

    def connections(self) -> int:
        return sum("disconnected" not in one for one in self._server.connections.values())

    async def take(self, connection: socket.socket) -> None:
        with connection:  # here too
            reactor.adoptStreamConnection(connection.fileno(), connection.family, self._factory)

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def stop_accepting(self) -> None:
        if self._port is not None:
            self._port.stopListening()

    async def finish(self) -> None:
        deadline = time.monotonic() + self._config.drain_s
        while (running := self._running()) and (left_s := deadline - time.monotonic()) > 0:
            await asyncio.wait(running, timeout=left_s)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=1)
        self._closed.set()

    def _running(self) -> list[asyncio.Task[None]]:
        tasks = (
            details.get("application_instance") for details in self._server.connections.values()
        )
        return [task for task in tasks if task is not None and not task.done()]


@implementer(ILogObserver)
def _discard(event: Any) -> None:
    """Twisted reports to nobody: what matters is logged by daphne and by us."""
