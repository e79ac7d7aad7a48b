"""Every management procedure as one typed coroutine: the only door to them.

A function here names the procedure, passes the arguments, shapes the rows; it decides
nothing. The statements are constants so that the admin can run the same text.

Imports calls. Used by services/queues.py and services/dead_letters.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from json import dumps
from typing import Any, NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch, PushGroup

QUEUE_CONFIGURE = """
SELECT uid::text, to_jsonb(queue)
  FROM queen_queue_configure_v1(%s::uuid, %s::text, %s::jsonb) AS queue
"""
QUEUE_DELETE = "SELECT queen_queue_delete_v1(%s::uuid, %s::text)"
QUEUE_LIST = """
SELECT uid::text, name, namespace, task, created_at, partitions, total, pending, processing,
       segments, bytes, paused
  FROM queen_queue_list_v1(%s::uuid, %s::integer)
"""
QUEUE_DESCRIBE = """
SELECT options, created_at, total, pending, processing, completed, dead_letters, segments, bytes,
       lanes, partitions
  FROM queen_queue_describe_v1(%s::uuid, %s::text, %s::integer, %s::bigint, %s::integer)
"""
QUEUE_DEPTH = """
SELECT pending, processing, partitions_pending, partitions_ready, conflation, lanes, partitions
  FROM queen_queue_depth_v1(%s::uuid, %s::text, %s::text, %s::integer, %s::bigint)
"""
DEAD_LETTER_LIST = """
SELECT id::text, partition_uid::text, queue_name, partition_name, consumer_group, transaction_id,
       error, retry_count, payload, failed_at, encrypted
  FROM queen_dead_letter_list_v1(
       %s::uuid, %s::text, %s::text, %s::integer, %s::bigint, %s::bigint)
"""
DEAD_LETTER_FIND = """
SELECT id::text, queue_name, partition_name, consumer_group, transaction_id, payload, encrypted,
       producer_sub
  FROM queen_dead_letter_find_v1(%s::uuid, %s::uuid, %s::uuid, %s::text)
"""
DEAD_LETTER_REPLAY = """
SELECT verdict, message_offset
  FROM queen_dead_letter_replay_v1(
       %s::uuid, %s::bigint, %s::bigint, %s::bigint, %b::bytea, %b::bytea, %s::text, %b::bytea,
       %s::uuid, %s::integer)
"""
DEAD_LETTER_PURGE = """
SELECT deleted, reached, until
  FROM queen_dead_letter_purge_v1(
       %s::uuid, %s::text, %s::text, %s::bigint, %s::timestamptz, %s::integer)
