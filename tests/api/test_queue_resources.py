"""GET /api/v1/resources/queues, one queue, and its depth.

Method: HTTP against a real broker. Depth is contracted to be live, so its numbers are
asserted; the listings may be as old as the last statistics, so only their shape is.
"""

import pytest

from brokers.domain import DEFAULT_TENANT
from tests.wire_client import ack_of, expect

OPTION_NAMES = {
    "leaseTime",
    "retryLimit",
    "deadLetterQueue",
    "dlqAfterMaxRetries",
    "delayedProcessing",
    "windowBuffer",
    "minPopWaitTime",
    "retentionEnabled",
    "retentionSeconds",
    "completedRetentionSeconds",
    "maxWaitTimeSeconds",
    "encryptionEnabled",
    "dedupWindowSeconds",
    "retentionSinkHold",
    "retentionSinkHoldMaxSeconds",
    "priority",
    "ttl",
    "maxSize",
    "retryDelay",
}


def numbers(depth: dict) -> tuple[int, int, int]:
    return depth["pending"], depth["processing"], depth["ready"]


def test_the_list_shows_every_queue_with_its_figures(wire, fresh_queue):
    wire.push(f"{fresh_queue}.a", 1)
    wire.configure(f"{fresh_queue}.b")
    for params in ({}, {"stats": "cached"}, {"limit": 1, "offset": 5, "namespace": "x"}):
        answer = expect(wire.get("/api/v1/resources/queues", **params), 200).json()
        rows = {row["name"]: row for row in answer["queues"]}
        assert {f"{fresh_queue}.a", f"{fresh_queue}.b"} <= set(rows)
        row = rows[f"{fresh_queue}.a"]
        assert row["namespace"] == fresh_queue
        assert row["task"] == "a"
        assert row["createdAt"].endswith("Z")
        assert isinstance(row["id"], str)
        assert isinstance(row["partitions"], int)
        assert isinstance(row["retainedBytes"], int)
        assert {"segments", "messages"} <= set(row["segments"])
        assert {"total", "pending", "processing"} <= set(row["messages"])


def test_the_list_tells_what_the_tenant_has_of_key_value_state_and_timers(wire, db, fresh_queue):
    db.execute(
        "INSERT INTO queen_holding (tenant_id, kind, rows, bytes, counted_at)"
        " VALUES (%(tenant)s, 'kv', 7, 700, now()), (%(tenant)s, 'timers', 3, 30, now())"
        " ON CONFLICT (tenant_id, kind) DO UPDATE"
        " SET rows = excluded.rows, bytes = excluded.bytes, counted_at = excluded.counted_at",
        {"tenant": DEFAULT_TENANT},
    )
    # A write of ours, so that no answer from before is told again.
    wire.configure(fresh_queue)
    answer = expect(wire.get("/api/v1/resources/queues", stats="cached"), 200).json()
    told = {name: value for name, value in answer.items() if name != "queues"}
    assert told == {"kvBytes": 700, "timerBytes": 30, "kvRows": 7}


def test_one_queue_shows_its_options_and_partitions(wire, fresh_queue):
    configured = wire.configure(fresh_queue, leaseTime=33)
    wire.push(fresh_queue, 1, partition="a")
    wire.push(fresh_queue, 2, partition="b")
    [message] = wire.messages(fresh_queue, "a")

    queue = wire.queue(fresh_queue)

    assert queue["id"] == configured["queueId"]
    assert queue["name"] == fresh_queue
    assert {"namespace", "task", "createdAt", "totals", "retainedBytes", "segments"} <= set(queue)
    assert set(queue["options"]) >= OPTION_NAMES
    assert queue["options"]["leaseTime"] == 33
    partitions = {row["name"]: row for row in queue["partitions"]}
    assert set(partitions) == {"a", "b"}
    assert partitions["a"]["id"] == message["partitionId"]
    assert partitions["a"]["createdAt"].endswith("Z")
    stats = {"total", "pending", "processing", "completed", "failed", "deadLetter"}
    assert stats <= set(partitions["a"]["stats"])
    assert partitions["a"]["stats"]["failed"] is None
    assert {"oldestMessage", "newestMessage"} <= set(partitions["a"])
    assert stats <= set(queue["totals"])
    assert queue["totals"]["failed"] is None


