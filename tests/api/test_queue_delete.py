"""DELETE /api/v1/resources/queues/:queue: gone for every reader, and nothing haunts it.

Method: HTTP against a real broker.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.wire_client import ack_of, expect


def test_a_delete_says_what_it_did_and_the_second_that_there_was_nothing(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    assert wire.delete(fresh_queue) == {"deleted": True, "queue": fresh_queue, "existed": True}
    assert wire.delete(fresh_queue) == {
        "deleted": False,
        "queue": fresh_queue,
        "existed": False,
        "message": "Queue not found, nothing was deleted",
    }
    expect(wire.get(wire.queue_path(fresh_queue)), 404)


def test_a_deleted_queue_starts_over_at_once(wire, fresh_queue):
    """A program that runs again deletes its queues first and reuses its names and ids."""
    wire.configure(fresh_queue, leaseTime=11, retryLimit=0)
    for run in range(3):
        rows = wire.push(fresh_queue, run, run + 0.5, ids=["t1", "t2"])
        assert [row["status"] for row in rows] == ["queued", "queued"]
        first, second = wire.messages(fresh_queue)
        assert (first["data"], first["deliveryAttempt"]) == (run, 1)
        wire.ack_batch(ack_of(first), ack_of(second, "dlq", error=f"run {run}"))
        assert [dead["data"] for dead in wire.dead_letters(fresh_queue)] == [run + 0.5]
        wire.delete(fresh_queue)
        assert wire.dead_letters(fresh_queue) == []


def test_a_deleted_queue_forgets_its_options(wire, fresh_queue):
    wire.configure(fresh_queue, leaseTime=11, retryLimit=0, namespace="n")
    wire.delete(fresh_queue)
    wire.push(fresh_queue, 1)
    options = wire.queue(fresh_queue)["options"]
    assert (options["leaseTime"], options["retryLimit"]) == (60, 3)


def test_a_deleted_queue_forgets_its_groups(wire, fresh_queue):
    wire.push(fresh_queue, "old")
    group = {"consumerGroup": "g"}
    assert wire.payloads(fresh_queue, **group) == []
    wire.delete(fresh_queue)
    wire.push(fresh_queue, "new")
    assert wire.payloads(fresh_queue, **group) == [], "a new group, which begins at now again"
    assert wire.payloads(fresh_queue, consumerGroup="h", subscriptionMode="all") == ["new"]


def test_a_deleted_partition_is_another_partition_when_it_comes_back(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [before] = wire.messages(fresh_queue)
    wire.delete(fresh_queue)
    wire.push(fresh_queue, 1)
    [after] = wire.messages(fresh_queue)
    assert after["partitionId"] != before["partitionId"]


@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dlq"])
@pytest.mark.parametrize("with_lease", [True, False])
def test_an_old_ack_fails_and_cannot_move_the_cursor_of_a_queue_that_came_back(
    wire, fresh_queue, status, with_lease
):
    wire.push(fresh_queue, 1, 2, ids=["t1", "t2"])
    old = wire.messages(fresh_queue)
    wire.delete(fresh_queue)
    changes = {} if with_lease else {"leaseId": None}
    assert wire.ack(old[1], status, **changes)["success"] is False

    wire.push(fresh_queue, 1, 2, ids=["t1", "t2"])
    new = wire.messages(fresh_queue)
    assert wire.ack(old[1], status, **changes)["success"] is False
    assert wire.ack(new[0])["noop"] is False
    assert wire.dead_letters(fresh_queue) == []


def test_the_leases_of_a_deleted_queue_are_dead(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    lease = wire.pop(fresh_queue)["leaseId"]
    wire.delete(fresh_queue)
    assert wire.extend(lease)["renewed"] == 0


def test_a_transaction_with_an_ack_of_a_deleted_queue_rolls_back(wire, fresh_queue):
    target = f"{fresh_queue}-target"
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    wire.delete(fresh_queue)
    answer = wire.transaction(
        {"type": "ack"} | ack_of(message), {"type": "push", "queue": target, "payload": 1}
    )
    assert answer["success"] is False
    assert wire.payloads(target) == []


def test_a_dead_letter_of_a_deleted_queue_cannot_be_replayed(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    wire.ack(message, "dlq")
    [dead] = wire.dead_letters(fresh_queue)
    wire.delete(fresh_queue)
    expect(wire.replay(dead["id"]), 404)


def test_a_pop_that_waits_through_a_delete_gets_what_the_new_queue_brings(wire, fresh_queue):
    wire.push(fresh_queue, "old")
    wire.pop(fresh_queue)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wire.payloads, fresh_queue, wait=True, timeout=10_000)
        wire.delete(fresh_queue)
        wire.push(fresh_queue, "new")
        assert waiting.result(timeout=15) == ["new"]


def test_pushes_and_pops_survive_deletes_going_on_beside_them(wire, fresh_queue):
    def push(number: int) -> None:
        for row in wire.push(fresh_queue, number, number, partition=str(number % 3)):
            assert row["status"] == "queued"
        wire.pop(fresh_queue, partitions=0, autoAck=True)

    with ThreadPoolExecutor(6) as pool:
        pushes = [pool.submit(push, number) for number in range(60)]
        for _ in range(6):
            wire.delete(fresh_queue)
        for each in pushes:
            each.result()
    wire.delete(fresh_queue)
    assert wire.payloads(fresh_queue) == []
