"""x-queen-tenant: several tenants on one broker never see each other.

Method: HTTP against a broker of this file with QUEEN_TENANCY_HEADER on.
"""

import json
import uuid
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest

from tests import harness
from tests.wire_client import (
    FOREIGN_PARTITION,
    UNKNOWN_UUID,
    WireClient,
    ack_of,
    error_of,
    expect,
)

DEFAULT_TENANT = "00000000-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def tenant_broker(database, tmp_path_factory):
    broker = harness.BrokerProcess(
        tmp_path_factory.mktemp("tenants") / "log",
        database.environment | {"QUEEN_TENANCY_HEADER": "true", "QUEEN_KV_TRUSTED_PROXY": "true"},
    )
    yield broker
    broker.stop()


@pytest.fixture
def tenant(tenant_broker):
    """A factory of clients: by tenant id, or of the tenant that no header names."""
    with ExitStack() as clients:

        def make(tenant_id: str | None) -> WireClient:
            headers = {} if tenant_id is None else {"x-queen-tenant": tenant_id}
            return clients.enter_context(WireClient.at(tenant_broker.url, headers))

        yield make


@pytest.fixture
def a(tenant):
    return tenant(str(uuid.uuid4()))


@pytest.fixture
def b(tenant):
    return tenant(str(uuid.uuid4()))


def test_one_name_under_two_tenants_is_two_queues(a, b, fresh_queue):
    a.configure(fresh_queue, leaseTime=11)
    rows = a.push(fresh_queue, "of a", ids=["t"]) + b.push(fresh_queue, "of b", ids=["t"])
    assert [row["status"] for row in rows] == ["queued", "queued"], "dedup is each tenant's own"
    assert b.queue(fresh_queue)["options"]["leaseTime"] == 60
    [of_a], [of_b] = a.messages(fresh_queue), b.messages(fresh_queue)
    assert (of_a["data"], of_b["data"]) == ("of a", "of b")
    assert of_a["partitionId"] != of_b["partitionId"]
    assert a.ack(of_a)["success"] is True
    assert b.ack(of_b)["success"] is True


def test_a_wildcard_or_discovery_pop_stays_inside_its_tenant(a, b, fresh_queue):
    a.push(f"{fresh_queue}.x", "of a")
    assert b.payloads(None, namespace=fresh_queue) == []
    assert b.payloads(f"{fresh_queue}.x") == []
    assert a.payloads(None, namespace=fresh_queue) == ["of a"]


def test_no_header_a_blank_one_and_the_default_tenant_are_one(tenant, tenant_broker, fresh_queue):
    tenant(None).push(fresh_queue, 1, 2, 3)
    assert tenant("").payloads(fresh_queue, batch=1, autoAck=True) == [1]
    assert tenant(DEFAULT_TENANT).payloads(fresh_queue, batch=1, autoAck=True) == [2]
    # httpx refuses to send such a value.
    connection = HTTPConnection("127.0.0.1", tenant_broker.port)
    path = f"/api/v1/pop/queue/{fresh_queue}"
    with closing(connection):
        connection.request("GET", path, headers={"x-queen-tenant": "  \t "})
        assert json.load(connection.getresponse())["messages"][0]["data"] == 3


def test_the_letters_of_a_tenant_id_have_no_case(tenant, fresh_queue):
    tenant_id = "abcdefab-" + str(uuid.uuid4())[9:]
    tenant(tenant_id.upper()).push(fresh_queue, 1)
    assert tenant(tenant_id).payloads(fresh_queue) == [1]


@pytest.mark.parametrize(
    "header",
    [
        "junk",
        "00000000000000000000000000000001",
        "{00000000-0000-0000-0000-000000000001}",
        "urn:uuid:00000000-0000-0000-0000-000000000001",
        "00000000-0000-0000-0000-00000000000g",
        DEFAULT_TENANT + "0",
    ],
)
def test_a_header_that_is_no_uuid_is_a_400_on_every_route(tenant, header):
    wire = tenant(header)
    text = "invalid x-queen-tenant header (must be a UUID)"
    for answer in (
        wire.post_items(),
        wire.get_pop("q"),
        wire.post("/api/v1/ack/batch", {"acknowledgments": []}),
        wire.post("/api/v1/transaction", {"operations": []}),
        wire.post("/api/v1/configure", {"queue": "q"}),
        wire.get("/api/v1/resources/queues"),
        wire.get("/api/v1/dlq"),
        wire.post(f"/api/v1/lease/{UNKNOWN_UUID}/extend"),
    ):
        assert error_of(answer, 400) == text


