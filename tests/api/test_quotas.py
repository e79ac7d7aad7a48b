"""What a metered tenant may have: grants, exact counts, and what is never refused.

Method: HTTP against a broker of this file that reads the tenancy header; quota rows are written
by SQL, as an operator does. Sixteen clients race for what is left.
"""

import base64
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests import harness
from tests.wire_client import WireClient, ack_of, expect

CLIENTS = 16


@pytest.fixture(scope="module")
def metering(database, tmp_path_factory):
    broker = harness.BrokerProcess(
        tmp_path_factory.mktemp("metering") / "log",
        database.environment
        | {
            "QUEEN_TENANCY_HEADER": "true",
            "QUEEN_KV_TRUSTED_PROXY": "true",
            "QUEEN_KV_QUOTA_REFRESH_MS": "100",
            "RETAINED_BYTES_INTERVAL_MS": "3600000",
            "QUEEN_KV_WRITE_RATE": "100000",
            "QUEEN_KV_WRITE_BURST": "100000",
            "QUEEN_KV_CELL_RATE": "100000",
            "QUEEN_KV_EXPIRE_EVERY_MS": "200",
            "QUEEN_SWEEPER_MAX_SLEEP_MS": "200",
            "QUEEN_SWEEPER_IDLE_MAX_SLEEP_MS": "200",
        },
    )
    yield broker
    broker.stop()


@pytest.fixture
def tenant(metering, db):
    """A factory: `tenant(max_rows=5)` is a client of a tenant with that quota; None: no row."""
    with ExitStack() as clients:

        def make(granted: bool = True, **quota: object) -> WireClient:
            tenant_id = str(uuid.uuid4())
            if granted:
                names = ["tenant_id", *quota]
                values = ", ".join(["%s"] * len(names))
                db.execute(
                    f"INSERT INTO queen_quota ({', '.join(names)}) VALUES ({values})",
                    [tenant_id, *quota.values()],
                )
            headers = {"x-queen-tenant": tenant_id}
            return clients.enter_context(WireClient.at(metering.url, headers))

        yield make


def put(wire, key, value="v", **more):
    body = {"value": value, "forever": True, **more}
    return wire.http.put(f"/api/v1/kv/n/{key}", json=body, headers=wire.headers)


def remove(wire, key):
    return wire.http.delete(f"/api/v1/kv/n/{key}", headers=wire.headers)


def schedule(wire, queue, *keys, delay_ms=10**7):
    operations = [
        {"op": "schedule", "queue": queue, "timerKey": key, "delayMs": delay_ms, "txn": key,
         "payload": base64.b64encode(b"1").decode()}
        for key in keys
    ]  # fmt: skip
    return wire.post("/api/v1/timers", {"operations": operations})


def usage(db, wire, kind):
    """What the database thinks that the tenant has; its pending deltas taken in."""
    return db.execute(
        "SELECT usage.rows + coalesce(sum(delta.rows), 0),"
        "       usage.bytes + coalesce(sum(delta.bytes), 0)"
        "  FROM queen_usage usage LEFT JOIN queen_usage_delta delta USING (tenant_id, kind)"
        " WHERE usage.tenant_id = %s AND usage.kind = %s GROUP BY usage.rows, usage.bytes",
        [wire.headers["x-queen-tenant"], kind],
    ).fetchone()


def race(work, count=CLIENTS):
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def after_its_second(answer_of, eventually):
    """A tenant that met its quota is refused for a second without a look."""
    return eventually(lambda: (one := answer_of()).status_code == 200 and one)


def test_without_a_grant_nothing_is_added_but_all_is_read_and_removed(tenant, db, fresh_queue):
    wire = tenant(granted=False)
    for refused in (put(wire, "k"), schedule(wire, fresh_queue, "t")):
        assert expect(refused, 403).json()["error"] == "feature_gated"
    answer = wire.post(
        "/api/v1/transaction",
        {
            "operations": [],
            "kv": [{"op": "put", "ns": "n", "key": "k", "value": 1, "forever": True}],
        },
    )
    assert expect(answer, 403).json()["error"] == "feature_gated"
    expect(wire.get("/api/v1/kv/n/k"), 200)
    expect(remove(wire, "k"), 200)
    expect(wire.http.delete(f"/api/v1/timers/{fresh_queue}/t", headers=wire.headers), 200)
    wire.push(fresh_queue, 1)  # messages need no grant


