"""How long the sweeper sleeps, and the bell that cuts a sleep short.

The law is a pure function of what a cycle saw. Between cycles the bell keeps one promise,
the time of the next look; whoever schedules an earlier timer here moves it forward, so
that no probe is spent to learn what we know.

Imports config. Used by services/sweeper.py, services/timers.py and runtime.py.
"""

import asyncio
import time
from dataclasses import dataclass

from brokers.config import SweeperConfig

# A peer has what was due: come back when it may be gone, and not all at once.
CONTENDED_MIN_S = 0.025
CONTENDED_MAX_S = 0.200


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a cycle saw. `next_due_s` counts from the end of the cycle; None: nothing is due soon.

    `due` timers were there at its start; it took `claimed` of them, and `cut_short` says
    that a bound of the cycle ended it and not the lack of work.
    """

    due: int = 0
    claimed: int = 0
    cut_short: bool = False
    next_due_s: float | None = None
    idle_cycles: int = 0


def sleep_s(config: SweeperConfig, seen: Seen, chance: float) -> float:
    """The time until the next cycle; `chance` is a number from 0 to 1."""
    shortest, longest = config.min_sleep_ms / 1000, config.max_sleep_ms / 1000
    if seen.cut_short:
        return shortest
    if seen.due and not seen.claimed:
        return CONTENDED_MIN_S + chance * (CONTENDED_MAX_S - CONTENDED_MIN_S)
    if seen.next_due_s is None:
        idle = seen.idle_cycles >= config.idle_after_cycles
        return config.idle_max_sleep_ms / 1000 if idle else longest
    return min(max(seen.next_due_s, shortest), longest)


class Alarm:
    """The sweeper's clock: it sleeps here until its promise, or until an earlier timer's time."""

    def __init__(self) -> None:
        self._earliest = float("inf")
        self._moved = asyncio.Event()
        self.closed = False

    def due_in(self, seconds: float) -> None:
        """A timer was committed that is due so soon."""
        at = time.monotonic() + max(seconds, 0.0)
        if at < self._earliest:
            self._earliest = at
            self._moved.set()

    def begin_look(self) -> None:
        """What is committed from now on may be missed by the look: it shortens the next sleep."""
        self._earliest = float("inf")

    async def sleep(self, seconds: float) -> None:
        """Until the promise, or until an earlier timer that was told since the last look."""
        self._earliest = min(self._earliest, time.monotonic() + seconds)
        await asyncio.sleep(0)
        while not self.closed and (left_s := self._earliest - time.monotonic()) > 0:
            self._moved.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._moved.wait()
            except TimeoutError:
                break
        self._earliest = float("inf")

    def close(self) -> None:
        """No new claims: the sweeper ends after what it has in hand."""
        self.closed = True
        self._moved.set()
