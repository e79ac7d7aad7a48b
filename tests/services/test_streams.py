"""Streams inside the broker: grants, stale beliefs, and who hears of a cycle.

Method: brokers in this process whose floor is so slow that only a bell can have woken a pop.
Quota rows are written by SQL, as an operator does.
"""

import json
import uuid

from brokers.api import hot_streams
from brokers.api.auth import Principal
from brokers.api.call import Call
from brokers.api.routes_streams import ROUTES
from brokers.domain import DEFAULT_TENANT, PushItem
from brokers.errors import BrokerError, error_body
from brokers.services import streams as service
from brokers.services.streams import CycleRequest, RegisterRequest
from brokers.store.stream_calls import GIVE_BACK, PART, CycleAck, StateWrite
from tests.services.in_process import NO_FLOOR, within

TENANCY = {**NO_FLOOR, "QUEEN_TENANCY_HEADER": "true", "QUEEN_KV_TRUSTED_PROXY": "true"}


async def register(client, name) -> str:
    request = RegisterRequest(
        tenant=DEFAULT_TENANT, name=name, source_queue=name, sink_queue=None, config_hash="h"
    )
    answer = await service.register(client.broker, request)
    assert answer.query_id is not None
    return answer.query_id


async def cycle(client, query_id, message, *, action=None, count=None, sinks=()):
    request = CycleRequest(
        tenant=DEFAULT_TENANT,
        query_id=query_id,
        partition_id=message["partitionId"],
        group=message["consumerGroup"],
        state={"k": StateWrite(b"1", None)},
        state_ops=1,
        items=[PushItem(queue, "Default", b'"sunk"', None) for queue in sinks],
        message_ids=[None for _ in sinks],
        ack=None if action is None else CycleAck(action, message["leaseId"], None, count),
    )
    return await within(service.cycle(client.broker, request))


async def answer_to_registration(client, tenant, **more) -> tuple[int, dict]:
    body = {"name": "q", "source_queue": "s", "config_hash": "h"} | more
    call = Call(
        broker=client.broker,
        route=ROUTES[0],
        params={},
        query_string=b"",
        tenant=tenant,
        principal=Principal(),
        client=None,
        body=json.dumps(body).encode(),
    )
    try:
        reply = await hot_streams.stream_register(call)
    except BrokerError as error:
        return error_body(error)
    return reply.status, json.loads(reply.body)


def grant(db, tenant, *, enabled=True, most=None):
    db.execute(
        "INSERT INTO queen_quota AS quota (tenant_id, streams_enabled, max_queries)"
        " VALUES (%s, %s, %s) ON CONFLICT (tenant_id) DO UPDATE"
        " SET streams_enabled = excluded.streams_enabled, max_queries = excluded.max_queries",
        [tenant, enabled, most],
    )


async def test_a_tenant_without_a_grant_may_register_nothing_new(start_client, db):
    client, tenant = await start_client(**TENANCY), uuid.uuid4()
    status, answer = await answer_to_registration(client, tenant)
    assert (status, answer["success"], answer["denied"]) == (403, False, True)
    assert "grant" in answer["error"]
    grant(db, tenant)
    assert (await answer_to_registration(client, tenant))[1]["fresh"] is True
    grant(db, tenant, enabled=False)
    assert (await answer_to_registration(client, tenant, name="new"))[0] == 403
    assert (await answer_to_registration(client, tenant))[0] == 200, "a known name is not asked"

    grant(db, tenant, most=2)
    assert (await answer_to_registration(client, tenant, name="second"))[1]["fresh"] is True
    status, answer = await answer_to_registration(client, tenant, name="third")
    assert (status, answer["denied"]) == (403, True) and "as many" in answer["error"]


async def test_the_default_tenant_needs_no_grant_for_streams(start_client, db):
    client = await start_client(**TENANCY)
    grant(db, DEFAULT_TENANT, enabled=False)
    try:
        name = uuid.uuid4().hex
        assert (await answer_to_registration(client, DEFAULT_TENANT, name=name))[0] == 200
    finally:
        db.execute("DELETE FROM queen_quota WHERE tenant_id = %s", [DEFAULT_TENANT])


async def test_a_tenant_of_a_key_needs_a_grant_only_where_it_has_a_row(start_client, db):
    client, tenant = await start_client(**NO_FLOOR, QUEEN_API_KEYS="true"), uuid.uuid4()
    assert (await answer_to_registration(client, tenant))[0] == 200
    grant(db, tenant, enabled=False)
    assert (await answer_to_registration(client, tenant, name="new"))[0] == 403


async def test_a_sink_wakes_a_pop_by_its_bell(here, fresh_queue):
    sink = f"{fresh_queue}-sink"
    await here.push(fresh_queue, 1)
    [message] = await here.pop(fresh_queue)
    await here.push(sink, "first")
    assert await here.payloads(sink, auto_ack=True) == ["first"]
    waiter = await here.park_here(sink)
    query_id = await register(here, fresh_queue)
    assert (await cycle(here, query_id, message, sinks=[sink])).error is None
    assert await within(waiter) == ["sunk"]


async def test_a_batch_that_is_given_back_wakes_a_pop_by_its_bell(here, fresh_queue):
    await here.push(fresh_queue, 1)
    [message] = await here.pop(fresh_queue)
    waiter = await here.park_here(fresh_queue)
    query_id = await register(here, fresh_queue)
    result = await cycle(here, query_id, message, action=GIVE_BACK)
    assert (result.error, result.completed, result.lease_released) == (None, 0, True)
    assert await within(waiter) == [1]


async def test_an_old_belief_about_a_sink_costs_a_round_and_no_message(here, there, fresh_queue):
    sink = f"{fresh_queue}-sink"
    await here.push(fresh_queue, 1)
    await here.push(sink, "first")
    [message] = await here.pop(fresh_queue)
    query_id = await register(here, fresh_queue)
    await there.configure(sink, leaseTime=7)
    assert (await cycle(here, query_id, message, sinks=[sink])).error is None
    await there.delete(sink)
    assert (await cycle(here, query_id, message, sinks=[sink])).error is None
    assert await there.payloads(sink, auto_ack=True) == ["sunk"]


async def test_acks_behind_a_part_are_not_taken_for_the_whole_batch(here, there, fresh_queue):
    """Neither by the broker that handed it out, whoever committed the part."""
    await here.push(fresh_queue, 0, 1, 2)
    messages = await here.pop(fresh_queue)
    query_id = await register(here, fresh_queue)
    assert (await cycle(there, query_id, messages[0], action=PART, count=1)).completed == 1
    outcomes = await here.ack(*messages)
    assert [one.noop for one in outcomes] == [True, False, False]
    assert outcomes[-1].lease_released


async def test_what_a_cycle_did_is_counted_at_its_queues(here, fresh_queue):
    sink = f"{fresh_queue}-sink"
    await here.push(fresh_queue, 0, 1, 2)
    messages = await here.pop(fresh_queue)
    query_id = await register(here, fresh_queue)
    here.broker.tally.take()
    await cycle(here, query_id, messages[0], action=PART, count=2, sinks=[sink])
    counted = here.broker.tally.take()
    source = here.broker.directory.queues.get((DEFAULT_TENANT, fresh_queue))
    assert counted[source.id].ack_success == 2
    [sunk] = [one for queue_id, one in counted.items() if queue_id != source.id]
    assert sunk.push_messages == 1
