"""Every route of a tenant, asked by B with all that is A's: as if A's had never been.

Method: A has something of every kind. B asks each route twice, once with A's names and ids, once
with names and ids that nobody ever had, and is told the same both times, its own words aside.
Nothing of A's that B did not say itself is in any answer, and A's things are afterwards as they
were. The routes are those of the table, so that a new one is asked too. In A's hands every body
would do what it says: only the tenant makes it fail.
"""

import base64
import json
import re
import uuid
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import pytest

from brokers.api.routes import ROUTES
from tests import harness
from tests.harness import eventually
from tests.wire_client import WireClient, ack_of, expect

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T[0-9:.]+Z?")
# Milliseconds since 1970, and how long something took or has been.
MILLISECONDS = re.compile(r"\b1\d{12}\b")
TOOK = re.compile(r'("\w*(?:[mM]s|[sS]econds|[aA]ge)"): ?[0-9.]+')
REDRIVE = "/api/v1/dlq/redrive"
# Of key/value entries, from one sequence for all.
VERSION = re.compile(r'"version":\d+')


@dataclass(frozen=True)
class Belongings:
    """What one tenant has, or nobody."""

    queue: str
    group: str
    namespace: str
    key: str
    trace: str
    query: str
    transaction: str
    partition_id: str
    lease_id: str
    letter_id: str
    redrive_id: str
    query_id: str

    @property
    def names(self) -> dict[str, str]:
        """By what a parameter is called in a template."""
        return {
            "queue": self.queue, "group": self.group, "ns": self.namespace, "key": self.key,
            "timerKey": self.key, "traceName": self.trace, "partition": "Default",
            "partitionId": self.partition_id, "transactionId": self.transaction,
            "leaseId": self.lease_id, "asset": "none",
        }  # fmt: skip

    def address(self, template: str) -> str:
        own = self.names | {"id": self.redrive_id if "redrive" in template else self.letter_id}
        parts = [
            quote(own[part[1:]], safe="") if part[:1] in (":", "*") else part
            for part in template.split("/")
        ]
        return "/".join(parts)

    def bodies(self, handler: str) -> list[Any]:
        """Of a route that takes several kinds of thing, one body for each."""
        bare = {"partitionId": self.partition_id, "transactionId": self.transaction,
                "consumerGroup": self.group}  # fmt: skip
        ack = bare | {"leaseId": self.lease_id}
        push = {"type": "push", "queue": self.queue, "payload": 1}
        item = {"queue": self.queue, "payload": 1, "transactionId": self.transaction}
        stream = {"query_id": self.query_id, "partition_id": self.partition_id}
        state = [{"type": "upsert", "key": "k", "value": 2}]
        get = {"op": "get", "ns": self.namespace, "key": self.key}
        timer = {"op": "cancel", "queue": self.queue, "timerKey": self.key}
        late = timer | {"op": "schedule", "delayMs": 10**7, "txn": "x", "payload": "MQ=="}
        register = {"name": self.query, "source_queue": self.queue, "config_hash": "other"}
        changed = {"entries": [{"queue": self.queue}]}
        bodies = {
            "ack": ack,
            "ack_batch": {"acknowledgments": [ack], "consumerGroup": self.group},
            "configure": {"queue": self.queue, "options": {"leaseTime": 77}},
            "dlq_replay": {},
            "group_seek": {"toEnd": True},
            "group_start": {"subscriptionTimestamp": "2026-01-01T00:00:00Z"},
            "kv_batch": {"operations": [get, get | {"op": "delete"}]},
            "kv_list": {"namespace": self.namespace},
            "kv_put": {"value": 2, "forever": True},
            "notify": {"queue": self.queue},
            "partitions_changed": changed,
            "push": {"items": [item]},
            "redrive_create": {"queue": self.queue},
            "stream_cycle": stream | {"state_ops": state},
            "stream_register": register,
            "stream_state_get": stream,
            "timers_apply": {"operations": [timer, late]},
            "trace_add": ack | {"data": 1, "traceNames": [self.trace]},
        }
        several = {
            "transaction": [
                {"operations": [push, {"type": "ack", **ack}]},
                {"operations": [push, {"type": "ack", **bare}], "requiredLeases": [self.lease_id]},
                {"operations": [push], "kv": [get, get | {"op": "delete"}]},
                {"operations": [push], "timers": [timer, late]},
            ],
        }
        return several.get(handler) or [bodies.get(handler)]

    def query_of(self, handler: str) -> dict[str, str]:
        asked = {"consumerGroup": self.group, "partitionId": self.partition_id, "q": "of-a"}
        plain = {"kv_get", "kv_put", "kv_delete", "timers_read", "timer_peek", "timer_cancel"}
        return {} if handler in plain else asked | {"queue": self.queue}


