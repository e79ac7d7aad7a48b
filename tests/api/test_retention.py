"""Retention and figures as a client sees them, and what an operator is shown.

Method: HTTP against a real broker whose leader tasks come quickly; what is waited for is
that something is gone, bounded.
"""

import pytest

from tests.wire_client import ZERO_UUID, WireClient, expect

QUICK = {"RETENTION_INTERVAL": "100", "STATS_INTERVAL_MS": "3600000"}
FIGURES = "/api/v1/resources/queues"


@pytest.fixture
def wire(start_broker, fresh_database):
    database = fresh_database()
    with WireClient.at(start_broker(on=database, **QUICK).url) as wire:
        yield wire


def empty(wire, queue):
    return wire.queue(queue)["totals"]["total"] == 0


@pytest.mark.parametrize(
    "rules",
    [
        {"retentionEnabled": True, "retentionSeconds": 1},
        {"maxWaitTimeSeconds": 1},
    ],
)
def test_messages_past_their_time_go_and_a_cursor_among_them_resumes_behind(
    wire, fresh_queue, eventually, rules
):
    group = {"consumerGroup": "g", "subscriptionMode": "all"}
    wire.push_each(fresh_queue, 1, 2, 3)
    assert wire.payloads(fresh_queue, batch=1, autoAck=True, **group) == [1]
    wire.configure(fresh_queue, **rules)
    eventually(lambda: empty(wire, fresh_queue))
    assert wire.payloads(fresh_queue, **group) == []
    wire.push(fresh_queue, 4)
    assert wire.payloads(fresh_queue, autoAck=True, **group) == [4]
    assert wire.depth(fresh_queue, group="g")["pending"] == 0


def test_completed_messages_go_and_those_that_wait_for_a_group_stay(wire, fresh_queue, eventually):
    wire.push_each(fresh_queue, 1, 2)
    for group in ("fast", "slow"):
        batch = 2 if group == "fast" else 1
        wire.payloads(
            fresh_queue, consumerGroup=group, subscriptionMode="all", batch=batch, autoAck=True
        )
    wire.configure(fresh_queue, retentionEnabled=True, completedRetentionSeconds=1)
    eventually(lambda: wire.queue(fresh_queue)["totals"]["total"] == 1)
    assert wire.payloads(fresh_queue, consumerGroup="slow", autoAck=True) == [2]
    eventually(lambda: empty(wire, fresh_queue))


def test_what_retention_took_is_a_duplicate_without_an_id(wire, fresh_queue, eventually):
    wire.configure(fresh_queue, maxWaitTimeSeconds=1)
    wire.push(fresh_queue, 1, ids=["t"])
    eventually(lambda: empty(wire, fresh_queue))
    [row] = wire.push(fresh_queue, 1, ids=["t"])
    assert (row["status"], row["message_id"]) == ("duplicate", ZERO_UUID)


def test_what_was_done_is_shown_in_the_metrics(wire, fresh_queue, eventually):
    def told():
        return wire.get("/metrics/prometheus").text.splitlines()

    assert 'queen_retention_messages_total{rule="eviction"} 0.0' in told()
    wire.configure(fresh_queue, maxWaitTimeSeconds=1)
    wire.push(fresh_queue, 1, 2)
    eventually(lambda: 'queen_retention_messages_total{rule="eviction"} 2.0' in told())
    names = {line.split("{")[0].split(" ")[0] for line in told()}
    assert {
        "queen_leader_cycles_total",
        "queen_leader_failures_total",
        "queen_leader_fenced_total",
        "queen_leader_cycle_milliseconds",
        "queen_retention_segments_total",
        "queen_retention_bytes_total",
        "queen_retention_partitions_total",
    } <= names


@pytest.mark.parametrize("body", [None, {}, b"anything"])
def test_a_refresh_counts_everything_and_the_list_shows_it(wire, fresh_queue, eventually, body):
    # A new broker counts once by itself; the next time is an hour away.
    counted = 'queen_leader_cycles_total{task="statistics"} 1.0'
    eventually(lambda: counted in wire.get("/metrics/prometheus").text)
    wire.push(fresh_queue, 1, 2, partition="a")
    wire.push(fresh_queue, 3, partition="b")
    summary = expect(wire.post("/api/v1/stats/refresh", body), 200).json()
    assert (summary["engine"], summary["segPartitions"]) == ("segments", 2)
    assert summary["queue"]["queuesUpdated"] == 1
    wire.payloads(fresh_queue, "a", autoAck=True)
    wire.push(fresh_queue, 4)
    [row] = wire.get(FIGURES).json()["queues"]
    assert row["messages"] == {"total": 3, "pending": 3, "processing": 0}, "as last counted"
    wire.post("/api/v1/stats/refresh", body)
    [row] = wire.get(FIGURES).json()["queues"]
    assert (row["partitions"], row["messages"]["total"], row["messages"]["pending"]) == (3, 4, 2)


def test_a_refresh_of_nothing_is_an_object(wire):
    answer = expect(wire.post("/api/v1/stats/refresh"), 200).json()
    assert answer["segPartitions"] == 0
    expect(wire.get("/api/v1/stats/refresh"), 405)
