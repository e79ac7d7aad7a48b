"""Where websockets go: one address, one consumer; whatever else is asked for is refused.

The Origin has to be a host of ours, and the one that is asked (admin/visitors.py): a browser lets
any page of the world open a socket here, and sends our cookies with it.

Imports consumer. Used by queen_project/asgi.py and serving_uvicorn.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator, WebsocketDenier
from django.urls import path, re_path

from brokers.live.consumer import LiveConsumer

if TYPE_CHECKING:
    from brokers.runtime import Broker

PATH = "console/live"


def application(broker: "Callable[[], Broker]") -> Any:
    return AllowedHostsOriginValidator(
        URLRouter(
            [
                path(PATH, LiveConsumer.as_asgi(broker=broker)),
                re_path(r"", WebsocketDenier.as_asgi()),
            ]
        )
    )
