"""Admission: who may start a write transaction now.

Whoever writes takes a slot of its lane first and a connection second, always in that order.
The slots of a process have one budget. Any lane may use any free slot; the shares only say
who comes first when none is free: lanes below their share, then acks, pops, pushes,
maintenance. Within a lane it is first come, first served.

A slot is counted at the moment it is handed over, not when its taker wakes: nobody can
come in between, and a taker that is cancelled in that moment hands it on. Taking a free
slot waits for nothing.

Imports config, errors, flow/commit_trains. Used by services/, flow/ and runtime.py, which
hands a slot to store/combine.py; flow/regulation.py moves the budget and the caps.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Literal

from brokers.config import AdmissionConfig
from brokers.errors import NoConnection
from brokers.flow.commit_trains import CommitTrains

Kind = Literal["push", "pop", "ack", "maint"]
KINDS: tuple[Kind, ...] = ("push", "pop", "ack", "maint")
# Who is served first among equals: what frees, what delivers, what fills, what can wait.
ORDER: tuple[Kind, ...] = ("ack", "pop", "push", "maint")

# A lane without a share gets one grant in so many, too.
SHARE_MIN = 0.01
WAIT_S = 30.0
TOO_BUSY = "the broker has more to write than it may have in flight: retry"


class Line:
    """One lane: its slots in flight and those who wait for one, the longest waiting first."""

    def __init__(self, kind: Kind, share: float) -> None:
        self.kind = kind
        self.share = share
        self.in_flight = 0
        self.cap = 0
        self.share_slots = 0.0
        # How many grants to others it has seen since it last got one, while it waited.
        self.passed_over = 0
        self.granted = 0
        self.queued = 0
        self.peak = 0
        # Claims commit asynchronously: they do not ride in the log's trains.
        self.commits = kind != "pop"
        self.waiters: OrderedDict[asyncio.Future[None], float] = OrderedDict()

    def oldest_wait_s(self, now: float) -> float:
        return now - next(iter(self.waiters.values())) if self.waiters else 0.0

    def is_below_share(self) -> bool:
        """Whether one more slot is within its share; a lane that has none is below it."""
        if not self.in_flight:
            return self.share > 0 or self.overdue() >= 1
        return self.in_flight + 1 <= self.share_slots

    def overdue(self) -> float:
        """1 or more: by its share of the grants it would have been served by now."""
        return (self.passed_over + 1) * max(self.share, SHARE_MIN)


class Slot:
    """`async with admission.slot("ack"): ...` One transaction may be in flight meanwhile."""

    __slots__ = ("_admission", "_line", "_wait_s", "began")

    def __init__(self, admission: "Admission", line: Line, wait_s: float | None) -> None:
        self._admission = admission
        self._line = line
        self._wait_s = wait_s
        self.began = 0.0

    async def __aenter__(self) -> None:
        admission, line = self._admission, self._line
        if admission.taken < admission.budget and line.in_flight < line.cap and not line.waiters:
            admission.taken += 1
            line.in_flight += 1
        else:
            await admission.wait(line, self._wait_s)
        self.began = admission.clock()
        admission.live[self] = None
        line.granted += 1
        if line.in_flight > line.peak:
            line.peak = line.in_flight

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        admission, line = self._admission, self._line
        del admission.live[self]
        admission.give_back(line)
        if kind is None and line.commits:
            admission.trains.completed(admission.clock(), more=admission.taken > 0)


class Admission:
    """The arbiter. `budget` and the lanes' caps are moved by whoever regulates it."""

    def __init__(
        self, config: AdmissionConfig, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        shares = (config.share_push, config.share_pop, config.share_ack, config.share_maint)
        self.lines = {kind: Line(kind, share) for kind, share in zip(KINDS, shares, strict=True)}
        self._order = [self.lines[kind] for kind in ORDER]
        self.clock = clock
        self.taken = 0
        self.budget = 0
        # Live slots, the oldest first.
        self.live: dict[Slot, None] = {}
        self.trains = CommitTrains(config.train_gap_us / 1e6)
        # Whether somebody had to wait because the budget was used up, since this was reset.
        self.saturated = False
        # How long single calls wait in line; less while the database is away.
        self.wait_s = WAIT_S
        self.set_budget(max(config.init, 1))
        self.set_caps(dict.fromkeys(KINDS, max(config.max, self.budget)))

    def slot(self, kind: Kind) -> Slot:
        """For those who share calls and for chores: they wait as long as it takes."""
        return Slot(self, self.lines[kind], None)

    def call_slot(self, kind: Kind) -> Slot:
        """For one caller's own call. Raises NoConnection when the wait is too long."""
        return Slot(self, self.lines[kind], self.wait_s)

    @property
    def in_flight(self) -> dict[Kind, int]:
        return {kind: line.in_flight for kind, line in self.lines.items()}

    def waiting(self, kind: Kind) -> int:
        return len(self.lines[kind].waiters)

    def set_budget(self, budget: int) -> None:
        assert budget >= 1
        self.budget = budget
        for line in self._order:
            line.share_slots = line.share * budget
        self._serve()

    def set_caps(self, caps: dict[Kind, int]) -> None:
        """How many slots each lane may have at most, whatever is free; one at least."""
        for kind, cap in caps.items():
            self.lines[kind].cap = max(cap, 1)
        self._serve()

    async def wait(self, line: Line, wait_s: float | None) -> None:
        """Stand in line until a slot is handed over."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        line.waiters[turn] = self.clock()
        line.queued += 1
        if self.taken >= self.budget:
            self.saturated = True
        alarm = None if wait_s is None else loop.call_later(wait_s, _give_up, turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                # Cancelled in the moment of the hand-over: the slot was ours already.
                self.give_back(line)
            else:
                line.waiters.pop(turn, None)
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    def give_back(self, line: Line) -> None:
        self.taken -= 1
        line.in_flight -= 1
        assert line.in_flight >= 0
        self._serve()

    def _serve(self) -> None:
        """Hand free slots to those who wait."""
        while self.taken < self.budget:
            line = self._next()
            if line is None:
                return
            turn, _ = line.waiters.popitem(last=False)
            if turn.done():
                continue  # cancelled, or out of time, and not awake yet
            self.taken += 1
            line.in_flight += 1
            for other in self._order:
                if other.waiters and other is not line:
                    other.passed_over += 1
            line.passed_over = 0
            turn.set_result(None)

    def _next(self) -> Line | None:
        ready = [line for line in self._order if line.waiters and line.in_flight < line.cap]
        if len(ready) < 2:
            return ready[0] if ready else None
        first = [line for line in ready if line.is_below_share()]
        if len(first) > 1:
            # There may be fewer slots than lanes: then the order alone would starve the last.
            latest = max(first, key=Line.overdue)
            if latest.overdue() >= 1:
                return latest
        return (first or ready)[0]


def _give_up(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_exception(NoConnection(TOO_BUSY))
