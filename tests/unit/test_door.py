"""The door answers every request in its own words, whatever happens behind it.

Method: the ASGI application alone. Handlers, services and Django are stand-ins, because
what is judged is the door: routing, limits, errors, and a client that hangs up.
"""

import asyncio
import gzip
import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest
from django.test import Client as Browser

from brokers.api import hot, wire
from brokers.api.door import Door
from brokers.config import Config, ServerConfig, TenancyConfig
from brokers.domain import DEFAULT_TENANT, PopResult
from brokers.errors import NoConnection, RequestError, StatementCancelled, StoreError
from brokers.flow.access import Access
from brokers.flow.recent import Recent

TENANT = "0190b6d4-7a3c-4c4e-9a57-0d8f4b1f2a3b"


class Store:
    alive: Any = True

    async def ping(self) -> None:
        if self.alive is not True:
            raise self.alive

    async def fetch(self, *_: Any) -> Any:
        raise NoConnection


def broker_with(*, tenancy: bool = False, body_bytes_max: int = 1000) -> Any:
    config = Config(
        server=ServerConfig(body_bytes_max=body_bytes_max), tenancy=TenancyConfig(header=tenancy)
    )
    store = Store()
    access = Access(config, store.fetch)
    return SimpleNamespace(
        config=config,
        ready=True,
        store=store,
        siblings=None,
        access=access,
        cell_metrics=SimpleNamespace(age_s=0.0, exposition=lambda: b""),
        recent=Recent(0.0),
        announce=SimpleNamespace(tell=lambda hint: None),
    )


class Django:
    """Remembers what it was handed and reads its body as Django's handler does."""

    def __init__(self) -> None:
        self.scope: Any = None
        self.body = b""

    async def __call__(self, scope, receive, send) -> None:
        self.scope = scope
        message = await receive()
        self.body = message["body"]
        assert not message.get("more_body")
        await wire.send_json(send, 200, b'"django"')


