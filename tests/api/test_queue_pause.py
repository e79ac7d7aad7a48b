"""Pause and resume: nothing is popped, everything else goes on, and every broker keeps to it.

Method: HTTP against real brokers. A second broker without a mesh hears of nothing: what it
does right it learned from the database.
"""

import threading
import uuid

import pytest

from tests.harness import eventually
from tests.wire_client import WireClient, ack_of, error_of, expect, segment


def pause(wire, queue, verb="pause"):
    return expect(wire.post(f"{wire.queue_path(queue)}/{verb}"), 200).json()


@pytest.fixture
def other(start_broker):
    """A client of a broker that shares the database with `wire`'s, and nothing else."""
    with WireClient.at(start_broker(QUEEN_SERVER_ID="other").url) as client:
        yield client


def test_a_paused_queue_gives_nothing_and_takes_everything(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    assert pause(wire, fresh_queue) == {"queue": fresh_queue, "paused": True, "changed": True}
    assert wire.payloads(fresh_queue) == []
    assert wire.push(fresh_queue, 2)[0]["status"] == "queued"
    assert wire.payloads(fresh_queue, "Default") == []
    assert pause(wire, fresh_queue) == {"queue": fresh_queue, "paused": True, "changed": False}
    assert pause(wire, fresh_queue, "resume")["changed"] is True
    assert wire.payloads(fresh_queue) == [1, 2]


def test_what_is_out_may_be_acked_and_extended_under_a_pause(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2)
    first, second = wire.messages(fresh_queue)
    pause(wire, fresh_queue)
    assert wire.extend(first["leaseId"], {"seconds": 100})["success"] is True
    assert [one["success"] for one in wire.ack_batch(ack_of(first), ack_of(second, "failed"))] == [
        True,
        True,
    ]
    assert wire.payloads(fresh_queue) == []
    pause(wire, fresh_queue, "resume")
    assert wire.payloads(fresh_queue) == [2]


def test_the_state_is_shown_and_survives_a_configuration(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    assert wire.queue(fresh_queue)["paused"] is False
    pause(wire, fresh_queue)
    wire.configure(fresh_queue, mode="replace", paused=False)
    assert wire.queue(fresh_queue)["paused"] is True
    listed = expect(wire.get("/api/v1/resources/queues"), 200).json()["queues"]
    assert [one["paused"] for one in listed if one["name"] == fresh_queue] == [True]


def until_parked(wire, queue):
    sits = f'queen_parked_long_polls{{queue="{queue}"}} 1.0'
    eventually(lambda: sits in wire.get("/metrics/prometheus").text)


def test_a_parked_pop_stays_parked_and_is_rung_at_the_resume(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    pause(wire, fresh_queue)
    got = []
    waiting = threading.Thread(
        target=lambda: got.append(wire.payloads(fresh_queue, wait=True, timeout=30_000))
    )
    waiting.start()
    until_parked(wire, fresh_queue)
    wire.push(fresh_queue, 2)
    assert not got, "a push must not let it through"
    pause(wire, fresh_queue, "resume")
    waiting.join(20)
    assert got == [[1, 2]]


def test_another_broker_with_an_old_cache_keeps_to_a_pause_at_once(wire, other, fresh_queue):
    wire.push(fresh_queue, 1)
    other.push(fresh_queue, 2)
    [first, second] = other.messages(fresh_queue)
    other.ack_batch(ack_of(first), ack_of(second))
    wire.push(fresh_queue, 3)
    pause(wire, fresh_queue)
    # It holds the queue in its cache, and a ring that its own push has marked.
    other.push(fresh_queue, 4)
    assert other.payloads(fresh_queue) == []
    pause(wire, fresh_queue, "resume")
    assert other.payloads(fresh_queue) == [3, 4]


def test_a_pop_parked_at_another_broker_goes_on_after_the_resume(wire, other, fresh_queue):
    wire.push(fresh_queue, 1)
    pause(wire, fresh_queue)
    got = []
    waiting = threading.Thread(
        target=lambda: got.append(other.payloads(fresh_queue, wait=True, timeout=30_000))
    )
    waiting.start()
    until_parked(other, fresh_queue)
    pause(wire, fresh_queue, "resume")
    waiting.join(20)
    assert got == [[1]]


def test_a_discovery_passes_a_paused_queue_by(wire):
    namespace = f"n{uuid.uuid4().hex[:8]}"
    wire.push(f"{namespace}.a", "a")
    wire.push(f"{namespace}.b", "b")
    pause(wire, f"{namespace}.a")
    assert wire.payloads(None, namespace=namespace, partitions=0) == ["b"]


def test_a_discovery_of_nothing_but_a_paused_queue_gives_nothing(wire):
    namespace = f"n{uuid.uuid4().hex[:8]}"
    wire.push(f"{namespace}.a", "a")
    pause(wire, f"{namespace}.a")
    assert wire.payloads(None, namespace=namespace, partitions=0, autoAck=True) == []
    pause(wire, f"{namespace}.a", "resume")
    assert wire.payloads(None, namespace=namespace, partitions=0) == ["a"]


@pytest.mark.parametrize("partition", [None, "Default"])
def test_an_auto_ack_takes_nothing_out_of_a_paused_queue(wire, fresh_queue, partition):
    wire.push(fresh_queue, 1)
    pause(wire, fresh_queue)
    assert wire.payloads(fresh_queue, partition, autoAck=True) == []
    assert wire.depth(fresh_queue)["pending"] == 1
    pause(wire, fresh_queue, "resume")
    assert wire.payloads(fresh_queue, partition, autoAck=True) == [1]


def test_a_conflating_group_gets_not_even_the_newest_of_a_paused_queue(wire, fresh_queue):
    newest = {"consumerGroup": "latest", "conflation": True, "subscriptionMode": "all"}
    wire.push_each(fresh_queue, 1, 2)
    pause(wire, fresh_queue)
    assert wire.payloads(fresh_queue, **newest) == []
    wire.push(fresh_queue, 3)
    assert wire.payloads(fresh_queue, **newest) == []
    pause(wire, fresh_queue, "resume")
    assert wire.payloads(fresh_queue, **newest) == [3]


def test_a_stream_gets_nothing_of_a_paused_source_and_finishes_what_it_has(wire, fresh_queue):
    body = {"name": fresh_queue, "source_queue": fresh_queue, "config_hash": "h"}
    query_id = expect(wire.post("/streams/v1/queries", body), 200).json()["query_id"]
    reads = {"consumerGroup": f"streams.{query_id}", "subscriptionMode": "all", "batch": 1}
    wire.push(fresh_queue, 1, 2)
    [message] = wire.messages(fresh_queue, **reads)
    pause(wire, fresh_queue)
    cycle = {
        "query_id": query_id,
        "partition_id": message["partitionId"],
        "consumer_group": reads["consumerGroup"],
        "ack": ack_of(message) | {"count": 1},
    }
    assert expect(wire.post("/streams/v1/cycle", cycle), 200).json()["success"] is True
    assert wire.payloads(fresh_queue, **reads) == []
    pause(wire, fresh_queue, "resume")
    assert wire.payloads(fresh_queue, **reads) == [2]


def test_many_partitions_of_a_paused_queue_cost_no_pop_each(wire, fresh_queue):
    for number in range(40):
        wire.push(fresh_queue, number, partition=f"p{number}")
    pause(wire, fresh_queue)
    assert wire.payloads(fresh_queue, partitions=0) == []
    pause(wire, fresh_queue, "resume")
    assert len(wire.payloads(fresh_queue, partitions=0)) == 40


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_an_unknown_queue_is_404_a_wrong_method_405_and_a_bad_body_400(wire, fresh_queue, verb):
    path = f"{wire.queue_path(fresh_queue)}/{verb}"
    assert error_of(wire.post(path), 404) == "Queue not found"
    assert expect(wire.get(path), 405).headers["allow"] == "POST"
    error_of(wire.post(path, "{"), 400)
    error_of(wire.post(path, "[]"), 400)


def test_a_queue_of_any_name_can_be_paused(wire):
    for name in (f"a/b%2F ?{uuid.uuid4().hex}", ""):
        wire.push(name, 1)
        assert pause(wire, name)["queue"] == name
        pause(wire, name, "resume")
    assert segment("a/b") == "a%2Fb"


def test_another_tenants_queue_is_unknown(start_broker, fresh_queue):
    broker = start_broker(QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true")
    mine, theirs = ({"x-queen-tenant": str(uuid.uuid4())} for _ in range(2))
    with WireClient.at(broker.url, mine) as owner, WireClient.at(broker.url, theirs) as stranger:
        owner.push(fresh_queue, 1)
        for verb in ("pause", "resume", "purge", "partitions/Default/purge"):
            path = f"{owner.queue_path(fresh_queue)}/{verb}"
            assert error_of(stranger.post(path), 404) == "Queue not found"
        assert owner.payloads(fresh_queue) == [1]
