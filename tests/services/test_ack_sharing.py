"""Acks that share calls: each is judged by itself, whoever else rides along.

Method: a broker in this process whose ack lane is held in mid-call, so that the requests
behind it share the next one; the database's own clock and rows decide what a lease is worth.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from brokers.domain import (
    DEFAULT_TENANT,
    PopRequest,
    PushItem,
    PushRequest,
    TransactionRequest,
)
from brokers.errors import StoreError
from brokers.services import ack as ack_service
from brokers.services import pop as pop_service
from brokers.services import push as push_service
from brokers.services import transaction
from brokers.store import calls
from tests.services.in_process import Client, ack_of, within

INVALID_LEASE = "invalid or expired lease"


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often each way of acknowledging was taken, and how many acks or batches it carried."""
    counts = {"positional": 0, "batches": 0, "full": 0}
    complete, full = calls.cursor_complete, calls.message_ack

    async def counted_complete(fetch, batches):
        counts["positional"] += 1
        counts["batches"] += len(batches)
        return await complete(fetch, batches)

    async def counted_full(fetch, tenant, acks):
        counts["full"] += 1
        return await full(fetch, tenant, acks)

    monkeypatch.setattr(calls, "cursor_complete", counted_complete)
    monkeypatch.setattr(calls, "message_ack", counted_full)
    return counts


@contextlib.asynccontextmanager
async def sharing(client: Client) -> AsyncIterator[None]:
    """What is acknowledged inside goes in one call, at the end: one in mid-call holds it up."""
    coalescer = client.broker.acks.coalescer
    flush, started, go_on = coalescer._flush, asyncio.Event(), asyncio.Event()

    async def held_flush(sheets):
        coalescer._flush = flush
        started.set()
        await go_on.wait()
        return await flush(sheets)

    coalescer._flush = held_flush
    ahead = asyncio.create_task(
        ack_service.ack(
            client.broker, DEFAULT_TENANT, [ack_of(NOBODYS, lease_id=None, group="nobody")]
        )
    )
    await within(started.wait())
    yield
    for _ in range(3):
        await asyncio.sleep(0)
    go_on.set()
    await within(ahead)


NOBODYS = {
    "transactionId": "t",
    "partitionId": "0190a7c0-0000-7000-8000-00000000dead",
    "consumerGroup": "g",
    "leaseId": None,
}


async def take(client: Client, queue: str, partition: str, *payloads, **options):
    """Push to a partition of its own, and lease it all."""
    await client.push(queue, *payloads, partition=partition)
    messages = await client.pop(queue, partition=partition, **options)
    assert len(messages) == len(payloads)
    return messages


def expire(db, message) -> None:
    """Its lease runs out now."""
    db.execute(
        "UPDATE queen_cursor SET lease_expires_at = clock_timestamp() WHERE lease_id = %s",
        [message["leaseId"]],
    )


@contextlib.contextmanager
def refusing(db, message) -> Iterator[None]:
    """The database cannot move the cursor under this message's lease."""
    db.execute(
        "CREATE OR REPLACE FUNCTION test_refuse_ack() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN IF (NEW.lease_id IS NULL OR NEW.committed > OLD.committed)"
        f" AND OLD.lease_id = '{message['leaseId']}' THEN"
        " RAISE EXCEPTION 'refused' USING ERRCODE = '23514'; END IF; RETURN NEW; END $$;"
        " CREATE TRIGGER test_refuse_ack BEFORE UPDATE ON queen_cursor"
        " FOR EACH ROW EXECUTE FUNCTION test_refuse_ack()"
    )
    try:
        yield
    finally:
        db.execute("DROP TRIGGER test_refuse_ack ON queen_cursor; DROP FUNCTION test_refuse_ack()")


async def test_whole_batches_of_several_requests_are_one_positional_call(
    here, fresh_queue, counted
):
    batches = [await take(here, fresh_queue, f"p{number}", 1, 2, 3) for number in range(5)]
    async with sharing(here):
        tasks = [asyncio.create_task(here.ack(*batch)) for batch in batches]
    for outcomes in await within(asyncio.gather(*tasks)):
        assert [(one.success, one.lease_released) for one in outcomes] == [(True, True)] * 3
    assert (counted["positional"], counted["batches"]) == (1, 5)
    assert counted["full"] == 1, "the one ahead, of which nobody knows anything"
    assert await here.pop(fresh_queue) == []


