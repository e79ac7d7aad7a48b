"""The procedures of a queue's operations: pause, resume, purge.

Imports calls. Used by services/pausing.py and services/purge.py.
"""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch

QUEUE_PAUSE = "SELECT queue_id, changed FROM queen_queue_pause_v1(%s::uuid, %s::text, %s::boolean)"
PURGE_LANES = """
SELECT queue_id, partition_id, last_offset, found
  FROM queen_purge_lanes_v1(%s::uuid, %s::text, %s::text, %s::bigint, %s::integer)
"""
PARTITION_PURGE = """
SELECT verdict, more, messages, segments, bytes
  FROM queen_partition_purge_v1(
       %s::bigint, %s::bigint, %s::integer, %s::bigint, %s::integer)
"""
PURGE_LETTERS = """
SELECT deleted, until
  FROM queen_purge_letters_v1(%s::uuid, %s::text, %s::text, %s::timestamptz, %s::integer)
"""


class Paused(NamedTuple):
    """`changed` is false when the queue was so already."""

    queue_id: int
    changed: bool


class PurgeLane(NamedTuple):
    """A partition that holds messages, and the last offset that is to go."""

    id: int
    last_offset: int


class PurgeStep(NamedTuple):
    """done | busy | gone, and what is gone."""

    verdict: str
    more: bool
    messages: int
    segments: int
    bytes: int


async def queue_pause(fetch: Fetch, tenant: UUID, queue: str, *, paused: bool) -> Paused | None:
    """None when there is no such queue."""
    rows = await fetch(QUEUE_PAUSE, (str(tenant), queue, paused))
    return Paused(*rows[0]) if rows else None


async def purge_lanes(
    fetch: Fetch, tenant: UUID, queue: str, partition: str | None, *, after: int, limit: int
) -> tuple[bool, bool, list[PurgeLane]]:
    """Whether the queue is there, and the named partition of it, and lanes in ascending id."""
    rows = await fetch(PURGE_LANES, (str(tenant), queue, partition, after, limit))
    if not rows:
        return False, False, []
    lanes = [PurgeLane(row[1], row[2]) for row in rows if row[1] is not None]
    return True, any(row[3] for row in rows), lanes


async def partition_purge(
    fetch: Fetch, lane: PurgeLane, *, segments_max: int, bytes_max: int, wait_ms: int
) -> PurgeStep:
    [row] = await fetch(
        PARTITION_PURGE, (lane.id, lane.last_offset, segments_max, bytes_max, wait_ms)
    )
    return PurgeStep(*row)


async def purge_letters(
    fetch: Fetch,
    tenant: UUID,
    queue: str,
    partition: str,
    *,
    until: datetime | None,
    rows_max: int,
) -> tuple[int, datetime]:
    """How many dead letters went, and the time that the next step is to be told."""
    [row] = await fetch(PURGE_LETTERS, (str(tenant), queue, partition, until, rows_max))
    return row[0], row[1]
