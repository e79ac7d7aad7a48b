"""Slots and lanes: who gets the next free one, and that none is ever lost.

Method: tasks take slots by hand, on a loop whose clock moves only when everybody waits. A
state machine draws takes, releases, cancellations at every moment and changed limits.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.config import AdmissionConfig
from brokers.errors import NoConnection
from brokers.flow.admission import KINDS, Admission, Kind
from tests.virtual_time import Log, simulate

CONFIG = AdmissionConfig(init=4, min=1, max=100, nosync_budget=100, pool_reserve=1)


def arbiter(budget: int, **caps: int) -> Admission:
    loop = asyncio.get_running_loop()
    admission = Admission(replace(CONFIG, init=budget), clock=loop.time)
    admission.set_caps({kind: caps.get(kind, 100) for kind in KINDS})
    return admission


class Holder:
    """A task with a slot, or in line for one."""

    def __init__(self, admission: Admission, kind: Kind) -> None:
        self.has_it = False
        self._let_go = asyncio.Event()
        self.kind = kind
        self.task = asyncio.create_task(self._hold(admission.slot(kind)))

    async def _hold(self, slot: contextlib.AbstractAsyncContextManager[None]) -> None:
        async with slot:
            self.has_it = True
            await self._let_go.wait()

    def release(self) -> None:
        self._let_go.set()


async def settle() -> None:
    """Let everything happen that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def holders(admission: Admission, *kinds: Kind) -> list[Holder]:
    made = [Holder(admission, kind) for kind in kinds]
    await settle()
    return made


async def handed_over(admission: Admission, kind: Kind) -> None:
    """Until nobody of this lane is in line; who was, has not woken yet."""
    for _ in range(10):
        if not admission.waiting(kind):
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing was handed over")


async def end(*some: Holder) -> None:
    for one in some:
        one.task.cancel()
    await asyncio.gather(*(one.task for one in some), return_exceptions=True)


