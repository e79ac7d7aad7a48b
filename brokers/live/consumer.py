"""The websocket of the dashboard: lets a viewer in, hears what it has seen, lets it go.

Pictures are sent by the loop of live.py and not through a channel layer: they are made in the
process that the socket is open in, and the same bytes go to every socket of that process.

Imports live, sessions. Used by routing.py.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from channels.consumer import AsyncConsumer, get_handler_name
from channels.exceptions import StopConsumer
from django.db import DatabaseError

from brokers.live import live, sessions
from brokers.live.live import Viewer

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

# Of a number that says which picture was seen.
SEEN_CHARACTERS_MAX = 16
NOT_UNDERSTOOD = 1008


class LiveConsumer(AsyncConsumer):
    """`broker` is asked when a socket opens: the server may exist before the broker."""

    def __init__(self, broker: "Callable[[], Broker]") -> None:
        self._broker = broker
        self._viewer: Viewer | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Channels' own would make two tasks for each message, one of them in a thread that looks
        after Django's connections: none is used here, and viewers say much."""
        self.scope, self.base_send = scope, send
        with contextlib.suppress(StopConsumer):
            while True:
                message = await receive()
                await getattr(self, get_handler_name(message))(message)

    async def websocket_connect(self, message: dict[str, Any]) -> None:
        watching = live.of(self._broker())
        try:
            may_watch = await sessions.admit(self.scope) if watching.has_room else None
        except DatabaseError as error:
            log.info("a viewer cannot be let in: %s", error)
            may_watch = None
        if may_watch is None or not watching.has_room:
            await self.send({"type": "websocket.close"})  # before it is open: a 403
            raise StopConsumer
        await self.send({"type": "websocket.accept"})
        self._viewer = Viewer(send=self.base_send, may_watch=may_watch)
        await watching.join(self._viewer)

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        """A viewer says nothing but the number of pictures that it has seen."""
        text = message.get("text") or ""
        if self._viewer is None:
            return
        if len(text) <= SEEN_CHARACTERS_MAX and text.isascii() and text.isdigit():
            self._viewer.saw(int(text))
        else:
            self._leave()
            await self.send({"type": "websocket.close", "code": NOT_UNDERSTOOD})

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        self._leave()
        raise StopConsumer

    def _leave(self) -> None:
        if self._viewer is not None:
            live.of(self._broker()).leave(self._viewer)
            self._viewer = None
