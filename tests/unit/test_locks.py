"""Who may use which route: every route, method, role and tenant, generated from the table.

Method: the door alone, with handlers and a Django that say that they were reached. The levels of
the contract's routes are written down here once more, so that the table cannot drift.
"""

import itertools
import json
import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import jwt
import pytest

from brokers.api import auth, confine, wire
from brokers.api.confine import REDRIVES
from brokers.api.door import Door
from brokers.api.route import Kind, Level, Route
from brokers.api.routes import ROUTES, Router
from brokers.config import Config, ServerConfig
from brokers.config_access import AuthConfig, TenancyConfig
from brokers.domain import DEFAULT_TENANT
from brokers.errors import BrokerError
from brokers.flow.access import REMEMBERED_MAX, Access
from brokers.flow.recent import Recent
from brokers.principal import ANYBODY, Principal, levels_of
from tests.unit.test_door import Client

SECRET = "s" * 64
TENANT = "0190b6d4-7a3c-4c4e-9a57-0d8f4b1f2a3b"
ROLES = ("admin", "read-write", "read-only", "write-only")
# By level: who may. Written out, not computed.
MAY = {
    "read-only": {"admin", "read-write", "read-only"},
    "write-only": {"admin", "read-write", "write-only"},
    "read-write": {"admin", "read-write"},
    "admin": {"admin"},
}
CONTRACT = """
write-only POST /api/v1/push
read-write GET /api/v1/pop
read-write GET /api/v1/pop/queue/:queue
read-write GET /api/v1/pop/queue/:queue/partition/:partition
read-write POST /api/v1/ack
read-write POST /api/v1/ack/batch
read-write POST /api/v1/transaction
read-write POST /api/v1/lease/:leaseId/extend
read-write POST /api/v1/configure
read-only GET /api/v1/resources/queues
read-only GET /api/v1/resources/queues/:queue
read-only GET /api/v1/resources/queues/:queue/depth
admin DELETE /api/v1/resources/queues/:queue
read-only GET /api/v1/resources/overview
read-only GET /api/v1/resources/namespaces
read-only GET /api/v1/resources/tasks
read-only GET /api/v1/resources/kv/namespaces
read-only POST /api/v1/resources/kv/list
read-only GET /api/v1/consumer-groups
read-only GET /api/v1/consumer-groups/lagging
read-only GET /api/v1/consumer-groups/:group
admin DELETE /api/v1/consumer-groups/:group
read-write POST /api/v1/consumer-groups/:group/subscription
read-write POST /api/v1/consumer-groups/:group/queues/:queue/seek
read-write POST /api/v1/consumer-groups/:group/queues/:queue/partitions/:partition/seek
admin DELETE /api/v1/consumer-groups/:group/queues/:queue
read-only GET /api/v1/messages
read-only GET /api/v1/messages/:partitionId/:transactionId
read-write DELETE /api/v1/messages/:partitionId/:transactionId
read-write POST /api/v1/messages/:partitionId/:transactionId/retry
read-only GET /api/v1/dlq
admin DELETE /api/v1/dlq
read-write POST /api/v1/dlq/:id/replay
read-write POST /api/v1/traces
read-only GET /api/v1/traces/:partitionId/:transactionId
read-only GET /api/v1/traces/by-name/:traceName
read-only GET /api/v1/traces/names
read-only GET /api/v1/status
read-only GET /api/v1/status/queues
read-only GET /api/v1/status/queues/:queue
read-only GET /api/v1/status/analytics
read-only GET /api/v1/status/buffers
read-only GET /api/v1/analytics/queue-lag
read-only GET /api/v1/analytics/queue-ops
read-only GET /api/v1/analytics/queue-parked-replicas
read-only GET /api/v1/analytics/retention
read-only GET /api/v1/analytics/workload
read-only GET /api/v1/analytics/dlq-signatures
read-only GET /api/v1/analytics/partition-liveness
read-only GET /api/v1/analytics/system-metrics
read-only GET /api/v1/analytics/worker-metrics
read-only GET /api/v1/analytics/postgres-stats
admin POST /api/v1/stats/refresh
public GET /health
read-only GET /status
public GET /metrics
public GET /metrics/prometheus
public GET /api/docs
public GET /api/docs/assets/:asset
read-only GET /api/schema
read-write POST /streams/v1/queries
read-only POST /streams/v1/state/get
read-write POST /streams/v1/cycle
read-write POST /api/v1/kv
read-only GET /api/v1/kv/:ns/*key
read-write PUT /api/v1/kv/:ns/*key
read-write DELETE /api/v1/kv/:ns/*key
write-only POST /api/v1/timers
read-only GET /api/v1/timers/:queue
read-only GET /api/v1/timers/:queue/*timerKey
read-write DELETE /api/v1/timers/:queue/*timerKey
admin GET /api/v1/system/maintenance
admin POST /api/v1/system/maintenance
admin GET /api/v1/system/maintenance/pop
admin POST /api/v1/system/maintenance/pop
admin GET /api/v1/system/kv-timers
admin POST /api/v1/system/kv-timers
admin GET /api/v1/system/shared-state
public GET /auth/me
public GET /auth/login
public POST /auth/logout
admin POST /internal/api/notify
admin GET /internal/api/shared-state/stats
admin GET /internal/api/inter-instance/stats
read-only POST /api/v1/fetch
read-only POST /api/v1/partitions/changed
write-only POST /api/v1/ephemeral/push
read-write GET /api/v1/ephemeral/pop
read-write POST /api/v1/ephemeral/ack
read-write POST /api/v1/ephemeral/configure
read-write POST /api/v1/ephemeral/reset
read-write DELETE /api/v1/ephemeral/queue/:queue
read-only GET /api/v1/ephemeral/queues
read-only GET /api/v1/ephemeral/queues/:queue/depth
admin GET /api/v1/system/ephemeral
admin POST /api/v1/system/ephemeral
public GET /livez
public GET /readyz
"""
LEVELS = {
    address: level
    for level, _, address in (line.partition(" ") for line in CONTRACT.strip().split("\n"))
}
# What of the contract this broker does not serve: reads by offset, and the ephemeral family.
NOT_SERVED = {
    "POST /api/v1/fetch",
    "POST /api/v1/ephemeral/push",
    "GET /api/v1/ephemeral/pop",
    "POST /api/v1/ephemeral/ack",
    "POST /api/v1/ephemeral/configure",
    "POST /api/v1/ephemeral/reset",
    "DELETE /api/v1/ephemeral/queue/:queue",
    "GET /api/v1/ephemeral/queues",
    "GET /api/v1/ephemeral/queues/:queue/depth",
    "GET /api/v1/system/ephemeral",
    "POST /api/v1/system/ephemeral",
}
PARAMETERS = {
    "partitionId": "0190b6d4-7a3c-4c4e-9a57-000000000001",
    "id": "0190b6d4-7a3c-4c4e-9a57-000000000002",
}


