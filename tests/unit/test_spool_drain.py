"""The drain: everything is replayed once and in order, whatever the store answers.

Method: real directories, a store that keeps batches and marks together as the real one does
and deduplicates nothing (tests/spool_parts.py), and a clock that the test moves.
"""

import asyncio
import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from spool.drain import PERMANENT_MAX, TRANSIENT_MAX, DrainConfig
from spool.errors import MarkMoved, ReplayPermanent, ReplayTransient
from spool.records import Record, encode, encode_many
from spool.segment import Reader
from spool.writer import SpoolWriter
from tests.spool_parts import Bench, lay, number_of, numbers, opened, read_all, record, records

Refusal = Callable[[Sequence[Record]], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def poison(*guilty: int) -> Refusal:
    def refuse(some: Sequence[Record]) -> None:
        if found := set(numbers(some)) & set(guilty):
            raise ReplayPermanent(f"check constraint: {found}")

    return refuse


def away(some: Sequence[Record]) -> None:
    raise ReplayTransient("connection refused")


def kept_poison(path: Path) -> list[int]:
    return [
        number
        for file in sorted((path / "failed").glob("*.poison"))
        for number in numbers(read_all(file)[0])
    ]


async def test_files_are_replayed_oldest_first_in_batches_and_go(path: Path):
    lay(path, records(250), records(30, start=250))
    with opened(path) as directory:
        bench = Bench(directory)
        first, second = directory.finished()
        cycle = await bench.cycle()
        assert bench.store.numbers == list(range(280))
        assert bench.store.calls == [
            ("marks", "", 0, 0),
            ("replay", first, 0, 100),
            ("replay", first, 100, 100),
            ("replay", first, 200, 50),
            ("replay", second, 0, 30),
            ("forget", f"{first},{second}", 0, 2),
        ]
        assert (cycle.files, cycle.events, cycle.poison, cycle.error) == (2, 280, 0, None)
        assert bench.settled == bench.store.log
        assert bench.store.rows == {}
        assert (directory.finished(), directory.stats().events) == ([], 0)
    assert [name for name in os.listdir(path) if name.endswith(".buf")] == []


async def test_a_batch_is_bounded_in_bytes(path: Path):
    lay(path, [record(n, payload=b'"' + b"x" * 1000 + b'"') for n in range(10)])
    with opened(path) as directory:
        bench = Bench(directory, batch_bytes_max=3000)
        await bench.cycle()
        assert [call[3] for call in bench.store.calls if call[0] == "replay"] == [2] * 5


async def test_a_healthy_cycle_takes_ten_files_and_an_unhealthy_one_takes_one(path: Path):
    lay(path, *(records(1, start=n) for n in range(25)))
    with opened(path) as directory:
        bench = Bench(directory)
        assert (await bench.cycle()).files == 10
        bench.store.before = away
        assert (await bench.cycle()).files == 0
        assert not bench.drain.healthy
        bench.store.before = poison()
        assert (await bench.cycle()).files == 1
        assert bench.drain.healthy
        assert (await bench.cycle()).files == 10


async def test_the_drain_begins_behind_the_mark(path: Path):
    lay(path, records(250))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.rows[directory.finished()[0]] = 130
        await bench.cycle()
        assert bench.store.numbers == list(range(130, 250))
        assert numbers(bench.settled) == list(range(250)), "those before left the spool too"
        assert bench.store.rows == {}


async def test_the_accept_time_of_the_oldest_that_waits_goes_with_every_batch(path: Path):
    lay(path, [record(0, accepted_us=500), record(1, accepted_us=400)], [record(2, accepted_us=90)])
    with opened(path) as directory:
        directory.refresh()
        bench = Bench(directory, max_batch=1)
        await bench.cycle()
        assert bench.store.oldest_us == [90, 90, 90]


async def test_a_transient_failure_keeps_the_file_and_ends_the_cycle(path: Path):
    lay(path, records(150), records(10, start=150))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.before = lambda some: away(some) if number_of(some[0]) >= 100 else None
        cycle = await bench.cycle()
        assert (cycle.files, cycle.events) == (0, 100)
        assert "connection refused" in (cycle.error or "")
        assert not bench.drain.healthy
        assert len(directory.finished()) == 2
        bench.store.before = poison()
        await bench.cycles_until_empty()
        assert bench.store.numbers == list(range(160))
        assert numbers(bench.settled) == list(range(160))


async def test_ten_transient_failures_in_a_row_bring_a_rest(path: Path):
    lay(path, records(10))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.before = away

        def replays() -> int:
            return sum(call[0] == "replay" for call in bench.store.calls)

        for _ in range(TRANSIENT_MAX + 5):
            await bench.cycle()
        assert replays() == TRANSIENT_MAX
        bench.clock.seconds += 4.9
        assert (await bench.cycle()).error == "resting after transient failures"
        assert replays() == TRANSIENT_MAX
        bench.clock.seconds += 0.2
        for _ in range(TRANSIENT_MAX + 5):
            await bench.cycle()
        assert replays() == 2 * TRANSIENT_MAX, "the counter began anew"
        bench.clock.seconds += 5.1
        bench.store.before = poison()
        await bench.cycle()
        assert bench.store.numbers == list(range(10))


async def test_a_success_in_between_ends_the_row(path: Path):
    lay(path, records(2000))
    with opened(path) as directory:
        bench = Bench(directory, max_batch=10)
        calls = 0

        def every_second(some: Sequence[Record]) -> None:
            nonlocal calls
            calls += 1
            if calls % 2:
                away(some)

        bench.store.before = every_second
        for _ in range(3 * TRANSIENT_MAX):
            assert "resting" not in str((await bench.cycle()).error)
        assert bench.store.numbers == list(range(len(bench.store.log)))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        FileNotFoundError(2, "No such socket"),
        TimeoutError(),
        KeyError("x"),
        RuntimeError("pool is closed"),
    ],
)
async def test_what_nobody_has_classified_is_transient(path: Path, error: Exception):
    lay(path, records(3))
    with opened(path) as directory:
        bench = Bench(directory)

        def broken(some: Sequence[Record]) -> None:
            raise error

        bench.store.before = broken
        for _ in range(PERMANENT_MAX + 1):
            assert (await bench.cycle()).error
            assert not bench.drain.healthy
        assert len(directory.finished()) == 1
        bench.store.before = poison()
        await bench.cycle()
        assert bench.store.numbers == [0, 1, 2]
    assert os.listdir(path / "failed") == []


