"""The dashboard's page, and its picture for whoever cannot have the websocket.

Imports address, layout, live, runtime. Used by urls.py.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse

from brokers import runtime
from brokers.errors import BrokerError
from brokers.live import layout, live
from brokers.live.address import SOCKET_PATH


def _tile(name: str, title: str, part: str, unit: str = "", *notes: str) -> dict[str, Any]:
    return {"id": name, "title": title, "part": part, "unit": unit, "notes": notes}


def _table(
    name: str,
    title: str,
    part: str,
    *columns: str,
    wide: bool = False,
    texts: int = 1,
    note: str = "",
) -> dict[str, Any]:
    """All columns but the first `texts` hold numbers."""
    told = [{"title": one, "number": no >= texts} for no, one in enumerate(columns)]
    return {"id": name, "title": title, "part": part, "columns": told, "wide": wide, "note": note}


TILES = (
    _tile("pushed", "Pushed", "traffic", "/s", "pushed-total"),
    _tile("popped", "Delivered", "traffic", "/s", "popped-total"),
    _tile("acked", "Acknowledged", "traffic", "/s", "failed"),
    _tile("pending", "Pending", "totals", "", "pending-note", "processing"),
    _tile("oldest", "Oldest waiting", "totals"),
    _tile("dead", "Dead letters", "totals", "", "dead-note"),
    _tile("parked", "Parked consumers", "traffic"),
    _tile("timers", "Timers due", "timers", "", "timers-note"),
    _tile("spool", "Spool backlog", "traffic", "", "spool-note"),
)
WAITING = (
    _table(
        "queues",
        "Lag by queue",
        "queues",
        "Queue",
        "Pending",
        "Oldest",
        "In process",
        "Pushed/min",
        "Delivered/min",
        "Acked/min",
        "Dead letters",
        wide=True,
    ),
    _table(
        "groups",
        "Lag by consumer group",
        "groups",
        "Group",
        "Queue",
        "Lag",
        "Partitions behind",
        "Oldest",
        texts=2,
    ),
    _table("parked", "Parked consumers by queue", "traffic", "Queue", "Parked"),
)
HEALTH = (
    _table(
        "brokers",
        "Brokers",
        "minutes",
        "Broker",
        "State",
        "Pushed/s",
        "Delivered/s",
        "CPU",
        "Memory",
        "Worst loop delay",
        "Connections",
        "Up for",
        "Spool",
        wide=True,
        texts=2,
        note="Messages a second are those of the latest minute that a broker wrote down, and so is"
        " all that is told of one that does not answer you.",
    ),
)


def dashboard(request: HttpRequest) -> HttpResponse:
    layout.demand(request)
    context = {"socket": SOCKET_PATH, "tiles": TILES, "waiting": WAITING, "health": HEALTH}
    return layout.page(request, "live/dashboard.html", context)


def snapshot(request: HttpRequest) -> HttpResponse:
    """The whole picture. Asking keeps the pictures coming for a while."""
    layout.demand(request)
    broker = runtime.current()
    assert broker is not None, "the door has opened one"
    try:
        picture = broker.call_from_thread(live.of(broker).picture())
    except (BrokerError, TimeoutError):
        return JsonResponse({"error": "no picture can be had at the moment"}, status=503)
    return HttpResponse(picture, content_type="application/json")
