"""uvicorn inside our loop: httptools, our socket, our signals.

uvicorn would replace the SIGTERM handler, close idle connections after 5 s and answer a
broken request line with plain text; here it does none of that.

Imports brokers.{api,config}, serving_protocol. Used by serving.py.
"""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from brokers.api.door import Door
from brokers.config import ServerConfig
from queen_project.serving_protocol import HotSide, JsonProtocol


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
        self._listeners = [] if listener is None else [listener]
        self._server = _Server(
            uvicorn.Config(
                application,
                http=functools.partial(JsonProtocol, hot),  # type: ignore[arg-type]
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

    def _protocol(self) -> asyncio.Protocol:
        server = self._server
        return server.config.http_protocol_class(  # type: ignore[call-arg]
            config=server.config,
            server_state=server.server_state,
            app_state=server.lifespan.state,
        )

    def stop_accepting(self) -> None:
        self._server.should_exit = True
        for server in self._server.servers:
            server.close()

    async def finish(self) -> None:
        assert self._serving is not None
        await self._serving
