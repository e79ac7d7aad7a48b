"""Disks that fill, run out of inodes, turn read-only, and get well again.

Method: a small tmpfs of the test's own, mounted in a mount namespace that a child process
holds open and reached through /proc/<pid>/root: it needs no root (a user namespace does),
and is gone with the child, whatever happens to the test.
"""

import asyncio
import errno
import itertools
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from spool.directory import SpoolDirectory
from spool.errors import (
    ReplayPermanent,
    ReplayTransient,
    SpoolFull,
    SpoolUnusable,
    SpoolWriteFailed,
)
from spool.records import Record, encode_many
from spool.writer import SpoolWriter
from tests.spool_parts import Bench, numbers, opened, read_all, record, records, within

PROJECT = Path(__file__).resolve().parent.parent.parent
OPEN_AS_NOBODY = """
import os, sys
from pathlib import Path
from spool.directory import SpoolDirectory
from spool.errors import SpoolUnusable
if os.geteuid() == 0:
    os.setuid(65534)
try:
    SpoolDirectory.open(Path(sys.argv[1]))
except SpoolUnusable as error:
    print(error)
"""
KIB = b'"' + b"x" * 1022 + b'"'


class Disk:
    """A tmpfs; `path` is its root as seen from here."""

    def __init__(self, mount_point: Path, options: str) -> None:
        mount_point.mkdir()
        unshare = ["unshare", "--mount"] + (["--map-root-user"] if os.geteuid() else [])
        self._holder = subprocess.Popen(
            [*unshare, "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._mount_point = mount_point
        self.run(f"mount -t tmpfs -o {options} tmpfs {mount_point}")
        self.path = Path(f"/proc/{self._holder.pid}/root{mount_point}")

    def run(self, command: str) -> None:
        assert self._holder.stdin is not None and self._holder.stdout is not None
        self._holder.stdin.write(f"{command} 2>&1 && echo ok\n")
        self._holder.stdin.flush()
        answer = self._holder.stdout.readline()
        assert answer == "ok\n", answer

    def remount(self, options: str) -> None:
        self.run(f"mount -o remount,{options} {self._mount_point}")

    def gone(self) -> None:
        self._holder.kill()
        self._holder.communicate(timeout=10)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Disk]]:
    """A factory of disks; the argument is tmpfs options."""
    disks: list[Disk] = []

    def make(options: str) -> Disk:
        disks.append(Disk(tmp_path / f"disk{len(disks)}", options))
        return disks[-1]

    yield make
    for disk in disks:
        disk.gone()


def on_disk(path: Path) -> list[Record]:
    """In the order of the files, and nothing in them but records."""
    found = []
    for file in sorted(path.glob("*.buf")) + sorted(path.glob("*.tmp")):
        some, reader = read_all(file)
        assert (reader.damaged, reader.torn) == (0, None), file
        found += some
    return found


def write_for_ever(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 1000)


def touch_for_ever(path: Path) -> None:
    for number in itertools.count():
        (path / f"taken{number}").touch()


async def fill(writer: SpoolWriter, number: int = 0, size: int = 1) -> tuple[list[int], int]:
    """Append until it is refused: (numbers that were accepted, the one that was not)."""
    accepted = []
    for one in range(number, number + 10_000):
        try:
            await within(writer.append([record(one, payload=KIB * size)]))
        except SpoolWriteFailed as refused:
            if not isinstance(refused.__cause__, OSError):
                raise
            if refused.__cause__.errno != errno.ENOSPC:
                raise
            return accepted, one
        accepted.append(one)
    raise AssertionError("the disk does not get full")


@pytest.fixture
async def disk(small_disk: Callable[[str], Disk]) -> Disk:
    return await asyncio.to_thread(small_disk, "size=1m")


async def test_a_full_disk_refuses_and_takes_again_as_soon_as_there_is_room(disk: Disk):
    path = disk.path / "spool"
    with opened(path) as directory:
        ballast = disk.path / "ballast"
        ballast.write_bytes(b"x" * 300_000)
        writer = SpoolWriter(directory, events_per_file=100)
        accepted, refused = await fill(writer)
        assert on_disk(path) == [record(number, payload=KIB) for number in accepted]
        assert writer.write_failures == 1
        for number in range(refused + 1, refused + 5):
            with pytest.raises(SpoolWriteFailed):
                await within(writer.append([record(number, payload=KIB * 5)]))
        ballast.unlink()
        after = list(range(refused + 5, refused + 100))
        for number in after:
            await within(writer.append([record(number, payload=KIB)]))
        await within(writer.close())
        assert numbers(on_disk(path)) == accepted + after


