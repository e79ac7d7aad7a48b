"""Firing inside a sweeper: what fails before its commit, after it, or because of one timer.

Method: a broker in the test's loop whose sweeper is driven cycle by cycle, on a database of the
test's own. Faults are put between the sweeper and its connection, as a lost answer is, or into
the transaction itself by a trigger; what happened is read from the log and the table.
"""

import asyncio
import json
import uuid
from typing import Any

import pytest

from brokers import frames
from brokers.domain import DEFAULT_TENANT, TimerOperation
from brokers.errors import Permanent, Refusal, StoreError
from brokers.services import timers as timer_service
from brokers.services.sweeper import Chore, Sweeper
from brokers.store import timer_calls
from tests import harness
from tests.services.in_process import Client, running, until

SETTINGS = {
    "QUEEN_SWEEPER_LEASE_MS": "400",
    "QUEEN_SWEEPER_BACKOFF_MIN_MS": "100",
    "QUEEN_SWEEPER_MAX_ATTEMPTS": "3",
}


class Faults:
    """Stands between a sweeper and its connection; one fault for the next fire."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._fetch = sweeper._fetch
        self.before: Exception | None = None
        self.after: Exception | None = None
        sweeper._fetch = sweeper._firing._fetch = self.fetch

    async def fetch(self, statement: str, parameters: Any = None, **named: Any) -> list[Any]:
        fires = "queen_timer_fire_v1" in statement
        if fires and self.before:
            error, self.before = self.before, None
            raise error
        rows = await self._fetch(statement, parameters, **named)
        if fires and self.after:
            error, self.after = self.after, None
            raise error
        return rows


@pytest.fixture
async def client(database, fresh_database):
    """`database` is there because Django's own connection leads to it."""
    async with running(fresh_database(), **SETTINGS) as client:
        yield client


@pytest.fixture
def sweeper(client: Client) -> Sweeper:
    return Sweeper(client.broker)


@pytest.fixture
def faults(sweeper: Sweeper) -> Faults:
    return Faults(sweeper)


async def schedule(client: Client, queue: str, *keys: str, delay_ms: int = 0, lanes: int = 1):
    operations = [
        TimerOperation(queue, key, key, delay_ms, f"p{no % lanes}", json.dumps(key).encode())
        for no, key in enumerate(keys)
    ]
    request = timer_service.ApplyRequest(tenant=DEFAULT_TENANT, operations=operations)
    return await timer_service.apply(client.broker, request)


async def cancel(client: Client, queue: str, key: str) -> str:
    request = timer_service.ApplyRequest(
        tenant=DEFAULT_TENANT, operations=[TimerOperation(queue, key, None)]
    )
    [outcome] = await timer_service.apply(client.broker, request)
    return outcome.status


async def delivered(client: Client) -> list[str]:
    rows = await client.broker.store.fetch(
        "SELECT frames FROM queen_segment ORDER BY partition_id, base_offset"
    )
    return [
        json.loads(frames.transaction_of(one))
        for (joined,) in rows
        for one in bytes(joined).split(frames.SEPARATOR)
    ]


async def pending(client: Client) -> list[tuple[str, int, bool]]:
    """(key, attempts, claimed) of every timer."""
    rows = await client.broker.store.fetch(
        "SELECT timer_key, attempts, claim_token IS NOT NULL FROM queen_timer ORDER BY 1"
    )
    return [tuple(row) for row in rows]


