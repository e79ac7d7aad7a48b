"""A spool file's records as a drain hands them to the store, and what is left to see of it.

Used by the tests of the spool's procedures.
"""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from brokers import frames
from brokers.store import spool_calls
from brokers.store.spool_calls import Mark, ReplayItem
from tests.store.calling import Lane, call, minter

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US


def ago_us(microseconds: int = 0) -> int:
    return time.time_ns() // 1000 - microseconds


def record(
    lane: Lane,
    payload: bytes = b'{"n":1}',
    *,
    txn: str | None = None,
    message_id: str | None = None,
    accepted_us: int | None = None,
    **options: bool,
) -> ReplayItem:
    message_id = message_id or minter.mint_many(1)[0]
    frame = frames.frame(message_id, frames.literal(txn or message_id), None, None, payload)
    return ReplayItem(
        lane.row,
        frame[7:43].decode(),
        frame,
        ago_us() if accepted_us is None else accepted_us,
        **options,
    )


@dataclass
class Spool:
    """One file of a spool, replayed over `db`."""

    db: psycopg.Connection[Any]
    id: UUID = field(default_factory=uuid.uuid4)
    file: str = "0000000000001-00000001.buf"

    def mark(self, start: int = 0) -> Mark:
        return Mark(self.id, self.file, start, "server-1")

    def replay(
        self,
        *items: ReplayItem,
        start: int = 0,
        oldest_us: int | None = None,
        wait_ms: int = 5000,
        connection: Any = None,
    ) -> list[bool]:
        return call(
            connection or self.db,
            spool_calls.replay,
            self.mark(start),
            items,
            oldest_us=min(one.accepted_us for one in items) if oldest_us is None else oldest_us,
            wait_ms=wait_ms,
        )

    def pass_over(self, count: int, *, start: int = 0, oldest_us: int | None = None) -> None:
        call(
            self.db,
            spool_calls.pass_over,
            self.mark(start),
            count,
            wait_ms=5000,
            oldest_us=oldest_us,
        )

    def marks(self) -> dict[str, int]:
        return call(self.db, spool_calls.marks, self.id)

    def forget(self, *files: str) -> int:
        return call(self.db, spool_calls.forget, self.id, files)


def payloads(lane: Lane) -> list[bytes]:
    """What lies in the partition, in its order; each segment is as its index says."""
    found = []
    rows = lane.db.execute(
        "SELECT base_offset, end_offset, frames, ends FROM queen_segment"
        " WHERE partition_id = %s ORDER BY base_offset",
        [lane.id],
    ).fetchall()
    for base, end, joined, ends in rows:
        all_frames = bytes(joined).split(frames.SEPARATOR)
        assert len(all_frames) == end - base + 1
        assert frames.join(all_frames)[1] == bytes(ends)
        found += [one.split(frames.DATA, 1)[1] for one in all_frames]
    return found
