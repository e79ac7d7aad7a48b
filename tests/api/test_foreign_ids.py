"""Every route of a tenant, asked by B with all that is A's: as if A's had never been.

Method: A has something of every kind. B asks each route twice, once with A's names and ids, once
with names and ids that nobody ever had, and is told the same both times, its own words aside.
Nothing of A's that B did not say itself is in any answer, and A's things are afterwards as they
were. The routes are those of the table, so that a new one is asked too.
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
from tests.wire_client import WireClient, expect

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T[0-9:.]+Z?")
# Milliseconds since 1970, and how long something took or has been.
MILLISECONDS = re.compile(r"\b1\d{12}\b")
TOOK = re.compile(r'("\w*(?:[mM]s|[sS]econds|[aA]ge)"): ?[0-9.]+')

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

    def body(self, handler: str) -> Any:
        ack = {"partitionId": self.partition_id, "transactionId": self.transaction,
               "leaseId": self.lease_id}  # fmt: skip
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
            "ack_batch": {"acknowledgments": [ack, ack | {"status": "failed"}]},
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
            "transaction": {"operations": [{"type": "push", **item}, {"type": "ack", **ack}]},
        }
        return bodies.get(handler)

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
    return Belongings(
        queue=name, group=name, namespace=name, key=name, trace=name, query=name,
        transaction=transaction, partition_id=partition, lease_id=leased["leaseId"],
        letter_id=a.dead_letters(name)[0]["id"], query_id=query,
        redrive_id=expect(a.post("/api/v1/dlq/redrive", nothing), 201).json()["id"],
    )  # fmt: skip


def nobodys(name: str) -> Belongings:
    fields = dict.fromkeys(Belongings.__dataclass_fields__, name)
    ids = {one: str(uuid.uuid4()) for one in fields if one.endswith("_id")}
    return Belongings(**fields | ids | {"transaction": f"{name}-1"})


def asked(wire: WireClient, route: Any, of: Belongings) -> tuple[int, str]:
    """The status and the text of an answer."""
    body = of.body(route.handler)
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


def test_what_is_anothers_looks_like_what_never_was_on_every_route(
    tenants, fresh_queue, eventually
):
    a, b = tenants
    theirs, none = furnished(a, f"{fresh_queue}-of-a"), nobodys(f"{fresh_queue}-none")
    done = f"/api/v1/dlq/redrive/{theirs.redrive_id}"
    eventually(lambda: a.get(done).json()["state"] == "done")
    before = looked_at(a, theirs)
    secrets = [f"payload-{theirs.queue}", f"error-{theirs.queue}"]
    for route in ROUTES:
        if not route.tenant:
            continue
        status, told = asked(b, route, theirs)
        expected_status, expected = asked(b, route, none)
        told_plain, expected_plain = (plain(one, theirs, none) for one in (told, expected))
        assert (status, told_plain) == (expected_status, expected_plain), route.name
        assert status < 500, (route.name, told)
        # A name is B's own too by now: it has pushed there.
        leaks = {one for one in asdict(theirs).values() if one in expected} - {theirs.queue}
        leaks |= {one for one in secrets if one in told + expected}
        assert not leaks, (route.name, leaks)
    assert looked_at(a, theirs) == before
    [again] = a.messages(theirs.queue, batch=1)
    assert again["data"] == f"payload-{theirs.queue}"
