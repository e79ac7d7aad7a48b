"""A resume rings whoever waits, and a purge knows when to end.

Method: brokers in this process whose floor is a minute away: a pop that answers was rung.
"""

import asyncio

import pytest

from brokers.admin import queue_deeds
from brokers.domain import DEFAULT_TENANT
from brokers.models import Queue
from brokers.services import pausing
from brokers.services import purge as purge_service
from brokers.services.purge import PurgeRequest
from tests.services.in_process import Client, held, until, until_waiting, waits, within

LANE = "SELECT 1 FROM queen_partition WHERE queue_id = %s AND name = %s FOR UPDATE"


async def pause(client: Client, queue: str, paused: bool = True) -> None:
    assert await pausing.set_paused(client.broker, DEFAULT_TENANT, queue, paused=paused)


async def purge(client: Client, queue: str, **more):
    request = PurgeRequest(tenant=DEFAULT_TENANT, queue=queue, **more)
    return await purge_service.purge(client.broker, request)


@pytest.mark.parametrize("partition", [None, "p"])
async def test_a_resume_rings_who_was_parked_before_the_pause_and_after(
    here, fresh_queue, partition
):
    before = await here.park_here(fresh_queue, partition=partition)
    await pause(here, fresh_queue)
    await here.push(fresh_queue, 1, partition="p")
    after = await here.park_here(fresh_queue, group="g", partition=partition)
    await here.push(fresh_queue, 2, partition="p")
    assert not (before.done() or after.done())
    await pause(here, fresh_queue, False)
    assert await within(before) == [1, 2]
    assert await within(after) == [2]


async def test_a_pop_that_met_a_paused_queue_asks_for_nothing_more(here, fresh_queue):
    for number in range(40):
        await here.push(fresh_queue, number, partition=f"p{number}")
    await pause(here, fresh_queue)
    claims = here.broker.counters.claim_calls
    assert await here.pop(fresh_queue, partitions=0, batch=100) == []
    assert here.broker.counters.claim_calls <= claims + 8
    await here.pop(fresh_queue, partitions=0, batch=100)
    assert here.broker.counters.claim_calls <= claims + 8, "its ring knows of nothing"


async def test_a_resume_elsewhere_is_found_without_a_hint_by_a_new_pop(here, there, fresh_queue):
    await here.push(fresh_queue, 1)
    await pause(here, fresh_queue)
    assert await there.payloads(fresh_queue) == []
    await pause(here, fresh_queue, False)
    assert await there.payloads(fresh_queue) == [1]


async def test_a_purge_ends_after_its_time_and_goes_on_where_it_stood(
    here, fresh_queue, monkeypatch
):
    monkeypatch.setattr(purge_service, "SEGMENTS_MAX", 1)
    for number in range(3):
        await here.push(fresh_queue, number)
    monkeypatch.setattr(purge_service, "PURGE_S", -1.0)
    first = await purge(here, fresh_queue, dead_letters=True)
    assert (first.messages, first.more, first.complete) == (1, True, False)
    monkeypatch.setattr(purge_service, "PURGE_S", 60.0)
    rest = await purge(here, fresh_queue)
    assert (rest.messages, rest.complete) == (2, True)


async def test_a_partition_that_somebody_keeps_holds_up_no_other(
    here, fresh_queue, monkeypatch, second_connection
):
    monkeypatch.setattr(purge_service, "BUSY_ROUNDS", 1)
    await here.push(fresh_queue, 1, partition="kept")
    await here.push(fresh_queue, 2, partition="free")
    queue_id = here.broker.directory.partitions.get((DEFAULT_TENANT, fresh_queue, "kept")).queue_id
    with held(second_connection(), LANE, queue_id, "kept"):
        done = await purge(here, fresh_queue)
    assert (done.messages, done.busy, done.complete) == (1, 1, False)
    assert await here.payloads(fresh_queue) == [1]


async def test_a_queue_whose_messages_take_too_long_to_count_is_deleted_all_the_same(
    start_client, fresh_queue, db, second_connection
):
    client = await start_client(QUEEN_READ_TIMEOUT_MS="500")
    await client.push(fresh_queue, 1)
    delete = queue_deeds.DELETE.work(Queue(tenant_id=DEFAULT_TENANT, name=fresh_queue), {})
    with held(second_connection(), "LOCK TABLE queen_cursor IN ACCESS EXCLUSIVE MODE"):
        deleting = asyncio.ensure_future(delete(client.broker))
        await until_waiting(db, "queen_queue_inspect")
        await until(lambda: deleting.done() or not waits(db, "queen_queue_inspect"))
    done = await within(deleting)
    assert done.hits is None
    assert done.text == "The queue is deleted, with an unknown number of messages."
    assert not await client.delete(fresh_queue)
