"""API keys, tenants and confinement on a broker that asks who comes.

Method: HTTP against a broker of this file; keys are made and revoked in the database, as the
command does.
"""

import itertools
import json
import os
import subprocess
import sys
import uuid
from contextlib import ExitStack

import jwt
import pytest

from brokers.api.route import Level
from brokers.api.routes import ROUTES
from brokers.api_key import new_key
from tests import harness
from tests.unit.test_locks import MAY, ROLES
from tests.wire_client import UNKNOWN_UUID, WireClient, ack_of, expect

SECRET = "the-secret-of-the-tests-" + "s" * 40


@pytest.fixture(scope="module")
def locked(database, tmp_path_factory):
    broker = harness.BrokerProcess(
        tmp_path_factory.mktemp("locked") / "log",
        database.environment
        | {
            "QUEEN_API_KEYS": "true",
            "JWT_ENABLED": "true",
            "JWT_SECRET": SECRET,
            "RUST_LOG": "debug",
            "QUEEN_SYNC_SECRET": "a-mesh-secret-" + "m" * 30,
            "QUEEN_ENCRYPTION_KEY": "ab" * 32,
            "PG_PASSWORD": "the-password-of-postgres",
        },
    )
    yield broker
    broker.stop()


@pytest.fixture
def make_key(database):
    """`make_key(role, tenant=..., prefix=..., seconds=...)`: its text."""
    with database.connect() as db:

        def make(role="admin", *, tenant=None, prefix="", seconds=None, name="tests") -> str:
            key = new_key()
            db.execute(
                "SELECT queen_api_key_create_v1(%s, %s, %s, %s, %s, %s, %s, 10000)",
                [key.id, key.digest, name, role, tenant, prefix, seconds],
            )
            return key.text

        yield make


@pytest.fixture
def come(locked, make_key):
    """A factory of clients, each with a key of its own."""
    with ExitStack() as clients:

        def make(role="admin", **options) -> WireClient:
            headers = {"Authorization": f"Bearer {make_key(role, **options)}"}
            return clients.enter_context(WireClient.at(locked.url, headers))

        yield make


def test_a_key_is_good_as_soon_as_it_is_made_and_stamped_on_what_is_pushed(come, fresh_queue):
    wire = come(name="the orders service")
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    assert message["producerSub"] == "key:the orders service"


def test_who_has_no_key_or_a_wrong_one_is_told_so(locked, make_key):
    good = make_key()
    wrong = good[:-1] + ("A" if good[-1] != "A" else "B")
    for headers in ({}, {"Authorization": "x"}, {"Authorization": wrong}):
        with WireClient.at(locked.url, headers) as wire:
            expect(wire.get("/api/v1/resources/queues"), 401)
            expect(wire.get("/livez"), 200)


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("keys", [False, True])
def test_who_one_is_is_told_only_where_nobody_is_asked_for_a_credential(start_broker, keys, tokens):
    environment = {"QUEEN_API_KEYS": "true"} if keys else {}
    if tokens:
        environment |= {"JWT_ENABLED": "true", "JWT_SECRET": SECRET}
    with WireClient.at(start_broker(**environment).url) as wire:
        me = expect(wire.get("/auth/me"), 401 if environment else 200).json()
        page = expect(wire.get("/auth/login"), 200).text
        expect(wire.post("/auth/logout"), 200)
    assert me.get("code") == ("auth_required" if environment else None)
    assert me.get("role") == (None if environment else "admin")
    assert ("Authentication is off" in page) is not bool(environment)


def test_a_token_and_a_key_open_the_same_door(locked, fresh_queue):
    token = jwt.encode({"sub": "me", "role": "write-only"}, SECRET, algorithm="HS256")
    with WireClient.at(locked.url, {"Authorization": token}) as wire:
        wire.push(fresh_queue, 1)
        expect(wire.get(f"/api/v1/pop/queue/{fresh_queue}"), 403)


