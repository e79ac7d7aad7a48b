"""The procedures of timers as typed coroutines, like those in calls.py.

A place is where a claimed timer's row lies (its ctid, as text): together with the claim's
token it names the row for as long as nobody changed it.

Imports domain, frames, calls. Used by services/timers.py, transaction.py and sweeper.py.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from brokers import frames
from brokers.domain import Timer, TimerOperation, TimerOutcome
from brokers.store.calls import Fetch, PushGroup, array, push_parameters

TIMER_APPLY = """
SELECT operation_no, status, message_id::text, (extract(epoch FROM deliver_at) * 1000000)::bigint
  FROM queen_timer_apply_v1(
       %s::uuid, %b::text[], %b::text[], %b::text[], %s::bigint[], %b::text[], %b::bytea[],
       %s::boolean[], %s::boolean[], %s::text)
"""
_SHOWN = """
SELECT timer_key, partition, (extract(epoch FROM deliver_at) * 1000000)::bigint, txn,
       message_id::text, encrypted, producer_sub, attempts, last_error, claimed,
       (extract(epoch FROM created_at) * 1000000)::bigint,
       (extract(epoch FROM updated_at) * 1000000)::bigint
"""
TIMER_PEEK = f"{_SHOWN}, payload FROM queen_timer_peek_v1(%s::uuid, %s::text, %s::text)"
TIMER_LIST = f"{_SHOWN} FROM queen_timer_list_v1(%s::uuid, %s::text, %s::text, %s::integer)"
TIMER_BROWSE = f"""
{_SHOWN}, queue
  FROM queen_timer_browse_v1(
       %s::uuid, %s::text, %s::text, %s::boolean, %s::text, %s::text, %s::integer)
"""
TIMER_COUNT = "SELECT queen_timer_count_v1(%s::uuid, %s::text, %s::text, %s::integer)"
TIMER_PROBE = "SELECT due, late_us, next_us FROM queen_timer_probe_v1(%s::integer, %s::bigint)"
TIMER_CLAIM = """
SELECT place::text, tenant_id::text, queue, partition, txn, message_id::text, payload,
       encrypted, producer_sub, attempts, late_us
  FROM queen_timer_claim_v1(%s::uuid, %s::bigint, %s::integer, %s::integer, %s::bigint)
"""
TIMER_HELD = "SELECT queen_timer_held_v1(%s::uuid, %s::tid[])"
TIMER_FIRE = """
SELECT group_no, verdict, held
  FROM queen_timer_fire_v1(
       %s::uuid, %s::tid[], %s::integer[],
       %s::bigint[], %s::bigint[], %s::bigint[], %b::bytea[], %b::bytea[], %b::text[],
       %b::bytea[], %s::uuid[], %s::uuid[], %s::integer)
"""
TIMER_FAIL = """
SELECT place_no, dead, attempts
  FROM queen_timer_fail_v1(
       %s::uuid, %s::tid[], %s::bigint[], %s::text, %s::bigint, %s::bigint, %s::integer)
"""


class Probe(NamedTuple):
    """`due` is capped; times in microseconds, None where there is nothing to tell."""

    due: int
    late_us: int | None
    next_us: int | None


class ClaimedTimer(NamedTuple):
    """A timer to fire; `encrypted` if the payload lies in an envelope of a broker's."""

    place: str
    tenant: str
    queue: str
    partition: str
    transaction_literal: str
    message_id: str
    payload: bytes
    encrypted: bool
    producer_sub: str | None
    attempts: int
    late_us: int


class FireRow(NamedTuple):
    """Group 0 with `short`: nothing was done, and only the timers in `held` are still ours."""

    group: int
    verdict: str
    held: list[int] | None


class FailRow(NamedTuple):
    no: int
    dead: bool
    attempts: int


def apply_columns(
    tenant: UUID, operations: Sequence[TimerOperation], producer_sub: str | None
) -> tuple[Any, ...]:
    return (
        str(tenant),
        [one.queue for one in operations],
        [one.key for one in operations],
        [one.partition for one in operations],
        array(one.delay_ms for one in operations),
        ["" if one.txn is None else frames.literal(one.txn) for one in operations],
        [one.payload for one in operations],
        array(one.encrypted for one in operations),
        array(one.marked_encrypted for one in operations),
        producer_sub,
    )


