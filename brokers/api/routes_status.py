"""The routes that tell what there is: status, analytics, aggregates, and who one is.

Imports route. Used by routes.py.
"""

from brokers.api.route import Kind, Level, Route

HOT, DRF = Kind.HOT, Kind.DRF
PUBLIC, READ = Level.PUBLIC, Level.READ_ONLY

_STATUS = "/api/v1/status"
_ANALYTICS = "/api/v1/analytics"
_RESOURCES = "/api/v1/resources"


def _shared(template: str, handler: str, *, tenant: bool = True, confined: bool = False) -> Route:
    """History, and what is told as it was last counted."""
    return Route(
        "GET", template, READ, DRF, handler, tenant, head=True, confined=confined, shared=True
    )


STATUS_ROUTES: tuple[Route, ...] = (
    _shared(_STATUS, "cell_status", tenant=False),
    _shared(f"{_STATUS}/queues", "status_queues"),
    Route("GET", f"{_STATUS}/queues/:queue", READ, DRF, "status_queue", head=True),
    _shared(f"{_STATUS}/analytics", "status_analytics", confined=True),
    _shared(f"{_ANALYTICS}/queue-lag", "queue_lag", confined=True),
    _shared(f"{_ANALYTICS}/queue-ops", "queue_operations", confined=True),
    _shared(f"{_ANALYTICS}/queue-parked-replicas", "parked_replicas", confined=True),
    _shared(f"{_ANALYTICS}/retention", "retention_history", confined=True),
    _shared(f"{_ANALYTICS}/workload", "workload"),
    _shared(f"{_ANALYTICS}/partition-liveness", "liveness", confined=True),
    _shared(f"{_ANALYTICS}/system-metrics", "system_metrics", tenant=False),
    _shared(f"{_ANALYTICS}/worker-metrics", "worker_metrics", tenant=False),
    _shared(f"{_ANALYTICS}/postgres-stats", "postgres_stats", tenant=False),
    _shared(f"{_RESOURCES}/overview", "overview"),
    _shared(f"{_RESOURCES}/namespaces", "namespaces"),
    _shared(f"{_RESOURCES}/tasks", "tasks"),
    Route("POST", "/api/v1/partitions/changed", READ, DRF, "partitions_changed", confined=True),
    Route("GET", "/metrics", PUBLIC, HOT, "metrics_json", False, head=True),
    Route("GET", "/auth/me", PUBLIC, HOT, "auth_me", False, head=True),
    Route("GET", "/auth/login", PUBLIC, HOT, "auth_login", False, head=True),
    Route("POST", "/auth/logout", PUBLIC, HOT, "auth_logout", False),
)