def simulated(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """The test as a simulation; its name stays what it claims."""

    def run() -> None:
        simulate(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    return run


async def order_of_service(admission: Admission, waiting: list[Holder], busy: Holder) -> list[Kind]:
    """Release one slot after the other; in which order the lanes got them."""
    order: list[Kind] = []
    busy.release()
    left = list(waiting)
    while left:
        await settle()
        [got] = [one for one in left if one.has_it]
        left.remove(got)
        order.append(got.kind)
        got.release()
    return order


@simulated
async def test_a_free_slot_is_taken_without_a_switch_to_other_tasks():
    admission = arbiter(1)
    entering = admission.slot("push").__aenter__()
    with pytest.raises(StopIteration):
        entering.send(None)
    assert admission.in_flight["push"] == 1


@simulated
async def test_one_lane_may_have_the_whole_budget_while_nobody_else_wants_it():
    admission = arbiter(6)
    held = await holders(admission, *["maint"] * 6)
    assert all(one.has_it for one in held)
    await end(*held)


@simulated
async def test_among_equals_acks_go_before_pops_pops_before_pushes_and_maintenance_last():
    admission = arbiter(1)
    [busy] = await holders(admission, "push")
    waiting = await holders(admission, "maint", "push", "pop", "ack")
    assert await order_of_service(admission, waiting, busy) == ["ack", "pop", "push", "maint"]


@simulated
async def test_a_lane_below_its_share_goes_before_one_above_its_share():
    admission = arbiter(4)  # shares: push 1, pop 1.6, ack 1.2, maint 0.2
    held = await holders(admission, "ack", "ack", "ack", "ack")
    waiting = await holders(admission, "ack", "maint")
    held[0].release()
    await settle()
    assert [one.has_it for one in waiting] == [False, True]
    await end(*held, *waiting)


@simulated
async def test_a_lane_is_served_in_the_order_of_arrival():
    admission = arbiter(1)
    [busy] = await holders(admission, "push")
    waiting = await holders(admission, "push", "push", "push")
    for first, nxt in zip([busy, *waiting], [*waiting, None], strict=True):
        first.release()
        await settle()
        assert nxt is None or nxt.has_it


@simulated
async def test_who_comes_later_does_not_overtake_a_slot_that_was_handed_over():
    admission = arbiter(1)
    [busy] = await holders(admission, "push")
    [waiting] = await holders(admission, "push")
    busy.release()
    await handed_over(admission, "push")  # and before the waiter wakes an ack comes
    late = Holder(admission, "ack")
    await settle()
    assert (waiting.has_it, late.has_it) == (True, False)
    await end(waiting, late)


@simulated
async def test_with_a_single_slot_and_everybody_pressing_each_lane_gets_its_share():
    admission = arbiter(1)
    got: Counter[Kind] = Counter()
    log = Log(0.001)

    async def press(kind: Kind) -> None:
        while True:
            async with admission.slot(kind):
                await log.commit()
                got[kind] += 1

    tasks = [asyncio.create_task(press(kind)) for kind in KINDS for _ in range(3)]
    await asyncio.sleep(2.0)
    for task in tasks:
        task.cancel()
    whole = sum(got.values())
    for kind, line in admission.lines.items():
        assert got[kind] / whole >= line.share * 0.8, got


@pytest.mark.parametrize("budget", [2, 4, 12])
def test_a_flood_of_slow_maintenance_leaves_every_live_lane_its_share(budget: int):
    async def work() -> None:
        admission = arbiter(budget)
        done: Counter[Kind] = Counter()
        slots_s: Counter[Kind] = Counter()

        async def press(kind: Kind, takes_s: float) -> None:
            while True:
                async with admission.slot(kind):
                    await asyncio.sleep(takes_s)
                    done[kind] += 1
                    slots_s[kind] += takes_s

        # The flood is there first and has every slot; each of its steps takes ten times as long.
        tasks = [asyncio.create_task(press("maint", 0.05)) for _ in range(100)]
        await asyncio.sleep(0.2)
        slots_s.clear()
        live: tuple[Kind, ...] = ("push", "pop", "ack")
        tasks += [asyncio.create_task(press(kind, 0.005)) for kind in live for _ in range(20)]
        await asyncio.sleep(5.0)
        for task in tasks:
            task.cancel()
        for kind in live:
            # In whole slots: of two, nobody can have four tenths at every moment.
            share = int(admission.lines[kind].share_slots) or 0.5 * admission.lines[kind].share
            assert slots_s[kind] / 5.0 >= 0.8 * share, (kind, slots_s)
        assert done["maint"] > 0

    simulate(work())


@simulated
async def test_maintenance_is_served_though_live_lanes_never_stop_asking():
    admission = arbiter(3)
    served = 0

    async def press(kind: Kind) -> None:
        while True:
            async with admission.slot(kind):
                await asyncio.sleep(0.001)

    tasks = [asyncio.create_task(press(kind)) for kind in ("push", "pop", "ack") for _ in range(9)]
    await asyncio.sleep(0.1)
    for _ in range(10):
        async with asyncio.timeout(1.0), admission.slot("maint"):
            served += 1
    for task in tasks:
        task.cancel()
    assert served == 10


@simulated
async def test_a_lane_at_its_cap_does_not_keep_others_from_free_slots():
    admission = arbiter(4, push=1)
    held = await holders(admission, "push", "push", "ack")
    assert [one.has_it for one in held] == [True, False, True]
    held[0].release()
    await settle()
    assert held[1].has_it
    await end(*held)


@simulated
async def test_a_smaller_budget_takes_nothing_away_and_a_larger_one_wakes_those_who_wait():
    admission = arbiter(3)
    held = await holders(admission, "push", "push", "push", "push")
    admission.set_budget(1)
    held[0].release()
    held[1].release()
    await settle()
    assert [one.has_it for one in held] == [True, True, True, False]
    assert admission.taken == 1
    admission.set_budget(2)
    await settle()
    assert held[3].has_it
    await end(*held)


@simulated
async def test_a_waiter_that_is_cancelled_leaves_the_line_and_takes_nothing_with_it():
    admission = arbiter(1)
    [busy] = await holders(admission, "push")
    first, second = await holders(admission, "push", "push")
    await end(first)
    assert admission.waiting("push") == 1
    busy.release()
    await settle()
    assert second.has_it
    await end(second)
    assert admission.taken == 0


@simulated
async def test_a_waiter_that_is_cancelled_in_the_moment_of_the_hand_over_hands_on():
    admission = arbiter(1)
    [busy] = await holders(admission, "push")
    first, second = await holders(admission, "push", "ack")
    busy.release()
    await handed_over(admission, "ack")
    second.task.cancel()  # the ack was handed the slot and has not woken
    await settle()
    assert (first.has_it, second.has_it) == (True, False)
    await end(first, second)
    assert admission.taken == 0


@simulated
async def test_a_waiter_that_is_cancelled_before_it_wakes_is_passed_over():
    admission = arbiter(1)
    [busy] = await holders(admission, "push")
    first, second = await holders(admission, "push", "push")
    first.task.cancel()
    busy.release()  # both in the same turn of the loop
    await settle()
    assert second.has_it
    await end(first, second)
    assert admission.taken == 0


@simulated
async def test_whoever_fails_or_is_cancelled_in_its_slot_gives_it_back():
    admission = arbiter(2)
    with pytest.raises(ZeroDivisionError):
        async with admission.slot("push"):
            raise ZeroDivisionError
    [busy] = await holders(admission, "ack")
    await end(busy)
    assert admission.taken == 0
    assert not admission.live
    assert not any(admission.in_flight.values())


@simulated
async def test_a_call_that_waits_for_too_long_is_told_so_and_no_slot_is_lost():
    admission = arbiter(1)
    admission.wait_s = 0.5
    [busy] = await holders(admission, "push")
    began = asyncio.get_running_loop().time()
    with pytest.raises(NoConnection):
        async with admission.call_slot("push"):
            pass
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.5, abs=0.01)
    assert admission.waiting("push") == 0
    await end(busy)
    async with admission.call_slot("push"):
        assert admission.taken == 1
    assert admission.taken == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from(KINDS)),
        st.tuples(st.just("release"), st.integers(0, 30)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("budget"), st.integers(1, 6)),
        st.tuples(st.just("turn"), st.integers(1, 3)),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(budget=st.integers(1, 6), steps=STEPS)
