"""Pages at their edges: what every listing makes of a `limit` or `offset` that is out of bounds.

Method: HTTP against the shared broker; what is listed does not matter here.
"""

import pytest

from tests.wire_client import error_of, expect

QUEUE = "/api/v1/resources/queues/{queue}"
PAGED = {
    QUEUE: {},
    f"{QUEUE}/depth": {},
    "/api/v1/status/queues": {},
    "/api/v1/status/queues/{queue}": {},
    "/api/v1/resources/namespaces": {},
    "/api/v1/resources/tasks": {},
    "/api/v1/analytics/queue-lag": {},
    "/api/v1/analytics/queue-ops": {},
    "/api/v1/analytics/queue-parked-replicas": {},
    "/api/v1/analytics/retention": {"groupBy": "queue"},
    "/api/v1/analytics/workload": {},
    "/api/v1/analytics/partition-liveness": {},
    "/api/v1/consumer-groups": {},
    "/api/v1/consumer-groups/lagging": {},
    "/api/v1/consumer-groups/nobody": {},
    "/api/v1/messages": {"queue": "{queue}"},
    "/api/v1/dlq": {},
    "/api/v1/dlq/redrive": {},
    "/api/v1/traces/names": {},
    "/api/v1/traces/by-name/none": {},
}
LIMITED = {
    "/api/v1/analytics/dlq-signatures": {"queue": "{queue}"},
    "/api/v1/messages/search": {"queue": "{queue}", "q": "x"},
}
CLAMPED = (0, -1, 1, 2**62, 2**63 - 1, -(2**63), "")
# Reads that walk to their offset refuse one that is too far, and say so.
WALKED = {"/api/v1/messages": 50_000}
REFUSED = ("abc", "1.5", "1e3", "0x1", "1_0", 2**63, -(2**63) - 1, "NaN")


@pytest.fixture(scope="module")
def queue(client):
    """One that holds a message, and has a group that lags."""
    name = "paging-edges"
    item = {"queue": name, "payload": 1}
    expect(client.post("/api/v1/push", json={"items": [item]}), 201)
    return name


def ask(wire, path, params, queue):
    named = {name: value.format(queue=queue) for name, value in params.items()}
    return lambda **more: wire.get(path.format(queue=queue), **named, **more)


def check_pages(get, names, offset_max=None):
    for name in names:
        for value in CLAMPED:
            if name == "offset" and offset_max and value != "" and value > offset_max:
                assert str(offset_max) in error_of(get(offset=value), 400)
                continue
            answer = expect(get(**{name: value}), 200).json()
            told = answer.get("pagination", {}) if isinstance(answer, dict) else {}
            assert told.get("limit", 1) in range(1, 10_001), (name, value, told)
            assert told.get("offset", 0) >= 0, (name, value, told)
        for value in REFUSED:
            assert name in error_of(get(**{name: value}), 400), (name, value)


@pytest.mark.parametrize("path", PAGED)
def test_a_page_that_is_out_of_bounds_is_clamped_and_what_is_no_number_is_a_400(wire, queue, path):
    get = ask(wire, path, PAGED[path], queue)
    check_pages(get, ("limit", "offset"), WALKED.get(path))
    expect(get(limit=2**62, offset=2**62), 400 if path in WALKED else 200)


@pytest.mark.parametrize("path", LIMITED)
def test_a_limit_that_is_out_of_bounds_is_clamped_and_what_is_no_number_is_a_400(wire, queue, path):
    check_pages(ask(wire, path, LIMITED[path], queue), ("limit",))


def test_the_seconds_of_lag_that_are_asked_for_may_be_any_number(wire):
    get = ask(wire, "/api/v1/consumer-groups/lagging", {}, "")
    for value in CLAMPED:
        assert isinstance(expect(get(minLagSeconds=value), 200).json(), list)
    for value in REFUSED:
        assert "minLagSeconds" in error_of(get(minLagSeconds=value), 400)
