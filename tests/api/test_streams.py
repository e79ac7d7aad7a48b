"""Streams: queries, state and cycles over HTTP.

Method: HTTP against the shared broker; what another broker or worker would do is done by another
request.
"""

import json
import threading
import uuid

import pytest

from tests.wire_client import ALREADY_COMMITTED, INVALID_LEASE, UNKNOWN_UUID, error_of, expect

QUERIES, STATE, CYCLE = "/streams/v1/queries", "/streams/v1/state/get", "/streams/v1/cycle"
ROUTES = [QUERIES, STATE, CYCLE]


class Stream:
    """A registered query on a source queue, and what its worker would send."""

    def __init__(self, wire, source, **more):
        self.wire, self.source = wire, source
        self.name = f"query-{uuid.uuid4().hex[:12]}"
        self.registered = self.register(**more).json()
        self.id = self.registered["query_id"]
        self.group = f"streams.{self.name}"

    def register(self, config_hash="h1", **more):
        body = {"name": self.name, "source_queue": self.source, "config_hash": config_hash}
        return self.wire.post(QUERIES, body | more)

    def pop(self, **more):
        """The messages of one partition under one lease."""
        more = {"consumerGroup": self.group, "subscriptionMode": "all"} | more
        return self.wire.messages(self.source, **more)

    def cycle(self, messages=(), *, count=None, **more):
        return expect(self.send(messages, count=count, **more), 200).json()

    def send(self, messages=(), *, count=None, **more):
        body = {"query_id": self.id, "consumer_group": self.group}
        if messages:
            count = len(messages) if count is None else count
            last = messages[max(count, 1) - 1]
            body["partition_id"] = last["partitionId"]
            body["ack"] = {
                "transactionId": last["transactionId"],
                "leaseId": last["leaseId"],
                "status": "completed",
                "count": count,
            }
        return self.wire.post(CYCLE, body | more)

    def rows(self, partition_id, **filters):
        body = {"query_id": self.id, "partition_id": partition_id} | filters
        answer = expect(self.wire.post(STATE, body), 200).json()
        assert answer["success"] is True
        return answer["rows"]

    def state(self, partition_id, **filters):
        return {row["key"]: row["value"] for row in self.rows(partition_id, **filters)}


@pytest.fixture
def stream(wire, fresh_queue):
    return Stream(wire, fresh_queue)


@pytest.fixture
def popped(wire, stream, fresh_queue):
    wire.push(fresh_queue, *range(5), partition="p")
    messages = stream.pop()
    assert [one["data"] for one in messages] == [0, 1, 2, 3, 4]
    return messages


def upsert(key, value):
    return {"type": "upsert", "key": key, "value": value}


# Registration


def test_a_new_name_is_fresh_and_the_same_again_is_known(stream):
    first = stream.registered
    assert uuid.UUID(first["query_id"])
    assert first == {
        "success": True,
        "query_id": first["query_id"],
        "name": stream.name,
        "config_hash": "h1",
        "fresh": True,
        "reset": False,
    }
    again = expect(stream.register(source_queue="other", sink_queue="s"), 200).json()
    assert again == first | {"fresh": False}


def test_another_hash_is_a_409_that_names_the_query_and_changes_nothing(stream, popped):
    partition = popped[0]["partitionId"]
    assert stream.cycle(popped, state_ops=[upsert("k", 1)])["success"]
    answer = stream.register("h2")
    assert "config_hash mismatch" in error_of(answer, 409)
    assert stream.name in answer.json()["error"] and answer.json()["success"] is False
    assert stream.register().json()["fresh"] is False, "the old hash is still the one"
    assert stream.state(partition) == {"k": 1}