def test_no_sequence_of_events_exceeds_the_budget_or_forgets_a_waiter(budget, steps):
    async def work() -> None:
        admission = arbiter(budget)
        alive: list[Holder] = []
        allowed = budget
        for step, value in steps:
            if step == "take":
                alive.append(Holder(admission, value))
            elif step == "release" and alive:
                alive.pop(value % len(alive)).release()
            elif step == "cancel" and alive:
                alive.pop(value % len(alive)).task.cancel()
            elif step == "budget":
                admission.set_budget(value)
                # What was in flight under a larger one may come to its end.
                allowed = max(value, admission.taken)
            elif step == "turn":
                for _ in range(value):
                    await asyncio.sleep(0)
            assert admission.taken <= allowed
            allowed = max(admission.budget, min(allowed, admission.taken))
            assert admission.taken == sum(admission.in_flight.values())
            stuck = [kind for kind in KINDS if admission.waiting(kind)]
            assert not (stuck and admission.taken < admission.budget), stuck
        await settle()
        having = sum(one.has_it and not one.task.done() for one in alive)
        assert having == admission.taken == len(admission.live)
        admission.set_budget(200)
        await settle()
        assert all(one.has_it for one in alive)
        for one in alive:
            one.release()
        await settle()
        await asyncio.gather(*(one.task for one in alive))
        assert admission.taken == 0
        assert not any(admission.waiting(kind) for kind in KINDS)

    simulate(work())
