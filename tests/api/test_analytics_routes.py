"""Analytics: what was counted over time, in buckets; and what a broker writes of itself.

Method: HTTP against a real broker, whose history the test writes by the broker's own procedure
where it needs figures of its own; one test lets a broker write what it counted.
"""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from brokers.flow.tally import COLUMNS, Counts
from brokers.store import history_calls
from tests.store.calling import call
from tests.wire_client import WireClient, ack_of, error_of, expect

ANALYTICS = "/api/v1/analytics"
LENGTHS = [
    (timedelta(minutes=60), 1),
    (timedelta(hours=6), 5),
    (timedelta(hours=24), 15),
    (timedelta(days=7), 60),
    (timedelta(days=30), 360),
]
POINT = {
    "timestamp",
    "pushMessages",
    "popMessages",
    "ackMessages",
    "pushRequests",
    "popRequests",
    "ackRequests",
    "ackSuccess",
    "ackFailed",
    "dlqCount",
    "dbErrors",
    "pushPerSecond",
    "popPerSecond",
    "ackPerSecond",
    "avgEventLoopLagMs",
    "maxEventLoopLagMs",
    "avgLagMs",
    "maxLagMs",
    "lagCount",
    "dbConnections",
    "avgFreeSlots",
    "minFreeSlots",
    "jobsDone",
    "avgJobQueueSize",
    "maxJobQueueSize",
    "backoffSize",
}


def read(wire, path, **params):
    return expect(wire.get(f"{ANALYTICS}/{path}", **params), 200).json()


@pytest.fixture
def counted(wire, db):
    """Let a broker have counted so much for a queue, in the present minute."""

    def add(queue, server="other-broker", **counts):
        wire.configure(queue)
        row = db.execute("SELECT id FROM queen_queue WHERE name = %s", [queue]).fetchone()
        numbers = [getattr(Counts(**counts), name) for name in COLUMNS]
        call(db, history_calls.queue_counter_add, server, [(row[0], numbers)])

    return add


@pytest.mark.parametrize(("length", "minutes"), LENGTHS)
def test_the_longer_the_window_the_wider_its_buckets(wire, length, minutes):
    now = datetime.now(UTC)
    params = {"from": (now - length).isoformat(), "to": now.isoformat()}
    for path in ("queue-ops", "queue-parked-replicas", "retention", "workload", "worker-metrics"):
        answer = read(wire, path, **params)
        assert answer["bucketMinutes"] == minutes
        assert answer["timeRange"]["from"].endswith("Z")


@pytest.mark.parametrize(("length", "minutes"), LENGTHS)
def test_a_count_is_there_once_whatever_the_width(wire, fresh_queue, counted, length, minutes):
    counted(fresh_queue, push_messages=7, pop_messages=3)
    now = datetime.now(UTC)
    params = {"from": (now - length).isoformat(), "queue": fresh_queue}
    series = read(wire, "queue-ops", **params)["series"]
    assert sum(point["pushMessages"] for point in series) == 7
    assert sum(point["popMessages"] for point in series) == 3


