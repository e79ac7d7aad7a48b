"""Acks: those of this process share calls to the database.

What completes exactly a batch that was handed out here is one positional cursor move;
everything else, and whatever that refuses, takes the full procedure, which tells why.

Imports domain, frames, flow, store. Used by services/ and runtime.py.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from brokers import frames
from brokers.domain import NIL_ID, Ack, AckOutcome
from brokers.errors import NoConnection, Permanent, StoreError
from brokers.flow.coalesce import Coalescer
from brokers.flow.registry import HandedOut
from brokers.flow.tally import Counts
from brokers.store import calls
from brokers.store.calls import AckItem, AckRow, Batch

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
    "leaseless": "this queue requires the leaseId of the message with every ack",
}
# The outcome of an ack that completed a batch with others, behind its transactionId.
DONE = AckOutcome("", True, lease_released=True)[1:]
POOL = "pool"
FLUSH_FAILED = "ack flush failed; lease will expire and redeliver"
CALL_ACKS_MAX = 10_000
UUIDS_KEPT = 16_384


@dataclass(slots=True)
class Sheet:
    """The acks of one request: which of them are whole batches, and what became of each."""

    tenant: UUID | None
    acks: list[Ack]
    whole: list[tuple[HandedOut, str, list[int]]] = field(default_factory=list)
    rest: list[int] = field(default_factory=list)
    outcomes: list[AckOutcome | None] = field(default_factory=list)


class Acks:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.coalescer: Coalescer[Sheet, None] = Coalescer(
            "ack", self._flush, weight_max=CALL_ACKS_MAX, weight=lambda sheet: len(sheet.acks)
        )

    async def settle(self, tenant: UUID, acks: list[Ack]) -> list[AckOutcome]:
        settling = self.begin(tenant, acks)
        with contextlib.suppress(StoreError):  # which the outcomes tell
            await settling.finished
        return settling.outcomes()

    def begin(self, tenant: UUID, acks: list[Ack]) -> "Settling":
        """Nothing of it waits but for `finished`."""
        sheet = Sheet(self._broker.tenant_filter(tenant), acks)
        sheet.outcomes = [None] * len(acks)
        self._find_whole_batches(sheet)
        return Settling(sheet, self.coalescer.put(sheet))

    def _find_whole_batches(self, sheet: Sheet) -> None:
        registry = self._broker.registry
        units: dict[tuple[str, str | None, str], list[int]] = {}
        last: tuple[str, str | None, str] | None = None
        for no, one in enumerate(sheet.acks):
            place = (one.partition_id, one.lease_id, one.group)
            if place != last:
                last, nos = place, units.setdefault(place, [])
            nos.append(no)
        for (partition_id, lease, group), nos in units.items():
            lease_id = None if lease is None else uuid_text(lease)
            partition_uid = uuid_text(partition_id)
            batch = None
            if lease_id is not None and partition_uid is not None:
                batch = registry.batch(lease_id, partition_uid)
            acks = [sheet.acks[no] for no in nos]
            if (
                batch is not None
                and lease_id is not None
                and sheet.tenant in (None, batch.tenant)
                and batch.group == group
                and all(ACTIONS.get(one.status) == COMPLETED for one in acks)
                and batch.is_all([frames.literal(one.transaction_id).encode() for one in acks])
            ):
                sheet.whole.append((batch, lease_id, nos))
            else:
                sheet.rest.extend(nos)

    async def _flush(self, sheets: Sequence[Sheet]) -> list[None]:
        broker = self._broker
        async with broker.admission.slot("ack"):
            await self._complete([(sheet, *one) for sheet in sheets for one in sheet.whole])
            by_tenant: dict[UUID | None, list[Sheet]] = {}
            for sheet in sheets:
                if sheet.rest:
                    by_tenant.setdefault(sheet.tenant, []).append(sheet)
            for tenant, group in by_tenant.items():
                await self._full(tenant, group)
        return [None] * len(sheets)

    async def _complete(self, units: list[tuple[Sheet, HandedOut, str, list[int]]]) -> None:
        """Whole batches by position; those that the database refuses go the full way."""
        if not units:
            return
        broker = self._broker
        try:
            done = await calls.cursor_complete(
                broker.ack_lane.fetch,
                [
                    Batch(batch.partition_id, batch.group, lease, batch.end)
                    for _, batch, lease, _ in units
                ],
            )
        except Permanent:
            # One of the batches cannot be completed: the full way lets it fail alone.
            done = set()
        for position, (sheet, batch, lease_id, nos) in enumerate(units):
            if position not in done:
                broker.registry.ended(lease_id, batch.partition_uid)
                sheet.rest.extend(nos)
                continue
            broker.registry.ended(lease_id, batch.partition_uid)
            broker.announce.completed(batch.queue_id, batch.group, batch.partition_id, lease_id)
            counts = broker.tally.of(batch.queue_id)
            counts.ack_requests += 1
            counts.ack_success += len(nos)
            for no in nos:
                sheet.outcomes[no] = AckOutcome(sheet.acks[no].transaction_id, *DONE)

    async def _full(self, tenant: UUID | None, sheets: list[Sheet]) -> None:
        """Everything else, each request judged by itself."""
        broker = self._broker
        items: list[AckItem] = []
        places: list[tuple[Sheet, int]] = []
        for request, sheet in enumerate(sheets):
            for no in sorted(sheet.rest):
                item = ack_item(sheet.acks[no], request=request)
                items.append(item)
                places.append((sheet, no))
                if item.lease_id is not None:
                    broker.registry.touch(item.lease_id, item.partition_uid)
        try:
            rows = await calls.message_ack(broker.ack_lane.fetch, tenant, items)
        except Permanent:
            # One of the requests cannot be carried out: it fails alone, whoever else is in the
            # call, and whichever tenants come behind it.
            if len(sheets) == 1:
                _fail(sheets[0])
                return
            for sheet in sheets:
                try:
                    await self._full(tenant, [sheet])
                except StoreError:
                    _fail(sheet)
            return
        moved: set[tuple[int, str]] = set()
        for _, queue_id in {
            (items[row_no].request, row.queue_id) for row_no, row in enumerate(rows)
        }:
            if queue_id is not None:
                broker.tally.of(queue_id).ack_requests += 1
        for (sheet, no), item, row in zip(places, items, rows, strict=True):
            sheet.outcomes[no] = outcome(sheet.acks[no], row)
            if row.queue_id is not None:
                count_ack(broker.tally.of(row.queue_id), item, row)
            if item.action != COMPLETED and row.outcome == "done" and row.queue_id:
                moved.add((row.queue_id, item.group))
            if row.lease_released and row.queue_id and row.partition_id:
                if item.lease_id is not None:
                    broker.registry.ended(item.lease_id, item.partition_uid)
                broker.announce.released(row.queue_id, item.group, [row.partition_id])
        for queue_id, group in moved:
            broker.announce.moved_back(queue_id, group, released=True)


class Settling(NamedTuple):
    """The acks of a request on their way; once `finished`: their outcomes."""

    sheet: Sheet
    finished: asyncio.Future[None]

    def outcomes(self) -> list[AckOutcome]:
        acks, settled = self.sheet.acks, self.sheet.outcomes
        try:
            self.finished.result()
        except StoreError as error:
            # What a first call had settled stays so, though a second one broke.
            text = POOL if isinstance(error, NoConnection) else FLUSH_FAILED
            return [
                known or AckOutcome(one.transaction_id, False, text)
                for one, known in zip(acks, settled, strict=True)
            ]
        assert all(outcome is not None for outcome in settled)
        return settled  # type: ignore[return-value]


def _fail(sheet: Sheet) -> None:
    for no in sheet.rest:
        sheet.outcomes[no] = AckOutcome(sheet.acks[no].transaction_id, False, FLUSH_FAILED)


def count_ack(counts: Counts, item: AckItem, row: AckRow) -> None:
    """Completed counts as a success; a negative one, carried out or not, as a failure."""
    if item.action == COMPLETED and row.outcome in ("done", "noop"):
        counts.ack_success += 1
    else:
        counts.ack_failed += 1
    counts.dead_letters += bool(row.dead_lettered)
    counts.conflated += row.conflated or 0


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


@lru_cache(maxsize=UUIDS_KEPT)
def uuid_text(text: str) -> str | None:
    """The canonical form of a UUID in its usual spelling, else None.

    A batch names the same lease and partition again and again: they are read once.
    """
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