def address_of(route: Route) -> str:
    """A path of the route, its parameters filled in."""
    parts = [
        PARAMETERS.get(part[1:], "x") if part[:1] in (":", "*") else part
        for part in route.template.split("/")
    ]
    return "/".join(parts)


def broker_with(*, tenancy: bool = False, **auth_settings: Any) -> Any:
    settings = {"jwt_enabled": True, "jwt_secret": SECRET, **auth_settings}
    config = Config(
        server=ServerConfig(body_bytes_max=1000),
        tenancy=TenancyConfig(header=tenancy),
        auth=AuthConfig(**settings),
    )
    return SimpleNamespace(
        config=config,
        ready=True,
        access=Access(config, nobody_asks),
        recent=Recent(0.0),
        announce=SimpleNamespace(tell=lambda hint: None),
    )


async def nobody_asks(*_: Any, **__: Any) -> Any:
    raise AssertionError("no token needs the database")


async def reached(call: Any) -> wire.Reply:
    said = {"tenant": str(call.tenant), "subject": call.principal.subject}
    return wire.Reply(200, json.dumps(said).encode())


async def django(scope: Any, receive: Any, send: Any) -> None:
    given = scope.get("queen")
    said = {"tenant": str(given["tenant"]) if given else "page"}
    await wire.send_json(send, 200, json.dumps(said).encode())


