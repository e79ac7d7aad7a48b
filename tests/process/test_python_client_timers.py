"""The official client's timers, `queen-mq` from the package index, end to end.

Method: as test_python_client.py: a broker under each HTTP server, the client's public calls alone.
"""

import signal
import uuid
from datetime import timedelta

import pytest
from queen import Queen

from tests import harness


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


async def pop(queen, queue: str, count: int = 1) -> list[dict]:
    builder = queen.queue(queue).batch(count).wait(True).timeout_millis(10_000)
    messages = await builder.pop()
    assert len(messages) == count
    return messages


async def test_a_timer_is_delivered_as_it_was_promised(queen, fresh_queue):
    payload = {"order": 7, "nested": [1, "ü"]}
    result = await queen.timers.schedule(
        fresh_queue, "order/7", payload, delay_ms=150, partition="p"
    )
    assert result and result["status"] == "scheduled"
    [message] = await pop(queen, fresh_queue)
    assert message["data"] == payload
    assert (message["id"], message["transactionId"]) == (result["messageId"], result["txn"])
    assert message["partition"] == "p"
    assert message["createdAt"] >= result["deliverAt"]
    assert not await queen.timers.peek(fresh_queue, "order/7")
    cancelled = await queen.timers.cancel(fresh_queue, "order/7", txn=result["txn"])
    assert not cancelled
    assert (cancelled["status"], cancelled["txn"]) == ("absent", result["txn"])


async def test_a_timer_can_be_moved_looked_at_and_cancelled(queen, fresh_queue):
    first = await queen.timers.schedule(fresh_queue, "a b/ü", "text", delay=timedelta(hours=1))
    second = await queen.timers.reschedule(fresh_queue, "a b/ü", b"[1]", delay_ms=7_200_000)
    assert (first["status"], second["status"]) == ("scheduled", "rescheduled")
    assert first["deliverAt"] < second["deliverAt"]
    peeked = await queen.timers.peek(fresh_queue, "a b/ü")
    assert peeked["payload"] == "WzFd" and peeked["claimed"] is False
    assert await queen.timers.cancel(fresh_queue, "a b/ü")
    assert not await queen.timers.peek(fresh_queue, "a b/ü")


async def test_pages_are_walked_to_their_end(queen, fresh_queue):
    operations = [
        queen.timers.op.schedule(fresh_queue, f"k{no:02}", no, delay_ms=600_000) for no in range(25)
    ]
    assert all(await queen.timers.batch(operations))
    rows = await queen.timers.list_all(fresh_queue, limit=10)
    assert [row["timerKey"] for row in rows] == [f"k{no:02}" for no in range(25)]


async def test_timers_ride_in_a_transaction(queen, fresh_queue):
    await queen.timers.schedule(fresh_queue, "old", 0, delay_ms=600_000)
    transaction = queen.transaction()
    transaction.queue(fresh_queue).push([{"data": "now"}])
    transaction.timer(fresh_queue).key("later").payload("later").after_ms(200).schedule()
    transaction.timer(fresh_queue).key("old").cancel()
    answer = await transaction.commit()
    assert answer["success"] is True
    assert [one["type"] for one in answer["results"]] == ["push", "timer", "timer"]
    assert not await queen.timers.peek(fresh_queue, "old")
    received = []
    while len(received) < 2:
        [message] = await pop(queen, fresh_queue)
        received.append(message["data"])
        await queen.ack(message)
    assert received == ["now", "later"]


async def test_a_refusal_reaches_the_program_with_its_code(queen, fresh_queue):
    operation = queen.timers.op.schedule(fresh_queue, "k", 1, delay_ms=1, txn=str(uuid.uuid4()))
    with pytest.raises(Exception, match="timers_bad_request"):
        await queen.timers.batch([operation, operation])
    with pytest.raises(Exception, match="timer_horizon_exceeded"):
        await queen.timers.schedule(fresh_queue, "k", 1, delay=timedelta(days=91))
