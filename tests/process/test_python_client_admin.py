"""The official client's group and admin calls, `queen-mq` from the package index, end to end.

Method: the shared broker, used as a program would: by the client's public calls alone. The client
raises on every answer of 400 and above.
"""

import asyncio
import signal
import uuid

import pytest
from queen import Queen

BEGINNING = {"timestamp": "1970-01-01T00:00:00Z"}


@pytest.fixture
async def queen(broker):
    """The client takes over the process's signals; a test run wants them back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with Queen(broker.url, retry_attempts=1) as client:
        yield client
    for number, handler in handlers.items():
        signal.signal(number, handler)


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
