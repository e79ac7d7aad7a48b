"""Lists and history that are told again: never another tenant's, and never after a write.

Method: HTTP against a broker of this file that tells again for a minute, with tenants. Whatever
shows a change within that minute was read anew.
"""

import uuid
from contextlib import ExitStack

import pytest

from tests import harness
from tests.wire_client import WireClient, expect

QUEUES = "/api/v1/resources/queues"
GROUPS = "/api/v1/consumer-groups"
TRACES = "/api/v1/traces"
KV = "/api/v1/kv"


@pytest.fixture(scope="module")
def telling_again(database, tmp_path_factory):
    broker = harness.BrokerProcess(
        tmp_path_factory.mktemp("telling") / "log",
        database.environment
        | {
            "QUEEN_TENANCY_HEADER": "true",
            "QUEEN_KV_TRUSTED_PROXY": "true",
            "QUEEN_KV_REQUIRE_GRANT": "false",
            "QUEEN_ANALYTICS_FRESH_MS": "60000",
            "STATS_INTERVAL_MS": "600000",
        },
    )
    yield broker
    broker.stop()


@pytest.fixture
def tenant(telling_again):
    """A factory of clients of new tenants."""
    with ExitStack() as clients:
        yield lambda: clients.enter_context(
            WireClient.at(telling_again.url, {"x-queen-tenant": str(uuid.uuid4())})
        )


def read(wire, path, **params):
    return expect(wire.get(path, **params), 200).json()


def names(wire):
    return [queue["name"] for queue in read(wire, QUEUES)["queues"]]


def test_whoever_has_just_written_sees_it(tenant, fresh_queue):
    wire = tenant()
    assert names(wire) == []
    expect(wire.post("/api/v1/configure", {"queue": f"{fresh_queue}-a", "namespace": "n"}), 200)
    assert names(wire) == [f"{fresh_queue}-a"]
    wire.push(f"{fresh_queue}-b", 1)
    assert names(wire) == [f"{fresh_queue}-a", f"{fresh_queue}-b"]
    wire.payloads(f"{fresh_queue}-c")
    assert len(names(wire)) == 3
    assert [one["namespace"] for one in read(wire, "/api/v1/resources/namespaces")["namespaces"]]
    wire.delete(f"{fresh_queue}-a")
    assert names(wire) == [f"{fresh_queue}-b", f"{fresh_queue}-c"]
    assert read(wire, "/api/v1/resources/namespaces")["namespaces"] == []
    expect(wire.post(f"{QUEUES}/{fresh_queue}-b/pause", {}), 200)
    assert [queue["paused"] for queue in read(wire, QUEUES)["queues"]] == [True, False]


def test_groups_that_come_and_go_are_seen(tenant, fresh_queue):
    wire = tenant()
    wire.push(fresh_queue, 1)
    assert read(wire, GROUPS) == []
    for known, group in enumerate("ab", start=1):
        wire.payloads(fresh_queue, consumerGroup=group)
        assert len(read(wire, GROUPS)) == known
    expect(wire.http.delete(f"{GROUPS}/a", headers=wire.headers), 200)
    assert [one["name"] for one in read(wire, GROUPS)] == ["b"]


def test_figures_that_were_counted_on_demand_are_seen(tenant, fresh_queue):
    wire = tenant()
    wire.push(fresh_queue, 1)
    expect(wire.post("/api/v1/stats/refresh", {}), 200)
    assert read(wire, "/api/v1/resources/overview")["messages"]["total"] == 1
    wire.push(fresh_queue, 2)
    assert read(wire, "/api/v1/resources/overview")["messages"]["total"] == 1, "as last counted"
    expect(wire.post("/api/v1/stats/refresh", {}), 200)
    assert read(wire, "/api/v1/resources/overview")["messages"]["total"] == 2


def test_two_tenants_who_ask_the_same_are_told_their_own(tenant, fresh_queue):
    a, b = tenant(), tenant()
    a.configure(f"{fresh_queue}-a")
    b.configure(f"{fresh_queue}-b")
    for _ in range(2):
        assert names(a) == [f"{fresh_queue}-a"]
        assert names(b) == [f"{fresh_queue}-b"]
    b.configure(f"{fresh_queue}-b2")
    assert names(a) == [f"{fresh_queue}-a"]
    assert len(names(b)) == 2


def test_a_head_is_the_get_without_its_body(tenant, fresh_queue):
    wire = tenant()
    wire.configure(fresh_queue)
    told = wire.get(QUEUES)
    head = wire.http.head(QUEUES, headers=wire.headers)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(told.content))


def test_one_queue_is_always_as_it_is_now(tenant, fresh_queue):
    wire = tenant()
    for waiting in range(1, 4):
        wire.push(fresh_queue, waiting)
        assert read(wire, f"{QUEUES}/{fresh_queue}")["totals"]["total"] == waiting
        assert read(wire, f"{QUEUES}/{fresh_queue}/depth")["pending"] == waiting


def test_a_trace_is_found_by_its_name_as_soon_as_it_is_noted(tenant, fresh_queue):
    wire, other = tenant(), tenant()
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    body = {"partitionId": message["partitionId"], "transactionId": "t", "data": 1}
    assert names(wire) == [fresh_queue]
    for noted in range(3):
        assert read(wire, f"{TRACES}/by-name/n")["total"] == noted
        assert len(read(wire, f"{TRACES}/names")["trace_names"]) == min(noted, 1)
        assert read(other, f"{TRACES}/names")["total"] == 0
        expect(wire.post(TRACES, body | {"traceNames": ["n"]}), 201)
    assert read(wire, f"{TRACES}/by-name/n", limit=1)["total"] == 3
    head = wire.http.head(f"{TRACES}/by-name/n", headers=wire.headers)
    length = len(wire.get(f"{TRACES}/by-name/n").content)
    assert (head.content, head.headers["content-length"]) == (b"", str(length))
    wire.delete(fresh_queue)
    assert read(wire, f"{TRACES}/names")["total"] == 0


def test_namespaces_are_as_whoever_wrote_an_entry_left_them(tenant, fresh_queue):
    wire, other = tenant(), tenant()

    def keys(of=wire):
        return [one["keys"] for one in read(of, "/api/v1/resources/kv/namespaces")["namespaces"]]

    put = {"op": "put", "ns": "n", "value": 1, "forever": True}
    assert keys() == keys(other) == []
    whole = b'{"value": 1, "forever": true}'
    expect(wire.http.put(f"{KV}/n/a", content=whole, headers=wire.headers), 200)
    assert keys() == [1]
    expect(wire.post(KV, {"operations": [{**put, "key": "b"}, {**put, "key": "c"}]}), 200)
    assert keys() == [3]
    assert wire.transaction(kv=[{**put, "key": "d"}])["success"] is True
    assert keys() == [4]
    expect(wire.http.delete(f"{KV}/n/a", headers=wire.headers), 200)
    assert keys() == [3]
    assert keys(other) == []