async def test_a_permanent_failure_stops_at_its_file_and_leaves_the_health_alone(path: Path):
    lay(path, records(3), records(3, start=3), records(3, start=6))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.before = poison(4)
        cycle = await bench.cycle()
        assert (cycle.files, bench.store.numbers) == (1, [0, 1, 2])
        assert "check constraint" in (cycle.error or "")
        assert bench.drain.healthy
        for _ in range(PERMANENT_MAX - 2):
            assert (await bench.cycle()).files == 0
        assert kept_poison(path) == []
        cycle = await bench.cycle()
        assert (cycle.files, cycle.poison, cycle.events) == (2, 1, 5)
        assert bench.store.numbers == [0, 1, 2, 3, 5, 6, 7, 8]
        assert kept_poison(path) == [4]
        assert sorted(numbers(bench.settled)) == list(range(9))
        assert bench.drain.healthy


async def test_a_poison_head_does_not_hold_up_fifty_good_files(path: Path):
    lay(path, [record(0)], *(records(2, start=2 * n) for n in range(1, 51)))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.before = poison(0)
        assert await bench.cycles_until_empty() == PERMANENT_MAX + 5
        assert bench.store.numbers == list(range(2, 102))
        assert kept_poison(path) == [0]
        assert directory.stats()[5:7] == (1, 1)


