"""The procedures of the leader tasks, as one typed coroutine each: leases, retention, figures.

Every step is told the fencing token of its leader and does nothing under an older one.

Imports calls. Used by services/leaders.py, retention.py and statistics.py.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from brokers.store.calls import Fetch, array

LEASE_TAKE = """
SELECT token, wait_us
  FROM queen_lease_take_v1(%s::text, %s::text, %s::bigint, %s::bigint)
"""
LEASE_DONE = "SELECT queen_lease_done_v1(%s::text, %s::bigint, %s::bigint)"
RETENTION_DUE = "SELECT partition_id FROM queen_retention_due_v1(%s::integer, %s::bigint[])"
RETENTION_STEP = """
SELECT verdict, more, retention_messages, completed_messages, eviction_messages, segments, bytes
  FROM queen_retention_step_v1(
       %s::bigint, %s::bigint, %s::integer, %s::bigint, %s::integer)
"""
PARTITION_CLEANUP = """
SELECT removed, reached_at, reached_id
  FROM queen_partition_cleanup_v1(
       %s::bigint, %s::bigint, %s::integer, %s::timestamptz, %s::bigint)
"""
HISTORY_PURGE = "SELECT queen_history_purge_v1(%s::bigint, %s::integer, %s::integer)"
STATISTICS_STEP = """
SELECT queues, partitions, since
  FROM queen_statistics_step_v1(%s::bigint, %s::timestamptz, %s::integer)
"""
RETAINED_BYTES_STEP = """
SELECT queues, since
  FROM queen_retained_bytes_step_v1(%s::bigint, %s::timestamptz, %s::integer, %s::integer)
"""


class Taken(NamedTuple):
    """The token of whoever leads now, or None and when to ask again, from now."""

    token: int | None
    wait_us: int | None


class RetentionStep(NamedTuple):
    """done | nothing | blocked | busy | gone | fenced, and what is gone, by rule."""

    verdict: str
    more: bool
    retention_messages: int
    completed_messages: int
    eviction_messages: int
    segments: int
    bytes: int


class CleanupStep(NamedTuple):
    """Where to go on is None at the end of the empty partitions."""

    removed: int
    reached_at: datetime | None
    reached_id: int | None


class StatisticsStep(NamedTuple):
    """`since` is to be given to the next step of the same cycle."""

    queues: int
    partitions: int
    since: datetime | None


class RetainedBytesStep(NamedTuple):
    queues: int
    since: datetime | None


async def lease_take(
    fetch: Fetch, task: str, holder: str, *, lease_ms: int, interval_ms: int
) -> Taken:
    [row] = await fetch(LEASE_TAKE, (task, holder, lease_ms, interval_ms))
    return Taken(*row)


async def lease_done(fetch: Fetch, task: str, token: int, *, interval_ms: int) -> bool:
    """False when the task is not ours any more; nothing was written then."""
    [[ours]] = await fetch(LEASE_DONE, (task, token, interval_ms))
    return ours


async def retention_due(fetch: Fetch, *, limit: int, leave_out: Iterable[int] = ()) -> list[int]:
    """The ids of partitions that are due, the longest due first."""
    return [row[0] for row in await fetch(RETENTION_DUE, (limit, array(leave_out)))]


async def retention_step(
    fetch: Fetch,
    token: int,
    partition_id: int,
    *,
    segments_max: int,
    bytes_max: int,
    wait_ms: int,
) -> RetentionStep:
    [row] = await fetch(RETENTION_STEP, (token, partition_id, segments_max, bytes_max, wait_ms))
    return RetentionStep(*row)


async def partition_cleanup(
    fetch: Fetch, token: int, *, idle_s: int, rows_max: int, after: CleanupStep | None = None
) -> CleanupStep:
    reached = (None, None) if after is None else (after.reached_at, after.reached_id)
    [row] = await fetch(PARTITION_CLEANUP, (token, idle_s, rows_max, *reached))
    return CleanupStep(*row)


async def history_purge(fetch: Fetch, token: int, *, days: int, rows_max: int) -> int:
    """Rows of counters and history that went."""
    [[removed]] = await fetch(HISTORY_PURGE, (token, days, rows_max))
    return removed


async def statistics_step(
    fetch: Fetch, token: int | None, since: datetime | None, *, budget_ms: int
) -> StatisticsStep:
    """`token` None: somebody asked for it, whoever leads."""
    [row] = await fetch(STATISTICS_STEP, (token, since, budget_ms))
    return StatisticsStep(*row)


async def retained_bytes_step(
    fetch: Fetch, token: int, since: datetime | None, *, segments_max: int, budget_ms: int
) -> RetainedBytesStep:
    [row] = await fetch(RETAINED_BYTES_STEP, (token, since, segments_max, budget_ms))
    return RetainedBytesStep(*row)