async def test_a_record_that_does_not_fit_leaves_no_byte_behind(disk: Disk):
    path = disk.path / "spool"
    with opened(path) as directory:
        writer = SpoolWriter(directory)
        await within(writer.append(records(3)))
        [unfinished] = path.glob("*.tmp")
        size = unfinished.stat().st_size
        with pytest.raises(SpoolWriteFailed):
            await within(writer.append([record(3, payload=b'"%b"' % (b"x" * (2 << 20)))]))
        assert unfinished.stat().st_size == size == len(encode_many(records(3)))
        await within(writer.append(records(3, start=4)))
        assert numbers(on_disk(path)) == [0, 1, 2, 4, 5, 6]
        await within(writer.close())


async def test_a_big_append_does_not_take_the_small_ones_with_it(disk: Disk):
    path = disk.path / "spool"
    with opened(path) as directory:
        writer = SpoolWriter(directory)
        big = [record(1000 + n, payload=KIB * 100) for n in range(20)]
        appends = [writer.append([record(n)] if n != 10 else big) for n in range(20)]
        answers = await within(asyncio.gather(*appends, return_exceptions=True))
        assert [n for n, answer in enumerate(answers) if answer is not None] == [10]
        assert numbers(on_disk(path)) == [n for n in range(20) if n != 10]
        await within(writer.close())


async def test_a_full_disk_is_drained_and_then_takes_again(disk: Disk):
    path = disk.path / "spool"
    with opened(path) as directory:
        writer = SpoolWriter(directory, events_per_file=50)
        bench = Bench(directory, writer=writer)
        accepted, refused = await fill(writer)

        def away(some: Sequence[Record]) -> None:
            raise ReplayTransient("connection refused")

        bench.store.before = away
        await bench.cycle()
        with pytest.raises(SpoolWriteFailed):
            await within(writer.append([record(refused, payload=KIB * 60)]))
        bench.store.before = lambda some: None
        await bench.cycles_until_empty()
        more, _ = await fill(writer, refused + 1)
        assert len(more) > len(accepted) // 2
        await bench.cycle()
        await bench.cycles_until_empty()
        assert bench.store.numbers == accepted + more
        await within(writer.close())


async def test_a_spool_opens_on_a_full_disk_and_makes_room(disk: Disk):
    path = disk.path / "spool"
    with opened(path) as directory:
        writer = SpoolWriter(directory, events_per_file=50)
        accepted, _ = await fill(writer)
        await within(writer.close())
    with pytest.raises(OSError, match="No space left"):
        write_for_ever(disk.path / "ballast")
    with opened(path) as directory:
        bench = Bench(directory)
        await bench.cycle()
        await bench.cycles_until_empty()
        assert bench.store.numbers == accepted


async def test_poison_on_a_full_disk_waits_and_holds_up_no_other_file(disk: Disk):
    path = disk.path / "spool"
    with opened(path) as directory:
        writer = SpoolWriter(directory, events_per_file=3)
        large = [record(n, payload=KIB * 100) for n in range(6)]
        for one in large:
            await within(writer.append([one]))
        await within(writer.finalise())
        ballast = disk.path / "ballast"
        ballast.write_bytes(b"x" * directory.free_bytes())
        bench = Bench(directory)

        def refuse(some: Sequence[Record]) -> None:
            if 1 in numbers(some):
                raise ReplayPermanent("no")

        bench.store.before = refuse
        for _ in range(5):
            cycle = await bench.cycle()
        assert "unmovable" in str(cycle.error)
        assert bench.store.numbers == [0, 3, 4, 5]
        ballast.unlink()
        bench.clock.seconds += 61
        await bench.cycles_until_empty()
        assert bench.store.numbers == [0, 3, 4, 5, 2]
        [kept] = directory.quarantine.names()
        assert numbers(read_all(path / "failed" / kept)[0]) == [1]
        await within(writer.close())