@pytest.mark.parametrize("suffix", ["", "/depth"])
def test_an_unknown_queue_is_a_404_that_says_so(wire, fresh_queue, suffix):
    answer = expect(wire.get(wire.queue_path(fresh_queue) + suffix), 404)
    assert answer.json()["error"] == "Queue not found"


@pytest.mark.parametrize("suffix", ["", "/depth"])
def test_partitions_come_in_pages_and_the_totals_are_of_all(wire, fresh_queue, suffix):
    for name in "abc":
        wire.push(fresh_queue, 1, partition=name)
    path = wire.queue_path(fresh_queue) + suffix
    key = "partition" if suffix else "name"

    def page(**params) -> tuple[list[str], str | None]:
        answer = expect(wire.get(path, **params), 200)
        told = answer.json()
        assert (told if suffix else told["totals"])["pending"] == 3
        names = [row[key] for row in told["partitions"]]
        return names, answer.headers.get("x-queen-next-offset")

    assert page() == (["a", "b", "c"], None)
    assert page(limit=2) == (["a", "b"], "2")
    assert page(limit=2, offset=1) == (["b", "c"], None)
    assert page(limit=0, offset=-1) == (["a"], "1")
    assert page(limit=2**62, offset=2**62) == ([], None)
    expect(wire.get(path, limit="abc"), 400)


def test_depth_follows_push_pop_and_ack(wire, fresh_queue):
    wire.push(fresh_queue, *range(5))
    depth = wire.depth(fresh_queue)
    assert depth["queue"] == fresh_queue
    assert depth["group"] is None
    assert numbers(depth) == (5, 0, 5)

    messages = wire.messages(fresh_queue, batch=3)
    assert numbers(wire.depth(fresh_queue)) == (5, 3, 2)
    wire.ack(messages[0])
    assert numbers(wire.depth(fresh_queue)) == (4, 2, 2)
    wire.ack(messages[2])
    assert numbers(wire.depth(fresh_queue)) == (2, 0, 2)
    wire.pop(fresh_queue, autoAck=True)
    assert numbers(wire.depth(fresh_queue)) == (0, 0, 0)


def test_depth_is_told_for_each_partition(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2, partition="a")
    wire.push(fresh_queue, 3, partition="b")
    wire.pop(fresh_queue, "a")
    depth = wire.depth(fresh_queue)
    assert (depth["partitionsPending"], depth["partitionsReady"]) == (2, 1)
    rows = {row["partition"]: numbers(row) for row in depth["partitions"]}
    assert rows["a"] == (2, 2, 0)
    assert rows["b"] == (1, 0, 1)


def test_depth_of_a_group_is_its_own(wire, fresh_queue):
    wire.push(fresh_queue, *range(4))
    messages = wire.messages(fresh_queue, consumerGroup="g", subscriptionMode="all", batch=3)
    wire.ack_batch(ack_of(messages[0]), group="g")
    depth = wire.depth(fresh_queue, group="g")
    assert depth["group"] == "g"
    assert numbers(depth) == (3, 2, 1)
    assert depth["conflation"] is False


def test_depth_of_a_conflating_group_counts_partitions_as_effective(wire, fresh_queue):
    wire.push_each(fresh_queue, 1, 2, 3, partition="a")
    wire.push_each(fresh_queue, 1, 2, partition="b")
    conflating = {"consumerGroup": "g", "subscriptionMode": "all", "conflation": True}
    wire.pop(fresh_queue, "a", **conflating)
    depth = wire.depth(fresh_queue, group="g")
    assert depth["conflation"] is True
    assert depth["effectivePending"] == depth["partitionsPending"] == 2
    assert depth["effectiveReady"] == depth["partitionsReady"] == 1


def test_depth_of_an_empty_queue_is_zero(wire, fresh_queue):
    wire.configure(fresh_queue)
    depth = wire.depth(fresh_queue)
    assert numbers(depth) == (0, 0, 0)
    assert depth["partitions"] == []
