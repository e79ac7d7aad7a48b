"""The routes that tell what there is: status, analytics, aggregates, and who one is.

Imports route. Used by routes.py.
"""

from brokers.api.route import Kind, Level, Route

HOT, DRF = Kind.HOT, Kind.DRF
PUBLIC, READ = Level.PUBLIC, Level.READ_ONLY

_STATUS = "/api/v1/status"
_ANALYTICS = "/api/v1/analytics"
_RESOURCES = "/api/v1/resources"

STATUS_ROUTES: tuple[Route, ...] = (
    Route("GET", _STATUS, READ, DRF, "cell_status", False, head=True),
    Route("GET", f"{_STATUS}/queues", READ, DRF, "status_queues", head=True),
    Route("GET", f"{_STATUS}/queues/:queue", READ, DRF, "status_queue", head=True),
    Route("GET", f"{_STATUS}/analytics", READ, DRF, "status_analytics", head=True, confined=True),
    Route("GET", f"{_ANALYTICS}/queue-lag", READ, DRF, "queue_lag", head=True, confined=True),
    Route(
        "GET", f"{_ANALYTICS}/queue-ops", READ, DRF, "queue_operations", head=True, confined=True
    ),
    Route(
        "GET",
        f"{_ANALYTICS}/queue-parked-replicas",
        READ,
        DRF,
        "parked_replicas",
        head=True,
        confined=True,
    ),
    Route(
        "GET", f"{_ANALYTICS}/retention", READ, DRF, "retention_history", head=True, confined=True
    ),
    Route("GET", f"{_ANALYTICS}/workload", READ, DRF, "workload", head=True),
    Route(
        "GET", f"{_ANALYTICS}/partition-liveness", READ, DRF, "liveness", head=True, confined=True
    ),
    Route("GET", f"{_ANALYTICS}/system-metrics", READ, DRF, "system_metrics", False, head=True),
    Route("GET", f"{_ANALYTICS}/worker-metrics", READ, DRF, "worker_metrics", False, head=True),
    Route("GET", f"{_ANALYTICS}/postgres-stats", READ, DRF, "postgres_stats", False, head=True),
    Route("GET", f"{_RESOURCES}/overview", READ, DRF, "overview", head=True),
    Route("GET", f"{_RESOURCES}/namespaces", READ, DRF, "namespaces", head=True),
    Route("GET", f"{_RESOURCES}/tasks", READ, DRF, "tasks", head=True),
    Route("POST", "/api/v1/partitions/changed", READ, DRF, "partitions_changed", confined=True),
    Route("GET", "/metrics", PUBLIC, HOT, "metrics_json", False, head=True),
    Route("GET", "/auth/me", PUBLIC, HOT, "auth_me", False, head=True),
    Route("GET", "/auth/login", PUBLIC, HOT, "auth_login", False, head=True),
    Route("POST", "/auth/logout", PUBLIC, HOT, "auth_logout", False),
)