class Client:
    """One connection: what it sends, when it hangs up, and what it was answered."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.hung_up = asyncio.Event()
        self.answer: list[Any] = []

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Any = ()
    ) -> "Client":
        raw_path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(raw_path),
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "headers": list(headers),
            "root_path": "",
        }
        asked = False

        async def receive() -> Any:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": body, "more_body": False}
            if self.answer and self.answer[-1]["type"] == "http.response.body":
                return {"type": "http.disconnect"}
            await self.hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            self.answer.append(message)

        await self.door(scope, receive, send)
        return self

    @property
    def status(self) -> int:
        return self.answer[0]["status"]

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.answer[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.answer[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body.decode("utf-8"))


@pytest.fixture
def django():
    return Django()


@pytest.fixture
def ask(django):
    """Ask a door whose hot handlers all say what they were called with."""

    async def echo(call: hot.Call) -> wire.Reply:
        said = {
            "handler": call.route.handler,
            "params": call.params,
            "body": call.body.decode(),
            "tenant": str(call.tenant),
        }
        return wire.Reply(200, json.dumps(said).encode())

    async def request(method, path, body=b"", headers=(), *, broker=None, handler=echo):
        broker = broker or broker_with()
        handlers = dict.fromkeys(hot.HANDLERS, handler)
        return await Client(Door(django, lambda: broker, handlers=handlers)).request(
            method, path, body, headers
        )

    return request


async def test_a_hot_route_reaches_its_handler_with_its_parameters(ask):
    said = (await ask("GET", "/api/v1/pop/queue/a%2Fb/partition/x%252F?wait=true")).json
    assert said["handler"] == "pop_partition"
    assert said["params"] == {"queue": "a/b", "partition": "x%2F"}
    said = (await ask("POST", "/api/v1/push", b"hello")).json
    assert (said["handler"], said["body"]) == ("push", "hello")


async def test_a_drf_route_is_handed_over_beside_an_internal_path(ask, django):
    answer = await ask(
        "DELETE", "/api/v1/resources/queues/a%2Fdepth?x=1", b"{}", [(b"x-test", b"1")]
    )
    assert answer.json == "django"
    assert django.scope["path"] == "/_queen/queue_delete"
    assert django.scope["query_string"] == b"x=1"
    assert (b"x-test", b"1") in django.scope["headers"]
    handed = django.scope["queen"]
    assert handed["params"] == {"queue": "a/depth"}
    assert handed["tenant"] == DEFAULT_TENANT
    assert handed["route"].handler == "queue_delete"
    assert (handed["body"], django.body) == (b"{}", b"{}")


async def test_a_compressed_body_reaches_a_drf_route_plain_and_sized(ask, django):
    packed = gzip.compress(b'{"queue":"q"}')
    headers = [(b"content-encoding", b"gzip"), (b"content-length", b"%d" % len(packed))]
    await ask("POST", "/api/v1/configure", packed, headers)
    assert django.body == b'{"queue":"q"}'
    assert dict(django.scope["headers"]) == {b"content-length": b"13"}


@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/configure"])
async def test_both_sides_of_the_door_share_the_body_limit(ask, path):
    answer = await ask("POST", path, b"x" * 1001)
    assert answer.status == 413
    assert "larger" in answer.json["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/nope"), ("POST", "/api/v1/push/"), ("GET", "/api"), ("GET", "/api/"),
        ("POST", "/nope"), ("DELETE", "/"), ("GET", "/streams/v1/x"), ("GET", "/auth/x"),
        ("GET", "/_queen/configure"), ("POST", "/_queen/configure"), ("GET", "/%5Fqueen/configure"),
        ("GET", "/_queen"), ("GET", "/%61pi/v1/push"), ("OPTIONS", "*"),
    ],
)  # fmt: skip
async def test_an_unknown_address_is_a_json_404(ask, django, method, path):
    answer = await ask(method, path)
    assert answer.status == 404
    assert answer.json == {"error": "Not Found", "code": "no_such_route"}
    assert django.scope is None


async def test_a_page_goes_to_django_as_it_came(ask, django):
    for method, path in (("GET", "/"), ("HEAD", "/x/y"), ("POST", "/admin/login/")):
        await ask(method, path, b"form")
        assert django.scope["path"] == path
        assert "queen" not in django.scope


async def test_a_root_path_that_a_client_claims_moves_no_page_elsewhere(django):
    """daphne takes one from a header. Below `/admin` everybody may ask for pages."""
    door = Door(django, broker_with)
    scope = {
        "type": "http", "method": "GET", "path": "/admin/_queen/openapi_schema", "headers": [],
        "raw_path": b"/admin/_queen/openapi_schema", "query_string": b"", "root_path": "/admin",
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        pass

    await door(scope, receive, send)
    assert (django.scope["path"], django.scope["root_path"]) == ("/admin/_queen/openapi_schema", "")


@pytest.mark.parametrize("handler", ["openapi_schema", "configure", "queue_list"])
def test_a_view_that_is_not_reached_through_the_door_is_not_there(handler):
    for answer in (Browser().get(f"/_queen/{handler}"), Browser().post(f"/_queen/{handler}")):
        assert answer.status_code in (404, 405)
        assert "openapi" not in answer.content.decode()


async def test_a_wrong_method_is_405_with_allow(ask):
    answer = await ask("GET", "/api/v1/push")
    assert (answer.status, answer.headers[b"allow"]) == (405, b"POST")
    assert answer.json == {"error": "Method Not Allowed"}
    assert (await ask("HEAD", "/api/v1/pop/queue/q")).status == 405


async def test_a_head_has_the_headers_of_a_get_and_no_body(ask):
    got, headed = await ask("GET", "/health"), await ask("HEAD", "/health")
    assert headed.status == 200
    assert headed.headers[b"content-length"] == got.headers[b"content-length"]
    assert headed.body == b""


async def test_an_empty_answer_has_neither_body_nor_length(ask):
    async def nothing(call):
        return wire.NO_CONTENT

    answer = await ask("GET", "/api/v1/pop/queue/q", handler=nothing)
    assert (answer.status, answer.headers, answer.body) == (204, {}, b"")


@pytest.mark.parametrize(
    ("error", "status", "document"),
    [
        (RequestError("bad \ud800"), 400, {"error": "bad \\ud800"}),
        (NoConnection("no slot in 5 s"), 500, {"error": "pool"}),
        (StoreError("it broke", outcome_unknown=True), 500, {"error": "it broke"}),
        (ZeroDivisionError("secret"), 500, {"error": "internal error"}),
        (RequestError("x", body={"success": False, "error": "x"}), 400,
         {"success": False, "error": "x"}),
    ],
)  # fmt: skip
async def test_an_error_is_answered_from_the_one_table(ask, error, status, document, caplog):
    async def fail(call):
        raise error

    answer = await ask("POST", "/api/v1/push", handler=fail)
    assert (answer.status, answer.json) == (status, document)
    logged = [record for record in caplog.records if record.levelname == "ERROR"]
    assert bool(logged) is isinstance(error, ZeroDivisionError)
    assert all("POST /api/v1/push" in record.getMessage() for record in logged)


async def test_a_cancelled_request_stays_cancelled(ask):
    async def wait(call):
        await asyncio.sleep(60)

    task = asyncio.create_task(ask("POST", "/api/v1/push", handler=wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# Tenants


@pytest.mark.parametrize(
    ("values", "tenant"),
    [
        ([], str(DEFAULT_TENANT)), ([b""], str(DEFAULT_TENANT)), ([b"  "], str(DEFAULT_TENANT)),
        ([TENANT.encode()], TENANT), ([TENANT.upper().encode()], TENANT), ([b"x"], None),
        ([TENANT.replace("-", "").encode()], None), ([b"{" + TENANT.encode() + b"}"], None),
        ([TENANT.encode()] * 2, None), ([b"", b""], None), ([b"\xff" * 36], None),
    ],
)  # fmt: skip
async def test_the_tenant_header_names_one_uuid_or_is_400(ask, django, values, tenant):
    headers = [(b"x-queen-tenant", value) for value in values]
    for method, path in (("POST", "/api/v1/push"), ("GET", "/api/v1/dlq")):
        answer = await ask(method, path, headers=headers, broker=broker_with(tenancy=True))
        if tenant is None:
            assert answer.status == 400
            assert answer.json == {"error": "invalid x-queen-tenant header (must be a UUID)"}
        elif path.endswith("push"):
            assert answer.json["tenant"] == tenant
        else:
            assert django.scope["queen"]["tenant"] == UUID(tenant)


async def test_without_tenancy_and_on_cell_wide_routes_no_header_is_read(ask):
    headers = [(b"x-queen-tenant", b"junk")] * 2
    assert (await ask("POST", "/api/v1/push", headers=headers)).json["tenant"] == str(
        DEFAULT_TENANT
    )
    answer = await ask("GET", "/health", headers=headers, broker=broker_with(tenancy=True))
    assert answer.status == 200


# Pops and hang-ups


@pytest.fixture
def pop_service(monkeypatch):
    """A pop service under the test's control; remembers requests and what came back."""
    service = SimpleNamespace(requests=[], handed_back=[], cancelled=0, started=asyncio.Event())
    service.result = PopResult(messages=[b'{"data":1}'], queue="q", group="g")
    service.gate = asyncio.Event()
    service.gate.set()
    service.error = None

    async def pop(broker, request):
        service.requests.append(request)
        service.started.set()
        try:
            await service.gate.wait()
        except asyncio.CancelledError:
            service.cancelled += 1
            if service.late_result is not None:
                return service.late_result
            raise
        if service.error is not None:
            raise service.error
        if service.before_return is not None:
            await service.before_return()
        return service.result

    async def hand_back(broker, result):
        service.handed_back.append(result)

    service.late_result = service.before_return = None
    monkeypatch.setattr(hot.pop_service, "pop", pop)
    monkeypatch.setattr(hot.pop_service, "hand_back", hand_back)
    return service


