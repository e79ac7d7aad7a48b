"""GET /api/v1/pop on its three routes: who gets which messages, and in which words.

Method: HTTP against a real broker. How long a lease is gets read off an extension by
one second, which by contract never shortens and so tells the present end.
"""

from datetime import UTC, datetime

import pytest

from tests.wire_client import ack_of, error_of, expect

MESSAGE_KEYS = {
    "id",
    "transactionId",
    "traceId",
    "data",
    "producerSub",
    "createdAt",
    "partitionId",
    "partition",
    "leaseId",
    "consumerGroup",
    "deliveryAttempt",
}
TOP_KEYS = {
    "success",
    "queue",
    "partition",
    "partitionId",
    "leaseId",
    "consumerGroup",
    "partitionsClaimed",
    "messages",
}


def lease_left_s(wire, lease_id: str) -> float:
    renewed = wire.extend(lease_id, {"seconds": 1})
    assert renewed["renewed"] >= 1
    return (datetime.fromisoformat(renewed["expiresAt"]) - datetime.now(UTC)).total_seconds()


# --- the answer ---------------------------------------------------------------------------------


def test_a_delivery_has_exactly_the_contracted_fields(wire, fresh_queue):
    [row] = wire.push(fresh_queue, {"a": 1}, partition="c-42", ids=["t1"])

    answer = wire.pop(fresh_queue, consumerGroup="billing", subscriptionMode="all")

    [message] = answer.pop("messages")
    assert set(answer) == TOP_KEYS - {"messages"}
    assert answer["success"] is True
    assert answer["queue"] == fresh_queue
    assert answer["partition"] == "c-42"
    assert answer["consumerGroup"] == "billing"
    assert answer["partitionsClaimed"] == 1
    assert set(message) == MESSAGE_KEYS
    assert message["id"] == row["message_id"]
    assert message["transactionId"] == "t1"
    assert message["data"] == {"a": 1}
    assert message["traceId"] is None and message["producerSub"] is None
    assert message["partition"] == "c-42"
    assert message["partitionId"] == answer["partitionId"]
    assert message["leaseId"] == answer["leaseId"] != ""
    assert message["consumerGroup"] == "billing"
    assert message["deliveryAttempt"] == 1
    assert message["createdAt"].endswith("Z")


def test_a_pop_without_a_group_is_queue_mode(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    answer = wire.pop(fresh_queue)
    assert answer["consumerGroup"] == "__QUEUE_MODE__"
    assert answer["messages"][0]["consumerGroup"] == "__QUEUE_MODE__"


def test_nothing_to_deliver_is_a_bare_204(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    wire.pop(fresh_queue, autoAck=True)
    answer = expect(wire.get_pop(fresh_queue), 204)
    assert answer.content == b""
    assert "content-length" not in answer.headers
    expect(wire.get_pop(fresh_queue, "no such partition"), 204)


def test_a_pop_of_an_unknown_queue_answers_204_and_creates_the_queue(wire, fresh_queue):
    expect(wire.get(wire.queue_path(fresh_queue)), 404)
    expect(wire.get_pop(fresh_queue), 204)
    assert wire.queue(fresh_queue)["options"]["leaseTime"] == 60


def test_messages_of_a_partition_come_in_order_and_the_pair_of_stamp_and_id_never_decreases(
    wire, fresh_queue
):
    for number in range(0, 40, 4):
        wire.push(fresh_queue, *range(number, number + 4))
    messages = wire.messages(fresh_queue)
    assert [message["data"] for message in messages] == list(range(40))
    keys = [(message["createdAt"][:23], message["id"]) for message in messages]
    assert keys == sorted(keys)


# --- batch and partitions -----------------------------------------------------------------------


def test_the_default_batch_is_200(wire, fresh_queue):
    wire.push(fresh_queue, *range(250))
    assert wire.payloads(fresh_queue) == list(range(200))


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (-5, 1), (1, 1), (3, 3), (10**9, 5)])
def test_batch_is_clamped_to_one_and_ten_thousand(wire, fresh_queue, asked, given):
    wire.push(fresh_queue, *range(5))
    assert wire.payloads(fresh_queue, batch=asked) == list(range(given))


