"""The procedures of the spool's marks and its replay as typed coroutines, like those in calls.py.

A mark says how many records of a spool file are dealt with. It moves in the transaction that
stores them, so a lost answer is settled by reading it again.

What pool.py raises comes through. Two of its SQLSTATEs are news and not failures: STALE (load
the ids anew, repeat) and MARK_MOVED (read the marks anew, go on from there). Nothing was
written then.

Imports frames, arrays, calls. Used by services/spool.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from brokers import frames
from brokers.store.arrays import TextArray
from brokers.store.calls import Fetch, PartitionRow, PushGroup, array, push_parameters

STALE = "QN001"
MARK_MOVED = "QN020"

SPOOL_MARKS = "SELECT file, done FROM queen_spool_marks_v1(%s::uuid)"
SPOOL_REPLAY = """
SELECT group_no, duplicate_positions
  FROM queen_spool_replay_v1(
       %s::uuid, %s::text, %s::bigint, %s::text, %s::bigint,
       %s::uuid[], %s::bigint[], %s::boolean[],
       %s::bigint[], %s::bigint[], %s::bigint[], %b::bytea[], %b::bytea[], %b::text[],
       %b::bytea[], %s::uuid[], %s::uuid[], %s::integer)
"""
SPOOL_PASS = """
SELECT queen_spool_pass_v1(
       %s::uuid, %s::text, %s::bigint, %s::bigint, %s::text, %s::bigint, %s::integer)
"""
QUEUE_ENCRYPTED = "SELECT name FROM queen_queue_encrypted_v1(%s::uuid, %b::text[])"
SPOOL_FORGET = "SELECT queen_spool_forget_v1(%s::uuid, %b::text[])"


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a drain stands: `start` records of the file are dealt with. `server_id` drains it."""

    spool_id: UUID
    file: str
    start: int
    server_id: str


class ReplayItem(NamedTuple):
    """One record with the partition it goes to, and its frame (see brokers/frames.py)."""

    place: PartitionRow
    message_id: str
    frame: bytes
    accepted_us: int
    encrypted: bool = False
    unclear: bool = False


async def queue_encrypted(fetch: Fetch, tenant: UUID, names: Sequence[str]) -> list[str]:
    """Those of the queues that encrypt."""
    rows = await fetch(QUEUE_ENCRYPTED, (str(tenant), TextArray(names)))
    return [name for (name,) in rows]


async def marks(fetch: Fetch, spool_id: UUID) -> dict[str, int]:
    """Records dealt with, by file; a file that is not named has none."""
    return dict(await fetch(SPOOL_MARKS, (str(spool_id),)))


async def replay(
    fetch: Fetch, mark: Mark, items: Sequence[ReplayItem], *, oldest_us: int, wait_ms: int
) -> list[bool]:
    """Store the records behind the mark and move it past them, or do nothing and raise.

    One truth value a record: whether it was written (else it was a duplicate). `oldest_us`
    is when the oldest record that the spool still holds was accepted. Other holders of a
    partition are waited for, `wait_ms` for each; then it is 55P03.
    """
    groups = cut(items)
    in_order = [items[position] for positions in groups for position in positions]
    unclear = array(item.unclear for item in in_order)
    rows = await fetch(
        SPOOL_REPLAY,
        (
            str(mark.spool_id),
            mark.file,
            mark.start,
            mark.server_id,
            oldest_us,
            array(item.message_id for item in in_order),
            array(item.accepted_us for item in in_order),
            unclear,
            *push_parameters([_group(items, positions) for positions in groups], wait_ms),
        ),
    )
    written = [True] * len(items)
    for no, duplicates in rows:
        for position in duplicates:
            written[groups[no - 1][position]] = False
    return written


async def pass_over(
    fetch: Fetch, mark: Mark, count: int, *, wait_ms: int, oldest_us: int | None = None
) -> None:
    """Move the mark past records that are dealt with otherwise.

    By none, with `oldest_us`, it only says that the spool is alive and still needs the
    transaction rows of that time; good for five minutes.
    """
    await fetch(
        SPOOL_PASS,
        (str(mark.spool_id), mark.file, mark.start, count, mark.server_id, oldest_us, wait_ms),
    )


async def forget(fetch: Fetch, spool_id: UUID, files: Sequence[str]) -> int:
    """Drop the marks of files that are unlinked for good; how many there were."""
    [[count]] = await fetch(SPOOL_FORGET, (str(spool_id), list(files)))
    return count


def cut(items: Sequence[ReplayItem]) -> list[list[int]]:
    """Positions of the items by group. A partition's next group begins where its ids fall.

    Within a partition the order is that of the items; so groups are in order of their first.
    """
    groups: list[list[int]] = []
    open_groups: dict[int, list[int]] = {}
    for position, item in enumerate(items):
        group = open_groups.get(item.place.id)
        if group is None or item.message_id <= items[group[-1]].message_id:
            group = open_groups[item.place.id] = []
            groups.append(group)
        group.append(position)
    return groups


def _group(items: Sequence[ReplayItem], positions: Sequence[int]) -> PushGroup:
    chosen = [items[position] for position in positions]
    joined, ends = frames.join([item.frame for item in chosen])
    literals = [frames.transaction_of(item.frame) for item in chosen]
    flags: Any = None
    if any(item.encrypted for item in chosen):
        flags = bytes(frames.FLAG_ENCRYPTED if item.encrypted else 0 for item in chosen)
    place = chosen[0].place
    return PushGroup(
        partition_id=place.id,
        queue_id=place.queue_id,
        version=place.version,
        frames=joined,
        ends=ends,
        transactions=frames.SEPARATOR.join(literals).decode(),
        flags=flags,
        first_id=chosen[0].message_id,
        last_id=chosen[-1].message_id,
    )