def test_a_reset_empties_the_state_of_that_query_alone(wire, stream, popped, fresh_queue):
    partition = popped[0]["partitionId"]
    other = Stream(wire, fresh_queue)
    assert stream.cycle(popped, state_ops=[upsert("k", 1)])["success"]
    assert other.cycle(partition_id=partition, state_ops=[upsert("k", 2)])["success"]
    answer = expect(stream.register("h2", reset=True), 200).json()
    assert (answer["query_id"], answer["fresh"], answer["reset"]) == (stream.id, False, True)
    assert stream.state(partition) == {}
    assert other.state(partition) == {"k": 2}
    assert stream.cycle(partition_id=partition, state_ops=[upsert("k", 3)])["success"]
    assert stream.state(partition) == {"k": 3}


def test_a_reset_under_the_same_hash_keeps_the_state(stream, popped):
    stream.cycle(popped, state_ops=[upsert("k", 1)])
    answer = stream.register(reset=True).json()
    assert (answer["fresh"], answer["reset"]) == (False, False)
    assert stream.state(popped[0]["partitionId"]) == {"k": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"name": None},
        {"name": ""},
        {"name": 1},
        {"name": "a\x00"},
        {"name": "n" * 256},
        {"source_queue": None},
        {"source_queue": "\udc00"},
        {"sink_queue": "a\x00"},
        {"config_hash": None},
        {"config_hash": ""},
        {"reset": "yes"},
    ],
)
def test_a_registration_that_lacks_something_is_a_400(wire, change):
    body = {"name": "never", "source_queue": "q", "config_hash": "h"}
    error_of(wire.post(QUERIES, body | change), 400)


@pytest.mark.parametrize("path", ROUTES)
def test_what_is_no_body_is_a_400_and_another_method_a_405(wire, path):
    for body in ("", "nope", "[]", "null", '{"query_id":', b"\xff"):
        error_of(wire.post(path, body), 400)
    answer = wire.get(path)
    error_of(answer, 405)
    assert answer.headers["allow"] == "POST"


# State


def test_state_is_what_the_operations_come_to_in_their_order(stream, popped):
    ops = [
        upsert("b", 1),
        upsert("a", "x"),
        {"type": "delete", "key": "b"},
        upsert("c", None),
        upsert("a", {"n": 2}),
        {"type": "delete", "key": "never there"},
    ]
    answer = stream.cycle(popped, state_ops=ops)
    assert answer["state_ops_applied"] == len(ops)
    rows = stream.rows(popped[0]["partitionId"])
    assert [(row["key"], row["value"]) for row in rows] == [("a", {"n": 2}), ("c", None)]
    assert all(row["updated_at"].endswith("Z") for row in rows)


def test_a_value_comes_back_byte_for_byte(wire, stream, popped):
    value = '{"b":1,"a":1,"a":2,"f":1.0,"g":1E2,"i":9007199254740993,"s":"\\ud800\\u0000"}'
    partition = popped[0]["partitionId"]
    body = (
        f'{{"query_id":"{stream.id}","partition_id":"{partition}",'
        f'"state_ops":[{{"type":"upsert","key":"k","value":{value}}}]}}'
    )
    assert expect(wire.post(CYCLE, body), 200).json()["success"] is True
    answer = wire.post(STATE, {"query_id": stream.id, "partition_id": partition})
    assert f'"key":"k","value":{value},' in answer.text


def test_filters_of_state_combine(stream, popped):
    windows = {"w1": 1000, "w2": 2000, "x1": 1000, "w3": "1000", "w4": 1e400}
    ops = [upsert(key, {"windowEnd": end}) for key, end in windows.items() if key != "w4"]
    stream.cycle(popped, state_ops=[*ops, upsert("w5", 7), upsert("w%", {})])
    partition = popped[0]["partitionId"]
    state = stream.state
    assert list(state(partition, keys=[])) == ["w%", "w1", "w2", "w3", "w5", "x1"]
    assert list(state(partition, keys=None, key_prefix="")) == list(state(partition))
    assert list(state(partition, keys=["w2", "w1", "nope"])) == ["w1", "w2"]
    assert list(state(partition, key_prefix="w%")) == ["w%"]
    assert list(state(partition, key_prefix="w")) == ["w%", "w1", "w2", "w3", "w5"]
    assert list(state(partition, ripe_at_or_before=1000)) == ["w1", "x1"]
    assert list(state(partition, ripe_at_or_before=1e300, key_prefix="w")) == ["w1", "w2"]
    assert list(state(partition, ripe_at_or_before=999.9)) == []
    assert list(state(partition, keys=["w1"], key_prefix="x")) == []


