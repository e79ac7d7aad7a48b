"""The writer: what append() has returned for is on the disk, and in order.

Method: real files. fsync and write are the system's own, watched through a wrapper, or
refused by one where no disk fails on demand (a broken medium); the full disks are in
tests/faults.
"""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from spool.directory import SpoolDirectory
from spool.errors import SpoolClosed, SpoolFull, SpoolWriteFailed
from spool.records import Record, encode, encode_many
from spool.writer import SpoolWriter
from tests.spool_parts import numbers, opened, read_all, record, records, within

RECORD_BYTES = len(encode(record(0)))


@asynccontextmanager
async def writing(path: Path, **options: Any) -> AsyncIterator[tuple[SpoolWriter, SpoolDirectory]]:
    with opened(path) as directory:
        writer = SpoolWriter(directory, **options)
        try:
            yield writer, directory
        finally:
            await within(writer.close())


def on_disk(path: Path) -> list[Record]:
    """Every record in the order of the files, the unfinished one last."""
    found = []
    for file in sorted(path.glob("*.buf")) + sorted(path.glob("*.tmp")):
        some, reader = read_all(file)
        assert (reader.damaged, reader.torn) == (0, None), file
        found += some
    return found


class Gate:
    """Stands in for a call of the system's; the writer's thread waits in it until let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.real: Callable[..., Any] = getattr(os, name)
        self.entered = threading.Event()
        self.open = threading.Event()
        self.calls = 0
        self.errors: list[int] = []
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args: Any) -> Any:
        if threading.current_thread().name != "spool-writer":
            return self.real(*args)
        self.calls += 1
        self.entered.set()
        assert self.open.wait(10)
        if self.errors and (number := self.errors.pop(0)):
            raise OSError(number, os.strerror(number))
        return self.real(*args)

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 10)


async def test_an_append_returns_only_after_its_file_and_directory_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[tuple[str, int]] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        real(fd)
        synced.append((Path(path).name, os.fstat(fd).st_size))

    async with writing(tmp_path / "spool") as (writer, _):
        monkeypatch.setattr(os, "fsync", fsync)
        await within(writer.append(records(3)))
        [unfinished] = (tmp_path / "spool").glob("*.tmp")
        assert [name for name, _ in synced] == ["last-name.new", "spool", unfinished.name]
        assert synced[-1][1] == len(encode_many(records(3)))
        synced.clear()
        await within(writer.append(records(1)))
        assert synced == [(unfinished.name, len(encode_many(records(3))) + RECORD_BYTES)]
        assert writer.fsyncs == 2


async def test_an_append_waits_for_the_fsync_and_the_next_ones_share_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool") as (writer, _):
        await within(writer.append([record(0)]))
        gate = Gate(monkeypatch, "fsync")
        first = asyncio.create_task(writer.append([record(1)]))
        await gate.wait()
        others = [asyncio.create_task(writer.append([record(n)])) for n in range(2, 50)]
        await asyncio.sleep(0)
        assert not first.done()
        gate.open.set()
        await within(asyncio.gather(first, *others))
        assert gate.calls == 2
        assert numbers(on_disk(tmp_path / "spool")) == list(range(50))


async def test_without_fsync_nothing_is_synced_but_what_keeps_names_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool", fsync=False) as (writer, _):
        await within(writer.append([record(0)]))
        gate = Gate(monkeypatch, "fsync")
        await within(writer.append([record(1)]))
        assert gate.calls == writer.fsyncs == 0
        gate.open.set()


async def test_appends_lie_in_the_order_in_which_they_were_asked_for(tmp_path: Path):
    async with writing(tmp_path / "spool", events_per_file=7) as (writer, directory):
        tasks = [asyncio.create_task(writer.append(records(3, start=3 * n))) for n in range(40)]
        await within(asyncio.gather(*tasks))
        await within(writer.finalise())
        assert numbers(on_disk(tmp_path / "spool")) == list(range(120))
        assert (writer.records, writer.bytes) == (120, directory.stats().bytes)


async def test_a_file_is_finished_when_it_is_full(tmp_path: Path):
    async with writing(tmp_path / "spool", events_per_file=10) as (writer, directory):
        for number in range(25):
            await within(writer.append([record(number)]))
        assert [directory.stats().files, writer.current_events] == [2, 5]
        sizes = [len(read_all(tmp_path / "spool" / name)[0]) for name in directory.finished()]
        assert sizes == [10, 10]
        await within(writer.append(records(8)))
        assert writer.current_events == 8, "an append is never divided"
        await within(writer.append(records(30)))
        assert writer.current_events == 30, "not even one larger than a file"
        assert directory.stats().events == 63


async def test_a_file_is_finished_when_its_bytes_are_full(tmp_path: Path):
    limit = 10 * RECORD_BYTES
    async with writing(tmp_path / "spool", file_bytes_max=limit) as (writer, directory):
        for number in range(25):
            await within(writer.append([record(0, accepted_us=record(number).accepted_us)]))
        assert [directory.stats().files, writer.current_events] == [2, 5]
        stats = directory.stats()
        assert (stats.bytes, stats.total_bytes) == (2 * limit, 2 * limit + 5 * RECORD_BYTES)


async def test_finalise_hands_over_what_there_is(tmp_path: Path):
    async with writing(tmp_path / "spool") as (writer, directory):
        assert await within(writer.finalise()) is None
        await within(writer.append([record(1)]))
        assert directory.finished() == []
        name = await within(writer.finalise())
        assert directory.finished() == [name]
        assert await within(writer.finalise()) is None
        assert writer.current_events == 0
        await within(writer.append([]))
        assert await within(writer.finalise()) is None


async def test_closing_finishes_the_file_and_refuses_what_comes_later(tmp_path: Path):
    async with writing(tmp_path / "spool") as (writer, directory):
        last = asyncio.create_task(writer.append([record(1)]))
        await asyncio.sleep(0)
        await within(writer.close())
        await within(last)
        assert len(directory.finished()) == 1
        with pytest.raises(SpoolClosed):
            await writer.append([record(2)])
        with pytest.raises(SpoolClosed):
            await writer.finalise()
        await within(writer.close())
    assert not list((tmp_path / "spool").glob("*.tmp"))


async def test_an_append_that_is_cancelled_is_written_and_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool") as (writer, _):
        await within(writer.append([record(0)]))
        gate = Gate(monkeypatch, "fsync")
        one, other = (asyncio.create_task(writer.append([record(n)])) for n in (1, 2))
        await gate.wait()
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        gate.open.set()
        await within(other)
        assert numbers(on_disk(tmp_path / "spool")) == [0, 1, 2]


async def test_a_record_that_no_file_can_hold_fails_alone(tmp_path: Path):
    wrong = Record("q", "p", 1, b"no id")
    async with writing(tmp_path / "spool") as (writer, _):
        tasks = [writer.append([record(0)]), writer.append([wrong]), writer.append([record(1)])]
        answers = await within(asyncio.gather(*tasks, return_exceptions=True))
        assert [type(one) for one in answers] == [type(None), ValueError, type(None)]
        assert numbers(on_disk(tmp_path / "spool")) == [0, 1]
        assert (writer.write_failures, writer.records_failed) == (1, 1)


async def test_the_size_limit_refuses_before_it_is_passed(tmp_path: Path):
    limit = 10 * RECORD_BYTES
    async with writing(tmp_path / "spool", max_bytes=limit) as (writer, directory):
        await within(writer.append(records(8)))
        with pytest.raises(SpoolFull):
            await within(writer.append(records(3)))
        await within(writer.append(records(2)))
        with pytest.raises(SpoolFull):
            await within(writer.append(records(1)))
        assert directory.total_bytes() == limit
        name = await within(writer.finalise())
        with pytest.raises(SpoolFull):
            await within(writer.append(records(1)))
        directory.remove(name)
        await within(writer.append(records(10)))
        assert writer.write_failures == 3


async def test_the_floor_of_free_space_refuses_while_it_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    free = 10_000
    async with writing(tmp_path / "spool", min_free_bytes=9_000) as (writer, directory):
        monkeypatch.setattr(directory, "free_bytes", lambda: free)
        with pytest.raises(SpoolFull):
            await within(writer.append(records(10)))
        await within(writer.append(records(1)))
        free = 8_000
        with pytest.raises(SpoolFull):
            await within(writer.append(records(1)))
        free = 100_000
        await within(writer.append(records(10)))


async def test_a_group_that_does_not_fit_is_tried_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool") as (writer, _):
        await within(writer.append([record(0)]))
        gate = Gate(monkeypatch, "pwrite")
        first = asyncio.create_task(writer.append([record(1)]))
        await gate.wait()
        gate.errors = [0, errno.ENOSPC, 0, errno.ENOSPC, 0]
        three = [asyncio.create_task(writer.append([record(n)])) for n in (2, 3, 4)]
        await asyncio.sleep(0)
        gate.open.set()
        answers = await within(asyncio.gather(first, *three, return_exceptions=True))
        assert [type(one) for one in answers] == [type(None)] * 2 + [SpoolWriteFailed, type(None)]
        assert numbers(on_disk(tmp_path / "spool")) == [0, 1, 2, 4]
        assert writer.write_failures == 1
        assert writer.fsyncs == 3, "those that fitted share one"


async def test_a_file_that_breaks_while_they_are_tried_one_by_one_fails_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool") as (writer, _):
        await within(writer.append([record(0)]))
        gate = Gate(monkeypatch, "pwrite")
        first = asyncio.create_task(writer.append([record(1)]))
        await gate.wait()
        gate.errors = [0, errno.ENOSPC, 0, errno.ENOSPC]
        cutting = Gate(monkeypatch, "ftruncate")
        cutting.errors = [0, errno.EIO]
        cutting.open.set()
        four = [asyncio.create_task(writer.append([record(n)])) for n in (2, 3, 4, 5)]
        await asyncio.sleep(0)
        gate.open.set()
        answers = await within(asyncio.gather(first, *four, return_exceptions=True))
        assert [type(one) for one in answers] == [type(None)] + [SpoolWriteFailed] * 4
        assert writer.write_failures == writer.records_failed == 4
        await within(writer.append([record(6)]))
        assert numbers(on_disk(tmp_path / "spool")) == [0, 1, 6]


async def test_a_broken_disk_fails_the_whole_group_and_the_next_append_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool") as (writer, _):
        await within(writer.append([record(0)]))
        gate = Gate(monkeypatch, "pwrite")
        gate.errors = [errno.EIO]
        gate.open.set()
        with pytest.raises(SpoolWriteFailed, match="could not be written"):
            await within(writer.append([record(1)]))
        await within(writer.append([record(2)]))
        assert numbers(on_disk(tmp_path / "spool")) == [0, 2]


async def test_after_a_failed_fsync_the_file_ends_at_its_last_good_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool") as (writer, directory):
        await within(writer.append([record(0)]))
        gate = Gate(monkeypatch, "fsync")
        gate.errors = [errno.EIO]
        gate.open.set()
        with pytest.raises(SpoolWriteFailed):
            await within(writer.append([record(1)]))
        [given_up] = directory.finished()
        assert numbers(read_all(tmp_path / "spool" / given_up)[0]) == [0]
        assert (tmp_path / "spool" / given_up).stat().st_size == RECORD_BYTES
        await within(writer.append([record(2)]))
        assert numbers(on_disk(tmp_path / "spool")) == [0, 2]
        assert writer.current_events == 1, "in another file"


async def test_a_file_that_cannot_be_cut_is_not_drained_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool") as (writer, directory):
        await within(writer.append([record(0)]))
        syncing, cutting = Gate(monkeypatch, "fsync"), Gate(monkeypatch, "ftruncate")
        syncing.errors, cutting.errors = [errno.EIO], [errno.EIO]
        syncing.open.set()
        cutting.open.set()
        with pytest.raises(SpoolWriteFailed):
            await within(writer.append([record(1)]))
        assert directory.finished() == []
        assert directory.stats().events == 1
        assert await within(writer.finalise()) is None
        [name] = directory.finished()
        assert numbers(read_all(tmp_path / "spool" / name)[0]) == [0]


async def test_a_failed_first_fsync_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool") as (writer, directory):
        gate = Gate(monkeypatch, "fsync")
        gate.errors = [0, 0, errno.EIO]
        gate.open.set()
        with pytest.raises(SpoolWriteFailed):
            await within(writer.append([record(1)]))
        assert directory.finished() == []
        assert not list((tmp_path / "spool").glob("*.tmp"))


async def test_a_file_that_cannot_be_finished_takes_further_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool", events_per_file=2) as (writer, directory):
        await within(writer.append(records(2)))
        gate = Gate(monkeypatch, "rename")
        gate.errors = [errno.EIO, errno.EIO]
        gate.open.set()
        await within(writer.append(records(2, start=2)))
        with pytest.raises(SpoolWriteFailed, match="not finished"):
            await within(writer.finalise())
        assert writer.current_events == 4
        assert await within(writer.finalise()) in directory.finished()
        assert numbers(on_disk(tmp_path / "spool")) == [0, 1, 2, 3]


async def test_nothing_is_acknowledged_into_a_file_that_somebody_has_deleted(tmp_path: Path):
    async with writing(tmp_path / "spool") as (writer, directory):
        await within(writer.append([record(0)]))
        for file in os.listdir(tmp_path / "spool"):
            if file.endswith(".tmp"):
                (tmp_path / "spool" / file).unlink()
        with pytest.raises(SpoolWriteFailed, match="deleted"):
            await within(writer.append([record(1)]))
        await within(writer.append([record(2)]))
        assert numbers(on_disk(tmp_path / "spool")) == [2]
        assert directory.stats().events == 1


@pytest.mark.parametrize("name", ["finish", "create", "grew"])
async def test_a_mistake_of_ours_leaves_nobody_waiting_and_the_writer_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    async with writing(tmp_path / "spool", events_per_file=1) as (writer, directory):
        if name != "create":
            await within(writer.append([record(0)]))

        def mistaken(*args: object) -> None:
            raise RuntimeError("a mistake")

        with monkeypatch.context() as patch:
            patch.setattr(directory, name, mistaken)
            appends = [writer.append([record(n)]) for n in (1, 2)]
            answers = await within(asyncio.gather(*appends, return_exceptions=True))
            assert [type(one) for one in answers] == [RuntimeError, RuntimeError]
            if name == "finish":
                with pytest.raises(SpoolWriteFailed):
                    await within(writer.finalise())
        await within(writer.append([record(3)]))
        assert numbers(on_disk(tmp_path / "spool"))[-1] == 3


async def test_the_loop_runs_on_while_the_disk_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with writing(tmp_path / "spool") as (writer, directory):
        gate = Gate(monkeypatch, "fsync")
        append = asyncio.create_task(writer.append([record(1)]))
        await gate.wait()  # within the making of a file: the names' own lock is held
        assert (directory.stats().files, directory.finished()) == (0, [])
        assert not append.done()
        gate.open.set()
        await within(append)
