"""The description of the interface: nothing is missing in it, and nothing too much.

Method: the document as it is built, against the table of routes and the parsers' own types.
"""

import msgspec
import pytest
from drf_spectacular.validation import validate_schema

from brokers.api import kv_payloads, payloads
from brokers.api.openapi.document import build, document, gathered, path_of
from brokers.api.route import Kind, Level, Route
from brokers.api.routes import ROUTES

METHODS = {"get", "put", "post", "delete", "patch", "head", "options", "trace"}


def operations():
    return {
        (method.upper(), path): operation
        for path, item in document()["paths"].items()
        for method, operation in item.items()
    }


def test_every_route_is_described_and_nothing_else_is():
    assert set(operations()) == {(route.method, path_of(route)) for route in ROUTES}


def test_it_is_an_openapi_document():
    validate_schema(document())
    assert all(set(item) <= METHODS for item in document()["paths"].values())


def test_what_is_said_is_said_of_a_route():
    described, _, _ = gathered()
    assert described.keys() <= {route.handler for route in ROUTES}


def test_every_reference_leads_somewhere():
    found = set()

    def walk(value):
        if isinstance(value, dict):
            if "$ref" in value:
                found.add(value["$ref"])
            for one in value.values():
                walk(one)
        elif isinstance(value, list):
            for one in value:
                walk(one)

    walk(document())
    for reference in found:
        place = document()
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    assert found


def test_every_parameter_of_a_path_and_every_level_is_told():
    for route in ROUTES:
        operation = operations()[route.method, path_of(route)]
        told = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
        assert [f"{{{name}}}" in path_of(route) for name in told] == [True] * len(told)
        assert path_of(route).count("{") == len(told)
        assert operation["x-level"] == route.level
        assert (operation["security"] == []) == (route.level is Level.PUBLIC)


def test_a_route_of_which_nobody_says_anything_is_described_by_its_row():
    route = Route("POST", "/api/v1/things/:thing/*rest", Level.ADMIN, Kind.DRF, "thing_do")
    operation = build([route])["paths"]["/api/v1/things/{thing}/{rest}"]["post"]
    assert operation["summary"] == "Thing do"
    assert [one["name"] for one in operation["parameters"]] == ["thing", "rest", "x-queen-tenant"]
    assert operation["tags"] == ["things"]
    assert {"200", "400", "404", "500"} <= operation["responses"].keys()


@pytest.mark.parametrize(
    ("component", "body"),
    [
        ("PushItem", payloads.PushItemBody),
        ("Ack", payloads.AckBody),
        ("AckItem", payloads.AckItemBody),
        ("TransactionItem", payloads.TransactionItemBody),
        ("PushOperation", payloads.PushOperation),
        ("AckOperation", payloads.AckOperation),
        ("KvOperation", kv_payloads.KvOperationBody),
    ],
)
def test_a_hot_body_is_described_as_it_is_read(component, body):
    schema = document()["components"]["schemas"][component]
    fields = {one.encode_name for one in msgspec.structs.fields(body)} - {"tenant"}
    assert set(schema["properties"]) - {"type"} == fields
