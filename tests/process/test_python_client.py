"""The official client, `queen-mq` 1.2.0 from the package index, end to end.

Method: a broker process under each HTTP server, used as a program would: by the client's
public calls alone. The client's own pop() swallows every error and answers an empty list,
so each test says what it expects to receive.
"""

import asyncio
import signal

import pytest
from queen import Queen

from tests import harness

QUICK = {"timeout_millis": 10_000}


@pytest.fixture(scope="module", params=["uvicorn", "daphne"])
def served(request, database, tmp_path_factory):
    broker = harness.BrokerProcess(
        tmp_path_factory.mktemp(request.param) / "log", database.environment, server=request.param
    )
    yield broker
    broker.stop()


@pytest.fixture
async def queen(served):
    """The client takes over the process's signals; a test run wants them back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with Queen(served.url, retry_attempts=1) as client:
        yield client
    for number, handler in handlers.items():
        signal.signal(number, handler)


async def pop(builder, count: int) -> list[dict]:
    """A pop that must bring as many messages as it can at once."""
    messages = await builder.batch(count).partitions(1).wait(True).timeout_millis(10_000).pop()
    assert len(messages) == count
    return messages


async def pop_nothing(builder) -> None:
    assert await builder.batch(10).wait(False).pop() == []


async def test_a_queue_can_be_created_configured_and_deleted(queen, fresh_queue):
    created = await queen.queue(fresh_queue).create()
    assert created["configured"] is True
    assert created["options"]["leaseTime"] == 300
    options = {"lease_time": 17, "dlq_after_max_retries": False, "max_wait_time_seconds": 0}
    configured = (
        await queen.queue(fresh_queue).namespace("shop").task("pay").config(options).create()
    )
    assert configured["options"]["leaseTime"] == 17
    assert configured["options"]["dlqAfterMaxRetries"] is False
    assert (configured["namespace"], configured["task"]) == ("shop", "pay")
    assert (await queen.queue(fresh_queue).delete())["deleted"] is True
    assert (await queen.queue(fresh_queue).delete())["deleted"] is False


async def test_a_message_is_pushed_popped_and_acked(queen, fresh_queue):
    [row] = await queen.queue(fresh_queue).push({"data": {"hello": "world"}})
    assert row["status"] == "queued"
    [message] = await pop(queen.queue(fresh_queue), 1)
    assert message["data"] == {"hello": "world"}
    assert message["id"] == row["message_id"]
    result = await queen.ack(message)
    assert result["success"] is True
    assert result["noop"] is False
    assert (await queen.ack(message))["noop"] is True
    await pop_nothing(queen.queue(fresh_queue))


@pytest.mark.parametrize(
    "payload", [None, 0, False, "", [], {}, "é東😀\u0000", [1, [2]], 2**53 + 1]
)
async def test_any_payload_arrives(queen, fresh_queue, payload):
    await queen.queue(fresh_queue).push({"data": payload})
    [message] = await pop(queen.queue(fresh_queue), 1)
    assert message["data"] == payload
    assert type(message["data"]) is type(payload)


async def test_a_partition_keeps_its_order_and_a_duplicate_its_first_id(queen, fresh_queue):
    items = [{"data": number, "transactionId": f"t{number}"} for number in range(5)]
    rows = await queen.queue(fresh_queue).partition("p-1 é").push(items)
    duplicates = []

    async def on_duplicate(found, _error):
        duplicates.extend(found)

    again = queen.queue(fresh_queue).partition("p-1 é").push(items[:2]).on_duplicate(on_duplicate)
    assert [row["message_id"] for row in await again] == [row["message_id"] for row in rows[:2]]
    assert len(duplicates) == 2
    messages = await pop(queen.queue(fresh_queue).partition("p-1 é"), 5)
    assert [message["data"] for message in messages] == [0, 1, 2, 3, 4]


async def test_buffered_pushes_arrive_whole_and_in_order(queen, fresh_queue):
    buffer = {"message_count": 40, "time_millis": 50}
    for number in range(100):
        await queen.queue(fresh_queue).buffer(buffer).push({"data": number})
    await queen.flush_all_buffers()
    messages = await pop(queen.queue(fresh_queue), 100)
    assert [message["data"] for message in messages] == list(range(100))


async def test_a_waiting_pop_gets_what_is_pushed_while_it_waits(queen, fresh_queue):
    waiting = asyncio.create_task(pop(queen.queue(fresh_queue), 1))
    await asyncio.sleep(0.2)  # so that it most likely waits; the outcome is the same if not
    await queen.queue(fresh_queue).push({"data": "now"})
    [message] = await waiting
    assert message["data"] == "now"


async def test_autopilot_says_what_it_chose(queen, fresh_queue):
    await queen.queue(fresh_queue).push([{"data": number} for number in range(3)])
    builder = queen.queue(fresh_queue).group("g").subscription_mode("all").wait(False)
    result = await builder.pop_result()
    assert [message["data"] for message in result.messages] == [0, 1, 2]
    assert result.autopilot.batch >= 3
    assert result.autopilot.partitions >= 1


async def test_consume_handles_and_acks_each_message(queen, fresh_queue):
    await queen.queue(fresh_queue).push([{"data": number} for number in range(7)])
    seen = []

    async def handle(message):
        seen.append(message["data"])

    await queen.queue(fresh_queue).each().batch(3).limit(7).timeout_millis(2000).consume(handle)
    assert seen == list(range(7))
    await pop_nothing(queen.queue(fresh_queue))


async def test_consume_redelivers_what_its_handler_refuses_until_it_is_dead(queen, fresh_queue):
    await queen.queue(fresh_queue).config({"retry_limit": 1}).create()
    await queen.queue(fresh_queue).push([{"data": word} for word in ("good", "bad", "last")])
    seen = []

    async def handle(message):
        seen.append(message["data"])
        if message["data"] == "bad":
            raise ValueError("cannot eat this")

    await queen.queue(fresh_queue).each().batch(10).limit(4).timeout_millis(2000).consume(handle)
    assert seen == ["good", "bad", "bad", "last"]
    letters = await queen.queue(fresh_queue).dlq().get()
    assert letters["total"] == 1
    [letter] = letters["messages"]
    assert letter["data"] == "bad"
    assert "cannot eat this" in letter["errorMessage"]


async def test_consume_takes_batches_with_several_workers(queen, fresh_queue):
    for partition in range(4):
        items = [{"data": [partition, number]} for number in range(5)]
        await queen.queue(fresh_queue).partition(f"p{partition}").push(items)
    seen = []
    everything = asyncio.Event()

    async def handle(messages):
        seen.extend(message["data"] for message in messages)
        if len(seen) >= 20:
            everything.set()

    builder = queen.queue(fresh_queue).group("g").subscription_mode("all").concurrency(2)
    await asyncio.wait_for(
        builder.batch(50).timeout_millis(500).consume(handle, signal=everything), timeout=20
    )
    assert sorted(seen) == [[partition, number] for partition in range(4) for number in range(5)]
    for partition in range(4):
        own = [number for each, number in seen if each == partition]
        assert own == list(range(5))


async def test_each_group_gets_every_message(queen, fresh_queue):
    await queen.queue(fresh_queue).push({"data": 1})
    for group in ("a", "b"):
        builder = queen.queue(fresh_queue).group(group).subscription_mode("from_beginning")
        [message] = await pop(builder, 1)
        assert (await queen.ack(message, True, {"group": group}))["success"] is True
    await pop_nothing(queen.queue(fresh_queue).group("late"))


async def test_a_nack_brings_a_message_again_and_dlq_ends_it(queen, fresh_queue):
    await queen.queue(fresh_queue).push({"data": 1})
    [message] = await pop(queen.queue(fresh_queue), 1)
    assert (await queen.ack(message, False, {"error": "not now"}))["success"] is True
    [again] = await pop(queen.queue(fresh_queue), 1)
    assert again["deliveryAttempt"] == 2
    assert (await queen.ack(again, "dlq", {"error": "never"}))["dlq"] is True
    letters = await queen.queue(fresh_queue).dlq().limit(10).get()
    assert [letter["errorMessage"] for letter in letters["messages"]] == ["never"]
    await queen.admin.retry_message(again["partitionId"], again["transactionId"])
    [replayed] = await pop(queen.queue(fresh_queue), 1)
    assert replayed["data"] == 1


async def test_a_batch_ack_carries_a_status_for_each_message(queen, fresh_queue):
    await queen.queue(fresh_queue).push([{"data": number} for number in range(4)])
    messages = await pop(queen.queue(fresh_queue), 4)
    messages[0]["_status"] = True
    messages[1]["_status"] = "retry"
    messages[2]["_status"] = True
    answer = await queen.ack(messages[:3])
    assert answer["success"] is True
    assert [result["success"] for result in answer["results"]] == [True, True, True]
    left = await pop(queen.queue(fresh_queue), 3)
    assert [message["data"] for message in left] == [1, 2, 3]
    answer = await queen.ack(left)
    assert all(result["leaseReleased"] for result in answer["results"])


async def test_a_lease_is_renewed_by_message_by_id_and_by_list(queen, fresh_queue):
    await queen.queue(fresh_queue).push({"data": 1})
    [message] = await pop(queen.queue(fresh_queue), 1)
    by_message = await queen.renew(message)
    assert by_message["success"] is True
    assert by_message["newExpiresAt"].endswith("Z")
    assert (await queen.renew(message["leaseId"]))["success"] is True
    assert len(await queen.renew([message, message])) == 1
    dead = await queen.renew("00000000-0000-0000-0000-00000000dead")
    assert dead["newExpiresAt"] is None


async def test_a_transaction_moves_a_message_from_queue_to_queue(queen, fresh_queue):
    target = f"{fresh_queue}-target"
    await queen.queue(fresh_queue).push({"data": 1})
    messages = await pop(queen.queue(fresh_queue), 1)
    transaction = queen.transaction().ack(messages).queue(target).push([{"data": 2}, {"data": 3}])
    result = await transaction.commit()
    assert result["success"] is True
    assert [each["type"] for each in result["results"]] == ["ack", "push", "push"]
    await pop_nothing(queen.queue(fresh_queue))
    moved = await pop(queen.queue(target), 2)
    assert [message["data"] for message in moved] == [2, 3]


async def test_a_transaction_that_cannot_be_carried_out_raises_and_does_nothing(queen, fresh_queue):
    target = f"{fresh_queue}-target"
    await queen.queue(fresh_queue).push({"data": 1})
    await queen.queue(target).push({"data": "there", "transactionId": "t"})
    messages = await pop(queen.queue(fresh_queue), 1)
    item = {"data": "again", "transactionId": "t"}
    transaction = queen.transaction().ack(messages).queue(target).push(item)
    with pytest.raises(Exception, match="QDUP"):
        await transaction.commit()
    assert (await queen.ack(messages[0]))["noop"] is False
    [only] = await pop(queen.queue(target), 1)
    assert only["data"] == "there"


async def test_a_transaction_of_a_group_uses_the_lease_of_its_messages(queen, fresh_queue):
    await queen.queue(fresh_queue).push({"data": 1})
    builder = queen.queue(fresh_queue).group("g").subscription_mode("all")
    messages = await pop(builder, 1)
    context = {"consumer_group": "g"}
    result = await queen.transaction().ack(messages, "completed", context).commit()
    assert result["success"] is True
    assert (await queen.ack(messages[0], True, {"group": "g"}))["noop"] is True


async def test_conflation_is_understood(queen, fresh_queue):
    await queen.queue(fresh_queue).push([{"data": number} for number in range(5)])
    builder = queen.queue(fresh_queue).group("g").subscription_mode("all").conflation()
    [message] = await builder.batch(10).wait(False).pop()
    assert message["data"] == 4
    assert (await queen.ack(message, True, {"group": "g"}))["conflated"] == 4
    again = queen.queue(fresh_queue).group("g").conflation().batch(10).wait(False)
    assert await again.pop() == [], "an empty answer must prove the policy or the client raises"


async def test_discovery_by_namespace_finds_the_queue(queen, fresh_queue):
    await queen.queue(f"{fresh_queue}.task").push({"data": 1})
    [message] = await queen.queue().namespace(fresh_queue).batch(1).wait(False).pop()
    assert message["data"] == 1
    assert (await queen.ack(message))["success"] is True


async def test_the_management_reads_of_the_client_work(queen, fresh_queue):
    await queen.queue(fresh_queue).push({"data": 1})
    names = [row["name"] for row in (await queen.admin.list_queues())["queues"]]
    assert fresh_queue in names
    assert (await queen.admin.get_queue(fresh_queue))["name"] == fresh_queue
    assert (await queen.admin.health())["status"] == "healthy"


async def test_messages_can_be_listed_inspected_and_deleted(queen, fresh_queue):
    items = [{"data": {"n": number}, "transactionId": f"t{number}"} for number in range(2)]
    await queen.queue(fresh_queue).push(items)
    listed = await queen.admin.list_messages(queue=fresh_queue, limit=10, status="pending")
    assert [row["data"]["n"] for row in listed["messages"]] == [1, 0]
    [message, _] = await pop(queen.queue(fresh_queue), 2)
    found = await queen.admin.get_message(message["partitionId"], "t0")
    assert (found["payload"], found["status"]) == ({"n": 0}, "processing")
    await queen.ack(message, "dlq", {"error": "never"})
    found = await queen.admin.get_message(message["partitionId"], "t0")
    assert (found["status"], found["errorMessage"]) == ("dead_letter", "never")
    deleted = await queen.admin.delete_message(message["partitionId"], "t0")
    assert deleted["success"] is True
    assert (await queen.queue(fresh_queue).dlq().get())["messages"] == []
    with pytest.raises(Exception, match=r"404|not found"):
        await queen.admin.delete_message(message["partitionId"], "t1")
