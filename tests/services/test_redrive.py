"""Redrives in a running broker: what a letter becomes, what ends a job, and leaders that die.

Method: brokers in the test's own loop that do not lead by themselves; the test leads, and lets
go as a crash would.
"""

import asyncio
import contextlib
import json
import time
import uuid
from uuid import UUID

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.encryption import KeyRing
from brokers.flow.switches import PUSH_MAINTENANCE
from brokers.services import redrive
from brokers.services.dead_letters import NO_KEY
from brokers.services.redrive import RedriveRequest
from brokers.services.term import Fenced, Term
from brokers.store.combine import QUEUE_FULL
from brokers.store.redrive_calls import Filter
from tests.harness import eventually
from tests.services.in_process import NO_FLOOR, within
from tests.store.calling import Lane
from tests.store.redriving import payloads_of
from tests.store.retaining import lead

KEY, OTHER = "ab" * 32, "cd" * 32


def take(db) -> int | None:
    """Become the leader, whoever is; None while a step of the one before is still under way."""
    with contextlib.suppress(AssertionError):
        return lead(db, "redrive")
    return None


@pytest.fixture
def term(db):
    """A factory of terms, each of which ends the one before."""
    db.execute("UPDATE queen_redrive SET state = 'cancelled' WHERE state = 'running'")
    yield lambda: Term(token=eventually(lambda: take(db)), ends_at=time.monotonic() + 120)
    db.execute("UPDATE queen_lease SET held_until = NULL WHERE task = 'redrive'")


async def begin(client, queue: str, **named) -> UUID:
    named = {"rate": redrive.RATE_MAX, "tenant": DEFAULT_TENANT} | named
    request = RedriveRequest(which=Filter(queue=queue), **named)
    return UUID((await redrive.create(client.broker, request)).id)


async def shown(client, job: UUID):
    return await redrive.find(client.broker, DEFAULT_TENANT, job)


async def run(client, term: Term) -> None:
    await within(redrive.cycle(client.broker, term), 60)


def bury_sealed(db, lane: Lane, key: str, payload) -> None:
    [dead] = lane.bury("placeholder")
    sealed = KeyRing(key).seal(json.dumps(payload).encode())
    db.execute(
        "UPDATE queen_dead_letter SET payload = %s, encrypted = true WHERE id = %s", [sealed, dead]
    )


async def test_a_letter_is_sealed_where_its_destination_encrypts_and_stays_sealed(
    start_client, db, fresh_queue, term
):
    client = await start_client(**NO_FLOOR, QUEEN_ENCRYPTION_KEY=KEY)
    plain, vault = f"{fresh_queue}-plain", f"{fresh_queue}-vault"
    await client.configure(vault, encryptionEnabled=True)
    Lane(db, plain, "p").bury("of plain")
    bury_sealed(db, Lane(db, f"{fresh_queue}-was", "p"), KEY, "of vault")
    await begin(client, plain, target_queue=vault)
    await begin(client, f"{fresh_queue}-was", target_queue=plain, target_partition="q")
    await run(client, term())
    for queue, partition, payload in ((vault, "p", "of plain"), (plain, "q", "of vault")):
        [stored] = payloads_of(Lane(db, queue, partition))
        assert '"encrypted":' in stored and payload not in stored
        assert await client.payloads(queue, partition=partition) == [payload]


async def test_a_letter_that_nobody_can_read_stays_until_a_key_is_there(
    start_client, db, fresh_queue, term
):
    keyless = await start_client(**NO_FLOOR, QUEEN_ENCRYPTION_KEY=OTHER)
    client = await start_client(**NO_FLOOR, QUEEN_ENCRYPTION_KEY=KEY)
    lane = Lane(db, fresh_queue)
    bury_sealed(db, lane, KEY, "secret")
    lane.bury("plain")
    job = await begin(keyless, fresh_queue)
    await run(keyless, term())
    row = await shown(keyless, job)
    assert (row.state, row.moved, row.skipped) == ("done", 1, 1)
    assert "cannot be decrypted" in row.problem
    assert lane.count("queen_dead_letter") == 1
    await begin(client, fresh_queue)
    await run(client, term())
    assert lane.count("queen_dead_letter") == 0


async def test_a_job_into_a_queue_that_encrypts_fails_without_a_key_and_can_be_resumed(
    start_client, db, fresh_queue, term
):
    client = await start_client(**NO_FLOOR)
    Lane(db, fresh_queue).bury(1)
    await client.configure(f"{fresh_queue}-vault", encryptionEnabled=True)
    job = await begin(client, fresh_queue, target_queue=f"{fresh_queue}-vault")
    await run(client, term())
    row = await shown(client, job)
    assert (row.state, row.problem, row.moved) == ("failed", NO_KEY, 0)
    await client.configure(f"{fresh_queue}-vault", encryptionEnabled=False)
    await redrive.resume(client.broker, DEFAULT_TENANT, job)
    await run(client, term())
    row = await shown(client, job)
    assert (row.state, row.problem, row.moved) == ("done", None, 1)


async def test_a_job_into_a_full_queue_fails_with_its_letters_where_they_are(
    start_client, db, fresh_queue, term
):
    client, full = await start_client(**NO_FLOOR), f"{fresh_queue}-full"
    lane = Lane(db, fresh_queue)
    lane.bury(1, 2, 3)
    await client.configure(full, enforce=True, maxSize=2)
    job = await begin(client, fresh_queue, target_queue=full)
    await run(client, term())
    row = await shown(client, job)
    assert (row.state, row.problem, row.moved) == ("failed", QUEUE_FULL, 0)
    assert lane.count("queen_dead_letter") == 3 and payloads_of(Lane(db, full)) == []
    await client.configure(full, maxSize=3)
    await redrive.resume(client.broker, DEFAULT_TENANT, job)
    await run(client, term())
    row = await shown(client, job)
    assert (row.state, row.problem, row.moved) == ("done", None, 3)
    assert payloads_of(Lane(db, full)) == ["1", "2", "3"]


