"""The ready ring: which partitions of a queue probably have work for a group.

One ring per (queue, group). Commits, hints, released leases and reseeds mark partitions; a
pop checks candidates out, asks the database, and reports what it found. Only a report of
`empty`, and only if nobody marked the partition meanwhile (its epoch), clears an entry.
Leased and deferred entries sleep until they fall due.

Wrong in excess costs one empty claim. A partition that is missing is the defect that the
floor and the reseeds bound. Nothing here is needed for correctness.

Imports nothing of ours. Used by flow/announce.py, services/pop.py and flow/floor.py.
"""

import asyncio
import heapq
import itertools
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

LEASED_RECHECK_S = 1.0
ENTRIES_MAX = 200_000
ALARMS_MIN = 1024
# No call takes longer: what was not announced by then was not ours.
OWN_NEWS_S = 35.0

READY, OUT, ASLEEP = range(3)


class Candidate(NamedTuple):
    """A partition that a pop checked out, and the epoch it had then."""

    partition_id: int
    epoch: int


class Entry:
    """One partition in a ring.

    `more`: when the lease on it ends, messages are left. `freed`: it was released while
    somebody was looking, whose report of a lease is old news then. `since`: when it last
    became ready.
    """

    __slots__ = ("epoch", "freed", "lease", "more", "nap", "since", "state")

    def __init__(self, epoch: int) -> None:
        self.state = READY
        self.epoch = epoch
        self.nap = 0
        self.more = False
        self.freed = False
        self.lease = ""
        self.since = time.monotonic()