def test_the_state_of_nothing_is_empty(wire, stream, popped):
    partition = popped[0]["partitionId"]
    assert stream.rows(partition) == []
    assert stream.rows(UNKNOWN_UUID) == []
    answer = wire.post(STATE, {"query_id": UNKNOWN_UUID, "partition_id": partition})
    assert expect(answer, 200).json() == {"success": True, "rows": []}


@pytest.mark.parametrize(
    "change",
    [
        {"query_id": None},
        {"query_id": ""},
        {"query_id": "junk"},
        {"partition_id": None},
        {"partition_id": "junk"},
        {"keys": "k"},
        {"keys": [1]},
        {"keys": ["\x00"]},
        {"key_prefix": "\x00"},
        {"ripe_at_or_before": "soon"},
    ],
)
def test_a_state_request_of_the_wrong_shape_is_a_400(wire, change):
    body = {"query_id": UNKNOWN_UUID, "partition_id": UNKNOWN_UUID}
    error_of(wire.post(STATE, body | change), 400)


# Cycles


def test_a_cycle_commits_state_sinks_and_the_whole_batch(wire, stream, popped, fresh_queue):
    sink = f"{fresh_queue}-sink"
    items = [
        {"queue": sink, "partition": "b", "payload": {"n": 1}},
        {"queue": sink, "payload": 2},
        {"queue": sink, "partition": "b", "data": 3},
        {"queue": "", "payload": "nowhere"},
    ]
    answer = stream.cycle(popped, state_ops=[upsert("k", 1)], push_items=items)
    assert answer == {
        "success": True,
        "query_id": stream.id,
        "partition_id": popped[0]["partitionId"],
        "queueName": fresh_queue,
        "state_ops_applied": 1,
        "push_results": [
            {"queue": sink, "partition": "b", "status": "queued", "baseOffset": 0},
            {"queue": sink, "partition": "Default", "status": "queued", "baseOffset": 0},
        ],
        "ack_result": {"success": True, "count": 5, "lease_released": True, "dlq": False},
    }
    assert wire.payloads(sink, "b") == [{"n": 1}, 3]
    assert wire.payloads(sink, "Default") == [2]
    assert stream.pop() == [], "the batch is done"
    wire.push(fresh_queue, 5, partition="p")
    [message] = stream.pop()
    assert (message["data"], message["deliveryAttempt"]) == (5, 1)


def test_a_part_of_a_batch_moves_the_cursor_by_its_count_and_keeps_the_lease(wire, stream, popped):
    partition = popped[0]["partitionId"]
    answer = stream.cycle(popped, count=2, release_lease=False, state_ops=[upsert("n", 2)])
    assert answer["success"] is True
    assert answer["ack_result"] == {
        "success": True,
        "count": 2,
        "lease_released": False,
        "dlq": False,
    }
    assert stream.pop() == [], "the rest is still leased"
    rest = popped[2:]
    assert stream.cycle(rest, count=1, release_lease=False)["success"] is True
    wire.ack(popped[3], "retry")
    redelivered = stream.pop()
    assert [one["data"] for one in redelivered] == [3, 4]
    assert stream.state(partition) == {"n": 2}


def test_a_part_that_is_sent_again_is_not_counted_again(stream, popped):
    again = {"count": 2, "release_lease": False}
    assert stream.cycle(popped, state_ops=[upsert("n", 1)], **again)["success"] is True
    answer = stream.cycle(popped, state_ops=[upsert("n", 2)], **again)
    assert (answer["success"], answer["error"]) == (False, ALREADY_COMMITTED)
    assert answer["state_ops_applied"] == 0
    assert stream.state(popped[0]["partitionId"]) == {"n": 1}


