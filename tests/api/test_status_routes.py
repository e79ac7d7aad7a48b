"""What there is: status of the cell and of queues, overview, namespaces, tasks, changed partitions.

Method: HTTP against a real broker; figures that are those of the last count are looked at after
a count that the test asks for.
"""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from tests.wire_client import WireClient, error_of, expect, segment

CHANGED = "/api/v1/partitions/changed"
STATUS = "/api/v1/status"
TENANTS = {"QUEEN_TENANCY_HEADER": "true", "QUEEN_KV_TRUSTED_PROXY": "true"}
MESSAGES = {"total", "pending", "processing", "completed", "failed", "deadLetter"}
READS = [
    STATUS,
    f"{STATUS}/queues",
    f"{STATUS}/analytics",
    "/api/v1/resources/overview",
    "/api/v1/resources/namespaces",
    "/api/v1/resources/tasks",
    "/api/v1/analytics/queue-lag",
    "/api/v1/analytics/queue-ops",
    "/api/v1/analytics/queue-parked-replicas",
    "/api/v1/analytics/retention",
    "/api/v1/analytics/workload",
    "/api/v1/analytics/partition-liveness",
    "/api/v1/analytics/system-metrics",
    "/api/v1/analytics/worker-metrics",
    "/api/v1/analytics/postgres-stats",
    "/metrics",
    "/auth/me",
    "/auth/login",
]


def count(wire):
    expect(wire.post("/api/v1/stats/refresh"), 200)


def read(wire, path, **params):
    return expect(wire.get(path, **params), 200).json()


def changed(wire, *entries):
    return expect(wire.post(CHANGED, {"entries": list(entries)}), 200).json()


@pytest.mark.parametrize("path", READS)
def test_another_method_is_405_and_a_head_is_a_get_without_its_body(wire, path):
    for method in ("POST", "DELETE"):
        answer = expect(wire.http.request(method, path), 405)
        assert "GET" in answer.headers["allow"]
    answer = expect(wire.http.head(path), 200)
    assert answer.content == b""


