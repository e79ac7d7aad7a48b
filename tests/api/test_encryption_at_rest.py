"""Queues with encryptionEnabled: what a client sees, and what lies in the tables.

Method: four brokers on one database that differ in their keys: `wire` holds the new key and
the old one, `before` had only the old one, `stranger` has another and `keyless` none.
"""

import base64
import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
import zstandard

from tests import harness
from tests.api.test_dead_letter_routes import kill, kill_next
from tests.api.test_timers import FAR_MS, TimerClient, b64, op, refused
from tests.api.test_verbatim_payloads import NASTY, elements, members, popped_texts, travel
from tests.wire_client import ack_of, error_of, expect

OLD, NEW, OTHER = "0d" * 32, "4e" * 32, "77" * 32
SPARE = "c9" * 32
NO_KEY = "payload cannot be decrypted: this broker has no encryption key"
UNFIT = "payload cannot be decrypted: no key of this broker fits"
PLACES = ["queen_segment.frames", "queen_dead_letter.payload", "queen_timer.payload"]


@pytest.fixture(scope="module")
def brokers(database, tmp_path_factory) -> Iterator[dict[str, TimerClient]]:
    rings = {
        "wire": {"QUEEN_ENCRYPTION_KEY": NEW, "QUEEN_ENCRYPTION_KEYS_OLD": f"{SPARE},{OLD}"},
        "before": {"QUEEN_ENCRYPTION_KEY": OLD},
        "stranger": {"QUEEN_ENCRYPTION_KEY": OTHER},
        "keyless": {},
    }
    with contextlib.ExitStack() as stack:
        clients = {}
        for name, ring in rings.items():
            log = tmp_path_factory.mktemp("encryption") / name
            # Only the first one sweeps, so that a test knows who fires.
            more = {"DB_POOL_SIZE": "6", "QUEEN_SWEEPER": "true" if name == "wire" else "false"}
            process = harness.BrokerProcess(log, {**database.environment, **more, **ring})
            stack.callback(process.stop)
            clients[name] = stack.enter_context(TimerClient.at(process.url))
            assert ("encryption service initialized (AES-256-GCM)" in process.log) == bool(ring)
            assert not any(key in process.log for key in (OLD, NEW, OTHER))
        yield clients


@pytest.fixture
def wire(brokers) -> TimerClient:
    return brokers["wire"]


@pytest.fixture
def before(brokers) -> TimerClient:
    return brokers["before"]


@pytest.fixture
def stranger(brokers) -> TimerClient:
    return brokers["stranger"]


@pytest.fixture
def keyless(brokers) -> TimerClient:
    return brokers["keyless"]


@pytest.fixture
def vault(wire, fresh_queue) -> str:
    """A queue that encrypts."""
    wire.configure(fresh_queue, encryptionEnabled=True)
    return fresh_queue


@pytest.fixture
def secret() -> str:
    """A text that is in no table, unless this test brings it there."""
    return f"secret-{uuid.uuid4().hex}"


def found_in(db, text: str) -> list[str]:
    """The places where some row holds the text as it is, or as base64 would show it."""
    pattern = text.encode()
    forms = [pattern, *(base64.b64encode(b" " * pad + pattern)[4:-4] for pad in range(3))]
    return [
        place
        for place in PLACES
        for table, column in [place.split(".")]
        for form in forms
        if db.execute(
            f"SELECT 1 FROM {table} WHERE position(%s::bytea IN {column}) > 0 LIMIT 1", [form]
        ).fetchone()
    ]


def flags_of(db, queue: str) -> list[bytes | None]:
    rows = db.execute(
        "SELECT segment.flags FROM queen_segment segment"
        "  JOIN queen_partition lane ON lane.id = segment.partition_id"
        "  JOIN queen_queue queue ON queue.id = lane.queue_id"
        " WHERE queue.name = %s ORDER BY lane.name, segment.base_offset",
        [queue],
    )
    return [row[0] for row in rows]


