"""The spool: a push does not fail because the database does, and nobody overtakes anybody.

Method: a broker in this process on a database of its own, to which connections are forbidden
for a while (the sessions that there are get terminated): for the broker it is away.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from brokers.domain import DEFAULT_TENANT, PushItem, TransactionRequest
from brokers.services import streams as stream_service
from brokers.services import transaction as transaction_service
from brokers.store.parcels import NO_KEY
from tests.harness import Database
from tests.services.in_process import Client, held, running, until, until_waiting, within

LOCK_PARTITION = """
SELECT 1 FROM queen_partition lane JOIN queen_queue queue ON queue.id = lane.queue_id
 WHERE queue.name = %s AND lane.name = %s FOR UPDATE OF lane
"""


@pytest.fixture
def own_database(fresh_database: Callable[..., Database]) -> Database:
    return fresh_database()


@pytest.fixture
async def client(own_database: Database, tmp_path) -> AsyncIterator[Client]:
    async with running(own_database, spool=tmp_path / "spool", QUEEN_PUSH_BUSY_MS="200") as client:
        await until(lambda: client.broker.spool.diversion.store_up)
        yield client


@contextlib.contextmanager
def administration(database: Database):
    with psycopg.connect(**{**database.parameters, "dbname": "postgres"}, autocommit=True) as one:
        yield one


def allow(database: Database, allowed: bool) -> None:
    with administration(database) as connection:
        connection.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS {allowed}")
        if not allowed:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [database.name],
            )


@contextlib.asynccontextmanager
async def away(database: Database) -> AsyncIterator[None]:
    """Nobody reaches the database meanwhile."""
    await asyncio.to_thread(allow, database, False)
    try:
        yield
    finally:
        await asyncio.to_thread(allow, database, True)


async def stored(client: Client, queue: str) -> list:
    """Everything that is in the log, in order."""
    group, found = uuid.uuid4().hex, []
    while got := await client.payloads(
        queue, group=group, subscription_mode="all", auto_ack=True, batch=10_000, partitions=0
    ):
        found += got
    return found


async def emptied(client: Client) -> None:
    await until(lambda: not client.broker.spool.diversion.buffering, timeout_s=30)


async def status(client: Client, queue: str, *payloads, **options) -> list[str]:
    return [one for one, _ in await within(client.push(queue, *payloads, **options), 30)]


async def test_a_push_while_the_database_is_away_is_buffered_and_stored_later(
    client, own_database, fresh_queue
):
    assert await status(client, fresh_queue, "a1") == ["queued"]
    async with away(own_database):
        assert await status(client, fresh_queue, "a2", "a3") == ["buffered", "buffered"]
    await emptied(client)
    assert await status(client, fresh_queue, "a4") == ["queued"]
    assert await stored(client, fresh_queue) == ["a1", "a2", "a3", "a4"]


async def test_what_is_pushed_right_after_the_return_does_not_overtake_the_spool(
    client, own_database, fresh_queue
):
    expected = []
    async with away(own_database):
        for number in range(200):
            await status(client, fresh_queue, number)
            expected.append(number)
    seen = set()
    for number in range(200, 2000):
        seen |= set(await status(client, fresh_queue, number))
        expected.append(number)
        if client.broker.spool.diversion.pending == 0 and "queued" in seen:
            break
    await emptied(client)
    assert await stored(client, fresh_queue) == expected
    assert "queued" in seen, "buffered mode ends"


async def test_other_partitions_are_stored_while_one_lies_in_the_spool(
    client, own_database, fresh_queue
):
    await status(client, fresh_queue, "before", partition="p")
    with (
        own_database.connect(autocommit=False) as holder,
        held(holder, LOCK_PARTITION, fresh_queue, "p"),
    ):
        assert await status(client, fresh_queue, "held", partition="p") == ["buffered"]
        assert await status(client, fresh_queue, "free", partition="q") == ["queued"]
        # The drain cannot have it either, so what comes later queues up behind.
        assert await status(client, fresh_queue, "behind", partition="p") == ["buffered"]
    await emptied(client)
    group = {"group": "g", "subscription_mode": "all", "auto_ack": True}
    assert await client.payloads(fresh_queue, partition="p", **group) == [
        "before",
        "held",
        "behind",
    ]


async def test_a_push_whose_backend_is_killed_is_stored_once(client, own_database, fresh_queue):
    await status(client, fresh_queue, "before")
    with (
        own_database.connect(autocommit=False) as holder,
        own_database.connect() as db,
        held(holder, LOCK_PARTITION, fresh_queue, "Default"),
    ):
        pushing = asyncio.create_task(status(client, fresh_queue, "once", ids=["t"]))
        await until_waiting(db, "queen_message_push")
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        assert await within(pushing) == ["buffered"]
    await emptied(client)
    assert await status(client, fresh_queue, "once", ids=["t"]) == ["duplicate"]
    assert await stored(client, fresh_queue) == ["before", "once"]


async def test_a_parked_pop_is_woken_by_what_the_drain_stores(client, own_database, fresh_queue):
    await status(client, fresh_queue, "first")
    assert await client.payloads(fresh_queue, auto_ack=True) == ["first"]
    async with away(own_database):
        assert await status(client, fresh_queue, "second") == ["buffered"]
    parked = client.park(fresh_queue)
    assert await within(parked) == ["second"]


async def test_a_restarted_broker_keeps_the_order_of_what_it_buffered(
    own_database, tmp_path, fresh_queue
):
    async with contextlib.AsyncExitStack() as outage:
        async with running(own_database, spool=tmp_path / "spool") as first:
            await until(lambda: first.broker.spool.diversion.store_up)
            assert await status(first, fresh_queue, "a1") == ["queued"]
            await outage.enter_async_context(away(own_database))
            assert await status(first, fresh_queue, "a2") == ["buffered"]
        async with running(own_database, spool=tmp_path / "spool", ready=False) as second:
            assert await status(second, fresh_queue, "a3") == ["buffered"]
            await outage.aclose()
            await status(second, fresh_queue, "a4")
            await until(lambda: second.broker.ready, timeout_s=30)
            await emptied(second)
            assert await status(second, fresh_queue, "a5") == ["queued"]
            assert await stored(second, fresh_queue) == ["a1", "a2", "a3", "a4", "a5"]


async def test_in_push_maintenance_everything_is_buffered_until_it_ends(client, fresh_queue):
    await client.broker.switches.throw({"maintenance": True})
    assert await status(client, fresh_queue, "a1", "a2") == ["buffered", "buffered"]
    assert await stored(client, fresh_queue) == []
    await client.broker.switches.throw({"maintenance": False})
    await emptied(client)
    assert await status(client, fresh_queue, "a3") == ["queued"]
    assert await stored(client, fresh_queue) == ["a1", "a2", "a3"]


@pytest.mark.parametrize("known", ["configured here", "never met"])
async def test_without_a_key_nothing_of_a_queue_that_encrypts_is_buffered(
    client, fresh_queue, known
):
    """Its clear text would lie on the disk, and no replay could store it."""
    await client.configure(fresh_queue, encryptionEnabled=True)
    await client.broker.switches.throw({"maintenance": True})
    try:
        if known == "never met":
            client.broker.directory.forget_everything()
            client.broker.directory.configured.clear()
        outcomes = [client.push(fresh_queue, "secret"), client.push(f"{fresh_queue}-open", "b")]
        assert await asyncio.gather(*outcomes) == [[("failed", NO_KEY)], [("buffered", "")]]
    finally:
        await client.broker.switches.throw({"maintenance": False})
    await emptied(client)
    assert await stored(client, f"{fresh_queue}-open") == ["b"]


async def test_a_database_that_does_not_say_whether_a_queue_encrypts_holds_up_no_buffered_push(
    client, own_database, fresh_queue
):
    await client.broker.switches.throw({"maintenance": True})
    try:
        with own_database.connect(autocommit=False) as holder:
            holder.execute("LOCK TABLE queen_queue IN ACCESS EXCLUSIVE MODE")
            # Before the read itself runs into its time limit.
            assert await within(client.push(fresh_queue, "a"), 8.0) == [("buffered", "")]
            holder.rollback()
    finally:
        await client.broker.switches.throw({"maintenance": False})
    await emptied(client)
    assert await stored(client, fresh_queue) == ["a"]


async def test_a_streams_sink_waits_for_its_partition_to_leave_the_spool_and_then_gives_up(
    client, fresh_queue
):
    await client.push(f"{fresh_queue}-source", 1)
    [message] = await client.pop(f"{fresh_queue}-source")
    await client.broker.switches.throw({"maintenance": True})
    await status(client, fresh_queue, "spooled")
    query = stream_service.RegisterRequest(
        tenant=DEFAULT_TENANT, name="q", source_queue="", sink_queue=None, config_hash="h"
    )
    registered = await stream_service.register(client.broker, query)
    request = stream_service.CycleRequest(
        tenant=DEFAULT_TENANT,
        query_id=registered.query_id,
        partition_id=message["partitionId"],
        group=message["consumerGroup"],
        state={},
        state_ops=0,
        items=[PushItem(fresh_queue, "Default", b'"mine"', None)],
        message_ids=[None],
        ack=None,
    )
    refused = await within(stream_service.cycle(client.broker, request))
    assert refused.error is not None and "spool" in refused.error
    await client.broker.switches.throw({"maintenance": False})
    await emptied(client)
    assert (await within(stream_service.cycle(client.broker, request))).error is None
    assert await stored(client, fresh_queue) == ["spooled", "mine"]


async def test_a_transaction_waits_for_its_partition_to_leave_the_spool_and_then_gives_up(
    client, fresh_queue
):
    await client.broker.switches.throw({"maintenance": True})
    await status(client, fresh_queue, "spooled")
    request = TransactionRequest(
        tenant=DEFAULT_TENANT,
        producer_sub=None,
        operations=[PushItem(fresh_queue, "Default", b'"mine"', None)],
        required_leases=[],
        mentions_lease=False,
    )
    refused = await within(transaction_service.commit(client.broker, request))
    assert (refused.success, refused.reason) == (False, "db_error")
    other = PushItem(fresh_queue, "other", b'"elsewhere"', None)
    request.operations[:] = [other]
    done = await within(transaction_service.commit(client.broker, request))
    assert done.success, "transactions are not diverted"
    await client.broker.switches.throw({"maintenance": False})
    request.operations[:] = [PushItem(fresh_queue, "Default", b'"mine"', None)]
    await emptied(client)
    assert (await within(transaction_service.commit(client.broker, request))).success
    assert [one for one in await stored(client, fresh_queue) if one != "elsewhere"] == [
        "spooled",
        "mine",
    ]


async def test_buffered_mode_ends_under_steady_load(client, own_database, fresh_queue):
    """Producers that never pause: the hand-over lets them wait, not the spool grow for ever."""
    stop, statuses, numbers = asyncio.Event(), [], [0] * 8

    async def produce(no: int) -> None:
        while not stop.is_set():
            statuses.extend(await status(client, fresh_queue, [no, numbers[no]]))
            numbers[no] += 1

    producers = [asyncio.create_task(produce(no)) for no in range(8)]
    await until(lambda: len(statuses) > 50)
    async with away(own_database):
        await until(lambda: statuses.count("buffered") > 500, timeout_s=30)
    await until(lambda: statuses[-20:] == ["queued"] * 20, timeout_s=30)
    stop.set()
    await within(asyncio.gather(*producers))
    await emptied(client)
    assert set(statuses) == {"queued", "buffered"}
    log = await stored(client, fresh_queue)
    for no in range(8):
        assert [number for who, number in log if who == no] == list(range(numbers[no]))


async def test_a_spool_that_waits_in_maintenance_keeps_the_rows_that_will_judge_it(
    client, own_database, fresh_queue
):
    await status(client, fresh_queue, "a1", ids=["t1"])
    await client.broker.switches.throw({"maintenance": True})
    assert await status(client, fresh_queue, "again", ids=["t1"]) == ["buffered"]
    with own_database.connect() as db:
        await client.broker.spool.keep_alive()
        [[held]] = db.execute("SELECT count(oldest_accepted_at) FROM queen_spool").fetchall()
        assert held == 1
    await client.broker.switches.throw({"maintenance": False})
    await emptied(client)
    assert await stored(client, fresh_queue) == ["a1"], "the second is a duplicate of its window"


async def test_a_file_that_somebody_took_away_does_not_close_its_partitions_for_ever(
    own_database, tmp_path, fresh_queue
):
    spool = tmp_path / "spool"
    async with running(own_database, spool=spool, FILE_BUFFER_EVENTS_PER_FILE="1") as client:
        await client.broker.switches.throw({"maintenance": True})
        await status(client, fresh_queue, "taken")
        await status(client, fresh_queue, "kept")
        oldest = min(spool.glob("*.buf"))
        oldest.unlink()
        await client.broker.switches.throw({"maintenance": False})
        await emptied(client)
        assert await status(client, fresh_queue, "later") == ["queued"]
        assert await stored(client, fresh_queue) == ["kept", "later"]
