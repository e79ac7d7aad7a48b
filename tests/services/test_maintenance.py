"""What changes inside a broker when a maintenance switch is thrown.

Method: real brokers in this process, on a database of their own, whose floor is a minute
away: a pop that answers was woken by what is under test.
"""

import asyncio

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.flow.switches import POP_MAINTENANCE, PUSH_MAINTENANCE
from brokers.services import notify
from brokers.services import pop as pop_service
from tests.services.in_process import NO_FLOOR, Client, held, running, until, until_waiting, within

BELL_S = 5.0


@pytest.fixture
async def alone_database(database, fresh_database):
    # Django in this process is set to `database`, which has to exist.
    return fresh_database()


@pytest.fixture
async def alone(alone_database):
    async with running(alone_database, **NO_FLOOR) as client:
        yield client


async def throw(client: Client, name: str, enabled: bool) -> None:
    assert await client.broker.switches.throw({name: enabled})


async def test_parked_pops_answer_at_once_when_pop_maintenance_begins(alone, fresh_queue):
    waiting = [
        await alone.park_here(fresh_queue),
        await alone.park_here(fresh_queue, group="g"),
        await alone.park_here(fresh_queue, partition="unborn"),
    ]
    await throw(alone, POP_MAINTENANCE, True)
    assert await within(asyncio.gather(*waiting), BELL_S) == [[], [], []]
    assert len(alone.broker.gates) == 0


async def test_a_mode_thrown_elsewhere_wakes_parked_pops_here(alone, alone_database, fresh_queue):
    waiting = await alone.park_here(fresh_queue)
    async with running(alone_database, **NO_FLOOR) as there:
        await throw(there, POP_MAINTENANCE, True)
        assert await within(waiting, BELL_S) == []


async def test_a_claim_that_waits_for_its_turn_is_not_made_any_more(
    alone, alone_database, fresh_queue
):
    """One claim hangs on a lock; the next waits for it when the mode begins."""
    await alone.push(fresh_queue, 1, partition="a")
    await alone.push(fresh_queue, 2, partition="b")
    await alone.pop(fresh_queue, partition="a", lease_s=3600)
    with (
        alone_database.connect(autocommit=False) as holder,
        alone_database.connect() as observer,
        held(holder, "LOCK TABLE queen_cursor IN ACCESS EXCLUSIVE MODE"),
    ):
        first = asyncio.create_task(alone.payloads(fresh_queue, partition="a"))
        await until_waiting(observer, "queen_message_claim")
        second = asyncio.create_task(alone.payloads(fresh_queue, partition="b"))
        await until(lambda: alone.broker.claims.coalescer.waiting == 1)
        throwing = asyncio.create_task(throw(alone, POP_MAINTENANCE, True))
        await until(lambda: alone.broker.switches.pop_maintenance)
    await throwing
    assert await within(asyncio.gather(first, second)) == [[], []]
    with alone_database.connect() as observer:
        leased = observer.execute("SELECT count(*) FROM queen_cursor WHERE lease_id IS NOT NULL")
        assert leased.fetchone() == (1,)
    await throw(alone, POP_MAINTENANCE, False)
    assert await alone.payloads(fresh_queue) == [2]


async def test_what_came_in_pop_maintenance_is_found_when_it_is_over(alone, fresh_queue):
    assert await alone.payloads(fresh_queue) == []
    await throw(alone, POP_MAINTENANCE, True)
    await alone.push(fresh_queue, 1)
    assert await alone.payloads(fresh_queue, wait=True) == []
    await throw(alone, POP_MAINTENANCE, False)
    assert await alone.payloads(fresh_queue) == [1]


async def test_a_listener_hears_of_every_switch_that_changed(alone):
    heard: list[frozenset[str]] = []
    alone.broker.switches.listeners.append(heard.append)
    await throw(alone, PUSH_MAINTENANCE, True)
    await throw(alone, PUSH_MAINTENANCE, True)
    await alone.broker.switches.throw({PUSH_MAINTENANCE: False, "kv": False})
    assert heard == [{PUSH_MAINTENANCE}, {PUSH_MAINTENANCE, "kv"}]


@pytest.mark.parametrize("partition", [None, "new"])
async def test_a_notification_wakes_a_pop_for_what_was_stored_elsewhere(
    alone, alone_database, fresh_queue, partition
):
    waiting = await alone.park_here(fresh_queue, partition=partition)
    async with running(alone_database, **NO_FLOOR) as there:
        await there.push(fresh_queue, "news", partition="new")
        await notify.notify(alone.broker, DEFAULT_TENANT, fresh_queue)
        assert await within(waiting, BELL_S) == ["news"]


async def test_a_pop_in_pop_maintenance_asks_the_database_nothing(alone, monkeypatch):
    await throw(alone, POP_MAINTENANCE, True)

    def refuse(*given, **named):
        raise AssertionError("the database was asked")

    monkeypatch.setattr(pop_service, "Visit", refuse)
    assert await alone.pop("never-seen", wait=True) == []
