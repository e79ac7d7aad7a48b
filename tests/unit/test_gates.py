"""The gates: who wakes when a partition becomes ready, and what becomes of a bell.

Method: seats and bells alone, without any pop. A seat "looks" by rearming, as a pop does.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from brokers.flow.gates import Gates, Key, Seat

ORDERS: Key = (1, "billing")
AUDIT: Key = (1, "audit")
INVOICES: Key = (2, "billing")
LONG_S = 30.0


@pytest.fixture
def gates() -> Gates:
    return Gates()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def sit(gates: Gates, stack: ExitStack, *keys: Key, partition_id: int | None = None) -> Seat:
    seat = stack.enter_context(gates.seat("orders"))
    seat.partition_id = partition_id
    gates.place(seat, list(keys))
    return seat


def rung(*seats: Seat) -> list[bool]:
    return [seat.rung is not None for seat in seats]


def test_one_bell_wakes_one_seat_the_oldest(gates, stack):
    seats = [sit(gates, stack, ORDERS) for _ in range(3)]
    assert gates.ring(ORDERS, 7) is True
    assert rung(*seats) == [True, False, False]


def test_each_ready_partition_wakes_one_more(gates, stack):
    seats = [sit(gates, stack, ORDERS) for _ in range(3)]
    for partition in (7, 8):
        gates.ring(ORDERS, partition)
    assert rung(*seats) == [True, True, False]


def test_a_bell_that_nobody_can_hear_is_nobodys(gates, stack):
    seat = sit(gates, stack, ORDERS)
    assert gates.ring(AUDIT, 7) is False
    assert gates.ring(INVOICES, 7) is False
    assert rung(seat) == [False]
    assert gates.ring(ORDERS, 7) is True
    assert gates.ring(ORDERS, 8) is False, "everyone is rung already"


def test_a_seat_that_looked_and_stays_is_rung_again_in_its_old_place(gates, stack):
    first, second = sit(gates, stack, ORDERS), sit(gates, stack, ORDERS)
    gates.ring(ORDERS, 7)
    first.rearm()
    gates.ring(ORDERS, 8)
    assert rung(first, second) == [True, False]


def test_a_rung_seat_that_leaves_before_it_looked_passes_the_bell_on(gates, stack):
    with ExitStack() as leaving:
        sit(gates, leaving, ORDERS)
        second, third = sit(gates, stack, ORDERS), sit(gates, stack, ORDERS)
        gates.ring(ORDERS, 7)
        assert rung(second, third) == [False, False]
    assert rung(second, third) == [True, False]
    assert second.rung == (ORDERS, 7), "the bell of that partition"


def test_a_bell_is_passed_on_as_often_as_somebody_leaves(gates, stack):
    with ExitStack() as leaving:
        for _ in range(50):
            sit(gates, leaving, ORDERS)
        last = sit(gates, stack, ORDERS)
        gates.ring(ORDERS, 7)
    assert rung(last) == [True]


def test_a_seat_that_looked_lets_the_bell_die(gates, stack):
    with ExitStack() as leaving:
        first = sit(gates, leaving, ORDERS)
        second = sit(gates, stack, ORDERS)
        gates.ring(ORDERS, 7)
        first.rearm()
    assert rung(second) == [False]


def test_a_seat_that_is_cancelled_in_the_middle_of_its_look_has_the_next_one_look(gates, stack):
    """What it had checked out lies ready again, and its bell is used up."""
    leaving = ExitStack()
    first = sit(gates, leaving, ORDERS)
    second, third = sit(gates, stack, ORDERS), sit(gates, stack, ORDERS)
    gates.ring(ORDERS, 7)
    first.rearm()
    cancelled = asyncio.CancelledError()
    assert not leaving.__exit__(type(cancelled), cancelled, None)
    assert rung(second, third) == [True, False]


def test_the_bell_is_passed_only_to_a_seat_that_may_claim_the_partition(gates, stack):
    with ExitStack() as leaving:
        sit(gates, leaving, ORDERS)
        other, same = (sit(gates, stack, ORDERS, partition_id=number) for number in (8, 7))
        gates.ring(ORDERS, 7)
    assert rung(other, same) == [False, True]


def test_a_partition_seat_hears_of_its_partition_alone(gates, stack):
    seat = sit(gates, stack, ORDERS, partition_id=7)
    assert gates.ring(ORDERS, 8) is False
    assert gates.ring(ORDERS, 7) is True
    assert rung(seat) == [True]


def test_a_partition_seat_takes_its_turn_among_those_that_take_any(gates, stack):
    early, late = sit(gates, stack, ORDERS, partition_id=7), sit(gates, stack, ORDERS)
    gates.ring(ORDERS, 7)
    assert rung(early, late) == [True, False]
    gates.ring(ORDERS, 7)
    assert rung(early, late) == [True, True]


def test_the_floor_wakes_a_partition_seat_whose_partition_lies_ready(gates, stack):
    """Its bell went to a seat that takes any partition, and which took another."""
    general = sit(gates, stack, ORDERS)
    waiting = [sit(gates, stack, ORDERS, partition_id=number) for number in (8, 7, 7, 9)]
    gates.ring(ORDERS, 7)
    general.rearm()
    gates.ring_ready(ORDERS, {7, 9}.__contains__)
    assert rung(general, *waiting) == [True, False, True, False, True]


def test_the_floor_wakes_one_seat_that_takes_any_however_many_sit(gates, stack):
    seats = [sit(gates, stack, ORDERS) for _ in range(3)]
    gates.ring_ready(ORDERS, lambda partition_id: True)
    assert rung(*seats) == [True, False, False]


def test_two_groups_of_one_queue_each_have_their_bell(gates, stack):
    billing, audit = sit(gates, stack, ORDERS), sit(gates, stack, AUDIT)
    gates.ring(ORDERS, 7)
    assert rung(billing, audit) == [True, False]
    gates.ring(AUDIT, 7)
    assert rung(billing, audit) == [True, True]


def test_a_discovery_seat_hears_of_any_of_its_queues(gates, stack):
    for key in (ORDERS, INVOICES):
        seat = sit(gates, stack, ORDERS, INVOICES)
        gates.ring(key, 7)
        assert rung(seat) == [True], key
        stack.close()


def test_a_seat_that_is_placed_elsewhere_is_no_longer_rung_here(gates, stack):
    seat = sit(gates, stack, ORDERS)
    gates.place(seat, [INVOICES])
    assert gates.ring(ORDERS, 7) is False
    assert gates.occupied() == [INVOICES]


def test_a_seat_that_waits_for_a_birth_hears_of_it_and_of_nothing_else(gates, stack):
    seats = [stack.enter_context(gates.seat()) for _ in range(2)]
    for seat in seats:
        gates.place_unborn(seat, 1, "new")
    gates.ring_unborn(1, "other")
    gates.ring_unborn(2, "new")
    assert gates.ring(ORDERS, 7) is False
    assert rung(*seats) == [False, False]
    gates.ring_unborn(1, "new")
    assert rung(*seats) == [True, True]


def test_a_seat_whose_partition_was_born_sits_at_it_and_waits_for_no_birth(gates, stack):
    seat = stack.enter_context(gates.seat())
    gates.place_unborn(seat, 1, "new")
    seat.partition_id = 7
    gates.place(seat, [ORDERS])
    gates.ring_unborn(1, "new")
    assert rung(seat) == [False]
    assert gates.ring(ORDERS, 7) is True


def test_ring_all_wakes_everyone_concerned(gates, stack):
    mine = [sit(gates, stack, ORDERS), sit(gates, stack, AUDIT, partition_id=7)]
    other = sit(gates, stack, INVOICES)
    gates.ring_all(lambda key: key[0] == 1)
    assert rung(*mine, other) == [True, True, False]


def test_nothing_is_left_of_seats_that_left(gates):
    with ExitStack() as leaving:
        sit(gates, leaving, ORDERS, INVOICES)
        sit(gates, leaving, ORDERS, partition_id=7)
        gates.place_unborn(leaving.enter_context(gates.seat()), 1, "new")
        assert len(gates) == 3
        assert gates.seated(ORDERS) == 2
        assert gates.parked() == {}, "nobody waits: they only took their seats"
    assert (len(gates), gates.occupied(), gates.seated(ORDERS), gates.parked()) == (0, [], 0, {})
    assert not any((gates._seats, gates._unborn, gates._all))


async def test_a_bell_between_look_and_wait_is_not_missed(gates, stack):
    seat = sit(gates, stack, ORDERS)
    seat.rearm()
    gates.ring(ORDERS, 7)
    assert await asyncio.wait_for(seat.wait(LONG_S), 1)


@contextmanager
def parked(seat: Seat, timeout_s: float = LONG_S) -> Iterator[asyncio.Task[bool]]:
    task = asyncio.create_task(seat.wait(timeout_s))
    yield task
    task.cancel()


async def test_a_parked_seat_wakes_by_its_bell(gates, stack):
    with parked(sit(gates, stack, ORDERS)) as waiting:
        await asyncio.sleep(0)
        gates.ring(ORDERS, 7)
        assert await asyncio.wait_for(waiting, 1) is True


async def test_a_wait_ends_with_its_time(gates, stack):
    seat = sit(gates, stack, ORDERS)
    assert await asyncio.wait_for(seat.wait(0.01), 1) is False


async def test_a_bell_in_the_very_moment_of_the_timeout_counts(gates, stack):
    """The time is up, the task has not run yet, and the bell rings: it must look."""
    seat = sit(gates, stack, ORDERS)
    with parked(seat) as waiting:
        await asyncio.sleep(0)
        seat._time_out()
        gates.ring(ORDERS, 7)
        assert await asyncio.wait_for(waiting, 1) is True


async def test_a_parked_seat_that_is_cancelled_after_its_bell_passes_it_on(gates, stack):
    async def visit() -> None:
        with gates.seat() as seat:
            gates.place(seat, [ORDERS])
            seat.rearm()
            await seat.wait(LONG_S)

    first = asyncio.create_task(visit())
    await asyncio.sleep(0)
    second = sit(gates, stack, ORDERS)
    gates.ring(ORDERS, 7)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert rung(second) == [True]


async def test_a_parked_seat_that_is_cancelled_without_a_bell_wakes_nobody(gates, stack):
    async def visit() -> None:
        with gates.seat() as seat:
            gates.place(seat, [ORDERS])
            seat.rearm()
            await seat.wait(LONG_S)

    first = asyncio.create_task(visit())
    await asyncio.sleep(0)
    second = sit(gates, stack, ORDERS)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert rung(second) == [False]


async def test_closing_ends_every_wait_and_passes_no_bell_on(gates, stack):
    with ExitStack() as leaving:
        seats = [sit(gates, leaving, ORDERS), leaving.enter_context(gates.seat())]
        tasks = [asyncio.create_task(seat.wait(LONG_S)) for seat in seats]
        await asyncio.sleep(0)
        gates.close()
        assert await asyncio.wait_for(asyncio.gather(*tasks), 1) == [True, True]
        late = sit(gates, stack, ORDERS)
    assert gates.closed
    assert rung(late) == [False]
