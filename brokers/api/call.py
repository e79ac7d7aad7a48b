"""A request at the door, as the hot handlers see it.

Imports auth, routes, wire. Used by door.py and the handlers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from brokers.api.route import Route
from brokers.api.wire import Client, Reply
from brokers.principal import Principal

if TYPE_CHECKING:
    from brokers.runtime import Broker


@dataclass(slots=True, kw_only=True)
class Call:
    """One request at the door, with everything that its handler may ask of it."""

    broker: "Broker"
    route: Route
    params: dict[str, str]
    query_string: bytes
    tenant: UUID
    principal: Principal
    client: Client
    body: bytes = b""


class Later(NamedTuple):
    """An answer that is begun: once `done` is, `reply` makes it, or raises what went wrong.

    Nobody needs to wait in a task. Cancelling `done` ends the wait, as that of a task would.
    """

    done: asyncio.Future[Any]
    reply: Callable[[], Reply]


Handler = Callable[[Call], Awaitable[Reply]]
# None: not this request; nothing has been done for it yet.
SoonHandler = Callable[[Call], Reply | Later | None]
