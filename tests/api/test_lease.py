"""POST /api/v1/lease/:leaseId/extend: a live lease may be prolonged, a dead one never.

Method: HTTP against a real broker.
"""

from datetime import UTC, datetime

import pytest

from tests.wire_client import UNKNOWN_UUID, expect, outlive_lease

DEAD = {
    "success": False,
    "renewed": 0,
    "newExpiresAt": None,
    "expiresAt": None,
    "lease_expires_at": None,
}


@pytest.fixture
def lease(wire, fresh_queue) -> str:
    wire.push(fresh_queue, 1)
    return wire.pop(fresh_queue, leaseSeconds=2)["leaseId"]


def seconds_from_now(stamp: str) -> float:
    assert stamp.endswith("Z")
    return (datetime.fromisoformat(stamp) - datetime.now(UTC)).total_seconds()


@pytest.mark.parametrize("body", [None, b"{}", b'{"seconds":null}', b'{"other":1}'])
def test_without_a_number_a_lease_is_prolonged_to_sixty_seconds(wire, lease, body):
    answer = wire.extend(lease, body)
    assert set(answer) == set(DEAD) | {"leaseId"}
    assert answer["leaseId"] == lease
    assert (answer["success"], answer["renewed"]) == (True, 1)
    assert answer["newExpiresAt"] == answer["expiresAt"] == answer["lease_expires_at"]
    assert 55 < seconds_from_now(answer["expiresAt"]) <= 61


def test_a_lease_is_prolonged_by_the_seconds_asked_for(wire, lease):
    assert 290 < seconds_from_now(wire.extend(lease, {"seconds": 300})["expiresAt"]) <= 301


def test_a_lease_is_never_shortened(wire, lease):
    long = wire.extend(lease, {"seconds": 600})["expiresAt"]
    assert wire.extend(lease, {"seconds": 5})["expiresAt"] == long


@pytest.mark.parametrize("seconds", [0, -7])
def test_less_than_a_second_is_a_second(wire, fresh_queue, seconds):
    wire.push(fresh_queue, 1)
    lease = wire.pop(fresh_queue, leaseSeconds=1)["leaseId"]
    answer = wire.extend(lease, {"seconds": seconds})
    assert answer["renewed"] == 1
    assert 0.5 < seconds_from_now(answer["expiresAt"]) <= 1.5


def test_a_prolonged_lease_keeps_its_messages(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue, leaseSeconds=1)
    wire.extend(message["leaseId"])
    outlive_lease()
    assert wire.payloads(fresh_queue) == []
    assert wire.ack(message)["leaseReleased"] is True


def test_one_call_prolongs_every_partition_of_the_lease(wire, fresh_queue):
    for partition in "abc":
        wire.push(fresh_queue, partition, partition=partition)
    answer = wire.pop(fresh_queue, partitions=3, leaseSeconds=1)
    assert wire.extend(answer["leaseId"])["renewed"] == 3
    wire.ack(answer["messages"][0])
    assert wire.extend(answer["leaseId"])["renewed"] == 2
    outlive_lease()
    assert wire.payloads(fresh_queue, partitions=3) == []


def test_an_expired_lease_is_not_revived(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    lease = wire.pop(fresh_queue, leaseSeconds=1)["leaseId"]
    outlive_lease()
    assert wire.extend(lease) == DEAD | {"leaseId": lease}
    assert wire.payloads(fresh_queue) == [1]
    assert wire.extend(lease)["renewed"] == 0


@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dlq"])
def test_a_released_lease_is_not_revived(wire, fresh_queue, status):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    wire.ack(message, status)
    lease = message["leaseId"]
    assert wire.extend(lease) == DEAD | {"leaseId": lease}


@pytest.mark.parametrize("lease_id", [UNKNOWN_UUID, "no-such-lease", "x" * 200, "é/ %"])
def test_an_unknown_lease_is_an_object_that_says_nothing_was_renewed(wire, lease_id):
    assert wire.extend(lease_id) == DEAD | {"leaseId": lease_id}


@pytest.mark.parametrize("seconds", ["60", 1.5, True, [1], 10**30, -(10**30)])
def test_odd_seconds_never_break_the_route(wire, lease, seconds):
    answer = wire.post(f"/api/v1/lease/{lease}/extend", {"seconds": seconds})
    expect(answer, 200, 400)
