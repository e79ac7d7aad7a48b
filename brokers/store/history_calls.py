"""The procedures that write and read history by time, as one typed coroutine each.

Imports calls. Used by flow/history.py and services/analytics.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch, array

QUEUE_COUNTER_ADD = "SELECT queen_queue_counter_add_v1(%s::text, %s::bigint[], %s::bigint[])"
BROKER_HISTORY_ADD = "SELECT queen_broker_history_add_v1(%s::text, %s::bigint[])"
QUEUE_SERIES = """
SELECT key, bucket, push_requests, push_messages, pop_requests, pop_messages, pop_empty,
       ack_requests, ack_success, ack_failed, transactions, conflated, dead_letters,
       pop_lag_ms, pop_lag_count, pop_lag_max_ms, parked, partitions_created,
       partitions_deleted
  FROM queen_queue_series_v1(
       %s::uuid, %s::text, %s::text, %s::text, %s::text, %s::timestamptz, %s::timestamptz,
       %s::integer, %s::integer)
"""
PARKED_SERIES = """
SELECT queue_name, bucket, server_id, parked
  FROM queen_parked_series_v1(
       %s::uuid, %s::text, %s::timestamptz, %s::timestamptz, %s::integer, %s::integer)
"""
RETENTION_SERIES = """
SELECT key, bucket, queues, retention, completed, eviction, events
  FROM queen_retention_series_v1(
       %s::uuid, %s::text, %s::text, %s::timestamptz, %s::timestamptz, %s::integer,
       %s::integer)
"""
BROKER_SERIES = """
SELECT bucket, server_id, minutes, counts, pop_lag_max_ms, loop_lag_max_us, means, lows, highs,
       lasts, spool
  FROM queen_broker_series_v1(%s::timestamptz, %s::timestamptz, %s::integer, %s::text)
"""
WORKLOAD_NOW = """
SELECT key, namespace, task, queues, pending, processing, dead_letters, bytes, partitions,
       groups, queues_without_group, pending_without_group, touched, active
  FROM queen_workload_now_v1(
       %s::uuid, %s::text, %s::text, %s::text, %s::text, %s::timestamptz, %s::timestamptz,
       %s::integer)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A span of time in buckets of so many minutes."""

    since: datetime
    until: datetime
    minutes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Exact names; None does not ask."""

    queue: str | None = None
    namespace: str | None = None
    task: str | None = None


ALL = Filters()


class SeriesRow(NamedTuple):
    """What was counted under a key in one bucket."""

    key: str
    bucket: datetime
    push_requests: int
    push_messages: int
    pop_requests: int
    pop_messages: int
    pop_empty: int
    ack_requests: int
    ack_success: int
    ack_failed: int
    transactions: int
    conflated: int
    dead_letters: int
    pop_lag_ms: int
    pop_lag_count: int
    pop_lag_max_ms: int
    parked: float
    partitions_created: int
    partitions_deleted: int

    @property
    def avg_lag_ms(self) -> int | None:
        return self.pop_lag_ms // self.pop_lag_count if self.pop_lag_count else None

    @property
    def max_lag_ms(self) -> int | None:
        return self.pop_lag_max_ms if self.pop_lag_count else None


class ParkedRow(NamedTuple):
    queue: str
    bucket: datetime
    server_id: str
    parked: float


class RetentionRow(NamedTuple):
    """What retention deleted; a null bucket is the sum over the window under a key, and a null
    key as well the sum of all. `queues` is how many a key has."""

    key: str | None
    bucket: datetime | None
    queues: int | None
    retention: int
    completed: int
    eviction: int
    events: int


class BrokerRow(NamedTuple):
    """One broker in one bucket; counts and gauges are in the order of the procedure.

    `spool`: how many messages waited on its disk, their bytes, how many were set aside.
    """

    bucket: datetime
    server_id: str
    minutes: int
    counts: list[int]
    pop_lag_max_ms: int
    loop_lag_max_us: int
    means: list[float]
    lows: list[int]
    highs: list[int]
    lasts: list[int]
    spool: list[int | None]


class NowRow(NamedTuple):
    """What lies under a key now, and what of it the window saw."""

    key: str
    namespace: str
    task: str
    queues: int
    pending: int
    processing: int
    dead_letters: int
    bytes: int
    partitions: int
    groups: int
    queues_without_group: int
    pending_without_group: int
    touched: int
    active: int


async def queue_counter_add(
    fetch: Fetch, server_id: str, counts: Sequence[tuple[int, Sequence[int]]]
) -> None:
    """Add (queue id, its counts in the columns' order) to the present buckets."""
    await fetch(
        QUEUE_COUNTER_ADD,
        (
            server_id,
            array(queue_id for queue_id, _ in counts),
            array(one for _, numbers in counts for one in numbers),
        ),
    )


async def broker_history_add(fetch: Fetch, server_id: str, values: Sequence[int | None]) -> None:
    await fetch(BROKER_HISTORY_ADD, (server_id, array(values)))


async def queue_series(
    fetch: Fetch, tenant: UUID | None, by: str, filters: Filters, window: Window, *, keys_max: int
) -> list[SeriesRow]:
    """By bucket and key, of the keys that were busiest. `by`: queue, namespace, task or none.

    `tenant` None: of all of them.
    """
    rows = await fetch(
        QUEUE_SERIES,
        (
            None if tenant is None else str(tenant),
            by,
            filters.queue,
            filters.namespace,
            filters.task,
            window.since,
            window.until,
            window.minutes,
            keys_max,
        ),
    )
    return [SeriesRow(*row) for row in rows]


async def parked_series(
    fetch: Fetch, tenant: UUID, queue: str | None, window: Window, *, queues_max: int
) -> list[ParkedRow]:
    rows = await fetch(
        PARKED_SERIES,
        (str(tenant), queue, window.since, window.until, window.minutes, queues_max),
    )
    return [ParkedRow(*row) for row in rows]


async def retention_series(
    fetch: Fetch, tenant: UUID, by: str, queue: str | None, window: Window, *, keys_max: int
) -> list[RetentionRow]:
    rows = await fetch(
        RETENTION_SERIES,
        (str(tenant), by, queue, window.since, window.until, window.minutes, keys_max),
    )
    return [RetentionRow(*row) for row in rows]


async def broker_series(fetch: Fetch, window: Window, *, server_id: str | None) -> list[BrokerRow]:
    rows = await fetch(BROKER_SERIES, (window.since, window.until, window.minutes, server_id))
    return [BrokerRow(*row) for row in rows]


async def workload_now(
    fetch: Fetch, tenant: UUID, by: str, filters: Filters, window: Window
) -> list[NowRow]:
    rows = await fetch(
        WORKLOAD_NOW,
        (
            str(tenant),
            by,
            filters.queue,
            filters.namespace,
            filters.task,
            window.since,
            window.until,
            window.minutes,
        ),
    )
    return [NowRow(*row) for row in rows]