@pytest.fixture(scope="module")
def broker(database, tmp_path_factory):
    process = harness.BrokerProcess(
        tmp_path_factory.mktemp("foreign") / "log",
        database.environment | {"QUEEN_TENANCY_HEADER": "true", "QUEEN_KV_TRUSTED_PROXY": "true"},
    )
    yield process
    process.stop()


@pytest.fixture
def tenants(broker, db):
    """Two tenants that may have everything."""
    with ExitStack() as clients:
        wires = []
        for _ in range(2):
            tenant = str(uuid.uuid4())
            db.execute(
                "INSERT INTO queen_quota (tenant_id, streams_enabled) VALUES (%s, true)", [tenant]
            )
            wires.append(
                clients.enter_context(WireClient.at(broker.url, {"x-queen-tenant": tenant}))
            )
        yield wires


def furnished(a: WireClient, name: str) -> Belongings:
    """Something of every kind."""
    payload = f"payload-{name}"
    a.push(name, payload, payload, payload, ids=[f"{name}-{n}" for n in range(3)])
    [failed] = a.messages(name, batch=1, subscriptionMode="all", consumerGroup=name)
    a.ack(failed, "dlq", error=f"error-{name}")
    [leased] = a.messages(name, batch=1, consumerGroup=name)
    transaction, partition = leased["transactionId"], leased["partitionId"]
    put = {"op": "put", "ns": name, "key": name, "value": payload, "forever": True}
    expect(a.post("/api/v1/kv", {"operations": [put]}), 200)
    timer = {"op": "schedule", "queue": name, "timerKey": name, "delayMs": 10**7, "txn": name,
             "payload": base64.b64encode(json.dumps(payload).encode()).decode()}  # fmt: skip
    expect(a.post("/api/v1/timers", {"operations": [timer]}), 200)
    trace = {"transactionId": transaction, "partitionId": partition, "traceNames": [name]}
    expect(a.post("/api/v1/traces", trace | {"data": payload}), 201)
    register = {"name": name, "source_queue": name, "config_hash": "h"}
    query = expect(a.post("/streams/v1/queries", register), 200).json()["query_id"]
    cycle = {"query_id": query, "partition_id": partition}
    state = [{"type": "upsert", "key": "k", "value": payload}]
    expect(a.post("/streams/v1/cycle", cycle | {"state_ops": state}), 200)
    nothing = {"queue": name, "error": "matches nothing"}
    redrive = expect(a.post(REDRIVE, nothing), 201).json()["id"]
    eventually(lambda: state_of(a, redrive) == "done")
    return Belongings(
        queue=name, group=name, namespace=name, key=name, trace=name, query=name,
        transaction=transaction, partition_id=partition, lease_id=leased["leaseId"],
        letter_id=a.dead_letters(name)[0]["id"], query_id=query, redrive_id=redrive,
    )  # fmt: skip


def state_of(wire: WireClient, redrive: str) -> str:
    return expect(wire.get(f"{REDRIVE}/{redrive}"), 200).json()["state"]


def nobodys(name: str) -> Belongings:
    fields = dict.fromkeys(Belongings.__dataclass_fields__, name)
    ids = {one: str(uuid.uuid4()) for one in fields if one.endswith("_id")}
    return Belongings(**fields | ids | {"transaction": f"{name}-1"})


def asked(wire: WireClient, route: Any, of: Belongings, number: int) -> tuple[int, str]:
    """The status and the text of an answer to the body of that number."""
    body = of.bodies(route.handler)[number]
    answer = wire.http.request(
        route.method,
        of.address(route.template),
        params=of.query_of(route.handler) if route.method in ("GET", "DELETE") else None,
        content=None if body is None else json.dumps(body),
        headers=wire.headers,
    )
    return answer.status_code, answer.text


