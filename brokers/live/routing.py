"""Where websockets go: one address, one consumer; whatever else is asked for is refused.

The Origin has to be a host of ours, and the one that is asked (admin/visitors.py): a browser lets
any page of the world open a socket here, and sends our cookies with it. The address is compared as
a whole: Channels' router would choke on a root path, which any client may claim to daphne.

Imports address, consumer. Used by queen_project/asgi.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from channels.security.websocket import AllowedHostsOriginValidator, WebsocketDenier

from brokers.live.address import SOCKET_PATH
from brokers.live.consumer import LiveConsumer

if TYPE_CHECKING:
    from brokers.runtime import Broker


def application(broker: "Callable[[], Broker]") -> Any:
    consumer = LiveConsumer.as_asgi(broker=broker)
    denier = WebsocketDenier.as_asgi()

    async def route(scope: Any, receive: Any, send: Any) -> None:
        chosen = consumer if scope["path"] == SOCKET_PATH else denier
        await chosen(scope, receive, send)

    return AllowedHostsOriginValidator(route)
