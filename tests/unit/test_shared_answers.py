"""Who is told an answer again, and who never is.

Method: the door in front of a Django that counts what it is asked; no time passes.
"""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from brokers.api import shared, wire
from brokers.api.door import Door
from brokers.api.routes import ROUTES, Router
from brokers.flow.recent import Recent
from brokers.principal import EVERYTHING, Principal
from tests.unit.test_door import Client, broker_with

LIST = "/api/v1/resources/queues"
LAG = "/api/v1/analytics/queue-lag"
TENANTS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")


class Counting:
    """A Django that answers with the number of the request."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.status = 200
        self.reached = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, scope, receive, send) -> None:
        self.asked.append(scope)
        mine = len(self.asked)
        self.reached.set()
        await receive()
        await self.may_answer.wait()
        headers = ((b"x-queen-next-offset", b"7"),)
        await wire.send_json(send, self.status, b"%d" % mine, headers)


@pytest.fixture
def django():
    return Counting()


@pytest.fixture
def broker():
    broker = broker_with(tenancy=True)
    broker.recent = Recent(5.0, lambda: 100.0)
    return broker


@pytest.fixture
def ask(broker, django):
    door = Door(django, lambda: broker)

    async def request(method: str, path: str, tenant: str = TENANTS[0]) -> Client:
        headers = [(b"x-queen-tenant", tenant.encode())]
        return await Client(door).request(method, path, b"{}", headers)

    return request


async def test_the_same_question_gets_the_same_answer_with_its_headers(ask, django):
    first, again = await ask("GET", LIST), await ask("GET", LIST)
    assert (first.body, again.body) == (b"1", b"1")
    assert again.headers == first.headers
    assert again.headers[b"x-queen-next-offset"] == b"7"
    assert again.headers[b"content-length"] == b"1"
    head = await ask("HEAD", LIST)
    assert (head.status, head.body, head.headers) == (200, b"", first.headers)
    assert [scope["method"] for scope in django.asked] == ["GET"]


async def test_those_who_ask_at_once_wait_for_one_reading(ask, django):
    django.may_answer.clear()
    asking = [asyncio.ensure_future(ask("GET", LIST)) for _ in range(5)]
    await django.reached.wait()
    django.may_answer.set()
    assert [(await one).body for one in asking] == [b"1"] * 5
    assert len(django.asked) == 1


async def test_another_tenant_another_query_and_another_route_are_read_for_themselves(ask):
    told = [
        (await ask("GET", path, tenant)).body
        for tenant in TENANTS
        for path in (LIST, f"{LIST}?limit=2", LAG)
    ]
    assert len(set(told)) == 6


async def test_callers_of_another_reach_share_nothing(broker):
    match, asked = Router().find("GET", LAG.encode()), 0

    async def ask(send: Any) -> None:
        nonlocal asked
        asked += 1
        await wire.send_json(send, 200, b"%d" % asked)

    async def told(prefix: str) -> bytes:
        principal = Principal(levels=EVERYTHING, queue_prefix=prefix)
        tenant = UUID(TENANTS[0])
        return (await shared.reply(broker, match, tenant, principal, b"queue=a.q", ask)).body

    assert [await told(prefix) for prefix in ("", "a", "a.", "a", "")] == [
        b"1", b"2", b"3", b"2", b"1"
    ]  # fmt: skip


async def test_what_a_hot_handler_told_is_told_again_to_those_of_the_same_tenant(broker, django):
    asked = 0

    async def handler(call: Any) -> wire.Reply:
        nonlocal asked
        asked += 1
        return wire.Reply(200, b"%d" % asked)

    hot = {"traces_by_name": handler, "traces_of_message": handler}
    door = Door(django, lambda: broker, handlers=hot)

    async def told(method: str, path: str, tenant: str = TENANTS[0]) -> bytes:
        headers = [(b"x-queen-tenant", tenant.encode())]
        return (await Client(door).request(method, f"/api/v1/traces/{path}", b"", headers)).body

    assert [await told("GET", "by-name/a") for _ in range(2)] == [b"1", b"1"]
    assert await told("HEAD", "by-name/a") == b""
    assert [await told("GET", path) for path in ("by-name/b", "by-name/a?limit=1")] == [b"2", b"3"]
    assert await told("GET", "by-name/a", TENANTS[1]) == b"4"
    assert [await told("GET", "p/t") for _ in range(2)] == [b"5", b"6"], "that one is read"
    broker.recent.topic_written(UUID(TENANTS[0]), "traces")
    assert await told("GET", "by-name/a") == b"7"
    assert await told("GET", "by-name/a", TENANTS[1]) == b"4"


async def test_a_form_of_a_page_may_have_changed_anything(ask):
    await ask("GET", LIST)
    await ask("POST", "/admin/brokers/queue/1/")
    assert (await ask("GET", LIST)).body == b"3"
    await ask("GET", "/admin/")
    assert (await ask("GET", LIST)).body == b"3"


async def test_after_a_write_its_tenant_is_read_for_anew_and_no_other(ask):
    for tenant in TENANTS:
        await ask("GET", LIST, tenant)
    assert (await ask("POST", "/api/v1/configure")).body == b"3"
    assert (await ask("GET", LIST)).body == b"4"
    assert (await ask("GET", LIST, TENANTS[1])).body == b"2"


async def test_a_reading_that_began_before_a_write_is_not_told_after_it(ask, django):
    django.may_answer.clear()
    early = asyncio.ensure_future(ask("GET", LIST))
    await django.reached.wait()
    django.may_answer.set()
    await ask("POST", "/api/v1/configure")
    late = await ask("GET", LIST)
    assert late.body != (await early).body


async def test_an_answer_that_is_no_success_is_not_told_again(ask, django):
    django.status = 400
    assert [(await ask("GET", LIST)).body for _ in range(2)] == [b"1", b"2"]


async def test_what_tells_how_things_are_now_is_never_shared(ask):
    for path in (f"{LIST}/q", f"{LIST}/q/depth", "/api/v1/dlq", "/api/v1/messages"):
        first, again = await ask("GET", path), await ask("GET", path)
        assert first.body != again.body, path


def test_only_reads_are_shared_and_none_that_must_be_exact():
    shared = {route.handler for route in ROUTES if route.shared}
    assert all(route.method == "GET" and not route.writes for route in ROUTES if route.shared)
    exact = ("queue_detail", "queue_depth", "dlq_list", "message_list", "message_detail")
    assert shared.isdisjoint((*exact, "kv_get", "timer_peek", "group_detail", "redrive_detail"))
