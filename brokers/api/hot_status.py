"""The handlers that answer whatever the database does: figures of this process, and who one is.

Imports services/workers, wire. Used by hot.py.
"""

import json
import time
from typing import TYPE_CHECKING, Any

from brokers import metrics
from brokers.api.wire import Reply
from brokers.errors import RequestError
from brokers.services import workers as worker_service

if TYPE_CHECKING:
    from brokers.api.call import Call

# What each of the two totals of GET /metrics adds up.
REQUESTS = (
    "queen_process_push_requests",
    "queen_process_pop_requests",
    "queen_process_ack_requests",
)
MESSAGES = ("queen_process_push_messages", "queen_process_pop_messages")
HTML = b"text/html; charset=utf-8"
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Queen</title>
<p>{text}</p></html>
"""
OPEN = "Authentication is off: everybody who reaches this broker is its administrator."
CLOSED = "This broker asks for a token or a key. The dashboard needs a proxy that knows its users."


async def metrics_json(call: "Call") -> Reply:
    """Of all workers together. What is never measured is a literal zero, as clients expect."""
    totals = await _totals(call)
    stats = call.broker.store.stats()
    return _json(
        uptime=int(time.monotonic() - call.broker.counters.started),
        requests={"total": sum(totals.get(name, 0) for name in REQUESTS), "rate": 0},
        messages={"total": sum(totals.get(name, 0) for name in MESSAGES), "rate": 0},
        database={
            "poolSize": totals.get("queen_db_pool_size", stats["size"]),
            "idleConnections": totals.get("queen_db_pool_idle", stats["idle"]),
            "waitingRequests": 0,
        },
        memory={
            "rss": totals.get("queen_process_resident_memory_bytes", metrics.resident_bytes()),
            "heapTotal": 0,
            "heapUsed": 0,
            "external": 0,
            "arrayBuffers": 0,
        },
        cpu={"user": 0, "system": 0},
    )


async def _totals(call: "Call") -> dict[str, int]:
    """Each family of this broker as one number, whatever its labels."""
    registry = await worker_service.registry(call.broker)
    totals: dict[str, int] = {}
    for family in registry.collect():
        if family.name.startswith("queen_"):
            values = [one.value for one in family.samples if not one.name.endswith("_created")]
            totals[family.name] = int(sum(values))
    return totals


async def auth_me(call: "Call") -> Reply:
    """The identity of whoever opens the dashboard of a broker that stands alone."""
    if call.broker.config.auth.required:
        raise RequestError(
            "authentication required",
            code="auth_required",
            body={"error": "authentication required", "code": "auth_required"},
        )
    return _json(
        standalone=True,
        authenticated=True,
        role="admin",
        user={"id": "local", "username": "local", "role": "admin"},
        clusters=[{"id": "local", "name": "local", "role": "admin"}],
    )


async def auth_login(call: "Call") -> Reply:
    text = CLOSED if call.broker.config.auth.required else OPEN
    return Reply(200, PAGE.format(text=text).encode("ascii"), content_type=HTML)


async def auth_logout(call: "Call") -> Reply:
    """Nobody was ever logged in here."""
    return _json(success=True)


def _json(**document: Any) -> Reply:
    return Reply(200, json.dumps(document).encode("ascii"))


HANDLERS = {
    handler.__name__: handler for handler in (metrics_json, auth_me, auth_login, auth_logout)
}