# --- push, pop, transaction ---------------------------------------------------------------------


def test_the_nasty_payloads_travel_unchanged(wire, vault):
    """Push, pop, dead letter, replay, pop: and the tables held envelopes at every station."""
    travel(wire, vault, NASTY)


def test_they_travel_unchanged_through_a_transaction(wire, vault, db):
    operations = b",".join(
        b'{"type":"push","queue":"%s","partition":"%d","payload":%s}' % (vault.encode(), no, text)
        for no, text in enumerate(NASTY)
    )
    for _ in range(2):  # the second time with everything known
        answer = wire.post("/api/v1/transaction", b'{"operations":[%s]}' % operations)
        assert expect(answer, 200).json()["success"] is True
        popped, _ = popped_texts(wire, vault, autoAck=True)
        assert popped == dict(enumerate(NASTY))
    assert set(flags_of(db, vault)) == {b"\x01"}


def test_messages_of_one_segment_are_cut_apart_and_opened_each(wire, vault):
    items = b",".join(b'{"queue":"%s","payload":%s}' % (vault.encode(), text) for text in NASTY)
    expect(wire.post("/api/v1/push", b'{"items":[%s]}' % items), 201)
    for start in range(0, len(NASTY), 5):
        answer = expect(wire.get_pop(vault, batch=5, autoAck=True), 200)
        popped = [members(each)["data"] for each in elements(members(answer.content)["messages"])]
        assert popped == NASTY[start : start + 5]


def test_an_opened_message_looks_like_any_other(wire, vault, secret):
    plain = f"{vault}-plain"
    wire.push(vault, secret, ids=["t"])
    wire.push(plain, secret, ids=["t"])
    [opened], [other] = wire.messages(vault), wire.messages(plain)
    assert set(opened) == set(other)
    assert opened["data"] == other["data"] == secret


def test_no_table_holds_the_plain_text(wire, vault, db, secret):
    wire.push(vault, {"secret": secret}, {"secret": secret})
    push = {"type": "push", "queue": vault, "payload": secret}
    timers = [op(vault, "rider", payload={"secret": secret})]
    assert wire.transaction(push, timers=timers)["success"] is True
    wire.apply(op(vault, "a", payload={"secret": secret}))
    kill_next(wire, vault)
    assert wire.dead_letters(vault)[0]["data"] == {"secret": secret}
    assert found_in(db, secret) == []

    plain = f"{vault}-plain"
    kill(wire, plain, {"secret": f"{secret} 2"})
    wire.apply(op(plain, "a", payload={"secret": f"{secret} 2"}))
    assert sorted(set(found_in(db, f"{secret} 2"))) == sorted(PLACES), "these eyes do see"
    for queue in (vault, plain):
        wire.delete(queue)


def cycle(client, queue, payload, **more):
    """A cycle of a stream without a source ack, whose sink is `queue`."""
    client.push(f"{queue}-source", 1)
    source = client.messages(
        f"{queue}-source", consumerGroup=uuid.uuid4().hex, subscriptionMode="all"
    )
    query = {"name": queue, "source_queue": "", "config_hash": "h"}
    body = {
        "query_id": client.post("/streams/v1/queries", query).json()["query_id"],
        "partition_id": source[0]["partitionId"],
        "push_items": [{"queue": queue, "payload": payload}],
    }
    return expect(client.post("/streams/v1/cycle", body | more), 200).json()


def test_what_a_stream_sinks_is_sealed_like_any_push(wire, vault, db, secret):
    assert cycle(wire, vault, {"secret": secret})["success"] is True
    assert found_in(db, secret) == []
    assert flags_of(db, vault) == [b"\x01"]
    assert wire.payloads(vault) == [{"secret": secret}]


