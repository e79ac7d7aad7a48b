"""The console between the door and Django: what reaches Django, how much, and how many at once.

Method: an application that remembers what it was handed and answers when the test says so.
"""

import asyncio
from typing import Any

import pytest

from brokers.admin.application import PAGES_AT_ONCE, SMALL_BYTES_MAX, ConsoleApplication
from brokers.errors import RequestError

LARGE = SMALL_BYTES_MAX + 1


class Django:
    def __init__(self) -> None:
        self.scopes: list[Any] = []
        self.bodies: list[bytes] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        self.bodies.append((await receive())["body"])
        await self.go.wait()


@pytest.fixture
def django() -> Django:
    return Django()


async def ask(
    django: Django, path: str, body: bytes = b"", *, method: str = "GET", headers: Any = (), **scope
) -> list[Any]:
    application = ConsoleApplication(django, body_bytes_max=1_000_000)
    return await asked(application, path, body, method=method, headers=headers, **scope)


async def asked(
    application: ConsoleApplication,
    path: str,
    body: bytes = b"",
    *,
    method: str = "GET",
    headers: Any = (),
    **scope: Any,
) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    sized = [(b"content-length", str(len(body)).encode()), *headers]
    whole = {"method": method, "path": path, "query_string": b"", "headers": sized, "root_path": ""}
    await application({**whole, **scope}, receive, send)
    return sent


async def test_a_route_of_the_api_goes_through_untouched(django):
    await ask(django, "/_queen/x", b"{}", root_path="", queen={"route": 1})
    assert django.scopes[0]["queen"] == {"route": 1}


async def test_whatever_root_path_a_client_claims_the_address_is_the_one_that_was_asked(django):
    await ask(django, "/x/console/secret/", root_path="/x")
    assert django.scopes[0]["root_path"] == ""
    assert django.scopes[0]["path"] == "/x/console/secret/"


async def test_a_file_is_answered_without_django(django):
    sent = await ask(django, "/static/brokers/console.css")
    assert sent[0]["status"] == 200
    assert not django.scopes


async def test_a_form_is_read_whole_up_to_its_limit(django):
    body = b"x" * LARGE
    await ask(django, "/admin/x/", body, method="POST")
    assert django.bodies == [body]
    with pytest.raises(RequestError) as refused:
        await ask(django, "/admin/x/", b"x" * 1_000_001, method="POST")
    assert refused.value.status == 413


async def test_a_form_that_says_it_is_small_may_not_be_large(django):
    application = ConsoleApplication(django, body_bytes_max=1_000_000)
    with pytest.raises(RequestError):
        await asked(
            application,
            "/admin/x/",
            b"x" * LARGE,
            method="POST",
            headers=[(b"content-length", b"1")],
        )


async def test_no_more_pages_are_made_at_once_than_there_are_places_and_reading_stops_no_action(
    django,
):
    application = ConsoleApplication(django, body_bytes_max=1_000_000)
    django.go.clear()
    reading = [asyncio.create_task(asked(application, "/admin/")) for _ in range(2 * PAGES_AT_ONCE)]
    acting = asyncio.create_task(asked(application, "/admin/x/", b"a=1", method="POST"))
    for _ in range(100):  # everybody goes as far as there is a way
        await asyncio.sleep(0)
    methods = [scope["method"] for scope in django.scopes]
    assert sorted(methods) == ["GET"] * PAGES_AT_ONCE + ["POST"]
    django.go.set()
    await asyncio.gather(*reading, acting)
    assert len(django.scopes) == 2 * PAGES_AT_ONCE + 1