async def sweep_until_empty(client: Client, sweeper: Sweeper, timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while await pending(client):
            await sweeper.cycle()
            await asyncio.sleep(0.02)


async def test_a_cycle_fires_what_is_due_over_many_partitions(client, sweeper, fresh_queue):
    await schedule(client, fresh_queue, *[f"k{no}" for no in range(500)], lanes=70)
    await schedule(client, fresh_queue, "far", delay_ms=60_000)
    cycle = await sweeper.cycle()
    assert (cycle.claimed, cycle.fired, cycle.error) == (500, 500, None)
    assert sorted(await delivered(client)) == sorted(f"k{no}" for no in range(500))
    assert await pending(client) == [("far", 0, False)]


async def test_a_fire_that_failed_before_its_commit_is_let_go_uncharged(
    client, sweeper, faults, fresh_queue
):
    await schedule(client, fresh_queue, "a", "b")
    faults.before = StoreError("the server is in recovery")
    cycle = await sweeper.cycle()
    assert cycle.fired == 0 and "recovery" in (cycle.error or "")
    assert await pending(client) == [("a", 0, False), ("b", 0, False)]
    assert await cancel(client, fresh_queue, "a") == "cancelled"
    await sweep_until_empty(client, sweeper)
    assert await delivered(client) == ["b"]


async def test_a_fire_whose_answer_was_lost_before_the_commit_comes_again_after_its_lease(
    client, sweeper, faults, fresh_queue
):
    await schedule(client, fresh_queue, "a")
    faults.before = StoreError("connection reset", outcome_unknown=True)
    await sweeper.cycle()
    assert await pending(client) == [("a", 0, True)], "nobody knows, so nobody touches it"
    await sweep_until_empty(client, sweeper)
    assert await delivered(client) == ["a"]


async def test_a_fire_whose_answer_was_lost_after_the_commit_is_not_repeated(
    client, sweeper, faults, fresh_queue
):
    await schedule(client, fresh_queue, "a")
    faults.after = StoreError("connection reset", outcome_unknown=True)
    await sweeper.cycle()
    await asyncio.sleep(0.5)  # past the lease
    await sweeper.cycle()
    assert await delivered(client) == ["a"]
    assert await pending(client) == []


async def test_one_poisoned_timer_is_isolated_charged_and_set_aside(client, sweeper, fresh_queue):
    keys = [f"k{no}" for no in range(20)]
    await schedule(client, fresh_queue, *keys, "poison", lanes=4)
    with connected(client) as db, harness.refusing_segments(db, b'"poison"', "poisoned bytes"):
        cycle = await sweeper.cycle()
        assert cycle.fired == 20
        assert await pending(client) == [("poison", 1, False)]
        await sweep_until_empty(client, sweeper)
    assert sorted(await delivered(client)) == sorted(keys)
    rows = await client.broker.store.fetch(
        "SELECT consumer_group, transaction_id, error, retry_count FROM queen_dead_letter"
    )
    assert [tuple(row) for row in rows] == [("__timer__", '"poison"', "poisoned bytes", 3)]
    assert client.broker.timer_metrics.poisoned == 3
    assert client.broker.timer_metrics.dead_letters == 1


async def test_a_poisoned_timer_can_be_cancelled_while_it_backs_off(client, sweeper, fresh_queue):
    await schedule(client, fresh_queue, "poison")
    with connected(client) as db, harness.refusing_segments(db, b'"poison"', "poisoned"):
        await sweeper.cycle()
        assert await pending(client) == [("poison", 1, False)]
        assert await cancel(client, fresh_queue, "poison") == "cancelled"
    await asyncio.sleep(0.15)
    await sweeper.cycle()
    assert await delivered(client) == []


async def test_a_transient_error_inside_the_transaction_charges_nobody(
    client, sweeper, fresh_queue
):
    """A full disk is not the timers' fault, however often it happens."""
    await schedule(client, fresh_queue, "a", "b", lanes=2)
    full = {"marker": b'"a"', "message": "disk full", "state": "53100"}
    with connected(client) as db, harness.refusing_segments(db, **full):
        for _ in range(5):
            await sweeper.cycle()
            await asyncio.sleep(0.02)
        assert {attempts for _, attempts, _ in await pending(client)} == {0}
    await sweep_until_empty(client, sweeper, 20)
    assert sorted(await delivered(client)) == ["a", "b"]


async def test_a_partition_that_is_held_does_not_keep_the_others_waiting(
    client, sweeper, fresh_queue
):
    await schedule(client, fresh_queue, "first", "second", lanes=2)
    await sweep_until_empty(client, sweeper)
    await schedule(client, fresh_queue, "a", "b", lanes=2)
    with connected(client, autocommit=False) as holder:
        holder.execute("SELECT 1 FROM queen_partition WHERE name = 'p0' FOR UPDATE")
        cycle = await sweeper.cycle()
        assert cycle.fired == 1
        assert await pending(client) == [("a", 0, False)]
        holder.rollback()
    await sweep_until_empty(client, sweeper)
    assert (await delivered(client)).count("a") == 1


async def test_a_queue_that_was_made_anew_meanwhile_gets_its_timer(client, sweeper, fresh_queue):
    await schedule(client, fresh_queue, "a")
    await sweep_until_empty(client, sweeper)
    with connected(client) as elsewhere:  # another broker: our caches hear nothing of it
        elsewhere.execute("SELECT queen_queue_delete_v1(%s, %s)", [DEFAULT_TENANT, fresh_queue])
    await schedule(client, fresh_queue, "b")
    await sweep_until_empty(client, sweeper)
    assert await client.payloads(fresh_queue) == ["b"]


@pytest.mark.parametrize("known", [True, False])
async def test_a_queue_that_is_deleted_behind_a_claim_does_not_come_back(
    client, sweeper, fresh_queue, known
):
    await schedule(client, fresh_queue, "a")
    await sweep_until_empty(client, sweeper)
    await schedule(client, fresh_queue, "b")
    token = str(uuid.uuid4())
    timers = await timer_calls.timer_claim(
        sweeper._fetch, token, lease_ms=60_000, start=0, limit=10, bytes_max=2**20
    )
    with connected(client) as elsewhere:
        elsewhere.execute("SELECT queen_queue_delete_v1(%s, %s)", [DEFAULT_TENANT, fresh_queue])
    if not known:
        client.broker.directory.forget_partition(DEFAULT_TENANT, fresh_queue, "p0")
    assert await sweeper._firing.fire(token, timers, backoff_ms=100) == 0
    queues = "SELECT count(*) FROM queen_queue WHERE name = %s"
    assert [tuple(row) for row in await client.broker.store.fetch(queues, [fresh_queue])] == [(0,)]
    assert client.broker.timer_metrics.fired["short"] == 1


async def test_a_fire_wakes_a_pop_that_waits_without_any_floor(
    database, fresh_database, fresh_queue
):
    settings = SETTINGS | {"POP_WAIT_MAX_INTERVAL_MS": "60000"}
    async with running(fresh_database(), **settings) as client:
        sweeper = asyncio.create_task(Sweeper(client.broker).run())
        waiting = await client.park_here(fresh_queue)
        await schedule(client, fresh_queue, "a", delay_ms=100)
        assert await asyncio.wait_for(waiting, 10) == ["a"]
        client.broker.timer_alarm.close()
        await asyncio.wait_for(sweeper, 5)


async def test_a_local_schedule_wakes_the_sweeper_before_its_promise(
    database, fresh_database, fresh_queue
):
    slow = {"QUEEN_SWEEPER_MAX_SLEEP_MS": "60000", "QUEEN_SWEEPER_IDLE_MAX_SLEEP_MS": "60000"}
    async with running(fresh_database(), **SETTINGS | slow) as client:
        sweeps: list[Any] = []
        sweeper = asyncio.create_task(Sweeper(client.broker).run(sweeps.append))
        await until(lambda: bool(sweeps))
        await schedule(client, fresh_queue, "a", delay_ms=50)
        await until(lambda: sum(one.fired for one in sweeps) == 1)
        sweeper.cancel()


async def test_the_operators_switches_are_obeyed(client, sweeper, fresh_queue):
    class Switches:
        known = True
        timers_schedule_enabled = True
        timers_fire_enabled = True

    client.broker.switches = Switches()
    await schedule(client, fresh_queue, "a", "b")
    client.broker.switches.timers_fire_enabled = False
    cycle = await sweeper.cycle()
    assert (cycle.due, cycle.claimed) == (2, 0)
    assert cycle.sleep_s > 0.2, "nothing is contended, so nothing is hurried"
    client.broker.switches.timers_schedule_enabled = False
    with pytest.raises(Refusal) as refused:
        await schedule(client, fresh_queue, "c")
    assert refused.value.code == "timers_disabled" and refused.value.status == 503
    assert await cancel(client, fresh_queue, "a") == "cancelled"
    client.broker.switches.timers_fire_enabled = True
    await sweep_until_empty(client, sweeper)
    assert await delivered(client) == ["b"]


async def test_a_chore_that_fails_keeps_neither_fires_nor_other_chores(
    client, sweeper, fresh_queue
):
    done: list[str] = []

    async def broken(broker: Any) -> int:
        raise Permanent("no", sqlstate="XX000")

    async def sound(broker: Any) -> int:
        done.append("sound")
        return 5

    sweeper._chores = [Chore("broken", 0.0, broken), Chore("sound", 3600.0, sound)]
    await schedule(client, fresh_queue, "a")
    cycle = await sweeper.cycle()
    assert (cycle.fired, cycle.chores) == (1, 5)
    await sweeper.cycle()
    assert done == ["sound"]


def connected(client: Client, *, autocommit: bool = True) -> Any:
    """A connection of the test's own to the broker's database."""
    postgres = client.broker.config.postgres
    database = harness.Database(name=postgres.database, host=postgres.hosts[0])
    return database.connect(autocommit=autocommit)