def test_a_grant_that_was_taken_leaves_what_there_is_to_be_cleared_up(tenant, db, eventually):
    wire = tenant()
    expect(put(wire, "k"), 200)
    db.execute(
        "UPDATE queen_quota SET enabled = false WHERE tenant_id = %s",
        [wire.headers["x-queen-tenant"]],
    )
    eventually(lambda: put(wire, "k2").status_code == 403)
    assert wire.get("/api/v1/kv/n/k").json()["value"] == "v"
    expect(remove(wire, "k"), 200)


def test_the_default_tenant_is_unmetered(metering, db, fresh_queue):
    tenant_id = "00000000-0000-0000-0000-000000000001"
    db.execute(
        "INSERT INTO queen_quota (tenant_id, enabled, max_rows, max_timers, max_queues, push_rate)"
        " VALUES (%s, false, 0, 0, 0, 1)",
        [tenant_id],
    )
    try:
        with WireClient.at(metering.url) as wire:
            expect(put(wire, fresh_queue), 200)
            expect(schedule(wire, fresh_queue, "t"), 200)
            wire.push(fresh_queue, *range(10))
    finally:
        db.execute("DELETE FROM queen_quota WHERE tenant_id = %s", [tenant_id])


def test_sixteen_clients_that_race_for_entries_get_exactly_what_is_left(tenant, db, eventually):
    wire = tenant(max_rows=10)

    def one(number):
        while True:
            answer = put(wire, f"k{number}")
            if answer.status_code != 503:
                return answer

    answers = race(one)
    assert sorted({answer.status_code for answer in answers}) == [200, 403]
    told = {answer.json()["error"] for answer in answers if answer.status_code == 403}
    assert told == {"kv_quota_exceeded"}
    tenant_id = wire.headers["x-queen-tenant"]
    [stored] = db.execute(
        "SELECT count(*) FROM queen_kv WHERE tenant_id = %s", [tenant_id]
    ).fetchone()
    assert stored == sum(answer.status_code == 200 for answer in answers) <= 10
    # Some may have been turned away by the second in which nobody looks.
    for number in range(CLIENTS, CLIENTS + 10 - stored):
        after_its_second(lambda number=number: put(wire, f"k{number}"), eventually)
    assert usage(db, wire, "kv")[0] == 10
    first = db.execute("SELECT min(key) FROM queen_kv WHERE tenant_id = %s", [tenant_id])
    [key] = first.fetchone()
    after_its_second(lambda: put(wire, key, "w"), eventually)  # no more of it than before
    expect(remove(wire, key), 200)
    assert usage(db, wire, "kv")[0] == 9
    after_its_second(lambda: put(wire, "another"), eventually)


def test_bytes_are_counted_and_what_shrinks_is_let_through(tenant, db, eventually):
    wire = tenant(max_bytes=1000)
    expect(put(wire, "k", "x" * 900), 200)
    expect(put(wire, "l", "x" * 200), 403)
    after_its_second(lambda: put(wire, "k", "x" * 100), eventually)
    assert usage(db, wire, "kv")[1] == len("nk") + 102
    expect(put(wire, "l", "x" * 200), 200)


def test_entries_that_expire_make_room(tenant, eventually):
    wire = tenant(max_rows=1)
    body = {"value": 1, "ttlSeconds": 1}
    expect(wire.http.put("/api/v1/kv/n/k", json=body, headers=wire.headers), 200)
    eventually(lambda: put(wire, "l").status_code == 200)


def test_a_transaction_is_within_the_quota_or_not_at_all(tenant, fresh_queue):
    wire = tenant(max_rows=1)

    def commit(*keys):
        kv = [{"op": "put", "ns": "n", "key": key, "value": 1, "forever": True} for key in keys]
        push = {"type": "push", "queue": fresh_queue, "payload": 1}
        return wire.post("/api/v1/transaction", {"operations": [push], "kv": kv})

    answer = expect(commit("a", "b"), 403).json()
    assert (answer["success"], answer["error"]) == (False, "kv_quota_exceeded")
    assert wire.payloads(fresh_queue) == []
    assert expect(commit("a"), 200).json()["success"] is True