def test_a_foreign_partition_looks_like_an_unknown_one_to_an_ack(a, b, fresh_queue):
    a.push(fresh_queue, 1)
    [message] = a.messages(fresh_queue)
    for changes in ({}, {"leaseId": None}, {"partitionId": UNKNOWN_UUID}):
        result = b.ack(message, **changes)
        assert (result["success"], result["error"]) == (False, FOREIGN_PARTITION)
    assert a.ack(message)["noop"] is False


def test_a_foreign_partition_rolls_a_transaction_back(a, b, fresh_queue):
    a.push(fresh_queue, 1)
    [message] = a.messages(fresh_queue)
    answer = b.transaction(
        {"type": "push", "queue": fresh_queue, "payload": 1}, {"type": "ack"} | ack_of(message)
    )
    assert answer["success"] is False
    assert b.payloads(fresh_queue) == []
    assert a.ack(message)["noop"] is False


def test_a_foreign_lease_cannot_be_prolonged(a, b, fresh_queue):
    a.push(fresh_queue, 1)
    lease = a.pop(fresh_queue)["leaseId"]
    answer = b.extend(lease)
    assert (answer["success"], answer["renewed"]) == (False, 0)
    assert a.extend(lease)["renewed"] == 1


def test_foreign_queues_are_neither_listed_nor_shown_nor_deleted(a, b, fresh_queue):
    a.push(fresh_queue, 1)
    names = [row["name"] for row in b.get("/api/v1/resources/queues").json()["queues"]]
    assert fresh_queue not in names
    expect(b.get(b.queue_path(fresh_queue)), 404)
    expect(b.get(b.queue_path(fresh_queue) + "/depth"), 404)
    assert b.delete(fresh_queue)["existed"] is False
    assert a.payloads(fresh_queue) == [1]


def test_foreign_dead_letters_are_neither_listed_nor_replayed_nor_purged(a, b, fresh_queue):
    a.push(fresh_queue, 1, ids=["t"])
    [message] = a.messages(fresh_queue)
    a.ack(message, "dlq")
    [row] = a.dead_letters(fresh_queue)
    assert b.dead_letters(fresh_queue) == []
    answer = expect(b.replay(row["id"]), 404).json()
    unknown = expect(b.replay(UNKNOWN_UUID), 404).json()
    assert answer | {"dlqId": None} == unknown | {"dlqId": None}
    expect(b.retry(message["partitionId"], "t"), 404)
    purged = b.http.delete("/api/v1/dlq", params={"queue": fresh_queue}, headers=b.headers)
    assert purged.json()["deleted"] == 0
    assert [each["id"] for each in a.dead_letters(fresh_queue)] == [row["id"]]
    expect(a.replay(row["id"]), 200)


def test_a_parked_pop_is_not_woken_by_another_tenants_message(a, b, fresh_queue):
    a.push(fresh_queue, "of a")
    assert b.payloads(fresh_queue, wait=True, timeout=200) == []


def test_with_tenancy_off_the_header_is_not_read(wire, client, fresh_queue):
    WireClient(client, {"x-queen-tenant": "junk"}).push(fresh_queue, 1)
    WireClient(client, {"x-queen-tenant": str(uuid.uuid4())}).push(fresh_queue, 2)
    assert wire.payloads(fresh_queue) == [1, 2]


@pytest.fixture
def streaming(a, b, db):
    """Both tenants may register stream queries."""
    for tenant in (a, b):
        db.execute(
            "INSERT INTO queen_quota (tenant_id, streams_enabled) VALUES (%s, true)",
            [tenant.headers["x-queen-tenant"]],
        )


@pytest.mark.usefixtures("streaming")
def test_stream_queries_of_one_name_are_each_tenants_own(a, b, fresh_queue):
    body = {"name": fresh_queue, "source_queue": fresh_queue, "config_hash": "h"}
    of_a = expect(a.post("/streams/v1/queries", body), 200).json()
    of_b = expect(b.post("/streams/v1/queries", body | {"config_hash": "other"}), 200).json()
    assert of_a["fresh"] and of_b["fresh"]
    assert of_a["query_id"] != of_b["query_id"]


