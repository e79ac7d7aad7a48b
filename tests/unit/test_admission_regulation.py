"""What moves the budget and the caps, on a model of PostgreSQL's group commit.

Method: a simulated log whose flushes carry so many commits each, clients that commit as fast
as they are let, and the regulator's ticks between them. No real time passes.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from brokers.config import AdmissionConfig
from brokers.flow.admission import KINDS, Admission, Kind
from brokers.flow.commit_trains import CommitTrains
from brokers.flow.lane_caps import LaneCap
from brokers.flow.regulation import Regulation
from tests.virtual_time import Log, simulate

CONFIG = AdmissionConfig(init=8, min=4, max=64, nosync_budget=40, pool_reserve=1)
# For a log so quick that one has to look often.
QUICK = replace(CONFIG, init=4, max=8, nosync_budget=7)
TICK_S = 0.25


@dataclass
class Scene:
    """Clients at one log, until they are stopped."""

    config: AdmissionConfig
    log: Log
    clients: int
    kind: Kind = "push"
    budgets: list[int] = field(default_factory=list)

    async def run(self, ticks: int, *, blocked: int = 0) -> Regulation:
        loop = asyncio.get_running_loop()
        self.admission = Admission(self.config, clock=loop.time)
        regulation = Regulation(
            self.admission,
            self.config,
            items=lambda: {kind: line.granted for kind, line in self.admission.lines.items()},
            oldest_ready_s=lambda: 0.0,
        )
        tasks = [asyncio.create_task(self._block()) for _ in range(blocked)]
        tasks += [asyncio.create_task(self._commit()) for _ in range(self.clients)]
        for _ in range(ticks):
            await asyncio.sleep(TICK_S)
            regulation.tick()
            self.budgets.append(self.admission.budget)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return regulation

    async def _commit(self) -> None:
        while True:
            async with self.admission.slot(self.kind):
                await self.log.commit()

    async def _block(self) -> None:
        """It waits for a row that somebody keeps."""
        async with self.admission.slot("push"):
            await asyncio.sleep(1e9)


def test_the_budget_grows_by_steps_while_somebody_waits_and_the_log_keeps_up():
    scene = Scene(CONFIG, Log(0.005), clients=200)
    regulation = simulate(scene.run(20))
    assert scene.budgets == sorted(scene.budgets)
    # Not while a cap is being tried, in two ticks of eight.
    assert scene.budgets[4] == CONFIG.init + 5 * 2
    assert scene.budgets[-1] >= CONFIG.init + 15 * 2
    assert not regulation.pinned


def test_the_budget_stays_where_it_is_while_nobody_waits():
    scene = Scene(CONFIG, Log(0.005), clients=3)
    simulate(scene.run(10))
    assert scene.budgets == [CONFIG.init] * 10


def test_the_budget_never_leaves_its_bounds():
    scene = Scene(replace(CONFIG, max=12), Log(0.005), clients=200)
    simulate(scene.run(20))
    assert max(scene.budgets) == 12


def test_the_budget_shrinks_by_a_factor_when_half_of_the_slots_wait_for_several_cycles():
    scene = Scene(replace(CONFIG, init=64), Log(0.005, room=4), clients=200)
    simulate(scene.run(20))
    assert scene.budgets[0] <= 0.76 * 64
    # A flush carries four: 64 of them wait for sixteen cycles.
    assert min(scene.budgets) <= 20
    assert min(scene.budgets) >= CONFIG.min


def test_calls_that_wait_for_a_row_do_not_shrink_the_budget():
    scene = Scene(replace(CONFIG, init=16), Log(0.005), clients=200)
    simulate(scene.run(10, blocked=3))
    assert scene.budgets[-1] > 16


def test_the_flush_cycle_is_seen_as_it_is():
    scene = Scene(CONFIG, Log(0.005), clients=200)
    regulation = simulate(scene.run(6))
    assert regulation.cycle_s == pytest.approx(0.005, rel=0.05)
    assert regulation.trains_per_s == pytest.approx(200, rel=0.05)
    assert regulation.commits_per_train * 200 * 6 * TICK_S == pytest.approx(
        scene.log.commits, rel=0.3
    )


def test_commits_that_come_back_at_once_pin_the_budget():
    scene = Scene(QUICK, Log(0.0002), clients=12)
    regulation = simulate(scene.run(6))
    assert regulation.pinned
    assert scene.budgets[-1] == QUICK.nosync_budget


def test_a_budget_that_was_pinned_is_let_go_when_cycles_are_seen_again():
    log = Log(0.0002)
    scene = Scene(QUICK, log, clients=12)

    async def work() -> Regulation:
        async def slow_down() -> None:
            await asyncio.sleep(6 * TICK_S)
            log.cycle_s = 0.005

        slowing = asyncio.create_task(slow_down())
        regulation = await scene.run(20)
        await slowing
        return regulation

    assert not simulate(work()).pinned
    assert QUICK.nosync_budget in scene.budgets


def test_our_own_idleness_is_not_taken_for_a_flush_cycle():
    trains = CommitTrains(0.0003)
    for second in range(100):
        trains.completed(float(second), more=False)
    seen = trains.take()
    assert (seen.trains, seen.commits, seen.cycle_s, seen.enough) == (100, 100, None, False)


def test_commits_closer_than_the_gap_ride_in_one_train():
    trains = CommitTrains(0.0003)
    for train in range(20):
        for commit in range(5):
            trains.completed(train * 0.004 + commit * 0.0001, more=True)
    seen = trains.take()
    assert (seen.trains, seen.commits) == (20, 100)
    assert seen.cycle_s == pytest.approx(0.004)


def caps_of(score_at: Callable[[int], float], ticks: int) -> Sequence[int]:
    """The caps of a lane that uses all it may have and whose score depends on its cap."""
    lane, cap, caps = LaneCap(), 16, []
    for _ in range(ticks):
        cap = lane.tick(score_at(cap), peak=cap, waiting=True, lowest=2, highest=16)
        caps.append(cap)
    return caps


def test_a_lane_that_is_faster_with_fewer_slots_gets_fewer():
    assert max(caps_of(lambda cap: 1000.0 - 20 * cap, 200)[-50:]) <= 3


def test_a_lane_that_is_as_fast_with_fewer_slots_leaves_the_rest_to_others():
    assert max(caps_of(lambda cap: 1000.0, 200)[-50:]) <= 3


def test_a_lane_that_is_slower_with_fewer_slots_keeps_them():
    assert min(caps_of(lambda cap: 100.0 * cap, 200)[-50:]) >= 12


def test_pops_keep_the_slots_without_which_ready_partitions_grow_old():
    # The score is an age below zero: 0.2 s with 16 slots, more with fewer.
    assert min(caps_of(lambda cap: -3.2 / cap, 200)[-50:]) >= 12


def test_a_lane_that_does_not_use_its_cap_has_none():
    lane = LaneCap()
    for _ in range(200):
        lane.tick(1000.0, peak=16, waiting=True, lowest=2, highest=16)
    assert lane.tick(1000.0, peak=1, waiting=False, lowest=2, highest=16) == 16


def test_no_cap_goes_below_the_lanes_share():
    scene = Scene(replace(CONFIG, init=40, min=40, max=40), Log(0.02), clients=60, kind="ack")
    simulate(scene.run(50))
    for kind in KINDS:
        assert scene.admission.lines[kind].cap >= int(scene.admission.lines[kind].share_slots)
