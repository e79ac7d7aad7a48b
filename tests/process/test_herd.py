"""Two thousand parked pops: what a push to them costs, and what their waiting costs.

Method: one broker process, raw keep-alive sockets that hold one waiting pop each, and the
broker's own metrics read before and after. Nothing else talks to that broker.
"""

import asyncio
import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.harness import BrokerProcess

HERD = 2000
CLAIM_CALLS_MAX = 3
CALLS_PER_S_MAX = 2.0
BYTES_PER_PARKED_POP_MAX = 20 * 1024
IDLE_S = 5.0
PARK_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 15.0
AT_ONCE = 200
POP_PROCEDURES = "queen_(message_claim|ready_probe|queue_(ensure|discover)|partition|group)_"

Sockets = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


@pytest.fixture
def herd_broker(start_broker) -> BrokerProcess:
    return start_broker(server="uvicorn")


async def metric(client: httpx.AsyncClient, name: str) -> float:
    text = (await client.get("/metrics/prometheus")).text
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


async def calls(client: httpx.AsyncClient) -> dict[str, float]:
    return {kind: await metric(client, f"queen_{kind}_calls_total") for kind in ("claim", "probe")}


async def statements(db, seconds: float) -> Counter[str]:
    """The procedures of a pop that ran meanwhile, seen by looking very often."""
    seen: set[tuple[int, object, str]] = set()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        rows = db.execute(
            "SELECT pid, query_start, (regexp_match(query, 'queen_[a-z_]+_v1'))[1]"
            " FROM pg_stat_activity WHERE datname = current_database() AND query ~ %s",
            [POP_PROCEDURES],
        )
        seen.update(rows.fetchall())
        await asyncio.sleep(0.01)
    return Counter(name for _, started, name in seen)


@contextlib.asynccontextmanager
async def herd(
    broker: BrokerProcess, client: httpx.AsyncClient, path: str, count: int = HERD
) -> AsyncIterator[Sockets]:
    """So many pops that wait on sockets of their own."""
    request = (
        f"GET {path}{'&' if '?' in path else '?'}wait=true&timeout=120000 HTTP/1.1\r\n"
        f"Host: 127.0.0.1\r\n\r\n"
    ).encode()
    sockets: Sockets = []

    async def park() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        sockets.append((reader, writer))
        writer.write(request)

    try:
        for _ in range(0, count, AT_ONCE):
            await asyncio.gather(*(park() for _ in range(AT_ONCE)))
        deadline = time.monotonic() + PARK_TIMEOUT_S
        while await metric(client, "queen_parked_long_polls") < count:
            assert time.monotonic() < deadline, "they do not all park"
            await asyncio.sleep(0.05)
        yield sockets
    finally:
        for _, writer in sockets:
            writer.close()
        await asyncio.gather(*(w.wait_closed() for _, w in sockets), return_exceptions=True)


async def answers(sockets: Sockets, count: int) -> list[bytes]:
    """The bodies of the first so many answers, whoever gets them."""
    bodies: asyncio.Queue[bytes] = asyncio.Queue()

    async def read_one(reader: asyncio.StreamReader) -> None:
        bodies.put_nowait(await answer(reader))

    reads = [asyncio.create_task(read_one(reader)) for reader, _ in sockets]
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return [await bodies.get() for _ in range(count)]
    finally:
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


async def answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n")[0], head
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert length is not None, head
    return await reader.readexactly(int(length.group(1)))


async def push(client: httpx.AsyncClient, queue: str, *partitions: str) -> None:
    items = [{"queue": queue, "partition": one, "payload": one} for one in partitions]
    response = await client.post("/api/v1/push", json={"items": items})
    assert [row["status"] for row in response.json()] == ["queued"] * len(partitions)


@pytest.fixture
async def client(herd_broker: BrokerProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=herd_broker.url, timeout=30) as client:
        yield client


async def test_one_push_to_2000_parked_pops_costs_three_claim_calls_at_most(
    herd_broker, client, fresh_queue
):
    async with herd(herd_broker, client, f"/api/v1/pop/queue/{fresh_queue}") as sockets:
        before = await calls(client)
        await push(client, fresh_queue, "news")
        [body] = await answers(sockets, 1)
        assert [message["data"] for message in json.loads(body)["messages"]] == ["news"]
        # The floor looks once or twice more: a bell too many would ring by then.
        await asyncio.sleep(1.5)
        spent = {kind: count - before[kind] for kind, count in (await calls(client)).items()}
        assert spent["claim"] <= CLAIM_CALLS_MAX, spent


async def test_a_push_to_ten_partitions_serves_ten_of_2000_and_disturbs_few_others(
    herd_broker, client, fresh_queue
):
    names = [f"p{number}" for number in range(10)]
    async with herd(herd_broker, client, f"/api/v1/pop/queue/{fresh_queue}") as sockets:
        before = await calls(client)
        await push(client, fresh_queue, *names)
        bodies = await answers(sockets, 10)
        got = [message["data"] for body in bodies for message in json.loads(body)["messages"]]
        assert sorted(got) == names
        spent = (await calls(client))["claim"] - before["claim"]
        assert spent <= 2 * len(names), spent


@pytest.mark.parametrize("scope", ["queue", "group", "partition", "unborn", "discovery"])
async def test_2000_idle_pops_cost_two_database_calls_a_second_at_most(
    herd_broker, client, db, fresh_queue, scope
):
    await push(client, f"{fresh_queue}.task", "Default")
    await push(client, fresh_queue, "Default")
    path = f"/api/v1/pop/queue/{fresh_queue}"
    assert (await client.get(path, params={"autoAck": "true"})).status_code == 200
    paths = {
        "queue": path,
        "group": f"{path}?consumerGroup=g",
        "partition": f"{path}/partition/Default",
        "unborn": f"{path}/partition/unborn",
        "discovery": f"/api/v1/pop?namespace={fresh_queue}&task=task&consumerGroup=g",
    }
    async with herd(herd_broker, client, paths[scope]):
        # The last statement of a connection stays in sight: what ran before is taken off.
        old = await statements(db, 0.1)
        before = await calls(client)
        ran = await statements(db, IDLE_S) - old
        after = await calls(client)
        spent = sum(after.values()) - sum(before.values())
        assert spent / IDLE_S <= CALLS_PER_S_MAX, (before, after)
        # A discovery asks twice a second which queues there are, whoever waits.
        assert ran.total() / IDLE_S <= 2 * CALLS_PER_S_MAX, ran


async def test_a_parked_pop_takes_less_than_20_kib(herd_broker, client, fresh_queue):
    path = f"/api/v1/pop/queue/{fresh_queue}"
    async with herd(herd_broker, client, path, 200):
        pass  # whatever is allocated once is there now
    before = await metric(client, "queen_process_resident_memory_bytes")
    async with herd(herd_broker, client, path):
        after = await metric(client, "queen_process_resident_memory_bytes")
    each = (after - before) / HERD
    print(f"{each / 1024:.1f} KiB per parked pop")
    assert each < BYTES_PER_PARKED_POP_MAX


async def test_2000_pops_that_hang_up_at_once_leave_nothing(herd_broker, client, fresh_queue):
    path = f"/api/v1/pop/queue/{fresh_queue}"
    async with herd(herd_broker, client, path) as sockets:
        for _, writer in sockets:
            writer.transport.abort()
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while await metric(client, "queen_parked_long_polls"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    await push(client, fresh_queue, "after")
    body = (await client.get(path, params={"autoAck": "true"})).json()
    assert [message["data"] for message in body["messages"]] == ["after"]
    assert body["messages"][0]["deliveryAttempt"] == 1