def test_operations_of_all_brokers_are_added_up(wire, fresh_queue, counted):
    for server in ("one", "two"):
        counted(
            fresh_queue,
            server,
            push_requests=2,
            push_messages=60,
            pop_requests=4,
            pop_messages=30,
            pop_empty=1,
            ack_requests=3,
            ack_success=20,
            ack_failed=10,
            transactions=5,
            pop_lag_ms=3000,
            pop_lag_count=30,
            pop_lag_max_ms=400,
            parked=2,
            parked_samples=1,
        )
    answer = read(wire, "queue-ops", queue=fresh_queue)
    assert answer["queues"] == [fresh_queue]
    points = answer["series"]
    assert {point["queueName"] for point in points} == {fresh_queue}
    total = {
        name: sum(point[name] for point in points)
        for name in ("pushRequests", "pushMessages", "popMessages", "popEmpty", "ackSuccess")
    }
    assert total == {
        "pushRequests": 4,
        "pushMessages": 120,
        "popMessages": 60,
        "popEmpty": 2,
        "ackSuccess": 40,
    }
    point = points[0]
    assert (point["avgLagMs"], point["maxLagMs"]) == (100, 400)
    assert point["pushPerSecond"] == pytest.approx(point["pushMessages"] / 60, abs=0.001)
    assert sum(point["parkedCount"] for point in points) == 4
    lag = read(wire, "queue-lag", queue=fresh_queue)
    assert sum(row["popCount"] for row in lag) == 60
    assert {(row["avgLagMs"], row["maxLagMs"], row["bucketMinutes"]) for row in lag} == {
        (100, 400, 1)
    }
    parked = read(wire, "queue-parked-replicas", queue=fresh_queue)
    assert {row["hostname"] for row in parked["replicas"]} == {"one", "two"}
    assert {row["parkedCount"] for row in parked["series"]} == {2}
    assert {row["workerId"] for row in parked["series"]} == {0}


def test_a_bucket_without_deliveries_has_no_lag_and_one_without_waiters_is_not_listed(
    wire, fresh_queue, counted
):
    counted(fresh_queue, push_messages=1, parked_samples=1)
    [row] = read(wire, "queue-lag", queue=fresh_queue)
    assert row["popCount"] == 0 and row["avgLagMs"] is None and row["maxLagMs"] is None
    assert read(wire, "queue-parked-replicas", queue=fresh_queue)["series"] == []


def test_only_the_busiest_queues_are_listed_newest_bucket_first(wire, fresh_queue, counted):
    for number in range(3):
        counted(f"{fresh_queue}-{number}", push_messages=10_000_000 + number)
    rows = read(wire, "queue-lag", limit=2)
    assert {row["queueName"] for row in rows} == {f"{fresh_queue}-1", f"{fresh_queue}-2"}
    times = [row["bucketTime"] for row in rows]
    assert times == sorted(times, reverse=True)


def test_workload_is_told_by_key_and_for_the_tenant(wire, fresh_queue, counted):
    space = f"ns{fresh_queue}"
    counted(f"{space}.a", push_messages=5, pop_lag_ms=10, pop_lag_count=2, pop_lag_max_ms=9)
    counted(f"{space}.b", push_messages=6, pop_messages=1)
    wire.push(f"{space}.b", 1)
    expect(wire.post("/api/v1/stats/refresh"), 200)
    answer = read(wire, "workload", groupBy="namespace", namespace=space)
    assert answer["groupBy"] == "namespace"
    assert len(answer["buckets"]) in (60, 61)
    [row] = answer["rows"]
    assert row["key"] == space and row["queues"] == 2
    assert row["window"]["pushMessages"] == 11
    assert (row["window"]["avgLagMs"], row["window"]["maxLagMs"]) == (5, 9)
    assert all(len(values) == len(answer["buckets"]) for values in row["series"].values())
    assert sum(value or 0 for value in row["series"]["push"]) == 11
    assert None in row["series"]["push"]
    assert row["now"]["pending"] == 1 and row["now"]["partitions"] == 1
    assert row["now"]["queuesWithoutGroup"] == 2 and row["now"]["pendingWithoutGroup"] == 1
    assert (row["now"]["queuesTouched"], row["now"]["queuesActive"]) == (2, 2)
    assert answer["tenant"]["queues"] >= 2
    assert answer["tenant"]["window"]["pushMessages"] >= 11
    assert "key" not in answer["tenant"]
    rows = read(wire, "workload", groupBy="queue", namespace=space)["rows"]
    assert [row["key"] for row in rows] == [f"{space}.b", f"{space}.a"]
    assert (rows[0]["namespace"], rows[0]["task"]) == (space, "b")
    assert [row["key"] for row in read(wire, "workload", groupBy="task", task="a")["rows"]] == ["a"]