def test_one_tenants_full_quota_is_no_matter_to_another(tenant):
    full, other = tenant(max_rows=0), tenant(max_rows=1000)

    def one(number):
        wire = full if number % 2 else other
        while (answer := put(wire, f"k{number}")).status_code == 503:
            pass
        return answer.status_code

    assert race(one) == [200, 403] * (CLIENTS // 2)


def test_sixteen_clients_that_race_for_timers_get_exactly_what_is_left(tenant, db, fresh_queue):
    wire = tenant(max_timers=10)
    answers = race(lambda number: schedule(wire, fresh_queue, f"t{number}"))
    codes = [answer.status_code for answer in answers]
    assert (codes.count(200), codes.count(403)) == (10, CLIENTS - 10)
    refused = next(answer for answer in answers if answer.status_code == 403)
    assert refused.json()["error"] == "timers_quota_exceeded"
    assert "x-queen-timers-hint" in refused.headers
    accepted = codes.index(200)
    expect(schedule(wire, fresh_queue, f"t{accepted}"), 200)  # a reschedule adds nothing
    path = f"/api/v1/timers/{fresh_queue}/t{accepted}"
    expect(wire.http.delete(path, headers=wire.headers), 200)
    assert usage(db, wire, "timers")[0] == 9
    expect(schedule(wire, fresh_queue, "a", "b"), 403)
    expect(schedule(wire, fresh_queue, "a"), 200)


def test_timers_that_fire_make_room(tenant, db, fresh_queue, eventually):
    wire = tenant(max_timers=1)
    expect(schedule(wire, fresh_queue, "t", delay_ms=0), 200)
    eventually(lambda: schedule(wire, fresh_queue, "u").status_code == 200)
    assert wire.payloads(fresh_queue, subscriptionMode="all") == [1]


def test_a_tenants_horizon_only_narrows(tenant, fresh_queue):
    wire = tenant(max_horizon_s=60)
    expect(schedule(wire, fresh_queue, "t", delay_ms=60_000), 200)
    answer = expect(schedule(wire, fresh_queue, "u", delay_ms=61_000), 403)
    assert answer.json()["error"] == "timer_horizon_exceeded"


def test_sixteen_clients_that_race_for_queues_get_exactly_what_is_left(tenant, db, fresh_queue):
    wire = tenant(max_queues=4)
    answers = race(lambda n: wire.post("/api/v1/configure", {"queue": f"{fresh_queue}-{n}"}))
    codes = [answer.status_code for answer in answers]
    assert (codes.count(201) + codes.count(200), codes.count(403)) == (4, CLIENTS - 4)
    tenant_id = wire.headers["x-queen-tenant"]
    found = db.execute("SELECT name FROM queen_queue WHERE tenant_id = %s", [tenant_id]).fetchall()
    assert len(found) == 4
    [name] = found[0]
    wire.push(name, 1)  # what there is goes on
    [row] = wire.push(f"{fresh_queue}-new", 1)
    assert (row["status"], row["error"]) == ("failed", "the tenant may have 4 queues")
    expect(wire.get(f"/api/v1/pop/queue/{fresh_queue}-new"), 403)
    wire.delete(name)
    wire.push(f"{fresh_queue}-new", 1)


def test_sixteen_clients_that_race_for_partitions_get_exactly_what_is_left(tenant, fresh_queue):
    wire = tenant(max_partitions=5)
    rows = race(lambda n: wire.push(fresh_queue, n, partition=f"p{n}")[0])
    assert sum(row["status"] == "queued" for row in rows) == 5
    assert {row["error"] for row in rows if row["status"] == "failed"} == {
        "the tenant may have 5 partitions"
    }
    queued = [row["status"] for row in rows].index("queued")
    assert wire.push(fresh_queue, 1, partition=f"p{queued}")[0]["status"] == "queued"


def test_a_tenant_that_pushes_too_fast_is_told_when_to_come_back(tenant, fresh_queue):
    wire = tenant(push_rate=5)
    wire.push(fresh_queue, *range(10))  # the burst
    answer = wire.post_items(*({"queue": fresh_queue, "payload": n} for n in range(5)))
    assert expect(answer, 429).json()["error"] == "rate_limited"
    began = time.monotonic()
    wait_s = int(answer.headers["retry-after"])
    assert 1 <= wait_s <= 2
    while wire.post_items({"queue": fresh_queue, "payload": 1}).status_code == 429:
        time.sleep(0.05)
        assert time.monotonic() - began < 10
    assert len(wire.payloads(fresh_queue, subscriptionMode="all", batch=100)) == 11


def test_a_tenant_that_retains_too_much_may_consume_and_not_push(
    tenant, db, fresh_queue, eventually
):
    wire = tenant(max_retained_bytes=1000)
    wire.push(fresh_queue, "x" * 1000)
    answer = expect(wire.post_items({"queue": fresh_queue, "payload": 1}), 403)
    assert answer.json()["error"] == "storage_quota_exceeded"
    expect(wire.post("/api/v1/transaction",
        {"operations": [{"type": "push", "queue": fresh_queue, "payload": 1}]}), 403)  # fmt: skip
    assert wire.payloads(fresh_queue, subscriptionMode="all") == ["x" * 1000]
    db.execute(
        "INSERT INTO queen_queue_statistics (queue_id, computed_at, next_at, partitions, total,"
        " pending, processing, completed, dead_letters, bytes, bytes_at)"
        " SELECT id, now(), now() + interval '1 hour', 1, 0, 0, 0, 0, 0, 890, now()"
        "  FROM queen_queue WHERE tenant_id = %s AND name = %s"
        " ON CONFLICT (queue_id) DO UPDATE SET bytes = 890, next_at = excluded.next_at,"
        " bytes_at = excluded.bytes_at",
        [wire.headers["x-queen-tenant"], fresh_queue],
    )
    eventually(lambda: wire.post_items({"queue": fresh_queue, "payload": 1}).status_code == 201)


def test_sixteen_clients_that_push_too_fast_overshoot_by_no_message(tenant, fresh_queue):
    """Ten are the burst of one broker; what else is let in was earned by the time that passed."""
    wire = tenant(push_rate=5)
    began = time.monotonic()

    def push_on(number: int) -> int:
        answers = [wire.post_items({"queue": fresh_queue, "payload": number}) for _ in range(10)]
        assert {answer.status_code for answer in answers} <= {201, 429}
        return sum(answer.status_code == 201 for answer in answers)

    let_in = sum(race(push_on))
    assert 10 <= let_in <= 10 + 5 * (time.monotonic() - began)


def test_sixteen_clients_that_race_for_bytes_overshoot_by_one_message_at_most(tenant, fresh_queue):
    """At one broker, between two measures: what it let in itself it has counted."""
    wire = tenant(max_retained_bytes=10_000)  # ten payloads, as they are sent

    def push_on(number: int) -> int:
        answers = [
            wire.post_items({"queue": fresh_queue, "partition": f"p{number}", "payload": "x" * 998})
            for _ in range(3)
        ]
        assert {answer.status_code for answer in answers} <= {201, 403}
        return sum(answer.status_code == 201 for answer in answers)

    assert 10 <= sum(race(push_on)) <= 11


def test_sixteen_clients_that_race_for_stream_queries_get_exactly_what_is_left(tenant, fresh_queue):
    wire = tenant(streams_enabled=True, max_queries=3)
    wire.push(fresh_queue, 1)

    def register(number: int) -> int:
        body = {"name": f"q{number}", "source_queue": fresh_queue, "config_hash": "h"}
        return wire.post("/streams/v1/queries", body).status_code

    codes = race(register)
    assert (codes.count(200), codes.count(403)) == (3, CLIENTS - 3)


def test_a_replay_is_a_push_of_its_tenant(tenant, db, fresh_queue, eventually):
    wire = tenant()
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    wire.ack_batch(ack_of(message, "dlq"))
    [letter] = wire.dead_letters(fresh_queue)
    db.execute(
        "UPDATE queen_quota SET max_retained_bytes = 0 WHERE tenant_id = %s",
        [wire.headers["x-queen-tenant"]],
    )
    eventually(lambda: wire.post_items({"queue": fresh_queue, "payload": 1}).status_code == 403)
    refused = expect(wire.post(f"/api/v1/dlq/{letter['id']}/replay", {}), 403)
    assert refused.json()["error"] == "storage_quota_exceeded"
    assert wire.dead_letters(fresh_queue) == [letter]


def test_the_sinks_of_a_stream_are_pushed_to_like_any_queue(tenant, fresh_queue):
    wire = tenant(streams_enabled=True, max_retained_bytes=100)
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue, subscriptionMode="all")
    body = {"name": "q", "source_queue": fresh_queue, "config_hash": "h"}
    query_id = expect(wire.post("/streams/v1/queries", body), 200).json()["query_id"]
    cycle = {"query_id": query_id, "partition_id": message["partitionId"]}
    sinks = [{"queue": f"{fresh_queue}-sink", "payload": "x" * 100}]
    filling = wire.post("/streams/v1/cycle", cycle | {"push_items": sinks})
    assert expect(filling, 200).json()["success"] is True
    refused = wire.post("/streams/v1/cycle", cycle | {"push_items": sinks})
    assert expect(refused, 403).json()["error"] == "storage_quota_exceeded"
    assert expect(wire.post("/streams/v1/cycle", cycle), 200).json()["success"] is True


def test_counting_anew_heals_what_was_not_seen(tenant, db):
    wire = tenant(max_rows=10)
    for number in range(5):
        expect(put(wire, f"k{number}"), 200)
    tenant_id = wire.headers["x-queen-tenant"]
    db.execute("UPDATE queen_usage SET rows = 99, bytes = 99 WHERE tenant_id = %s", [tenant_id])
    db.execute("SELECT queen_usage_count_v1(%s, 'kv')", [tenant_id])
    assert usage(db, wire, "kv") == (5, 5 * len('nkx"v"'))
