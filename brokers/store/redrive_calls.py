"""The procedures of redrives, as one typed coroutine each.

Imports calls. Used by services/redrive.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch, PushGroup, array, push_parameters

REDRIVE_CREATE = """
SELECT outcome, redrive_id::text
  FROM queen_redrive_create_v1(
       %s::uuid, %s::text, %s::text, %s::text, %s::timestamptz, %s::timestamptz, %s::text,
       %s::text, %s::integer, %s::bigint, %s::integer, %s::integer)
"""
REDRIVE_COUNT = """
SELECT queen_redrive_count_v1(
       %s::uuid, %s::text, %s::text, %s::text, %s::timestamptz, %s::timestamptz, %s::integer)
"""
REDRIVE_LIST = """
SELECT id::text, queue_name, consumer_group, error_text, failed_from, failed_to, target_queue,
       target_partition, rate, state, total, looked_at, moved, skipped, problem, created_at,
       updated_at, finished_at
  FROM queen_redrive_list_v1(
       %s::uuid, %s::uuid, %s::text, %s::integer, %s::bigint, %s::timestamptz, %s::uuid)
"""
REDRIVE_TURN = "SELECT queen_redrive_turn_v1(%s::uuid, %s::uuid, %s::text, %s::integer)"
REDRIVE_FAIL = "SELECT queen_redrive_fail_v1(%s::bigint, %s::uuid, %s::text)"
REDRIVE_PAUSE = "SELECT queen_redrive_pause_v1(%s::bigint, %s::uuid, %s::integer)"
REDRIVE_DUE = "SELECT redrive_id::text, wait_us FROM queen_redrive_due_v1(%s::integer)"
REDRIVE_LETTERS = """
SELECT id::text, partition_id, partition_name, payload, encrypted, producer_sub, queue_id,
       config_version, encryption_enabled, queue_name, tenant_id::text, target_queue,
       target_partition, from_at, from_id::text, reached_at, reached_id::text, looks, at_end
  FROM queen_redrive_letters_v1(%s::uuid, %s::integer, %s::bigint, %s::integer)
"""
REDRIVE_STEP = """
SELECT verdict, kept
  FROM queen_redrive_step_v1(
       %s::bigint, %s::uuid, %s::timestamptz, %s::uuid, %s::timestamptz, %s::uuid, %s::integer,
       %s::integer, %s::text, %s::boolean, %s::uuid[], %s::integer[],
       %s::bigint[], %s::bigint[], %s::bigint[], %b::bytea[], %b::bytea[], %b::text[],
       %b::bytea[], %s::uuid[], %s::uuid[], %s::integer)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which dead letters: of a queue, and if named of a group, with this text in their error,
    and of a span of time, both ends included."""

    queue: str
    group: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class RedriveRow(NamedTuple):
    id: str
    queue: str
    group: str | None
    error: str | None
    since: datetime | None
    until: datetime
    target_queue: str | None
    target_partition: str | None
    rate: int
    state: str
    total: int | None
    looked_at: int
    moved: int
    skipped: int
    problem: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None


class RedriveLetter(NamedTuple):
    """`queue_id`, `version` and `encryption_enabled` are those of the queue it lies in."""

    id: str
    partition_id: int
    partition: str
    payload: bytes
    encrypted: bool
    producer_sub: str | None
    queue_id: int
    version: int
    encryption_enabled: bool


@dataclass(slots=True, kw_only=True)
class RedrivePage:
    """What a job moves next, and where it stands before and after."""

    letters: list[RedriveLetter]
    tenant: UUID
    queue: str
    queue_gone: bool
    target_queue: str | None
    target_partition: str | None
    from_at: datetime | None
    from_id: str | None
    reached_at: datetime | None
    reached_id: str | None
    looks: int
    at_end: bool


@dataclass(slots=True)
class RedriveMove:
    """The letters of a step: which they are, and each one's group (from 1) among `groups`."""

    letters: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    groups: list[PushGroup] = field(default_factory=list)
    skipped: int = 0
    problem: str | None = None


class RedriveStep(NamedTuple):
    """moved | changed | stopped | fenced; `kept` names letters that stayed, from 1."""

    verdict: str
    kept: list[int] | None