@pytest.mark.parametrize("path", ["workload", "retention"])
def test_an_unknown_grouping_is_400(wire, path):
    assert error_of(wire.get(f"{ANALYTICS}/{path}", groupBy="color"), 400) == "bad groupBy"


def test_what_retention_deleted_is_told_by_rule_and_survives_its_queue(wire, fresh_queue, db):
    for name in (f"{fresh_queue}.a", f"{fresh_queue}.b"):
        wire.configure(name)
    db.execute(
        "INSERT INTO queen_retention_history (bucket, queue_id, tenant_id, retention_messages,"
        " completed_messages, eviction_messages, events)"
        " SELECT date_trunc('minute', now()), id, tenant_id, 3, 2, 1, 4 FROM queen_queue"
        " WHERE namespace = %s",
        [fresh_queue],
    )
    figures = {
        "retentionMsgs": 3,
        "completedRetentionMsgs": 2,
        "evictionMsgs": 1,
        "totalMsgs": 6,
        "eventCount": 4,
    }
    answer = read(wire, "retention", queue=f"{fresh_queue}.a")
    assert "rows" not in answer
    assert answer["totals"] == figures
    [point] = answer["series"]
    assert point.pop("bucket").endswith("Z")
    assert point == figures
    rows = read(wire, "retention", groupBy="namespace", limit=1000)["rows"]
    [row] = [row for row in rows if row["key"] == fresh_queue]
    assert row["queues"] == 2 and row["totalMsgs"] == 12
    before = read(wire, "retention")["totals"]
    wire.delete(f"{fresh_queue}.a")
    assert read(wire, "retention")["totals"] == before
    rows = read(wire, "retention", groupBy="queue", limit=1000)["rows"]
    assert [row["key"] for row in rows if fresh_queue in row["key"]] == [f"{fresh_queue}.b"]


def test_liveness_counts_partitions_by_their_last_write(wire, fresh_queue, db):
    for number in range(3):
        wire.push(f"{fresh_queue}.t", 1, partition=f"p{number}")
    db.execute(
        "UPDATE queen_partition SET last_write_at = now() - interval '2 days' WHERE name = 'p0'"
        " AND queue_id = (SELECT id FROM queen_queue WHERE name = %s)",
        [f"{fresh_queue}.t"],
    )
    expect(wire.post("/api/v1/stats/refresh"), 200)
    answer = read(wire, "partition-liveness", namespace=fresh_queue)
    [row] = answer["rows"]
    assert answer["capturedAt"].endswith("Z")
    assert row["queue"] == f"{fresh_queue}.t" and row["task"] == "t"
    assert (row["partitions"], row["live1h"], row["live24h"], row["live7d"]) == (3, 2, 2, 3)
    assert row["created24h"] == 3 and row["pending"] == 3
    assert row["oldestWriteAt"] < row["newestWriteAt"]
    wire.push(fresh_queue, 1)
    named = {row["queue"] for row in read(wire, "partition-liveness", limit=200)["rows"]}
    assert named
    unnamed = read(wire, "partition-liveness", namespace="", queue=fresh_queue)["rows"]
    assert [row["queue"] for row in unnamed] == [fresh_queue]
    assert read(wire, "partition-liveness", namespace="", queue=f"{fresh_queue}.t")["rows"] == []


def test_messages_over_time_come_by_the_interval_that_is_asked_for(wire, fresh_queue, counted):
    counted(fresh_queue, push_messages=9)
    for interval, told in (("minute", "minute"), ("hour", "hour"), ("day", "day"), ("x", "hour")):
        answer = expect(
            wire.get("/api/v1/status/analytics", interval=interval, queue=fresh_queue), 200
        ).json()
        assert answer["interval"] == told
        assert sum(point["messages"] for point in answer["dataPoints"]) == 9
        assert answer["from"] < answer["to"]


