"""The head: the file that the drain is at, and the batch of it that is in its hands.

Imports directory, segment, records. Used by drain.py.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spool.records import Record
from spool.segment import Reader

CHUNK_RECORDS = 2000


class Batch(NamedTuple):
    """A contiguous range of a file's intact records; `start` is the index of the first."""

    start: int
    records: Sequence[Record]


class Chunk(NamedTuple):
    """What one visit of the thread brought: where its first record stands, and the records."""

    reader: Reader
    start: int
    records: Sequence[Record]


class Head:
    """Reads in a thread, a chunk ahead of what is being stored: each visit to the thread waits
    for the interpreter, and so does what is stored meanwhile.

    `failures`: permanent ones, of this file alone.
    """

    def __init__(self, path: Path, *, batch_max: int, batch_bytes_max: int) -> None:
        self.path = path
        self.name = path.name
        self.failures = 0
        self._batch_max = batch_max
        self._batch_bytes_max = batch_bytes_max
        self._reader: Reader | None = None
        self._batch = Batch(0, ())
        self._chunk = Batch(0, ())
        self._ahead: asyncio.Task[Chunk] | None = None

    async def batch(self) -> Batch | None:
        """The one in hand, or the next; None at the end of the file. Raises OSError."""
        if not self._batch.records:
            if not self._chunk.records:
                await self._next_chunk()
            start, records = self._chunk
            self._batch = Batch(start, records[: self._batch_max])
            count = len(self._batch.records)
            self._chunk = Batch(start + count, records[count:])
        return self._batch if self._batch.records else None

    async def _next_chunk(self) -> None:
        ahead, self._ahead = self._ahead, None
        reader, start, records = await (ahead or asyncio.to_thread(self._read, self._reader))
        self._reader, self._chunk = reader, Batch(start, records)
        if records:
            self._ahead = asyncio.create_task(asyncio.to_thread(self._read, reader))
            # It may never be asked for: then its error is nobody's.
            self._ahead.add_done_callback(lambda task: task.cancelled() or task.exception())

    def advance(self, count: int) -> None:
        """The first `count` records of the batch in hand are done with."""
        start, records = self._batch
        self._batch = Batch(start + count, records[count:])

    def rewind(self) -> None:
        """Read from the file's start again."""
        self._reader = self._ahead = None
        self._batch = self._chunk = Batch(0, ())

    def events(self) -> int:
        """Its intact records; known at the end."""
        return self._reader.index if self._reader else 0

    def damage(self) -> tuple[int, list[tuple[int, int]]]:
        """At the end: how many pieces were no record, and where they lie.

        In a finished file a torn tail is damage too: what was in it had been written.
        """
        reader = self._reader
        if reader is None:
            return 0, []
        if reader.torn is None:
            return reader.damaged, reader.ranges
        torn = (reader.torn, reader.size)
        if reader.ranges and reader.ranges[-1][1] == reader.torn:
            return reader.damaged + 1, [*reader.ranges[:-1], (reader.ranges[-1][0], reader.size)]
        return reader.damaged + 1, [*reader.ranges, torn]

    def _read(self, reader: Reader | None) -> Chunk:
        reader = reader or Reader(self.path)
        start = reader.index
        records = reader.read(max(self._batch_max, CHUNK_RECORDS), self._batch_bytes_max)
        return Chunk(reader, start, records)