async def test_a_job_whose_destination_is_deleted_under_it_waits_before_it_looks_again(
    start_client, db, fresh_queue, term, monkeypatch
):
    client, target = await start_client(**NO_FLOOR), f"{fresh_queue}-target"
    Lane(db, fresh_queue).bury(1)
    job = await begin(client, fresh_queue, target_queue=target)
    really_ensure = redrive.hot_calls.partition_ensure

    async def ensure_and_lose(*asked, **named):
        rows = await really_ensure(*asked, **named)
        db.execute("SELECT queen_queue_delete_v1(%s, %s)", [DEFAULT_TENANT, target])
        return rows

    monkeypatch.setattr(redrive.hot_calls, "partition_ensure", ensure_and_lose)
    await within(redrive.step(client.broker, term(), job), 20)
    [(due, wait_us)] = await redrive.calls.redrive_due(client.broker.store.fetch, limit=10)
    assert due == job and wait_us > 0
    assert (await shown(client, job)).state == "running"
    monkeypatch.undo()
    await run(client, term())
    assert (await shown(client, job)).moved == 1


async def test_a_job_keeps_to_the_quota_of_its_tenant(start_client, db, fresh_queue, term):
    client, tenant = await start_client(**NO_FLOOR), uuid.uuid4()
    lane = Lane(db, fresh_queue, tenant=tenant)
    lane.bury(1, 2, 3)
    db.execute("INSERT INTO queen_quota (tenant_id, max_retained_bytes) VALUES (%s, 0)", [tenant])
    job = await begin(client, fresh_queue, tenant=tenant)
    await run(client, term())
    row = await redrive.find(client.broker, tenant, job)
    assert (row.state, row.moved) == ("failed", 0) and "retains more bytes" in row.problem

    db.execute(
        "UPDATE queen_quota SET max_retained_bytes = NULL, push_rate = 1 WHERE tenant_id = %s",
        [tenant],
    )
    await client.broker.quotas.refresh()
    await client.broker.quotas.admit_push(tenant, 2, 1)  # the burst is used up
    await redrive.resume(client.broker, tenant, job)
    await within(redrive.step(client.broker, term(), job), 20)
    [(_, wait_us)] = await redrive.calls.redrive_due(client.broker.store.fetch, limit=10)
    assert wait_us > 0 and lane.count("queen_dead_letter") == 3

    db.execute("UPDATE queen_quota SET push_rate = 1000 WHERE tenant_id = %s", [tenant])
    await client.broker.quotas.refresh()
    await run(client, term())
    assert (await redrive.find(client.broker, tenant, job)).state == "done"
    assert lane.count("queen_dead_letter") == 0


async def test_what_a_job_could_not_move_uses_up_no_quota(
    start_client, db, fresh_queue, term, second_connection
):
    client, tenant = await start_client(**NO_FLOOR), uuid.uuid4()
    lane = Lane(db, fresh_queue, tenant=tenant)
    lane.bury("x" * 80)
    # Room for this letter, but not for what it would seem to be after some attempts.
    db.execute("INSERT INTO queen_quota (tenant_id, max_retained_bytes) VALUES (%s, 200)", [tenant])
    job = await begin(client, fresh_queue, tenant=tenant)
    with second_connection() as holder:
        holder.execute("SELECT FROM queen_partition WHERE id = %s FOR UPDATE", [lane.id])
        for _ in range(4):
            await within(redrive.step(client.broker, term(), job), 20)
        holder.rollback()
    await run(client, term())
    row = await redrive.find(client.broker, tenant, job)
    assert (row.state, row.moved, row.problem) == ("done", 1, None)


async def test_in_push_maintenance_a_job_waits(start_client, db, fresh_queue, term):
    client = await start_client(**NO_FLOOR)
    lane = Lane(db, fresh_queue)
    lane.bury(1)
    job = await begin(client, fresh_queue)
    assert await redrive.wanted(client.broker)
    await client.broker.switches.throw({PUSH_MAINTENANCE: True})
    try:
        assert not await redrive.wanted(client.broker)
        await run(client, term())
        assert (await shown(client, job)).state == "running"
        assert lane.count("queen_dead_letter") == 1
    finally:
        await client.broker.switches.throw({PUSH_MAINTENANCE: False})
    await run(client, term())
    assert (await shown(client, job)).state == "done"


async def test_a_leader_that_was_succeeded_stops(start_client, db, fresh_queue, term):
    client = await start_client(**NO_FLOOR)
    Lane(db, fresh_queue).bury(1)
    await begin(client, fresh_queue)
    late = term()
    term()
    with pytest.raises(Fenced):
        await run(client, late)


async def test_leaders_that_die_one_after_the_other_move_each_letter_once(
    start_client, db, fresh_queue, term
):
    client = await start_client(**NO_FLOOR)
    lane = Lane(db, fresh_queue)
    lane.bury(*range(600))
    job = await begin(client, fresh_queue, rate=400)
    deaths = 0
    while (await shown(client, job)).state == "running":
        leading = asyncio.create_task(redrive.cycle(client.broker, term()))
        await asyncio.wait([leading], timeout=0.02 + deaths * 0.03)
        if not leading.done():
            deaths += 1
            leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leading
    assert deaths > 2
    assert payloads_of(lane)[600:] == [str(number) for number in range(600)]
    assert lane.count("queen_dead_letter") == 0
    row = await shown(client, job)
    assert (row.state, row.moved, row.skipped, row.looked_at) == ("done", 600, 0, 600)
