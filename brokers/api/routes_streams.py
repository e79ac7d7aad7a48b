"""The routes of streams and of traces.

Imports route. Used by routes.py.
"""

from brokers.api.route import Kind, Level, Route

_STREAMS = "/streams/v1"
_TRACES = "/api/v1/traces"

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
    Route("GET", f"{_TRACES}/names", Level.READ_ONLY, Kind.HOT, "trace_names", head=True),
    Route(
        "GET",
        f"{_TRACES}/by-name/:traceName",
        Level.READ_ONLY,
        Kind.HOT,
        "traces_by_name",
        head=True,
    ),
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