def test_every_route_refuses_the_roles_that_the_table_refuses_and_no_others(locked, fresh_queue):
    """What is let in asks about things that nobody has, with a body that is none."""
    unknown = {"partitionId": UNKNOWN_UUID, "id": UNKNOWN_UUID, "leaseId": UNKNOWN_UUID}

    def path_of(route) -> str:
        parts = [
            unknown.get(part[1:], fresh_queue) if part[:1] in (":", "*") else part
            for part in route.template.split("/")
        ]
        return "/".join(parts)

    callers = {role: jwt.encode({"role": role}, SECRET, algorithm="HS256") for role in ROLES}
    with WireClient.at(locked.url) as wire:
        for route, role in itertools.product(ROUTES, (*ROLES, "nobody", None)):
            token = callers.get(role) or jwt.encode({}, SECRET, algorithm="HS256")
            headers = {} if role is None else {"Authorization": token}
            for method in (route.method, "HEAD") if route.head else (route.method,):
                status = wire.http.request(
                    method,
                    path_of(route),
                    params={"queue": fresh_queue},
                    content=None if method in ("GET", "HEAD") else b"{",
                    headers=headers,
                ).status_code
                told = status if status in (401, 403) else None
                if route.handler == "auth_me":
                    # Open to all, and a 401 to all: with tokens nobody is signed in by a cookie.
                    refused = 401
                elif route.level == Level.PUBLIC:
                    refused = None
                elif role is None:
                    refused = 401
                else:
                    refused = None if role in MAY[route.level] else 403
                assert told == refused, (method, route.name, role, status)
                assert status < 500, (method, route.name, role, status)


def test_a_revoked_key_is_refused_by_every_broker_a_moment_later(
    locked, start_broker, make_key, db, eventually
):
    other = start_broker(QUEEN_API_KEYS="true")
    key = make_key("read-only")
    headers = {"Authorization": key}
    with WireClient.at(locked.url, headers) as here, WireClient.at(other.url, headers) as there:
        for wire in (here, there):
            expect(wire.get("/api/v1/resources/queues"), 200)
        assert db.execute("SELECT queen_api_key_revoke_v1(%s)", [key.split("_")[1]]).fetchone() == (
            "revoked",
        )
        for wire in (here, there):
            eventually(lambda wire=wire: wire.get("/api/v1/resources/queues").status_code == 401)


def test_a_key_that_ran_out_is_refused_although_nobody_revoked_it(locked, make_key, eventually):
    with WireClient.at(locked.url, {"Authorization": make_key(seconds=1)}) as wire:
        eventually(lambda: wire.get("/api/v1/resources/queues").status_code == 401)
        assert wire.get("/api/v1/resources/queues").status_code == 401


def test_whoever_changes_a_key_moves_the_version(locked, come, db, eventually):
    wire = come("admin", name="changing")
    expect(wire.get("/api/v1/system/kv-timers"), 200)
    db.execute("UPDATE queen_api_key SET role = 'read-only' WHERE name = 'changing'")
    eventually(lambda: wire.get("/api/v1/system/kv-timers").status_code == 403)
    expect(wire.get("/api/v1/resources/queues"), 200)
    db.execute("DELETE FROM queen_api_key WHERE name = 'changing'")
    eventually(lambda: wire.get("/api/v1/resources/queues").status_code == 401)


def test_two_tenants_may_use_the_same_names_and_every_id_of_one_is_unknown_to_the_other(
    come, fresh_queue
):
    a, b = (come("admin", tenant=str(uuid.uuid4())) for _ in range(2))
    for wire, payload in ((a, "of a"), (b, "of b")):
        wire.push(fresh_queue, payload, ids=["t"])
        wire.post(
            "/api/v1/kv",
            {
                "operations": [
                    {"op": "put", "ns": "n", "key": "k", "value": payload, "forever": True}
                ]
            },
        )
        schedule = {"op": "schedule", "queue": fresh_queue, "timerKey": "k", "delayMs": 10**7}
        wire.post("/api/v1/timers", {"operations": [schedule | {"txn": "x", "payload": "MQ=="}]})
    [of_a], [of_b] = a.messages(fresh_queue), b.messages(fresh_queue)
    assert (of_a["data"], of_b["data"]) == ("of a", "of b")
    # Ids of a's, in b's hands: as if they had never been.
    unknown = b.ack(of_a, partitionId=UNKNOWN_UUID)
    assert b.ack(of_a) | {"index": 0} == unknown | {"index": 0}
    assert b.extend(of_a["leaseId"])["renewed"] == 0
    rolled = b.transaction({"type": "ack"} | ack_of(of_a))
    assert rolled["success"] is False
    assert a.ack(of_a, "dlq")["dlq"] is True
    [row] = a.dead_letters(fresh_queue)
    assert b.dead_letters(fresh_queue) == []
    expect(b.replay(row["id"]), 404)
    expect(b.retry(of_a["partitionId"], "t"), 404)
    assert b.get("/api/v1/kv/n/k").json()["value"] == "of b"
    cancelled = b.http.delete(f"/api/v1/timers/{fresh_queue}/k", headers=b.headers).json()
    assert cancelled["status"] == "cancelled"
    assert a.get(f"/api/v1/timers/{fresh_queue}/k").json()["found"] is True
    assert b.get(f"/api/v1/timers/{fresh_queue}/k").json()["found"] is False
    b.delete(fresh_queue)
    assert [one["id"] for one in a.dead_letters(fresh_queue)] == [row["id"]]


