"""The official client's streams and traces, `queen-mq` from the package index, end to end.

Method: as test_python_client.py, at the shared broker: the client's public calls alone. A stream
runs until what it should have made has been consumed.
"""

import asyncio
import signal
import uuid

import pytest
from queen import Queen, Stream
from queen.streams.runtime.register import StreamsConfigHashMismatch


@pytest.fixture
async def queen(broker):
    """The client takes over the process's signals; a test run wants them back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with Queen(broker.url, retry_attempts=1) as client:
        yield client
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def query():
    return f"query-{uuid.uuid4().hex[:12]}"


async def push(queen, queue, *payloads, partition="p"):
    builder = queen.queue(queue).partition(partition)
    await builder.push([{"data": payload} for payload in payloads])


async def received(queen, queue, count):
    """So many payloads of a queue, acked, in their order."""
    payloads = []
    async with asyncio.timeout(30):
        while len(payloads) < count:
            messages = await queen.queue(queue).batch(count).wait(True).timeout_millis(5000).pop()
            for message in messages:
                payloads.append(message["data"])
                await queen.ack(message)
    return payloads


async def run(stream, query, broker, **options):
    options = {"subscription_mode": "all", "max_wait_millis": 200} | options
    return await stream.run(query_id=query, url=broker.url, **options)


async def test_a_stream_maps_and_filters_from_queue_to_queue(queen, broker, fresh_queue, query):
    sink = f"{fresh_queue}-sink"
    await push(queen, fresh_queue, *[{"n": n} for n in range(20)])
    stream = (
        Stream.from_(queen.queue(fresh_queue))
        .filter(lambda message: message["data"]["n"] % 2 == 0)
        .map(lambda message: {"double": 2 * message["data"]["n"]})
        .to(queen.queue(sink))
    )
    runner = await run(stream, query, broker)
    try:
        got = await received(queen, sink, 10)
    finally:
        await runner.stop()
    assert got == [{"double": 4 * n} for n in range(10)]
    assert runner.metrics()["errorsTotal"] == 0
    again = queen.queue(fresh_queue).group(f"streams.{query}").wait(False)
    assert await again.pop() == [], "the source was acked"


async def test_windows_keep_their_state_between_runs(queen, broker, fresh_queue, query):
    sink = f"{fresh_queue}-sink"
    stream = (
        Stream.from_(queen.queue(fresh_queue))
        .window_tumbling(seconds=1, idle_flush_ms=200)
        .aggregate({"count": lambda message: 1, "sum": lambda message: message["n"]})
        .to(queen.queue(sink))
    )
    total = 0
    for _ in range(2):
        runner = await run(stream, query, broker)
        try:
            await push(queen, fresh_queue, *[{"n": n} for n in range(1, 6)])
            total += 5
            counted = 0
            while counted < 5:
                [window] = await received(queen, sink, 1)
                counted += window["count"]
            assert counted == 5
        finally:
            await runner.stop()
        assert runner.metrics()["errorsTotal"] == 0


async def test_a_gate_lets_a_part_through_and_the_rest_comes_again_in_order(
    queen, broker, fresh_queue, query
):
    sink = f"{fresh_queue}-sink"
    await queen.queue(fresh_queue).config({"lease_time": 1, "retry_limit": 0}).create()
    await push(queen, fresh_queue, *range(6))
    rounds = {"left": 2}

    def two_at_a_time(message, context):
        if rounds["left"] == 0:
            rounds["left"] = 2
            return False
        rounds["left"] -= 1
        context.state["seen"] = context.state.get("seen", 0) + 1
        return True

    stream = Stream.from_(queen.queue(fresh_queue)).gate(two_at_a_time).to(queen.queue(sink))
    runner = await run(stream, query, broker)
    try:
        got = await received(queen, sink, 6)
    finally:
        await runner.stop()
    assert got == [{"value": n} for n in range(6)]
    assert runner.metrics()["errorsTotal"] == 0


async def test_another_configuration_is_refused_until_it_resets(queen, broker, fresh_queue, query):
    source = queen.queue(fresh_queue)
    runner = await run(Stream.from_(source).map(lambda one: one), query, broker)
    await runner.stop()
    other = Stream.from_(source).map(lambda one: one).filter(lambda one: True)
    with pytest.raises(StreamsConfigHashMismatch, match="config_hash mismatch"):
        await run(other, query, broker)
    runner = await run(other, query, broker, reset=True)
    await runner.stop()


async def test_a_consumer_traces_its_messages_and_the_admin_finds_them(queen, fresh_queue):
    name = f"trace-{fresh_queue}"
    told = []

    async def handle(message):
        told.append((message, await message["trace"]({"traceName": name, "data": {"step": 1}})))
        told.append(
            (
                message,
                await message["trace"](
                    {"traceName": [name, "other"], "eventType": "done", "data": "text"}
                ),
            )
        )

    await push(queen, fresh_queue, 1)
    await (
        queen.queue(fresh_queue).group("g").subscription_mode("all").limit(1).each().consume(handle)
    )
    message = told[0][0]
    assert all(answer["success"] is True for _, answer in told)
    admin = queen.admin
    found = await admin.get_traces_for_message(message["partitionId"], message["transactionId"])
    assert [(one["event_type"], one["data"]) for one in found["traces"]] == [
        ("info", {"step": 1}),
        ("done", "text"),
    ]
    assert found["traces"][1]["trace_names"] == [name, "other"]
    assert found["traces"][0]["consumer_group"] == "g"
    page = await admin.get_traces_by_name(name, limit=1, offset=1)
    assert (page["total"], len(page["traces"])) == (2, 1)
    assert page["traces"][0]["queue_name"] == fresh_queue
    names = await admin.get_trace_names(limit=1000)
    assert name in [one["trace_name"] for one in names["trace_names"]]
