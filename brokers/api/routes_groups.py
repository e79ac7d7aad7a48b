"""The routes of consumer groups.

Imports route. Used by routes.py.
"""

from brokers.api.route import Kind, Level, Route

DRF = Kind.DRF
READ, READ_WRITE, ADMIN = Level.READ_ONLY, Level.READ_WRITE, Level.ADMIN

_GROUPS = "/api/v1/consumer-groups"
_GROUP = f"{_GROUPS}/:group"
_QUEUE = f"{_GROUP}/queues/:queue"

GROUP_ROUTES: tuple[Route, ...] = (
    Route("GET", _GROUPS, READ, DRF, "group_list", head=True, shared=True),
    Route("GET", f"{_GROUPS}/lagging", READ, DRF, "group_lagging", head=True, shared=True),
    Route("GET", _GROUP, READ, DRF, "group_detail", head=True),
    Route("DELETE", _GROUP, ADMIN, DRF, "group_delete"),
    Route("POST", f"{_GROUP}/subscription", READ_WRITE, DRF, "group_start"),
    Route("POST", f"{_QUEUE}/seek", READ_WRITE, DRF, "group_seek"),
    Route(
        "POST",
        f"{_QUEUE}/partitions/:partition/seek",
        READ_WRITE,
        DRF,
        "group_partition_seek",
    ),
    Route("DELETE", _QUEUE, ADMIN, DRF, "group_queue_delete"),
)
