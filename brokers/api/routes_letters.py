"""The routes of messages as one looks at them, of dead letters, and of redrives.

A redrive needs the rights of a replay, and no more: it moves, it destroys nothing.

Imports route. Used by routes.py.
"""

from brokers.api.route import Kind, Level, Route

DRF = Kind.DRF
READ, READ_WRITE, ADMIN = Level.READ_ONLY, Level.READ_WRITE, Level.ADMIN

_MESSAGES = "/api/v1/messages"
_MESSAGE = f"{_MESSAGES}/:partitionId/:transactionId"
_DLQ = "/api/v1/dlq"
_REDRIVE = f"{_DLQ}/redrive"

ROUTES: tuple[Route, ...] = (
    Route("GET", _MESSAGES, READ, DRF, "message_list", head=True, confined=True),
    Route("GET", f"{_MESSAGES}/search", READ, DRF, "message_search", head=True, confined=True),
    Route("GET", _MESSAGE, READ, DRF, "message_detail", head=True, confined=True),
    Route("DELETE", _MESSAGE, READ_WRITE, DRF, "message_delete", confined=True),
    Route("POST", f"{_MESSAGE}/retry", READ_WRITE, DRF, "message_retry", confined=True),
    Route("GET", _DLQ, READ, DRF, "dlq_list", head=True, confined=True),
    Route("DELETE", _DLQ, ADMIN, DRF, "dlq_purge", confined=True),
    Route("POST", f"{_DLQ}/:id/replay", READ_WRITE, DRF, "dlq_replay"),
    Route("POST", _REDRIVE, READ_WRITE, DRF, "redrive_create", confined=True),
    Route("GET", _REDRIVE, READ, DRF, "redrive_list", head=True),
    Route("GET", f"{_REDRIVE}/:id", READ, DRF, "redrive_detail", head=True, confined=True),
    Route("POST", f"{_REDRIVE}/:id/cancel", READ_WRITE, DRF, "redrive_cancel", confined=True),
    Route("POST", f"{_REDRIVE}/:id/resume", READ_WRITE, DRF, "redrive_resume", confined=True),
    Route(
        "GET",
        "/api/v1/analytics/dlq-signatures",
        READ,
        DRF,
        "dlq_signatures",
        head=True,
        confined=True,
    ),
)