def test_a_tenants_admin_does_not_rule_the_cell(come):
    mine, operators = come("admin", tenant=str(uuid.uuid4())), come("admin")
    for wire, status in ((mine, 403), (operators, 200)):
        expect(wire.get("/api/v1/system/maintenance"), status)
        expect(wire.get("/api/v1/status/buffers"), status)


def test_a_confined_key_reaches_its_queues_and_no_others(come, fresh_queue):
    mine, other = f"{fresh_queue}.mine", f"{fresh_queue}-other"
    owner, wire = come("admin"), come("read-write", prefix=f"{fresh_queue}.")
    owner.push(other, "secret")
    [foreign] = owner.messages(other)
    wire.configure(mine, leaseTime=30)
    wire.push(mine, 1, 2)
    [message] = wire.messages(mine, batch=1)
    expect(wire.post(f"/api/v1/lease/{message['leaseId']}/extend", {}), 200)
    assert wire.ack(message)["success"] is True
    schedule = {"op": "schedule", "timerKey": "k", "delayMs": 10**7, "txn": "x", "payload": "MQ=="}
    body = {"operations": [schedule | {"queue": mine}]}
    expect(wire.post("/api/v1/timers", body), 200)
    assert wire.dead_letters(mine) == []

    body["operations"].append(schedule | {"queue": other})
    refused = [
        wire.post_items({"queue": mine, "payload": 1}, {"queue": other, "payload": 1}),
        wire.get(f"/api/v1/pop/queue/{other}"),
        wire.get("/api/v1/pop", namespace=fresh_queue),
        wire.post("/api/v1/ack", ack_of(foreign)),
        wire.post("/api/v1/ack/batch", {"acknowledgments": [ack_of(foreign)]}),
        wire.post(
            "/api/v1/transaction",
            {"operations": [{"type": "push", "queue": mine, "payload": 1},
                            {"type": "ack"} | ack_of(foreign)]},
        ),
        wire.post("/api/v1/timers", body),
        wire.post("/api/v1/configure", {"queue": other}),
        wire.get("/api/v1/resources/queues"),
        wire.get(wire.queue_path(other)),
        wire.get("/api/v1/dlq"),
        wire.get("/api/v1/dlq", queue=other),
        wire.post(f"/api/v1/messages/{foreign['partitionId']}/t/retry"),
        wire.post(f"/api/v1/dlq/{UNKNOWN_UUID}/replay", {"queue": mine}),
        wire.get("/api/v1/kv/n/k"),
    ]  # fmt: skip
    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert owner.ack(foreign)["success"] is True, "nothing was done to it"
    # An id that nobody knows is unknown, as for everybody.
    assert wire.ack(foreign, partitionId=UNKNOWN_UUID)["success"] is False


@pytest.fixture
def confined(come, fresh_queue):
    """Who may reach everything, who reaches `mine` alone, and the names of two queues."""
    mine, other = f"{fresh_queue}.mine", f"{fresh_queue}-other"
    return come("admin"), come("read-write", prefix=f"{fresh_queue}."), mine, other


def assert_all_refused(*answers):
    assert [answer.status_code for answer in answers] == [403] * len(answers)