async def test_acks_of_several_requests_in_one_call_are_judged_separately(here, db, fresh_queue):
    good, gone, part, bad, twice = [
        await take(here, fresh_queue, name, 1, 2) for name in ("a", "b", "c", "d", "e")
    ]
    expire(db, gone[0])
    stranger = dict(bad[0], transactionId="never pushed")
    async with sharing(here):
        tasks = [
            asyncio.create_task(work)
            for work in (
                here.ack(*good),
                here.ack(*gone),
                here.ack(part[0]),
                here.ack(bad[0], stranger),
                here.ack(bad[1], status="retry"),
                here.ack(*twice),
                here.ack(*twice),
            )
        ]
    answers = await within(asyncio.gather(*tasks))
    assert [[one.success for one in answer] for answer in answers] == [
        [True, True],
        [False, False],
        [True],
        [True, False],
        [True],
        [True, True],
        [True, True],
    ]
    assert {one.error for one in answers[1]} == {INVALID_LEASE}
    assert [one.lease_released for one in answers[2]] == [False]
    assert [one.lease_released for one in answers[4]] == [True]
    assert sorted(one.noop for answer in answers[5:] for one in answer) == [
        False,
        False,
        True,
        True,
    ]


async def test_a_whole_batch_under_an_expired_lease_is_refused(here, db, fresh_queue, counted):
    batch = await take(here, fresh_queue, "p", 1, 2)
    expire(db, batch[0])
    outcomes = await here.ack(*batch)
    assert counted["positional"] == 1, "the registry took it for whole"
    assert [(one.success, one.error) for one in outcomes] == [(False, INVALID_LEASE)] * 2
    again = await here.pop(fresh_queue, partition="p")
    assert [(one["data"], one["deliveryAttempt"]) for one in again] == [(1, 2), (2, 2)]


async def test_a_stale_workers_ack_moves_nothing_under_its_successors_lease(here, db, fresh_queue):
    stale = await take(here, fresh_queue, "p", 1, 2)
    expire(db, stale[0])
    successor = await here.pop(fresh_queue, partition="p")
    assert successor[0]["leaseId"] != stale[0]["leaseId"]
    for given in (stale, stale[:1]):
        outcomes = await here.ack(*given)
        assert {(one.success, one.error) for one in outcomes} == {(False, INVALID_LEASE)}
    async with sharing(here):
        late, right = (asyncio.create_task(here.ack(*given)) for given in (stale, successor))
    assert not any(one.success for one in await within(late))
    assert all(one.success for one in await within(right))


async def test_a_stale_workers_transaction_is_rejected_under_its_successors_lease(
    here, db, fresh_queue
):
    stale = await take(here, fresh_queue, "p", 1)
    expire(db, stale[0])
    [successor] = await here.pop(fresh_queue, partition="p")
    for required, named in (([], True), ([stale[0]["leaseId"]], False)):
        ack = ack_of(stale[0]) if named else ack_of(stale[0], lease_id=None)
        request = TransactionRequest(
            tenant=DEFAULT_TENANT,
            operations=[ack, PushItem(fresh_queue, "out", b"1", None)],
            required_leases=required,
            mentions_lease=True,
        )
        result = await transaction.commit(here.broker, request)
        assert not result.success, result
    assert await here.pop(fresh_queue, partition="out") == []
    [outcome] = await here.ack(successor)
    assert outcome.success


async def test_two_messages_of_one_id_are_two_acks(here, fresh_queue, counted):
    await here.configure(fresh_queue, dedupWindowSeconds=0)
    await here.push(fresh_queue, 1, 2, 3, ids=["t", "t", "u"])
    batch = await here.pop(fresh_queue)
    assert [one["transactionId"] for one in batch] == ["t", "t", "u"]
    [outcome] = await here.ack(batch[0])
    assert (outcome.success, outcome.lease_released) == (True, False)
    outcomes = await here.ack(*batch[1:])
    assert [one.success for one in outcomes] == [True, True]
    assert outcomes[-1].lease_released
    assert counted["positional"] == 0
    await here.push(fresh_queue, 4, 5, ids=["t", "t"])
    whole = await here.pop(fresh_queue)
    assert [one.success for one in await here.ack(*whole)] == [True, True]
    assert counted["positional"] == 1
    assert await here.pop(fresh_queue) == []


async def test_one_mention_of_an_id_that_was_handed_out_twice_is_not_the_whole_batch(
    here, db, fresh_queue, counted
):
    await here.configure(fresh_queue, dedupWindowSeconds=0)
    await here.push(fresh_queue, 1, 2, ids=["t", "t"])
    batch = await here.pop(fresh_queue)
    [outcome] = await here.ack(batch[0])
    assert (outcome.success, outcome.lease_released, counted["positional"]) == (True, False, 0)
    expire(db, batch[0])
    assert await here.payloads(fresh_queue) == [2]


async def test_an_ack_of_a_message_older_than_the_window_works_under_its_lease(
    here, db, fresh_queue, counted
):
    batch = await take(here, fresh_queue, "p", 1, 2, 3)
    db.execute(
        "DELETE FROM queen_txn WHERE partition_id ="
        " (SELECT id FROM queen_partition WHERE uid = %s)",
        [batch[0]["partitionId"]],
    )
    [outcome] = await here.ack(batch[0])
    assert (outcome.success, outcome.error) == (True, None)
    outcomes = await here.ack(*batch[1:])
    assert [one.success for one in outcomes] == [True, True]
    assert outcomes[-1].lease_released
    assert (counted["positional"], counted["full"]) == (0, 2)