async def test_poison_in_the_middle_of_its_own_partition_holds_up_nothing(path: Path):
    same = [record(n, partition="one") for n in range(300)]
    guilty = (0, 57, 58, 99, 100, 250, 299)
    lay(path, same)
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.before = poison(*guilty)
        assert await bench.cycles_until_empty() == PERMANENT_MAX, "counted once, for the file"
        assert bench.store.numbers == [n for n in range(300) if n not in guilty]
        assert kept_poison(path) == list(guilty)
        assert sorted(numbers(bench.settled)) == list(range(300))


async def test_a_file_of_nothing_but_poison_goes_to_the_quarantine(path: Path):
    lay(path, records(40))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.before = poison(*range(40))
        await bench.cycles_until_empty()
        assert (bench.store.log, kept_poison(path)) == ([], list(range(40)))


async def test_poison_is_on_the_disk_before_the_mark_passes_it(path: Path):
    lay(path, records(4))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.before = poison(2)
        seen = []
        bench.store.on_pass_over = lambda: seen.append(kept_poison(path))
        await bench.cycles_until_empty()
        assert seen == [[2]]


async def test_a_mark_that_cannot_pass_the_poison_sets_it_aside_only_once(path: Path):
    lay(path, records(4))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.before = poison(2)

        def fails() -> None:
            raise ReplayPermanent("no such procedure")

        bench.store.on_pass_over = fails
        for _ in range(PERMANENT_MAX + 2):
            await bench.cycle()
        assert not bench.drain.healthy, "that is the database's state, and no record's fault"
        assert bench.store.numbers == [0, 1]
        bench.store.on_pass_over = lambda: None
        await bench.cycles_until_empty()
        assert (bench.store.numbers, kept_poison(path)) == ([0, 1, 3], [2])
        assert sorted(numbers(bench.settled)) == [0, 1, 2, 3]


async def test_a_database_that_goes_away_in_mid_split_is_gone_on_with_later(path: Path):
    lay(path, records(64))
    with opened(path) as directory:
        bench = Bench(directory)
        chance = random.Random(20_260_730)

        def poison_or_away(some: Sequence[Record]) -> None:
            bench.clock.seconds += 1
            if chance.random() < 0.2:
                away(some)
            poison(5, 40)(some)

        bench.store.before = poison_or_away
        await bench.cycles_until_empty()
        assert bench.store.numbers == [n for n in range(64) if n not in (5, 40)]
        assert kept_poison(path) == [5, 40]
        assert sorted(numbers(bench.settled)) == list(range(64))


@pytest.mark.parametrize(
    "error", [ReplayTransient("timeout"), OSError("reset"), MarkMoved("?"), ReplayPermanent("?")]
)
async def test_a_lost_answer_that_had_committed_is_found_in_the_mark(path: Path, error: Exception):
    lay(path, records(250))
    with opened(path) as directory:
        bench = Bench(directory)

        def lose(some: Sequence[Record]) -> None:
            if number_of(some[0]) in (100, 200):
                raise error

        bench.store.after = lose
        await bench.cycles_until_empty()
        assert bench.store.numbers == list(range(250))
        assert bench.settled == bench.store.log
        assert bench.drain.healthy


async def test_the_last_answer_lost_does_not_leave_the_drain_unhealthy(path: Path):
    lay(path, records(3))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.after = away
        await bench.cycle()
        assert not bench.drain.healthy
        await bench.cycle()
        assert (bench.drain.healthy, directory.finished()) == (True, [])
        assert bench.store.numbers == [0, 1, 2]