class Ring:
    """`wake(ring)` is called whenever a partition becomes ready."""

    def __init__(
        self, queue_id: int, group: str, *, alarm: "Alarm", wake: Callable[["Ring", int], None]
    ) -> None:
        self.queue_id = queue_id
        self.group = group
        self.used_at = time.monotonic()
        # What the floor knows: database time of the last look, the wake version seen then,
        # looks since, when the next reseeds are due (de-phased), and whether the last full
        # seed was cut at its limit.
        self.looked_at: object | None = None
        self.wake_version = 0
        self.looks = 0
        self.windowed_at = self.used_at
        self.full_at = self.used_at
        self.cut_short = False
        # When pops that can wait last had it looked at, and whether they have it again soon.
        self.probed_at = 0.0
        self.probe_due = False
        # Moves of the wake version that this broker itself made and the floor has not seen,
        # and moves that the floor saw and nobody here had told of: until when they may still
        # turn out to be our own.
        self.own_moves = 0
        self._strange_moves = 0
        self._strange_until = 0.0
        self._alarm = alarm
        self._wake = wake
        self._entries: dict[int, Entry] = {}
        self._ready: OrderedDict[int, None] = OrderedDict()
        # Of the whole ring: a partition that is cleared and born again gets no old epoch,
        # which a late report could take for its own.
        self._epochs = itertools.count(1)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def ready_count(self) -> int:
        return len(self._ready)

    def oldest_ready_s(self, now: float) -> float:
        """For how long the first in the row has been ready."""
        first = next(iter(self._ready), None)
        return 0.0 if first is None else max(now - self._entries[first].since, 0.0)

    def is_ready(self, partition_id: int) -> bool:
        return partition_id in self._ready

    def moved_back(self) -> None:
        """We moved the wake version ourselves. A look may have seen that before we heard of it:
        counted again, it would hide the next move of somebody else."""
        if self._strange_moves and time.monotonic() < self._strange_until:
            self._strange_moves -= 1
        else:
            self.own_moves += 1

    def woken(self, version: int) -> bool:
        """A look saw this wake version: whether somebody else may have moved it."""
        strange = version - self.wake_version - self.own_moves
        self.wake_version = version
        # A look that is older than our news of ourselves sees the rest the next time.
        self.own_moves = max(-strange, 0)
        if strange <= 0:
            return False
        now = time.monotonic()
        if now >= self._strange_until:
            # Not prolonged by more of them, or our own moves would go for strange for ever.
            self._strange_moves = 0
            self._strange_until = now + OWN_NEWS_S
        self._strange_moves += strange
        return self.looked_at is not None

    def mark(self, partition_id: int) -> bool:
        """Messages were stored, or may have been; True when that made the partition ready."""
        entry = self._entries.get(partition_id)
        if entry is None:
            if len(self._entries) >= ENTRIES_MAX:
                self.cut_short = True
                return False
            self._entries[partition_id] = Entry(next(self._epochs))
            self._ready[partition_id] = None
            self._wake(self, partition_id)
            return True
        # Out: the report must not clear it. Asleep: the lease or delay still holds, and
        # when it ends there is more.
        entry.epoch = next(self._epochs)
        entry.more = True
        return False

    def promote(self, partition_id: int) -> bool:
        """The partition was released (ack, nack, seek): it is ready now if it may have work."""
        entry = self._entries.get(partition_id)
        if entry is None:
            return self.mark(partition_id)
        entry.epoch = next(self._epochs)
        if entry.state == ASLEEP:
            self._rise(partition_id, entry)
            return True
        entry.freed = True
        return False

    def finished(self, partition_id: int, lease: str = "") -> bool:
        """A batch of ours was completed: ready again if it left more, or was marked since;
        True then.

        The news of an older lease may come behind a newer claim, and ends nothing then.
        """
        entry = self._entries.get(partition_id)
        if entry is None:
            return False
        if entry.state != ASLEEP:
            entry.epoch = next(self._epochs)
            entry.freed = True
        elif entry.lease != lease:
            return False
        elif entry.more:
            self._rise(partition_id, entry)
            return True
        else:
            del self._entries[partition_id]
        return False

    def freed(self, partition_id: int) -> None:
        """A batch of another broker was completed: what slept for its lease is looked at."""
        entry = self._entries.get(partition_id)
        if entry is None:
            return
        if entry.state == ASLEEP:
            if entry.more:
                self._rise(partition_id, entry)
            return
        entry.epoch = next(self._epochs)
        entry.freed = True

    def check_out(self, count: int) -> list[Candidate]:
        """Take up to `count` ready partitions, the longest ready first."""
        self.used_at = time.monotonic()
        taken: list[Candidate] = []
        while self._ready and len(taken) < count:
            partition_id, _ = self._ready.popitem(last=False)
            entry = self._entries[partition_id]
            entry.state = OUT
            entry.freed = False
            taken.append(Candidate(partition_id, entry.epoch))
        return taken

    def take(self, partition_id: int) -> Candidate:
        """Check out this one, whatever is believed of it: a pop that names its partition."""
        self.used_at = time.monotonic()
        entry = self._entries.get(partition_id)
        if entry is None:
            entry = self._entries[partition_id] = Entry(next(self._epochs))
        entry.state = OUT
        entry.freed = False
        self._ready.pop(partition_id, None)
        return Candidate(partition_id, entry.epoch)

    def put_back(self, candidates: Iterable[Candidate]) -> None:
        """Not looked at: as if they had never been taken."""
        for partition_id, _ in reversed(list(candidates)):
            entry = self._entries.get(partition_id)
            if entry is not None and entry.state == OUT:
                entry.state = READY
                self._ready[partition_id] = None
                self._ready.move_to_end(partition_id, last=False)

    def empty(self, candidate: Candidate) -> None:
        """Nothing beyond the cursor: cleared, unless it was marked since it was taken."""
        entry = self._entries.get(candidate.partition_id)
        if entry is None or entry.state != OUT:
            return
        if entry.epoch == candidate.epoch:
            del self._entries[candidate.partition_id]
        else:
            self._rise(candidate.partition_id, entry)

    def took(self, candidate: Candidate, *, more: bool, committed: bool, lease: str = "") -> None:
        """Claimed. Under a lease it sleeps until released; else it may go on at once."""
        entry = self._entries.get(candidate.partition_id)
        if entry is None:
            return
        more = more or entry.epoch != candidate.epoch
        if entry.state != OUT:  # two pops had named it, and the other one has reported
            entry.more = entry.more or more
            entry.lease = lease
        elif not committed:
            entry.lease = lease
            self._sleep(candidate.partition_id, entry, LEASED_RECHECK_S)
            entry.more = more
        elif more:
            self._rise(candidate.partition_id, entry)
        else:
            del self._entries[candidate.partition_id]

    def until(self, candidate: Candidate, delay_s: float, *, leased: bool) -> None:
        """Leased by somebody, or deferred: asleep until then (a leased one is looked at sooner)."""
        entry = self._entries.get(candidate.partition_id)
        if entry is None:
            return
        entry.more = True
        if entry.state != OUT:
            return
        if entry.freed:
            self._rise(candidate.partition_id, entry)
            return
        if leased:
            delay_s = min(delay_s, LEASED_RECHECK_S)
        self._sleep(candidate.partition_id, entry, max(delay_s, 0.001))

    def gone(self, candidate: Candidate) -> None:
        self._entries.pop(candidate.partition_id, None)
        self._ready.pop(candidate.partition_id, None)

    def seed(self, partition_id: int, delay_s: float | None) -> None:
        """What a look at the database found: ready, or due in so many seconds."""
        entry = self._entries.get(partition_id)
        if entry is not None:
            # Unread, but leased or deferred: nobody can tell whether by more than the batch.
            entry.epoch = next(self._epochs)
            entry.more = True
            if delay_s is None and entry.state == ASLEEP:
                self._rise(partition_id, entry)
            return
        if delay_s is None:
            self.mark(partition_id)
        elif len(self._entries) >= ENTRIES_MAX:
            self.cut_short = True
        else:
            entry = self._entries[partition_id] = Entry(next(self._epochs))
            entry.more = True
            self._sleep(partition_id, entry, max(min(delay_s, LEASED_RECHECK_S), 0.001))

    def clear(self) -> None:
        self._entries.clear()
        self._ready.clear()

    def rouse_all(self) -> None:
        """What they sleep for may have changed (a configuration): each is looked at anew."""
        for partition_id, entry in list(self._entries.items()):
            if entry.state == ASLEEP:
                self._rise(partition_id, entry)

    def naps(self, partition_id: int, nap: int) -> bool:
        """Whether it still sleeps this nap; one that something else ended is not this one."""
        entry = self._entries.get(partition_id)
        return entry is not None and entry.state == ASLEEP and entry.nap == nap

    def rouse(self, partition_id: int, nap: int) -> None:
        """Its alarm went off."""
        if self.naps(partition_id, nap):
            self._rise(partition_id, self._entries[partition_id])

    def _rise(self, partition_id: int, entry: Entry) -> None:
        entry.state = READY
        entry.since = time.monotonic()
        self._ready[partition_id] = None
        self._wake(self, partition_id)

    def _sleep(self, partition_id: int, entry: Entry, delay_s: float) -> None:
        entry.state = ASLEEP
        entry.nap = self._alarm.set(self, partition_id, delay_s)


