"""The procedures of streams as typed coroutines, like those in calls.py.

Imports calls. Used by services/streams.py.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch, PushGroup, array, push_parameters

STREAM_REGISTER = """
SELECT outcome, query_id::text
  FROM queen_stream_register_v1(
       %s::uuid, %s::text, %s::text, %s::text, %s::text, %s::boolean, %s::boolean, %s::bigint,
       %s::integer)
"""
STREAM_STATE_GET = """
SELECT key, value, (extract(epoch FROM updated_at) * 1000000)::bigint
  FROM queen_stream_state_get_v1(
       %s::uuid, %s::uuid, %s::uuid, %b::text[], %s::text, %s::double precision, %s::bigint)
"""
STREAM_CYCLE = """
SELECT kind, no, base_offset, duplicate_positions, queue_name, queue_id, partition_id, completed,
       lease_released
  FROM queen_stream_cycle_v1(
       %s::uuid, %s::uuid, %s::uuid, %s::text,
       %b::text[], %b::bytea[], %s::double precision[],
       %s::bigint[], %s::bigint[], %s::bigint[], %b::bytea[], %b::bytea[], %b::text[],
       %b::bytea[], %s::uuid[], %s::uuid[], %s::integer,
       %s::integer, %s::uuid, %s::text, %s::bigint)
"""
NO_ACK, WHOLE, PART, GIVE_BACK = range(4)


class Registered(NamedTuple):
    """fresh | known | reset | mismatch | denied | full"""

    outcome: str
    query_id: str | None


class StateRow(NamedTuple):
    key: str
    value: bytes
    updated_us: int


class StateWrite(NamedTuple):
    """What an entry shall be; None deletes it. `window_end` is that of the value, if any."""

    value: bytes | None
    window_end: float | None


class CycleAck(NamedTuple):
    """WHOLE, PART or GIVE_BACK, and how many messages were handled; `transaction` is the
    canonical literal of the last of them."""

    action: int
    lease_id: str | None
    transaction: str | None
    messages: int | None


class CycleRow(NamedTuple):
    kind: str
    no: int | None
    base_offset: int | None
    duplicate_positions: list[int] | None
    queue: str | None
    queue_id: int | None
    partition_id: int | None
    completed: int | None
    lease_released: bool | None


async def stream_register(
    fetch: Fetch,
    tenant: UUID,
    name: str,
    *,
    source_queue: str,
    sink_queue: str | None,
    config_hash: str,
    reset: bool,
    granted: bool,
    queries_max: int | None,
    wait_ms: int,
) -> Registered:
    """`granted` and `queries_max` count for a new name alone."""
    parameters = (
        str(tenant),
        name,
        source_queue,
        sink_queue,
        config_hash,
        reset,
        granted,
        queries_max,
        wait_ms,
    )
    [row] = await fetch(STREAM_REGISTER, parameters)
    return Registered(*row)


async def stream_state_get(
    fetch: Fetch,
    tenant: UUID | None,
    query_id: str,
    partition_uid: str,
    *,
    keys: Sequence[str] | None,
    prefix: str | None,
    ripe_at: float | None,
    bytes_max: int,
) -> list[StateRow]:
    """A tenant is given when tenancy is on."""
    parameters = (
        None if tenant is None else str(tenant),
        query_id,
        partition_uid,
        None if keys is None else list(keys),
        prefix,
        ripe_at,
        bytes_max,
    )
    return [StateRow(*row) for row in await fetch(STREAM_STATE_GET, parameters)]


async def stream_cycle(
    fetch: Fetch,
    tenant: UUID | None,
    query_id: str,
    partition_uid: str,
    group: str,
    state: Mapping[str, StateWrite],
    groups: Sequence[PushGroup],
    ack: CycleAck | None,
    *,
    wait_ms: int,
) -> list[CycleRow]:
    """A row a group, in no order, and the one of the cycle."""
    rows = await fetch(
        STREAM_CYCLE,
        (
            None if tenant is None else str(tenant),
            query_id,
            partition_uid,
            group,
            list(state),
            [one.value for one in state.values()],
            array(one.window_end for one in state.values()),
            *push_parameters(groups, wait_ms),
            *(ack or CycleAck(NO_ACK, None, None, None)),
        ),
    )
    return [CycleRow(*row) for row in rows]
