"""The official client's group and admin calls, `queen-mq` from the package index, end to end.

Method: the shared broker, used as a program would: by the client's public calls alone. The client
raises on every answer of 400 and above.
"""

import asyncio
import contextlib
import signal
import uuid

import httpx
import pytest
from queen import Queen

BEGINNING = {"timestamp": "1970-01-01T00:00:00Z"}


@contextlib.asynccontextmanager
async def client_of(broker):
    """The client takes over the process's signals; a test run wants them back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with Queen(broker.url, retry_attempts=1) as client:
        yield client
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
async def queen(broker):
    async with client_of(broker) as client:
        yield client


@pytest.fixture
def group():
    return f"group-{uuid.uuid4().hex[:12]}"


async def consume(queen, queue, group, count, mode="all"):
    """So many messages of the group, acked."""
    builder = queen.queue(queue).group(group).subscription_mode(mode)
    messages = await builder.batch(count).wait(True).timeout_millis(15_000).pop()
    assert len(messages) == count
    for message in messages:
        assert (await queen.ack(message, True, {"group": group}))["success"]
    return [message["data"] for message in messages]


async def test_a_group_is_seen_sought_and_deleted(queen, fresh_queue, group):
    await queen.queue(fresh_queue).push([{"data": number} for number in range(3)])
    assert await consume(queen, fresh_queue, group, 3) == [0, 1, 2]
    await queen.admin.refresh_consumer_stats()
    rows = await queen.admin.list_consumer_groups()
    [row] = [row for row in rows if row["name"] == group]
    assert (row["queueName"], row["totalLag"], row["state"]) == (fresh_queue, 0, "Stable")
    detail = await queen.admin.get_consumer_group(group)
    [place] = detail[fresh_queue]["partitions"]
    assert (place["totalConsumed"], place["offsetLag"]) == (3, 0)
    assert isinstance(await queen.admin.get_lagging_consumers(60), list)
    sought = await queen.admin.seek_consumer_group(group, fresh_queue, BEGINNING)
    assert sought["success"] is True and sought["partitionsUpdated"] == 1
    assert await consume(queen, fresh_queue, group, 3) == [0, 1, 2]
    ended = await queen.admin.seek_consumer_group(group, fresh_queue, {"toEnd": True})
    assert ended["seekToEnd"] is True
    changed = await queen.update_consumer_group_timestamp(group, "2026-01-01T00:00:00Z")
    assert changed["rowsUpdated"] == 1
    gone = await queen.admin.delete_consumer_group_for_queue(group, fresh_queue, True)
    assert gone["deletedPartitions"] == 1
    assert await consume(queen, fresh_queue, group, 3) == [0, 1, 2]
    assert (await queen.delete_consumer_group(group))["success"] is True
    assert await queen.admin.get_consumer_group(group) == {}


async def test_a_consumer_that_waits_gets_what_a_seek_brings_back(queen, fresh_queue, group):
    await queen.queue(fresh_queue).push({"data": "again"})
    assert await consume(queen, fresh_queue, group, 1) == ["again"]
    waiting = asyncio.create_task(consume(queen, fresh_queue, group, 1))
    await queen.admin.seek_consumer_group(group, fresh_queue, BEGINNING)
    assert await waiting == ["again"]


async def test_every_read_of_the_admin_is_answered(queen, fresh_queue):
    await queen.queue(fresh_queue).push({"data": 1})
    admin = queen.admin
    for read in (
        admin.get_overview,
        admin.get_namespaces,
        admin.get_tasks,
        admin.list_queues,
        admin.get_status,
        admin.get_queue_stats,
        admin.get_analytics,
        admin.get_system_metrics,
        admin.get_worker_metrics,
        admin.get_postgres_stats,
        admin.health,
        admin.metrics,
    ):
        assert await read(), read.__name__
    assert (await admin.get_queue_detail(fresh_queue))["totals"]["pending"] == 1


async def test_the_depth_of_a_queue_is_told_for_all_and_for_a_group(queen, fresh_queue, group):
    await queen.queue(fresh_queue).partition("a").push([{"data": number} for number in range(3)])
    await queen.queue(fresh_queue).partition("b").push({"data": 3})
    await consume(queen, fresh_queue, group, 1)
    depth = await queen.admin.get_queue_depth(fresh_queue, group)
    assert (depth["queue"], depth["group"]) == (fresh_queue, group)
    assert depth["conflation"] is False
    assert depth["pending"] == depth["effectivePending"] == 3
    assert {row["partition"] for row in depth["partitions"]} == {"a", "b"}
    assert (await queen.admin.get_queue_depth(fresh_queue))["group"] is None


async def test_both_maintenance_modes_are_switched_and_seen(
    start_broker, fresh_database, tmp_path, fresh_queue
):
    """On a broker, and a database, of its own: the switches are everybody's."""
    broker = start_broker(on=fresh_database(), FILE_BUFFER_DIR=str(tmp_path / "spool"))
    async with client_of(broker) as queen:
        admin = queen.admin
        assert (await admin.get_maintenance_mode())["maintenanceMode"] is False
        assert (await admin.set_maintenance_mode(True))["maintenanceMode"] is True
        told = await admin.get_maintenance_mode()
        assert (told["maintenanceMode"], told["popMaintenanceMode"]) == (True, False)
        [row] = await queen.queue(fresh_queue).push({"data": "kept"})
        assert row["status"] == "buffered"
        assert (await admin.set_maintenance_mode(False))["maintenanceMode"] is False

        assert (await admin.get_pop_maintenance_mode())["popMaintenanceMode"] is False
        assert (await admin.set_pop_maintenance_mode(True))["popMaintenanceMode"] is True
        assert (await admin.get_pop_maintenance_mode())["popMaintenanceMode"] is True
        assert await queen.queue(fresh_queue).wait(False).pop() == []
        assert (await admin.set_pop_maintenance_mode(False))["popMaintenanceMode"] is False
        waiting = queen.queue(fresh_queue).wait(True).timeout_millis(15_000)
        assert [message["data"] for message in await waiting.pop()] == ["kept"]


async def test_what_the_contract_does_not_know_is_an_error_of_the_client(queen, fresh_queue):
    [row] = await queen.queue(fresh_queue).push({"data": 1})
    for ask in (
        queen.admin.clear_queue(fresh_queue),
        queen.admin.get_partitions(queue=fresh_queue),
        queen.admin.move_message_to_dlq(row["message_id"], row["transaction_id"]),
    ):
        with pytest.raises(httpx.HTTPStatusError) as refused:
            await ask
        assert refused.value.response.status_code == 404
