"""Key/value state: calls of operations, listings for the console, and pruning.

The order in which a call may be turned away: the operator's switch, the tenant's grant, its
rate, a pool that has no connection to give, its quota.

Imports domain, errors, flow/{kv,recent}, services/written, store. Called by api/hot_kv.py,
services/transaction.py and the sweeper.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.domain import KvLost, KvOperation, KvResult
from brokers.errors import Permanent, Refusal, RequestError, StoreError
from brokers.flow.kv import GROWING, RETRY_AFTER_S
from brokers.flow.recent import KV, Topic
from brokers.services import written
from brokers.store import kv_calls
from brokers.store.kv_calls import WRITES, ListedEntry, Pruned

if TYPE_CHECKING:
    from brokers.runtime import Broker

NOT_READY = "the operator's switches have not been read yet"
DISABLED = "key/value state was paused by an operator"
DISABLED_RETRY_AFTER_S = 5
NAMESPACES_MAX = 10_000
NAMESPACE_KEYS_MAX = 1000
# What a row that is told again takes of memory, about.
ROW_BYTES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """One page of a namespace for the console."""

    tenant: UUID
    namespace: str
    prefix: str = ""
    after: str | None = None
    limit: int = 100
    keys_only: bool = False
    include_expired: bool = False


async def apply(
    broker: "Broker", tenant: UUID, operations: Sequence[KvOperation]
) -> list[KvResult] | KvLost:
    """One result an operation, in order; or which required one undid them all."""
    writes = sum(one.op in WRITES for one in operations)
    await _admit(broker, tenant, operations, reads=len(operations) - writes, writes=writes)
    if not operations:
        return []
    try:
        answer = await broker.kv.run(tenant, operations)
    finally:
        # What failed may have been stored all the same.
        if writes:
            wrote(broker, tenant)
    if isinstance(answer, list):
        broker.kv.counters.count("route", answer)
    else:
        broker.kv.counters.lost("route", operations[answer.no], answer.reason)
    return answer


def wrote(broker: "Broker", tenant: UUID | None) -> None:
    """Entries of the tenant's were written, or of any tenant's; said before the writer is
    answered."""
    written.tell_topic(broker, tenant, KV)


async def check_grant(
    broker: "Broker", tenant: UUID, operations: Sequence[KvOperation], path: str = "route"
) -> None:
    """Reads and deletes need none: a tenant whose grant was taken can still clear up."""
    if not any(one.op in GROWING for one in operations):
        return
    try:
        await broker.quotas.granted(tenant)
    except RequestError:
        broker.kv.counters.reject("feature_gated", operations, path=path)
        raise


async def check_rider(broker: "Broker", tenant: UUID, operations: Sequence[KvOperation]) -> None:
    """In a transaction the pause is final: the bundle's other parts need not wait for it."""
    if not broker.switches.known:
        raise Refusal(NOT_READY, retry_after_s=RETRY_AFTER_S, code="kv_unavailable")
    if not broker.switches.kv_enabled:
        broker.kv.counters.reject("disabled", operations, path="transaction")
        raise RequestError(DISABLED, code="kv_refused")
    await check_grant(broker, tenant, operations, "transaction")


async def namespaces(broker: "Broker", tenant: UUID) -> list[tuple[str, int]]:
    """Every namespace with how many keys it has. It counts them all, so it is told again for some
    seconds, until one is written."""
    await _admit(broker, tenant, (), reads=1, writes=0)
    try:
        return await broker.recent.get(
            Topic(tenant, KV),
            "namespaces",
            lambda: kv_calls.kv_namespace_list(
                broker.kv.pool.fetch, tenant, namespaces_max=NAMESPACES_MAX
            ),
            size=lambda rows: len(rows) * ROW_BYTES,
        )
    except StoreError as error:
        raise _unavailable(error) from error


async def namespace_page(
    broker: "Broker", tenant: UUID, *, after: str | None, limit: int
) -> list[tuple[str, int]]:
    """Namespaces behind `after`, and how many keys each has: NAMESPACE_KEYS_MAX + 1 is more
    than anybody counted."""
    await _admit(broker, tenant, (), reads=1, writes=0)
    try:
        return await kv_calls.kv_namespace_page(
            broker.kv.pool.fetch, tenant, after=after, limit=limit, count_max=NAMESPACE_KEYS_MAX
        )
    except StoreError as error:
        raise _unavailable(error) from error


async def page(broker: "Broker", request: ListRequest) -> list[ListedEntry]:
    await _admit(broker, request.tenant, (), reads=1, writes=0)
    try:
        return await kv_calls.kv_prefix(
            broker.kv.pool.fetch,
            request.tenant,
            request.namespace,
            request.prefix,
            after=request.after,
            limit=request.limit,
            keys_only=request.keys_only,
            include_expired=request.include_expired,
            bytes_max=broker.config.kv.read_bytes_max,
        )
    except StoreError as error:
        raise _unavailable(error) from error


async def prune_step(broker: "Broker") -> Pruned:
    """Remove up to one batch of expired entries; the sweeper's slow clock calls it.

    Also while KV is paused: data is kept then, but not what has expired. Not while the database
    does not keep up with callers, who need it more.
    """
    if broker.kv.shedding.active(time.monotonic()):
        return Pruned(0, 0, 0.0)
    rows_max = broker.config.kv.expire_batch
    async with broker.admission.slot("maint"):
        pruned = await kv_calls.kv_prune(broker.store.fetch, rows_max=rows_max)
    if pruned.removed:
        wrote(broker, None)
    broker.kv.counters.pruned(pruned.waiting, pruned.oldest_s, counted_max=rows_max)
    return pruned


async def _admit(
    broker: "Broker", tenant: UUID, operations: Sequence[KvOperation], *, reads: int, writes: int
) -> None:
    if not broker.switches.known:
        raise Refusal(NOT_READY, retry_after_s=RETRY_AFTER_S, code="kv_unavailable")
    if not broker.switches.kv_enabled:
        broker.kv.counters.reject("disabled", operations)
        raise Refusal(DISABLED, retry_after_s=DISABLED_RETRY_AFTER_S, code="kv_disabled")
    await check_grant(broker, tenant, operations)
    wait_s = broker.kv.limits.wait_s(tenant, reads=reads, writes=writes, now=time.monotonic())
    if wait_s > 0:
        broker.kv.counters.reject("rate_limited", operations)
        raise Refusal(
            "too many key/value operations",
            retry_after_s=max(math.ceil(wait_s), 1),
            code="rate_limited",
        )


def _unavailable(error: StoreError) -> StoreError | Refusal:
    if isinstance(error, Permanent):
        return error
    text = "key/value state is not available at the moment"
    return Refusal(text, retry_after_s=RETRY_AFTER_S, code="kv_unavailable")
