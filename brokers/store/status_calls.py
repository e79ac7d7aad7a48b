"""The procedures that tell what there is: figures, pages, changes; one typed coroutine each.

Imports calls, history_calls (filters). Used by services/status.py and services/cell.py.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from brokers.store.arrays import TextArray
from brokers.store.calls import Fetch
from brokers.store.history_calls import ALL, Filters

TENANT_FIGURES = """
SELECT queues, partitions, namespaces, tasks, total, pending, processing, completed,
       dead_letters, dead_letter_queues, lag_s, lag, pushed, acked, age_s
  FROM queen_tenant_figures_v1(%s::uuid, %s::text, %s::text, %s::text)
"""
TENANT_SPLIT = """
SELECT name, queues, partitions, total, pending
  FROM queen_tenant_split_v1(%s::uuid, %s::boolean, %s::integer, %s::bigint)
"""
QUEUE_PAGE = """
SELECT uid::text, name, namespace, task, created_at, partitions, total, pending, processing,
       completed, dead_letters
  FROM queen_queue_page_v1(
       %s::uuid, %s::text, %s::text, %s::text, %s::integer, %s::bigint)
"""
QUEUE_LANES = "SELECT name, partitions FROM queen_queue_lanes_v1(%s::uuid, %b::text[])"
QUEUE_INSPECT = """
SELECT options, created_at, totals, partitions
  FROM queen_queue_inspect_v1(%s::uuid, %s::text, %s::integer, %s::bigint)
"""
PARTITION_LIVENESS = """
SELECT name, namespace, task, partitions, written_1h, written_24h, written_7d, created_24h,
       oldest_write_at, newest_write_at, pending
  FROM queen_partition_liveness_v1(%s::uuid, %s::text, %s::text, %s::text, %s::integer)
"""
PARTITION_CHANGED = """
SELECT name, last_offset, log_start, last_write_at
  FROM queen_partition_changed_v1(
       %s::uuid, %s::text, %s::timestamptz, %s::timestamptz, %s::text, %s::integer)
"""
SAFE_TIME = "SELECT safe_at, degraded FROM queen_safe_time_v1(%s::bigint)"
CELL_FIGURES = "SELECT name, value FROM queen_cell_figures_v1()"
QUEUE_RATES = """
SELECT name, age_s, push_requests, push_messages, pop_messages, pop_empty, ack_success,
       ack_failed, transactions, conflated, parked, pop_lag_ms, pop_lag_count, pop_lag_max_ms,
       dead_letters
  FROM queen_queue_rates_v1(%s::integer)
"""
POSTGRES_STATS = "SELECT queen_postgres_stats_v1(%s::integer)"


class TenantFigures(NamedTuple):
    """`lag_s` and `lag`: mean, median, least, greatest over groups at queues."""

    queues: int
    partitions: int
    namespaces: int
    tasks: int
    total: int
    pending: int
    processing: int
    completed: int
    dead_letters: int
    dead_letter_queues: int
    lag_s: list[float]
    lag: list[float]
    pushed: int
    acked: int
    age_s: int


class SplitRow(NamedTuple):
    name: str
    queues: int
    partitions: int
    total: int
    pending: int


class LanesRow(NamedTuple):
    name: str
    partitions: int


class QueuePageRow(NamedTuple):
    uid: str
    name: str
    namespace: str
    task: str
    created_at: datetime
    partitions: int
    total: int
    pending: int
    processing: int
    completed: int
    dead_letters: int


class QueueInspection(NamedTuple):
    """`totals`: partitions, total, pending, processing, completed, dead letters. `partitions` is
    a JSON array, as text."""

    columns: dict[str, Any]
    created_at: datetime
    totals: list[int]
    partitions: str


class LivenessRow(NamedTuple):
    name: str
    namespace: str
    task: str
    partitions: int
    written_1h: int
    written_24h: int
    written_7d: int
    created_24h: int
    oldest_write_at: datetime | None
    newest_write_at: datetime | None
    pending: int


class ChangedRow(NamedTuple):
    name: str
    last_offset: int
    log_start: int
    last_write_at: datetime | None


class SafeTime(NamedTuple):
    at: datetime
    degraded: bool


class RateRow(NamedTuple):
    """A queue name in its latest minute; `age_s` None without one in the last five."""

    name: str
    age_s: float | None
    push_requests: int
    push_messages: int
    pop_messages: int
    pop_empty: int
    ack_success: int
    ack_failed: int
    transactions: int
    conflated: int
    parked: float
    pop_lag_ms: int
    pop_lag_count: int
    pop_lag_max_ms: int
    dead_letters: int


async def tenant_figures(
    fetch: Fetch, tenant: UUID | None, filters: Filters = ALL
) -> TenantFigures:
    """`tenant` None: of all."""
    asked = None if tenant is None else str(tenant)
    [row] = await fetch(TENANT_FIGURES, (asked, filters.queue, filters.namespace, filters.task))
    return TenantFigures(*row)


async def tenant_split(
    fetch: Fetch, tenant: UUID, *, by_task: bool, limit: int, offset: int
) -> list[SplitRow]:
    rows = await fetch(TENANT_SPLIT, (str(tenant), by_task, limit, offset))
    return [SplitRow(*row) for row in rows]


async def queue_page(
    fetch: Fetch, tenant: UUID, filters: Filters, *, limit: int, offset: int
) -> list[QueuePageRow]:
    rows = await fetch(
        QUEUE_PAGE,
        (str(tenant), filters.queue, filters.namespace, filters.task, limit, offset),
    )
    return [QueuePageRow(*row) for row in rows]


async def queue_lanes(fetch: Fetch, tenant: UUID, names: Sequence[str]) -> list[LanesRow]:
    return [LanesRow(*row) for row in await fetch(QUEUE_LANES, (str(tenant), TextArray(names)))]


async def queue_inspect(
    fetch: Fetch, tenant: UUID, name: str, *, limit: int, offset: int
) -> QueueInspection | None:
    rows = await fetch(QUEUE_INSPECT, (str(tenant), name, limit, offset))
    return QueueInspection(*rows[0]) if rows else None


async def partition_liveness(
    fetch: Fetch, tenant: UUID, filters: Filters, *, limit: int
) -> list[LivenessRow]:
    rows = await fetch(
        PARTITION_LIVENESS,
        (str(tenant), filters.queue, filters.namespace, filters.task, limit),
    )
    return [LivenessRow(*row) for row in rows]


async def partition_changed(
    fetch: Fetch,
    tenant: UUID,
    queue: str,
    *,
    since: datetime | None,
    after_at: datetime | None,
    after_name: str | None,
    limit: int,
) -> list[ChangedRow] | None:
    """None when there is no such queue."""
    rows = await fetch(PARTITION_CHANGED, (str(tenant), queue, since, after_at, after_name, limit))
    if not rows:
        return None
    return [ChangedRow(*row) for row in rows if row[0] is not None]


async def safe_time(fetch: Fetch, *, floor_ms: int) -> SafeTime:
    [row] = await fetch(SAFE_TIME, (floor_ms,))
    return SafeTime(*row)


async def cell_figures(fetch: Fetch) -> dict[str, int]:
    """What all brokers counted since the beginning, by name."""
    return dict(await fetch(CELL_FIGURES))


async def queue_rates(fetch: Fetch, *, names_max: int) -> list[RateRow]:
    return [RateRow(*row) for row in await fetch(QUEUE_RATES, (names_max,))]


async def postgres_stats(fetch: Fetch, *, tables_max: int) -> str:
    """A JSON object, as text."""
    [[text]] = await fetch(POSTGRES_STATS, (tables_max,))
    return text