"""


class QueueOptions(NamedTuple):
    """A queue with every option it has, by the name of its column."""

    uid: str
    columns: dict[str, Any]


class QueueSummary(NamedTuple):
    uid: str
    name: str
    namespace: str
    task: str
    created_at: datetime
    partitions: int
    total: int
    pending: int
    processing: int
    segments: int
    bytes: int
    paused: bool


class QueueDescription(NamedTuple):
    """`partitions` is a page of the `lanes` there are: a JSON array, as text."""

    columns: dict[str, Any]
    created_at: datetime
    total: int
    pending: int
    processing: int
    completed: int
    dead_letters: int
    segments: int
    bytes: int
    lanes: int
    partitions: str


class QueueDepth(NamedTuple):
    """`partitions` is a page of the `lanes` there are: a JSON array, as text."""

    pending: int
    processing: int
    partitions_pending: int
    partitions_ready: int
    conflation: bool
    lanes: int
    partitions: str


class DeadLetterRow(NamedTuple):
    """`transaction_id` is a JSON literal and `payload` a JSON value, both as stored; the
    latter is an envelope if `encrypted`."""

    id: str
    partition_uid: str
    queue: str
    partition: str
    group: str
    transaction_id: str
    error: str
    retry_count: int
    payload: bytes
    failed_at: datetime
    encrypted: bool


class DeadLetter(NamedTuple):
    """One dead letter as its replay needs it; `transaction_id` is a JSON literal."""

    id: str
    queue: str
    partition: str
    group: str
    transaction_id: str
    payload: bytes
    encrypted: bool
    producer_sub: str | None


class Replay(NamedTuple):
    """moved | duplicate | stale | gone."""

    verdict: str
    offset: int | None


@dataclass(frozen=True, slots=True)
class PurgeStep:
    deleted: int
    reached: int
    until: datetime


async def queue_configure(
    fetch: Fetch, tenant: UUID, name: str, patch: Mapping[str, Any]
) -> QueueOptions:
    [row] = await fetch(QUEUE_CONFIGURE, (str(tenant), name, dumps(patch)))
    return QueueOptions(*row)


async def queue_delete(fetch: Fetch, tenant: UUID, name: str) -> int | None:
    """How many partitions went; None when there was no such queue."""
    [[partitions]] = await fetch(QUEUE_DELETE, (str(tenant), name))
    return partitions


async def queue_list(fetch: Fetch, tenant: UUID, *, segments_max: int) -> list[QueueSummary]:
    return [QueueSummary(*row) for row in await fetch(QUEUE_LIST, (str(tenant), segments_max))]


async def queue_describe(
    fetch: Fetch, tenant: UUID, name: str, *, limit: int, offset: int, segments_max: int
) -> QueueDescription | None:
    rows = await fetch(QUEUE_DESCRIBE, (str(tenant), name, limit, offset, segments_max))
    return QueueDescription(*rows[0]) if rows else None


async def queue_depth(
    fetch: Fetch, tenant: UUID, name: str, *, group: str | None, limit: int, offset: int
) -> QueueDepth | None:
    rows = await fetch(QUEUE_DEPTH, (str(tenant), name, group, limit, offset))
    return QueueDepth(*rows[0]) if rows else None


async def dead_letter_list(
    fetch: Fetch,
    tenant: UUID,
    *,
    queue: str | None,
    group: str | None,
    limit: int,
    offset: int,
    bytes_max: int,
) -> list[DeadLetterRow]:
    rows = await fetch(DEAD_LETTER_LIST, (str(tenant), queue, group, limit, offset, bytes_max))
    return [DeadLetterRow(*row) for row in rows]


async def dead_letter_find(
    fetch: Fetch,
    tenant: UUID,
    *,
    dead_letter_id: UUID | None = None,
    partition_uid: UUID | None = None,
    transaction: str | None = None,
) -> DeadLetter | None:
    """By id, or the newest of an address (a partition and a transactionId's literal)."""
    asked = [None if one is None else str(one) for one in (dead_letter_id, partition_uid)]
    rows = await fetch(DEAD_LETTER_FIND, (str(tenant), *asked, transaction))
    return DeadLetter(*rows[0]) if rows else None


async def dead_letter_replay(
    fetch: Fetch, dead_letter_id: str, group: PushGroup, *, wait_ms: int
) -> Replay:
    """Append the one message of `group` and delete the dead letter, or neither."""
    [row] = await fetch(
        DEAD_LETTER_REPLAY,
        (
            dead_letter_id,
            group.partition_id,
            group.queue_id,
            group.version,
            group.frames,
            group.ends,
            group.transactions,
            group.flags,
            group.first_id,
            wait_ms,
        ),
    )
    return Replay(*row)


async def dead_letter_purge(
    fetch: Fetch,
    tenant: UUID,
    queue: str,
    group: str | None,
    *,
    after: PurgeStep | None,
    rows_max: int,
) -> PurgeStep:
    reached, until = (0, None) if after is None else (after.reached, after.until)
    [row] = await fetch(DEAD_LETTER_PURGE, (str(tenant), queue, group, reached, until, rows_max))
    return PurgeStep(*row)
