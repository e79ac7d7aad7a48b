"""The running broker holds to its description.

Method: schemathesis makes a few requests for each operation, from a fixed seed, against a
broker and a database of the test's own; each answer is judged by the document. Waits are cut
short, and the switches that would stop the broker's work come last, one by one.
"""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from brokers.api.openapi.document import document, gathered
from brokers.api.routes import ROUTES
from tests import harness
from tests.wire_client import WireClient, ack_of, error_of, expect

EXAMPLES = 8
SEED = 20_261_129
TIMEOUT_MS = "20"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SWITCHES = ("/api/v1/system/",)


@pytest.fixture(scope="module")
def served(tmp_path_factory, postgres, database):
    """A broker on a database of its own: what is generated reaches no other test."""
    own = harness.make_database(postgres, f"queen_{harness.WORKER}_openapi")
    process = harness.BrokerProcess(
        tmp_path_factory.mktemp("openapi") / "log",
        {**own.environment, "QUEEN_SERVER_ID": "openapi"},
    )
    with httpx.Client(base_url=process.url, timeout=60.0) as client:
        yield process, client
    process.stop()
    harness.drop_database(own)


def furnish(client):
    """Something to find: what the parameters of paths and the bodies of requests then name."""
    wire = WireClient(client)
    wire.push("known", *({"n": number} for number in range(6)))
    for _ in range(3):
        [message] = wire.messages("known", batch=1)
        wire.ack(message, "dlq")
    buried = wire.dead_letters("known")
    again = wire.messages("known", batch=2)
    timer = {"op": "schedule", "queue": "known", "timerKey": "key", "delayMs": 10**8}
    timer |= {"payload": "MQ==", "txn": "t"}
    expect(wire.post("/api/v1/timers", {"operations": [timer]}), 200)
    entry = {"op": "put", "ns": "known", "key": "key", "value": [1], "forever": True}
    expect(wire.post("/api/v1/kv", {"operations": [entry]}), 200)
    names = {"queue": "known", "partition": "Default", "ns": "known", "key": "key"}
    names |= {"timerKey": "key", "id": buried[0]["id"], "leaseId": again[0]["leaseId"]}
    names |= {"partitionId": buried[1]["partitionId"], "asset": "start.js"}
    names |= {"transactionId": buried[1]["transactionId"], "group": "g", "traceName": "known"}
    # A job that will never be done.
    wire.configure("full", enforce=True, maxSize=1)
    wire.push("full", 1)
    redrive = {"queue": "known", "destination": {"queue": "full"}}
    job = {"id": expect(wire.post("/api/v1/dlq/redrive", redrive), 201).json()["id"]}
    others = dict.fromkeys(("redrive_detail", "redrive_cancel", "redrive_resume"), job)
    others["message_delete"] = {"transactionId": buried[2]["transactionId"]}
    query = {"name": "known", "source_queue": "known", "config_hash": "h"}
    answer = expect(wire.post("/streams/v1/queries", query), 200).json()
    stream = {"query_id": answer["query_id"], "partition_id": buried[0]["partitionId"]}
    trace = {name: buried[0][name] for name in ("partitionId", "transactionId")}
    item = {"queue": "known", "payload": 1}
    bodies = {
        "push": {"items": [item]},
        "ack": ack_of(again[0], "retry"),
        "ack_batch": {"acknowledgments": [ack_of(again[1])]},
        "transaction": {"operations": [{"type": "push", "items": [item]}]},
        "configure": {"queue": "known", "options": {"leaseTime": 5}},
        "kv_batch": {"operations": [entry, {"op": "get", "ns": "known", "key": "another"}]},
        "kv_put": {"value": 1, "ttlSeconds": 60},
        "kv_list": {"namespace": "known"},
        "timers_apply": {"operations": [timer]},
        "notify": {"queue": "known"},
        "switches_set": {"kv": True},
        "dlq_replay": {},
        "redrive_create": {"queue": "known", "error": "nothing died of this"},
        "group_start": {"subscriptionTimestamp": "2026-01-31T12:00:00Z"},
        "group_seek": {"toEnd": True},
        "group_partition_seek": {"timestamp": "2026-01-31T12:00:00Z"},
        "partitions_changed": {"entries": [{"queue": "known"}]},
        "stream_register": query,
        "stream_state_get": stream,
        "stream_cycle": stream | {"push_items": [{"queue": "known", "payload": 1}]},
        "trace_add": trace | {"data": 1, "traceNames": ["known"]},
    }
    queries = {
        "dlq_purge": {"queue": "unknown"},
        "pop_discovery": {"namespace": "known"},
        "pop_queue": {"consumerGroup": "g", "subscriptionMode": "all"},
        "pop_partition": {"consumerGroup": "h", "subscriptionMode": "all"},
        "timers_read": {"mode": "list"},
        "message_search": {"queue": "known", "q": "n"},
        "dlq_signatures": {"queue": "known"},
    }
    return names, others, bodies, queries