def test_batch_is_clamped_to_ten_thousand_when_there_are_more(wire, fresh_queue):
    for start in range(0, 10_002, 5_001):
        wire.push(fresh_queue, *range(start, start + 5_001))
    assert wire.payloads(fresh_queue, batch=20_000) == list(range(10_000))


def test_one_partition_is_claimed_unless_more_are_asked_for(wire, fresh_queue):
    for partition in "abc":
        wire.push(fresh_queue, partition + "1", partition + "2", partition=partition)
    answer = wire.pop(fresh_queue)
    assert answer["partitionsClaimed"] == 1
    assert len(answer["messages"]) == 2
    assert len({message["partition"] for message in answer["messages"]}) == 1


def test_several_partitions_share_one_lease_and_one_budget(wire, fresh_queue):
    for partition in "abcd":
        wire.push(fresh_queue, *(partition + str(n) for n in range(4)), partition=partition)

    answer = wire.pop(fresh_queue, partitions=3, batch=10)

    messages = answer["messages"]
    assert len(messages) == 10
    assert answer["partitionsClaimed"] == 3
    assert {message["leaseId"] for message in messages} == {answer["leaseId"]}
    assert messages[0]["partition"] == answer["partition"]
    assert messages[0]["partitionId"] == answer["partitionId"]
    for partition in "abcd":
        own = [message["data"] for message in messages if message["partition"] == partition]
        assert own == sorted(own)


@pytest.mark.parametrize("no_cap", [0, -1])
def test_partitions_of_zero_or_less_means_no_cap(wire, fresh_queue, no_cap):
    names = [f"p{number}" for number in range(12)]
    wire.push_items(*({"queue": fresh_queue, "partition": name, "payload": name} for name in names))
    answer = wire.pop(fresh_queue, partitions=no_cap)
    assert answer["partitionsClaimed"] == 12
    assert sorted(message["data"] for message in answer["messages"]) == sorted(names)


def test_the_partition_route_gives_that_partition_alone_whatever_partitions_says(wire, fresh_queue):
    for partition in "abc":
        wire.push(fresh_queue, partition, partition=partition)
    assert wire.payloads(fresh_queue, "b", partitions=3) == ["b"]


@pytest.mark.parametrize("parameter", ["batch", "partitions", "timeout", "leaseSeconds"])
@pytest.mark.parametrize(
    "value", ["abc", "1.5", "1_000", "٣", "0x10", "9223372036854775808", "9" * 5000, "1e3"]
)
def test_a_number_that_is_no_64_bit_integer_is_a_400(wire, fresh_queue, parameter, value):
    error_of(wire.get_pop(fresh_queue, **{parameter: value}), 400)


@pytest.mark.parametrize("parameter", ["batch", "partitions", "timeout", "leaseSeconds"])
def test_a_missing_number_is_the_default(wire, fresh_queue, parameter):
    wire.push(fresh_queue, 1, 2)
    assert wire.payloads(fresh_queue, **{parameter: ""}) == [1, 2]


@pytest.mark.parametrize("parameter", ["batch", "partitions", "timeout", "leaseSeconds"])
def test_the_largest_64_bit_integer_is_only_clamped(wire, fresh_queue, parameter):
    wire.push(fresh_queue, 1)
    assert wire.payloads(fresh_queue, **{parameter: 2**63 - 1}) == [1]


@pytest.mark.parametrize("parameter", ["wait", "autoAck", "conflation", "autopilot"])
def test_a_boolean_is_true_false_1_or_0_and_nothing_else(wire, fresh_queue, parameter):
    for value in ("false", "0"):
        expect(wire.get_pop(fresh_queue, **{parameter: value}), 204)
    error_of(wire.get_pop(fresh_queue, **{parameter: "maybe"}), 400)


