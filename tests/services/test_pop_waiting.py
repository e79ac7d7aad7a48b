"""A waiting pop and everything that can wake it, or fail to.

Method: real brokers in this process, a real database. Where a bell is under test the floor
is a minute away, so that a pop which answers in time can only have been woken by the bell;
where the floor is under test it comes every 0.3 s, and no bell can ring. What must happen at
one point of a call is put there by wrapping the call, never by a sleep.
"""

import asyncio
import time
import uuid

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.errors import StoreError
from brokers.store import calls
from tests.services.in_process import (
    FLOOR_S,
    NO_FLOOR,
    QUICK_FLOOR,
    held,
    until,
    until_waiting,
    within,
)

BELL_S = 5.0
# The floor's interval, and a second in which a lease or a seed may sleep.
FOUND_S = FLOOR_S + 1.0 + 2.0
IMMEDIATE = {"auto_ack": True}


def long_ago(db, queue: str) -> None:
    """As if its partitions had been written an hour ago: no window of the floor reaches them."""
    db.execute(
        "UPDATE queen_partition SET last_write_at = now() - interval '1 hour' WHERE queue_id ="
        " (SELECT id FROM queen_queue WHERE name = %s)",
        [queue],
    )


def seek_to_the_start(db, queue: str, group: str) -> None:
    """What a seek backwards does, as seen by everybody else."""
    db.execute(
        "UPDATE queen_cursor SET committed = -1, lease_id = NULL, lease_expires_at = NULL"
        " WHERE consumer_group = %s AND partition_id IN (SELECT lane.id FROM queen_partition lane"
        " JOIN queen_queue queue ON queue.id = lane.queue_id WHERE queue.name = %s)",
        [group, queue],
    )
    db.execute(
        "INSERT INTO queen_wake (queue_id, consumer_group, version)"
        " SELECT id, %s, 1 FROM queen_queue WHERE name = %s"
        " ON CONFLICT (queue_id, consumer_group) DO UPDATE SET version = queen_wake.version + 1",
        [group, queue],
    )


def deafen(client) -> None:
    """Whatever this broker stores, nobody here is told: as a lost hint."""
    client.broker.push_combiner._announce = lambda news: None


# --- bells --------------------------------------------------------------------------------------


async def test_a_push_wakes_a_parked_pop(here, fresh_queue):
    waiting = await here.park_here(fresh_queue)
    await here.push(fresh_queue, "news")
    assert await within(waiting, BELL_S) == ["news"]


async def test_a_push_after_the_probe_of_the_first_look_is_heard(here, fresh_queue, monkeypatch):
    look = here.broker.floor.look

    async def look_then_push(*given, **named):
        found = await look(*given, **named)
        monkeypatch.undo()
        await here.push(fresh_queue, "news")
        return found

    monkeypatch.setattr(here.broker.floor, "look", look_then_push)
    assert await within(here.park(fresh_queue), BELL_S) == ["news"]


@pytest.mark.parametrize("which", ["first", "later"])
async def test_a_push_between_look_and_wait_is_heard(here, fresh_queue, monkeypatch, which):
    """Fails when the bell is rearmed after the look: it would forget the one rung meanwhile."""
    await here.push(fresh_queue, "before")
    assert await here.payloads(fresh_queue, **IMMEDIATE) == ["before"]
    claim = here.broker.claims.claim

    async def claim_then_push(job):
        rows = await claim(job)  # nothing is there, and the pop does not know it yet
        monkeypatch.undo()
        await here.push(fresh_queue, "news")
        return rows

    if which == "first":
        monkeypatch.setattr(here.broker.claims, "claim", claim_then_push)
        waiting = here.park(fresh_queue, partition="Default")
    else:
        waiting = await here.park_here(fresh_queue, partition="Default")
        monkeypatch.setattr(here.broker.claims, "claim", claim_then_push)
        here.broker.gates.ring_all(lambda key: True)
    assert await within(waiting, BELL_S) == ["news"]


