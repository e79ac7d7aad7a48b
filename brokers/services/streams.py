"""Streams: register a query, read its state, commit a cycle of it.

Stations of a cycle: ids -> sinks in order -> resolve, seal -> (state, sinks, source ack: one
commit) -> announce -> answer. A cycle that is refused is an answer; one whose outcome is not
known, or that met a database that is away, is an error and may be repeated.

Imports domain, errors, flow/acks, services/bundle and stream_grants, store. Called by
api/hot_streams.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.domain import DEFAULT_TENANT, NIL_ID, PushItem
from brokers.errors import Permanent, RequestError
from brokers.flow.acks import ERRORS
from brokers.services import stream_grants
from brokers.services.bundle import QUEUE_CHANGING, SPOOLED, STALE_ROUNDS_MAX, Bundle
from brokers.store import stream_calls
from brokers.store.combine import QUEUE_FULL
from brokers.store.stream_calls import (
    GIVE_BACK,
    CycleAck,
    CycleRow,
    Registered,
    StateRow,
    StateWrite,
)

if TYPE_CHECKING:
    from brokers.runtime import Broker

STALE, REFUSED, TOO_MUCH = "QN001", "QN030", "QN013"
STATE_BYTES_MAX = 67_108_864
NOT_FOUND = "not found"
REFUSALS = {
    "partition": "partition not found",
    "query": "query not found",
    "full": QUEUE_FULL,
    "lease": ERRORS["lease"],
    "already": ERRORS["already"],
    "beyond": "the lease does not hold that many messages",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest:
    tenant: UUID
    name: str
    source_queue: str
    sink_queue: str | None
    config_hash: str
    reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRequest:
    """Filters that are None do not filter. Ids are canonical UUIDs."""

    tenant: UUID
    query_id: str
    partition_id: str
    keys: Sequence[str] | None = None
    prefix: str | None = None
    ripe_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRequest:
    """One cycle. `message_ids` are those that the caller chose, one an item.

    `state_ops` counts the operations; `state` is what they come to, one entry a key.
    `refused` is what makes it fail whatever the database says.
    """

    tenant: UUID
    query_id: str
    partition_id: str
    group: str
    state: dict[str, StateWrite]
    state_ops: int
    items: list[PushItem]
    message_ids: list[str | None]
    ack: CycleAck | None
    refused: str | None = None
    producer_sub: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkResult:
    """What became of the items of one (queue, partition): queued, or duplicate if all were."""

    queue: str
    partition: str
    status: str
    base_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """`error` None: it is committed."""

    error: str | None = None
    queue: str | None = None
    sinks: list[SinkResult] = field(default_factory=list)
    completed: int = 0
    lease_released: bool = False


async def register(broker: "Broker", request: RegisterRequest) -> Registered:
    """Whatever the outcome; a refusal has written nothing."""
    grant = await stream_grants.grant_of(broker, request.tenant)
    async with broker.admission.call_slot("maint"):
        return await stream_calls.stream_register(
            broker.store.fetch,
            request.tenant,
            request.name,
            source_queue=request.source_queue,
            sink_queue=request.sink_queue,
            config_hash=request.config_hash,
            reset=request.reset,
            granted=grant is not None,
            queries_max=None if grant is None else grant.queries_max,
            wait_ms=broker.config.push.busy_ms,
        )


async def state(broker: "Broker", request: StateRequest) -> list[StateRow]:
    """The entries that pass the filters, in key order: all of them, or none and an error.

    Through the pool of the message plane and not that of management reads: a worker asks between
    its pop and its cycle, under the lease, and must not queue behind somebody's listing.
    """
    try:
        return await stream_calls.stream_state_get(
            broker.store.fetch,
            broker.tenant_filter(request.tenant),
            request.query_id,
            request.partition_id,
            keys=request.keys,
            prefix=request.prefix,
            ripe_at=request.ripe_at,
            bytes_max=STATE_BYTES_MAX,
        )
    except Permanent as error:
        if error.sqlstate == REFUSED:
            raise RequestError(NOT_FOUND, code="not_found") from None
        if error.sqlstate == TOO_MUCH:
            text = error.text.split("\n")[0]
            raise RequestError(text, body={"success": False, "error": text}) from None
        raise


async def cycle(broker: "Broker", request: CycleRequest) -> CycleResult:
    """State, sink messages and source ack in one database transaction, or nothing."""
    if request.refused is not None:
        return CycleResult(error=request.refused)
    if request.items and request.tenant != DEFAULT_TENANT:
        size = sum(len(one.payload) for one in request.items)
        await broker.quotas.admit_push(request.tenant, len(request.items), size)
    ids = _ids(broker, request)
    bundle = Bundle(broker, request.tenant, request.items, ids, request.producer_sub)
    if not await bundle.in_order():
        return CycleResult(error=SPOOLED)
    for _ in range(STALE_ROUNDS_MAX):
        refused = await bundle.resolve()
        if refused is not None:
            return CycleResult(error=refused)
        try:
            async with broker.admission.call_slot("push" if bundle.groups else "ack"):
                rows = await stream_calls.stream_cycle(
                    broker.store.fetch,
                    broker.tenant_filter(request.tenant),
                    request.query_id,
                    request.partition_id,
                    request.group,
                    request.state,
                    bundle.groups,
                    request.ack,
                    wait_ms=broker.config.push.busy_ms,
                )
        except Permanent as error:
            if error.sqlstate == STALE:
                bundle.forget()
                continue
            if error.sqlstate == REFUSED:
                return _refusal(broker, error)
            raise
        bundle.announce()
        [done] = [row for row in rows if row.kind == "cycle"]
        _announce_ack(broker, request, done)
        return CycleResult(
            queue=done.queue,
            sinks=_sinks(bundle, rows),
            completed=done.completed or 0,
            lease_released=bool(done.lease_released),
        )
    return CycleResult(error=QUEUE_CHANGING)


def _ids(broker: "Broker", request: CycleRequest) -> list[str]:
    """The ids of the sink messages. A caller's own are kept for a partition where they rise:
    ids have to rise along a partition, for consumers sort by them."""
    ids = broker.ids.mint_many(len(request.items)) if request.items else []
    if any(request.message_ids):
        places: dict[tuple[str, str], list[int]] = {}
        for no, item in enumerate(request.items):
            places.setdefault((item.queue, item.partition), []).append(no)
        for nos in places.values():
            own = [request.message_ids[no] or ids[no] for no in nos]
            if all(low < high for low, high in pairwise(own)):
                for no, one in zip(nos, own, strict=True):
                    ids[no] = one
    return ids


def _refusal(broker: "Broker", error: Permanent) -> CycleResult:
    reason = error.text.split("\n")[0]
    if reason == "partition" and broker.config.tenancy.header:
        raise RequestError(NOT_FOUND, code="not_found")
    return CycleResult(error=REFUSALS[reason], queue=error.detail or None)


def _announce_ack(broker: "Broker", request: CycleRequest, done: CycleRow) -> None:
    ack = request.ack
    if ack is None or done.queue_id is None or done.partition_id is None:
        return
    counts = broker.tally.of(done.queue_id)
    if ack.action == GIVE_BACK:
        counts.ack_failed += max(ack.messages or 0, 1)
    else:
        counts.ack_success += done.completed or 0
    lease_id = ack.lease_id or NIL_ID
    if not done.lease_released:
        # No longer what was handed out: an ack of all of it has to go the full way.
        broker.registry.touch(lease_id, request.partition_id)
        return
    broker.registry.ended(lease_id, request.partition_id)
    broker.announce.released(done.queue_id, request.group, [done.partition_id])
    if ack.action == GIVE_BACK:
        broker.announce.moved_back(done.queue_id, request.group, released=True)


def _sinks(bundle: Bundle, rows: Sequence[CycleRow]) -> list[SinkResult]:
    """One a (queue, partition), in the order in which the request names them."""
    by_no = {row.no: row for row in rows if row.kind == "push"}
    results = []
    for no, ((queue, partition), positions) in enumerate(bundle.places.items(), 1):
        row = by_no[no]
        stored = len(row.duplicate_positions or ()) < len(positions)
        results.append(
            SinkResult(
                queue=queue,
                partition=partition,
                status="queued" if stored else "duplicate",
                base_offset=row.base_offset,
            )
        )
    return results
