"""kill -9 at random moments: what was acknowledged is there, and nothing is replayed twice.

Method: real child processes (this file, run as a program). A writing one prints what append()
has returned for; a draining one replays into SQLite, where batch and mark commit together as
in the real store. The parent kills them wherever they happen to be, and looks at the disk.
`python -m tests.faults.test_spool_crash 200` runs as many rounds of each, and says what it saw.
"""

import asyncio
import logging
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from spool.directory import SpoolDirectory
from spool.drain import Drain, DrainConfig
from spool.errors import MarkMoved, ReplayPermanent
from spool.records import Record
from spool.writer import SpoolWriter
from tests.spool_parts import lay, number_of, numbers, opened, read_all, record

PROJECT = Path(__file__).resolve().parent.parent.parent
ROUNDS = 8
SEED = 20_260_730
WRITERS = 8
DRAINED_FILES = 20
FILE_RECORDS = 150
POISON = frozenset({7, 151, 152, 1000, 2999})


# The children.


async def write_until_killed(path: Path, start: int) -> None:
    """Several appenders, each a partition of its own whose numbers rise."""
    directory = SpoolDirectory.open(path)
    writer = SpoolWriter(directory, events_per_file=50, file_bytes_max=100_000)
    print("ready", flush=True)

    async def appender(number: int) -> None:
        chance = random.Random(os.urandom(8))
        at = start + number
        while True:
            count = chance.randrange(1, 8)
            some = [
                record(
                    at + WRITERS * n,
                    partition=f"w{number}",
                    payload=b'"%b"' % (b"x" * chance.choice([0, 10, 3000])),
                )
                for n in range(count)
            ]
            await writer.append(some)
            os.write(1, "".join(f"{number_of(one)}\n" for one in some).encode())
            at += WRITERS * count

    async def finaliser() -> None:
        while True:
            await asyncio.sleep(0.01)
            await writer.finalise()

    await asyncio.gather(finaliser(), *(appender(number) for number in range(WRITERS)))