async def test_without_an_inode_the_file_at_hand_is_still_written(
    small_disk: Callable[[str], Disk],
):
    disk = await asyncio.to_thread(small_disk, "size=1m,nr_inodes=30")
    path = disk.path / "spool"
    with opened(path) as directory:
        writer = SpoolWriter(directory, events_per_file=2)
        await within(writer.append([record(0)]))
        with pytest.raises(OSError, match="No space left"):
            touch_for_ever(disk.path)
        await within(writer.append([record(1)]))
        for number in (2, 3):
            with pytest.raises(SpoolWriteFailed):
                await within(writer.append([record(number)]))
        for taken in await asyncio.to_thread(lambda: list(disk.path.glob("taken*"))):
            taken.unlink()
        for number in (4, 5, 6):
            await within(writer.append([record(number)]))
        assert numbers(on_disk(path)) == [0, 1, 4, 5, 6]
        await within(writer.close())


async def test_the_floor_keeps_the_disk_from_getting_full(disk: Disk):
    path = disk.path / "spool"
    with opened(path) as directory:
        writer = SpoolWriter(directory, min_free_bytes=300_000)
        appends = [writer.append([record(number, payload=KIB)]) for number in range(1000)]
        answers = await within(asyncio.gather(*appends, return_exceptions=True))
        assert {type(answer) for answer in answers} == {type(None), SpoolFull}
        assert answers.count(None) > 100
        assert numbers(on_disk(path)) == [n for n, answer in enumerate(answers) if answer is None]
        assert 300_000 - 8192 <= directory.free_bytes() <= 310_000
        await within(writer.close())


async def test_a_read_only_disk_stops_the_start_with_its_reason(disk: Disk):
    path = disk.path / "spool"
    with opened(path):
        pass
    await asyncio.to_thread(disk.remount, "ro")
    with pytest.raises(SpoolUnusable, match="Read-only file system"):
        SpoolDirectory.open(path)
    with pytest.raises(SpoolUnusable, match="Read-only file system"):
        SpoolDirectory.open(disk.path / "other")
    await asyncio.to_thread(disk.remount, "rw")
    with opened(path):
        pass


def test_a_directory_of_somebody_else_stops_the_start_with_its_reason(tmp_path: Path):
    """Root may write everywhere, so it becomes nobody before the attempt."""
    path = tmp_path / "spool"
    path.mkdir()
    path.chmod(0o500)
    for one in (tmp_path, *list(tmp_path.parents)[:2]):
        one.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", OPEN_AS_NOBODY, str(path)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "cannot be used" in done.stdout and "Permission denied" in done.stdout, done


async def test_a_disk_that_turns_read_only_refuses_until_it_is_writable(disk: Disk):
    """An open file holds off a remount, as it does a real one; so the file comes after it."""
    path = disk.path / "spool"
    with opened(path) as directory:
        writer = SpoolWriter(directory)
        await within(writer.append([record(0)]))
        await within(writer.finalise())
        directory.close()  # its lock file too is open for writing
        await asyncio.to_thread(disk.remount, "ro")
        for number in (1, 2):
            with pytest.raises(SpoolWriteFailed, match="Read-only"):
                await within(writer.append([record(number)]))
        await asyncio.to_thread(disk.remount, "rw")
        await within(writer.append([record(3)]))
        assert numbers(on_disk(path)) == [0, 3]
        await within(writer.close())


async def test_a_limit_on_the_size_of_files_only_begins_new_ones(tmp_path: Path):
    path = tmp_path / "spool"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(path) as directory:
        writer = SpoolWriter(directory)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
            accepted = []
            for number in range(200):
                try:
                    await within(writer.append([record(number, payload=KIB)]))
                    accepted.append(number)
                except SpoolWriteFailed:
                    pass
            with pytest.raises(SpoolWriteFailed, match="too large"):
                await within(writer.append([record(999, payload=KIB * 100)]))
            await within(writer.append([record(200)]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        await within(writer.close())
        assert numbers(on_disk(path)) == [*accepted, 200]
        assert len(accepted) > 190
