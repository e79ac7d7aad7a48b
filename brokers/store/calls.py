"""Every hot procedure as one typed coroutine: the only door to them.

A function here names the procedure, passes the arguments, shapes the rows; it decides
nothing. `fetch` is that of a pool or of a lane (see pool.py). Arrays of numbers and ids
travel as their text form, which is quicker to make than element by element; frames travel
binary.

Imports errors, arrays. Used by services/ and flow/.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, cast
from uuid import UUID

from brokers.errors import StoreError
from brokers.store.arrays import ByteaArray, TextArray

Fetch = Callable[..., Awaitable[list[Any]]]

PING = "SELECT 1"
PING_WRITABLE = """
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
       pg_postmaster_start_time()
"""
QUEUE_ENSURE = """
SELECT id, uid::text, config_version, lease_time, delayed_processing, window_buffer,
       min_pop_wait_time, encryption_enabled, max_deliveries
  FROM queen_queue_ensure_v1(%s::uuid, %s::text)
"""
QUEUE_DISCOVER = """
SELECT id, name, uid::text, config_version, lease_time, delayed_processing, window_buffer,
       min_pop_wait_time, encryption_enabled, max_deliveries
  FROM queen_queue_discover_v1(%s::uuid, %s::text, %s::text)
"""
PARTITION_ENSURE = """
SELECT pair_no, queue_id, config_version, encryption_enabled, partition_id, partition_uid::text
  FROM queen_partition_ensure_v1(%s::uuid, %b::text[], %b::text[], %s::boolean)
"""
PARTITION_FIND = """
SELECT name_no, partition_id FROM queen_partition_find_v1(%s::bigint[], %b::text[])
"""
MESSAGE_PUSH = """
SELECT group_no, verdict, duplicate_positions, duplicate_ids::text[], divisible
  FROM queen_message_push_v1(
       %s::bigint[], %s::bigint[], %s::bigint[], %b::bytea[], %b::bytea[], %b::text[],
       %b::bytea[], %s::uuid[], %s::uuid[], %s::integer, true, NULL)
"""
MESSAGE_PUSH_ONE = """
SELECT group_no, verdict, duplicate_positions, duplicate_ids::text[], divisible
  FROM queen_message_push_one_v1(
       %s::bigint, %s::bigint, %s::bigint, %b::bytea, %b::bytea, %s::text, %b::bytea, %s::uuid)
"""
GROUP_REGISTER = """
SELECT created, conflation
  FROM queen_group_register_v1(
       %s::bigint, %s::text, %s::text, %s::timestamptz, %s::boolean, %s::text, %s::text,
       %s::boolean)
"""
PARTITION_READY = """
SELECT partition_id, queue_id, pending, due_at
  FROM queen_partition_ready_v1(%s::bigint[], %s::text, %s::bigint, %s::integer, %s::integer)
"""
MESSAGE_CLAIM = """
SELECT job, partition_id, verdict, due_us, leased, last_offset, batch_end, partition_uid::text,
       partition_name, queue_id, queue_name, attempt, base_offset, created_us, frames, flags
  FROM queen_message_claim_v1(
       %b::text[], %s::integer[], %s::integer[], %s::uuid[], %s::integer[], %s::boolean[],
       %s::integer[], %s::bigint[], %s::integer)
"""
MESSAGE_CLAIM_FEW = """
SELECT job, partition_id, verdict, due_us, leased, last_offset, batch_end, partition_uid::text,
       partition_name, queue_id, queue_name, attempt, base_offset, created_us, frames, flags
  FROM queen_message_claim_few_v1(
       %b::text[], %s::integer[], %s::uuid[], %s::integer[], %s::boolean[],
       %s::integer[], %s::bigint[], %s::integer)
"""
MESSAGE_ACK = """
SELECT ack_no, outcome, lease_released, dead_lettered, conflated, queue_id, partition_id
  FROM queen_message_ack_v1(
       %s::uuid, %s::integer[], %s::uuid[], %b::text[], %s::uuid[], %b::text[],
       %s::smallint[], %b::text[], '{}'::uuid[], false)