def test_a_confined_key_runs_streams_over_its_queues_and_no_others(confined):
    owner, wire, mine, other = confined

    def register(client, name, source, **more):
        body = {"name": name, "source_queue": source, "config_hash": "h"} | more
        return client.post("/streams/v1/queries", body)

    wire.push(mine, 1)
    owner.push(other, "secret")
    [own_message], [foreign] = wire.messages(mine), owner.messages(other)
    theirs = expect(register(owner, f"{other}-query", other), 200).json()["query_id"]
    own = expect(register(wire, f"{mine}-query", mine, sink_queue=""), 200).json()["query_id"]
    at = {"query_id": own, "partition_id": own_message["partitionId"]}
    cycle = at | {
        "state_ops": [{"type": "upsert", "key": "k", "value": {"queue": other}}],
        "push_items": [{"queue": f"{mine}.sink", "payload": {"queue": other}}, {"queue": ""}],
    }
    assert expect(wire.post("/streams/v1/cycle", cycle), 200).json()["success"] is True
    [row] = expect(wire.post("/streams/v1/state/get", at), 200).json()["rows"]
    assert row["value"] == {"queue": other}, "what is stored names no queue"

    there = {"partition_id": foreign["partitionId"]}
    assert_all_refused(
        register(wire, f"{mine}-2", other),
        register(wire, f"{mine}-2", mine, sink_queue=other),
        register(wire, f"{other}-query", mine),
        register(wire, f"{other}-query", mine, config_hash="h2", reset=True),
        wire.post("/streams/v1/state/get", at | there),
        wire.post("/streams/v1/state/get", at | {"query_id": theirs}),
        wire.post("/streams/v1/cycle", cycle | there),
        wire.post("/streams/v1/cycle", cycle | {"query_id": theirs}),
        wire.post("/streams/v1/cycle", cycle | {"push_items": [{"queue": other, "payload": 1}]}),
    )
    assert owner.ack(foreign)["success"] is True
    assert owner.payloads(other) == []
    unknown = wire.post("/streams/v1/cycle", cycle | {"query_id": UNKNOWN_UUID})
    assert expect(unknown, 200).json()["error"] == "query not found"


def test_a_confined_key_redrives_between_its_queues_and_no_others(confined, eventually):
    owner, wire, mine, other = confined
    path = "/api/v1/dlq/redrive"
    for client, queue in ((wire, mine), (owner, other)):
        client.push(queue, queue)
        [message] = client.messages(queue)
        client.ack(message, "dlq")

    def to(queue):
        return {"destination": {"queue": queue}}

    job = expect(wire.post(path, {"queue": mine} | to(f"{mine}.2")), 201).json()["id"]
    eventually(lambda: expect(wire.get(f"{path}/{job}"), 200).json()["state"] == "done")
    assert wire.payloads(f"{mine}.2") == [mine]
    expect(wire.post(f"{path}/{job}/cancel"), 200)
    expect(wire.post(f"{path}/{job}/resume"), 409)
    expect(wire.get(f"{path}/{UNKNOWN_UUID}"), 404)
    expect(wire.get(f"{path}/none"), 404)

    foreign = [
        expect(owner.post(path, body), 201).json()["id"]
        for body in ({"queue": mine} | to(other), {"queue": other} | to(f"{other}-2"))
    ]
    assert_all_refused(
        wire.post(path, {"queue": other}),
        wire.post(path, {"queue": other} | to(mine)),
        wire.post(path, {"queue": mine} | to(other)),
        wire.get(path),
        *(wire.get(f"{path}/{one}") for one in foreign),
        *(wire.post(f"{path}/{one}/cancel") for one in foreign),
        *(wire.post(f"{path}/{one}/resume") for one in foreign),
    )


def test_a_confined_key_looks_at_its_queues_and_no_others(confined):
    owner, wire, mine, other = confined
    for client, queue in ((wire, mine), (owner, other)):
        client.push(queue, "x", ids=["t"])
    for path in (
        "messages", "messages/search", "dlq", "status/analytics", "analytics/dlq-signatures",
        "analytics/queue-lag", "analytics/queue-ops", "analytics/queue-parked-replicas",
        "analytics/retention", "analytics/partition-liveness",
    ):  # fmt: skip
        answer = expect(wire.get(f"/api/v1/{path}", queue=mine, q="x"), 200)
        assert other not in answer.text
        # Another spelling than the route's own would be no filter at all.
        others = ({}, {"queue": other}, {"queue": ""}, {"queueName": mine}, {"queues": mine})
        others += ({"partitionId": UNKNOWN_UUID},)
        assert_all_refused(*(wire.get(f"/api/v1/{path}", q="x", **asked) for asked in others))
    assert_all_refused(
        wire.get("/api/v1/analytics/workload", queue=mine),  # holds figures of all queues
        wire.get("/api/v1/status/queues", queue=mine),
        wire.get(f"/api/v1/status/queues/{other}"),
        wire.get("/api/v1/resources/overview"),
        wire.get("/api/v1/resources/namespaces"),
        wire.get("/api/v1/consumer-groups"),
        wire.get("/api/v1/consumer-groups/g"),
        wire.get("/api/v1/traces/names"),
        wire.get("/api/v1/traces/by-name/n"),
        wire.post(f"{wire.queue_path(other)}/pause"),
        wire.post(f"/api/v1/consumer-groups/g/queues/{other}/seek", {"toEnd": True}),
    )
    expect(wire.get(f"/api/v1/status/queues/{mine}"), 200)
    expect(wire.post(f"{wire.queue_path(mine)}/resume"), 200)