@pytest.mark.parametrize(
    "path", [path for path in READS if "status" in path or "analytics" in path]
)
def test_a_window_that_is_none_is_400(wire, path):
    if path.endswith(("postgres-stats", "partition-liveness")):
        return
    for params in ({"from": "x"}, {"to": "9" * 99}, {"from": "0001-01-01T00:00:00Z"}):
        error_of(wire.get(path, **params), 400)
    turned = {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
    assert error_of(wire.get(path, **turned), 400) == "from must not be later than to"


def test_a_page_of_queues_is_filtered_and_ordered(wire, fresh_queue):
    names = [f"{fresh_queue}.t{number}" for number in range(3)]
    for name in names:
        wire.push(name, 1, 2)
    count(wire)
    answer = read(wire, f"{STATUS}/queues", namespace=fresh_queue, limit=2)
    assert [row["name"] for row in answer["queues"]] == names[:2]
    assert answer["pagination"] == {"limit": 2, "offset": 0}
    row = answer["queues"][0]
    assert row["messages"] == {
        "total": 2,
        "pending": 2,
        "processing": 0,
        "completed": 0,
        "deadLetter": 0,
    }
    assert (row["namespace"], row["task"], row["partitions"]) == (fresh_queue, "t0", 1)
    assert row["createdAt"].endswith("Z") and uuid.UUID(row["id"])
    rest = read(wire, f"{STATUS}/queues", namespace=fresh_queue, limit=2, offset=2)
    assert [row["name"] for row in rest["queues"]] == names[2:]
    one = read(wire, f"{STATUS}/queues", queue=names[1])
    assert [row["name"] for row in one["queues"]] == names[1:2]
    assert read(wire, f"{STATUS}/queues", task="t2", namespace="other")["queues"] == []
    assert read(wire, f"{STATUS}/queues", limit=10**9)["pagination"]["limit"] == 1000
    error_of(wire.get(f"{STATUS}/queues", limit="many"), 400)


def test_one_queue_is_shown_as_it_is(wire, fresh_queue):
    wire.configure(fresh_queue, leaseTime=44)
    wire.push(fresh_queue, 1, 2, 3, partition="a")
    wire.push(fresh_queue, 4, partition="b")
    [message] = wire.messages(fresh_queue, "a", batch=1)
    wire.ack(message)
    wire.messages(fresh_queue, "a", batch=1)
    path = f"{STATUS}/queues/{segment(fresh_queue)}"
    answer = read(wire, path, includePartitions="true")
    assert answer["queue"]["name"] == fresh_queue
    assert len(answer["queue"]["config"]) == 6
    assert answer["queue"]["config"]["leaseTime"] == 44
    assert answer["totals"] == {
        "partitions": 2,
        "total": 4,
        "pending": 3,
        "processing": 1,
        "completed": 1,
        "failed": None,
        "deadLetter": 0,
    }
    first, second = answer["partitions"]
    assert (first["name"], second["name"]) == ("a", "b")
    assert first["messages"] == first["stats"]
    assert set(first["stats"]) == MESSAGES
    assert first["stats"]["failed"] is None and first["stats"]["pending"] == 2
    assert first["cursor"]["batchesConsumed"] == 0
    assert first["cursor"]["committed"] == 0 and first["cursor"]["totalConsumed"] == 1
    assert first["lastActivity"].endswith("Z") and second["lastActivity"] is None
    assert first["oldestMessage"].endswith("Z") and first["newestMessage"].endswith("Z")
    page = read(wire, path, limit=1, offset=1)
    assert [row["name"] for row in page["partitions"]] == ["b"]
    assert page["totals"] == answer["totals"]
    assert error_of(wire.get(f"{STATUS}/queues/{fresh_queue}-none"), 404) == "Queue not found"


def test_the_status_of_the_cell_tells_its_totals(wire, fresh_queue):
    wire.push(fresh_queue, 1, 2)
    count(wire)
    answer = read(wire, STATUS)
    assert answer["bucketMinutes"] == 1
    assert answer["pointCount"] == len(answer["throughput"])
    assert answer["queues"]["total"] >= 1
    assert set(answer["messages"]) == MESSAGES
    assert answer["messages"]["total"] >= 2
    assert set(answer["errors"]) == {"dbErrors", "ackFailed", "dlqCount"}
    assert 0 <= answer["statsAge"] < 60
    one = read(wire, STATUS, queue=fresh_queue)
    assert one["queues"]["total"] == 1
    assert one["messages"]["total"] == one["messages"]["pending"] == 2
    none = read(wire, STATUS, queue=f"{fresh_queue}-none")
    assert none["queues"]["total"] == 0 and none["statsAge"] == -1


def test_the_overview_and_the_aggregates_add_up(wire, fresh_queue):
    space = f"ns{fresh_queue}"
    wire.push(f"{space}.pay", 1, 2)
    wire.push(f"{space}.ship", 3, partition="x")
    wire.push(fresh_queue, 4)
    wire.messages(f"{space}.pay", consumerGroup="g", subscriptionMode="all")
    count(wire)
    has = read(wire, "/api/v1/resources/overview")
    assert has["queues"] >= 3 and has["partitions"] >= 3
    assert set(has["messages"]) == MESSAGES
    for measure in ("time", "offset"):
        assert set(has["lag"][measure]) == {"avg", "median", "min", "max"}
    assert has["lag"]["offset"]["max"] >= 2
    assert set(has["throughput"]) == {"ingestedPerSecond", "processedPerSecond"}
    assert has["timestamp"].endswith("Z") and 0 <= has["statsAge"] < 60
    spaces = read(wire, "/api/v1/resources/namespaces", limit=10_000)["namespaces"]
    [mine] = [row for row in spaces if row["namespace"] == space]
    assert mine == {
        "namespace": space,
        "queues": 2,
        "partitions": 2,
        "messages": {"total": 3, "pending": 3},
    }
    tasks = read(wire, "/api/v1/resources/tasks", limit=10_000)["tasks"]
    assert {"pay", "ship"} <= {row["task"] for row in tasks}
    assert not [row for row in tasks if row["task"] == ""]
    answer = wire.get("/api/v1/resources/tasks", limit=1)
    assert len(expect(answer, 200).json()["tasks"]) == 1
    assert answer.headers["x-queen-next-offset"] == "1"


def test_all_partitions_of_a_queue_come_by_name_page_by_page(wire, fresh_queue):
    names = ["a/b", "é", "p0", "p1", "p2"]
    for name in names:
        wire.push(fresh_queue, 1, 2, partition=name)
    found, after = [], None
    for _ in range(9):
        answer = changed(wire, {"queue": fresh_queue, "limit": 2, "after": after})
        [entry] = answer["entries"]
        found += entry["partitions"]
        after = entry["next"]
        if after is None:
            break
    assert [row["name"] for row in found] == sorted(names, key=lambda name: name.encode())
    assert {(row["lastOffset"], row["logStart"]) for row in found} == {(1, 0)}
    assert all(row["lastWriteAt"].endswith("Z") for row in found)


def test_partitions_that_were_written_since_come_by_time(wire, fresh_queue, eventually):
    wire.push(fresh_queue, 1, partition="old")
    [old] = changed(wire, {"queue": fresh_queue})["entries"][0]["partitions"]
    since = datetime.fromisoformat(old["lastWriteAt"]) + timedelta(microseconds=1)
    for name in ("z", "y", "x"):
        wire.push(fresh_queue, 1, partition=name)
    found, after = [], None
    for _ in range(9):
        asked = {"queue": fresh_queue, "since": since.isoformat(), "limit": 1, "after": after}
        [entry] = changed(wire, asked)["entries"]
        found += entry["partitions"]
        after = entry["next"]
        if after is None:
            break
    assert [row["name"] for row in found] == ["z", "y", "x"]


def test_the_safe_time_is_behind_now_and_behind_writes_that_are_open(
    wire, fresh_queue, second_connection
):
    answer = changed(wire)
    assert answer["entries"] == [] and answer["safeTimeDegraded"] is False
    safe = datetime.fromisoformat(answer["safeTime"])
    assert timedelta(seconds=4) < datetime.now(UTC) - safe
    writer = second_connection()
    writer.execute("SELECT pg_current_xact_id()")
    began = writer.execute("SELECT now() - interval '10 seconds'").fetchone()
    assert began is not None
    later = datetime.fromisoformat(changed(wire)["safeTime"])
    assert later <= began[0] + timedelta(seconds=9)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"entries": None},
        {"entries": {}},
        {"entries": [1]},
        {"entries": [{}]},
        {"entries": [{"queue": ""}]},
        {"entries": [{"queue": 5}]},
        {"entries": [{"queue": "a\u0000"}]},
        {"entries": [{"queue": "q", "since": "soon"}]},
        {"entries": [{"queue": "q", "since": 5}]},
        {"entries": [{"queue": "q", "limit": "2"}]},
        {"entries": [{"queue": "q"}] * 65},
    ],
)
def test_a_look_for_changes_that_makes_no_sense_is_400(wire, body):
    error_of(wire.post(CHANGED, body), 400)


