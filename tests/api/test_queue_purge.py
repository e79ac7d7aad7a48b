"""Purge: what a queue or a partition holds is gone, and everything else goes on behind it.

Method: HTTP against a real broker.
"""

import pytest

from tests.wire_client import ack_of, error_of, expect, segment


def purge(wire, queue, partition=None, body=None):
    path = wire.queue_path(queue)
    if partition is not None:
        path += f"/partitions/{segment(partition)}"
    return expect(wire.post(f"{path}/purge", body), 200).json()


def test_a_purge_removes_what_every_group_has_yet_to_read(wire, fresh_queue):
    group = {"consumerGroup": "g", "subscriptionMode": "all"}
    wire.push(fresh_queue, 1, 2, partition="a")
    wire.push(fresh_queue, 3, partition="b")
    answer = purge(wire, fresh_queue)
    assert answer.pop("bytes") > 0
    assert answer == {
        "purged": True,
        "queue": fresh_queue,
        "partitions": 2,
        "messages": 3,
        "segments": 2,
        "deadLetters": 0,
        "partitionsBusy": 0,
        "more": False,
    }
    assert wire.payloads(fresh_queue, partitions=0) == []
    assert wire.payloads(fresh_queue, partitions=0, **group) == []
    totals = wire.queue(fresh_queue)["totals"]
    assert (totals["total"], totals["pending"]) == (0, 0)
    wire.push(fresh_queue, 4, partition="a")
    assert wire.payloads(fresh_queue, partitions=0, **group) == [4]


def test_a_purge_of_one_partition_leaves_its_neighbours(wire, fresh_queue):
    wire.push(fresh_queue, 1, partition="a/b")
    wire.push(fresh_queue, 2, partition="b")
    answer = purge(wire, fresh_queue, "a/b")
    assert (answer["partition"], answer["messages"]) == ("a/b", 1)
    assert wire.payloads(fresh_queue, partitions=0) == [2]


def test_a_lease_on_purged_messages_ends_and_what_follows_is_delivered_at_once(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2)
    first, second = wire.messages(fresh_queue)
    purge(wire, fresh_queue)
    wire.push(fresh_queue, 3)
    assert wire.payloads(fresh_queue, wait=True, timeout=10_000) == [3]
    for one in wire.ack_batch(ack_of(first), ack_of(second)):
        assert (one["success"], one["error"]) == (False, "invalid or expired lease")


def test_dead_letters_stay_unless_they_are_asked_for(wire, fresh_queue):
    wire.push(fresh_queue, 1, partition="a")
    wire.push(fresh_queue, 2, partition="b")
    for message in wire.messages(fresh_queue, partitions=0):
        wire.ack(message, "dlq")
    assert purge(wire, fresh_queue)["deadLetters"] == 0
    assert len(wire.dead_letters(fresh_queue)) == 2
    assert purge(wire, fresh_queue, "a", {"deadLetters": True})["deadLetters"] == 1
    assert [one["data"] for one in wire.dead_letters(fresh_queue)] == [2]
    assert purge(wire, fresh_queue, body={"deadLetters": True})["deadLetters"] == 1
    assert wire.dead_letters(fresh_queue) == []


def test_an_empty_queue_is_purged_of_nothing(wire, fresh_queue):
    wire.configure(fresh_queue)
    answer = purge(wire, fresh_queue)
    assert (answer["purged"], answer["messages"], answer["partitions"]) == (True, 0, 0)


def test_what_is_wrong_is_told_and_nothing_is_purged(wire, fresh_queue):
    path = f"{wire.queue_path(fresh_queue)}/purge"
    assert error_of(wire.post(path), 404) == "Queue not found"
    wire.push(fresh_queue, 1)
    unknown = f"{wire.queue_path(fresh_queue)}/partitions/nowhere/purge"
    assert error_of(wire.post(unknown), 404) == "Partition not found"
    assert expect(wire.get(path), 405).headers["allow"] == "POST"
    for body in ({"deadLetters": "yes"}, [1], "{", {"deadLetters": 1}):
        error_of(wire.post(path, body), 400)
    assert wire.payloads(fresh_queue) == [1]


@pytest.mark.parametrize("auto_ack", [False, True])
def test_a_consumed_message_is_purged_as_well(wire, fresh_queue, auto_ack):
    wire.push(fresh_queue, 1)
    for message in wire.messages(fresh_queue, autoAck=auto_ack):
        if not auto_ack:
            wire.ack(message)
    assert purge(wire, fresh_queue)["messages"] == 1
