"""The push combiner: what shares a call shares neither its order, its waits nor its faults.

Method: a broker in this process, and further connections that hold a partition's row, edit
the queue, or make the database refuse a marked payload or stop in the middle of a call.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Iterator

import pytest

from brokers.domain import PushItem
from brokers.errors import StoreError
from brokers.store.parcels import DATABASE_AWAY, OUTCOME_UNKNOWN
from tests.harness import Database
from tests.services.in_process import (
    NO_FLOOR,
    Client,
    held,
    running,
    until,
    until_waiting,
    within,
)

BUSY_MS = 300
LOCK_PARTITION = """
SELECT 1 FROM queen_partition lane JOIN queen_queue queue ON queue.id = lane.queue_id
 WHERE queue.name = %s AND lane.name = %s FOR UPDATE OF lane
"""
# What the tests' own trigger on queen_segment does with a payload that bears a mark.
REFUSE = """
CREATE OR REPLACE FUNCTION test_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF position('"refuse %(mark)s"'::bytea IN NEW.frames) > 0 THEN
        RAISE EXCEPTION 'the test refuses this payload' USING ERRCODE = '23514';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER test_refuse BEFORE INSERT ON queen_segment
   FOR EACH ROW EXECUTE FUNCTION test_refuse();
"""
STALL = """
CREATE OR REPLACE FUNCTION test_stall() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(%(mark)s);
    RETURN NEW;
END $$;
CREATE TRIGGER test_stall BEFORE INSERT ON queen_segment
   FOR EACH ROW EXECUTE FUNCTION test_stall();
