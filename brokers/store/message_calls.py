"""The procedures by which one looks at messages and dead letters, as one typed coroutine each.

Imports calls. Used by services/messages.py and services/dead_letters.py.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch

MESSAGE_LIST = """
SELECT uid::text, partition_name, queue_name, namespace, task, priority, base_offset,
       message_offset, created_at, frame, whole, encrypted, status, queue_status, consumed_by,
       groups, lease_expires_at, queue_mode, truncated
  FROM queen_message_list_v1(
       %s::uuid, %s::text, %s::text, %s::text, %s::text, %s::text, %s::timestamptz,
       %s::timestamptz, %s::integer, %s::integer, %s::integer, %s::integer, %s::bigint)
"""
MESSAGE_GET = """
SELECT options, partition_name, message_id::text, message_offset, created_at, frame, payload,
       producer_sub, encrypted, queue_status, lease_expires_at, dead, error, retry_count,
       readers, queue_mode, bus_groups, consumed_by
  FROM queen_message_get_v1(%s::uuid, %s::uuid, %s::text, %s::integer, %s::bigint)
"""
MESSAGE_SEARCH = """
SELECT uid::text, partition_name, partition_id, base_offset, created_at, frames, flags,
       reached_partition, reached_offset, segments, bytes, messages, encrypted
  FROM queen_message_search_v1(
       %s::uuid, %s::text, %s::text, %b::bytea, %s::timestamptz, %s::timestamptz, %s::text,
       %s::bigint, %s::integer, %s::integer, %s::integer, %s::bigint)
"""
DEAD_LETTER_DELETE = "SELECT queen_dead_letter_delete_v1(%s::uuid, %s::uuid, %s::text)"
DEAD_LETTER_SAMPLE = """
SELECT error, retry_count, consumer_group, failed_at, bytes, oldest
  FROM queen_dead_letter_sample_v1(%s::uuid, %s::text, %s::integer, %s::integer)
"""


class MessageRow(NamedTuple):
    """`frame` as in a segment (brokers/frames.py); not `whole`, it ends in its payload or
    before. `consumed_by` counts the bus groups, of `groups`, that have passed it."""

    partition_uid: str
    partition: str
    queue: str
    namespace: str
    task: str
    priority: int
    base: int
    offset: int
    created_at: datetime
    frame: bytes
    whole: bool
    encrypted: bool
    status: str
    queue_status: str
    consumed_by: int
    groups: int
    lease_expires_at: datetime | None


class Page(NamedTuple):
    """`truncated`: there may be more that was not looked at. `others_until`: when the partitions
    that were not looked at were written last, at the latest; None when there are none."""

    rows: list[MessageRow]
    queue_mode: bool
    bus_groups: int
    truncated: bool
    others_until: datetime | None


class Inspected(NamedTuple):
    """One message. Without a frame it is the snapshot of a dead letter: `payload`."""

    columns: dict[str, Any]
    partition: str
    message_id: str
    offset: int
    created_at: datetime
    frame: bytes | None
    payload: bytes | None
    producer_sub: str | None
    encrypted: bool
    queue_status: str
    lease_expires_at: datetime | None
    dead: bool
    error: str | None
    retry_count: int
    readers: str
    queue_mode: bool
    bus_groups: int
    consumed_by: int


class Segment(NamedTuple):
    """Some messages stored together; `flags` a byte each, or None."""

    partition_uid: str
    partition: str
    partition_id: int
    base: int
    created_at: datetime
    frames: bytes
    flags: bytes | None


@dataclass(frozen=True, slots=True)
class Place:
    """The last offset of a partition that was looked at."""

    partition: str = ""
    offset: int = -1


class SearchStep(NamedTuple):
    """`reached` is None at the end."""

    segments: list[Segment]
    reached: Place | None
    looked_segments: int
    looked_bytes: int
    looked_messages: int
    encrypted: int


class Sample(NamedTuple):
    """Dead letters as (error, retry count, group, failed at, bytes), the newest first."""

    letters: list[tuple[str, int, str, datetime, int]]
    rows: int
    oldest: datetime | None
    newest: datetime | None


async def message_list(
    fetch: Fetch,
    tenant: UUID,
    *,
    queue: str | None,
    partition: str | None,
    namespace: str | None,
    task: str | None,
    status: str | None,
    since: datetime,
    until: datetime,
    limit: int,
    offset: int,
    lanes_max: int,
    looks_max: int,
    bytes_max: int,
) -> Page:
    names = (str(tenant), queue, partition, namespace, task, status)
    rows = await fetch(
        MESSAGE_LIST, (*names, since, until, limit, offset, lanes_max, looks_max, bytes_max)
    )
    *messages, end = rows
    return Page([MessageRow(*row[:17]) for row in messages], end[17], end[15], end[18], end[8])


async def message_get(
    fetch: Fetch,
    tenant: UUID,
    partition_uid: UUID,
    transaction: str,
    *,
    segments_max: int,
    bytes_max: int,
) -> Inspected | None:
    """`transaction` is the canonical literal."""
    rows = await fetch(
        MESSAGE_GET, (str(tenant), str(partition_uid), transaction, segments_max, bytes_max)
    )
    return Inspected(*rows[0]) if rows else None


async def message_search(
    fetch: Fetch,
    tenant: UUID,
    *,
    queue: str,
    partition: str | None,
    text: bytes,
    since: datetime,
    until: datetime,
    after: Place,
    hits_max: int,
    lanes_max: int,
    segments_max: int,
    bytes_max: int,
) -> SearchStep | None:
    """None when there is no such queue."""
    rows = await fetch(
        MESSAGE_SEARCH,
        (
            *(str(tenant), queue, partition, text, since, until, after.partition, after.offset),
            *(hits_max, lanes_max, segments_max, bytes_max),
        ),
    )
    if not rows:
        return None
    *segments, end = rows
    reached = None if end[7] is None else Place(end[7], end[8])
    return SearchStep([Segment(*row[:7]) for row in segments], reached, *end[9:])


async def dead_letter_delete(
    fetch: Fetch, tenant: UUID, partition_uid: UUID, transaction: str
) -> int:
    """How many dead letters of the address went."""
    [[deleted]] = await fetch(DEAD_LETTER_DELETE, (str(tenant), str(partition_uid), transaction))
    return deleted


async def dead_letter_sample(
    fetch: Fetch, tenant: UUID, queue: str, *, limit: int, count_max: int
) -> Sample:
    rows = await fetch(DEAD_LETTER_SAMPLE, (str(tenant), queue, limit, count_max))
    *letters, (_, total, _, newest, _, oldest) = rows
    return Sample([tuple(row[:5]) for row in letters], total, oldest, newest)
