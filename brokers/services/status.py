"""Status: what a tenant has now, as it was last counted or as it is.

Imports store, services/analytics (windows). Called by api/views/{status,aggregates,cell}.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.store import status_calls as calls
from brokers.store.history_calls import ALL, Filters
from brokers.store.status_calls import (
    ChangedRow,
    LivenessRow,
    QueueInspection,
    QueuePageRow,
    SafeTime,
    SplitRow,
    TenantFigures,
)

if TYPE_CHECKING:
    from brokers.runtime import Broker

TABLES_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRequest:
    """One queue of a look for changes. `after_*` is where the last page ended."""

    queue: str
    since: datetime | None
    after_at: datetime | None
    after_name: str | None
    limit: int


async def figures(broker: "Broker", tenant: UUID | None, filters: Filters = ALL) -> TenantFigures:
    """`tenant` None: of the whole cell."""
    return await calls.tenant_figures(broker.reads.fetch, tenant, filters)


async def split(
    broker: "Broker", tenant: UUID, *, by_task: bool, limit: int, offset: int
) -> list[SplitRow]:
    return await calls.tenant_split(
        broker.reads.fetch, tenant, by_task=by_task, limit=limit, offset=offset
    )


async def queues(
    broker: "Broker", tenant: UUID, filters: Filters, *, limit: int, offset: int
) -> list[QueuePageRow]:
    return await calls.queue_page(broker.reads.fetch, tenant, filters, limit=limit, offset=offset)


async def lanes(broker: "Broker", tenant: UUID, names: Sequence[str]) -> dict[str, int]:
    """How many partitions these queues have; those that are not there are left out."""
    rows = await calls.queue_lanes(broker.reads.fetch, tenant, names)
    return {row.name: row.partitions for row in rows}


async def queue(
    broker: "Broker", tenant: UUID, name: str, *, limit: int, offset: int
) -> QueueInspection | None:
    return await calls.queue_inspect(broker.reads.fetch, tenant, name, limit=limit, offset=offset)


async def liveness(
    broker: "Broker", tenant: UUID, filters: Filters, *, limit: int
) -> list[LivenessRow]:
    return await calls.partition_liveness(broker.reads.fetch, tenant, filters, limit=limit)


async def changed(
    broker: "Broker", tenant: UUID, requests: list[ChangedRequest]
) -> tuple[SafeTime, list[list[ChangedRow] | None]]:
    """The safe time first: what is read afterwards has all that was written before it."""
    safe = await calls.safe_time(broker.reads.fetch, floor_ms=broker.config.status.safe_floor_ms)
    answers = [
        await calls.partition_changed(
            broker.reads.fetch,
            tenant,
            one.queue,
            since=one.since,
            after_at=one.after_at,
            after_name=one.after_name,
            limit=one.limit,
        )
        for one in requests
    ]
    return safe, answers


async def postgres(broker: "Broker") -> str:
    """How PostgreSQL is doing: a JSON object, as text."""
    return await calls.postgres_stats(broker.reads.fetch, tables_max=TABLES_MAX)
