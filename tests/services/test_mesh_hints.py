"""What brokers tell each other, and what a hint does to the one that hears it.

Method: two brokers in the test's loop, on one database, meshed over loopback. The floor and
every re-reading are set so slow that only a hint can have brought what a test waits for.
"""

import asyncio
import uuid

import pytest

from brokers.domain import DEFAULT_TENANT, PushItem
from brokers.services import notify as notify_service
from brokers.services import pausing
from brokers.services.mesh import Hearer
from mesh.hints import Freed, Look, Pushed, QueueChanged, Ready
from tests.mesh_parts import free_port
from tests.services.in_process import NO_FLOOR, Client, until, within


def meshed(port: int, *peers: int) -> dict[str, str]:
    return {
        **NO_FLOOR,
        "QUEEN_SERVER_ID": f"broker-{port}",
        "QUEEN_MESH_PORT": str(port),
        "QUEEN_MESH_PEERS": ",".join(f"127.0.0.1:{peer}" for peer in peers),
        "QUEEN_MESH_BIND_ADDR": "127.0.0.1",
        "QUEEN_SYNC_SECRET": "only for these tests, and long enough",
        "QUEEN_SYNC_HEARTBEAT_MS": "200",
    }


@pytest.fixture
async def pair(start_client, monkeypatch) -> tuple[Client, Client]:
    monkeypatch.setattr("brokers.flow.ready.LEASED_RECHECK_S", 60.0)
    monkeypatch.setattr("brokers.flow.switches.READ_EVERY_S", 3600.0)
    ports = free_port(), free_port()
    first = await start_client(**meshed(ports[0], ports[1]))
    second = await start_client(**meshed(ports[1], ports[0]))
    for client in (first, second):
        await until(lambda client=client: alive(client) == 1)
    return first, second


def alive(client: Client) -> int:
    mesh = client.broker.mesh
    assert mesh is not None
    return int(mesh.status()["servers_alive"])


async def test_a_push_wakes_a_pop_that_is_parked_at_another_broker(pair, fresh_queue):
    here, there = pair
    waiting = await there.park_here(fresh_queue)
    await here.push(fresh_queue, "news")
    assert await within(waiting) == ["news"]


async def test_a_resume_rings_a_pop_that_is_parked_at_another_broker(pair, fresh_queue):
    here, there = pair
    await here.push(fresh_queue, 1)
    await pausing.set_paused(here.broker, DEFAULT_TENANT, fresh_queue, paused=True)
    waiting = await there.park_here(fresh_queue)
    await pausing.set_paused(here.broker, DEFAULT_TENANT, fresh_queue, paused=False)
    assert await within(waiting) == [1]


async def test_a_push_wakes_a_pop_that_waits_for_the_partition_to_exist(pair, fresh_queue):
    here, there = pair
    waiting = await there.park_here(fresh_queue, partition="later")
    await here.push(fresh_queue, "elsewhere", partition="other")
    await here.push(fresh_queue, "born", partition="later")
    assert await within(waiting) == ["born"]


async def test_a_push_to_more_partitions_than_a_hint_lists_wakes_too(
    pair, fresh_queue, monkeypatch
):
    monkeypatch.setattr("mesh.hints.PARTITIONS_MAX", 4)
    here, there = pair
    waiting = await there.park_here(fresh_queue, batch=100, partitions=100)
    items = [PushItem(fresh_queue, str(number), b"1", None) for number in range(10)]
    await here.push_items(*items)
    assert await within(waiting)


async def test_a_nack_wakes_a_pop_that_is_parked_at_another_broker(pair, fresh_queue):
    here, there = pair
    await here.push(fresh_queue, 1)
    [message] = await here.pop(fresh_queue)
    waiting = await there.park_here(fresh_queue)
    [outcome] = await here.ack(message, status="retry")
    assert outcome.success
    assert await within(waiting) == [1]


async def test_a_batch_completed_elsewhere_frees_what_it_left(pair, fresh_queue):
    here, there = pair
    await here.push(fresh_queue, 1, 2)
    [message] = await here.pop(fresh_queue, batch=1)
    waiting = await there.park_here(fresh_queue)
    [outcome] = await here.ack(message)
    assert outcome.success
    assert await within(waiting) == [2]


async def test_a_partition_that_was_leased_elsewhere_wakes_for_the_next_push(pair, fresh_queue):
    """Its entry slept for a lease that ended and left nothing."""
    here, there = pair
    await here.push(fresh_queue, 1)
    [message] = await here.pop(fresh_queue)
    waiting = await there.park_here(fresh_queue)
    await here.ack(message)
    await here.push(fresh_queue, 2)
    assert await within(waiting) == [2]


async def test_the_handed_back_claim_of_a_broker_is_offered_to_the_others(pair, fresh_queue):
    here, there = pair
    await here.push(fresh_queue, 1)
    [message] = await here.pop(fresh_queue)
    waiting = await there.park_here(fresh_queue)
    [ring] = [one for one in here.broker.announce.rings.all() if one.group != ""]
    partition_id = next(iter(ring._entries))
    await here.broker.claims.hand_back(
        message["leaseId"], message["consumerGroup"], [partition_id], {ring.queue_id}
    )
    assert await within(waiting) == [1]


