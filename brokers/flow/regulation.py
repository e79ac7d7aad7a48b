"""Regulation: how many write transactions may be in flight, and how many of each lane.

Every tick the budget moves by additive increase and multiplicative decrease. It grows when
somebody had to wait for a slot; it shrinks when half of the live slots have waited for
some flush cycles: then PostgreSQL has more of us than it carries in a train. (Half, and
not the oldest: one call that waits for somebody's row lock says nothing of the log.) Where
commits come back so fast that no train can be told from the next there is nothing to
steer by, and the budget is pinned.

Imports config, flow/admission, flow/commit_trains, flow/lane_caps. Used by
flow/traffic.py.
"""

import logging
from collections.abc import Callable, Mapping

from brokers.config import AdmissionConfig
from brokers.flow.admission import KINDS, Admission, Kind
from brokers.flow.commit_trains import Seen
from brokers.flow.lane_caps import LaneCap

log = logging.getLogger(__name__)

# A commit waits for the flush that is under way and for its own: while PostgreSQL keeps up, half
# of them have waited for about one cycle.
CYCLES_WAITED = 2.0
SHRUNK_TO = 0.75
# A cycle of fewer gaps than this is not to be told from single commits.
GAPS_SEEN = 3.0
# Ticks in a row that must say so before the budget is pinned or let go.
TICKS_SURE = 3
FRESH = 0.3


class Regulation:
    """`items` tells what each lane has carried since the start, `oldest_ready_s` for how long
    a partition with messages has been ready."""

    def __init__(
        self,
        admission: Admission,
        config: AdmissionConfig,
        *,
        items: Callable[[], Mapping[Kind, int]],
        oldest_ready_s: Callable[[], float],
    ) -> None:
        self._admission = admission
        self._config = config
        self._items = items
        self._oldest_ready_s = oldest_ready_s
        self._ticked_at = admission.clock()
        self._carried: Mapping[Kind, int] = dict.fromkeys(KINDS, 0)
        self._ceiling = max(config.max, 1)
        self._caps = {kind: LaneCap() for kind in KINDS}
        self._unlike_ticks = 0
        self.pinned = False
        self.trains_per_s = 0.0
        self.commits_per_train = 0.0
        # None until a cycle was seen.
        self.cycle_s: float | None = None

    def tick(self) -> None:
        admission = self._admission
        now = admission.clock()
        passed_s = max(now - self._ticked_at, 1e-9)
        self._ticked_at = now
        seen = admission.trains.take()
        self.trains_per_s = seen.trains / passed_s
        self.commits_per_train = seen.commits / seen.trains if seen.trains else 0.0
        self._judge_sight(seen)
        admission.set_budget(self._budget(now))
        admission.set_caps(self._next_caps(passed_s))
        admission.saturated = False
        if self._config.trace:
            cycle_ms = 1000 * (self.cycle_s or 0.0)
            log.info(
                "admission: budget %d%s, %d in flight, cycle %.2f ms, %.1f commits/train, caps %s",
                admission.budget,
                " (pinned)" if self.pinned else "",
                admission.taken,
                cycle_ms,
                self.commits_per_train,
                {kind: line.cap for kind, line in admission.lines.items()},
            )

    def _judge_sight(self, seen: Seen) -> None:
        """Whether flush cycles are long enough to be seen. Few commits say nothing of that."""
        if seen.cycle_s is not None:
            known_s = seen.cycle_s if self.cycle_s is None else self.cycle_s
            self.cycle_s = known_s + FRESH * (seen.cycle_s - known_s)
        elif not seen.enough:
            return
        # Without any gap between them, all the commits were one train.
        unseen = (seen.cycle_s or 0.0) < GAPS_SEEN * self._config.train_gap_us / 1e6
        self._unlike_ticks = self._unlike_ticks + 1 if unseen != self.pinned else 0
        if self._unlike_ticks >= TICKS_SURE:
            self.pinned, self._unlike_ticks = unseen, 0

    def _budget(self, now: float) -> int:
        admission, config = self._admission, self._config
        if self.pinned:
            return max(config.nosync_budget, 1)
        budget = admission.budget
        if self._median_age_s(now) > CYCLES_WAITED * (self.cycle_s or float("inf")):
            budget = int(budget * SHRUNK_TO)
        elif admission.saturated:
            budget += max(1, self._ceiling // 32)
        return max(min(budget, self._ceiling), config.min, 1)

    def _median_age_s(self, now: float) -> float:
        live = list(self._admission.live)
        if len(live) <= self._config.min:
            return 0.0
        return now - live[len(live) // 2].began

    def _next_caps(self, passed_s: float) -> dict[Kind, int]:
        admission = self._admission
        carried = self._items()
        caps = {}
        for kind, line in admission.lines.items():
            if kind == "pop":
                score = -self._oldest_ready_s()
            else:
                score = (carried[kind] - self._carried[kind]) / passed_s
            caps[kind] = self._caps[kind].tick(
                score,
                peak=line.peak,
                waiting=bool(line.waiters),
                lowest=max(int(line.share_slots), 1),
                highest=admission.budget,
            )
            line.peak = line.in_flight
        self._carried = dict(carried)
        return caps
