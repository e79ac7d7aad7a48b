"""Paths that are no route, and methods that a route does not have.

Method: HTTP against a real broker, redirects not followed.
"""

import pytest

from tests.wire_client import UNKNOWN_UUID, expect

NO_SUCH_ROUTE = {"error": "Not Found", "code": "no_such_route"}
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nothing",
        "/api/v1/nothing/at/all",
        "/api/v1/",
        "/api/v2/push",
        "/api/",
        "/api/v1/push/",
        "/api/v1/push/x",
        "/api/v1/ack/",
        "/api/v1/Push",
        "/api/v1/%70ush/x",
        "/api/v1/pop/queue",
        "/api/v1/pop/queue/q/",
        "/api/v1/pop/queue/q/partition",
        "/api/v1/pop/queue/q/partition/p/x",
        "/api/v1/pop/queue/q/parts/p",
        "/api/v1/lease/x",
        "/api/v1/lease/x/extend/",
        "/api/v1/resources/queues/q/depth/",
        "/api/v1/resources/queues/q/width",
        "/api/v1/migration/start",
        "/api/v1/queues/q/clear",
        f"/api/v1/messages/{UNKNOWN_UUID}/t/dlq",
        f"/api/v1/dlq/{UNKNOWN_UUID}",
        f"/api/v1/dlq/{UNKNOWN_UUID}/replay/",
    ],
)
def test_an_unknown_api_path_is_the_same_404_for_every_method(client, method, path):
    answer = client.request(method, path, follow_redirects=False)
    assert answer.status_code == 404, answer.text[:200]
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json() == NO_SUCH_ROUTE


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/v1/push", {"POST"}),
        ("/api/v1/pop", {"GET"}),
        ("/api/v1/pop/queue/q", {"GET"}),
        ("/api/v1/pop/queue/q/partition/p", {"GET"}),
        ("/api/v1/ack", {"POST"}),
        ("/api/v1/ack/batch", {"POST"}),
        ("/api/v1/transaction", {"POST"}),
        (f"/api/v1/lease/{UNKNOWN_UUID}/extend", {"POST"}),
        ("/api/v1/configure", {"POST"}),
        ("/api/v1/resources/queues", {"GET"}),
        ("/api/v1/resources/queues/q", {"GET", "DELETE"}),
        ("/api/v1/resources/queues/q/depth", {"GET"}),
        ("/api/v1/dlq", {"GET", "DELETE"}),
        (f"/api/v1/dlq/{UNKNOWN_UUID}/replay", {"POST"}),
        (f"/api/v1/messages/{UNKNOWN_UUID}/t/retry", {"POST"}),
    ],
)
def test_a_wrong_method_is_a_405_that_names_the_right_ones(client, path, allowed):
    for method in set(METHODS) - allowed:
        answer = client.request(method, path, follow_redirects=False)
        assert answer.status_code == 405, f"{method}: {answer.text[:200]}"
        assert allowed <= {each.strip() for each in answer.headers["allow"].split(",")}
        assert answer.headers["content-type"].startswith("application/json")
        assert isinstance(answer.json()["error"], str)


def test_a_trailing_slash_never_redirects(client, fresh_queue):
    """A redirected POST becomes a GET and loses its body."""
    for path in ("/api/v1/push/", "/api/v1/configure/", "/api/v1/transaction/", "/api/v1/dlq/"):
        answer = client.post(path, content=b"{}", follow_redirects=False)
        assert answer.status_code == 404
    answer = client.get("/api/v1/resources/queues/", follow_redirects=False)
    assert answer.status_code == 404, "the queue whose name is empty, which is not there"
    assert answer.json()["error"] == "Queue not found"


def test_no_cors_header_is_ever_set(client, fresh_queue):
    answer = client.get("/api/v1/resources/queues", headers={"origin": "http://evil.example"})
    expect(answer, 200)
    assert not [name for name in answer.headers if name.startswith("access-control-")]