async def test_a_configuration_is_forgotten_by_a_broker_that_had_it_cached(pair, fresh_queue):
    here, there = pair
    key = (DEFAULT_TENANT, fresh_queue)
    for client in pair:
        await client.push(fresh_queue, 1)
        await client.payloads(fresh_queue, auto_ack=True)
    assert there.broker.directory.queues.get(key) is not None
    await here.configure(fresh_queue, leaseTime=7)
    await until(lambda: there.broker.directory.queues.get(key) is None)


async def test_a_deleted_queue_is_forgotten_and_its_waiters_find_the_new_one(pair, fresh_queue):
    here, there = pair
    await here.push(fresh_queue, "old")
    assert await there.payloads(fresh_queue, auto_ack=True) == ["old"]
    waiting = await there.park_here(fresh_queue)
    assert await here.delete(fresh_queue)
    await until(lambda: there.broker.gates.parked().get(fresh_queue, 0) == 1)
    for _ in range(50):
        await here.push(fresh_queue, "new")
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        if done:
            break
    assert await within(waiting) == ["new"]


@pytest.mark.parametrize("name", ["maintenance", "popMaintenance", "kv"])
async def test_a_switch_reaches_the_other_broker_at_once(pair, name: str):
    here, there = pair
    on = there.broker.switches._on
    assert await here.broker.switches.throw({name: name != "kv"})
    await until(lambda: on(name) is (name != "kv"))
    assert await here.broker.switches.throw({name: name == "kv"})
    await until(lambda: on(name) is (name == "kv"))


async def test_a_pop_that_is_parked_elsewhere_is_answered_when_pops_are_paused(pair, fresh_queue):
    here, there = pair
    waiting = await there.park_here(fresh_queue)
    await here.broker.switches.throw({"popMaintenance": True})
    try:
        assert await within(waiting) == []
    finally:
        await here.broker.switches.throw({"popMaintenance": False})


async def test_a_notification_from_outside_is_passed_on(pair, fresh_queue, db, monkeypatch):
    """A push that nobody announced: only the notification can wake."""
    here, there = pair
    waiting = await there.park_here(fresh_queue)
    monkeypatch.setattr(here.broker.announce, "outlet", None)
    await here.push(fresh_queue, "quiet")
    monkeypatch.undo()
    await notify_service.notify(here.broker, DEFAULT_TENANT, fresh_queue)
    assert await within(waiting) == ["quiet"]


async def test_hints_about_what_nobody_asked_for_leave_no_trace(pair):
    _, there = pair
    broker, hearer = there.broker, Hearer(there.broker)
    tenant = str(uuid.uuid4())
    before = len(broker.announce.rings.all())
    for number in range(1_000_000, 1_000_500):
        hearer.receive(Pushed(tenant, "nobody's", number, {number: "p"}))
        hearer.receive(Pushed(tenant, "nobody's", number, {}, True))
        hearer.receive(Ready(number, "group", {1, 2}))
        hearer.receive(Ready(number, None, set(), True))
        hearer.receive(Freed(number, "group", {1}))
        hearer.receive(QueueChanged(tenant, f"nobody's {number}", True, number))
        hearer.receive(QueueChanged("no tenant at all", "q"))
        hearer.receive(Look("no tenant at all", "q"))
    assert len(broker.announce.rings.all()) == before
    assert not broker.directory.queues.get((uuid.UUID(tenant), "nobody's"))
    assert len(hearer._looks) == 0
    assert not [one for one in broker.tally.take() if one >= 1_000_000]


async def test_looks_that_wait_are_bounded(pair):
    _, there = pair
    hearer = Hearer(there.broker)
    for number in range(5000):
        hearer.receive(Look(str(DEFAULT_TENANT), f"q{number}"))
    assert len(hearer._looks) == 1024


async def test_a_hint_that_is_wrong_costs_an_empty_claim_and_no_message(pair, fresh_queue):
    here, there = pair
    await here.push(fresh_queue, 1)
    assert await there.payloads(fresh_queue, auto_ack=True) == [1]
    waiting = await there.park_here(fresh_queue)
    key = (DEFAULT_TENANT, fresh_queue)
    queue_id = there.broker.directory.queues.get(key).id
    claims = there.broker.counters.claim_calls
    hearer = Hearer(there.broker)
    hearer.receive(Pushed(str(DEFAULT_TENANT), fresh_queue, queue_id, {2**60: "never was"}))
    await until(lambda: there.broker.counters.claim_calls > claims)
    assert not waiting.done()
    await here.push(fresh_queue, 2)
    assert await within(waiting) == [2]


async def test_without_a_mesh_no_hint_is_even_made(here, fresh_queue, monkeypatch):
    monkeypatch.setattr("brokers.flow.announce.PushedHint", None)
    assert here.broker.mesh is None
    assert await here.push(fresh_queue, 1) == [("queued", "")]


async def test_what_fails_in_the_mesh_fails_no_push(pair, fresh_queue, monkeypatch):
    here, _ = pair

    def broken(hint):
        raise RuntimeError("the mesh is broken")

    monkeypatch.setattr(here.broker.announce, "outlet", broken)
    assert await here.push(fresh_queue, 1) == [("queued", "")]
    assert await here.payloads(fresh_queue) == [1]
