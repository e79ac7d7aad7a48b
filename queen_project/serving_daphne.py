"""daphne inside our loop: Twisted's asyncio reactor runs on it, and never runs itself.

Importing daphne.server installs the reactor on a loop that it makes; the broker then runs
on that loop. daphne buffers a whole body before the application sees any of it, so limits
on bodies are weaker here than under uvicorn.

Imports brokers.config. Used by serving.py.
"""

import asyncio
import logging
import socket
import time
from typing import Any

from daphne import server as daphne_server
from daphne.http_protocol import HTTPFactory
from daphne.ws_protocol import WebSocketFactory
from twisted.internet import reactor as twisted_reactor
from twisted.logger import ILogObserver, globalLogBeginner
from zope.interface import implementer

from brokers.config import ServerConfig

reactor: Any = twisted_reactor  # which kind it is was decided when daphne was imported

logger = logging.getLogger(__name__)

BODY_CHUNK_BYTES = 1_048_576


def reactor_loop() -> asyncio.AbstractEventLoop:
    return daphne_server.twisted_loop


class DaphneFront:
    """What daphne's Server.run() does, without handing the process to the reactor.

    Without a listener it serves the connections that it is given.
    """

    def __init__(
        self, application: Any, listener: socket.socket | None, config: ServerConfig
    ) -> None:
        self._listener = listener
        self._config = config
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
        server.http_factory = HTTPFactory(server)
        server.http_factory.timeOut = self._config.keep_alive_s
        server.ws_factory = WebSocketFactory(server, server="")
        globalLogBeginner.beginLoggingTo([_discard], redirectStandardIO=False, discardBuffer=True)
        reactor.callLater(1, server.application_checker)
        if self._listener is not None:
            self._port = reactor.adoptStreamPort(
                self._listener.fileno(), self._listener.family, server.http_factory
            )
            self._listener.close()  # the reactor has its own duplicate

    def connections(self) -> int:
        return sum("disconnected" not in one for one in self._server.connections.values())

    async def take(self, connection: socket.socket) -> None:
        with connection:  # here too
            reactor.adoptStreamConnection(
                connection.fileno(), connection.family, self._server.http_factory
            )

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
