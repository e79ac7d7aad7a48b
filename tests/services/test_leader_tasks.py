"""Leader tasks in running brokers: one leads, the others follow, and a dead one is followed.

Method: brokers in the test's own loop on one database, with tasks of the test's own that note who
is at work; and retention's own cycle, whose messages get their age by moving created_at back.
"""

import asyncio
import contextlib
import logging

import pytest

from brokers.services import retention
from brokers.services.leaders import Leaders, Task
from brokers.services.term import Fenced, Term
from brokers.store import leader_calls
from tests.services.in_process import NO_FLOOR, held, until, until_waiting, within
from tests.store.retaining import lead

LEASE_MS = 400


@contextlib.asynccontextmanager
async def following(client, task):
    leaders = Leaders(client.broker)
    follower = asyncio.create_task(leaders.follow(task))
    try:
        yield follower
    finally:
        follower.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await follower


async def test_brokers_take_turns_and_never_work_at_once(start_client, fresh_queue):
    clients = [await start_client(**NO_FLOOR, QUEEN_SERVER_ID=f"b{n}") for n in range(3)]
    turns: list[str] = []
    at_work = 0

    async def work(broker, term):
        nonlocal at_work
        at_work += 1
        turns.append(broker.config.server.server_id)
        await asyncio.sleep(0.002)
        assert at_work == 1
        at_work -= 1

    task = Task(name=fresh_queue, every_ms=50, work=work)
    async with contextlib.AsyncExitStack() as stack:
        followers = [await stack.enter_async_context(following(one, task)) for one in clients]
        await until(lambda: len(turns) >= 60, timeout_s=60)
        assert not any(one.done() for one in followers)
    shares = [turns.count(f"b{n}") for n in range(3)]
    assert min(shares) >= 8, shares


async def test_a_leader_that_dies_at_work_is_succeeded_after_its_lease(start_client, fresh_queue):
    settings = {**NO_FLOOR, "QUEEN_LEADER_LEASE_MS": str(LEASE_MS)}
    dying, heir = [await start_client(**settings, QUEEN_SERVER_ID=name) for name in ("a", "b")]
    loop = asyncio.get_running_loop()
    leads: list[tuple[str, float]] = []

    async def work(broker, term):
        leads.append((broker.config.server.server_id, loop.time()))
        if broker is dying.broker:
            await asyncio.Event().wait()

    task = Task(name=fresh_queue, every_ms=20, work=work)
    async with following(dying, task) as victim:
        await until(lambda: leads)
        victim.cancel()
    async with following(heir, task):
        await until(lambda: len(leads) > 3)
    assert [name for name, _ in leads[:4]] == ["a", "b", "b", "b"]
    assert leads[1][1] - leads[0][1] >= LEASE_MS / 1000 * 0.9


async def test_a_task_that_fails_is_given_back_and_tried_again(start_client, fresh_queue):
    client = await start_client(**NO_FLOOR)
    tries = 0

    async def work(broker, term):
        nonlocal tries
        tries += 1
        raise RuntimeError("a mistake of ours")

    task = Task(name=fresh_queue, every_ms=10, work=work)
    async with following(client, task):
        await until(lambda: tries >= 2, timeout_s=10)
    assert client.broker.leader_metrics.failures[fresh_queue] >= 2


async def test_a_cycle_that_lost_its_lease_unnoticed_counts_as_fenced_and_not_as_led(
    start_client, db, fresh_queue
):
    client = await start_client(**NO_FLOOR)
    metrics = client.broker.leader_metrics

    async def work(broker, term):
        db.execute(
            "UPDATE queen_lease SET fencing_token = fencing_token + 1 WHERE task = %s",
            [fresh_queue],
        )

    async with following(client, Task(name=fresh_queue, every_ms=10, work=work)):
        await until(lambda: metrics.fenced.get(fresh_queue))
    assert not metrics.cycles.get(fresh_queue)


async def test_a_cycle_that_is_cut_short_is_due_again_at_once(start_client, fresh_queue):
    client = await start_client(**NO_FLOOR, QUEEN_LEADER_LEASE_MS="100")
    cycles = 0

    async def work(broker, term):
        nonlocal cycles
        cycles += 1
        assert not term.is_over()
        await asyncio.sleep(0.06)
        assert term.is_over()

    async with following(client, Task(name=fresh_queue, every_ms=60_000, work=work)):
        await until(lambda: cycles >= 3, timeout_s=10)