async def test_a_mark_that_somebody_else_has_moved_is_followed(path: Path):
    lay(path, records(250))
    with opened(path) as directory:
        bench = Bench(directory)
        [name] = directory.finished()

        def overtake(some: Sequence[Record]) -> None:
            if number_of(some[0]) == 100:
                bench.store.rows[name] = 160

        bench.store.before = overtake
        await bench.cycles_until_empty()
        assert bench.store.numbers == [*range(100), *range(160, 250)]
        assert numbers(bench.settled) == list(range(250))


async def test_a_mark_that_went_back_with_the_database_is_followed_too(path: Path):
    """A replica that had not got the last commits was promoted: their records are gone there."""
    lay(path, records(250))
    with opened(path) as directory:
        bench = Bench(directory)
        [name] = directory.finished()
        once = True

        def fail_over(some: Sequence[Record]) -> None:
            nonlocal once
            if once and number_of(some[0]) == 200:
                once = False
                bench.store.rows[name] = 30
                del bench.store.log[30:]
                away(some)

        bench.store.before = fail_over
        await bench.cycles_until_empty()
        assert bench.store.numbers == list(range(250))
        assert numbers(bench.settled) == list(range(250)), "each is settled once"


async def test_a_mark_that_keeps_moving_ends_the_cycle(path: Path):
    lay(path, records(3))
    with opened(path) as directory:
        bench = Bench(directory)

        def refuse(some: Sequence[Record]) -> None:
            raise MarkMoved("again")

        bench.store.before = refuse
        assert "keeps moving" in str((await bench.cycle()).error)
        assert len(directory.finished()) == 1


async def test_marks_of_files_that_are_gone_are_forgotten_at_the_start(path: Path):
    lay(path, records(3))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.rows = {"1600000000000-00000000.buf": 7, directory.finished()[0]: 1}
        await bench.cycle()
        assert bench.store.rows == {}
        assert bench.store.numbers == [1, 2]


async def test_a_quarantine_that_was_taken_away_is_made_anew(path: Path):
    lay(path, encode_many(records(2)) + b"garbage", records(2, start=2))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.before = poison(3)
        (path / "failed").rmdir()
        await bench.cycles_until_empty()
        assert bench.store.numbers == [0, 1, 2]
        assert kept_poison(path) == [3]
        assert directory.stats().failed_files == 2


async def test_a_quarantine_that_cannot_be_looked_at_costs_no_mark_and_blames_no_file(path: Path):
    lay(path, records(3))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.rows = {"1600000000000-00000000.buf": 7}
        (path / "failed").rmdir()
        (path / "failed").write_text("in the way")
        for _ in range(PERMANENT_MAX + 1):
            await bench.cycle()
        assert bench.store.numbers == [0, 1, 2]
        assert bench.store.rows == {"1600000000000-00000000.buf": 7}
        assert bench.drain.permanent_failures == 0


async def test_a_mark_that_cannot_be_forgotten_is_tried_again_and_harms_nothing(path: Path):
    lay(path, records(3), records(3, start=3))
    with opened(path) as directory:
        bench = Bench(directory)

        def fails() -> None:
            raise ReplayTransient("away")

        bench.store.on_forget = fails
        await bench.cycle()
        assert (bench.store.numbers, len(bench.store.rows)) == (list(range(6)), 2)
        assert bench.drain.healthy
        bench.store.on_forget = lambda: None
        await bench.cycle()
        assert bench.store.rows == {}


async def test_a_file_is_deleted_before_its_mark_is_forgotten(path: Path):
    lay(path, records(3))
    with opened(path) as directory:
        bench = Bench(directory)
        there = []
        bench.store.on_forget = lambda: there.extend(path.glob("*.buf"))
        await bench.cycle()
        assert bench.store.calls[-1][0] == "forget"
        assert there == []