"""
CURSOR_COMPLETE = """
SELECT batch_no
  FROM queen_cursor_complete_v1(%s::bigint[], %b::text[], %s::uuid[], %s::bigint[])
"""
READY_PROBE = """
SELECT ring_no, partition_id, due_us, leased, wake_version, looked_at, truncated
  FROM queen_ready_probe_v1(%s::bigint[], %b::text[], %s::timestamptz[], %s::integer, %s::integer)
"""
END_BYTES = 4  # of one frame, in `ends`
# More jobs than so many are cheaper by sets.
FEW_JOBS = 4


class QueueRow(NamedTuple):
    """What the broker keeps in mind of a queue; times in the unit of the option."""

    id: int
    name: str
    uid: str
    version: int
    lease_time: int
    delayed_processing: int
    window_buffer: int
    min_pop_wait_time: int
    encryption_enabled: bool
    max_deliveries: int


class PartitionRow(NamedTuple):
    queue_id: int
    version: int
    encryption_enabled: bool
    id: int
    uid: str


@dataclass(slots=True)
class PushGroup:
    """The messages of one flush for one partition, as the procedure takes them."""

    partition_id: int
    queue_id: int
    version: int
    frames: bytes
    ends: bytes
    transactions: str
    flags: bytes | None
    first_id: str
    last_id: str


class PushVerdict(NamedTuple):
    """stored | stale | busy | full, and which positions of the group were duplicates of what.

    `divisible`: full, but some of the group may be stored when it is asked for by itself.
    """

    verdict: str
    duplicate_positions: list[int] | None
    duplicate_ids: list[str] | None
    divisible: bool | None = None


class ReadyPartition(NamedTuple):
    id: int
    queue_id: int
    pending: int


class Readiness(NamedTuple):
    """What has work now, how many of the queues exist, and when more may have."""

    ready: list[ReadyPartition]
    queues: int
    due_at: datetime | None


@dataclass(slots=True)
class ClaimJob:
    """One pop: what it may take, from which candidates.

    `by_sets`: it needs the procedure that tells what is the matter with each candidate.
    """

    group: str
    batch: int
    lanes: int
    lease_id: str
    lease_s: int
    auto_ack: bool
    candidates: Sequence[int]
    by_sets: bool = False


class ClaimRow(NamedTuple):
    job: int
    partition_id: int
    verdict: str
    due_us: int | None
    leased: bool | None
    last_offset: int | None
    batch_end: int | None
    partition_uid: str | None
    partition_name: str | None
    queue_id: int | None
    queue_name: str | None
    attempt: int | None
    base_offset: int | None
    created_us: int | None
    frames: bytes | None
    flags: bytes | None


@dataclass(slots=True)
class AckItem:
    """One acknowledgment as the procedure takes it; `action` 0 completed 1 retry 2 failed 3 dlq."""

    request: int
    partition_uid: str
    group: str
    lease_id: str | None
    transaction: str
    action: int
    error: str | None


class Batch(NamedTuple):
    """A whole batch that a lease handed out, by position."""

    partition_id: int
    group: str
    lease_id: str
    end: int


class ProbeRow(NamedTuple):
    """With a partition: it has unread messages, due in so many microseconds (0: now).

    Without: the ring's wake version (None: its queue is gone) and the database's time, or,
    `truncated`, that there are more partitions than the limit lets through.
    """

    ring: int
    partition_id: int | None
    due_us: int | None
    leased: bool | None
    wake_version: int | None
    looked_at: datetime
    truncated: bool


class AckRow(NamedTuple):
    no: int
    outcome: str
    lease_released: bool
    dead_lettered: bool
    conflated: int | None
    queue_id: int | None
    partition_id: int | None


def array(values: Iterable[object]) -> str:
    """The text form of an array of numbers, ids or truth values (nothing that needs quotes)."""
    return "{" + ",".join(["NULL" if one is None else str(one) for one in values]) + "}"


async def ping(fetch: Fetch, *, timeout_s: float) -> None:
    await fetch(PING, timeout_s=timeout_s)


async def ping_writable(fetch: Fetch, *, timeout_s: float) -> datetime:
    """A round trip to a server that takes writes; a standby counts as away.

    Answers when the server was started: another time is a server that was restarted, or
    another server.
    """
    [[read_only, started]] = await fetch(PING_WRITABLE, (), timeout_s=timeout_s)
    if read_only:
        raise StoreError("the server is read-only", sqlstate="25006")
    return cast(datetime, started)


async def queue_ensure(fetch: Fetch, tenant: UUID, name: str) -> QueueRow:
    [row] = await fetch(QUEUE_ENSURE, (str(tenant), name))
    return QueueRow(row[0], name, *row[1:])


async def queue_discover(fetch: Fetch, tenant: UUID, namespace: str, task: str) -> list[QueueRow]:
    return [QueueRow(*row) for row in await fetch(QUEUE_DISCOVER, (str(tenant), namespace, task))]


async def partition_find(
    fetch: Fetch, names: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], int]:
    """The ids of those (queue id, partition name) pairs that exist."""
    rows = await fetch(
        PARTITION_FIND, (array(queue_id for queue_id, _ in names), [name for _, name in names])
    )
    return {names[no - 1]: partition_id for no, partition_id in rows}


async def partition_ensure(
    fetch: Fetch, tenant: UUID, names: Sequence[tuple[str, str]], *, metered: bool = True
) -> list[PartitionRow | None]:
    """The rows of (queue, partition) pairs, in the order asked; no quota where not `metered`.

    None where the queue was deleted while the partition was being made: ask again.
    """
    queues, lanes = [queue for queue, _ in names], [name for _, name in names]
    rows = await fetch(PARTITION_ENSURE, (str(tenant), queues, lanes, metered))
    found = {row[0]: PartitionRow(*row[1:]) for row in rows}
    return [found.get(no) for no in range(1, len(names) + 1)]


def push_parameters(groups: Sequence[PushGroup], wait_ms: int) -> tuple[Any, ...]:
    flags = [group.flags for group in groups]
    return (
        array(group.partition_id for group in groups),
        array(group.queue_id for group in groups),
        array(group.version for group in groups),
        ByteaArray([group.frames for group in groups]),
        ByteaArray([group.ends for group in groups]),
        TextArray([group.transactions for group in groups]),
        ByteaArray(flags) if any(flag is not None for flag in flags) else None,
        array(group.first_id for group in groups),
        array(group.last_id for group in groups),
        wait_ms,
    )


async def message_push(
    fetch: Fetch, groups: Sequence[PushGroup], *, wait_ms: int
) -> list[PushVerdict]:
    """One verdict a group, in their order."""
    if len(groups) == 1 and len(groups[0].ends) == END_BYTES and not wait_ms:
        return await _message_push_one(fetch, groups[0])
    rows = await fetch(MESSAGE_PUSH, push_parameters(groups, wait_ms))
    verdicts: list[PushVerdict | None] = [None] * len(groups)
    for no, *verdict in rows:
        verdicts[no - 1] = PushVerdict(*verdict)
    assert all(verdict is not None for verdict in verdicts)
    return verdicts  # type: ignore[return-value]


async def _message_push_one(fetch: Fetch, group: PushGroup) -> list[PushVerdict]:
    # Ids as text: a number would be sent in the size it happens to have, and each combination
    # of sizes is another prepared statement.
    [[_, *verdict]] = await fetch(
        MESSAGE_PUSH_ONE,
        (
            str(group.partition_id),
            str(group.queue_id),
            str(group.version),
            group.frames,
            group.ends,
            group.transactions,
            None if group.flags is None else bytes(group.flags),
            group.first_id,
        ),
    )
    return [PushVerdict(*verdict)]


async def group_register(
    fetch: Fetch,
    queue_id: int,
    group: str,
    *,
    mode: str,
    since: datetime | None,
    conflation: bool,
    namespace: str | None = None,
    task: str | None = None,
    born: bool = False,
) -> bool | None:
    """The stored conflation policy; None when the queue is gone.

    A discovery gives its namespace and task, and whether the queue came after it began.
    """
    rows = await fetch(
        GROUP_REGISTER, (queue_id, group, mode, since, conflation, namespace, task, born)
    )
    return rows[0][1] if rows else None


async def partition_ready(
    fetch: Fetch,
    queue_ids: Sequence[int],
    group: str,
    *,
    partition_id: int | None,
    window_batch: int,
    limit: int,
) -> Readiness:
    rows = await fetch(
        PARTITION_READY, (array(queue_ids), group, partition_id, window_batch, limit)
    )
    ready = [ReadyPartition(row[0], row[1], row[2]) for row in rows if row[0] is not None]
    [(queues, due_at)] = [(row[2], row[3]) for row in rows if row[0] is None]
    return Readiness(ready, queues, due_at)


def are_few(jobs: Sequence[ClaimJob]) -> bool:
    """Whether they are looked at one by one: few jobs, of one lane each."""
    return len(jobs) <= FEW_JOBS and all(job.lanes == 1 and not job.by_sets for job in jobs)


def leaves_out(jobs: Sequence[ClaimJob], rows: Sequence[ClaimRow]) -> bool:
    """Whether a job without a row was not looked at as closely as it can be.

    Of few jobs some may be left out where others got messages, or where what was there is gone.
    """
    return are_few(jobs) and all(row.verdict == "took" for row in rows)


async def message_claim(
    fetch: Fetch, jobs: Sequence[ClaimJob], *, window_batch: int
) -> list[ClaimRow]:
    """Rows of the jobs, which are numbered from 1; see `leaves_out`."""
    few = are_few(jobs)
    # Of two jobs that ask for one partition in one call the first gets it: those with one
    # candidate come before those that hold it as a spare.
    ordered = sorted(enumerate(jobs, 1), key=lambda numbered: len(numbered[1].candidates))
    pairs = [(no, one) for no, job in ordered for one in job.candidates]
    lanes = () if few else (array(job.lanes for job in jobs),)
    rows = await fetch(
        MESSAGE_CLAIM_FEW if few else MESSAGE_CLAIM,
        (
            TextArray([job.group for job in jobs]),
            array(job.batch for job in jobs),
            *lanes,
            array(job.lease_id for job in jobs),
            array(job.lease_s for job in jobs),
            array(job.auto_ack for job in jobs),
            array(no for no, _ in pairs),
            array(one for _, one in pairs),
            window_batch,
        ),
    )
    return [ClaimRow(*row) for row in rows]


def ack_columns(acks: Sequence[AckItem]) -> tuple[Any, ...]:
    return (
        array(ack.partition_uid for ack in acks),
        TextArray([ack.group for ack in acks]),
        array(ack.lease_id for ack in acks),
        TextArray([ack.transaction for ack in acks]),
        array(ack.action for ack in acks),
        TextArray([ack.error or "" for ack in acks]),
    )


async def message_ack(fetch: Fetch, tenant: UUID | None, acks: Sequence[AckItem]) -> list[AckRow]:
    """One row an ack, in their order. A tenant is given when tenancy is on."""
    rows = await fetch(
        MESSAGE_ACK,
        (
            None if tenant is None else str(tenant),
            array(ack.request for ack in acks),
            *ack_columns(acks),
        ),
    )
    return sorted(AckRow(*row) for row in rows)


async def cursor_complete(fetch: Fetch, batches: Sequence[Batch]) -> set[int]:
    """The positions (from 0) of the batches that were completed."""
    rows = await fetch(
        CURSOR_COMPLETE,
        (
            array(batch.partition_id for batch in batches),
            TextArray([batch.group for batch in batches]),
            array(batch.lease_id for batch in batches),
            array(batch.end for batch in batches),
        ),
    )
    return {no - 1 for [no] in rows}


async def ready_probe(
    fetch: Fetch,
    rings: Sequence[tuple[int, str, datetime | None]],
    *,
    window_batch: int,
    limit: int,
) -> list[ProbeRow]:
    """Rings are (queue id, group, since); without a since every partition is looked at."""
    rows = await fetch(
        READY_PROBE,
        (
            array(queue_id for queue_id, _, _ in rings),
            TextArray([group for _, group, _ in rings]),
            array(None if since is None else f'"{since.isoformat()}"' for _, _, since in rings),
            window_batch,
            limit,
        ),
    )
    return [ProbeRow(*row) for row in rows]