def test_an_unknown_queue_and_a_strange_cursor_are_told_of_their_entry(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    strange = [5, "", "%%%", "e30=", "WzEsMl0=", "x" * 9999, "é"]
    asked = [{"queue": fresh_queue, "after": one} for one in strange]
    timed = changed(wire, {"queue": fresh_queue, "limit": 1})["entries"][0]["next"]
    assert timed
    wrong = {"queue": fresh_queue, "after": timed, "since": "2026-01-01T00:00:00Z"}
    answer = changed(wire, {"queue": f"{fresh_queue}-none"}, {"queue": fresh_queue}, *asked, wrong)
    unknown, known, *rest = answer["entries"]
    assert unknown == {"queue": f"{fresh_queue}-none", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert known["partitions"][0]["name"] == "Default" and known["next"] is None
    assert {one.get("error") for one in rest} == {"BAD_CURSOR"}


def test_whoever_comes_without_a_token_where_none_is_asked_for_is_the_administrator(wire):
    me = read(wire, "/auth/me")
    assert me["standalone"] is True
    assert [cluster["id"] for cluster in me["clusters"]] == ["local"]
    assert me["role"] == "admin"
    login = expect(wire.get("/auth/login"), 200)
    assert login.headers["content-type"].startswith("text/html")
    expect(wire.post("/auth/logout"), 200)
    assert expect(wire.get("/auth/other"), 404).json()["code"] == "no_such_route"


def test_what_is_not_served_is_no_route(wire):
    for path in ("/api/v1/ephemeral/queues", "/api/v1/fetch", "/api/v1/status/x/y"):
        assert expect(wire.get(path), 404).json()["code"] == "no_such_route"
    assert expect(wire.post("/api/v1/fetch", {}), 404).json()["code"] == "no_such_route"


def test_an_empty_database_is_told_of_as_empty(start_broker, fresh_database, eventually):
    broker = start_broker(on=fresh_database())
    with WireClient.at(broker.url) as wire:
        for path in READS:
            expect(wire.get(path), 200)
        assert read(wire, "/api/v1/consumer-groups") == []
        assert read(wire, "/api/v1/consumer-groups/lagging") == []
        assert read(wire, "/api/v1/analytics/queue-lag") == []
        has = read(wire, "/api/v1/resources/overview")
        assert has["queues"] == 0 and has["lag"]["time"]["max"] == 0 and has["statsAge"] == -1
        assert read(wire, f"{STATUS}/queues")["queues"] == []
        retention = read(wire, "/api/v1/analytics/retention")
        assert retention["series"] == [] and set(retention["totals"].values()) == {0}
        work = read(wire, "/api/v1/analytics/workload")
        assert work["rows"] == [] and work["tenant"]["queues"] == 0
        assert read(wire, "/api/v1/analytics/partition-liveness")["rows"] == []
        # A scrape does not wait long for the figures of the cell.
        told = "queen_cluster_push_messages_total"
        eventually(lambda: told in wire.get("/metrics/prometheus").text)


def test_a_tenant_sees_its_own_and_the_cell_sees_all(start_broker, fresh_queue):
    broker = start_broker(**TENANTS)
    mine, theirs = ({"x-queen-tenant": str(uuid.uuid4())} for _ in range(2))
    with WireClient.at(broker.url, mine) as wire, WireClient.at(broker.url, theirs) as other:
        wire.push(f"{fresh_queue}.t", 1, 2)
        count(wire)
        for path, key in (
            (f"{STATUS}/queues", "queues"),
            ("/api/v1/resources/namespaces", "namespaces"),
            ("/api/v1/resources/tasks", "tasks"),
            ("/api/v1/analytics/partition-liveness", "rows"),
            ("/api/v1/analytics/workload", "rows"),
        ):
            assert read(wire, path)[key], path
            assert read(other, path)[key] == [], path
        assert read(wire, "/api/v1/resources/overview")["messages"]["total"] == 2
        assert read(other, "/api/v1/resources/overview")["queues"] == 0
        expect(other.get(f"{STATUS}/queues/{segment(fresh_queue)}.t"), 404)
        [entry] = changed(other, {"queue": f"{fresh_queue}.t"})["entries"]
        assert entry["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert read(other, STATUS)["messages"]["total"] >= 2
        bad = WireClient(other.http, {"x-queen-tenant": "nobody"})
        expect(bad.get(f"{STATUS}/queues"), 400)
        expect(bad.get(STATUS), 200)
