"""Key/value state through the official client, `queen-mq` 1.2.0, end to end.

Method: a broker process under each HTTP server, used by the client's public calls alone.
"""

import asyncio
import signal
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from queen import Queen
from queen.errors import KvError

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


@pytest.fixture
def ns() -> str:
    return f"ns-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize("value", [None, False, 0, "", [], {"a": [1, None]}, "é東😀", 2**53 + 1])
async def test_a_value_comes_back(queen, ns, value):
    put = await queen.kv.put(ns, "k", value, forever=True)
    assert put["applied"] is True
    got = await queen.kv.get(ns, "k")
    assert got and got["value"] == value
    assert got["version"] == put["version"]


async def test_the_verdict_of_a_write_is_its_truth(queen, ns):
    assert await queen.kv.put_if_absent(ns, "k", 1, ttl_seconds=60)
    lost = await queen.kv.put_if_absent(ns, "k", 2, ttl_seconds=60)
    assert not lost
    assert (lost["reason"], lost["value"]) == ("exists", 1)
    assert await queen.kv.put(ns, "k", 3, forever=True, expect=lost["version"])
    stale = await queen.kv.put(ns, "k", 4, forever=True, expect=lost["version"])
    assert (bool(stale), stale["reason"], stale["value"]) == (False, "version", 3)
    assert await queen.kv.delete(ns, "k", expect=stale["version"])
    assert not await queen.kv.delete(ns, "k")
    assert not await queen.kv.get(ns, "k")


async def test_once_claims_once(queen, ns):
    claims = await asyncio.gather(
        *(queen.kv.once(ns, "job", ttl=timedelta(minutes=1)) for _ in range(16))
    )
    assert sum(claims) == 1


async def test_a_limiter_admits_up_to_its_ceiling(queen, ns):
    until = datetime.now(UTC) + timedelta(minutes=1)
    answers = await asyncio.gather(
        *(queen.kv.incr(ns, "calls", max=5, until=until) for _ in range(12))
    )
    assert sum(map(bool, answers)) == 5
    assert {one["reason"] for one in answers if not one} == {"limit"}
    assert (await queen.kv.get(ns, "calls"))["value"] == 5


async def test_many_and_all_of_a_prefix(queen, ns):
    ops = [queen.kv.op.put(ns, f"p/{n:02}", n, forever=True) for n in range(25)]
    assert all(await queen.kv.batch(ops))
    many = await queen.kv.get_many(ns, ["p/03", "nope", "p/01"])
    assert [row["value"] for row in many["rows"]] == [3, 1]
    assert many["missing"] == ["nope"]
    rows = await queen.kv.list_all(ns, "p/", limit=10)
    assert [row["value"] for row in rows] == list(range(25))
    assert all("value" not in row for row in await queen.kv.list_all(ns, "p/", keys_only=True))


async def test_a_refusal_carries_its_code(queen, ns):
    with pytest.raises(KvError) as caught:
        await queen.kv.get("NOT A NAMESPACE", "k")
    assert caught.value.code == "kv_bad_request"
    twice = [queen.kv.op.get(ns, "k"), queen.kv.op.delete(ns, "k")]
    with pytest.raises(KvError) as caught:
        await queen.kv.batch(twice)
    assert caught.value.code == "kv_bad_request"
    with pytest.raises(KvError) as caught:
        await queen.kv.put(ns, "k", "x" * 70_000, forever=True)
    assert caught.value.code == "payload_too_large"


async def test_a_transaction_that_is_fenced_by_a_key_happens_once(queen, ns, fresh_queue):
    async def work():
        transaction = queen.transaction().queue(fresh_queue).push([{"data": {"n": 1}}])
        transaction = transaction.once(ns, "done", ttl_seconds=60)
        return await transaction.commit()

    answers = await asyncio.gather(*(work() for _ in range(8)))
    [done] = [one for one in answers if one["success"]]
    assert [one["type"] for one in done["results"]] == ["push", "kv"]
    for lost in answers:
        if not lost["success"]:
            assert lost["reason"] == "kv_precondition"
            assert (lost["failedIndex"], lost["kvReason"]) == (1, "exists")
    builder = queen.queue(fresh_queue).batch(10).wait(False)
    assert len(await builder.pop()) == 1


async def test_state_written_with_its_ack_is_undone_with_it(queen, ns, fresh_queue):
    await queen.queue(fresh_queue).push({"data": 1})
    [message] = await queen.queue(fresh_queue).batch(1).wait(False).pop()
    transaction = queen.transaction().ack(message, "completed")
    transaction.kv.put(ns, "seen", message["id"], forever=True)
    assert (await transaction.commit())["success"] is True
    assert (await queen.kv.get(ns, "seen"))["value"] == message["id"]

    foreign = message | {"leaseId": str(uuid.uuid4()), "transactionId": "never"}
    transaction = queen.transaction().ack(foreign, "completed")
    transaction.kv.put(ns, "seen", "zombie", forever=True)
    with pytest.raises(Exception, match=r"ack|QTXN|lease"):
        await transaction.commit()
    assert (await queen.kv.get(ns, "seen"))["value"] == message["id"]
