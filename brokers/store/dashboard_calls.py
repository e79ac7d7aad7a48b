"""The procedures that the dashboard alone asks, as one typed coroutine each.

Imports calls. Used by services/dashboard.py.
"""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch

QUEUES = """
SELECT tenant_id::text, name, paused, partitions, pending, processing, dead_letters, age_s,
       pushed, popped, acked, failed, oldest_s
  FROM queen_dashboard_queues_v1(%s::integer)
"""
GROUPS = """
SELECT tenant_id::text, queue_name, consumer_group, lag, partitions_lagging, cursors, oldest_s,
       age_s, mode, conflation
  FROM queen_dashboard_groups_v1(%s::uuid, %s::text, %s::integer)
"""
PARTITIONS = """
SELECT name, uid::text, last_offset, log_start, pending, processing, last_write_at, created_at
  FROM queen_dashboard_partitions_v1(%s::uuid, %s::text, %s::text, %s::integer)
"""
POSTGRES_HEALTH = """
SELECT version, standby, up_s, connections, connections_max, active, waiting, sees_all,
       oldest_tx_s, oldest_tx_state, oldest_tx_application, oldest_tx_pid, dead_rows, live_rows,
       worst_table, worst_dead_rows, wal_bytes, deadlocks, blocks_hit, blocks_read,
       database_bytes
  FROM queen_postgres_health_v1()
"""


class BusyQueue(NamedTuple):
    """As last counted, `age_s` ago (None: never); `pushed` and so on in its latest minute."""

    tenant: str
    name: str
    paused: bool
    partitions: int | None
    pending: int | None
    processing: int | None
    dead_letters: int | None
    age_s: float | None
    pushed: int | None
    popped: int | None
    acked: int | None
    failed: int | None
    oldest_s: float | None


class LaggingGroup(NamedTuple):
    """As last counted, `age_s` ago (None: not yet, and no figure is known). `oldest_s`: the age
    of the oldest message not consumed, None when there is none."""

    tenant: str
    queue: str
    group: str
    lag: int | None
    partitions_lagging: int | None
    cursors: int | None
    oldest_s: float | None
    age_s: float | None
    mode: str
    conflation: bool


class PartitionRow(NamedTuple):
    """As it is now; `pending` is what the slowest group has not consumed."""

    name: str
    uid: str
    last_offset: int
    log_start: int
    pending: int
    processing: int
    last_write_at: datetime | None
    created_at: datetime


class PostgresHealth(NamedTuple):
    """Without `sees_all` the oldest transaction is the oldest of our own role."""

    version: str
    standby: bool
    up_s: float
    connections: int
    connections_max: int
    active: int
    waiting: int
    sees_all: bool
    oldest_tx_s: float | None
    oldest_tx_state: str | None
    oldest_tx_application: str | None
    oldest_tx_pid: int | None
    dead_rows: int
    live_rows: int
    worst_table: str | None
    worst_dead_rows: int | None
    wal_bytes: int | None
    deadlocks: int
    blocks_hit: int
    blocks_read: int
    database_bytes: int


async def queues(fetch: Fetch, *, limit: int) -> list[BusyQueue]:
    return [BusyQueue(*row) for row in await fetch(QUEUES, (limit,))]


async def groups(
    fetch: Fetch, tenant: UUID | None, queue: str | None, *, limit: int
) -> list[LaggingGroup]:
    """Of one queue of the tenant; with both None of all queues there are."""
    asked = None if tenant is None else str(tenant)
    return [LaggingGroup(*row) for row in await fetch(GROUPS, (asked, queue, limit))]


async def partitions(
    fetch: Fetch, tenant: UUID, queue: str, *, after: str | None, limit: int
) -> list[PartitionRow]:
    rows = await fetch(PARTITIONS, (str(tenant), queue, after, limit))
    return [PartitionRow(*row) for row in rows]


async def postgres_health(fetch: Fetch) -> PostgresHealth:
    [row] = await fetch(POSTGRES_HEALTH, ())
    return PostgresHealth(*row)
