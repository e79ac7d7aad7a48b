"""conflation=true: a group that wants only the newest message of each partition.

Method: HTTP against a real broker.
"""

import pytest

from tests.wire_client import ack_of, error_of, expect

NEWEST = {"consumerGroup": "latest", "conflation": True, "subscriptionMode": "all"}


def test_only_the_newest_message_of_a_partition_is_delivered(wire, fresh_queue):
    wire.push_each(fresh_queue, 1, 2, 3)
    answer = wire.pop(fresh_queue, **NEWEST)
    assert answer["conflation"] is True
    assert "conflationConflict" not in answer
    assert [message["data"] for message in answer["messages"]] == [3]


def test_its_ack_commits_everything_below_and_says_how_many(wire, fresh_queue):
    wire.push_each(fresh_queue, 1, 2, 3)
    [newest] = wire.messages(fresh_queue, **NEWEST)
    result = wire.ack(newest)
    assert result["success"] is True
    assert result["leaseReleased"] is True
    assert result["conflated"] == 2
    assert wire.messages(fresh_queue, **NEWEST) == []
    wire.push(fresh_queue, 4)
    [newest] = wire.messages(fresh_queue, **NEWEST)
    assert newest["data"] == 4
    assert wire.ack(newest)["conflated"] == 0


def test_an_ack_of_another_group_does_not_speak_of_conflation(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    assert "conflated" not in wire.ack(message)


def test_every_partition_gives_its_newest_without_asking_for_more_partitions(wire, fresh_queue):
    for partition in "abc":
        wire.push(fresh_queue, partition + "1", partition + "2", partition=partition)
    answer = wire.pop(fresh_queue, batch=10, **NEWEST)
    assert sorted(message["data"] for message in answer["messages"]) == ["a2", "b2", "c2"]
    assert answer["partitionsClaimed"] == 3


def test_absent_partitions_mean_batch_but_64_at_most(wire, fresh_queue):
    wire.push_items(*({"queue": fresh_queue, "partition": str(n), "payload": n} for n in range(70)))
    assert len(wire.messages(fresh_queue, batch=2, **NEWEST)) == 2
    assert len(wire.messages(fresh_queue, **NEWEST)) == 64
    assert len(wire.messages(fresh_queue, **NEWEST)) == 4


def test_an_empty_conflating_pop_is_a_200_with_a_body(wire, fresh_queue):
    answer = expect(wire.get_pop(fresh_queue, **NEWEST), 200).json()
    assert answer["messages"] == []
    assert answer["conflation"] is True


def test_a_conflating_wait_that_times_out_is_a_200_too(wire, fresh_queue):
    answer = expect(wire.get_pop(fresh_queue, wait=True, timeout=200, **NEWEST), 200).json()
    assert answer["messages"] == []
    assert answer["conflation"] is True


def test_a_newer_message_under_a_live_lease_waits_for_the_next_pop(wire, fresh_queue):
    wire.push_each(fresh_queue, 1, 2)
    [two] = wire.messages(fresh_queue, **NEWEST)
    wire.push_each(fresh_queue, 3, 4)
    assert wire.messages(fresh_queue, **NEWEST) == []
    assert wire.ack(two)["leaseReleased"] is True
    assert wire.payloads(fresh_queue, **NEWEST) == [4]


def test_a_conflating_group_redelivers_the_newest_after_a_retry(wire, fresh_queue):
    wire.push_each(fresh_queue, 1, 2)
    [two] = wire.messages(fresh_queue, **NEWEST)
    wire.ack(two, "retry")
    wire.push(fresh_queue, 3)
    assert wire.payloads(fresh_queue, **NEWEST) == [3]


def test_the_first_pop_decides_and_a_caller_that_wants_conflation_later_is_told(wire, fresh_queue):
    plain = {"consumerGroup": "g", "subscriptionMode": "all"}
    wire.push_each(fresh_queue, 1, 2)
    assert wire.pop(fresh_queue, batch=1, **plain)["messages"][0]["data"] == 1

    empty = expect(wire.get_pop(fresh_queue, conflation=True, **plain), 200).json()
    assert empty["messages"] == []
    assert empty["conflationConflict"] is True

    wire.push(fresh_queue, 3, 4, partition="other")
    answer = wire.pop(fresh_queue, "other", conflation=True, **plain)
    assert answer["conflationConflict"] is True
    assert not answer.get("conflation", False)
    assert [message["data"] for message in answer["messages"]] == [3, 4], "the stored policy"


def test_the_first_pop_decides_and_a_caller_that_does_not_want_conflation_is_told(
    wire, fresh_queue
):
    wire.push_each(fresh_queue, 1, 2)
    wire.pop(fresh_queue, "no such partition yet", **NEWEST)
    answer = wire.pop(fresh_queue, consumerGroup="latest", conflation=False)
    assert answer["conflationConflict"] is True
    assert [message["data"] for message in answer["messages"]] == [2], "the stored policy"


def test_the_policy_is_each_groups_own(wire, fresh_queue):
    wire.push_each(fresh_queue, 1, 2)
    assert wire.payloads(fresh_queue, **NEWEST) == [2]
    assert wire.payloads(fresh_queue, consumerGroup="each", subscriptionMode="all") == [1, 2]


@pytest.mark.parametrize("params", [{}, {"consumerGroup": "g", "autoAck": True}])
def test_conflation_needs_a_group_and_forbids_auto_ack(wire, fresh_queue, params):
    error_of(wire.get_pop(fresh_queue, conflation=True, **params), 400)


def test_a_batch_ack_of_a_conflating_group_counts_for_each_partition(wire, fresh_queue):
    wire.push_each(fresh_queue, 1, 2, 3, partition="a")
    wire.push_each(fresh_queue, 1, 2, partition="b")
    messages = wire.messages(fresh_queue, **NEWEST)
    results = wire.ack_batch(*(ack_of(message) for message in messages), group="latest")
    conflated = {
        message["partition"]: result["conflated"]
        for message, result in zip(messages, results, strict=True)
    }
    assert conflated == {"a": 2, "b": 1}
