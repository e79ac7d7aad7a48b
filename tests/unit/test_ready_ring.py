"""The ready ring: no partition that has work is forgotten, whatever happens in which order.

Method: a small model stands for the database (offsets, cursors, leases), and random but
repeatable schedules push, look, report, acknowledge, cancel and let time pass, with news and
reports as late as they can be. The tests own the clock: nothing here waits.
QUEEN_TEST_EXAMPLES=100000 looks further, at random.
"""

import os
import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from brokers.flow import ready
from brokers.flow.ready import ASLEEP, LEASED_RECHECK_S, OUT, READY, Candidate, Ring, Rings

SCHEDULES = 10_000
STEPS = 40
LEASE_S = 30.0


class Clock:
    """Stands where the ring looks for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(ready, "time", clock)
    return clock


@pytest.fixture
async def rings(clock: Clock):
    """Rings whose bells are collected in `rung`; async, for the alarm wants a loop."""
    made = Rungs()
    yield made
    made.alarm.close()


class Rungs(Rings):
    def __init__(self) -> None:
        super().__init__(lambda ring, partition_id: self.rung.append(partition_id))
        self.rung: list[int] = []


@pytest.fixture
def ring(rings: Rungs) -> Ring:
    return rings.ring(1, "group")


def pass_time(rings: Rings, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    rings.alarm.go_off()


def ids(candidates: list[Candidate]) -> list[int]:
    return [one.partition_id for one in candidates]


# --- one step at a time -------------------------------------------------------------------------


async def test_partitions_are_handed_out_the_longest_ready_first_and_once(ring, rings):
    for partition in (3, 1, 2, 1):
        ring.mark(partition)
    assert rings.rung == [3, 1, 2], "one bell for each that became ready"
    assert ids(ring.check_out(2)) == [3, 1]
    assert ids(ring.check_out(9)) == [2]
    assert ring.check_out(9) == []


async def test_what_was_not_looked_at_goes_back_to_the_front_in_its_old_order(ring):
    for partition in range(5):
        ring.mark(partition)
    taken = ring.check_out(3)
    ring.put_back(taken[1:])
    ring.put_back(taken[:1])
    assert ids(ring.check_out(9)) == [0, 1, 2, 3, 4]


async def test_empty_clears_a_partition(ring):
    ring.mark(1)
    [candidate] = ring.check_out(1)
    ring.empty(candidate)
    assert len(ring) == 0


async def test_empty_does_not_clear_what_was_marked_since_it_was_taken(ring, rings):
    """The look was before the push, its report comes after it."""
    ring.mark(1)
    [candidate] = ring.check_out(1)
    ring.mark(1)
    ring.empty(candidate)
    assert ids(ring.check_out(1)) == [1]
    assert rings.rung == [1, 1]


async def test_an_old_report_of_empty_does_not_clear_a_partition_that_was_born_again(ring):
    """Two pops name one partition; between their reports it was cleared and marked anew."""
    first, second = ring.take(1), ring.take(1)
    ring.empty(first)
    ring.mark(1)
    [third] = ring.check_out(1)
    ring.empty(second)
    ring.took(third, more=True, committed=False)
    ring.finished(1)
    assert ids(ring.check_out(1)) == [1]


async def test_a_leased_partition_is_looked_at_again_after_a_second_at_most(ring, rings, clock):
    ring.mark(1)
    ring.until(*ring.check_out(1), LEASE_S, leased=True)
    pass_time(rings, clock, LEASED_RECHECK_S - 0.01)
    assert ring.ready_count == 0
    pass_time(rings, clock, 0.02)
    assert ids(ring.check_out(1)) == [1]
    assert rings.rung == [1, 1]


async def test_a_deferred_partition_sleeps_until_it_is_due(ring, rings, clock):
    ring.mark(1)
    ring.until(*ring.check_out(1), 20.0, leased=False)
    pass_time(rings, clock, 19.0)
    assert ring.ready_count == 0
    pass_time(rings, clock, 1.5)
    assert ids(ring.check_out(1)) == [1]


async def test_alarms_go_off_in_the_order_in_which_they_are_due(ring, rings, clock):
    for partition in (1, 2, 3):
        ring.mark(partition)
    for candidate, delay_s in zip(ring.check_out(3), (30.0, 10.0, 20.0), strict=True):
        ring.until(candidate, delay_s, leased=False)
    rings.rung.clear()
    for _ in range(3):
        pass_time(rings, clock, 10.5)
    assert rings.rung == [2, 3, 1]


async def test_an_alarm_of_an_earlier_sleep_does_not_end_a_later_one(ring, rings, clock):
    ring.mark(1)
    ring.until(*ring.check_out(1), 5.0, leased=False)
    ring.promote(1)
    ring.until(*ring.check_out(1), 60.0, leased=False)
    pass_time(rings, clock, 6.0)
    assert ring.ready_count == 0


async def test_alarms_of_ended_naps_do_not_pile_up(ring, rings, clock):
    """A partition that is deferred, and polled by its name all the while."""
    ring.mark(7)
    ring.until(*ring.check_out(1), 10.0, leased=False)
    for _ in range(20_000):
        ring.until(ring.take(1), 20.0, leased=False)
    assert len(rings.alarm) <= 2 * ready.ALARMS_MIN
    pass_time(rings, clock, 11.0)
    assert ids(ring.check_out(9)) == [7]
    pass_time(rings, clock, 10.0)
    assert ids(ring.check_out(9)) == [1]


async def test_a_ring_that_is_dropped_leaves_no_alarm_that_matters(ring, rings, clock):
    ring.mark(1)
    ring.until(*ring.check_out(1), 5.0, leased=False)
    rings.drop(ring.queue_id)
    rings.rung.clear()
    pass_time(rings, clock, 6.0)
    assert rings.rung == []


async def test_a_completed_batch_that_left_more_is_ready_at_once(ring, rings):
    ring.mark(1)
    ring.took(*ring.check_out(1), more=True, committed=False)
    ring.finished(1)
    assert rings.rung == [1, 1]
    assert ids(ring.check_out(1)) == [1]


async def test_a_completed_batch_that_was_the_last_clears_the_partition(ring):
    ring.mark(1)
    ring.took(*ring.check_out(1), more=False, committed=False)
    ring.finished(1)
    assert len(ring) == 0


async def test_what_is_stored_while_a_batch_is_out_is_ready_when_it_completes(ring, rings):
    """The commonest case of all: a producer pushes while the consumer works."""
    ring.mark(1)
    ring.took(*ring.check_out(1), more=False, committed=False)
    ring.mark(1)
    ring.finished(1)
    assert rings.rung == [1, 1]
    assert ids(ring.check_out(1)) == [1]


async def test_what_is_stored_while_a_claim_is_under_way_is_ready_when_it_completes(ring):
    ring.mark(1)
    [candidate] = ring.check_out(1)
    ring.mark(1)
    ring.took(candidate, more=False, committed=False)
    ring.finished(1)
    assert ids(ring.check_out(1)) == [1]


async def test_a_claim_that_commits_goes_on_at_once_if_it_left_more(ring, rings):
    ring.mark(1)
    ring.took(*ring.check_out(1), more=True, committed=True)
    ring.took(*ring.check_out(1), more=False, committed=True)
    assert len(ring) == 0
    assert rings.rung == [1, 1]


async def test_the_later_of_two_claims_tells_what_is_left(ring):
    """Two pops name one partition: the second claims what another broker released."""
    first, second = ring.take(1), ring.take(1)
    ring.took(first, more=False, committed=False)
    ring.took(second, more=True, committed=False)
    ring.finished(1)
    assert ids(ring.check_out(1)) == [1]


async def test_a_released_partition_is_ready_at_once(ring, rings):
    ring.mark(1)
    ring.took(*ring.check_out(1), more=False, committed=False)
    ring.promote(1)
    assert rings.rung == [1, 1]
    assert ids(ring.check_out(1)) == [1]


async def test_a_partition_released_while_somebody_looks_is_looked_at_again_at_once(ring, rings):
    """The look saw the lease; the news of its end came before the report of the look."""
    ring.mark(1)
    ring.until(*ring.check_out(1), LEASE_S, leased=True)
    for release in (ring.promote, ring.finished):
        candidate = ring.take(1)
        release(1)
        ring.until(candidate, LEASE_S, leased=True)
        assert ids(ring.check_out(1)) == [1], release
        ring.until(ring.take(1), LEASE_S, leased=True)
        assert ring.ready_count == 0, "that news is used up"


async def test_pushes_to_a_leased_partition_do_not_have_it_looked_at_again_and_again(ring):
    ring.mark(1)
    for _ in range(3):
        candidate = ring.take(1)
        ring.mark(1)
        ring.until(candidate, LEASE_S, leased=True)
        ring.mark(1)
        assert ring.ready_count == 0


async def test_a_partition_that_is_gone_is_forgotten_whatever_its_state(ring, rings, clock):
    for partition in (1, 2, 3):
        ring.mark(partition)
    taken = ring.check_out(3)
    ring.until(taken[0], 1.0, leased=True)
    ring.put_back([taken[1]])
    for candidate in taken:
        ring.gone(candidate)
    pass_time(rings, clock, 2.0)
    assert (len(ring), ring.ready_count, ring.check_out(9)) == (0, 0, [])


async def test_a_seed_rouses_what_sleeps_and_adds_what_was_not_known(ring, rings, clock):
    ring.mark(1)
    ring.until(*ring.check_out(1), 60.0, leased=False)
    ring.seed(1, None)
    ring.seed(2, None)
    ring.seed(3, 0.5)
    assert ids(ring.check_out(9)) == [1, 2]
    pass_time(rings, clock, 0.6)
    assert ids(ring.check_out(9)) == [3]


async def test_a_ring_is_bounded_and_says_that_it_was_cut_short(ring, monkeypatch):
    monkeypatch.setattr(ready, "ENTRIES_MAX", 10)
    for partition in range(20):
        ring.mark(partition)
    assert len(ring) == 10
    assert ring.cut_short


async def test_a_seed_beyond_the_bound_says_that_the_ring_was_cut_short(ring, monkeypatch):
    monkeypatch.setattr(ready, "ENTRIES_MAX", 10)
    for partition in range(20):
        ring.seed(partition, 0.5)
    assert len(ring) == 10
    assert ring.cut_short


async def test_a_mark_reaches_every_group_of_the_queue_and_no_other_queue(rings):
    groups = [rings.ring(1, "a"), rings.ring(1, "b")]
    other = rings.ring(2, "a")
    rings.mark(1, 7)
    assert [one.ready_count for one in groups] == [1, 1]
    assert other.ready_count == 0


async def test_a_ring_that_no_pop_has_used_is_swept_unless_somebody_sits_at_it(rings, clock):
    idle, seated = rings.ring(1, "idle"), rings.ring(1, "seated")
    clock.now += 400
    busy = rings.ring(2, "busy")
    rings.sweep(300, kept=lambda one: one is seated)
    assert rings.find(1, "idle") is None
    assert rings.find(1, "seated") is seated
    assert rings.find(2, "busy") is busy
    assert rings.ring(1, "idle") is not idle


# --- the wake version ----------------------------------------------------------------------------


@pytest.fixture
def watched(ring, clock) -> Ring:
    """A ring of some age; its queue and group had been moved back five times before."""
    assert ring.woken(5) is False
    ring.looked_at = object()
    clock.now += 60
    return ring


async def test_a_move_of_our_own_needs_no_full_look(watched):
    watched.moved_back()
    assert watched.woken(6) is False
    assert watched.woken(6) is False


async def test_a_move_of_somebody_else_needs_one_full_look(watched):
    watched.moved_back()
    assert watched.woken(7) is True
    assert watched.woken(7) is False


async def test_a_move_that_a_look_saw_before_we_heard_of_it_hides_no_later_one(watched):
    """Our nack committed, the floor looked, and only then came the answer of the nack."""
    assert watched.woken(6) is True, "better once too often"
    watched.moved_back()
    assert watched.woken(7) is True, "this one is somebody else's"


async def test_a_move_that_the_first_look_of_all_saw_before_we_heard_of_it_hides_none(ring):
    assert ring.woken(6) is False
    ring.looked_at = object()
    ring.moved_back()
    assert ring.woken(7) is True


async def test_a_look_that_is_older_than_our_news_hides_a_move_for_one_look_at_most(watched):
    """Somebody moved, the floor looked, we moved and said so, and the look's answer came."""
    watched.moved_back()
    assert watched.woken(6) is False
    assert watched.woken(7) is True