class SqliteStore:
    """Commits a batch and its mark together. Poison is refused, as by a constraint."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA busy_timeout = 10000")
        self.db.execute("CREATE TABLE IF NOT EXISTS log (place INTEGER PRIMARY KEY, number INT)")
        self.db.execute("CREATE TABLE IF NOT EXISTS mark (file TEXT PRIMARY KEY, done INT)")

    async def marks(self, spool_id: UUID) -> dict[str, int]:
        return dict(self.db.execute("SELECT file, done FROM mark").fetchall())

    async def replay(
        self, spool_id: UUID, file: str, start: int, records: Sequence[Record], *, oldest_us: int
    ) -> None:
        if set(numbers(records)) & POISON:
            raise ReplayPermanent("poison")
        self._move(file, start, len(records), numbers(records))
        await asyncio.sleep(0)

    async def pass_over(self, spool_id: UUID, file: str, start: int, count: int) -> None:
        self._move(file, start, count, [])

    async def forget(self, spool_id: UUID, files: Sequence[str]) -> None:
        self.db.executemany("DELETE FROM mark WHERE file = ?", [(file,) for file in files])

    def _move(self, file: str, start: int, count: int, stored: list[int]) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        row = self.db.execute("SELECT done FROM mark WHERE file = ?", (file,)).fetchone()
        if (row[0] if row else 0) != start:
            self.db.execute("ROLLBACK")
            raise MarkMoved("elsewhere")
        self.db.executemany("INSERT INTO log (number) VALUES (?)", [(one,) for one in stored])
        self.db.execute("INSERT OR REPLACE INTO mark VALUES (?, ?)", (file, start + count))
        self.db.execute("COMMIT")


async def drain_until_empty(path: Path, database: Path) -> None:
    directory = SpoolDirectory.open(path)
    drain = Drain(
        directory,
        writer=None,
        store=SqliteStore(database),
        config=DrainConfig(max_batch=10),
        settled=lambda some: None,
    )
    print("ready", flush=True)
    while directory.finished():
        await drain.cycle()
    await drain.cycle()


# The parent.


def start(*arguments: object) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.test_spool_crash", *map(str, arguments)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def kill_after(child: subprocess.Popen[bytes], seconds: float) -> list[bytes]:
    """Its whole lines; whether it came to its end before is all the same."""
    time.sleep(seconds)  # the moment of death is meant to be a matter of luck
    child.kill()
    output, _ = child.communicate(timeout=30)
    return [line for line in output.splitlines(keepends=True) if line.endswith(b"\n")]


def writing_round(path: Path, chance: random.Random, start_number: int) -> tuple[list[int], int]:
    """Kill a writer; returns what it acknowledged, and the files that it left unfinished."""
    child = start("write", path, start_number)
    try:
        lines = kill_after(child, chance.uniform(0, 0.3))
    finally:
        child.kill()
    return [int(line) for line in lines], len(list(path.glob("*.tmp")))


def everything_in(path: Path) -> list[Record]:
    found = []
    with opened(path) as directory:
        for name in directory.finished():
            some, reader = read_all(path / name)
            assert (reader.damaged, reader.torn) == (0, None), name
            found += some
        assert directory.stats().failed_files == 0
    return found


def check_writing(path: Path, acknowledged: list[int]) -> None:
    found = everything_in(path)
    there = numbers(found)
    assert len(there) == len(set(there)), "doubled"
    assert set(acknowledged) <= set(there), "lost"
    partitions: dict[str, list[int]] = {}
    for one in found:
        partitions.setdefault(one.partition, []).append(number_of(one))
    for name, order in partitions.items():
        assert order == sorted(order), f"out of order: {name}"


def draining_round(directory: Path, chance: random.Random, kills_max: int) -> int:
    """Kill a drain until one comes to its end; returns how many kills that took."""
    path, database = directory / "spool", directory / "log.sqlite"
    total = DRAINED_FILES * FILE_RECORDS
    files = [
        [record(n) for n in range(first, first + FILE_RECORDS)]
        for first in range(0, total, FILE_RECORDS)
    ]
    lay(path, *files)
    kills = 0
    while True:
        child = start("drain", path, database)
        try:
            if kills < kills_max:
                kill_after(child, chance.uniform(0, 0.15))
            else:
                child.communicate(timeout=60)
        finally:
            child.kill()
        if child.returncode == 0:
            break
        kills += 1
    store = SqliteStore(database)
    log = [number for (number,) in store.db.execute("SELECT number FROM log ORDER BY place")]
    assert log == [number for number in range(total) if number not in POISON]
    assert store.db.execute("SELECT * FROM mark").fetchall() == []
    store.db.close()
    with opened(path) as opened_again:
        assert opened_again.finished() == []
        kept = [
            number
            for name in opened_again.quarantine.names()
            for number in numbers(read_all(path / "failed" / name)[0])
        ]
        assert kept == sorted(POISON)
    return kills


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_killed_writer(tmp_path: Path):
    chance = random.Random(SEED)
    acknowledged: list[int] = []
    for number in range(ROUNDS):
        some, _ = writing_round(tmp_path / "spool", chance, number * 10_000_000)
        acknowledged += some
        check_writing(tmp_path / "spool", acknowledged)
    assert acknowledged


@pytest.mark.slow
def test_a_killed_drain_replays_nothing_twice_and_loses_nothing(tmp_path: Path):
    assert draining_round(tmp_path, random.Random(SEED), 6) > 0


def many_rounds(rounds: int) -> None:
    chance = random.Random()
    acknowledged = unfinished = kills = 0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            some, left = writing_round(Path(name) / "spool", chance, 0)
            check_writing(Path(name) / "spool", some)
        acknowledged, unfinished = acknowledged + len(some), unfinished + left
    print(f"{rounds} writers killed: of {acknowledged} acknowledged records none is lost,")
    print(f"{unfinished} files were left unfinished", flush=True)
    while kills < rounds:
        with tempfile.TemporaryDirectory() as name:
            kills += draining_round(Path(name), chance, 25)
    print(f"{kills} drains killed: nothing lost, nothing doubled")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if sys.argv[1] == "write":
        asyncio.run(write_until_killed(Path(sys.argv[2]), int(sys.argv[3])))
    elif sys.argv[1] == "drain":
        asyncio.run(drain_until_empty(Path(sys.argv[2]), Path(sys.argv[3])))
    else:
        many_rounds(int(sys.argv[1]))