"""


@contextlib.contextmanager
def trigger(db, name: str, text: str, mark: object) -> Iterator[None]:
    db.execute(text % {"mark": mark})
    try:
        yield
    finally:
        db.execute(f"DROP TRIGGER IF EXISTS {name} ON queen_segment; DROP FUNCTION {name}()")


@pytest.fixture
async def client(start_client) -> Client:
    return await start_client(**NO_FLOOR, QUEEN_PUSH_BUSY_MS="10000")


async def stored(client: Client, queue: str, partition: str | None = None) -> list:
    """Everything that is there, in order, as a group that nobody else uses sees it."""
    group = uuid.uuid4().hex
    found: list = []
    while got := await client.payloads(
        queue,
        partition=partition,
        group=group,
        subscription_mode="all",
        auto_ack=True,
        batch=10_000,
        partitions=100,
    ):
        found += got
    return found


# --- order and sharing --------------------------------------------------------------------------


async def test_messages_of_a_partition_are_stored_in_the_order_of_their_requests(
    client, fresh_queue
):
    """Many requests at once, to few partitions, some with several messages of several of them."""
    sent: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    requests = []
    number = 0
    for turn in range(300):
        items = []
        for partition in ("a", "b", "c", "a")[turn % 4 :]:
            sent[partition].append(number)
            items.append(PushItem(fresh_queue, partition, str(number).encode(), None))
            number += 1
        requests.append(asyncio.create_task(client.push_items(*items)))
        if turn % 7 == 0:
            await asyncio.sleep(0)
    answers = await within(asyncio.gather(*requests))
    assert {one.status for answer in answers for one in answer} == {"queued"}
    for partition, numbers in sent.items():
        assert await stored(client, fresh_queue, partition) == numbers
    assert client.broker.push_combiner.flushes < 300, "they shared calls"


async def test_a_request_of_very_many_partitions_does_not_hold_up_a_small_one_behind_it(
    start_client, fresh_queue
):
    client = await start_client(**NO_FLOOR, QUEEN_PUSH_CALL_ITEMS_MAX="10")
    combiner = client.broker.push_combiner
    items = [PushItem(fresh_queue, f"p{no}", b"1", None) for no in range(400)]
    many = asyncio.create_task(client.push_items(*items))
    await until(lambda: combiner.waiting_bytes > 0)
    before = combiner.flushes
    assert await client.push(fresh_queue, "small", partition="other") == [("queued", "")]
    assert not many.done()
    assert combiner.flushes - before <= 4, "of forty and more"
    assert {one.status for one in await within(many)} == {"queued"}


async def test_a_call_is_bounded_in_items_and_what_is_beyond_goes_with_the_next(
    start_client, fresh_queue
):
    client = await start_client(**NO_FLOOR, QUEEN_PUSH_CALL_ITEMS_MAX="10")
    pushes = [client.push(fresh_queue, number, number, number) for number in range(40)]
    await within(asyncio.gather(*pushes))
    assert client.broker.push_combiner.flushes >= 12
    assert await stored(client, fresh_queue) == [n for n in range(40) for _ in range(3)]


# --- busy ---------------------------------------------------------------------------------------


async def test_a_busy_partition_holds_up_neither_its_own_request_nor_others(
    client, db, second_connection, fresh_queue
):
    for partition in ("busy", "free"):
        await client.push(fresh_queue, "before", partition=partition)
    with held(second_connection(), LOCK_PARTITION, fresh_queue, "busy"):
        mixed = asyncio.create_task(
            client.push_items(
                PushItem(fresh_queue, "busy", b'"held up"', None),
                PushItem(fresh_queue, "free", b'"goes on"', None),
            )
        )
        await until_waiting(db, "queen_message_push")
        behind = asyncio.create_task(client.push(fresh_queue, "behind", partition="busy"))
        assert await within(client.push(fresh_queue, "other", partition="free")) == [("queued", "")]
        assert await stored(client, fresh_queue, "free") == ["before", "goes on", "other"]
        assert not mixed.done()
        assert not behind.done()
    answers = await within(asyncio.gather(mixed, behind))
    assert [one.status for one in answers[0]] == ["queued", "queued"]
    assert answers[1] == [("queued", "")]
    assert await stored(client, fresh_queue, "busy") == ["before", "held up", "behind"]


async def test_more_busy_partitions_than_lanes_for_them_hold_up_nobody_else(
    client, db, second_connection, fresh_queue
):
    busy = [f"busy {number}" for number in range(6)]
    for partition in [*busy, "free"]:
        await client.push(fresh_queue, "before", partition=partition)
    with contextlib.ExitStack() as stack:
        for partition in busy:
            stack.enter_context(held(second_connection(), LOCK_PARTITION, fresh_queue, partition))
        waiting = [
            asyncio.create_task(client.push(fresh_queue, "news", partition=one)) for one in busy
        ]
        await until_waiting(db, "queen_message_push")
        for number in range(5):
            await within(client.push(fresh_queue, number, partition="free"))
        assert not any(task.done() for task in waiting)
    assert await within(asyncio.gather(*waiting)) == [[("queued", "")]] * len(busy)


async def test_a_partition_that_stays_busy_fails_and_is_open_again_afterwards(
    start_client, second_connection, fresh_queue
):
    client = await start_client(**NO_FLOOR, QUEEN_PUSH_BUSY_MS=str(BUSY_MS))
    await client.push(fresh_queue, "before")
    with held(second_connection(), LOCK_PARTITION, fresh_queue, "Default"):
        [(status, error)] = await within(client.push(fresh_queue, "lost", ids=["t"]))
        assert status == "failed"
        assert error
        assert OUTCOME_UNKNOWN not in error, "it is certain that it was not stored"
    assert await client.push(fresh_queue, "again", ids=["t"]) == [("queued", "")]
    assert await stored(client, fresh_queue) == ["before", "again"]


# --- stale --------------------------------------------------------------------------------------


async def test_a_queue_configured_by_somebody_else_is_read_anew(client, there, fresh_queue):
    assert await client.push(fresh_queue, 1, ids=["t"]) == [("queued", "")]
    await there.configure(fresh_queue, dedupWindowSeconds=0)
    assert await client.push(fresh_queue, 2, ids=["t"]) == [("queued", "")]
    await there.configure(fresh_queue, dedupWindowSeconds=600)
    assert (await client.push(fresh_queue, 3, ids=["t"]))[0][0] == "duplicate"
    assert await stored(client, fresh_queue) == [1, 2]


async def test_a_queue_deleted_by_somebody_else_is_made_anew(client, there, fresh_queue):
    for run in range(3):
        parts = [client.push(fresh_queue, run, partition=one) for one in ("a", "b")]
        assert await within(asyncio.gather(*parts)) == [[("queued", "")]] * 2
        assert sorted(await stored(there, fresh_queue)) == [run, run]
        assert await there.delete(fresh_queue)


async def test_pushes_in_order_stay_in_order_while_the_queue_is_edited(client, there, fresh_queue):
    """Each edit makes the ids stale: what goes back to its gate goes back to its front."""

    async def edit() -> None:
        for number in range(20):
            await there.configure(fresh_queue, priority=number)

    pushes = []
    editing = asyncio.create_task(edit())
    for number in range(400):
        pushes.append(asyncio.create_task(client.push(fresh_queue, number)))
        await asyncio.sleep(0.001)
    answers = await within(asyncio.gather(*pushes))
    await editing
    failed = {number for number, [(status, _)] in enumerate(answers) if status != "queued"}
    assert len(failed) < 40
    assert await stored(client, fresh_queue) == [n for n in range(400) if n not in failed]


# --- permanent ----------------------------------------------------------------------------------


async def test_a_permanent_error_fails_the_guilty_item_alone(client, db, fresh_queue):
    mark = uuid.uuid4().hex
    for partition in ("a", "b", "c"):
        await client.push(fresh_queue, "before", partition=partition)
    guilty = f"refuse {mark}"
    with trigger(db, "test_refuse", REFUSE, mark):
        answers = await within(
            asyncio.gather(
                client.push(fresh_queue, 1, 2, partition="a"),
                client.push(fresh_queue, 3, 4, guilty, 5, 6, partition="b"),
                client.push(fresh_queue, guilty, partition="c"),
                client.push(fresh_queue, 7, partition="b"),
            )
        )
    assert [[status for status, _ in answer] for answer in answers] == [
        ["queued", "queued"],
        ["queued", "queued", "failed", "queued", "queued"],
        ["failed"],
        ["queued"],
    ]
    assert "the test refuses this payload" in answers[1][2][1]
    assert await stored(client, fresh_queue, "a") == ["before", 1, 2]
    assert await stored(client, fresh_queue, "b") == ["before", 3, 4, 5, 6, 7]
    assert await stored(client, fresh_queue, "c") == ["before"]
    assert await client.push(fresh_queue, 8, partition="b") == [("queued", "")]


async def test_a_guilty_item_wakes_a_pop_for_its_innocent_neighbours(client, db, fresh_queue):
    mark = uuid.uuid4().hex
    waiting = await client.park_here(fresh_queue)
    with trigger(db, "test_refuse", REFUSE, mark):
        answer = await within(client.push(fresh_queue, f"refuse {mark}", "innocent"))
    assert [status for status, _ in answer] == ["failed", "queued"]
    assert await within(waiting, 5) == ["innocent"]


# --- unknown, and away --------------------------------------------------------------------------


async def test_a_backend_killed_in_mid_call_leaves_an_unknown_outcome_and_one_copy(
    client, db, second_connection, fresh_queue
):
    await client.push(fresh_queue, "before")
    mark = uuid.uuid4().int % 2**31
    with trigger(db, "test_stall", STALL, mark):
        with held(second_connection(), "SELECT pg_advisory_xact_lock(%s)", mark):
            pushing = asyncio.create_task(client.push(fresh_queue, "once", ids=["t"]))
            await until_waiting(db, "queen_message_push")
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            assert await within(pushing) == [("failed", OUTCOME_UNKNOWN)]
        [(status, _)] = await within(client.push(fresh_queue, "once", ids=["t"]))
    assert status in ("queued", "duplicate")
    assert await stored(client, fresh_queue) == ["before", "once"]


async def test_a_commit_whose_answer_is_lost_is_a_duplicate_when_it_is_repeated(
    client, fresh_queue
):
    """The call committed, and its connection broke before the answer came."""
    await client.push(fresh_queue, "before")
    lane = client.broker.push_combiner._lane
    fetch = lane.fetch

    async def answer_lost(*given, **named):
        await fetch(*given, **named)
        lane.fetch = fetch
        raise StoreError("the connection broke", outcome_unknown=True)

    lane.fetch = answer_lost
    assert await client.push(fresh_queue, "once", ids=["t"]) == [("failed", OUTCOME_UNKNOWN)]
    assert (await client.push(fresh_queue, "once", ids=["t"]))[0][0] == "duplicate"
    assert await stored(client, fresh_queue) == ["before", "once"]


async def test_pushes_fail_while_the_database_is_away_and_heal_when_it_comes_back(
    fresh_database, fresh_queue
):
    database = fresh_database()
    administration = Database(name="postgres", host=database.host)
    async with running(database, **NO_FLOOR, QUEEN_CONNECT_TIMEOUT_S="2") as client:
        await client.push(fresh_queue, "before")
        with administration.connect() as admin:
            admin.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [database.name],
            )
            answers = [
                (await within(client.push(fresh_queue, "once", ids=["t"])))[0] for _ in range(3)
            ]
            assert {status for status, _ in answers} == {"failed"}
            assert answers[-1][1] == DATABASE_AWAY
            await until(lambda: not client.broker.ready)
            admin.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
        await until(lambda: client.broker.ready)
        statuses: list[str] = []
        while "queued" not in statuses and "duplicate" not in statuses:
            [(status, _)] = await within(client.push(fresh_queue, "once", ids=["t"]))
            statuses.append(status)
            assert len(statuses) < 200
            await asyncio.sleep(0.02)
        assert await stored(client, fresh_queue) == ["before", "once"]


async def test_nothing_waits_and_nothing_is_counted_when_all_is_settled(client, fresh_queue):
    combiner = client.broker.push_combiner
    await within(
        asyncio.gather(*(client.push(fresh_queue, n, partition=f"p{n % 5}") for n in range(100)))
    )
    await within(combiner.drained())
    assert combiner.waiting_bytes == 0
    assert not combiner._gates
    await until(lambda: not combiner._tasks)


async def test_a_request_that_is_cancelled_holds_up_nobody_behind_it(
    client, db, second_connection, fresh_queue
):
    await client.push(fresh_queue, "before")
    with held(second_connection(), LOCK_PARTITION, fresh_queue, "Default"):
        gone = asyncio.create_task(client.push(fresh_queue, "gone"))
        await until_waiting(db, "queen_message_push")
        behind = asyncio.create_task(client.push(fresh_queue, "behind"))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
    assert await within(behind) == [("queued", "")]
    assert await stored(client, fresh_queue) == ["before", "gone", "behind"]
