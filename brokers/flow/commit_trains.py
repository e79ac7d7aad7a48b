"""Commit trains: what our own commits tell of the log's flush cycle.

PostgreSQL flushes its log for all who wait at once: commits come back in trains, and the
time from one train to the next is a flush cycle. Only trains with somebody waiting in
between are measured: else it is our own idleness that one sees.

Imports nothing of ours. Used by flow/admission.py and flow/regulation.py.
"""

from typing import NamedTuple


class Seen(NamedTuple):
    """`cycle_s`: mean time between trains while somebody waited, None when too few were seen.

    `enough`: commits waited side by side often enough to have shown their trains.
    """

    trains: int
    commits: int
    cycle_s: float | None
    enough: bool


# So many cycles are enough to tell their mean, and so many commits to have shown some.
CYCLES_MIN = 8
COMMITS_MIN = 32


class CommitTrains:
    """`gap_s`: commits that come closer than this rode in the same train."""

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._last_at = float("-inf")
        self._train_at = 0.0
        self._more = False
        self._trains = 0
        self._commits = 0
        self._cycles = 0
        self._cycles_s = 0.0
        self._beside = 0

    def completed(self, now: float, *, more: bool) -> None:
        """A commit of ours came back; `more`: others are under way."""
        if now - self._last_at > self._gap_s:
            if self._more:
                self._cycles += 1
                self._cycles_s += now - self._train_at
            self._train_at = now
            self._trains += 1
        self._commits += 1
        self._beside += more
        self._last_at = now
        self._more = more

    def take(self) -> Seen:
        """What was seen since this was last asked."""
        enough = self._beside >= COMMITS_MIN
        known = self._cycles >= (1 if enough else CYCLES_MIN)
        cycle_s = self._cycles_s / self._cycles if known else None
        seen = Seen(self._trains, self._commits, cycle_s, enough)
        self._trains = self._commits = self._cycles = self._beside = 0
        self._cycles_s = 0.0
        return seen
