"""A request at the door, as the hot handlers see it.

Imports auth, routes, wire. Used by door.py and the handlers.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
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


Handler = Callable[[Call], Awaitable[Reply]]
