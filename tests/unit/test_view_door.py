"""A management route is answered by its view, without Django's handling around it.

Method: the application that the door hands requests to, with the views that need no broker.
"""

from typing import Any

from brokers.api import wire
from brokers.api.routes import ROUTES
from brokers.api.urls import VIEWS
from brokers.api.view_door import Views


async def django(scope: Any, receive: Any, send: Any) -> None:
    await wire.send_json(send, 200, b'"django"')


def handed(handler: str, method: str = "GET", **more: Any) -> dict[str, Any]:
    """The scope of a request as the door hands it over."""
    [route] = [one for one in ROUTES if one.handler == handler]
    return {
        "type": "http",
        "method": method,
        "path": f"/_queen/{handler}",
        "query_string": b"",
        "headers": [(b"accept", b"application/yaml")],
        "queen": {"route": route, "params": {}, "body": b""} | more,
    }


async def answer(scope: dict[str, Any]) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("the door has read the body")

    await Views(django)(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_every_management_route_has_a_view_and_no_view_is_without_one():
    assert VIEWS.keys() == {route.handler for route in ROUTES if route.kind == "drf"}


async def test_what_the_door_hands_over_is_answered_with_its_size_and_headers():
    status, headers, body = await answer(handed("openapi_page"))
    assert status == 200
    assert headers[b"content-type"] == b"text/html; charset=utf-8"
    assert headers[b"content-length"] == b"%d" % len(body)
    assert b"default-src" in headers[b"content-security-policy"]
    assert b"<html" in body


async def test_a_head_has_the_headers_of_its_get_alone():
    got, head = await answer(handed("openapi_page")), await answer(handed("openapi_page", "HEAD"))
    assert head == (200, got[1], b"")


async def test_a_view_sees_the_headers_of_the_request():
    _, headers, _ = await answer(handed("openapi_schema"))
    assert headers[b"content-type"] == b"application/yaml"


async def test_an_error_of_a_view_is_the_tables():
    status, headers, body = await answer(handed("openapi_asset", params={"asset": "nothing"}))
    assert (status, headers[b"content-type"]) == (404, b"application/json")
    assert b"Not Found" in body


async def test_whatever_the_door_does_not_hand_over_goes_to_django():
    scope = handed("openapi_page")
    del scope["queen"]
    assert (await answer(scope))[2] == b'"django"'
