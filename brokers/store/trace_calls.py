"""The procedures of traces as typed coroutines, like those in calls.py.

Imports calls. Used by services/traces.py.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch

_CREATED = "(extract(epoch FROM created_at) * 1000000)::bigint"
TRACE_ADD = """
SELECT queen_trace_add_v1(
       %s::uuid, %s::uuid, %s::boolean, %s::uuid, %s::text, %s::text, %s::text, %b::text[],
       %s::text, %b::bytea)
"""
TRACE_LIST = f"""
SELECT id::text, event_type, data, consumer_group, {_CREATED}, names
  FROM queen_trace_list_v1(%s::uuid, %s::uuid, %s::text, %s::integer, %s::bigint)
"""
TRACE_BY_NAME = f"""
SELECT total, id::text, event_type, data, consumer_group, {_CREATED}, names, transaction_id,
       partition_uid::text, queue_name, partition_name
  FROM queen_trace_by_name_v1(
       %s::uuid, %s::text, %s::timestamptz, %s::timestamptz, %s::bigint, %s::bigint, %s::bigint,
       %s::bigint, %s::bigint)
"""
TRACE_NAMES = """
SELECT total, name, traces, messages, (extract(epoch FROM last_seen_at) * 1000000)::bigint
  FROM queen_trace_names_v1(%s::uuid, %s::bigint, %s::bigint, %s::bigint)
"""


class TraceRow(NamedTuple):
    """`names` is a JSON array and `data` a JSON value, both as text."""

    id: str
    event_type: str
    data: bytes
    group: str
    created_us: int
    names: str


class NamedTraceRow(NamedTuple):
    """A trace that was found by a name, and where its message lies."""

    trace: TraceRow
    transaction_id: str
    partition_uid: str
    queue: str
    partition: str


class TraceNameRow(NamedTuple):
    name: str
    traces: int
    messages: int
    last_seen_us: int


async def trace_add(
    fetch: Fetch,
    trace_id: str,
    tenant: UUID,
    *,
    checked: bool,
    partition_uid: str,
    transaction_id: str,
    group: str,
    event_type: str,
    names: Sequence[str],
    listed: str,
    data: bytes,
) -> bool:
    """False when the partition is not the tenant's; only asked with `checked`."""
    parameters = (
        trace_id,
        str(tenant),
        checked,
        partition_uid,
        transaction_id,
        group,
        event_type,
        list(names),
        listed,
        data,
    )
    [[added]] = await fetch(TRACE_ADD, parameters)
    return bool(added)


async def trace_list(
    fetch: Fetch,
    tenant: UUID | None,
    partition_uid: str,
    transaction_id: str,
    *,
    limit: int,
    bytes_max: int,
) -> list[TraceRow]:
    """A tenant is given when tenancy is on."""
    own = None if tenant is None else str(tenant)
    rows = await fetch(TRACE_LIST, (own, partition_uid, transaction_id, limit, bytes_max))
    return [TraceRow(*row) for row in rows]


async def trace_by_name(
    fetch: Fetch,
    tenant: UUID,
    name: str,
    *,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    offset: int,
    bytes_max: int,
    exact_max: int,
    count_max: int,
) -> tuple[int, list[NamedTraceRow]]:
    """How many there are, and one page of them. More than `exact_max` are counted with those of
    queues that are deleted, and `count_max` at most."""
    page = (since, until, limit, offset, bytes_max)
    parameters = (str(tenant), name, *page, exact_max, count_max)
    [counted, *rows] = await fetch(TRACE_BY_NAME, parameters)
    return counted[0], [NamedTraceRow(TraceRow(*row[1:7]), *row[7:]) for row in rows]


async def trace_names(
    fetch: Fetch, tenant: UUID, *, limit: int, offset: int, count_max: int
) -> tuple[int, list[TraceNameRow]]:
    """How many there are, and one page of them; at most `count_max` traces of each are counted."""
    [counted, *rows] = await fetch(TRACE_NAMES, (str(tenant), limit, offset, count_max))
    return counted[0], [TraceNameRow(*row[1:]) for row in rows]
