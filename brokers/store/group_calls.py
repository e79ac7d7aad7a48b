"""The procedures of consumer groups, as one typed coroutine each.

Imports calls. Used by services/groups.py.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch, array

GROUP_LIST = """
SELECT consumer_group, queue_name, cursors, lagging, lag, consumed, oldest_s, subscription_mode,
       subscription_timestamp, created_at, conflation
  FROM queen_group_list_v1(%s::uuid, %s::integer, %s::bigint)
"""
GROUP_LAGGING = """
SELECT consumer_group, queue_name, partition_name, partition_uid::text, lag, oldest_at, lag_s
  FROM queen_group_lagging_v1(%s::uuid, %s::bigint, %s::integer, %s::bigint)
"""
GROUP_DESCRIBE = """
SELECT queue_name, conflation, partition_name, consumed, lag, lag_s, leased
  FROM queen_group_describe_v1(%s::uuid, %s::text, %s::integer, %s::bigint)
"""
GROUP_QUEUES = "SELECT queue_id FROM queen_group_queues_v1(%s::uuid, %s::text, %s::text)"
GROUP_TARGET = """
SELECT queue_id, partition_ids FROM queen_group_target_v1(%s::uuid, %s::text, %s::text)
"""
GROUP_SEEK = """
SELECT queen_group_seek_v1(%s::bigint, %s::text, %s::bigint[], %s::timestamptz)
"""
GROUP_DELETE = """
SELECT cursors, forgotten FROM queen_group_delete_v1(%s::bigint, %s::text, %s::boolean)
"""
GROUP_START = "SELECT queen_group_start_v1(%s::uuid, %s::text, %s::timestamptz)"


class GroupRow(NamedTuple):
    """A group at one queue. `oldest_s`: the age of the oldest message not consumed, in seconds."""

    group: str
    queue: str
    cursors: int
    lagging: int
    lag: int
    consumed: bool
    oldest_s: int
    mode: str
    subscribed_from: datetime | None
    created_at: datetime
    conflation: bool


class LaggingRow(NamedTuple):
    group: str
    queue: str
    partition: str
    partition_uid: str
    lag: int
    oldest_at: datetime
    lag_s: float


class PlaceRow(NamedTuple):
    """A group in one partition; None is the partition of a queue that has none."""

    queue: str
    conflation: bool
    partition: str | None
    consumed: int
    lag: int
    lag_s: int
    leased: bool


class Target(NamedTuple):
    queue_id: int
    partition_ids: list[int]


class Forgotten(NamedTuple):
    """What one queue forgot of a group."""

    cursors: int
    subscription: bool


async def group_list(fetch: Fetch, tenant: UUID, *, limit: int, offset: int) -> list[GroupRow]:
    return [GroupRow(*row) for row in await fetch(GROUP_LIST, (str(tenant), limit, offset))]


async def group_lagging(
    fetch: Fetch, tenant: UUID, *, lag_s: int, limit: int, offset: int
) -> list[LaggingRow]:
    rows = await fetch(GROUP_LAGGING, (str(tenant), lag_s, limit, offset))
    return [LaggingRow(*row) for row in rows]


async def group_describe(
    fetch: Fetch, tenant: UUID, group: str, *, limit: int, offset: int
) -> list[PlaceRow]:
    rows = await fetch(GROUP_DESCRIBE, (str(tenant), group, limit, offset))
    return [PlaceRow(*row) for row in rows]


async def group_queues(fetch: Fetch, tenant: UUID, group: str, queue: str | None) -> list[int]:
    """The ids of the queues that the group is subscribed to, or of the one that was named."""
    return [row[0] for row in await fetch(GROUP_QUEUES, (str(tenant), group, queue))]


async def group_target(
    fetch: Fetch, tenant: UUID, queue: str, partition: str | None
) -> Target | None:
    """None when there is no such queue, or nothing in it."""
    rows = await fetch(GROUP_TARGET, (str(tenant), queue, partition))
    return Target(*rows[0]) if rows else None


async def group_seek(
    fetch: Fetch, queue_id: int, group: str, partition_ids: Sequence[int], at: datetime | None
) -> int | None:
    """How many cursors were put; None when the queue or the subscription is gone."""
    [[moved]] = await fetch(GROUP_SEEK, (queue_id, group, array(partition_ids), at))
    return moved


async def group_delete(fetch: Fetch, queue_id: int, group: str, *, forget: bool) -> Forgotten:
    [row] = await fetch(GROUP_DELETE, (queue_id, group, forget))
    return Forgotten(*row)


async def group_start(fetch: Fetch, tenant: UUID, group: str, at: datetime) -> int:
    """How many subscriptions were changed."""
    [[changed]] = await fetch(GROUP_START, (str(tenant), group, at))
    return changed
