"""The routes that work on a queue as a whole: pause, resume, purge.

Imports route. Used by routes.py.
"""

from brokers.api.route import Kind, Level, Route

_QUEUE = "/api/v1/resources/queues/:queue"

QUEUE_ROUTES: tuple[Route, ...] = (
    Route("POST", f"{_QUEUE}/pause", Level.READ_WRITE, Kind.DRF, "queue_pause"),
    Route("POST", f"{_QUEUE}/resume", Level.READ_WRITE, Kind.DRF, "queue_resume"),
    Route("POST", f"{_QUEUE}/purge", Level.ADMIN, Kind.DRF, "queue_purge"),
    Route(
        "POST",
        f"{_QUEUE}/partitions/:partition/purge",
        Level.ADMIN,
        Kind.DRF,
        "partition_purge",
    ),
)