def test_a_part_that_is_all_of_the_rest_ends_the_lease(stream, popped):
    answer = stream.cycle(popped, release_lease=False)
    assert answer["ack_result"]["lease_released"] is True
    assert stream.pop() == []


def test_more_than_the_lease_holds_is_refused_whole(stream, popped):
    ack = {"transactionId": "any", "leaseId": popped[0]["leaseId"], "count": 6}
    partition = popped[0]["partitionId"]
    answer = stream.cycle(
        partition_id=partition, ack=ack, release_lease=False, state_ops=[upsert("k", 1)]
    )
    assert answer["success"] is False and "that many" in answer["error"]
    assert answer["ack_result"]["success"] is False
    assert stream.state(partition) == {}


@pytest.mark.parametrize("release", [True, False])
def test_a_batch_that_is_given_back_comes_again_and_costs_no_budget(
    wire, stream, popped, fresh_queue, release
):
    wire.configure(fresh_queue, retryLimit=0)
    last = popped[-1]
    ack = {key: last[key] for key in ("transactionId", "leaseId")} | {"status": "failed"}
    answer = stream.cycle(partition_id=last["partitionId"], ack=ack, release_lease=release)
    assert answer["ack_result"] == {
        "success": True,
        "count": 0,
        "lease_released": True,
        "dlq": False,
    }
    again = stream.pop()
    assert [one["data"] for one in again] == [0, 1, 2, 3, 4]
    assert again[0]["deliveryAttempt"] == 2
    assert wire.dead_letters(fresh_queue) == []


def test_a_cycle_without_an_ack_leaves_the_lease(stream, popped):
    partition = popped[0]["partitionId"]
    answer = stream.cycle(partition_id=partition, state_ops=[upsert("k", 1)], ack=None)
    assert (answer["success"], answer["ack_result"]) == (True, None)
    assert stream.pop() == []
    assert stream.cycle(popped)["success"] is True


def test_a_cycle_after_the_batch_is_done_changes_nothing(wire, stream, popped, fresh_queue):
    sink, partition = f"{fresh_queue}-sink", popped[0]["partitionId"]
    assert stream.cycle(popped, state_ops=[upsert("k", 1)])["success"] is True
    answer = stream.cycle(
        popped, state_ops=[upsert("k", 2)], push_items=[{"queue": sink, "payload": 1}]
    )
    assert (answer["success"], answer["error"]) == (False, INVALID_LEASE)
    assert (answer["state_ops_applied"], answer["push_results"]) == (0, [])
    assert answer["queueName"] == fresh_queue
    assert stream.state(partition) == {"k": 1}
    assert wire.payloads(sink) == []


def test_an_unknown_kind_of_operation_fails_the_cycle(stream, popped):
    ops = [upsert("k", 1), {"type": "merge", "key": "k"}]
    answer = stream.cycle(popped, state_ops=ops)
    assert answer["success"] is False and "merge" in answer["error"]
    assert stream.state(popped[0]["partitionId"]) == {}
    assert stream.cycle(popped)["success"] is True, "the lease was not touched"


def test_unknown_ids_are_said_to_be_unknown(wire, stream, popped):
    partition = popped[0]["partitionId"]
    body = {"query_id": UNKNOWN_UUID, "partition_id": partition}
    assert expect(wire.post(CYCLE, body), 200).json()["error"] == "query not found"
    body = {"query_id": stream.id, "partition_id": UNKNOWN_UUID}
    answer = expect(wire.post(CYCLE, body), 200).json()
    assert (answer["success"], answer["error"]) == (False, "partition not found")