def door_of(broker: Any, **options: Any) -> Door:
    handlers = {one.handler: reached for one in options.pop("routes", ROUTES)}
    return Door(django, lambda: broker, handlers=handlers, **options)


def token(*roles: str, **claims: Any) -> bytes:
    return jwt.encode({"roles": roles, **claims}, SECRET, algorithm="HS256").encode()


def bearer(*roles: str, **claims: Any) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + token(*roles, **claims))]


async def ask(door: Door, method: str, path: str, headers: Any = ()) -> Client:
    return await Client(door).request(method, path, headers=headers)


def test_every_route_of_the_contract_has_its_level_and_no_other_route_is_public():
    for route in ROUTES:
        assert isinstance(route.level, Level)
        if route.name in LEVELS:
            assert route.level == LEVELS[route.name], route.name
        else:
            assert route.level != Level.PUBLIC, f"{route.name}: who said that it is public?"


def test_what_of_the_contract_is_not_served_is_known():
    assert set(LEVELS) - {route.name for route in ROUTES} == NOT_SERVED


def test_a_route_that_states_no_level_cannot_be_written_down():
    with pytest.raises(TypeError):
        Route("GET", "/api/v1/x", kind=Kind.HOT, handler="x")  # type: ignore[call-arg]


async def test_a_level_that_the_table_of_roles_does_not_know_lets_nobody_in():
    strange = Route("GET", "/x", "owner", Kind.HOT, "strange")  # type: ignore[arg-type]
    door = door_of(broker_with(), router=Router([strange]), routes=[strange])
    for headers in ([], bearer(*ROLES), bearer("owner")):
        assert (await ask(door, "GET", "/x", headers)).status in (401, 403)


async def test_every_route_method_role_and_tenant_is_answered_by_the_table():
    door = door_of(broker_with(tenancy=True))
    tenants = {None: DEFAULT_TENANT, TENANT: TENANT, "junk": None}
    callers = [(role,) for role in ROLES] + [("read-only", "write-only"), (), None, ("root",)]
    credentials = {roles: [] if roles is None else bearer(*roles) for roles in callers}
    for route, roles, named in itertools.product(ROUTES, callers, tenants):
        headers = list(credentials[roles])
        if named is not None:
            headers.append((b"x-queen-tenant", named.encode()))
        if route.level == Level.PUBLIC:
            expected = 200
        elif roles is None:
            expected = 401
        else:
            expected = 200 if MAY[route.level] & set(roles) else 403
        if expected == 200 and route.tenant and tenants[named] is None:
            expected = 400
        for method in (route.method, "HEAD") if route.head else (route.method,):
            answer = await ask(door, method, address_of(route), headers)
            assert answer.status == expected, (method, route.name, roles, named)
            if expected == 200 and method != "HEAD":
                tenant = tenants[named] if route.tenant else DEFAULT_TENANT
                assert answer.json["tenant"] == str(tenant)
            elif expected == 401:
                assert answer.headers[b"www-authenticate"] == b"Bearer"


async def test_without_authentication_everybody_may_do_all_and_tokens_are_not_read():
    door = door_of(broker_with(jwt_enabled=False))
    for route in ROUTES:
        for headers in ([], [(b"authorization", b"junk")]):
            answer = await ask(door, route.method, address_of(route), headers)
            assert answer.status == 200


