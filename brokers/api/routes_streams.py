"""The routes of streams and of traces.

Imports route, flow/recent. Used by routes.py.
"""

from brokers.api.route import Kind, Level, Route
from brokers.flow.recent import TRACES

_STREAMS = "/streams/v1"
_TRACES = "/api/v1/traces"


def _told_again(template: str, handler: str) -> Route:
    """It counts all that there is of a name, or of each, for one page."""
    return Route(
        "GET",
        template,
        Level.READ_ONLY,
        Kind.HOT,
        handler,
        head=True,
        shared=True,
        topic=TRACES,
    )


ROUTES: tuple[Route, ...] = (
    Route(
        "POST", f"{_STREAMS}/queries", Level.READ_WRITE, Kind.HOT, "stream_register", confined=True
    ),
    Route(
        "POST",
        f"{_STREAMS}/state/get",
        Level.READ_ONLY,
        Kind.HOT,
        "stream_state_get",
        confined=True,
    ),
    Route("POST", f"{_STREAMS}/cycle", Level.READ_WRITE, Kind.HOT, "stream_cycle", confined=True),
    Route("POST", _TRACES, Level.READ_WRITE, Kind.HOT, "trace_add", confined=True),
    _told_again(f"{_TRACES}/names", "trace_names"),
    _told_again(f"{_TRACES}/by-name/:traceName", "traces_by_name"),
    Route(
        "GET",
        f"{_TRACES}/:partitionId/:transactionId",
        Level.READ_ONLY,
        Kind.HOT,
        "traces_of_message",
        head=True,
        confined=True,
    ),
)
