"""POST /api/v1/transaction: pushes and acks that happen together or not at all.

Method: HTTP against a real broker.
"""

import re

import pytest

from tests.wire_client import UNKNOWN_UUID, ack_of, error_of, outlive_lease

TRACE_ID = "7f1c9f3e-8e0b-4f43-9d2a-6d0d5a4f1b11"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def push_op(queue: str, *payloads, partition: str = "Default", ids=None) -> dict:
    items = [{"queue": queue, "partition": partition, "payload": payload} for payload in payloads]
    for item, transaction_id in zip(items, ids or [], strict=False):
        item["transactionId"] = transaction_id
    return {"type": "push", "items": items}


def ack_op(message: dict, status: str = "completed", **more) -> dict:
    return {"type": "ack"} | ack_of(message, status, **more)


def bare_ack_op(message: dict, status: str = "completed", **more) -> dict:
    """As the clients send it: the lease stands in requiredLeases alone."""
    operation = ack_op(message, status, **more)
    operation.pop("leaseId", None)
    return operation


def assert_rolled_back(answer: dict, reason: str) -> None:
    assert answer["success"] is False
    assert answer["reason"] == reason
    assert answer["results"] == []
    assert isinstance(answer["error"], str) and answer["error"]
    assert UUID.match(answer["transactionId"])


@pytest.fixture
def source(wire, fresh_queue):
    """A queue with two messages; where transactions push to is another queue."""
    wire.push(fresh_queue, "one", "two", ids=["t1", "t2"])
    return fresh_queue


@pytest.fixture
def target(fresh_queue):
    return f"{fresh_queue}-target"


# --- what commits -------------------------------------------------------------------------------


def test_pushes_and_acks_commit_together_and_are_reported_in_one_flat_order(wire, source, target):
    one, two = wire.messages(source)

    answer = wire.transaction(
        push_op(target, "a", "b", ids=["pa", "pb"]),
        ack_op(one),
        push_op(target, "c", partition="other", ids=["pc"]),
        ack_op(two),
    )

    assert answer["success"] is True
    assert UUID.match(answer["transactionId"])
    results = answer["results"]
    assert [result["index"] for result in results] == [0, 1, 2, 3, 4]
    assert [result["type"] for result in results] == ["push", "push", "ack", "push", "ack"]
    assert [result["transactionId"] for result in results] == ["pa", "pb", "t1", "pc", "t2"]
    assert all(result["success"] is True for result in results)
    for result in results:
        if result["type"] == "push":
            assert result["queueName"] == target
            assert UUID.match(result["messageId"])
        else:
            assert result["error"] is None
            assert result["dlq"] is False
    messages = wire.messages(target, "Default")
    assert [message["data"] for message in messages] == ["a", "b"]
    assert [message["id"] for message in messages] == [
        results[0]["messageId"],
        results[1]["messageId"],
    ]
    assert wire.payloads(target, "other") == ["c"]
    wire.push(source, "three")
    assert wire.payloads(source) == ["three"], "the acks released the lease"


def test_a_push_may_be_flat_and_may_call_its_payload_data(wire, target):
    answer = wire.transaction(
        {"type": "push", "queue": target, "payload": 1},
        {"type": "push", "queue": target, "data": 2, "partition": None, "transactionId": None},
        {"type": "push", "items": [{"queue": target, "data": {"three": 3}}]},
    )
    assert answer["success"] is True
    assert wire.payloads(target, "Default") == [1, 2, {"three": 3}]


def test_a_push_without_a_payload_pushes_an_empty_object(wire, target):
    wire.transaction({"type": "push", "queue": target})
    assert wire.payloads(target) == [{}]


def test_a_transaction_id_is_minted_when_none_was_sent(wire, target):
    [result] = wire.transaction(push_op(target, 1))["results"]
    [message] = wire.messages(target)
    assert message["transactionId"] == result["transactionId"]
    assert message["id"] == result["messageId"]


def test_a_transaction_stores_a_trace_id(wire, target):
    wire.transaction({"type": "push", "queue": target, "payload": 1, "traceId": TRACE_ID})
    [message] = wire.messages(target)
    assert message["traceId"] == TRACE_ID
    assert message["producerSub"] is None