async def timer_apply(
    fetch: Fetch,
    tenant: UUID,
    operations: Sequence[TimerOperation],
    *,
    producer_sub: str | None = None,
) -> list[TimerOutcome]:
    """One outcome an operation, in their order."""
    rows = await fetch(TIMER_APPLY, apply_columns(tenant, operations, producer_sub))
    return [TimerOutcome(*outcome) for _, *outcome in sorted(rows)]


async def timer_peek(fetch: Fetch, tenant: UUID, queue: str, key: str) -> Timer | None:
    rows = await fetch(TIMER_PEEK, (str(tenant), queue, key))
    return Timer(*rows[0]) if rows else None


async def timer_list(
    fetch: Fetch, tenant: UUID, queue: str, *, after: str | None, limit: int
) -> list[Timer]:
    return [Timer(*row) for row in await fetch(TIMER_LIST, (str(tenant), queue, after, limit))]


async def timer_browse(
    fetch: Fetch,
    tenant: UUID,
    *,
    queue: str | None,
    prefix: str,
    backward: bool,
    place: tuple[str, str] | None,
    limit: int,
) -> list[tuple[str, Timer]]:
    """Timers with their queues, behind `place` (a queue and a key), or from there backward."""
    at_queue, at_key = (None, None) if place is None else place
    rows = await fetch(
        TIMER_BROWSE, (str(tenant), queue, prefix, backward, at_queue, at_key, limit)
    )
    return [(row[12], Timer(*row[:12])) for row in rows]


async def timer_count(
    fetch: Fetch, tenant: UUID, queue: str, *, prefix: str, count_max: int
) -> int:
    """`count_max` where there are more."""
    [[count]] = await fetch(TIMER_COUNT, (str(tenant), queue, prefix, count_max))
    return count


async def timer_probe(fetch: Fetch, *, due_cap: int, ahead_ms: int) -> Probe:
    """Nothing is told of timers that are due later than `ahead_ms` from now."""
    [row] = await fetch(TIMER_PROBE, (due_cap, ahead_ms))
    return Probe(*row)


async def timer_claim(
    fetch: Fetch, token: str, *, lease_ms: int, start: int, limit: int, bytes_max: int
) -> list[ClaimedTimer]:
    rows = await fetch(TIMER_CLAIM, (token, lease_ms, start, limit, bytes_max))
    return [ClaimedTimer(*row) for row in rows]


async def timer_held(fetch: Fetch, token: str, places: Sequence[str]) -> list[int]:
    """The positions, from 1, of those that are still the claim's."""
    [[held]] = await fetch(TIMER_HELD, (token, _places(places)))
    return list(held)


async def timer_fire(
    fetch: Fetch,
    token: str,
    places: Sequence[str],
    group_nos: Sequence[int],
    groups: Sequence[PushGroup],
    *,
    wait_ms: int,
) -> list[FireRow]:
    """`group_nos` says, from 1, which group each place belongs to."""
    rows = await fetch(
        TIMER_FIRE,
        (token, _places(places), array(group_nos), *push_parameters(groups, wait_ms)),
    )
    return [FireRow(*row) for row in rows]


async def timer_fail(
    fetch: Fetch,
    token: str,
    places: Sequence[str],
    partition_ids: Sequence[int | None],
    *,
    error: str | None,
    backoff_min_ms: int,
    backoff_max_ms: int,
    attempts_max: int,
) -> list[FailRow]:
    rows = await fetch(
        TIMER_FAIL,
        (
            token,
            _places(places),
            array(partition_ids),
            error,
            backoff_min_ms,
            backoff_max_ms,
            attempts_max,
        ),
    )
    return [FailRow(*row) for row in rows]


def _places(places: Sequence[str]) -> str:
    return "{" + ",".join([f'"{place}"' for place in places]) + "}"