def test_a_sink_knows_a_transaction_id_again_and_the_cycle_goes_on(wire, stream, popped):
    sink = f"{stream.source}-sink"
    item = {"queue": sink, "payload": 1, "transactionId": "t"}
    partition = popped[0]["partitionId"]
    first = stream.cycle(partition_id=partition, push_items=[item])
    assert first["push_results"][0]["status"] == "queued"
    second = stream.cycle(popped, push_items=[item])
    assert second["success"] is True
    assert second["push_results"] == [
        {"queue": sink, "partition": "Default", "status": "duplicate", "baseOffset": None}
    ]
    third = stream.cycle(partition_id=partition, push_items=[item, {"queue": sink, "payload": 2}])
    assert (
        third["push_results"][0] | {"baseOffset": 1, "status": "queued"}
        == (third["push_results"][0])
    )
    assert wire.payloads(sink) == [1, 2]


def test_a_sink_message_keeps_the_ids_that_it_was_given(wire, stream, popped):
    sink, own = f"{stream.source}-sink", str(uuid.uuid4())
    item = {"queue": sink, "payload": 1, "messageId": own}
    assert stream.cycle(popped, push_items=[item])["success"] is True
    [message] = wire.messages(sink)
    assert (message["id"], message["transactionId"]) == (own, own)


def test_a_sink_wakes_a_pop_that_waits(wire, stream, popped):
    sink = f"{stream.source}-sink"
    wire.messages(sink)
    got = []
    waiter = threading.Thread(
        target=lambda: got.extend(wire.payloads(sink, wait=True, timeout=20_000))
    )
    waiter.start()
    assert stream.cycle(popped, push_items=[{"queue": sink, "payload": "news"}])["success"]
    waiter.join(30)
    assert got == ["news"]


@pytest.mark.parametrize(
    "change",
    [
        {"query_id": ""},
        {"query_id": "junk"},
        {"partition_id": None},
        {"partition_id": "junk"},
        {"consumer_group": "\x00"},
        {"consumer_group": 1},
        {"state_ops": {}},
        {"state_ops": [1]},
        {"state_ops": [{"type": "upsert", "value": 1}]},
        {"state_ops": [{"type": "upsert", "key": "\x00", "value": 1}]},
        {"state_ops": [{"type": "delete", "key": "k" * 2049}]},
        {"push_items": [{"queue": "q" * 256, "payload": 1}]},
        {"push_items": [{"queue": "q", "payload": 1, "messageId": "no uuid"}]},
        {"push_items": [{"queue": "q", "payload": 1, "transactionId": "\udc00"}]},
        {"ack": []},
        {"ack": {"leaseId": UNKNOWN_UUID, "count": -1}},
        {"ack": {"leaseId": UNKNOWN_UUID, "count": "2"}},
        {"ack": {"leaseId": UNKNOWN_UUID}, "release_lease": False},
        {"release_lease": "no"},
    ],
)
def test_a_cycle_of_the_wrong_shape_is_a_400(wire, change):
    body = {"query_id": UNKNOWN_UUID, "partition_id": UNKNOWN_UUID}
    error_of(wire.post(CYCLE, json.dumps(body | change)), 400)


def test_state_keys_go_up_to_their_limit(stream, popped):
    keys = ["k" * 2048, "é" * 1024, "op\x1fwindow\x1fuser", ""]
    stream.cycle(popped, state_ops=[upsert(key, no) for no, key in enumerate(keys)])
    state = stream.state(popped[0]["partitionId"])
    assert state == {key: no for no, key in enumerate(keys)}


def test_deleting_the_source_takes_its_state_along(wire, stream, popped, fresh_queue):
    partition = popped[0]["partitionId"]
    stream.cycle(popped, state_ops=[upsert("k", 1)])
    wire.delete(fresh_queue)
    assert stream.rows(partition) == []
    answer = stream.cycle(partition_id=partition, state_ops=[upsert("k", 1)])
    assert (answer["success"], answer["error"]) == (False, "partition not found")
    assert stream.register().json()["fresh"] is False, "the query itself stays"
