"""The spool as a whole, in any order of events: a state machine.

Method: hypothesis drives a writer, a drain, a store that fails or loses answers, crashes
(the directory is opened anew, sometimes with a torn or a flipped tail), pauses and a clock that
jumps. Whatever it does, an acknowledged record is in the log once, or in the quarantine, or
still on the disk; and a partition's records lie in the log in the order of their appends.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spool.directory import SpoolDirectory
from spool.errors import ReplayPermanent, ReplayTransient
from spool.records import Record, encode
from spool.writer import SpoolWriter
from tests.spool_parts import Bench, Store, numbers, read_all, record, within


class Spool(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp(prefix="spool-machine-"))
        self.path = self.root / "spool"
        self.store = Store()
        self.store.before = self.before
        self.store.after = self.after
        self.answers: list[str] = []
        self.now_ms = 1_700_000_000_000
        self.next = 0
        self.poison: set[int] = set()
        self.seen_poison: set[int] = set()
        self.acknowledged: list[int] = []

    # What the store does next, one word a call; none left: it works.

    def before(self, some: Sequence[Record]) -> None:
        self.answer = self.answers.pop(0) if self.answers else "works"
        if self.answer == "away":
            raise ReplayTransient("away")
        if self.answer == "unclassified":
            raise OSError("what")
        if set(numbers(some)) & self.poison:
            raise ReplayPermanent("poison")

    def after(self, some: Sequence[Record]) -> None:
        if self.answer == "lost":
            raise ReplayTransient("answer lost")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(within(work))

    @initialize(events_per_file=st.integers(1, 8), max_batch=st.integers(1, 5))
    def begin(self, events_per_file: int, max_batch: int) -> None:
        self.events_per_file, self.max_batch = events_per_file, max_batch
        self.open()

    def open(self) -> None:
        self.directory = SpoolDirectory.open(self.path, now_ms=lambda: self.now_ms)

        async def make() -> None:
            self.writer = SpoolWriter(self.directory, events_per_file=self.events_per_file)
            self.bench = Bench(
                self.directory, writer=self.writer, store=self.store, max_batch=self.max_batch
            )

        self.run(make())

    @rule(count=st.integers(1, 6), guilty=st.integers(0, 20))
    def append(self, count: int, guilty: int) -> None:
        some = [record(self.next + n) for n in range(count)]
        if guilty < count:
            self.poison.add(self.next + guilty)
        self.next += count
        self.run(self.writer.append(some))
        self.acknowledged += numbers(some)

    @rule(count=st.integers(2, 5))
    def append_several_at_once(self, count: int) -> None:
        some = [record(self.next + n) for n in range(count)]
        self.next += count

        async def together() -> None:
            await asyncio.gather(*(self.writer.append([one]) for one in some))

        self.run(together())
        self.acknowledged += numbers(some)

    @rule()
    def finalise(self) -> None:
        self.run(self.writer.finalise())

    @rule(
        answers=st.lists(st.sampled_from(["works", "works", "away", "lost", "unclassified"])),
        cycles=st.integers(1, 7),
    )
    def drain(self, answers: list[str], cycles: int) -> None:
        self.answers = answers
        for _ in range(cycles):
            self.run(self.bench.cycle())
        self.answers = []

    @rule()
    def pause_or_go_on(self) -> None:
        self.bench.pause = not self.bench.pause

    @rule(seconds=st.sampled_from([1, 6, 61]))
    def wait(self, seconds: int) -> None:
        self.bench.clock.seconds += seconds

    @rule(ms=st.integers(-10_000_000, 10_000_000))
    def set_the_clock(self, ms: int) -> None:
        self.now_ms += ms

    @rule(torn=st.integers(0, 400))
    def crash(self, torn: int) -> None:
        """Nothing is closed in order; a write that nobody had an answer for may be half done."""
        self.stop()
        unfinished = sorted(self.path.glob("*.tmp"))
        if unfinished and torn:
            data = encode(record(self.next))
            with unfinished[-1].open("ab") as file:
                file.write(data[: min(torn, len(data) - 1)])
            self.next += 1
        self.open()

    @precondition(lambda self: self.directory.quarantine.names())
    @rule()
    def forgive_and_requeue(self) -> None:
        self.poison.clear()
        self.directory.requeue_failed()

    def stop(self) -> None:
        # The thread ends without finishing its file, as far as the disk can tell.
        with self.writer._news:
            self.writer._closing = True
            self.writer._news.notify()
        self.writer._thread.join(10)
        self.directory.close()

    def on_disk(self) -> list[int]:
        rows = self.store.rows
        found: list[int] = []
        for file in sorted(self.path.glob("*.*")):
            if file.suffix in (".buf", ".tmp"):
                some, reader = read_all(file)
                assert reader.damaged == 0
                found += numbers(some)[rows.get(file.with_suffix(".buf").name, 0) :]
        for name in os.listdir(self.path / "failed"):
            found += numbers(read_all(self.path / "failed" / name)[0])
        return found

    @invariant()
    def every_acknowledged_record_is_somewhere_exactly_once(self) -> None:
        if hasattr(self, "directory"):
            there = self.store.numbers + self.on_disk()
            assert sorted(there) == self.acknowledged

    @invariant()
    def the_log_keeps_the_order_of_what_was_never_set_aside(self) -> None:
        order = [number for number in self.store.numbers if number not in self.ever_poison()]
        assert order == sorted(order)

    def ever_poison(self) -> set[int]:
        self.seen_poison |= self.poison
        return self.seen_poison

    def teardown(self) -> None:
        try:
            if hasattr(self, "directory"):
                self.bench.pause = False
                for _ in range(100):
                    self.bench.clock.seconds += 61
                    self.run(self.bench.cycle())
                assert self.directory.finished() == []
                assert self.writer.current_events == 0
                assert self.directory.stats().events == 0
                kept = set(self.acknowledged) - set(self.store.numbers)
                assert kept <= self.poison
                assert self.store.rows == {}
                self.stop()
        finally:
            self.loop.close()
            shutil.rmtree(self.root, ignore_errors=True)


Spool.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestSpool = Spool.TestCase
