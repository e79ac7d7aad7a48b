"""What the tests of the spool share: records, whole directories of them, and a store.

The store is one that the drain cannot tell from the real one: a batch and its mark are
kept together or not at all. It deduplicates nothing, so a record that is replayed twice
is seen twice.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from spool.directory import SpoolDirectory
from spool.drain import Drain, DrainConfig, DrainCycle
from spool.errors import MarkMoved
from spool.records import Record, encode_many
from spool.segment import Reader

TIMEOUT_S = 30.0
EPOCH_US = 1_790_000_000_000_000


def message(number: int, payload: bytes = b'{"a":1}') -> bytes:
    return (
        b'"id":"01890000-0000-7000-8000-%012x","transactionId":"t-%d","traceId":null,'
        b'"producerSub":null,"data":%b' % (number, number, payload)
    )


def record(number: int, *, payload: bytes = b'{"a":1}', **fields: Any) -> Record:
    named = {"queue": "orders", "partition": f"p{number % 3}", "accepted_us": EPOCH_US + number}
    return Record(**{**named, **fields}, message=message(number, payload))


def records(count: int, start: int = 0) -> list[Record]:
    return [record(number) for number in range(start, start + count)]


def number_of(one: Record) -> int:
    return int(one.message_id[-12:], 16)


def numbers(some: Sequence[Record]) -> list[int]:
    return [number_of(one) for one in some]


def read_all(path: Path, batch_max: int = 100) -> tuple[list[Record], Reader]:
    reader = Reader(path)
    found: list[Record] = []
    while batch := reader.read(batch_max, 1 << 20):
        found += batch
    return found, reader


def lay(path: Path, *files: Sequence[Record] | bytes, start_ms: int = 1_700_000_000_000) -> None:
    """Finished files, in this order, as another process has left them."""
    path.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(files):
        data = content if isinstance(content, bytes) else encode_many(content)
        (path / f"{start_ms + number:013d}-00000000.buf").write_bytes(data)


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[SpoolDirectory]:
    directory = SpoolDirectory.open(path, **options)
    try:
        yield directory
    finally:
        directory.close()


class Store:
    """`log` is what was committed; the hooks may raise, before the commit or after it."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.rows: dict[str, int] = {}
        self.calls: list[tuple[str, str, int, int]] = []
        self.oldest_us: list[int] = []
        self.before: Callable[[Sequence[Record]], None] = lambda records: None
        self.after: Callable[[Sequence[Record]], None] = lambda records: None
        self.on_marks: Callable[[], None] = lambda: None
        self.on_pass_over: Callable[[], None] = lambda: None
        self.on_forget: Callable[[], None] = lambda: None

    async def marks(self, spool_id: UUID) -> dict[str, int]:
        self.calls.append(("marks", "", 0, 0))
        self.on_marks()
        return dict(self.rows)

    async def replay(
        self, spool_id: UUID, file: str, start: int, records: Sequence[Record], *, oldest_us: int
    ) -> None:
        await asyncio.sleep(0)
        self.calls.append(("replay", file, start, len(records)))
        self.oldest_us.append(oldest_us)
        assert records
        self.before(records)
        self._move(file, start, len(records))
        self.log += records
        self.after(records)

    async def pass_over(self, spool_id: UUID, file: str, start: int, count: int) -> None:
        self.calls.append(("pass_over", file, start, count))
        self.on_pass_over()
        self._move(file, start, count)

    async def forget(self, spool_id: UUID, files: Sequence[str]) -> None:
        self.calls.append(("forget", ",".join(files), 0, len(files)))
        self.on_forget()
        for file in files:
            self.rows.pop(file, None)

    def _move(self, file: str, start: int, count: int) -> None:
        if self.rows.get(file, 0) != start:
            raise MarkMoved(f"the mark is at {self.rows.get(file, 0)}, not {start}")
        self.rows[file] = start + count

    @property
    def numbers(self) -> list[int]:
        return numbers(self.log)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Bench:
    """A drain on a directory, with everything that it touches at hand."""

    def __init__(self, directory: SpoolDirectory, **options: Any) -> None:
        config = {
            field: options.pop(field)
            for field in ("max_batch", "batch_bytes_max", "delete_unmovable", "flush_ms")
            if field in options
        }
        self.directory = directory
        self.store = options.pop("store", None) or Store()
        self.clock = Clock()
        self.settled: list[Record] = []
        self.moved: list[str] = []
        self.pause = False
        self.drain = Drain(
            directory,
            **{
                "writer": None,
                "store": self.store,
                "config": DrainConfig(**config),
                "settled": self.settled.extend,
                "paused": lambda: self.pause,
                "moved": self.moved.append,
                "now": self.clock,
                **options,
            },
        )

    async def cycle(self) -> DrainCycle:
        return await within(self.drain.cycle())

    async def cycles_until_empty(self, most: int = 200) -> int:
        for number in itertools.count(1):
            await self.cycle()
            if not self.directory.finished():
                return number
            assert number < most, "the drain does not come to an end"
        raise AssertionError


async def within(work: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(work, TIMEOUT_S)