# --- retention's own cycle ------------------------------------------------------------------------


def term(token: int) -> Term:
    return Term(token=token, ends_at=asyncio.get_running_loop().time() + 60)


def age(db, queue, seconds):
    """Everything in a queue gets this much older."""
    lanes = "SELECT p.id FROM queen_partition p JOIN queen_queue q ON q.id = queue_id"
    for statement in (
        "UPDATE queen_segment SET created_at = created_at - make_interval(secs => %s)"
        f" WHERE partition_id IN ({lanes} WHERE q.name = %s)",
        "UPDATE queen_partition SET oldest_live_at = oldest_live_at - make_interval(secs => %s),"
        f" retention_look_at = NULL WHERE id IN ({lanes} WHERE q.name = %s)",
    ):
        db.execute(statement, [seconds, queue])


@pytest.mark.parametrize("parallelism", ["1", "4"])
async def test_a_cycle_empties_what_is_due_and_says_so_once(
    start_client, db, fresh_queue, caplog, parallelism
):
    client = await start_client(
        **NO_FLOOR, RETENTION_PARALLELISM=parallelism, RETENTION_BATCH_SIZE="3"
    )
    await client.configure(fresh_queue, maxWaitTimeSeconds=100)
    for number in range(6):
        for _ in range(4):
            await client.push(fresh_queue, "old", partition=f"p{number}")
    age(db, fresh_queue, 200)
    await client.push(fresh_queue, "young", partition="p0")
    caplog.set_level(logging.INFO, logger="brokers.services.retention")
    deleted = client.broker.leader_metrics.deleted_messages

    await within(retention.cycle(client.broker, term(lead(db))))
    assert deleted["eviction"] == 24

    def lines():
        return [m for m in map(logging.LogRecord.getMessage, caplog.records) if "deleted" in m]

    [line] = lines()
    assert "deleted 24 messages" in line and "24 segments" in line and "6 partitions" in line
    await within(retention.cycle(client.broker, term(lead(db))))
    assert len(lines()) == 1, "nothing deleted, nothing said"
    assert await client.payloads(fresh_queue, batch=100, partitions=0) == ["young"]


async def test_a_cycle_passes_over_what_is_held_and_does_the_rest(
    start_client, db, fresh_queue, second_connection
):
    client = await start_client(**NO_FLOOR)
    await client.configure(fresh_queue, maxWaitTimeSeconds=100)
    for name in ("held", "free"):
        await client.push(fresh_queue, name, partition=name)
    age(db, fresh_queue, 200)
    lock = (
        "SELECT 1 FROM queen_partition p JOIN queen_queue q ON q.id = queue_id"
        " WHERE q.name = %s AND p.name = 'held' FOR UPDATE OF p"
    )
    with held(second_connection(), lock, fresh_queue):
        await within(retention.cycle(client.broker, term(lead(db))))
        assert client.broker.leader_metrics.busy == 1
    assert await client.payloads(fresh_queue, batch=10, partitions=0) == ["held"]


async def test_a_cycle_under_an_old_token_deletes_nothing(start_client, db, fresh_queue):
    client = await start_client(**NO_FLOOR)
    await client.configure(fresh_queue, maxWaitTimeSeconds=100)
    await client.push(fresh_queue, "old")
    age(db, fresh_queue, 200)
    late = lead(db)
    lead(db)
    with pytest.raises(Fenced):
        await within(retention.cycle(client.broker, term(late)))
    assert await client.payloads(fresh_queue) == ["old"]


async def test_a_parked_consumer_gets_what_comes_after_a_deleted_range(
    start_client, db, fresh_queue
):
    client = await start_client(**NO_FLOOR)
    await client.configure(fresh_queue, maxWaitTimeSeconds=100)
    await client.push(fresh_queue, 1, 2, 3)
    dying = await client.pop(fresh_queue, group="g", subscription_mode="all", lease_s=1)
    assert len(dying) == 3
    parked = await client.park_here(fresh_queue, group="g")
    age(db, fresh_queue, 200)
    await within(retention.cycle(client.broker, term(lead(db))))
    assert await client.push(fresh_queue, "next") == [("queued", "")]
    assert await within(parked) == ["next"], "the lease ran out; what it was on is gone"