def client(broker=None) -> Client:
    broker = broker or broker_with()
    return Client(Door(Django(), lambda: broker))


async def popped(query: str, path: str = "/api/v1/pop/queue/q") -> Client:
    return await client().request("GET", f"{path}?{query}")


async def test_a_delivery_is_rendered_around_the_messages_as_they_lie(pop_service):
    pop_service.result.messages = [b'{"data":1E2}', b'{"data":"\\ud800"}']
    pop_service.result.partition_id = "p"
    answer = await popped("consumerGroup=g")
    assert answer.status == 200
    assert answer.body == (
        b'{"success":true,"queue":"q","partition":"","partitionId":"p","leaseId":"",'
        b'"consumerGroup":"g","partitionsClaimed":0,'
        b'"messages":[{"data":1E2},{"data":"\\ud800"}]}'
    )
    assert pop_service.handed_back == []


async def test_an_empty_pop_is_204_unless_it_conflates(pop_service):
    pop_service.result.messages = []
    assert (await popped("")).status == 204
    pop_service.result.paused = True
    assert (await popped("")).status == 204
    pop_service.result.conflation = True
    answer = await popped("consumerGroup=g&conflation=true")
    assert answer.status == 200
    assert (answer.json["messages"], answer.json["conflation"], answer.json["paused"]) == (
        [],
        True,
        True,
    )