def test_acks_alone_may_span_queues_and_partitions(wire, source, target):
    wire.push(target, "x", partition="p")
    wire.push(target, "y", partition="q")
    messages = wire.messages(source) + wire.messages(target, partitions=2)
    assert wire.transaction(*map(ack_op, messages))["success"] is True
    assert wire.payloads(source) == []
    assert wire.payloads(target, partitions=2) == []


def test_a_transaction_ack_serves_a_consumer_group(wire, source):
    one, _ = wire.messages(source, consumerGroup="g", subscriptionMode="all")
    answer = wire.transaction(bare_ack_op(one, consumerGroup="g"), requiredLeases=[one["leaseId"]])
    assert answer["success"] is True
    assert wire.ack(one)["noop"] is True


def test_an_id_pushed_in_a_transaction_is_known_to_a_later_push(wire, target):
    [result] = wire.transaction(push_op(target, 1, ids=["t"]))["results"]
    [row] = wire.push(target, 2, ids=["t"])
    assert (row["status"], row["message_id"]) == ("duplicate", result["messageId"])


def test_two_equal_pushes_in_one_bundle_store_the_first(wire, target):
    answer = wire.transaction(push_op(target, "first", "second", ids=["t", "t"]))
    assert answer["success"] is True
    first, second = answer["results"]
    assert not first.get("duplicate", False)
    assert second["duplicate"] is True
    assert second["success"] is True
    assert wire.payloads(target) == ["first"]


# --- statuses inside a bundle -------------------------------------------------------------------


def test_a_nack_in_a_bundle_charges_and_releases_and_the_push_stands(wire, source, target):
    wire.configure(source, retryLimit=1)
    for expected_dlq in (False, True):
        one, _ = wire.messages(source)
        answer = wire.transaction(ack_op(one, "failed", error="no"), push_op(target, "note"))
        assert answer["success"] is True
        assert answer["results"][0]["success"] is True
        assert answer["results"][0]["dlq"] is expected_dlq
    assert [dead["errorMessage"] for dead in wire.dead_letters(source)] == ["no"]
    assert wire.payloads(source) == ["two"]
    assert wire.payloads(target) == ["note", "note"]


def test_a_dlq_in_a_bundle_dead_letters(wire, source):
    one, _ = wire.messages(source)
    [result] = wire.transaction(ack_op(one, "dlq", error="poison"))["results"]
    assert (result["success"], result["dlq"]) == (True, True)
    [dead] = wire.dead_letters(source)
    assert (dead["transactionId"], dead["errorMessage"]) == ("t1", "poison")


def test_a_retry_in_a_bundle_redelivers(wire, source):
    _, two = wire.messages(source)
    assert wire.transaction(ack_op(two, "retry"))["success"] is True
    assert wire.payloads(source) == ["one", "two"]


# --- what rolls back ----------------------------------------------------------------------------


def test_a_push_that_exists_rolls_everything_back(wire, source, target):
    wire.push(target, "there already", ids=["t"])
    one, two = wire.messages(source)

    answer = wire.transaction(ack_op(two), push_op(target, "new", "again", ids=["n", "t"]))

    assert_rolled_back(answer, "duplicate")
    assert answer["error"].startswith("QDUP")
    assert wire.payloads(target) == ["there already"]
    assert wire.ack(one)["noop"] is False, "the ack was rolled back too"


@pytest.mark.parametrize("with_lease", [True, False])
def test_an_ack_that_resolves_nowhere_rolls_everything_back(wire, source, target, with_lease):
    one, _ = wire.messages(source)
    ack = ack_op if with_lease else bare_ack_op

    answer = wire.transaction(
        push_op(target, "x"), ack(one, transactionId="never pushed"), ack(one)
    )

    assert_rolled_back(answer, "ack_rejected")
    assert "QTXN ack references unknown transactionId; transaction rolled back" in answer["error"]
    assert wire.payloads(target) == []
    assert wire.ack(one)["noop"] is False


def test_an_ack_under_a_dead_lease_rolls_everything_back(wire, source, target):
    one, _ = wire.messages(source, leaseSeconds=1)
    outlive_lease()
    answer = wire.transaction(push_op(target, "x"), ack_op(one))
    assert_rolled_back(answer, "ack_rejected")
    assert wire.payloads(target) == []
    assert wire.payloads(source) == ["one", "two"]