@pytest.mark.parametrize(
    ("method", "path", "anonymous", "read_only", "read_write"),
    [
        ("GET", "/api/v1/nope", 401, 403, 404),
        ("POST", "/api/v1/nope", 401, 403, 404),
        ("PATCH", "/api/v1/push", 401, 403, 405),
        ("GET", "/_queen/configure", 401, 403, 404),
        ("GET", "/nope", 401, 403, 200),
        ("GET", "/", 200, 200, 200),
        ("GET", "/favicon.ico", 200, 200, 200),
        ("POST", "/admin/login/", 200, 200, 200),
        ("POST", "/nope", 401, 403, 404),
    ],
)
async def test_what_the_table_does_not_know_needs_read_write(
    method, path, anonymous, read_only, read_write
):
    door = door_of(broker_with())
    for headers, status in (
        ([], anonymous), (bearer("read-only"), read_only), (bearer("read-write"), read_write),
    ):  # fmt: skip
        assert (await ask(door, method, path, headers)).status == status


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Bearer %s", 200), (b"bearer %s", 200), (b"BEARER  %s ", 200), (b"%s", 200),
        (b"Bearer%s", 401), (b"Basic %s", 401), (b"Bearer", 401), (b"", 401), (b"  ", 401),
    ],
)  # fmt: skip
async def test_the_credential_is_the_authorization_header_with_or_without_bearer(header, status):
    value = header % token("admin") if b"%s" in header else header
    answer = await ask(door_of(broker_with()), "GET", "/status", [(b"authorization", value)])
    assert answer.status == status


async def test_nothing_else_carries_a_credential():
    good = token("admin")
    door = door_of(broker_with())
    for headers in (
        [(b"cookie", b"sessionid=1; token=" + good)],
        [(b"x-authorization", b"Bearer " + good)],
        [(b"proxy-authorization", b"Bearer " + good)],
    ):
        assert (await ask(door, "GET", "/status", headers)).status == 401
    assert (await ask(door, "GET", f"/status?token={good.decode()}")).status == 401


async def test_of_two_credentials_none_counts():
    both = bearer("admin") + bearer("read-only")
    assert (await ask(door_of(broker_with()), "GET", "/status", both)).status == 401


async def test_the_skip_list_is_exact_and_a_slash_at_the_end_means_below():
    door = door_of(broker_with(jwt_skip_paths=("/status", "/api/v1/pop/queue/open/", "/")))
    for path, status in (
        ("/status", 200),
        ("/status?x=1", 200),
        ("/api/v1/pop/queue/open/partition/a", 200),
        ("/api/v1/pop/queue/open", 401),
        ("/api/v1/pop/queue/opener", 401),
        ("/api/v1/status/buffers", 401),
        ("/%73tatus", 401),
    ):
        assert (await ask(door, "GET", path)).status == status, path
    assert (await ask(door_of(broker_with(jwt_skip_paths=())), "GET", "/health")).status == 200


async def test_the_metrics_can_be_closed_and_the_skip_list_does_not_open_them():
    door = door_of(broker_with(metrics_public=False))
    assert (await ask(door, "GET", "/metrics/prometheus")).status == 401
    assert (await ask(door, "GET", "/metrics/prometheus", bearer("write-only"))).status == 403
    assert (await ask(door, "GET", "/metrics/prometheus", bearer("read-only"))).status == 200


async def test_the_subject_comes_from_the_token():
    answer = await ask(door_of(broker_with()), "POST", "/api/v1/push", bearer("admin", sub="me"))
    assert answer.json["subject"] == "me"


# What is remembered


async def test_a_remembered_token_is_good_until_it_expires_and_not_longer(monkeypatch):
    broker = broker_with(jwt_clock_skew_s=0)
    access = broker.access
    credential = b"Bearer " + token("admin", exp=time.time() + 100)
    principal = await access.identify(credential)
    assert access.remembered(credential) is principal
    later = time.time() + 101
    monkeypatch.setattr(time, "time", lambda: later)
    assert access.remembered(credential) is None
    with pytest.raises(BrokerError, match="Token has expired"):
        await access.identify(credential)


async def test_a_bad_token_is_not_remembered_and_the_memory_is_bounded():
    access = broker_with().access
    for number in range(50):
        with pytest.raises(BrokerError):
            await access.identify(b"Bearer junk%d" % number)
    assert not access._remembered
    good = token("admin")
    for number in range(REMEMBERED_MAX + 5):
        access._remember(b"%d" % number, float("inf"), ANYBODY)
    await access.identify(good)
    assert len(access._remembered) == REMEMBERED_MAX
    assert access.remembered(good) is not None