def test_postgres_tells_how_it_is(wire):
    answer = read(wire, "postgres-stats")
    assert set(answer) == {
        "timestamp",
        "database",
        "databaseCache",
        "tableCache",
        "indexCache",
        "cacheSummary",
        "deadTuples",
        "hotUpdates",
        "activeQueries",
        "autovacuumStatus",
        "bufferConfig",
        "bufferUsage",
        "tableSizes",
    }
    assert answer["database"]["sizeBytes"] > 0
    assert any(row["table"] == "queen_partition" for row in answer["tableSizes"])


def test_what_a_person_asks_postgresql_is_told_without_its_words(wire, database, eventually):
    with ThreadPoolExecutor(1) as pool, database.connect() as person:
        asking = pool.submit(person.execute, "SELECT pg_sleep(60), 'the words of a person'")

        def seen() -> list[dict]:
            rows = read(wire, "postgres-stats")["activeQueries"]
            return [row for row in rows if row["pid"] == person.info.backend_pid]

        [row] = eventually(seen, 30)
        assert row["query"] == "not shown: it is no broker's"
        person.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            asking.result(30)


@pytest.fixture
def busy(start_broker, fresh_database):
    """A broker of the test's own that writes its history every second, and its client."""
    broker = start_broker(on=fresh_database(), METRICS_FLUSH_MS="1000", STATS_INTERVAL_MS="200")
    with WireClient.at(broker.url) as wire:
        yield wire


def test_a_broker_writes_what_it_counted_and_measured(busy, fresh_queue, eventually):
    wire = busy
    wire.push(fresh_queue, 1, 2, 3)
    messages = wire.messages(fresh_queue, batch=2)
    wire.ack_batch(*(ack_of(message) for message in messages))
    [last] = wire.messages(fresh_queue)
    wire.ack(last, "dlq")
    wire.pop(fresh_queue)

    def written():
        points = read(wire, "queue-ops", queue=fresh_queue)["series"]
        # The last of what was done: a flush may come between any two.
        return sum(point["popEmpty"] for point in points) == 1 and points

    points = eventually(written, 20)
    sums = {
        name: sum(point[name] for point in points)
        for name in ("pushMessages", "popMessages", "popEmpty", "ackSuccess", "ackRequests")
    }
    assert sums == {
        "pushMessages": 3,
        "popMessages": 3,
        "popEmpty": 1,
        "ackSuccess": 2,
        "ackRequests": 2,
    }
    assert any(point["avgLagMs"] is not None for point in points)

    def worker():
        answer = read(wire, "worker-metrics")
        return answer["summary"]["dlqCount"] == 1 and answer

    answer = eventually(worker, 20)
    assert set(answer["timeSeries"][0]) >= POINT
    [one] = answer["workers"]
    assert one["healthy"] is True and one["workerId"] == 0
    assert answer["summary"]["pushMessages"] == 3
    assert answer["queues"][0]["queueName"] == fresh_queue
    assert read(wire, "worker-metrics", hostname="nobody")["workers"] == []
    assert read(wire, "worker-metrics", workerId="7")["workers"] == []
    only = read(wire, "worker-metrics", queue="nothing")
    assert only["summary"]["pushMessages"] == 0
    system = read(wire, "system-metrics", hostname=one["hostname"])
    [replica] = system["replicas"]
    metrics = replica["timeSeries"][-1]["metrics"]
    assert set(metrics["memory"]["rss_bytes"]) == {"avg", "min", "max", "last"}
    assert metrics["memory"]["rss_bytes"]["last"] > 1_000_000
    assert metrics["database"]["pool_size"]["last"] >= 1
    assert metrics["threadpool"] is None and metrics["shared_state"]["enabled"] is False
    cell = expect(wire.get("/api/v1/status", queue=fresh_queue), 200).json()
    assert sum(point["pushMessages"] for point in cell["throughput"]) == 3
    assert cell["workers"]

    def born():
        points = read(wire, "queue-ops", queue=fresh_queue)["series"]
        return points[-1]["partitionCount"] == 1

    eventually(born, 20)