async def test_a_repeated_ack_of_a_completed_lease_is_a_noop(here, there, fresh_queue):
    """The first answer was lost; the repetition may reach any broker."""
    batch = await take(here, fresh_queue, "p", 1, 2)
    assert all(one.success and not one.noop for one in await here.ack(*batch))
    for client in (here, there, here):
        outcomes = await client.ack(*batch)
        assert [(one.success, one.noop) for one in outcomes] == [(True, True)] * 2
        assert not any(one.lease_released for one in outcomes)


async def test_a_batch_handed_out_elsewhere_is_acknowledged_here(here, there, fresh_queue, counted):
    batch = await take(there, fresh_queue, "p", 1, 2)
    outcomes = await here.ack(*batch)
    assert [one.success for one in outcomes] == [True, True]
    assert outcomes[-1].lease_released
    assert (counted["positional"], counted["full"]) == (0, 1)
    assert await here.pop(fresh_queue) == []


async def test_a_batch_over_many_partitions_is_one_positional_call(here, fresh_queue, counted):
    for number in range(20):
        await here.push(fresh_queue, number, number, partition=f"p{number}")
    batch = await here.pop(fresh_queue, batch=1000, partitions=20)
    assert len(batch) == 40
    assert all(one.success for one in await here.ack(*batch))
    assert (counted["positional"], counted["batches"], counted["full"]) == (1, 20, 0)
    assert here.broker.registry.size_bytes == 0


async def test_an_ack_that_the_database_cannot_carry_out_fails_alone(here, db, fresh_queue):
    good, bad = [await take(here, fresh_queue, name, 1, 2) for name in ("good", "bad")]
    with refusing(db, bad[0]):
        async with sharing(here):
            tasks = [asyncio.create_task(here.ack(one[0])) for one in (bad, good)]
        [[refused], [kept]] = await within(asyncio.gather(*tasks))
    assert (kept.success, refused.success) == (True, False)
    assert refused.error == "ack flush failed; lease will expire and redeliver"
    [outcome] = await here.ack(bad[0])
    assert outcome.success


async def test_an_ack_that_cannot_be_carried_out_does_not_fail_another_tenants(
    here, db, fresh_queue, monkeypatch
):
    """The acks of a call are carried out tenant by tenant; the first one's breaks."""
    monkeypatch.setattr(here.broker, "tenant_filter", lambda tenant: tenant)
    other = uuid4()
    items = [PushItem(fresh_queue, "p", b"1", None), PushItem(fresh_queue, "p", b"2", None)]
    await push_service.push(here.broker, PushRequest(tenant=other, items=items))
    result = await pop_service.pop(here.broker, PopRequest(tenant=other, queue=fresh_queue))
    good = [ack_of(json.loads(one)) for one in result.messages]
    bad = await take(here, fresh_queue, "p", 1, 2)
    with refusing(db, bad[0]):
        async with sharing(here):
            tasks = [
                asyncio.create_task(here.ack(bad[0])),
                asyncio.create_task(ack_service.ack(here.broker, other, good[:1])),
            ]
        [[refused], [kept]] = await within(asyncio.gather(*tasks))
    assert (refused.success, kept.success) == (False, True)


async def test_a_whole_batch_that_the_database_cannot_complete_fails_alone(here, db, fresh_queue):
    good, bad = [await take(here, fresh_queue, name, 1, 2) for name in ("good", "bad")]
    with refusing(db, bad[0]):
        async with sharing(here):
            tasks = [asyncio.create_task(here.ack(*one)) for one in (bad, good)]
        refused, kept = await within(asyncio.gather(*tasks))
    assert [one.success for one in refused] == [False, False]
    assert [one.success for one in kept] == [True, True]


async def test_what_a_first_call_settled_stays_so_when_a_second_one_breaks(here, fresh_queue):
    """A request with a whole batch and a part of another takes both ways."""
    whole, part = [await take(here, fresh_queue, name, 1, 2) for name in ("whole", "part")]
    lane = here.broker.ack_lane
    fetch = lane.fetch

    async def breaks(statement, *given, **named):
        if "queen_message_ack_v1" in statement:
            raise StoreError("the connection broke", outcome_unknown=True)
        return await fetch(statement, *given, **named)

    lane.fetch = breaks
    outcomes = await here.ack(*whole, part[0])
    lane.fetch = fetch
    assert [one.success for one in outcomes] == [True, True, False]
    assert outcomes[2].error == "ack flush failed; lease will expire and redeliver"
    assert await here.payloads(fresh_queue, partition="whole") == []
