"""autopilot=true: the broker chooses the knobs that the caller did not send.

Method: HTTP against a real broker. What it chooses is its own affair; that it says what
it chose, keeps to it, and leaves what the caller chose alone is the contract.
"""

import pytest

AUTO = {"consumerGroup": "g", "subscriptionMode": "all", "autopilot": True}


@pytest.fixture
def busy_queue(wire, fresh_queue):
    wire.push_items(
        *(
            {"queue": fresh_queue, "partition": str(number % 20), "payload": number}
            for number in range(200)
        )
    )
    return fresh_queue


def test_the_broker_says_what_it_chose_and_keeps_to_it(wire, busy_queue):
    answer = wire.pop(busy_queue, **AUTO)
    chosen = answer["autopilot"]
    assert chosen["partitions"] >= 1
    assert chosen["batch"] >= 1
    assert chosen["waitMs"] >= 0
    assert 1 <= len(answer["messages"]) <= chosen["batch"]
    assert answer["partitionsClaimed"] <= chosen["partitions"]


def test_a_batch_that_was_sent_is_kept(wire, busy_queue):
    answer = wire.pop(busy_queue, batch=3, **AUTO)
    assert len(answer["messages"]) <= 3
    assert answer["autopilot"]["partitions"] >= 1


def test_partitions_that_were_sent_are_kept(wire, busy_queue):
    answer = wire.pop(busy_queue, partitions=1, **AUTO)
    assert answer["partitionsClaimed"] == 1
    assert answer["autopilot"]["batch"] >= 1


def test_without_autopilot_nothing_is_chosen(wire, busy_queue):
    params = AUTO | {"autopilot": False}
    assert "autopilot" not in wire.pop(busy_queue, **params)


def test_without_a_group_one_partition_is_claimed_as_ever(wire, busy_queue):
    answer = wire.pop(busy_queue, autopilot=True)
    assert answer["partitionsClaimed"] == 1
    assert len({message["partition"] for message in answer["messages"]}) == 1


def test_autopilot_reaches_every_message(wire, busy_queue):
    seen: set[int] = set()
    while batch := wire.messages(busy_queue, **AUTO):
        seen |= {message["data"] for message in batch}
        last_of = {message["partitionId"]: message for message in batch}
        for message in last_of.values():
            assert wire.ack(message)["success"] is True
    assert seen == set(range(200))
