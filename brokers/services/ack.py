"""Ack: move cursors as consumers say.

Imports domain, frames, store. Called by api/hot.py.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from brokers import frames
from brokers.domain import NIL_ID, Ack, AckOutcome
from brokers.errors import NoConnection, StoreError
from brokers.store import calls
from brokers.store.calls import AckItem, AckRow

if TYPE_CHECKING:
    from brokers.runtime import Broker

COMPLETED, RETRY, FAILED, DLQ = range(4)
ACTIONS = {
    None: COMPLETED,
    "completed": COMPLETED,
    "success": COMPLETED,
    "acked": COMPLETED,
    "ok": COMPLETED,
    "retry": RETRY,
    "dlq": DLQ,
}
ERRORS = {
    "already": "already committed: the cursor moved past this message before this ack",
    "unresolvable": (
        "unresolvable: transaction not in the ack window (hash purged or never pushed);"
        " if leased, the message redelivers"
    ),
    "lease": "invalid or expired lease",
    "unknown": "consumer not found",
    "foreign": "partition not owned by tenant",
    "rejected": "no lease of the request fits this ack",
}
POOL = "pool"
FLUSH_FAILED = "ack flush failed; lease will expire and redeliver"


async def ack(broker: "Broker", tenant: UUID, acks: list[Ack]) -> list[AckOutcome]:
    """Carry out the acknowledgments; one outcome each, in request order."""
    broker.counters.ack_requests += 1
    items = [ack_item(one) for one in acks]
    try:
        async with broker.admission.slot("ack"):
            rows = await calls.message_ack(
                broker.store.fetch, broker.tenant_filter(tenant), items
            )
    except StoreError as error:
        text = POOL if isinstance(error, NoConnection) else FLUSH_FAILED
        return [AckOutcome(one.transaction_id, False, text) for one in acks]
    broker.announce.acked(rows)
    outcomes = [outcome(one, row) for one, row in zip(acks, rows, strict=True)]
    broker.counters.count_acks(outcomes)
    return outcomes


def ack_item(one: Ack, *, request: int = 0) -> AckItem:
    """An acknowledgment for the procedure. What is no UUID is the id of nothing."""
    return AckItem(
        request=request,
        partition_uid=uuid_text(one.partition_id) or NIL_ID,
        group=one.group,
        lease_id=None if one.lease_id is None else uuid_text(one.lease_id) or NIL_ID,
        transaction=frames.literal(one.transaction_id),
        action=ACTIONS.get(one.status, FAILED),
        error=one.error,
    )


def uuid_text(text: str) -> str | None:
    """The canonical form of a UUID in its usual spelling, else None."""
    if len(text) != 36:
        return None
    try:
        return str(UUID(text))
    except ValueError:
        return None


def outcome(one: Ack, row: AckRow) -> AckOutcome:
    return AckOutcome(
        one.transaction_id,
        row.outcome in ("done", "noop"),
        ERRORS.get(row.outcome),
        bool(row.lease_released),
        bool(row.dead_lettered),
        row.outcome == "noop",
        row.conflated,
    )
