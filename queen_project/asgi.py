"""The ASGI application: Channels' router around the broker's door and the dashboard's socket.

URLRouter mounts one catch-all: it matches the decoded path, and names may hold slashes,
so the door splits the raw path itself. Under `manage.py broker` the broker is open
before the first request; under any other ASGI server the door opens one in the loop, and
the embedded PostgreSQL is kept running from here.

Imports brokers.{api.door,api.view_door,admin.application,live.routing,services.background},
embedded_supervisor. Named by settings.py and serving.py.
"""

import os
from typing import Any

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.urls import re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "queen_project.settings")
django_application = get_asgi_application()

from brokers import runtime  # noqa: E402  (models can be imported only now)
from brokers.admin.application import ConsoleApplication  # noqa: E402
from brokers.api.door import Door  # noqa: E402
from brokers.api.view_door import Views  # noqa: E402
from brokers.live import routing  # noqa: E402
from brokers.services import background  # noqa: E402
from queen_project import embedded_supervisor, urls  # noqa: E402
from queen_project.settings import QUEEN_CONFIG  # noqa: E402


class CatchAll(URLRouter):
    """Channels' router with one route, which takes everything: no path is looked at here.

    Matching would cost each request a seventh of its time, and would choke on a root path
    that any client may claim to daphne.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        return await self.routes[0].callback(scope, receive, send)


assert urls.urlpatterns  # loaded now, and not by the first request, which would hold up others
console = ConsoleApplication(django_application, body_bytes_max=QUEEN_CONFIG.server.body_bytes_max)


def broker() -> runtime.Broker:
    return runtime.current_or_open(background.attach)


door = Door(Views(console), broker)
application = ProtocolTypeRouter(
    {"http": CatchAll([re_path(r"", door)]), "websocket": routing.application(broker)}
)

if QUEEN_CONFIG.postgres.embedded and runtime.current() is None:
    embedded_supervisor.Supervisor(
        QUEEN_CONFIG.paths.data_dir, database=QUEEN_CONFIG.postgres.database, create=True
    ).start()
