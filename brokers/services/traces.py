"""Traces: note what happened to a message, and find it again by message or by name.

Retention never takes one. What is read goes over the connections of management reads. Lists by
name are told again for some seconds, until a trace is added (their routes are `shared`).

Imports domain, flow/recent, services/written, store. Called by api/hot_traces.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from json import dumps
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.domain import QUEUE_MODE
from brokers.flow.recent import TRACES
from brokers.services import written
from brokers.store import trace_calls
from brokers.store.trace_calls import NamedTraceRow, TraceNameRow, TraceRow

if TYPE_CHECKING:
    from brokers.runtime import Broker

TRACES_MAX = 10_000
PAGE_BYTES_MAX = 67_108_864
# Of a name with more traces the newest so many are counted in the list of names.
NAME_COUNT_MAX = 1000
# So many under a name are counted exactly, and so many at all.
EXACT_MAX = 5000
COUNT_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrace:
    """An event as its program told it. `names` are distinct, `data` is a JSON value."""

    tenant: UUID
    partition_id: str
    transaction_id: str
    data: bytes
    group: str = QUEUE_MODE
    event_type: str = "info"
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPage:
    """One page of the traces under a name, perhaps from and until an instant."""

    tenant: UUID
    name: str
    limit: int
    offset: int
    since: datetime | None = None
    until: datetime | None = None


async def add(broker: "Broker", trace: NewTrace) -> str | None:
    """The new trace's id; None when there is no such partition for this tenant."""
    trace_id = broker.ids.mint()
    try:
        async with broker.admission.call_slot("maint"):
            added = await trace_calls.trace_add(
                broker.store.fetch,
                trace_id,
                trace.tenant,
                checked=broker.config.tenants,
                partition_uid=trace.partition_id,
                transaction_id=trace.transaction_id,
                group=trace.group,
                event_type=trace.event_type,
                names=trace.names,
                listed=dumps(list(trace.names), ensure_ascii=False),
                data=trace.data,
            )
    finally:
        # What failed may have been stored all the same.
        written.tell_topic(broker, trace.tenant, TRACES)
    return trace_id if added else None


async def of_message(
    broker: "Broker", tenant: UUID, partition_id: str, transaction_id: str
) -> list[TraceRow]:
    """Oldest first; the first of them when there are very many."""
    return await trace_calls.trace_list(
        broker.reads.fetch,
        broker.tenant_filter(tenant),
        partition_id,
        transaction_id,
        limit=TRACES_MAX,
        bytes_max=PAGE_BYTES_MAX,
    )


async def by_name(broker: "Broker", page: NamedPage) -> tuple[int, list[NamedTraceRow]]:
    """How many there are, and the page, oldest first. One of large data ends early. What was noted
    about queues that are deleted is counted where there are very many."""
    return await trace_calls.trace_by_name(
        broker.reads.fetch,
        page.tenant,
        page.name,
        since=page.since,
        until=page.until,
        limit=page.limit,
        offset=page.offset,
        bytes_max=PAGE_BYTES_MAX,
        exact_max=EXACT_MAX,
        count_max=COUNT_MAX,
    )


async def names(
    broker: "Broker", tenant: UUID, *, limit: int, offset: int
) -> tuple[int, list[TraceNameRow]]:
    """How many there are, and the page, most recently used first."""
    return await trace_calls.trace_names(
        broker.reads.fetch, tenant, limit=limit, offset=offset, count_max=NAME_COUNT_MAX
    )