def test_a_boolean_may_be_written_as_1(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    assert wire.pop(fresh_queue, autoAck="1")["leaseId"] == ""


# --- leases -------------------------------------------------------------------------------------


def test_a_partition_has_one_live_lease_per_group(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2, 3)
    assert wire.payloads(fresh_queue, batch=1) == [1]
    assert wire.payloads(fresh_queue, batch=1) == [], "the rest waits for the lease"
    assert wire.payloads(fresh_queue, "Default") == []
    other_group = {"consumerGroup": "g", "subscriptionMode": "all"}
    assert wire.payloads(fresh_queue, **other_group) == [1, 2, 3]
    assert wire.payloads(fresh_queue, **other_group) == []


def test_a_queue_pop_passes_over_leased_partitions(wire, fresh_queue):
    for partition in "abc":
        wire.push(fresh_queue, partition, partition=partition)
    got = [wire.payloads(fresh_queue)[0] for _ in range(3)]
    assert sorted(got) == ["a", "b", "c"]
    assert wire.payloads(fresh_queue) == []


def test_a_lease_lasts_as_long_as_the_queue_or_the_pop_says(wire, fresh_queue):
    wire.push_items(
        *({"queue": fresh_queue, "partition": partition, "payload": 1} for partition in "abcd")
    )
    assert 55 < lease_left_s(wire, wire.pop(fresh_queue, "a")["leaseId"]) <= 61
    assert 115 < lease_left_s(wire, wire.pop(fresh_queue, "b", leaseSeconds=120)["leaseId"]) <= 121
    assert 55 < lease_left_s(wire, wire.pop(fresh_queue, "c", leaseSeconds=0)["leaseId"]) <= 61
    assert 55 < lease_left_s(wire, wire.pop(fresh_queue, "d", leaseSeconds=-9)["leaseId"]) <= 61


def test_a_configured_queue_leases_300_seconds_or_what_was_configured(wire, fresh_queue):
    wire.configure(fresh_queue)
    wire.push_items(
        *({"queue": fresh_queue, "partition": partition, "payload": 1} for partition in "ab")
    )
    assert 290 < lease_left_s(wire, wire.pop(fresh_queue, "a")["leaseId"]) <= 301
    wire.configure(fresh_queue, leaseTime=30)
    assert 25 < lease_left_s(wire, wire.pop(fresh_queue, "b")["leaseId"]) <= 31


def test_an_expired_lease_redelivers_the_same_messages_in_order_under_a_new_lease(
    wire, fresh_queue, eventually
):
    wire.push(fresh_queue, 1, 2, 3)
    first = wire.pop(fresh_queue, leaseSeconds=1)
    second = eventually(lambda: (answer := wire.pop(fresh_queue))["messages"] and answer)
    assert [message["data"] for message in second["messages"]] == [1, 2, 3]
    assert [message["id"] for message in second["messages"]] == [
        message["id"] for message in first["messages"]
    ]
    assert second["leaseId"] != first["leaseId"]


def test_auto_ack_commits_inside_the_pop_and_leaves_no_lease(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2, 3)
    answer = wire.pop(fresh_queue, autoAck=True, batch=2)
    assert answer["leaseId"] == ""
    assert [message["data"] for message in answer["messages"]] == [1, 2]
    assert {message["deliveryAttempt"] for message in answer["messages"]} == {1}
    assert wire.payloads(fresh_queue, autoAck=True) == [3], "no lease holds up the rest"
    assert wire.payloads(fresh_queue) == []


# --- deliveryAttempt ----------------------------------------------------------------------------


def test_the_attempt_grows_when_the_same_batch_start_comes_again(wire, fresh_queue, eventually):
    wire.push(fresh_queue, 1, 2)
    first = wire.messages(fresh_queue, leaseSeconds=1)
    assert [message["deliveryAttempt"] for message in first] == [1, 1]
    after_expiry = eventually(lambda: wire.messages(fresh_queue))
    assert [message["deliveryAttempt"] for message in after_expiry] == [2, 2]
    wire.ack(after_expiry[0], "failed")
    assert [message["deliveryAttempt"] for message in wire.messages(fresh_queue)] == [3, 3]


def test_the_attempt_survives_a_partial_ack_and_starts_anew_with_the_next_batch(
    wire, fresh_queue, eventually
):
    wire.push(fresh_queue, *range(10))
    first = wire.messages(fresh_queue, leaseSeconds=1)
    assert wire.ack(first[2])["leaseReleased"] is False
    tail = eventually(lambda: wire.messages(fresh_queue))
    assert [message["data"] for message in tail] == list(range(3, 10))
    assert {message["deliveryAttempt"] for message in tail} == {2}
    assert wire.ack(tail[-1])["leaseReleased"] is True
    wire.push(fresh_queue, 10)
    [after] = wire.messages(fresh_queue)
    assert (after["data"], after["deliveryAttempt"]) == (10, 1)


def test_the_attempt_is_counted_for_each_group_alone(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue, consumerGroup="a", subscriptionMode="all")
    wire.ack(message, "retry")
    assert wire.messages(fresh_queue, consumerGroup="a")[0]["deliveryAttempt"] == 2
    [message] = wire.messages(fresh_queue, consumerGroup="b", subscriptionMode="all")
    assert message["deliveryAttempt"] == 1


def test_an_auto_acked_redelivery_still_says_attempt_one(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    wire.ack(wire.messages(fresh_queue)[0], "retry")
    [message] = wire.messages(fresh_queue, autoAck=True)
    assert message["deliveryAttempt"] == 1


# --- discovery ----------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [{}, {"namespace": "", "task": ""}, {"batch": 1}])
def test_discovery_needs_a_namespace_or_a_task(wire, params):
    answer = expect(wire.get_pop(None, **params), 400)
    assert answer.json() == {
        "success": False,
        "error": "namespace or task is required",
        "messages": [],
    }


def test_discovery_finds_queues_by_namespace_and_task(wire, fresh_queue):
    namespace = fresh_queue
    for task in ("eat", "sleep"):
        wire.push(f"{namespace}.{task}", task)
    wire.push(f"{namespace}x.eat", "another namespace")

    answer = wire.pop(None, namespace=namespace, task="sleep")
    assert answer["queue"] == ""
    [message] = answer["messages"]
    assert message["data"] == "sleep"
    assert message["queue"] == f"{namespace}.sleep"
    assert wire.ack(message)["success"] is True

    answer = wire.pop(None, namespace=namespace, partitions=0)
    assert [message["data"] for message in answer["messages"]] == ["eat"]
    assert wire.messages(None, namespace=namespace, partitions=0) == []


def test_discovery_by_task_alone_crosses_namespaces_under_one_lease(wire, fresh_queue):
    for namespace in ("n1", "n2"):
        wire.configure(f"{fresh_queue}-{namespace}", namespace=namespace, task=fresh_queue)
        wire.push(f"{fresh_queue}-{namespace}", namespace)
    answer = wire.pop(None, task=fresh_queue, partitions=0)
    assert sorted(message["data"] for message in answer["messages"]) == ["n1", "n2"]
    assert answer["partitionsClaimed"] == 2
    assert {message["leaseId"] for message in answer["messages"]} == {answer["leaseId"]}
    assert {message["queue"] for message in answer["messages"]} == {
        f"{fresh_queue}-n1",
        f"{fresh_queue}-n2",
    }


def test_discovery_without_anything_to_deliver_is_a_204(wire, fresh_queue):
    expect(wire.get_pop(None, namespace=fresh_queue), 204)


def test_discovery_serves_groups_and_their_acks(wire, fresh_queue):
    wire.push(f"{fresh_queue}.a", 1)
    params = {"namespace": fresh_queue, "consumerGroup": "g"}
    [message] = wire.messages(None, subscriptionMode="all", **params)
    [result] = wire.ack_batch(ack_of(message), group="g")
    assert result["success"] is True
    assert wire.messages(None, **params) == []


# --- identifiers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw", ["consumerGroup=%00", "consumerGroup=%ED%A0%80", "consumerGroup=" + "g" * 256]
)
def test_an_illegal_group_name_is_a_400(wire, fresh_queue, raw):
    answer = wire.http.get(f"/api/v1/pop/queue/{fresh_queue}?{raw}")
    error_of(answer, 400)


@pytest.mark.parametrize("parameter", ["namespace", "task"])
def test_an_overlong_namespace_or_task_is_a_400(wire, parameter):
    expect(wire.get_pop(None, **{parameter: "é" * 127}), 204)
    error_of(wire.get_pop(None, **{parameter: "é" * 128}), 400)


def test_groups_are_told_apart_by_code_points(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    groups = ["g", "G", "g ", "a+b", "a b", "a/b", "a%2Fb", "é", "e\u0301", "東京", "g&h=1"]
    for group in groups:
        answer = wire.pop(fresh_queue, consumerGroup=group, subscriptionMode="all")
        assert answer["consumerGroup"] == group
        assert len(answer["messages"]) == 1