def exercise(url, operation, examples, known):
    """The first request names what is there, the others are as they come."""
    names, others, bodies, queries = known
    handler = operation.definition.raw["operationId"]
    names = names | others.get(handler, {})
    checked = []

    @seed(SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    def holds(case):
        if not checked:
            case.headers = {}
            case.path_parameters = {one: names[one] for one in case.path_parameters or {}}
            case.query = queries.get(handler, {})
            if operation.definition.raw.get("requestBody"):
                case.body = bodies.get(handler, {"enabled": False})
        if case.query and "timeout" in case.query:
            case.query["timeout"] = TIMEOUT_MS
        elif case.query and case.query.get("wait"):
            case.query["wait"] = "false"
        answer = case.call(base_url=url, timeout=60)
        case.validate_response(answer, checks=CHECKS)
        checked.append(answer.status_code)

    holds()
    return checked


def in_turn(operation):
    """What reads comes first, and last what takes away, or stops the broker's work."""
    switch = operation.path.startswith(SWITCHES) and operation.method != "get"
    takes = 2 * (operation.method == "delete") + operation.path.endswith("/purge")
    return switch, takes, operation.method != "get", operation.label


def test_every_operation_answers_as_it_is_described(served):
    process, client = served
    known = furnish(client)
    schema = schemathesis.openapi.from_dict(document())
    found = sorted((one.ok() for one in schema.get_all_operations()), key=in_turn)
    assert len(found) == len(ROUTES)
    described, _, _ = gathered()
    for operation in found:
        switch, *_ = in_turn(operation)
        statuses = exercise(process.url, operation, 1 if switch else EXAMPLES, known)
        if operation.definition.raw["operationId"] in described:
            assert statuses[0] < 300, (operation.label, statuses)


def test_the_document_comes_as_json_and_as_yaml(client):
    as_json = expect(client.get("/api/schema"), 200)
    assert as_json.headers["content-type"] == "application/json"
    assert as_json.json() == document()
    for answer in (
        client.get("/api/schema?format=yaml"),
        client.get("/api/schema", headers={"accept": "application/yaml, */*"}),
    ):
        assert answer.headers["content-type"] == "application/yaml"
        assert answer.text.startswith("openapi: 3.1.0\n")
    browser = client.get("/api/schema?format=json", headers={"accept": "application/yaml"})
    assert browser.headers["content-type"] == "application/json"
    assert error_of(client.get("/api/schema?format=xml"), 400) == "format must be json or yaml"


def test_the_page_brings_everything_along(client):
    page = expect(client.get("/api/docs"), 200)
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "http://" not in page.text and "https://" not in page.text
    for piece in page.text.split('"'):
        if piece.startswith("/api/docs/assets/"):
            assert len(expect(client.get(piece), 200).content) > 100
    for unknown in ("index.html", "..%2f..%2fpage.py", ""):
        error_of(client.get(f"/api/docs/assets/{unknown}"), 404)
    assert expect(client.post("/api/docs"), 405).headers["allow"] == "GET, HEAD"