def test_a_stream_whose_broker_has_no_key_is_refused_whole(keyless, vault):
    upsert = {"type": "upsert", "key": "k", "value": 1}
    answer = cycle(keyless, vault, 1, state_ops=[upsert])
    assert answer["success"] is False and "no encryption key" in answer["error"]
    body = {key: answer[key] for key in ("query_id", "partition_id")}
    assert keyless.post("/streams/v1/state/get", body).json()["rows"] == []
    assert keyless.payloads(vault) == []


def test_the_dedup_window_sees_through_encryption(wire, vault):
    [first] = wire.push(vault, 1, ids=["t"])
    again, other = wire.push(vault, 2, 3, ids=["t", "u"])
    assert (again["status"], again["message_id"]) == ("duplicate", first["message_id"])
    assert other["status"] == "queued"
    assert wire.payloads(vault) == [1, 3]


def test_a_plain_message_that_looks_like_an_envelope_is_returned_as_it_is(
    wire, fresh_queue, db, secret
):
    wire.push(f"{fresh_queue}-x", 1)
    wire.configure(f"{fresh_queue}-x", encryptionEnabled=True)
    wire.push(f"{fresh_queue}-x", secret)
    rows = db.execute(
        "SELECT segment.frames FROM queen_segment segment WHERE flags IS NOT NULL"
        " AND partition_id = (SELECT lane.id FROM queen_partition lane JOIN queen_queue queue"
        " ON queue.id = lane.queue_id WHERE queue.name = %s)",
        [f"{fresh_queue}-x"],
    ).fetchall()
    envelope = json.loads(bytes(rows[0][0]) + b"}")["data"]
    assert set(envelope) == {"encrypted", "iv", "authTag"}
    wire.push(fresh_queue, envelope)
    assert wire.payloads(fresh_queue) == [envelope], "as pushed, though our key would open it"
    wire.configure(fresh_queue, encryptionEnabled=True)
    wire.push(fresh_queue, envelope)
    assert wire.payloads(fresh_queue, consumerGroup="g", subscriptionMode="all") == [envelope] * 2


def test_a_change_of_the_option_is_not_retroactive(wire, fresh_queue, db):
    wire.push(fresh_queue, 1)
    wire.configure(fresh_queue, encryptionEnabled=True)
    wire.push(fresh_queue, 2)
    wire.configure(fresh_queue, encryptionEnabled=False)
    # The first one may have been sealed before the broker heard of the change.
    wire.push_each(fresh_queue, 3, 4)
    stored = flags_of(db, fresh_queue)
    assert (stored[:2], stored[3]) == ([None, b"\x01"], None)
    assert wire.payloads(fresh_queue) == [1, 2, 3, 4]


# --- keys ---------------------------------------------------------------------------------------


def test_after_a_rotation_old_and_new_messages_are_read_together(wire, before, vault):
    before.push_each(vault, "old 1", "old 2")
    wire.push(vault, "new")
    before.push(vault, "old 3")
    assert wire.payloads(vault, autoAck=True) == ["old 1", "old 2", "new", "old 3"]


def test_a_message_that_no_key_opens_is_an_error_item_and_the_others_are_delivered(
    wire, before, vault, secret
):
    before.push(vault, secret, ids=["lost"])
    wire.push_each(vault, "new")
    before.configure(vault, encryptionEnabled=False)
    before.push(vault, "plain")
    [first, second, third] = wire.messages(vault)
    assert [one["data"] for one in (first, second, third)] == [secret, "new", "plain"]
    for one in (first, second, third):
        wire.ack(one, "retry")

    found = before.messages(vault)
    assert [one["data"] for one in found] == [secret, None, "plain"]
    assert (found[1]["error"], found[1]["isEncrypted"]) == (UNFIT, True)
    assert not {"error", "isEncrypted"} & (set(found[0]) | set(found[2]))
    assert set(found[1]) == set(found[0]) | {"error", "isEncrypted"}
    assert [result["success"] for result in before.ack_batch(*map(ack_of, found))] == [True] * 3
    assert before.messages(vault) == []


