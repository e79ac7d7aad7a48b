"""A lane's cap: how many slots it may have, found out by trying.

More transactions of one kind side by side are not always faster: they may wait for the same
rows. So a lane that uses all it may have is given fewer slots now and then, for a moment. If
it did no worse it keeps them, and others have the rest; if it did worse, it gets the old
number back, and is tried with more after that. A lane that does not use its cap has none.

What "worse" is, is a score: messages a second, or for pops how long a ready partition has
been waiting, below zero.

Imports nothing of ours. Used by flow/regulation.py.
"""

import math

# Ticks of quiet before a try, and of the try itself.
REST_TICKS = 6
TRY_TICKS = 2
STEP = 0.25
# How much worse is no worse, and how much better is better: what lies between is noise.
NO_WORSE = 0.03
BETTER = 0.05


class LaneCap:
    def __init__(self) -> None:
        # None: as many as there are.
        self._cap: int | None = None
        self._tried: int | None = None
        self._upward = False
        self._ticks = 0
        self._scores: list[float] = []
        self._before = 0.0

    def tick(self, score: float, *, peak: int, waiting: bool, lowest: int, highest: int) -> int:
        """The cap for the next tick. `peak`: most slots in flight since the last one."""
        if peak < self._now(lowest, highest) and not waiting:
            # It does not want more than it has: no reason to hold it down.
            self._cap = None
            self._rest()
            return highest
        self._scores.append(score)
        self._ticks += 1
        if self._tried is not None and self._ticks >= TRY_TICKS:
            self._judge()
        elif self._tried is None and self._ticks >= REST_TICKS:
            self._try(lowest, highest)
        return self._now(lowest, highest)

    def _now(self, lowest: int, highest: int) -> int:
        cap = self._cap if self._tried is None else self._tried
        return highest if cap is None else max(min(cap, highest), min(lowest, highest))

    def _try(self, lowest: int, highest: int) -> None:
        self._before = _mean(self._scores[-REST_TICKS // 2 :])
        self._rest()
        cap = self._now(lowest, highest)
        step = max(math.ceil(cap * STEP), 1)
        tried = min(cap + step, highest) if self._upward else max(cap - step, lowest)
        if tried == cap:
            self._upward = not self._upward
        else:
            self._tried = tried

    def _judge(self) -> None:
        change = _mean(self._scores) - self._before
        scale = abs(self._before)
        if change > BETTER * scale if self._upward else change >= -NO_WORSE * scale:
            self._cap = self._tried
        else:
            self._upward = not self._upward
        self._rest()

    def _rest(self) -> None:
        self._tried, self._ticks = None, 0
        self._scores.clear()


def _mean(scores: list[float]) -> float:
    return sum(scores) / len(scores) if scores else 0.0