class Alarm:
    """One timer for every sleeping partition of every ring."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ring, int]] = []
        self._naps = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0
        self._heap_max = ALARMS_MIN

    def set(self, ring: Ring, partition_id: int, delay_s: float) -> int:
        nap = next(self._naps)
        due = time.monotonic() + delay_s
        heapq.heappush(self._heap, (due, nap, ring, partition_id))
        if len(self._heap) > self._heap_max:
            self._forget_ended()
        if self._timer is None or due < self._rings_at:
            self._arm()
        return nap

    def __len__(self) -> int:
        return len(self._heap)

    def _forget_ended(self) -> None:
        """Alarms of naps that something else ended would lie here until they are due."""
        self._heap = [one for one in self._heap if one[2].naps(one[3], one[1])]
        heapq.heapify(self._heap)
        self._heap_max = max(ALARMS_MIN, 2 * len(self._heap))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._rings_at = self._heap[0][0]
            delay_s = max(self._rings_at - time.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.go_off)

    def go_off(self) -> None:
        """Rouse everything that is due; also called by tests that own the clock."""
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            _, nap, ring, partition_id = heapq.heappop(self._heap)
            ring.rouse(partition_id, nap)
        self._timer = None
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._heap.clear()


class Rings:
    """Every ring of the process, found by queue and by (queue, group)."""

    def __init__(self, wake: Callable[[Ring, int], None]) -> None:
        self._wake = wake
        self._rings: dict[int, dict[str, Ring]] = {}
        self.alarm = Alarm()

    def ring(self, queue_id: int, group: str) -> Ring:
        """The ring, made when missing: it knows nothing until it is seeded."""
        groups = self._rings.setdefault(queue_id, {})
        found = groups.get(group)
        if found is None:
            found = groups[group] = Ring(queue_id, group, alarm=self.alarm, wake=self._wake)
        return found

    def find(self, queue_id: int, group: str) -> Ring | None:
        return self._rings.get(queue_id, {}).get(group)

    def of(self, queue_id: int) -> list[Ring]:
        return list(self._rings.get(queue_id, {}).values())

    def mark(self, queue_id: int, partition_id: int) -> None:
        """Messages were stored in a partition: every group's ring hears of it."""
        for ring in self._rings.get(queue_id, {}).values():
            ring.mark(partition_id)

    def rouse(self, queue_id: int) -> None:
        for ring in self._rings.get(queue_id, {}).values():
            ring.rouse_all()

    def drop(self, queue_id: int) -> None:
        for ring in self._rings.pop(queue_id, {}).values():
            ring.clear()

    def drop_all(self) -> None:
        for queue_id in list(self._rings):
            self.drop(queue_id)

    def sweep(self, idle_s: float, kept: Callable[[Ring], bool]) -> None:
        """Drop rings that no pop has used for so long, unless somebody sits at them."""
        oldest = time.monotonic() - idle_s
        for queue_id, groups in list(self._rings.items()):
            for group, ring in list(groups.items()):
                if ring.used_at < oldest and not kept(ring):
                    del groups[group]
                    ring.clear()
            if not groups:
                del self._rings[queue_id]

    def oldest_ready_s(self) -> float:
        """For how long the partition has been ready that has been so for longest."""
        now = time.monotonic()
        return max((ring.oldest_ready_s(now) for ring in self.all()), default=0.0)

    def all(self) -> list[Ring]:
        return [ring for groups in self._rings.values() for ring in groups.values()]

    @staticmethod
    def dephased(interval_s: float) -> float:
        """An interval, a little longer or shorter, so that rings do not reseed together."""
        return interval_s * random.uniform(0.8, 1.2)