def test_an_error_item_can_be_nacked_and_is_read_where_the_key_is(wire, stranger, vault, secret):
    wire.push(vault, secret, "next")
    [lost, _] = stranger.messages(vault)
    assert lost["data"] is None and secret not in json.dumps(lost)
    assert stranger.ack(lost, "failed", error=lost["error"])["leaseReleased"] is True
    assert wire.payloads(vault) == [secret, "next"]


def test_undecryptable_messages_are_counted(wire, stranger, vault):
    def counted() -> float:
        text = stranger.get("/metrics/prometheus").text
        [line] = [x for x in text.splitlines() if x.startswith("queen_undecryptable_messages_t")]
        return float(line.split()[1])

    earlier = counted()
    wire.push(vault, 1, 2, 3)
    stranger.messages(vault)
    assert counted() == earlier + 3


@pytest.mark.parametrize("name", ["QUEEN_ENCRYPTION_KEY", "QUEEN_ENCRYPTION_KEYS_OLD"])
def test_a_key_of_31_bytes_stops_the_start_and_is_not_shown(database, name):
    key = "c3" * 31
    done = subprocess.run(
        [sys.executable, "manage.py", "broker", "--port", "0"],
        cwd=harness.PROJECT_DIR,
        env={**os.environ, **database.environment, name: key},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert name in done.stderr and "64 hexadecimal digits" in done.stderr
    assert key not in done.stderr + done.stdout and "Traceback" not in done.stderr


# --- without a key ------------------------------------------------------------------------------


def test_without_a_key_nothing_is_stored_in_a_queue_that_encrypts(keyless, wire, vault, db, secret):
    [row] = keyless.push(vault, secret)
    assert row["status"] == "failed" and "no encryption key" in row["error"]
    told = keyless.transaction({"type": "push", "queue": vault, "payload": secret})
    assert told["success"] is False and "no encryption key" in told["error"]
    answer = keyless.post_ops(op(vault, "a", payload=secret))
    assert "no encryption key" in refused(answer, 503, "timers_unavailable")["detail"]
    told = keyless.transaction(timers=[op(vault, "a", payload=secret)])
    assert told["success"] is False and "no encryption key" in told["error"]
    assert found_in(db, secret) == []
    assert wire.messages(vault) == []


def test_a_broker_that_believes_the_queue_plain_stores_nothing_plain(
    keyless, stranger, before, wire, fresh_queue, db, secret
):
    """The option is switched elsewhere: the cached rows of the others are out of date."""
    for client in (keyless, stranger, before):
        client.push(fresh_queue, "plain")
        client.apply(op(fresh_queue, "t"))
    wire.configure(fresh_queue, encryptionEnabled=True)
    [row] = keyless.push(fresh_queue, secret)
    assert row["status"] == "failed"
    assert before.push(fresh_queue, secret)[0]["status"] == "queued"
    push = {"type": "push", "queue": fresh_queue, "payload": secret}
    timer = op(fresh_queue, "t", payload=secret)
    assert before.transaction(push, timers=[timer])["success"] is True
    assert stranger.apply(timer)[0]["status"] == "rescheduled"
    assert found_in(db, secret) == []
    assert wire.payloads(fresh_queue) == ["plain"] * 3 + [secret] * 2


# --- dead letters -------------------------------------------------------------------------------


def test_a_dead_letter_keeps_its_flag_and_is_shown_opened(wire, keyless, vault, db, secret):
    kill(wire, vault, secret, "t")
    [row] = wire.dead_letters(vault)
    assert (row["data"], row["isEncrypted"]) == (secret, True)
    assert "error" not in row
    [locked] = keyless.dead_letters(vault)
    assert (locked["data"], locked["error"], locked["isEncrypted"]) == (None, NO_KEY, True)
    assert {k: v for k, v in locked.items() if k not in ("data", "error")} == {
        k: v for k, v in row.items() if k != "data"
    }
    assert found_in(db, secret) == []


def test_a_plain_dead_letter_says_nothing_of_encryption(wire, fresh_queue):
    kill(wire, fresh_queue, {"encrypted": "AA==", "iv": "AA==", "authTag": "AA=="})
    [row] = wire.dead_letters(fresh_queue)
    assert set(row["data"]) == {"encrypted", "iv", "authTag"}
    assert "isEncrypted" not in row and "error" not in row


@pytest.mark.parametrize("encrypts", [True, False], ids=["encrypting", "plain"])
def test_an_encrypted_dead_letter_is_replayed_as_it_lies(wire, vault, db, encrypts, secret):
    target = f"{vault}-target"
    wire.configure(target, encryptionEnabled=encrypts)
    kill(wire, vault, secret, "t")
    [row] = wire.dead_letters(vault)
    answer = expect(wire.replay(row["id"], {"queue": target}), 200).json()
    assert (answer["result"], answer["dlqRowRemoved"]) == ("moved", True)
    assert flags_of(db, target) == [b"\x01"]
    assert found_in(db, secret) == []
    assert wire.payloads(target) == [secret]


def test_a_plain_dead_letter_is_encrypted_where_the_destination_does(
    wire, keyless, vault, fresh_queue, db
):
    source = f"{fresh_queue}-source"
    kill(wire, source, {"n": 9007199254740993})
    [row] = wire.dead_letters(source)
    answer = keyless.replay(row["id"], {"queue": vault})
    assert "no key" in error_of(answer, 500) and answer.json()["dlqRowRemoved"] is False
    expect(wire.replay(row["id"], {"queue": vault}), 200)
    assert flags_of(db, vault) == [b"\x01"]
    assert wire.payloads(vault) == [{"n": 9007199254740993}]


@pytest.mark.parametrize("who", ["stranger", "keyless"])
def test_a_dead_letter_that_nobody_could_read_stays_where_it_is(brokers, wire, vault, who, secret):
    kill(wire, vault, secret, "t")
    [row] = wire.dead_letters(vault)
    answer = brokers[who].replay(row["id"])
    assert "cannot be decrypted" in error_of(answer, 500)
    assert answer.json()["dlqRowRemoved"] is False
    assert [one["id"] for one in wire.dead_letters(vault)] == [row["id"]]


# --- timers -------------------------------------------------------------------------------------


def test_a_timer_is_encrypted_at_its_schedule_and_delivered_opened(wire, vault, db, secret):
    wire.apply(op(vault, "a", payload={"secret": secret, "n": 1}))
    shown = wire.peek(vault, "a")
    assert shown["encrypted"] is True and shown["payloadZstd"] is False
    assert set(json.loads(base64.b64decode(shown["payload"]))) == {"encrypted", "iv", "authTag"}
    assert [row["encrypted"] for row in wire.page(vault)["rows"]] == [True]
    [again] = wire.apply(op(vault, "a", FAR_MS, payload={"secret": secret, "n": 2}))
    assert again["status"] == "rescheduled"
    assert wire.peek(vault, "a")["payload"] != shown["payload"]
    assert found_in(db, secret) == []
    raw = b'{"secret":"%s","n":9007199254740993,"n":1.0}' % secret.encode()
    [again] = wire.apply(op(vault, "a", 0, payload=raw))
    answer = expect(wire.get_pop(vault, wait=True, timeout=15_000), 200)
    [message] = [members(one) for one in elements(members(answer.content)["messages"])]
    assert message["data"] == raw
    assert json.loads(message["id"]) == again["messageId"]
    assert set(flags_of(db, vault)) == {b"\x01"} and found_in(db, secret) == []


def test_a_batch_for_plain_and_encrypting_queues_encrypts_where_it_should(wire, vault):
    plain, unborn = f"{vault}-plain", f"{vault}-unborn"
    wire.configure(plain, leaseTime=10)
    for turn in range(2):
        results = wire.apply(*(op(name, "k", FAR_MS + turn) for name in (plain, vault, unborn)))
        assert all(one["ok"] for one in results)
        kept = [wire.peek(name, "k")["encrypted"] for name in (plain, vault, unborn)]
        assert kept == [False, True, False]


def test_a_queue_that_stopped_to_encrypt_gets_plain_timers(wire, vault):
    wire.apply(op(vault, "a"))
    wire.configure(vault, encryptionEnabled=False)
    wire.apply(op(vault, "b"))
    assert [row["encrypted"] for row in wire.page(vault)["rows"]] == [True, False]
    wire.apply(op(vault, "a", 0), op(vault, "b", 0))
    assert [one["data"]["key"] for one in wire.wait_for(vault, 2)] == ["a", "b"]


def test_a_timer_that_was_scheduled_in_plain_is_encrypted_at_its_fire(wire, vault, db, secret):
    target = f"{vault}-later"
    wire.apply(op(target, "a", 700, payload=secret))
    assert wire.peek(target, "a")["encrypted"] is False
    wire.configure(target, encryptionEnabled=True)
    assert [one["data"] for one in wire.wait_for(target)] == [secret]
    assert flags_of(db, target) == [b"\x01"]
    assert found_in(db, secret) == []


def test_what_a_caller_says_of_its_payload_is_shown_and_decides_nothing(wire, fresh_queue, vault):
    plain = f"{fresh_queue}-plain"
    wire.apply(op(plain, "a", payload="mine", encrypted=True))
    assert wire.peek(plain, "a")["encrypted"] is True
    assert json.loads(base64.b64decode(wire.peek(plain, "a")["payload"])) == "mine"
    wire.apply(op(plain, "a", 0, payload="mine", encrypted=True))
    assert [one["data"] for one in wire.wait_for(plain)] == ["mine"]

    answer = wire.post_ops(op(vault, "a", encrypted=True))
    assert "encrypts its messages itself" in refused(answer, 400, "timers_bad_request")["detail"]
    answer = wire.post("/api/v1/transaction", {"timers": [op(vault, "a", encrypted=True)]})
    body = expect(answer, 400).json()
    assert (body["success"], body["reason"]) == (False, "bad_request")
    assert wire.peek(vault, "a") == {"found": False}


def test_a_timer_that_no_key_opens_is_delivered_as_an_error_item(stranger, wire, vault, secret):
    stranger.apply(op(vault, "lost", 0, payload=secret), op(vault, "other", 0, payload=secret))
    for message in wire.wait_for(vault, 2):
        assert (message["data"], message["error"]) == (None, UNFIT)


def test_a_compressed_payload_is_encrypted_too(wire, vault, db, secret):
    raw = json.dumps({"secret": secret}).encode()
    timer = op(vault, "z") | {"payload": b64(zstandard.compress(raw)), "payloadZstd": True}
    wire.apply(timer)
    assert found_in(db, secret) == []
    wire.apply(timer | {"delayMs": 0})
    assert [one["data"] for one in wire.wait_for(vault)] == [{"secret": secret}]


def test_a_message_is_shown_to_who_may_look_and_never_searched(wire, keyless, vault, secret):
    [pushed] = wire.push(vault, {"secret": secret}, ids=["t"])
    [row] = wire.get("/api/v1/messages", queue=vault).json()["messages"]
    assert (row["data"], row["isEncrypted"]) == ({"secret": secret}, True)
    path = f"/api/v1/messages/{row['partitionId']}/t"
    found = wire.get(path).json()
    assert (found["payload"], found["isEncrypted"]) == ({"secret": secret}, True)
    answer = wire.get("/api/v1/messages/search", queue=vault, q=secret).json()
    assert (answer["messages"], answer["encryptedNotSearched"]) == ([], 1)

    [row] = keyless.get("/api/v1/messages", queue=vault).json()["messages"]
    assert (row["id"], row["data"], row["payload"]) == (pushed["message_id"], None, None)
    assert "cannot be decrypted" in row["error"]
    assert "cannot be decrypted" in keyless.get(path).json()["error"]