async def test_of_the_ways_to_write_a_credential_few_are_remembered():
    """Blanks around a token mean nothing, and there may be tens of thousands of them."""
    access, good = broker_with().access, token("admin")
    for written in (good, b"Bearer " + good, b"BEARER " + good):
        await access.identify(written)
        assert access.remembered(written) is not None
    for written in (b"Bearer  " + good, b"Bearer " + good + b" " * 60_000, b" " * 8 + good):
        assert (await access.identify(written)).levels
        assert access.remembered(written) is None


async def test_what_was_judged_by_old_keys_is_not_remembered_under_new_ones():
    access = broker_with().access
    judge = access._tokens.judge

    async def slow(raw: bytes) -> Any:
        found = await judge(raw)
        access.forget()  # other keys came while this one was judged
        return found

    access._tokens.judge = slow
    credential = token("admin")
    assert await access.identify(credential)
    assert access.remembered(credential) is None


async def test_requests_with_one_token_have_it_judged_once():
    broker = broker_with()
    judge, judged = broker.access._tokens.judge, []

    async def counting(raw: bytes) -> Any:
        judged.append(raw)
        return await judge(raw)

    broker.access._tokens.judge = counting
    door, headers = door_of(broker), bearer("admin")
    for _ in range(20):
        assert (await ask(door, "GET", "/status", headers)).status == 200
    assert len(judged) == 1


async def test_a_remembered_caller_is_recognised_without_a_wait_until_it_is_forgotten():
    broker = broker_with()
    push = next(one for one in ROUTES if one.name == "POST /api/v1/push")
    scope = {"headers": [*bearer("read-only"), (b"host", b"x")]}
    assert auth.recognise(broker, push, scope, b"/api/v1/push") is None
    with pytest.raises(BrokerError, match="Insufficient permissions"):
        await auth.meet(broker, push, scope, b"/api/v1/push")
    with pytest.raises(BrokerError, match="Insufficient permissions"):
        auth.recognise(broker, push, scope, b"/api/v1/push")
    status = next(one for one in ROUTES if one.name == "GET /status")
    assert auth.recognise(broker, status, scope, b"/status").levels == {"read-only"}
    broker.access.forget()
    assert auth.recognise(broker, status, scope, b"/status") is None


# Tenants of callers


def test_a_caller_of_a_tenant_is_that_tenants_whatever_the_header_says():
    mine = Principal(levels=levels_of(["admin"]), tenant=UUID(TENANT))
    other = [(b"x-queen-tenant", b"0190b6d4-7a3c-4c4e-9a57-0d8f4b1f2a3c")]
    same = [(b"x-queen-tenant", TENANT.upper().encode())]
    for by_header in (False, True):
        broker = broker_with(tenancy=by_header)
        assert auth.tenant_of(broker, mine, {"headers": []}) == UUID(TENANT)
        assert auth.tenant_of(broker, mine, {"headers": same}) == UUID(TENANT)
    with pytest.raises(BrokerError, match="Insufficient permissions"):
        auth.tenant_of(broker, mine, {"headers": other})


async def test_what_is_the_cells_is_closed_to_a_tenants_admin():
    broker = broker_with()
    mine = Principal(levels=levels_of(["admin"]), tenant=UUID(TENANT))
    broker.access._remember(b"mine", float("inf"), mine)
    door = door_of(broker)
    for route in ROUTES:
        answer = await ask(door, route.method, address_of(route), [(b"authorization", b"mine")])
        public = route.level == Level.PUBLIC
        assert answer.status == (200 if route.tenant or public else 403), route.name


# Confinement