def test_an_ack_under_a_foreign_lease_rolls_everything_back(wire, source, target):
    one, _ = wire.messages(source)
    answer = wire.transaction(push_op(target, "x"), ack_op(one, leaseId=UNKNOWN_UUID))
    assert_rolled_back(answer, "ack_rejected")
    assert wire.payloads(target) == []


def test_an_ack_of_a_group_that_never_popped_rolls_everything_back(wire, source, target):
    one, _ = wire.messages(source)
    answer = wire.transaction(push_op(target, "x"), bare_ack_op(one, consumerGroup="stranger"))
    assert_rolled_back(answer, "ack_rejected")
    assert wire.payloads(target) == []


# --- which lease --------------------------------------------------------------------------------


def test_the_live_lease_is_used_when_it_is_one_of_the_required(wire, source, target):
    one, two = wire.messages(source)
    answer = wire.transaction(
        bare_ack_op(one),
        bare_ack_op(two),
        push_op(target, "x"),
        requiredLeases=[UNKNOWN_UUID, one["leaseId"]],
    )
    assert answer["success"] is True
    assert wire.extend(one["leaseId"])["renewed"] == 0, "completed, so released"


def test_a_stale_worker_cannot_commit_under_its_successors_lease(wire, source, target):
    stale = wire.messages(source, leaseSeconds=1)
    outlive_lease()
    live = wire.messages(source)
    assert [message["id"] for message in live] == [message["id"] for message in stale]

    answer = wire.transaction(
        bare_ack_op(stale[1]), push_op(target, "x"), requiredLeases=[stale[1]["leaseId"]]
    )

    assert_rolled_back(answer, "ack_rejected")
    assert wire.payloads(target) == []
    assert wire.ack(live[1])["noop"] is False


def test_a_stale_worker_cannot_commit_after_its_lease_ended_and_nobody_came(wire, source, target):
    one, _ = wire.messages(source, leaseSeconds=1)
    outlive_lease()
    answer = wire.transaction(
        bare_ack_op(one), push_op(target, "x"), requiredLeases=[one["leaseId"]]
    )
    assert_rolled_back(answer, "ack_rejected")
    assert wire.payloads(target) == []


def test_a_lease_named_by_one_operation_binds_the_others(wire, source, target):
    """The request mentions a lease, and none of it fits the second ack: rejected."""
    wire.push(target, "x")
    [x] = wire.messages(target)
    one, _ = wire.messages(source)
    answer = wire.transaction(ack_op(one), bare_ack_op(x))
    assert_rolled_back(answer, "ack_rejected")
    assert wire.ack(one)["noop"] is False


def test_without_any_lease_acks_are_not_checked(wire, source):
    _, two = wire.messages(source, leaseSeconds=1)
    outlive_lease()
    answer = wire.transaction(bare_ack_op(two))
    assert answer["success"] is True
    assert wire.payloads(source) == []


# --- shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        {"type": "pop"},
        {"type": "PUSH", "queue": "q", "payload": 1},
        {"type": None},
        {},
        None,
        7,
        "push",
        [],
        {"type": "push"},
        {"type": "push", "items": {}},
        {"type": "push", "items": [None]},
        {"type": "push", "items": [{"payload": 1}]},
        {"type": "push", "queue": 5, "payload": 1},
        {"type": "push", "queue": "q\x00", "payload": 1},
        {"type": "push", "queue": "q" * 256, "payload": 1},
        {"type": "ack"},
        {"type": "ack", "transactionId": "t"},
        {"type": "ack", "partitionId": UNKNOWN_UUID},
    ],
)
def test_an_operation_of_the_wrong_shape_is_a_400_and_nothing_is_written(wire, target, operation):
    body = {"operations": [push_op(target, "x"), operation]}
    error_of(wire.post("/api/v1/transaction", body), 400)
    assert wire.payloads(target) == []


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"{}", b'{"operations":{}}', b'{"operations":"x"}', b"\xff"]
)
def test_a_body_that_is_no_transaction_is_a_400(wire, body):
    error_of(wire.http.post("/api/v1/transaction", content=body), 400)