async def test_a_look_that_is_older_than_our_news_does_not_forget_them(watched):
    watched.moved_back()
    assert watched.woken(5) is False
    assert watched.woken(6) is False


async def test_our_own_moves_do_not_go_for_strange_for_ever(watched, clock):
    assert watched.woken(6) is True
    version, full = 6, []
    for _ in range(100):
        clock.now += 1
        version += 1
        watched.moved_back()
        full.append(watched.woken(version))
    assert not any(full[40:])


# --- random schedules -----------------------------------------------------------------------------


@dataclass
class Row:
    """One partition in the database, and what is not yet known of it here."""

    last: int = 0
    committed: int = 0
    lease: int | None = None
    lease_end: int = 0
    expires_at: float = 0.0
    # When each message is due; a queue that defers hands none out before.
    due: list[float] = field(default_factory=list)
    # News on their way to the ring, and whether some will never come (another broker's).
    untold: int = 0
    unknown: bool = False


@dataclass
class Visit:
    """A pop: its candidate, and what its look found, once it has looked."""

    candidate: Candidate
    auto_ack: bool
    verdict: str = ""
    delay_s: float = 0.0
    more: bool = False
    lease: int | None = None


class Schedule:
    """One random history. `look` is where the database answers, `report` where the ring hears."""

    def __init__(self, seed: int, rings: Rings, clock: Clock) -> None:
        self.random = random.Random(seed)
        self.rings, self.clock = rings, clock
        self.ring = rings.ring(seed, "group")
        self.rows = {number: Row() for number in range(1, self.random.choice((1, 2, 4)) + 1)}
        self.delay_s = self.random.choice((0.0, 0.0, 5.0))
        self.checked_out: list[Visit] = []
        self.looked: deque[Visit] = deque()
        self.news: list[tuple[str, int]] = []
        self.leases: dict[int, int] = {}
        self.lease_no = 0
        self.history: list[str] = []

    def run(self) -> None:
        steps = [
            *[self.push] * 4,
            self.push_elsewhere,
            *[self.tell] * 3,
            *[self.check_out] * 4,
            self.take,
            *[self.look] * 4,
            *[self.report] * 4,
            self.cancel,
            *[self.complete] * 2,
            self.give_up,
            self.seek_back,
            self.consume_elsewhere,
            self.probe,
            *[self.time_passes] * 2,
        ]
        for _ in range(STEPS):
            step = self.random.choice(steps)
            self.history.append(step.__name__)
            step()
            self.check()
        self.settle()

    # What happens

    def any_row(self) -> tuple[int, Row]:
        return self.random.choice(list(self.rows.items()))

    def push(self) -> None:
        partition, row = self.any_row()
        self._store(row)
        row.untold += 1
        self.news.append(("mark", partition))
        if self.random.random() < 0.6:
            self.tell()

    def push_elsewhere(self) -> None:
        _, row = self.any_row()
        self._store(row)
        row.unknown = True

    def _store(self, row: Row) -> None:
        row.last += 1
        row.due.append(self.clock.now + self.delay_s)

    def tell(self) -> None:
        """News reach the ring, in any order."""
        if self.news:
            what, partition = self.news.pop(self.random.randrange(len(self.news)))
            getattr(self.ring, what)(partition)
            self.rows[partition].untold -= 1

    def check_out(self) -> None:
        self._visit(self.ring.check_out(self.random.randint(1, 3)))

    def take(self) -> None:
        partition, _ = self.any_row()
        self._visit([self.ring.take(partition)])

    def _visit(self, candidates: list[Candidate]) -> None:
        auto_ack = self.random.random() < 0.3
        self.checked_out += [Visit(candidate, auto_ack) for candidate in candidates]

    def look(self) -> None:
        """The database answers one pop; calls are one after the other, and so are reports."""
        if not self.checked_out:
            return
        visit = self.checked_out.pop(self.random.randrange(len(self.checked_out)))
        self.looked.append(visit)
        row = self.rows[visit.candidate.partition_id]
        visible = row.committed + sum(
            due <= self.clock.now for due in row.due[row.committed : row.last]
        )
        if row.lease is not None and row.expires_at > self.clock.now:
            visit.verdict, visit.delay_s = "leased", row.expires_at - self.clock.now
        elif row.last <= row.committed:
            visit.verdict = "empty"
        elif visible <= row.committed:
            visit.verdict, visit.delay_s = "deferred", row.due[row.committed] - self.clock.now
        elif self.random.random() < 0.05:
            visit.verdict = "busy"
        else:
            visit.verdict = "took"
            end = self.random.randint(row.committed + 1, visible)
            visit.more = row.last > end
            if visit.auto_ack:
                row.committed, row.lease = end, None
            else:
                self.lease_no += 1
                visit.lease = row.lease = self.lease_no
                row.lease_end, row.expires_at = end, self.clock.now + LEASE_S

    def report(self) -> None:
        if not self.looked:
            return
        visit = self.looked.popleft()
        one = visit.candidate
        if visit.verdict == "took":
            self.ring.took(one, more=visit.more, committed=visit.auto_ack)
            if visit.lease is not None:
                self.leases[visit.lease] = one.partition_id
        elif visit.verdict == "empty":
            self.ring.empty(one)
        elif visit.verdict == "busy":
            self.ring.put_back([one])
        else:
            self.ring.until(one, visit.delay_s, leased=visit.verdict == "leased")

    def cancel(self) -> None:
        """A pop ends before its report; what it was given is handed back a moment later."""
        if self.looked and self.random.random() < 0.5:
            visit = self.looked.popleft()
            self.ring.put_back([visit.candidate])
            if visit.lease is not None:
                self._release(visit.lease, visit.candidate.partition_id)
        elif self.checked_out:
            self.ring.put_back([self.checked_out.pop().candidate])

    def _release(self, lease: int, partition: int) -> None:
        row = self.rows[partition]
        if row.lease == lease:
            row.lease = None
            row.untold += 1
            self.news.append(("promote", partition))

    def _own_lease(self) -> tuple[int, int] | None:
        if not self.leases:
            return None
        lease = self.random.choice(list(self.leases))
        return lease, self.leases.pop(lease)

    def complete(self) -> None:
        """A whole batch of ours is acknowledged; the news of it come at once."""
        if own := self._own_lease():
            lease, partition = own
            row = self.rows[partition]
            if row.lease == lease and row.expires_at > self.clock.now:
                row.committed, row.lease = row.lease_end, None
                self.ring.finished(partition)

    def give_up(self) -> None:
        """A nack, or a part of the batch: the lease ends, the cursor moves or not."""
        if own := self._own_lease():
            lease, partition = own
            row = self.rows[partition]
            if row.lease == lease and row.expires_at > self.clock.now:
                row.committed = self.random.randint(row.committed, row.lease_end - 1)
                self._release(lease, partition)

    def seek_back(self) -> None:
        partition, row = self.any_row()
        if row.committed and self.random.random() < 0.3:
            row.committed = self.random.randrange(row.committed)
            row.lease = None
            row.untold += 1
            self.news.append(("promote", partition))

    def consume_elsewhere(self) -> None:
        """Another broker's consumer, of which nobody tells us."""
        _, row = self.any_row()
        if row.lease is not None and row.expires_at > self.clock.now:
            row.lease = None
            row.committed = self.random.randint(row.committed, row.lease_end)
        elif row.last > row.committed:
            row.committed = self.random.randint(row.committed, row.last)

    def probe(self) -> None:
        """A look of the floor at everything."""
        for partition, row in self.rows.items():
            if row.last <= row.committed:
                row.unknown = False
                continue
            due = max(row.due[row.committed], row.expires_at if row.lease is not None else 0.0)
            delay_s = due - self.clock.now
            self.ring.seed(partition, delay_s if delay_s > 0 else None)
            row.unknown = False

    def time_passes(self) -> None:
        step_s = self.random.choice((0.001, 0.3, 1.1, 6.0, LEASE_S + 1))
        if step_s > 0.001:  # no report is as late as that
            while self.looked:
                self.report()
        pass_time(self.rings, self.clock, step_s)

    # What must hold

    def check(self) -> None:
        """Work that the ring can know of is ready, with somebody, or asleep with an alarm."""
        out = {visit.candidate.partition_id for visit in (*self.checked_out, *self.looked)}
        for partition, row in self.rows.items():
            if row.last <= row.committed or row.untold or row.unknown or partition in out:
                continue
            entry = self.ring._entries.get(partition)
            assert entry is not None, self._story(partition, "forgotten")
            assert entry.state != OUT, self._story(partition, "with nobody")
            if entry.state == READY:
                assert partition in self.ring._ready, self._story(partition, "not in the row")
            else:
                assert entry.state == ASLEEP
                alarms = [due for due, nap, *_ in self.rings.alarm._heap if nap == entry.nap]
                assert alarms, self._story(partition, "asleep without an alarm")
                due = row.due[row.committed] if self.delay_s else 0.0
                latest = max(due, self.clock.now) + LEASED_RECHECK_S + 0.05
                assert alarms[0] <= latest, self._story(partition, "sleeps too long")

    def settle(self) -> None:
        """Let everyone finish: then all there is gets consumed, without any floor."""
        while self.news:
            self.tell()
        while self.checked_out:
            self.look()
        while self.looked:
            self.report()
        for _ in range(8 + 2 * sum(row.last for row in self.rows.values())):
            while self.leases:
                self.complete()
            pass_time(self.rings, self.clock, LEASE_S + 1)
            self.check_out()
            while self.checked_out:
                self.look()
            while self.looked:
                self.report()
        left = [n for n, row in self.rows.items() if row.last > row.committed and not row.unknown]
        assert not left, self._story(left[0], "never consumed")

    def _story(self, partition: int, what: str) -> str:
        return f"partition {partition} is {what} after {' '.join(self.history)}"


async def test_no_partition_that_has_work_is_forgotten_in_any_of_10000_schedules(rings, clock):
    examples = os.environ.get("QUEEN_TEST_EXAMPLES")
    first = random.randrange(10**9) if examples else 0
    for seed in range(first, first + int(examples or SCHEDULES)):
        try:
            Schedule(seed, rings, clock).run()
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}: {error}") from error
        rings.drop(seed)