async def test_both_groups_of_a_queue_hear_of_one_push(here, fresh_queue):
    groups = [await here.park_here(fresh_queue, group=group) for group in ("billing", "audit")]
    await here.push(fresh_queue, "news")
    assert await within(asyncio.gather(*groups), BELL_S) == [["news"], ["news"]]


async def test_one_push_costs_one_look_however_many_wait(here, fresh_queue):
    waiting = [await here.park_here(fresh_queue) for _ in range(100)]
    counters = here.broker.counters
    looked = counters.claim_calls + counters.probe_calls
    await here.push(fresh_queue, "news")
    done, _ = await asyncio.wait(waiting, timeout=BELL_S, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [["news"]]
    assert done == {waiting[0]}, "the oldest"
    # One claim; and looks that the arriving pops had agreed to share a moment later.
    assert counters.claim_calls + counters.probe_calls - looked <= 3
    for task in waiting:
        task.cancel()


async def test_each_of_many_partitions_wakes_a_pop_of_its_own(here, fresh_queue):
    waiting = [await here.park_here(fresh_queue, auto_ack=False) for _ in range(10)]
    for number in range(10):
        await here.push(fresh_queue, number, partition=f"p{number}")
    got = await within(asyncio.gather(*waiting), BELL_S)
    assert sorted(got) == [[number] for number in range(10)]


async def test_a_bell_rung_for_a_pop_that_is_cancelled_wakes_the_next(here, fresh_queue):
    first, second = [await here.park_here(fresh_queue) for _ in range(2)]
    announce = here.broker.push_combiner._announce

    def announce_and_cancel(news) -> None:
        announce(news)
        first.cancel()  # it is rung, and has not run since

    here.broker.push_combiner._announce = announce_and_cancel
    await here.push(fresh_queue, "news")
    assert await within(second, BELL_S) == ["news"]
    assert first.cancelled()


async def test_what_a_consumer_leaves_is_news_when_its_batch_completes(here, fresh_queue):
    await here.push(fresh_queue, 1, 2)
    [message] = await here.pop(fresh_queue, batch=1)
    waiting = await here.park_here(fresh_queue)
    began = time.monotonic()
    await here.ack(message)
    assert await within(waiting, BELL_S) == [2]
    assert time.monotonic() - began < 0.5, "by the ack, and not by the recheck of the lease"


async def test_what_is_pushed_while_a_consumer_works_is_news_when_it_completes(here, fresh_queue):
    await here.push(fresh_queue, 1)
    [message] = await here.pop(fresh_queue)
    waiting = await here.park_here(fresh_queue)
    await here.push(fresh_queue, 2)
    began = time.monotonic()
    await here.ack(message)
    assert await within(waiting, BELL_S) == [2]
    assert time.monotonic() - began < 0.5, "by the ack, and not by the recheck of the lease"


@pytest.mark.parametrize("status", ["retry", "failed"])
async def test_a_nack_here_wakes_a_parked_pop_at_once(here, fresh_queue, status):
    await here.push(fresh_queue, 1)
    [message] = await here.pop(fresh_queue)
    waiting = await here.park_here(fresh_queue)
    began = time.monotonic()
    await here.ack(message, status=status)
    assert await within(waiting, BELL_S) == [1]
    assert time.monotonic() - began < 0.5


async def test_a_lease_that_runs_out_wakes_a_parked_pop(here, fresh_queue):
    await here.push(fresh_queue, 1)
    [message] = await here.pop(fresh_queue, lease_s=1)
    assert message["deliveryAttempt"] == 1
    waiting = await here.park_here(fresh_queue)
    assert await within(waiting, BELL_S) == [1]


async def test_a_pop_of_a_partition_hears_of_its_birth(here, fresh_queue):
    waiting = await here.park_here(fresh_queue, partition="new")
    await here.push(fresh_queue, "other", partition="other")
    await here.push(fresh_queue, "news", partition="new")
    assert await within(waiting, BELL_S) == ["news"]


async def test_a_pop_of_a_partition_finds_that_it_was_born_elsewhere(floored, there, fresh_queue):
    waiting = await floored.park_here(fresh_queue, partition="new")
    await there.push(fresh_queue, "news", partition="new")
    assert await within(waiting, 2 * FOUND_S) == ["news"]


async def test_a_pop_of_a_partition_is_woken_by_a_push_to_it_and_by_no_other(here, fresh_queue):
    for partition in ("a", "b"):
        await here.push(fresh_queue, partition, partition=partition)
        assert await here.payloads(fresh_queue, partition=partition, **IMMEDIATE) == [partition]
    waiting = await here.park_here(fresh_queue, partition="a")
    claimed = here.broker.counters.claim_calls
    await here.push(fresh_queue, "not this", partition="b")
    assert here.broker.counters.claim_calls == claimed
    await here.push(fresh_queue, "this", partition="a")
    assert await within(waiting, BELL_S) == ["this"]


async def test_a_waiting_pop_answers_nothing_when_its_time_is_up(here, fresh_queue):
    began = time.monotonic()
    assert await within(here.park(fresh_queue, timeout_s=0.2)) == []
    assert 0.2 <= time.monotonic() - began < 2.0
    assert len(here.broker.gates) == 0


# --- other brokers ------------------------------------------------------------------------------


async def test_an_immediate_pop_finds_what_another_broker_stored(here, there, fresh_queue):
    for number in range(20):
        partition = f"p{number % 3}"
        await there.push(fresh_queue, number, partition=partition)
        assert await here.payloads(fresh_queue, **IMMEDIATE) == [number]


@pytest.fixture
async def floored(start_client):
    return await start_client(**QUICK_FLOOR)


async def test_the_floor_finds_what_another_broker_stored(floored, there, fresh_queue):
    waiting = await floored.park_here(fresh_queue)
    await there.push(fresh_queue, "news")
    assert await within(waiting, FOUND_S) == ["news"]


async def test_the_floor_finds_a_nack_on_another_broker(floored, there, db, fresh_queue):
    await there.push(fresh_queue, 1)
    [message] = await there.pop(fresh_queue)
    long_ago(db, fresh_queue)
    waiting = await floored.park_here(fresh_queue)
    await there.ack(message, status="retry")
    assert await within(waiting, FOUND_S) == [1]


async def test_the_floor_finds_a_seek_backwards_on_another_broker(floored, there, db, fresh_queue):
    await there.push(fresh_queue, 1, 2)
    assert await there.payloads(fresh_queue, group="g", subscription_mode="all", auto_ack=True)
    long_ago(db, fresh_queue)
    waiting = await floored.park_here(fresh_queue, group="g")
    seek_to_the_start(db, fresh_queue, "g")
    assert await within(waiting, FOUND_S) == [1, 2]


async def test_a_nack_of_ours_that_is_answered_late_hides_no_seek_elsewhere(
    floored, db, fresh_queue
):
    """The floor saw our own move of the wake version before we heard that we had made it."""
    broker, group = floored.broker, {"group": "g", "subscription_mode": "all"}
    for partition in ("a", "b"):
        await floored.push(fresh_queue, partition, partition=partition)
    assert await floored.payloads(fresh_queue, partition="b", auto_ack=True, **group) == ["b"]
    [message] = await floored.pop(fresh_queue, partition="a", **group)
    waiting = await floored.park_here(fresh_queue, partition="b", **group)
    fetch = broker.ack_lane.fetch

    async def answered_late(*given, **named):
        rows = await fetch(*given, **named)
        probed = broker.counters.probe_calls
        await until(lambda: broker.counters.probe_calls >= probed + 2)
        return rows

    broker.ack_lane.fetch = answered_late
    await floored.ack(message, status="retry")
    broker.ack_lane.fetch = fetch
    assert await floored.payloads(fresh_queue, partition="a", auto_ack=True, **group) == ["a"]
    long_ago(db, fresh_queue)
    seek_to_the_start(db, fresh_queue, "g")
    assert await within(waiting, FOUND_S) == ["b"]


async def test_the_floor_heals_a_lost_mark(floored, fresh_queue):
    waiting = await floored.park_here(fresh_queue)
    deafen(floored)
    await floored.push(fresh_queue, "news")
    assert await within(waiting, FOUND_S) == ["news"]


async def test_a_full_reseed_heals_a_mark_that_was_lost_long_ago(start_client, db, fresh_queue):
    client = await start_client(**QUICK_FLOOR, QUEEN_HOTLIST_RESEED_FULL_MS="1000")
    await client.push(fresh_queue, "before")
    assert await client.payloads(fresh_queue, **IMMEDIATE) == ["before"]
    deafen(client)
    with held_floor(client):
        waiting = await client.park_here(fresh_queue)
        await client.push(fresh_queue, "news")
        long_ago(db, fresh_queue)
    assert await within(waiting, 1.2 + FOUND_S) == ["news"]


class held_floor:
    """No look at the database meanwhile: what happens now is old when the floor looks again."""

    def __init__(self, client) -> None:
        self._floor = client.broker.floor

    def __enter__(self) -> None:
        async def no_step() -> None:
            return

        self._floor.step = no_step

    def __exit__(self, *_: object) -> None:
        del self._floor.step


async def test_the_floor_wakes_a_pop_of_a_partition_whose_bell_another_pop_heard(
    floored, fresh_queue
):
    for partition in ("a", "b"):
        await floored.push(fresh_queue, "old", partition=partition)
        assert await floored.payloads(fresh_queue, partition=partition, **IMMEDIATE) == ["old"]
    older = await floored.park_here(fresh_queue, batch=1)
    waiting = await floored.park_here(fresh_queue, partition="b")
    await asyncio.gather(
        floored.push(fresh_queue, "a", partition="a"),
        floored.push(fresh_queue, "b", partition="b"),
    )
    assert await within(older, BELL_S) == ["a"]
    assert await within(waiting, FOUND_S) == ["b"]


async def test_a_queue_deleted_and_made_again_elsewhere_serves_a_parked_pop(
    floored, there, fresh_queue
):
    await floored.push(fresh_queue, "old")
    assert await floored.payloads(fresh_queue, **IMMEDIATE) == ["old"]
    waiting = await floored.park_here(fresh_queue)
    in_partition = await floored.park_here(fresh_queue, partition="p")
    assert await there.delete(fresh_queue)
    await there.push(fresh_queue, "new")
    await there.push(fresh_queue, "in partition", partition="p")
    got = await within(asyncio.gather(waiting, in_partition), 2 * FOUND_S)
    assert got[1] == ["in partition"]
    assert got[0] == ["new"]


# --- cancelled ----------------------------------------------------------------------------------


async def test_500_waiting_pops_cancelled_at_once_twenty_times_leave_nothing(here, fresh_queue):
    broker = here.broker
    await here.push(fresh_queue, "before")
    assert await here.payloads(fresh_queue, **IMMEDIATE) == ["before"]

    def at_rest() -> bool:
        stats = broker.store.stats()
        return stats["waiting"] == 0 and stats["idle"] == stats["size"]

    await until(at_rest)
    for turn in range(20):
        waiting = [here.park(fresh_queue) for _ in range(500)]
        if turn % 2:
            await here.parked(500, fresh_queue)
        else:  # wherever they are just then
            for _ in range(turn):
                await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        ends = await within(asyncio.gather(*waiting, return_exceptions=True))
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        assert len(broker.gates) == 0
        assert broker.gates.occupied() == []
    await until(at_rest, timeout_s=1.0)
    assert broker.store.stats()["size"] <= 8
    assert not any(broker.admission.in_flight.values())
    await here.push(fresh_queue, "after")
    assert await within(here.payloads(fresh_queue, **IMMEDIATE)) == ["after"]


LOCK_GROUP = """
SELECT 1 FROM queen_group registered JOIN queen_queue queue ON queue.id = registered.queue_id
 WHERE queue.name = %s FOR UPDATE OF registered
"""


async def test_a_claim_whose_pop_is_cancelled_in_mid_call_is_handed_back_uncharged(
    here, db, second_connection, fresh_queue
):
    assert await here.pop(fresh_queue) == [], "now the group is registered"
    await here.push(fresh_queue, "news")
    with held(second_connection(), LOCK_GROUP, fresh_queue):
        popping = here.park(fresh_queue, auto_ack=False)
        await until_waiting(db, "queen_message_claim")
        popping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await popping
    [message] = await here.pop(fresh_queue, wait=True, timeout_s=BELL_S)
    assert (message["data"], message["deliveryAttempt"]) == ("news", 1)


async def test_what_a_pop_that_is_cancelled_in_mid_call_was_given_wakes_the_next_in_the_row(
    here, db, second_connection, fresh_queue
):
    """No floor: the one that waits must not sit out its time beside a message."""
    popping, waiting = [await here.park_here(fresh_queue, auto_ack=False) for _ in range(2)]
    with held(second_connection(), LOCK_GROUP, fresh_queue):
        await here.push(fresh_queue, "news")
        await until_waiting(db, "queen_message_claim")
        popping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await popping
    assert await within(waiting, BELL_S) == ["news"]


async def test_pops_of_one_partition_that_share_a_call_each_get_of_what_is_there(here, fresh_queue):
    """None of them waits: what the first one takes it commits, and the next gets what is behind."""
    await here.push(fresh_queue, 1, 2, 3)
    one = {"partition": "Default", "batch": 1, **IMMEDIATE}
    assert await here.payloads(fresh_queue, **one) == [1]
    calls_before = here.broker.claims.coalescer.calls
    pops = [here.payloads(fresh_queue, **one) for _ in range(2)]
    assert await within(asyncio.gather(*pops)) == [[2], [3]]
    assert here.broker.claims.coalescer.calls == calls_before + 1, "they shared it"


async def test_a_pop_that_needs_a_call_of_its_own_beside_one_that_does_not_gets_its_messages(
    here, fresh_queue
):
    """It is the first of its group at this partition: its cursor has to be made."""
    await here.push(fresh_queue, 1, 2, partition="known")
    assert await here.payloads(fresh_queue, batch=1, **IMMEDIATE) == [1]
    await here.push(fresh_queue, 3, partition="new")
    pops = [here.payloads(fresh_queue, partition=one, **IMMEDIATE) for one in ("known", "new")]
    assert await within(asyncio.gather(*pops)) == [[2], [3]]


async def test_a_pop_that_has_its_messages_does_not_wait_for_those_beside_it(
    start_client, db, second_connection, fresh_queue
):
    client = await start_client(QUEEN_STMT_TIMEOUT_MS="1500", **NO_FLOOR)
    for partition in ("known", "new"):
        await client.push(fresh_queue, 1, 2, partition=partition)
    lanes = "SELECT lane.id FROM queen_partition lane WHERE lane.name = %s AND lane.queue_id ="
    lanes += " (SELECT id FROM queen_queue WHERE name = %s)"
    [known], [new] = [db.execute(lanes, [one, fresh_queue]).fetchone() for one in ("known", "new")]

    def claim(partition_id: int) -> "asyncio.Task[list[calls.ClaimRow]]":
        job = calls.ClaimJob("__QUEUE_MODE__", 1, 1, str(uuid.uuid4()), 0, True, [partition_id])
        return asyncio.create_task(client.broker.claims.claim(job))

    assert await client.payloads(fresh_queue, partition="known", batch=1, **IMMEDIATE) == [1]
    maker = second_connection()
    maker.execute(
        "INSERT INTO queen_cursor (partition_id, consumer_group, committed)"
        " VALUES (%s, '__QUEUE_MODE__', -1)",
        [new],
    )
    served, held_up = claim(known), claim(new)
    assert [row.verdict for row in await within(served)] == ["took"]
    await until_waiting(db, "queen_message_claim_v1")
    with pytest.raises(StoreError):
        await within(held_up)
    maker.rollback()
    assert [row.verdict for row in await within(claim(new))] == ["took"]


async def test_pops_cancelled_around_a_push_lose_and_charge_nothing(here, fresh_queue):
    """Somewhere between the bell and the answer, a step of the loop later each time."""
    assert await here.pop(fresh_queue) == []
    for turn in range(60):
        popping = await here.park_here(fresh_queue, auto_ack=False)
        pushing = asyncio.create_task(here.push(fresh_queue, turn))
        await until(lambda popping=popping: popping.done() or not here.broker.gates.parked())
        for _ in range(turn % 12):
            await asyncio.sleep(0)
        popping.cancel()
        [end] = await asyncio.gather(popping, return_exceptions=True)
        await pushing
        if isinstance(end, list):  # answered before it could be cancelled
            await release(here, fresh_queue)
        [message] = await here.pop(fresh_queue, wait=True, timeout_s=BELL_S)
        assert message["data"] == turn
        if not isinstance(end, list):
            assert message["deliveryAttempt"] == 1
        [outcome] = await here.ack(message)
        assert outcome.success


async def release(client, queue: str) -> None:
    """End the lease of a pop that did answer."""
    found = await client.broker.store.fetch_one(
        "SELECT place.lease_id::text, place.partition_id FROM queen_cursor place"
        " JOIN queen_partition lane ON lane.id = place.partition_id"
        " JOIN queen_queue queue ON queue.id = lane.queue_id WHERE queue.name = %s"
        " AND place.lease_id IS NOT NULL",
        [queue],
    )
    if found:
        group = "__QUEUE_MODE__"
        queue_row = client.broker.directory.queues.get((DEFAULT_TENANT, queue))
        await client.broker.claims.hand_back(found[0], group, [found[1]], {queue_row.id})


# --- deferred -----------------------------------------------------------------------------------


async def test_a_deferred_message_wakes_a_pop_when_it_is_due(here, fresh_queue):
    await here.configure(fresh_queue, delayedProcessing=1)
    waiting = await here.park_here(fresh_queue)
    await here.push(fresh_queue, "later")
    began = time.monotonic()
    assert await within(waiting, BELL_S) == ["later"]
    assert 0.9 < time.monotonic() - began < 2.0


@pytest.mark.parametrize("auto_ack", [True, False])
async def test_a_deferred_message_behind_a_batch_wakes_a_pop_when_it_is_due(
    here, db, fresh_queue, auto_ack
):
    """When the batch is taken the one behind it is not visible, so that no more seems left."""
    await here.configure(fresh_queue, delayedProcessing=1)
    options = {"wait": True, "timeout_s": 60.0, "auto_ack": auto_ack}
    first = asyncio.create_task(here.pop(fresh_queue, **options))
    await here.parked(1, fresh_queue)
    second = await here.park_here(fresh_queue)
    await here.push(fresh_queue, "first")
    await here.push(fresh_queue, "second")
    db.execute(
        "UPDATE queen_segment SET created_at = created_at + interval '1 second'"
        " WHERE base_offset = 1 AND partition_id = (SELECT lane.id FROM queen_partition lane"
        " JOIN queen_queue queue ON queue.id = lane.queue_id WHERE queue.name = %s)",
        [fresh_queue],
    )
    [message] = await within(first, BELL_S)
    assert message["data"] == "first"
    if not auto_ack:
        await here.ack(message)
    assert await within(second, BELL_S) == ["second"]


@pytest.mark.parametrize("how", ["parked", "immediate"])
async def test_a_deferral_that_is_configured_away_defers_nothing_any_more(
    floored, db, fresh_queue, how
):
    await floored.configure(fresh_queue, delayedProcessing=3600)
    waiting = await floored.park_here(fresh_queue)
    claimed = floored.broker.counters.claim_calls
    await floored.push(fresh_queue, "later")
    await until(lambda: floored.broker.counters.claim_calls > claimed)
    await floored.parked(1, fresh_queue)  # it has seen the deferral
    long_ago(db, fresh_queue)
    if how == "immediate":
        waiting.cancel()
    await floored.configure(fresh_queue, delayedProcessing=0)
    if how == "immediate":
        assert await floored.payloads(fresh_queue, **IMMEDIATE) == ["later"]
    else:
        assert await within(waiting, FOUND_S) == ["later"]


# --- many at once -------------------------------------------------------------------------------


async def test_a_discovery_of_many_queues_shares_its_probes(here, fresh_queue):
    for number in range(20):
        await here.push(f"{fresh_queue}.{number}", number)
    options = {"namespace": fresh_queue, "group": "g", "subscription_mode": "new"}
    before = here.broker.counters.probe_calls
    assert await here.pop(None, **options) == []
    assert here.broker.counters.probe_calls - before <= 2


async def test_a_parked_discovery_hears_of_a_queue_that_is_made_here(here, fresh_queue):
    waiting = here.park(None, namespace=fresh_queue)
    await here.parked(1)
    await here.push(f"{fresh_queue}.born", "first")
    assert await within(waiting, BELL_S) == ["first"]


async def test_a_queue_born_while_a_new_group_waits_delivers_its_first_message(here, fresh_queue):
    waiting = here.park(None, namespace=fresh_queue, group="g", subscription_mode="new")
    await here.parked(1)
    await here.push(f"{fresh_queue}.born", "first")
    assert await within(waiting, BELL_S) == ["first"]


async def test_a_queue_born_after_the_group_met_its_namespace_delivers_its_first_message(
    here, fresh_queue
):
    options = {"namespace": fresh_queue, "group": "g", "subscription_mode": "new"}
    await here.push(f"{fresh_queue}.old", "before")
    assert await here.pop(None, **options) == []
    await here.push(f"{fresh_queue}.born", "first")
    assert await within(here.park(None, **options), BELL_S) == ["first"]


async def test_a_discovery_serves_every_queue_in_turn(here, fresh_queue):
    for number in range(30):
        await here.push(f"{fresh_queue}.busy", number, partition=str(number))
    await here.push(f"{fresh_queue}.quiet", "quiet")
    options = {"namespace": fresh_queue, "batch": 1, "auto_ack": True}
    got = [(await here.payloads(None, **options))[0] for _ in range(4)]
    assert "quiet" in got


async def test_a_held_pop_ends_with_its_time_though_the_queue_is_deleted(here, fresh_queue):
    await here.configure(fresh_queue, minPopWaitTime=2000)
    await here.push(fresh_queue, 1)
    waiting = here.park(fresh_queue, batch=10, timeout_s=1.0)
    await here.parked(1, fresh_queue)
    await here.delete(fresh_queue)
    assert await within(waiting, 5.0) == []


async def test_many_pops_of_a_quiet_queue_share_their_probes(here, fresh_queue):
    assert await here.pop(fresh_queue) == []
    before = here.broker.counters.probe_calls
    pops = [here.pop(fresh_queue) for _ in range(200)]
    assert await within(asyncio.gather(*pops)) == [[]] * 200
    assert here.broker.counters.probe_calls - before <= 3


async def test_many_pops_at_first_contact_make_the_queue_and_the_group_once(
    here, fresh_queue, monkeypatch
):
    asked = {"queue_ensure": 0, "group_register": 0}
    for name in asked:
        call = getattr(calls, name)

        async def counted(*given, call=call, name=name, **named):
            asked[name] += 1
            return await call(*given, **named)

        monkeypatch.setattr(calls, name, counted)
    pops = [here.pop(fresh_queue) for _ in range(200)]
    assert await within(asyncio.gather(*pops)) == [[]] * 200
    assert asked == {"queue_ensure": 1, "group_register": 1}
