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

from brokers.api.openapi.document import document
from brokers.api.routes import ROUTES
from tests import harness
from tests.wire_client import error_of, expect

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


def exercise(url, operation, examples):
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
        if case.query and "timeout" in case.query:
            case.query["timeout"] = TIMEOUT_MS
        elif case.query and case.query.get("wait"):
            case.query["wait"] = "false"
        answer = case.call(base_url=url)
        case.validate_response(answer, checks=CHECKS)
        checked.append(answer.status_code)

    holds()
    return checked


def test_every_operation_answers_as_it_is_described(served):
    process, _ = served
    schema = schemathesis.openapi.from_dict(document())
    found = [one.ok() for one in schema.get_all_operations()]
    assert len(found) == len(ROUTES)
    last = [one for one in found if one.path.startswith(SWITCHES) and one.method != "get"]
    statuses = {}
    for operation in [one for one in found if one not in last] + last:
        examples = 1 if operation in last else EXAMPLES
        statuses[operation.label] = exercise(process.url, operation, examples)
    succeeded = [label for label, codes in statuses.items() if min(codes, default=999) < 300]
    assert len(succeeded) > len(ROUTES) // 2, statuses


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