async def test_a_client_that_hangs_up_cancels_its_waiting_pop(pop_service):
    pop_service.gate.clear()
    waiting = client()
    task = asyncio.create_task(waiting.request("GET", "/api/v1/pop/queue/q?wait=true"))
    await asyncio.wait_for(pop_service.started.wait(), 2)
    waiting.hung_up.set()
    await asyncio.wait_for(task, 2)
    assert (pop_service.cancelled, waiting.answer, pop_service.handed_back) == (1, [], [])


async def test_a_claim_made_when_the_hang_up_was_heard_is_handed_back(pop_service):
    waiting = client()

    async def hang_up_before_the_answer():
        # The claim is ours already; the cancellation that follows cannot undo it.
        waiting.hung_up.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return

    pop_service.before_return = hang_up_before_the_answer
    await asyncio.wait_for(waiting.request("GET", "/api/v1/pop/queue/q"), 2)
    assert waiting.answer == []
    assert pop_service.handed_back == [pop_service.result]
    assert asyncio.current_task().cancelling() == 0


async def test_a_hang_up_after_the_answer_began_hands_nothing_back(pop_service):
    # The fake server says disconnect after a finished answer, as both real ones do.
    answer = await popped("")
    await asyncio.sleep(0.01)
    assert answer.status == 200
    assert pop_service.handed_back == []


