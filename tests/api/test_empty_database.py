"""Every read of the table on a database in which nobody has ever done anything.

Method: HTTP against a broker on a database of its own, one pass over the GET rows of the route
table. A row that is not described here fails, so whoever adds a route says what it answers.
"""

from typing import Any

from brokers.api.route import Route
from brokers.api.routes import ROUTES
from tests.wire_client import UNKNOWN_UUID, WireClient, expect

PARAMETERS = {
    ":queue": "none",
    ":partition": "none",
    ":partitionId": UNKNOWN_UUID,
    ":transactionId": "none",
    ":group": "none",
    ":traceName": "none",
    ":id": UNKNOWN_UUID,
    ":ns": "none",
    "*key": "none",
    "*timerKey": "none",
    ":asset": "none",
}
NO_QUEUE = {"error": "Queue not found"}
NO_COUNTS = {"total": 0, "pending": 0, "processing": 0, "completed": 0, "deadLetter": 0}
# What is asked for beside the address, by handler.
QUERIES = {
    "pop_discovery": {"namespace": "none"},
    "message_search": {"queue": "none", "q": "x"},
    "dlq_signatures": {"queue": "none"},
}
# Status, and what the answer is: a list is all of it, an object a part of it, a text is in it.
EXPECTED: dict[str, tuple[int, Any]] = {
    "pop_discovery": (204, ""),
    "pop_queue": (204, ""),
    "pop_partition": (204, ""),
    "queue_list": (200, {"queues": [], "kvBytes": 0, "timerBytes": 0, "kvRows": 0}),
    "queue_detail": (404, NO_QUEUE),
    "queue_depth": (404, NO_QUEUE),
    "message_list": (200, {"messages": [], "total": 0, "truncated": False}),
    "message_search": (404, NO_QUEUE),
    "message_detail": (404, {}),
    "dlq_list": (200, {"messages": [], "total": 0, "pagination": {"limit": 100, "offset": 0}}),
    "redrive_list": (200, {"redrives": [], "total": 0}),
    "redrive_detail": (404, {}),
    "dlq_signatures": (200, {"queue": "none", "rowsNow": 0, "sample": 0, "signatures": []}),
    "kv_get": (200, {"op": "get", "found": False}),
    "kv_namespaces": (200, {"namespaces": []}),
    "switches_get": (200, {"kvEnabled": True, "quotaTenants": 0, "quotaHot": 0}),
    "maintenance_get": (200, {"maintenanceMode": False, "bufferedMessages": 0}),
    "pop_maintenance_get": (200, {"popMaintenanceMode": False}),
    "shared_state": (200, {"enabled": False, "maintenance_mode": False}),
    "shared_state_stats": (200, {"enabled": False, "reason": "no_peers"}),
    "inter_instance_stats": (200, {"enabled": False, "reason": "no_peers"}),
    "buffers_status": (200, {"pending": 0, "failed": 0, "dbHealthy": True}),
    "timers_read": (200, {"rows": [], "truncated": False}),
    "timer_peek": (200, {"found": False}),
    "health": (200, {"status": "healthy", "database": "connected"}),
    "status": (200, {"status": "ok"}),
    "livez": (200, {"status": "alive"}),
    "readyz": (200, {"status": "ready"}),
    "prometheus": (200, "queen_uptime_seconds"),
    "trace_names": (200, {"trace_names": [], "total": 0}),
    "traces_by_name": (200, {"traces": [], "total": 0}),
    "traces_of_message": (200, {"traces": []}),
    "group_list": (200, []),
    "group_lagging": (200, []),
    "group_detail": (200, {}),
    "cell_status": (200, {"messages": NO_COUNTS | {"failed": 0}, "statsAge": -1}),
    "status_queues": (200, {"queues": [], "pagination": {"limit": 100, "offset": 0}}),
    "status_queue": (404, NO_QUEUE),
    "status_analytics": (200, {"dataPoints": [], "interval": "hour"}),
    "queue_lag": (200, []),
    "queue_operations": (200, {"series": [], "queues": []}),
    "parked_replicas": (200, {"series": [], "replicas": []}),
    "retention_history": (200, {"series": []}),
    "workload": (200, {"rows": [], "groupBy": "namespace"}),
    "liveness": (200, {"rows": []}),
    "system_metrics": (200, {"replicas": []}),
    "worker_metrics": (200, {"timeSeries": [], "queues": []}),
    "postgres_stats": (200, {"database": {}}),
    "overview": (200, {"queues": 0, "messages": NO_COUNTS | {"failed": 0}, "statsAge": -1}),
    "namespaces": (200, {"namespaces": []}),
    "tasks": (200, {"tasks": []}),
    "metrics_json": (200, {"messages": {"total": 0, "rate": 0}}),
    "auth_me": (200, {"standalone": True, "role": "admin"}),
    "auth_login": (200, "<html"),
    "openapi_schema": (200, {"openapi": "3.1.0"}),
    "openapi_page": (200, "<html"),
    "openapi_asset": (404, {}),
}


def address(route: Route) -> str:
    return "/".join(PARAMETERS.get(part, part) for part in route.template.split("/"))


def is_as_expected(answer, expected: Any) -> bool:
    if isinstance(expected, str):
        return expected in answer.text
    told = answer.json()
    if isinstance(expected, list):
        return bool(told == expected)
    # An empty object stands for any: what is measured of the server is never empty.
    return all(
        name in told and (told[name] == value or (value == {} and isinstance(told[name], dict)))
        for name, value in expected.items()
    )


def test_every_read_of_an_empty_database_is_answered_in_its_own_shape(start_broker, fresh_database):
    reads = [route for route in ROUTES if route.method == "GET"]
    assert {route.handler for route in reads} == EXPECTED.keys()
    # Pops last: whoever pops for the first time makes itself known.
    reads.sort(key=lambda route: route.handler.startswith("pop_"))
    wrong = {}
    broker = start_broker(on=fresh_database(), METRICS_FLUSH_MS="3600000")
    with WireClient.at(broker.url) as wire:
        for route in reads:
            status, expected = EXPECTED[route.handler]
            answer = wire.get(address(route), **QUERIES.get(route.handler, {}))
            if answer.status_code != status or not is_as_expected(answer, expected):
                wrong[route.name] = (answer.status_code, answer.text[:300])
        expect(wire.get("/health"), 200)
    assert wrong == {}
