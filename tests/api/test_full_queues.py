"""A queue that enforces its maxSize, whoever wants to put something into it.

Method: HTTP against a real broker. What was accepted before, a timer, is stored all the same.
"""

import base64

import pytest

from tests.wire_client import ack_of, error_of, expect

FULL = "the queue is full (maxSize)"


@pytest.fixture
def full(wire, fresh_queue):
    """A queue that has no room."""
    name = f"{fresh_queue}-full"
    wire.configure(name, enforce=True, maxSize=1)
    wire.push(name, "there")
    return name


def test_a_transaction_says_so_and_its_ack_is_undone(wire, fresh_queue, full):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    push = {"type": "push", "queue": full, "payload": 2}
    answer = wire.transaction(push, {"type": "ack", **ack_of(message)})
    assert (answer["success"], answer["reason"], answer["error"]) == (False, "db_error", FULL)
    assert wire.ack(message)["success"] is True
    assert wire.payloads(full) == ["there"]


def test_a_cycle_of_a_stream_fails_as_a_whole_and_succeeds_when_there_is_room(
    wire, fresh_queue, full
):
    other = f"{fresh_queue}-other"
    body = {"name": fresh_queue, "source_queue": fresh_queue, "config_hash": "h"}
    query_id = expect(wire.post("/streams/v1/queries", body), 200).json()["query_id"]
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue, consumerGroup="s", subscriptionMode="all")
    at = {"query_id": query_id, "partition_id": message["partitionId"]}
    cycle = at | {
        "consumer_group": "s",
        "state_ops": [{"type": "upsert", "key": "k", "value": 1}],
        "push_items": [{"queue": name, "payload": "sunk"} for name in (other, full)],
        "ack": ack_of(message) | {"count": 1},
    }
    answer = expect(wire.post("/streams/v1/cycle", cycle), 200).json()
    assert (answer["success"], answer["error"]) == (False, FULL)
    assert (answer["state_ops_applied"], answer["push_results"]) == (0, [])
    assert answer["ack_result"]["success"] is False
    assert expect(wire.post("/streams/v1/state/get", at), 200).json()["rows"] == []
    assert wire.payloads(other) == []
    wire.configure(full, maxSize=2)
    assert expect(wire.post("/streams/v1/cycle", cycle), 200).json()["success"] is True
    assert wire.payloads(other) == ["sunk"]
    assert wire.payloads(full) == ["there", "sunk"]


def test_a_replay_of_a_dead_letter_fails_and_leaves_it(wire, fresh_queue, full):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    wire.ack(message, "dlq")
    [letter] = wire.dead_letters(fresh_queue)
    answer = wire.replay(letter["id"], {"queue": full})
    assert error_of(answer, 500) == FULL
    assert [one["id"] for one in wire.dead_letters(fresh_queue)] == [letter["id"]]
    wire.configure(full, maxSize=2)
    expect(wire.replay(letter["id"], {"queue": full}), 200)
    assert wire.payloads(full) == ["there", 1]


def test_a_timer_fires_into_it_for_it_was_accepted_before(wire, full):
    timer = {
        "op": "schedule",
        "queue": full,
        "timerKey": "k",
        "delayMs": 0,
        "txn": "t",
        "payload": base64.b64encode(b'"fired"').decode(),
    }
    expect(wire.post("/api/v1/timers", {"operations": [timer]}), 200)
    delivered = []
    while len(delivered) < 2:
        popped = wire.payloads(full, autoAck=True, wait=True, timeout=20_000)
        assert popped, delivered
        delivered += popped
    assert delivered == ["there", "fired"]