def samples(wire):
    values = {}
    for family in text_string_to_metric_families(wire.get("/metrics/prometheus").text):
        for sample in family.samples:
            values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return values


def test_a_scrape_tells_of_the_cell_and_of_queues(busy, fresh_queue, eventually):
    wire = busy
    # What is told of the latest minute must all be of one minute.
    eventually(lambda: time.time() % 60 < 40, 30)
    wire.push(fresh_queue, 1, 2, 3)
    wire.ack(wire.messages(fresh_queue, batch=1)[0], "dlq")
    scope, queue = ("scope", "cluster"), ("queue", fresh_queue)
    lag = ("queen_queue_pop_lag_milliseconds", (queue, ("stat", "max")))
    awaited = {
        # Looks at what is stored, and flushes of what was done: each at its own time.
        ("queen_dlq_depth_by_queue", (queue,)): 1.0,
        ("queen_dlq_depth", (scope,)): 1.0,
        ("queen_cluster_dlq_total", (scope,)): 1.0,
        ("queen_queue_push_messages_per_minute", (queue,)): 3.0,
    }

    def told():
        values = samples(wire)
        return awaited.items() <= values.items() and lag in values and values

    values = eventually(told, 30)
    assert values["queen_cluster_push_messages_total", (scope,)] == 3
    assert values["queen_cluster_ack_total", (("result", "success"), scope)] == 1
    assert values["queen_queue_metrics_age_seconds", (queue,)] >= 0
    assert values[lag] >= 0
    assert values["queen_batch_rtt_milliseconds", (("op", "push"), ("quantile", "0.5"))] > 0
    assert values["queen_pop_wildcard_total", ()] >= 1
    assert not [name for name, _ in values if name.startswith("queen_queue_depth")]


def test_the_figures_of_a_process_are_json_too(wire, fresh_queue):
    before = expect(wire.get("/metrics"), 200).json()
    wire.push(fresh_queue, 1, 2)
    after = expect(wire.get("/metrics"), 200).json()
    assert after["messages"]["total"] - before["messages"]["total"] == 2
    assert after["requests"]["total"] - before["requests"]["total"] == 1
    assert after["requests"]["rate"] == after["messages"]["rate"] == 0
    assert after["database"]["waitingRequests"] == 0 and after["database"]["poolSize"] >= 1
    assert after["memory"]["rss"] > 1_000_000
    assert {name: after["memory"][name] for name in after["memory"] if name != "rss"} == {
        "heapTotal": 0,
        "heapUsed": 0,
        "external": 0,
        "arrayBuffers": 0,
    }
    assert after["cpu"] == {"user": 0, "system": 0}
    assert isinstance(after["uptime"], int)


def test_history_is_a_tenants_own(start_broker, fresh_queue, db):
    broker = start_broker(QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true")
    mine, theirs = ({"x-queen-tenant": str(uuid.uuid4())} for _ in range(2))
    with WireClient.at(broker.url, mine) as wire, WireClient.at(broker.url, theirs) as other:
        wire.configure(fresh_queue)
        row = db.execute("SELECT id FROM queen_queue WHERE name = %s", [fresh_queue]).fetchone()
        numbers = [getattr(Counts(push_messages=5, parked=1), name) for name in COLUMNS]
        call(db, history_calls.queue_counter_add, "s", [(row[0], numbers)])
        assert read(wire, "queue-lag")[0]["queueName"] == fresh_queue
        assert read(wire, "queue-parked-replicas")["series"]
        assert read(other, "queue-lag") == []
        assert read(other, "queue-ops")["series"] == []
        assert read(other, "queue-parked-replicas")["series"] == []
        assert read(other, "workload")["tenant"]["window"]["pushMessages"] == 0