async def test_acks_of_what_was_deleted_under_a_lease_move_the_cursor(
    start_client, db, fresh_queue
):
    here, there = await start_client(**NO_FLOOR), await start_client(**NO_FLOOR)
    await here.configure(fresh_queue, maxWaitTimeSeconds=100)
    for group, asked in (("whole", here), ("part", here), ("far", there)):
        for number in range(3):
            await here.push(fresh_queue, number, partition=group)
        messages = await here.pop(
            fresh_queue, partition=group, group=group, subscription_mode="all", batch=10
        )
        assert [one["data"] for one in messages] == [0, 1, 2]
        age(db, fresh_queue, 200)
        await within(retention.cycle(here.broker, term(lead(db))))
        acked = messages[:2] if group == "part" else messages
        outcomes = await asked.ack(*acked)
        assert all(one.success for one in outcomes), (group, outcomes)
        await here.push(fresh_queue, "next", partition=group)
        if group == "part":
            # The lease still covers the third, which nobody can be given any more.
            assert await here.payloads(fresh_queue, partition=group, group=group) == []
            [last] = await here.ack(messages[2])
            assert last.success and last.lease_released
        assert await here.payloads(fresh_queue, partition=group, group=group) == ["next"]


async def test_a_failed_ack_of_a_deleted_message_leaves_nothing_to_redeliver(
    start_client, db, fresh_queue
):
    client = await start_client(**NO_FLOOR)
    await client.configure(fresh_queue, maxWaitTimeSeconds=100, retryLimit=0)
    await client.push(fresh_queue, "gone")
    [message] = await client.pop(fresh_queue, group="g", subscription_mode="all")
    age(db, fresh_queue, 200)
    await within(retention.cycle(client.broker, term(lead(db))))
    [outcome] = await client.ack(message, status="failed")
    assert outcome.success and not outcome.dlq
    await client.push(fresh_queue, "next")
    assert await client.payloads(fresh_queue, group="g") == ["next"]


async def test_a_cleaned_partition_is_born_again_by_the_next_push_and_heard_of(
    start_client, db, fresh_queue
):
    client = await start_client(**NO_FLOOR, PARTITION_CLEANUP_DAYS="1")
    await client.configure(fresh_queue, maxWaitTimeSeconds=100, dedupWindowSeconds=0)
    await client.push(fresh_queue, "old")
    [old] = await client.pop(fresh_queue, group="g", subscription_mode="all", auto_ack=True)
    parked = await client.park_here(fresh_queue, group="g")
    age(db, fresh_queue, 200)
    db.execute(
        "UPDATE queen_partition p SET last_write_at = now() - interval '2 days'"
        " FROM queen_queue q WHERE q.id = p.queue_id AND q.name = %s",
        [fresh_queue],
    )
    await within(retention.cycle(client.broker, term(lead(db))))
    assert client.broker.leader_metrics.removed_partitions >= 1
    assert await client.push(fresh_queue, "new") == [("queued", "")]
    assert await within(parked) == ["new"]
    await client.push(fresh_queue, "newer")
    [new] = await client.pop(fresh_queue, group="g")
    assert new["partitionId"] != old["partitionId"]
    [stale] = await client.ack(old)
    assert not stale.success


async def test_a_step_waits_behind_a_push_and_not_the_push_behind_the_step(
    start_client, db, fresh_queue, second_connection
):
    """The row is wanted last: while segments go, pushes to the partition are not in the way."""
    client = await start_client(**NO_FLOOR)
    await client.configure(fresh_queue, maxWaitTimeSeconds=100)
    for _ in range(3):
        await client.push(fresh_queue, "old")
    age(db, fresh_queue, 200)
    lock = (
        "SELECT 1 FROM queen_segment WHERE partition_id = (SELECT p.id FROM queen_partition p"
        " JOIN queen_queue q ON q.id = queue_id WHERE q.name = %s)"
        " ORDER BY base_offset DESC LIMIT 1 FOR UPDATE"
    )
    with held(second_connection(), lock, fresh_queue):
        # Stopped in the middle of its deletion.
        [lane] = await leader_calls.retention_due(client.broker.store.fetch, limit=1)
        stepping = asyncio.create_task(
            leader_calls.retention_step(
                client.broker.store.fetch,
                lead(db),
                lane,
                segments_max=10,
                bytes_max=10**9,
                wait_ms=20_000,
            )
        )
        await until_waiting(db, "queen_retention_step")
        assert await within(client.push(fresh_queue, "new"), 5) == [("queued", "")]
    assert (await within(stepping)).segments == 3
    assert await client.payloads(fresh_queue, batch=10) == ["new"]