async def test_a_pop_that_the_server_cancels_stays_cancelled(pop_service):
    pop_service.gate.clear()
    task = asyncio.create_task(client().request("GET", "/api/v1/pop/queue/q?wait=true"))
    await asyncio.wait_for(pop_service.started.wait(), 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pop_service.cancelled == 1


async def test_a_pop_leaves_no_task_behind(pop_service):
    before = asyncio.all_tasks()
    await popped("")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_failed_pop_says_pool_or_pop_failed(pop_service):
    for error, text in (
        (NoConnection(), "pool"),
        (StatementCancelled("canceling statement due to statement timeout"), "pop failed"),
        (StoreError("anything"), "pop failed"),
    ):
        pop_service.error = error
        answer = await popped("")
        assert (answer.status, answer.json) == (500, {"error": text})


async def test_the_parameters_of_a_pop_have_their_defaults(pop_service):
    await popped("")
    [request] = pop_service.requests
    assert (request.queue, request.partition, request.group) == ("q", None, "__QUEUE_MODE__")
    assert (request.batch, request.partitions, request.lease_s) == (None, None, None)
    assert (request.auto_ack, request.wait, request.conflation, request.autopilot) == (False,) * 4
    assert (request.timeout_s, request.subscription_mode, request.subscription_from) == (
        30.0,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("query", "field", "value"),
    [
        ("batch=0", "batch", 1), ("batch=-5", "batch", 1), ("batch=99999999", "batch", 10_000),
        ("batch=", "batch", None), ("batch=1&batch=2", "batch", 2),
        ("partitions=0", "partitions", 0), ("partitions=-1", "partitions", 0),
        ("leaseSeconds=0", "lease_s", None), ("leaseSeconds=-1", "lease_s", None),
        ("leaseSeconds=9223372036854775807", "lease_s", 31_536_000),
        ("timeout=-1", "timeout_s", 0.0), ("timeout=1500", "timeout_s", 1.5),
        ("timeout=9223372036854775807", "timeout_s", 600.0),
        ("autoAck=1", "auto_ack", True), ("wait=0", "wait", False), ("wait=true", "wait", True),
        ("consumerGroup=", "group", "__QUEUE_MODE__"), ("consumerGroup=a+b", "group", "a b"),
        ("subscriptionMode=from_beginning", "subscription_mode", "from_beginning"),
        ("subscriptionMode=%00", "subscription_mode", "all"),
        ("subscriptionMode=" + "x" * 100, "subscription_mode", "all"),
        ("subscriptionMode=", "subscription_mode", None),
        ("subscriptionFrom=now", "subscription_from", "now"),
        ("subscriptionFrom=%FF", "subscription_from", None),
        ("namespace=n&task=t", "namespace", ""),
    ],
)  # fmt: skip
async def test_a_parameter_of_a_pop_is_read_and_clamped(pop_service, query, field, value):
    assert (await popped(query)).status == 200
    assert getattr(pop_service.requests[0], field) == value


@pytest.mark.parametrize(
    "query",
    [
        "batch=abc", "batch=1.5", "batch=9223372036854775808", "batch=" + "9" * 5000,
        "partitions=x", "timeout=1_0", "leaseSeconds=%D9%A3", "wait=yes", "autoAck=TRUE",
        "consumerGroup=a%00", "consumerGroup=%ED%A0%80", "consumerGroup=" + "g" * 256,
        "conflation=true", "conflation=true&consumerGroup=__QUEUE_MODE__",
        "conflation=true&consumerGroup=g&autoAck=true", "autopilot=maybe",
    ],
)  # fmt: skip
async def test_a_senseless_parameter_of_a_pop_is_400(pop_service, query):
    answer = await popped(query)
    assert answer.status == 400
    assert answer.json["error"]
    assert pop_service.requests == []


async def test_a_queue_name_over_its_limit_in_a_path_is_400(pop_service):
    for path in ("/api/v1/pop/queue/" + "q" * 256, "/api/v1/pop/queue/q/partition/" + "p" * 256):
        assert (await popped("", path)).status == 400


async def test_discovery_needs_a_namespace_or_a_task(pop_service):
    answer = await popped("namespace=&task=", "/api/v1/pop")
    assert answer.status == 400
    assert answer.json == {
        "success": False,
        "error": "namespace or task is required",
        "messages": [],
    }
    await popped("task=t", "/api/v1/pop")
    [request] = pop_service.requests
    assert (request.queue, request.namespace, request.task) == (None, "", "t")


# Other hot routes


async def test_an_empty_push_is_201_and_an_empty_ack_batch_is_200():
    answer = await client().request("POST", "/api/v1/push", b'{"items":[]}')
    assert (answer.status, answer.json) == (201, [])
    answer = await client().request("POST", "/api/v1/ack/batch", b'{"acknowledgments":[]}')
    assert (answer.status, answer.json) == (200, [])


async def test_a_bad_transaction_is_400_in_its_own_envelope():
    answer = await client().request("POST", "/api/v1/transaction", b'{"operations":5}')
    assert answer.status == 400
    assert (answer.json["success"], answer.json["reason"], answer.json["results"]) == (
        False,
        "bad_request",
        [],
    )
    assert answer.json["error"].startswith("bad body: ")
    UUID(answer.json["transactionId"])


async def test_health_tells_of_the_database_and_liveness_does_not():
    broker = broker_with()
    answer = await client(broker).request("GET", "/health")
    assert answer.status == 200
    assert answer.json["status"] == "healthy"
    assert answer.json["database"] == "connected"
    broker.store.alive, broker.ready = NoConnection(), False
    answer = await client(broker).request("GET", "/health")
    assert answer.status == 503
    assert answer.json["status"] == "unhealthy"
    assert answer.json["database"] == "disconnected"
    assert (await client(broker).request("GET", "/readyz")).status == 503
    assert (await client(broker).request("GET", "/livez")).json == {"status": "alive"}
    assert (await client(broker).request("GET", "/status")).json["status"] == "ok"


async def test_metrics_are_text_and_never_cached():
    answer = await client().request("GET", "/metrics/prometheus")
    assert answer.headers[b"content-type"] == b"text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers[b"cache-control"] == b"no-cache"
    assert b"# HELP" in answer.body
