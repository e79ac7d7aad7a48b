"""How long the sweeper sleeps: the law at both ends of each of its bands, and its alarm.

Method: the law is a pure function, so it is asked; the alarm runs in the test's loop.
"""

import asyncio
import time

import pytest

from brokers.config import SweeperConfig
from brokers.flow.sleep import CONTENDED_MAX_S, CONTENDED_MIN_S, Alarm, Seen, sleep_s

CONFIG = SweeperConfig(
    min_sleep_ms=5, max_sleep_ms=1000, idle_max_sleep_ms=3000, idle_after_cycles=10
)


def law(chance: float = 0.5, **seen: object) -> float:
    return sleep_s(CONFIG, Seen(**seen), chance)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("next_due_s", "slept_s"),
    [
        (-5.0, 0.005),
        (0.0, 0.005),
        (0.005, 0.005),
        (0.006, 0.006),
        (0.999, 0.999),
        (1.0, 1.0),
        (1.001, 1.0),
        (1e9, 1.0),
    ],
)
def test_it_sleeps_to_the_next_due_time_between_its_least_and_its_most(next_due_s, slept_s):
    assert law(next_due_s=next_due_s) == pytest.approx(slept_s)
    assert law(next_due_s=next_due_s, due=3, claimed=3) == pytest.approx(slept_s)


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_work_that_a_peer_has_is_looked_at_again_after_a_jittered_moment(chance):
    slept = law(chance, due=7, claimed=0, next_due_s=0.001)
    assert slept == pytest.approx(0.025 + chance * 0.175)
    assert CONTENDED_MIN_S <= slept <= CONTENDED_MAX_S


def test_one_claimed_timer_is_no_contention():
    assert law(due=7, claimed=1, next_due_s=0.5) == 0.5


def test_a_cycle_that_was_cut_short_goes_on_at_once():
    assert law(due=5000, claimed=5000, cut_short=True, next_due_s=0.7) == 0.005
    assert law(due=5000, claimed=0, cut_short=True) == 0.005


@pytest.mark.parametrize(("idle_cycles", "slept_s"), [(0, 1.0), (9, 1.0), (10, 3.0), (999, 3.0)])
def test_a_table_that_has_long_been_empty_is_looked_at_less_often(idle_cycles, slept_s):
    assert law(next_due_s=None, idle_cycles=idle_cycles) == slept_s


def test_by_default_nothing_sleeps_longer_than_the_promise_of_a_second():
    for seen in (Seen(), Seen(idle_cycles=10**6), Seen(next_due_s=1e9), Seen(due=1)):
        for chance in (0.0, 1.0):
            assert sleep_s(SweeperConfig(), seen, chance) <= 1.0


async def slept(alarm: Alarm, seconds: float) -> float:
    started = time.monotonic()
    await asyncio.wait_for(alarm.sleep(seconds), timeout=5)
    return time.monotonic() - started


async def test_an_earlier_timer_moves_the_end_of_a_sleep_forward():
    alarm = Alarm()
    asyncio.get_running_loop().call_later(0.02, alarm.due_in, 0.03)
    assert 0.04 <= await slept(alarm, 4.0) < 2.0


async def test_a_later_timer_does_not():
    alarm = Alarm()
    asyncio.get_running_loop().call_later(0.01, alarm.due_in, 60.0)
    assert 0.09 <= await slept(alarm, 0.1) < 2.0


async def test_a_timer_that_is_committed_during_a_look_shortens_the_sleep_behind_it():
    alarm = Alarm()
    alarm.begin_look()
    alarm.due_in(0.0)
    assert await slept(alarm, 4.0) < 2.0


async def test_a_timer_of_before_the_look_is_the_looks_own_affair():
    alarm = Alarm()
    alarm.due_in(-1.0)
    alarm.begin_look()
    assert await slept(alarm, 0.1) >= 0.09


async def test_sleep_after_sleep_without_a_look_is_slept():
    """What a broker does while its database is away."""
    alarm = Alarm()
    await slept(alarm, 0.01)
    assert await slept(alarm, 0.05) >= 0.04


async def test_closing_ends_a_sleep_at_once():
    alarm = Alarm()
    asyncio.get_running_loop().call_later(0.01, alarm.close)
    assert await slept(alarm, 4.0) < 2.0
    assert await slept(alarm, 4.0) < 1.0