NAMING = [
    {"items": [{"queue": "orders.a", "payload": {"queue": "other"}}]},
    {"queue": "orders.a", "options": {"x": 1}, "namespace": "n", "task": "t"},
    {"operations": [{"type": "push", "items": [{"queue": "orders.a", "data": 1}]}], "kv": []},
    {"operations": [{"op": "schedule", "queue": "orders.", "timerKey": "k"}]},
]
STRAYING = [
    {"items": [{"queue": "orders.a"}, {"queue": "other"}]},
    {"items": []},
    {},
    [],
    None,
    {"queue": "order"},
    {"queue": "Orders.a"},
    {"queue": ["orders.a", "other"]},
    {"operations": [{"type": "push", "queue": "orders.a"}], "kv": [{"op": "get"}]},
    {"operations": [{"type": "push", "queue": "orders.a"}], "timers": [{"queue": "other"}]},
    {"queue": "orders.a", "deep": [[{"x": {"queueName": "other"}}]]},
    {"queue": "orders.a", "source_queue": "other"},
]


async def confined(body: Any, template: str = "/api/v1/push", query: bytes = b"") -> None:
    route = next(one for one in ROUTES if one.template == template)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    await confine.check(
        broker_with(), route, "orders.", DEFAULT_TENANT, params={}, query_string=query, body=raw
    )


@pytest.mark.parametrize("body", NAMING)
async def test_a_confined_caller_may_name_its_queues_anywhere(body):
    await confined(body)


@pytest.mark.parametrize("body", STRAYING)
async def test_a_confined_caller_may_name_no_other_queue_anywhere_and_must_name_one(body):
    with pytest.raises(BrokerError, match="Insufficient permissions"):
        await confined(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"items":[{"queue":"orders.a","queue":"other"}]}',
        b'{"items":[{"queue":"other","queue":"orders.a"}]}',
        b'{"items":[{"queue":"orders.a"}],"items":[{"queue":"other"}]}',
        b'{"items":[{"\\u0071ueue":"other"},{"queue":"orders.a"}]}',
        b'\xef\xbb\xbf{"queue":"other"}',
        b'{"items":[{"queue":"orders.a"}]} {"queue":"other"}',
        b"\xff",
        b"[" * 100_000,
    ],
)
async def test_a_body_that_can_be_read_in_two_ways_is_refused(body):
    with pytest.raises(BrokerError) as told:
        await confined(body)
    assert told.value.status in (400, 403)


async def test_a_confined_caller_reaches_only_routes_that_name_queues():
    broker = broker_with()
    mine = Principal(levels=levels_of(["admin"]), queue_prefix="x")
    broker.access._remember(b"mine", float("inf"), mine)
    door = door_of(broker)
    for route in ROUTES:
        # What is named by an id is looked up in the database: see tests/api/test_access.py.
        by_id = ":partitionId" in route.template or route.handler in REDRIVES
        if route.level == Level.PUBLIC or by_id:
            continue
        path = address_of(route)
        answer = await ask(door, route.method, path, [(b"authorization", b"mine")])
        named = ":queue" in route.template or route.handler == "lease_extend"
        assert answer.status == (200 if named and route.tenant else 403), route.name
        away = await ask(
            door,
            route.method,
            path.replace("/x", "/y"),
            [(b"authorization", b"mine")],
        )
        assert away.status in ((200,) if route.handler == "lease_extend" else (403, 401)), (
            route.name
        )


async def test_a_large_body_is_read_beside_the_loop():
    items = [{"queue": "orders.a", "payload": "x" * 100} for _ in range(4000)]
    await confined({"items": items})
    with pytest.raises(BrokerError):
        await confined({"items": [*items, {"queue": "other"}]})


def test_a_number_of_any_length_is_no_name_and_hinders_none():
    named = confine.Named()
    confine.read(
        b'{"queue":"a","payload":' + b"9" * 5000 + b',"partitionId":' + b"9" * 500 + b"}", named
    )
    assert named.queues == {"a"} and not named.partitions and not named.closed


def test_the_loop_is_not_needed_to_read_a_body():
    named = confine.Named()
    confine.read(b'{"queue":"a","payload":{"queue":"b"},"x":[{"partitionId":"p"}]}', named)
    assert (named.queues, named.partitions, named.closed) == ({"a"}, {"p"}, False)