def plain(text: str, *said: Belongings) -> str:
    """Without what differs by request: what was asked for, ids, times."""
    for one in said:
        for told in sorted(set(asdict(one).values()), key=len, reverse=True):
            text = text.replace(told, "<said>")
    shown_as = {UUID: "U", MOMENT: "T", MILLISECONDS: "M", TOOK: r"\1:N", VERSION: '"version":V'}
    for pattern, shown in shown_as.items():
        text = pattern.sub(shown, text)
    return text


def looked_at(a: WireClient, mine: Belongings) -> list[str]:
    """All that A has, as A sees it."""
    address = f"/{mine.partition_id}/{mine.transaction}"
    stream = {"query_id": mine.query_id, "partition_id": mine.partition_id}
    answers = [
        a.get("/api/v1/messages", queue=mine.queue),
        a.get(f"/api/v1/messages{address}"),
        a.get("/api/v1/dlq", queue=mine.queue),
        a.get(f"/api/v1/dlq/redrive/{mine.redrive_id}"),
        a.get(f"/api/v1/traces{address}"),
        a.get(f"/api/v1/kv/{mine.namespace}/{mine.key}"),
        a.get(f"/api/v1/timers/{mine.queue}/{mine.key}"),
        a.get(f"/api/v1/consumer-groups/{mine.group}"),
        a.get(a.queue_path(mine.queue)),
        a.post("/streams/v1/state/get", stream),
    ]
    return [TOOK.sub(r"\1:N", expect(answer, 200).text) for answer in answers]


def test_what_is_anothers_looks_like_what_never_was_on_every_route(tenants, fresh_queue):
    a, b = tenants
    theirs, none = furnished(a, f"{fresh_queue}-of-a"), nobodys(f"{fresh_queue}-none")
    before = looked_at(a, theirs)
    secrets = [f"payload-{theirs.queue}", f"error-{theirs.queue}"]
    every = [
        (route, number)
        for route in ROUTES
        if route.tenant
        for number in range(len(theirs.bodies(route.handler)))
    ]
    for route, number in every:
        status, told = asked(b, route, theirs, number)
        expected_status, expected = asked(b, route, none, number)
        told_plain, expected_plain = (plain(one, theirs, none) for one in (told, expected))
        assert (status, told_plain) == (expected_status, expected_plain), (route.name, number)
        assert status < 500, (route.name, told)
        # A name is B's own too by now: it has pushed there.
        leaks = {one for one in asdict(theirs).values() if one in expected} - {theirs.queue}
        leaks |= {one for one in secrets if one in told + expected}
        assert not leaks, (route.name, leaks)
    assert looked_at(a, theirs) == before
    [again] = a.messages(theirs.queue, batch=1)
    assert again["data"] == f"payload-{theirs.queue}"


def test_what_b_aims_at_a_name_or_a_lease_of_as_stays_bs(tenants, fresh_queue):
    a, b = tenants
    theirs, own = furnished(a, f"{fresh_queue}-of-a"), f"{fresh_queue}-of-b"
    before = looked_at(a, theirs)
    aim = {"queue": theirs.queue, "partition": "Default"}
    for payload in (1, 2):
        b.push(own, payload)
        [failed] = b.messages(own)
        b.ack(failed, "dlq")
    first, _ = b.dead_letters(own)
    expect(b.replay(first["id"], aim), 200)
    job = expect(b.post(REDRIVE, {"queue": own, "destination": aim}), 201).json()["id"]
    eventually(lambda: state_of(b, job) == "done")
    assert sorted(b.payloads(theirs.queue, batch=3)) == [1, 2], "there is one of that name of B's"
    # The right lease is what B's own ack lacks, and nothing else.
    b.push(own, 3)
    [held] = b.messages(own)
    bare = {"type": "ack"} | ack_of(held)
    lease = bare.pop("leaseId")
    refused, unknown, committed = (
        b.transaction(bare, requiredLeases=[one])
        for one in (theirs.lease_id, str(uuid.uuid4()), lease)
    )
    assert plain(json.dumps(refused)) == plain(json.dumps(unknown))
    assert (refused["success"], committed["success"]) == (False, True)
    assert looked_at(a, theirs) == before