async def test_damage_is_set_aside_and_everything_else_is_replayed(path: Path):
    data = bytearray(encode_many(records(9)))
    ends = [len(encode_many(records(n))) for n in range(10)]
    data[ends[3] + 50] ^= 1
    data[ends[6] + 5] ^= 0x40
    lay(path, bytes(data[:-7]), b"garbage", b"", records(1, start=9))
    with opened(path) as directory:
        bench = Bench(directory)
        first, garbage, *_ = directory.finished()
        cycle = await bench.cycle()
        assert bench.store.numbers == [0, 1, 2, 4, 5, 7, 9]
        assert bench.settled == bench.store.log
        assert (cycle.files, cycle.damaged) == (4, 4)
        kept = (path / "failed" / first.replace(".buf", ".damaged")).read_bytes()
        assert kept == bytes(data[ends[3] : ends[4]] + data[ends[6] : ends[7]] + data[ends[8] : -7])
        assert (path / "failed" / garbage.replace(".buf", ".damaged")).read_bytes() == b"garbage"
        assert directory.stats()[5:7] == (2, 4)
        assert directory.finished() == []


class Unreadable(Reader):
    """A disk that cannot read what lies behind some records."""

    error = errno.EIO
    good = 0

    def read(self, records_max: int, bytes_max: int) -> list[Record]:
        if self.index >= self.good:
            raise OSError(self.error, os.strerror(self.error))
        return super().read(min(records_max, self.good - self.index), bytes_max)


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`unreadable(number, good=, error=)`: of the files of one directory, the n-th."""

    def choose(name: str, good: int = 0, error: int = errno.EIO) -> None:
        monkeypatch.setattr(Unreadable, "good", good)
        monkeypatch.setattr(Unreadable, "error", error)
        monkeypatch.setattr(
            "spool.head.Reader",
            lambda path: Unreadable(path) if path.name == name else Reader(path),
        )

    return choose


async def test_an_unreadable_file_is_moved_as_a_whole_at_the_fifth_time(
    path: Path, unreadable: Callable[..., None]
):
    lay(path, records(3), records(5, start=3), records(2, start=8))
    with opened(path) as directory:
        bench = Bench(directory)
        name = directory.finished()[1]
        unreadable(name, good=2)
        for _ in range(PERMANENT_MAX - 1):
            assert "unreadable" in str((await bench.cycle()).error)
            assert bench.drain.healthy
        assert bench.store.numbers == [0, 1, 2, 3, 4], "what can be read is replayed"
        await bench.cycle()
        assert bench.store.numbers == [0, 1, 2, 3, 4, 8, 9]
        assert os.listdir(path / "failed") == [name]
        assert bench.moved == [name]
        assert numbers(bench.settled) == [0, 1, 2, 3, 4, 8, 9]
        assert bench.store.rows == {name: 2}, "the mark stays with the file"

        unreadable("none")
        bench = Bench(directory, store=bench.store)
        await bench.cycle()
        assert bench.store.rows == {name: 2}, "after a restart too"
        assert directory.requeue_failed() == (1, 5)
        await bench.cycle()
        assert bench.store.numbers == [0, 1, 2, 3, 4, 8, 9, 5, 6, 7]
        assert bench.store.rows == {}


async def test_a_process_short_of_files_blames_no_file(path: Path, unreadable: Callable[..., None]):
    lay(path, records(3))
    with opened(path) as directory:
        bench = Bench(directory)
        unreadable(directory.finished()[0], error=errno.EMFILE)
        for _ in range(2 * PERMANENT_MAX):
            assert "unreadable" in str((await bench.cycle()).error)
        unreadable("none")
        await bench.cycle()
        assert bench.store.numbers == [0, 1, 2]


async def test_a_file_that_somebody_took_away_is_no_error_for_the_others(path: Path):
    lay(path, records(3), records(3, start=3))
    with opened(path) as directory:
        bench = Bench(directory)
        gone = directory.finished()[0]
        (path / gone).unlink()
        await bench.cycle()
        assert (bench.store.numbers, bench.moved) == ([3, 4, 5], [gone])
        assert directory.finished() == []


def refuse_moves(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """The quarantine is on a disk that takes nothing."""
    failed = str(path / "failed")

    def refusing(real: Callable[..., int]) -> Callable[..., int]:
        def call(target: object, *args: object, **options: object) -> int:
            if any(str(one).startswith(failed + "/") for one in (target, *args)):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return real(target, *args, **options)

        return call

    monkeypatch.setattr(os, "open", refusing(os.open))
    monkeypatch.setattr(os, "rename", refusing(os.rename))


async def test_a_file_whose_poison_cannot_be_moved_is_passed_over_for_a_minute(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    lay(path, records(3), records(3, start=3))
    with opened(path) as directory:
        bench = Bench(directory)
        bench.store.before = poison(1)
        with monkeypatch.context() as patch:
            refuse_moves(patch, path)
            for _ in range(PERMANENT_MAX):
                cycle = await bench.cycle()
            assert "unmovable" in str(cycle.error)
            assert bench.store.numbers == [0, 3, 4, 5]
            assert bench.drain.unmovable_files == 1
            calls = len(bench.store.calls)
            bench.clock.seconds += 59
            await bench.cycle()
            assert len(bench.store.calls) == calls
        bench.clock.seconds += 2
        await bench.cycles_until_empty()
        assert (bench.store.numbers, kept_poison(path)) == ([0, 3, 4, 5, 2], [1])
        assert sorted(numbers(bench.settled)) == list(range(6))


async def test_what_cannot_be_moved_is_deleted_where_that_was_asked_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: Callable[..., None]
):
    damaged = encode(record(3)) + b"garbage" + encode(record(4))
    lay(path, records(3), damaged, records(3, start=5))
    with opened(path) as directory:
        bench = Bench(directory, delete_unmovable=True)
        bench.store.before = poison(1)
        unreadable(directory.finished()[2])
        with monkeypatch.context() as patch:
            refuse_moves(patch, path)
            await bench.cycles_until_empty()
        assert bench.store.numbers == [0, 2, 3, 4]
        assert os.listdir(path / "failed") == []
        assert bench.store.rows == {}


@pytest.mark.parametrize("what", ["damage", "whole"])
async def test_a_file_whose_damage_cannot_be_moved_is_passed_over(
    path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: Callable[..., None], what: str
):
    lay(path, encode_many(records(2)) + b"garbage", records(2, start=2))
    with opened(path) as directory:
        bench = Bench(directory)
        first, _ = directory.finished()
        if what == "whole":
            unreadable(first)
        with monkeypatch.context() as patch:
            refuse_moves(patch, path)
            for _ in range(PERMANENT_MAX):
                await bench.cycle()
            assert set(bench.store.numbers) >= {2, 3}
            assert directory.finished() == [first]
        unreadable("none")
        bench.clock.seconds += 61
        await bench.cycle()
        assert sorted(bench.store.numbers) == sorted(numbers(bench.settled)) == [0, 1, 2, 3]
        assert directory.finished() == []
        assert bench.drain.pieces_damaged == 1


async def test_a_file_that_cannot_be_deleted_is_replayed_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    lay(path, encode_many(records(2)) + b"garbage", records(2, start=2))
    with opened(path) as directory:
        bench = Bench(directory)

        def refuse(target: object) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", refuse)
            for _ in range(3):
                await bench.cycle()
                bench.clock.seconds += 61
        await bench.cycle()
        assert bench.store.numbers == numbers(bench.settled) == [0, 1, 2, 3]
        assert bench.drain.pieces_damaged == 1
        assert bench.store.rows == {}


async def test_while_paused_nothing_moves_and_a_batch_in_flight_is_the_last(path: Path):
    lay(path, records(300))
    with opened(path) as directory:
        bench = Bench(directory)

        def pause(some: Sequence[Record]) -> None:
            bench.pause = number_of(some[0]) >= 100

        bench.store.before = pause
        await bench.cycle()
        assert bench.store.numbers == list(range(200))
        assert (await bench.cycle()).error == "paused"
        assert bench.store.numbers == list(range(200))
        bench.store.before = poison()
        bench.pause = False
        await bench.cycle()
        assert bench.store.numbers == list(range(300))


async def test_a_cancelled_cycle_looks_at_the_marks_before_it_goes_on(path: Path):
    lay(path, records(300))
    with opened(path) as directory:
        bench = Bench(directory)
        reached = asyncio.Event()

        def cancelled(some: Sequence[Record]) -> None:
            if number_of(some[0]) == 100 and not reached.is_set():
                reached.set()
                raise asyncio.CancelledError  # the commit went through, the answer did not

        bench.store.after = cancelled
        with pytest.raises(asyncio.CancelledError):
            await bench.cycle()
        await bench.cycle()
        assert bench.store.numbers == numbers(bench.settled) == list(range(300))


async def test_the_writers_file_is_handed_over_by_every_cycle(path: Path):
    with opened(path) as directory:
        writer = SpoolWriter(directory)
        bench = Bench(directory, writer=writer)
        for number in range(3):
            await writer.append([record(number)])
            await bench.cycle()
            assert bench.store.numbers == list(range(number + 1))
        assert bench.store.rows == {}
        await writer.close()


async def test_while_the_database_is_away_the_files_stay_large(path: Path):
    with opened(path) as directory:
        writer = SpoolWriter(directory, fsync=False)
        bench = Bench(directory, writer=writer)
        bench.store.before = away
        for number in range(60):
            await writer.append([record(number)])
            await bench.cycle()
            bench.clock.seconds += 1
        assert len(directory.finished()) == 1
        assert writer.current_events >= 55
        bench.store.before = poison()
        bench.clock.seconds += 10
        await bench.cycles_until_empty()
        await bench.cycle()
        assert bench.store.numbers == list(range(60))
        await writer.close()


async def test_an_empty_spool_hears_that_the_database_is_back(path: Path):
    with opened(path) as directory:
        bench = Bench(directory)

        def down() -> None:
            raise ReplayTransient("away")

        bench.store.on_marks = down
        await bench.cycle()
        assert not bench.drain.healthy
        bench.store.on_marks = lambda: None
        await bench.cycle()
        assert bench.drain.healthy
        calls = len(bench.store.calls)
        await bench.cycle()
        assert len(bench.store.calls) == calls, "and then asks no more"


async def test_who_listens_badly_does_not_stop_the_drain(path: Path):
    lay(path, records(3))
    with opened(path) as directory:

        def broken(some: Sequence[Record]) -> None:
            raise RuntimeError("not listening")

        bench = Bench(directory, settled=broken)
        await bench.cycle()
        assert bench.store.numbers == [0, 1, 2]


async def test_the_running_drain_cycles_until_cancelled(path: Path):
    with opened(path) as directory:
        writer = SpoolWriter(directory)
        bench = Bench(directory, writer=writer, flush_ms=60_000)
        running = asyncio.create_task(bench.drain.run())
        await asyncio.sleep(0)
        for number in range(20):
            await writer.append([record(number)])
            async with asyncio.timeout(10):
                while number not in bench.store.numbers:
                    bench.drain.poke()
                    await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await writer.close()
        assert bench.store.numbers == list(range(20))


async def test_the_rate_is_that_of_late(path: Path):
    lay(path, records(400))
    with opened(path) as directory:
        bench = Bench(directory)

        def slow(some: Sequence[Record]) -> None:
            bench.clock.seconds += 0.1

        bench.store.before = slow
        await bench.cycle()
        assert bench.drain.rate == pytest.approx(1000)


def test_the_defaults_are_the_contracts():
    config = DrainConfig()
    assert (config.flush_ms, config.max_batch, config.cooldown_s, config.skip_s) == (
        100,
        100,
        5,
        60,
    )