async def redrive_create(
    fetch: Fetch,
    tenant: UUID,
    which: Filter,
    *,
    target_queue: str | None,
    target_partition: str | None,
    rate: int,
    total: int | None,
    running_max: int,
    keep_days: int,
) -> tuple[str, UUID | None]:
    """created | unknown | full, and the id of the job."""
    filters = (which.queue, which.group, which.error, which.since, which.until)
    target = (target_queue, target_partition, rate, total)
    [[outcome, id_]] = await fetch(
        REDRIVE_CREATE, (str(tenant), *filters, *target, running_max, keep_days)
    )
    return outcome, None if id_ is None else UUID(id_)


async def redrive_count(fetch: Fetch, tenant: UUID, which: Filter, *, rows_max: int) -> int | None:
    filters = (which.queue, which.group, which.error, which.since, which.until)
    [[total]] = await fetch(REDRIVE_COUNT, (str(tenant), *filters, rows_max))
    return total


async def redrive_list(
    fetch: Fetch,
    tenant: UUID,
    *,
    redrive_id: UUID | None = None,
    state: str | None = None,
    limit: int = 1,
    offset: int = 0,
    before: tuple[datetime, str] | None = None,
) -> list[RedriveRow]:
    """One job, or those made before another one (its `created_at` and id)."""
    asked = None if redrive_id is None else str(redrive_id)
    at, before_id = (None, None) if before is None else before
    rows = await fetch(REDRIVE_LIST, (str(tenant), asked, state, limit, offset, at, before_id))
    return [RedriveRow(*row) for row in rows]


async def redrive_turn(
    fetch: Fetch, tenant: UUID, redrive_id: UUID, state: str, *, running_max: int
) -> str | None:
    """The state that the job was in, `full` when too many run for it to run again; None when there
    is no such job."""
    [[was]] = await fetch(REDRIVE_TURN, (str(tenant), str(redrive_id), state, running_max))
    return was


async def redrive_fail(fetch: Fetch, token: int, redrive_id: UUID, problem: str) -> bool:
    """False when somebody else leads."""
    [[ours]] = await fetch(REDRIVE_FAIL, (token, str(redrive_id), problem))
    return ours


async def redrive_pause(fetch: Fetch, token: int, redrive_id: UUID, *, wait_ms: int) -> bool:
    """False when somebody else leads."""
    [[ours]] = await fetch(REDRIVE_PAUSE, (token, str(redrive_id), wait_ms))
    return ours


async def redrive_due(fetch: Fetch, *, limit: int) -> list[tuple[UUID, int]]:
    """Running jobs, and how many microseconds each has to wait."""
    return [(UUID(id_), wait_us) for id_, wait_us in await fetch(REDRIVE_DUE, (limit,))]


async def redrive_letters(
    fetch: Fetch, redrive_id: UUID, *, rows_max: int, bytes_max: int, looks_max: int
) -> RedrivePage | None:
    """None when the job does not run."""
    rows = await fetch(REDRIVE_LETTERS, (str(redrive_id), rows_max, bytes_max, looks_max))
    if not rows:
        return None
    *letters, end = rows
    return RedrivePage(
        letters=[RedriveLetter(*row[:9]) for row in letters],
        queue_gone=end[6] is None,
        queue=end[9],
        tenant=UUID(end[10]),
        target_queue=end[11],
        target_partition=end[12],
        from_at=end[13],
        from_id=end[14],
        reached_at=end[15],
        reached_id=end[16],
        looks=end[17],
        at_end=end[18],
    )


async def redrive_step(
    fetch: Fetch,
    token: int,
    redrive_id: UUID,
    page: RedrivePage,
    move: RedriveMove,
    *,
    wait_ms: int,
) -> RedriveStep:
    """Move these letters and the job's place, or nothing."""
    groups: Sequence[PushGroup] = move.groups
    [row] = await fetch(
        REDRIVE_STEP,
        (
            token,
            str(redrive_id),
            page.from_at,
            page.from_id,
            page.reached_at,
            page.reached_id,
            page.looks,
            move.skipped,
            move.problem,
            page.at_end,
            array(move.letters),
            array(move.numbers),
            *push_parameters(groups, wait_ms),
        ),
    )
    return RedriveStep(*row)