def test_a_confined_key_reaches_messages_of_its_own_partitions_by_their_ids(confined):
    owner, wire, mine, other = confined
    for client, queue in ((wire, mine), (owner, other)):
        client.push(queue, "x", ids=["t"])
    [message], [foreign] = wire.messages(mine), owner.messages(other)
    own, theirs = (f"{one['partitionId']}/t" for one in (message, foreign))
    trace = {"transactionId": "t", "data": {"queue": other}}
    expect(wire.get(f"/api/v1/messages/{own}"), 200)
    expect(wire.post("/api/v1/traces", trace | {"partitionId": message["partitionId"]}), 201)
    assert len(expect(wire.get(f"/api/v1/traces/{own}"), 200).json()["traces"]) == 1
    expect(wire.http.delete(f"/api/v1/messages/{own}", headers=wire.headers), 404)
    changed = {"entries": [{"queue": mine}]}
    expect(wire.post("/api/v1/partitions/changed", changed), 200)
    changed["entries"].append({"queue": other})
    assert_all_refused(
        wire.get(f"/api/v1/messages/{theirs}"),
        wire.http.delete(f"/api/v1/messages/{theirs}", headers=wire.headers),
        wire.post("/api/v1/traces", trace | {"partitionId": foreign["partitionId"]}),
        wire.get(f"/api/v1/traces/{theirs}"),
        wire.post("/api/v1/partitions/changed", changed),
    )
    expect(wire.get(f"/api/v1/messages/{UNKNOWN_UUID}/t"), 404)


def test_nothing_that_is_secret_is_logged(locked, make_key, come, fresh_queue):
    key = make_key()
    token = jwt.encode({"role": "admin"}, SECRET, algorithm="HS256")
    for credential in (key, token, "Bearer " + token[:-3] + "xxx", key[:-1]):
        with WireClient.at(locked.url, {"Authorization": credential}) as wire:
            wire.get("/api/v1/resources/queues")
            wire.post("/api/v1/push", b"{")
            wire.post("/api/v1/push", {"items": [{"queue": "x" * 300, "payload": 1}]})
    come("read-only").get("/nope")
    log = locked.log
    assert "config: auth" in log and "JWT_SECRET=<set:" in log
    for secret in (
        SECRET, "a-mesh-secret-", "ab" * 32, "the-password-of-postgres", key, key.split("_", 2)[2],
        token, token.split(".")[2], "only-for-tests-",
    ):  # fmt: skip
        assert secret not in log


def test_the_command_makes_lists_and_revokes(database, locked):
    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "manage.py", "apikey", *arguments],
            cwd=harness.PROJECT_DIR,
            env={**os.environ, **database.direct_environment, "QUEEN_API_KEYS": "true"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    made = run("create", "by command", "--role", "read-only", "--prefix", "p.", "--days", "2")
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    key_id = key.split("_")[1]
    [listed] = [
        shown
        for line in run("list", "--json").stdout.splitlines()
        if (shown := json.loads(line))["id"] == key_id
    ]
    assert (listed["name"], listed["role"], listed["prefix"]) == ("by command", "read-only", "p.")
    assert key not in json.dumps(listed)
    assert "revoked" in run("revoke", key_id).stdout
    assert key_id not in run("list").stdout
    assert run("revoke", "nobody").returncode == 1


def test_the_command_says_in_words_that_the_database_is_away(tmp_path):
    done = subprocess.run(
        [sys.executable, "manage.py", "apikey", "list"],
        cwd=harness.PROJECT_DIR,
        env={**os.environ, "PG_HOST": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "CommandError: FATAL: the database is away: " in done.stderr
    assert "Traceback" not in done.stderr


def test_the_api_is_asked_by_any_host_and_carries_no_pages_headers(start_broker):
    broker = start_broker(QUEEN_ALLOWED_HOSTS="console.example")
    with WireClient.at(broker.url, {"host": "anything", "accept": "text/html"}) as wire:
        answer = wire.get("/api/v1/resources/queues")
        assert (answer.status_code, wire.get("/").status_code) == (200, 400)
        assert "content-security-policy" not in answer.headers