@pytest.mark.usefixtures("streaming")
def test_foreign_stream_ids_look_exactly_like_unknown_ones(a, b, fresh_queue):
    a.push(fresh_queue, 1)
    [message] = a.messages(fresh_queue)
    partition, own = message["partitionId"], {}
    for tenant in (a, b):
        body = {"name": fresh_queue, "source_queue": fresh_queue, "config_hash": "h"}
        own[tenant] = tenant.post("/streams/v1/queries", body).json()["query_id"]
    cycle = {
        "query_id": own[a],
        "partition_id": partition,
        "state_ops": [{"type": "upsert", "key": "k", "value": 1}],
    }
    assert a.post("/streams/v1/cycle", cycle).json()["success"] is True

    for path in ("/streams/v1/state/get", "/streams/v1/cycle"):
        for foreign in (partition, UNKNOWN_UUID):
            for query in (own[a], own[b], UNKNOWN_UUID):
                answer = b.post(path, cycle | {"query_id": query, "partition_id": foreign})
                assert (answer.status_code, answer.json()) == (404, {"error": "not found"})
    b.push(fresh_queue, 1)
    [message_of_b] = b.messages(fresh_queue)
    asked = {"partition_id": message_of_b["partitionId"]}
    answers = [
        {path: b.post(path, cycle | asked | {"query_id": query}).json() for path in paths}
        for query in (own[a], UNKNOWN_UUID)
        for paths in [("/streams/v1/state/get", "/streams/v1/cycle")]
    ]
    for answer in answers:
        answer["/streams/v1/cycle"]["query_id"] = None
    assert answers[0] == answers[1]
    assert answers[0]["/streams/v1/state/get"] == {"success": True, "rows": []}
    assert answers[0]["/streams/v1/cycle"]["error"] == "query not found"
    rows = a.post("/streams/v1/state/get", cycle).json()["rows"]
    assert [row["value"] for row in rows] == [1]


def test_foreign_traces_are_neither_written_nor_read_nor_counted(a, b, fresh_queue):
    a.push(fresh_queue, 1)
    [message] = a.messages(fresh_queue)
    partition = message["partitionId"]
    body = {"transactionId": "t", "partitionId": partition, "data": 1, "traceNames": [fresh_queue]}
    expect(a.post("/api/v1/traces", body), 201)
    missing = {"success": False, "error": "Message not found"}
    for foreign in (partition, UNKNOWN_UUID, "no uuid"):
        answer = b.post("/api/v1/traces", body | {"partitionId": foreign})
        assert (answer.status_code, answer.json()) == (404, missing)
        assert b.get(f"/api/v1/traces/{foreign}/t").json() == {"traces": []}
    assert b.get(f"/api/v1/traces/by-name/{fresh_queue}").json()["total"] == 0
    assert b.get("/api/v1/traces/names").json()["total"] == 0
    assert a.get(f"/api/v1/traces/by-name/{fresh_queue}").json()["total"] == 1
    assert a.get("/api/v1/traces/names").json()["total"] == 1
    a.delete(fresh_queue)
    assert len(a.get(f"/api/v1/traces/{partition}/t").json()["traces"]) == 1
    assert b.get(f"/api/v1/traces/{partition}/t").json() == {"traces": []}


def test_messages_and_redrives_are_their_tenants(a, b, fresh_queue):
    a.push(fresh_queue, "of a", ids=["t"])
    [message] = a.messages(fresh_queue)
    a.ack(message, "dlq")
    job = expect(a.post("/api/v1/dlq/redrive", {"queue": fresh_queue, "error": "no"}), 201).json()
    b.configure(fresh_queue)

    address = f"/api/v1/messages/{message['partitionId']}/t"
    one = f"/api/v1/dlq/redrive/{job['id']}"
    assert b.get("/api/v1/messages").json()["messages"] == []
    assert b.get("/api/v1/dlq").json()["messages"] == []
    assert b.get("/api/v1/dlq/redrive").json()["redrives"] == []
    assert b.get("/api/v1/messages/search", queue=fresh_queue, q="a").json()["messages"] == []
    signatures = b.get("/api/v1/analytics/dlq-signatures", queue=fresh_queue).json()
    assert signatures["rowsNow"] == 0
    for foreign, unknown in (
        (b.get(address), b.get(f"/api/v1/messages/{UNKNOWN_UUID}/t")),
        (b.get(one), b.get(f"/api/v1/dlq/redrive/{UNKNOWN_UUID}")),
        (b.post(f"{one}/cancel"), b.post(f"/api/v1/dlq/redrive/{UNKNOWN_UUID}/cancel")),
        (b.post(f"{one}/resume"), b.post(f"/api/v1/dlq/redrive/{UNKNOWN_UUID}/resume")),
    ):
        assert (foreign.status_code, foreign.json()) == (404, unknown.json())
    assert b.http.delete(address, headers=b.headers).status_code == 404

    assert len(a.get("/api/v1/messages").json()["messages"]) == 1
    assert len(a.get("/api/v1/dlq").json()["messages"]) == 1
    assert a.get(one).json()["id"] == job["id"]
    assert a.get(address).json()["status"] == "dead_letter"
