"""The routes of timers as the contract writes them: codes, statuses, limits, and the fired message.

Method: HTTP against a real broker. Where a test waits for a fire, it waits in a parked pop.
"""

import base64
import json
import re
import time
import uuid
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import zstandard

from tests import harness
from tests.wire_client import WireClient, ack_of, expect, segment

TIMERS = "/api/v1/timers"
FAR_MS = 600_000
TIMESTAMP_LENGTH = len("2026-07-30T11:02:44.512873Z")


def b64(payload: Any) -> str:
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return base64.b64encode(raw).decode()


def op(queue: str, key: str, delay_ms: Any = FAR_MS, payload: Any = None, **more: Any) -> dict:
    made = {
        "op": "schedule",
        "queue": queue,
        "timerKey": key,
        "delayMs": delay_ms,
        "txn": f"txn-{key}"[:300],
        "payload": b64({"key": key} if payload is None else payload),
    }
    return made | more


def spoiled(operation: dict, changes: dict) -> dict:
    """The changes made; what becomes `...` is left out."""
    return {name: value for name, value in (operation | changes).items() if value is not ...}


def cancel_op(queue: str, key: str, **more: Any) -> dict:
    return {"op": "cancel", "queue": queue, "timerKey": key} | more


class TimerClient(WireClient):
    def post_ops(self, *operations: Any) -> httpx.Response:
        return self.post(TIMERS, {"operations": list(operations)})

    def apply(self, *operations: dict) -> list[dict]:
        return expect(self.post_ops(*operations), 200).json()["results"]

    def path(self, queue: str, key: str) -> str:
        return f"{TIMERS}/{segment(queue)}/{quote(key, safe='/')}"

    def peek(self, queue: str, key: str) -> dict:
        return expect(self.get(self.path(queue, key)), 200).json()

    def cancel(self, queue: str, key: str, **params: Any) -> dict:
        answer = self.http.delete(self.path(queue, key), params=params, headers=self.headers)
        return expect(answer, 200).json()

    def page(self, queue: str, **params: Any) -> dict:
        return expect(self.get(f"{TIMERS}/{segment(queue)}", **params), 200).json()

    def wait_for(self, queue: str, count: int = 1, **params: Any) -> list[dict]:
        """So many messages of the queue, by pops that wait for them."""
        messages: list[dict] = []
        deadline = time.monotonic() + 20
        while len(messages) < count and time.monotonic() < deadline:
            params = {"wait": "true", "timeout": 5000, "autoAck": "true"} | params
            messages += self.messages(queue, **params)
        assert len(messages) == count
        return messages


@pytest.fixture
def wire(client: httpx.Client) -> TimerClient:
    return TimerClient(client)


def refused(answer: httpx.Response, status: int, code: str) -> dict:
    expect(answer, status)
    body = json.loads(answer.content.decode("utf-8"))
    assert body["error"] == code
    return body


# --- schedule, peek, cancel ---------------------------------------------------------------------


def test_a_schedule_answers_what_the_message_will_be(wire, fresh_queue):
    before = time.time()
    [result] = wire.apply(op(fresh_queue, "a", 60_000, txn="t 1"))
    assert set(result) == {"ok", "status", "queue", "timerKey", "txn", "messageId", "deliverAt"}
    assert (result["ok"], result["status"]) == (True, "scheduled")
    assert (result["queue"], result["timerKey"], result["txn"]) == (fresh_queue, "a", "t 1")
    assert uuid.UUID(result["messageId"]).version == 7
    assert len(result["deliverAt"]) == TIMESTAMP_LENGTH
    deliver_at = datetime.fromisoformat(result["deliverAt"]).astimezone(UTC).timestamp()
    assert 59 < deliver_at - before < 70


def test_deliver_at_sorts_as_text(wire, fresh_queue):
    delays = [1, 999, 1000, 60_000, 86_400_000, 7_000_000_000]
    results = wire.apply(*[op(fresh_queue, str(no), delay) for no, delay in enumerate(delays)])
    texts = [one["deliverAt"] for one in results]
    assert texts == sorted(texts)
    assert {len(text) for text in texts} == {TIMESTAMP_LENGTH}


@pytest.mark.parametrize("first", ["schedule", "reschedule"])
@pytest.mark.parametrize("second", ["schedule", "reschedule"])
def test_schedule_and_reschedule_are_the_same_upsert(wire, fresh_queue, first, second):
    [one] = wire.apply(op(fresh_queue, "a", op=first))
    [two] = wire.apply(op(fresh_queue, "a", op=second, payload=[2], txn="t2"))
    assert (one["status"], two["status"]) == ("scheduled", "rescheduled")
    assert two["ok"] and one["messageId"] != two["messageId"]
    peeked = wire.peek(fresh_queue, "a")
    assert (peeked["txn"], peeked["messageId"]) == ("t2", two["messageId"])
    assert base64.b64decode(peeked["payload"]) == b"[2]"


def test_peek_tells_everything_and_a_miss_is_no_error(wire, fresh_queue):
    [result] = wire.apply(op(fresh_queue, "a/b c", partition="p"))
    peeked = wire.peek(fresh_queue, "a/b c")
    assert set(peeked) == {
        *("found", "queue", "timerKey", "partition", "deliverAt", "txn", "messageId", "payload"),
        *("payloadZstd", "encrypted", "producerSub", "attempts", "lastError", "claimed"),
        *("createdAt", "updatedAt"),
    }
    assert peeked["found"] is True
    assert (peeked["queue"], peeked["timerKey"]) == (fresh_queue, "a/b c")
    assert (peeked["partition"], peeked["deliverAt"]) == ("p", result["deliverAt"])
    assert json.loads(base64.b64decode(peeked["payload"])) == {"key": "a/b c"}
    assert (peeked["attempts"], peeked["lastError"], peeked["claimed"]) == (0, None, False)
    assert wire.peek(fresh_queue, "other") == {"found": False}
    assert wire.peek("no-such-queue", "a/b c") == {"found": False}


def test_a_cancel_on_its_own_route_echoes_the_txn_of_the_caller(wire, fresh_queue):
    wire.apply(op(fresh_queue, "a"))
    for status in ("cancelled", "absent"):
        assert wire.cancel(fresh_queue, "a", txn="x/y &") == {
            "ok": status == "cancelled",
            "status": status,
            "queue": fresh_queue,
            "timerKey": "a",
            "txn": "x/y &",
        }
    assert wire.cancel(fresh_queue, "a")["txn"] is None
    assert wire.cancel(fresh_queue, "a", txn="")["txn"] == ""


def test_one_batch_schedules_and_cancels_in_its_own_order(wire, fresh_queue):
    wire.apply(op(fresh_queue, "old"), op(fresh_queue, "there"))
    results = wire.apply(
        cancel_op(fresh_queue, "old", txn="echoed"),
        op(fresh_queue, "new"),
        op(fresh_queue, "there", op="reschedule"),
        cancel_op(fresh_queue, "never"),
    )
    assert [one["status"] for one in results] == ["cancelled", "scheduled", "rescheduled", "absent"]
    assert [one["ok"] for one in results] == [True, True, True, False]
    assert results[0]["txn"] == "echoed"
    assert "messageId" not in results[0] and "deliverAt" not in results[3]


def test_an_empty_batch_does_nothing(wire):
    assert wire.apply() == []


@pytest.mark.parametrize(
    "key", ["a/b", "/a", "a//b", "a%2Fb", "a b", "a+b", "..", "?x=1#y", "k\n", "Zürich/東京/😀"]
)
def test_whatever_can_be_scheduled_can_be_addressed(wire, fresh_queue, key):
    queue = f"{fresh_queue}/ü?"
    wire.apply(op(queue, key))
    for path in (
        f"{TIMERS}/{quote(queue, safe='')}/{quote(key, safe='/').replace('..', '%2E%2E')}",
        f"{TIMERS}/{quote(queue, safe='')}/{quote(key, safe='').replace('..', '%2E%2E')}",
    ):
        assert expect(wire.get(path), 200).json()["timerKey"] == key
    assert wire.get(path).json()["found"]
    assert expect(wire.http.delete(path), 200).json()["status"] == "cancelled"


def test_the_longest_names_are_taken_and_one_byte_more_is_refused(wire, fresh_queue):
    key = "é" * 256
    [result] = wire.apply(op("q" * 255, key, partition="p" * 255, txn="t" * 65_535))
    assert result["ok"]
    assert wire.peek("q" * 255, key)["txn"] == "t" * 65_535
    assert wire.cancel("q" * 255, key)["ok"]
    for longer in (
        op("q" * 256, "k"),
        op(fresh_queue, key + "x"),
        op(fresh_queue, "k", partition="p" * 256),
        op(fresh_queue, "k", txn="t" * 65_536),
    ):
        refused(wire.post_ops(longer), 400, "timers_bad_request")


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        {"op": "fire"},
        {"op": ...},
        {"op": None},
        {"op": 7},
        {"queue": ...},
        {"queue": 7},
        {"queue": "a\x00b"},
        {"queue": "a\ud800"},
        {"timerKey": ...},
        {"timerKey": None},
        {"timerKey": ""},
        {"timerKey": "k\x00"},
        {"partition": "p\x00"},
        {"partition": 1},
        {"delayMs": ...},
        {"delayMs": None},
        {"delayMs": "5"},
        {"delayMs": 1.5},
        {"delayMs": True},
        {"delayMs": 2**63},
        {"delayMs": -(2**63) - 1},
        {"txn": ...},
        {"txn": None},
        {"txn": 5},
        {"txn": "t\x00"},
        {"payload": ...},
        {"payload": None},
        {"payload": {"a": 1}},
        {"payload": "not base64!"},
        {"payload": "e30"},
        {"payload": "e3 0="},
        {"payload": ""},
        {"payload": b64(b"")},
        {"payload": b64(b"  ")},
        {"payload": b64(b"{")},
        {"payload": b64(b"{} {}")},
        {"payload": b64(b"NaN")},
        {"payload": b64(b"'a'")},
        {"payload": b64(b'"\xff"')},
        {"payload": b64(b'"\xed\xa0\x80"')},
        {"payload": b64(b"[" * 100_000)},
        {"payloadZstd": "yes"},
        {"payloadZstd": True},
        {"encrypted": "no"},
        {"producerSub": "me"},
        {"messageId": "x"},
        {"messageId": None},
        {"tenant": "x"},
        {"_claim": 1},
        {"_": None},
    ],
    ids=lambda spoil: repr(spoil)[:40],
)
def test_a_bad_operation_is_refused_and_with_it_the_whole_batch(wire, fresh_queue, spoil):
    bad = spoiled(op(fresh_queue, "bad"), spoil)
    answer = wire.post_ops(op(fresh_queue, "good"), bad)
    refused(answer, 400, "timers_bad_request")
    assert "DELETE /api/v1/timers/" in answer.headers["x-queen-timers-hint"]
    assert wire.peek(fresh_queue, "good") == {"found": False}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"operations":{}}',
        b'{"operations":[null]}',
        b'{"operations":["a"]}',
        b'{"operations":null}',
        b'\xff{"operations":[]}',
        b'{"operations":' + b"[" * 100_000,
    ],
)
def test_a_body_of_another_shape_is_refused(wire, body):
    refused(wire.post(TIMERS, body), 400, "timers_bad_request")


def test_a_key_stands_once_in_a_batch(wire, fresh_queue):
    answer = wire.post_ops(op(fresh_queue, "a"), cancel_op(fresh_queue, "a"))
    refused(answer, 400, "timers_bad_request")
    results = wire.apply(op(fresh_queue, "a"), op(fresh_queue + "x", "a"), op(fresh_queue, "A"))
    assert [one["status"] for one in results] == ["scheduled"] * 3


def test_a_call_has_at_most_256_operations(wire, fresh_queue):
    ops = [op(fresh_queue, f"k{no}") for no in range(257)]
    refused(wire.post_ops(*ops), 400, "timers_bad_request")
    assert len(wire.apply(*ops[:256])) == 256


def test_a_timer_beyond_the_horizon_is_refused(wire, fresh_queue):
    horizon_ms = 7_776_000_000
    answer = wire.post_ops(op(fresh_queue, "good"), op(fresh_queue, "far", horizon_ms + 1))
    refused(answer, 403, "timer_horizon_exceeded")
    assert "x-queen-timers-hint" in answer.headers
    refused(wire.post_ops(op(fresh_queue, "far", 2**63 - 1)), 403, "timer_horizon_exceeded")
    assert wire.peek(fresh_queue, "good") == {"found": False}
    assert wire.apply(op(fresh_queue, "far", horizon_ms))[0]["ok"]


def test_a_payload_over_a_mebibyte_is_refused_however_it_is_packed(wire, fresh_queue):
    fits = b'"' + b"x" * (1_048_576 - 2) + b'"'
    packed = b64(zstandard.compress(fits))
    results = wire.apply(
        op(fresh_queue, "plain", payload=fits),
        op(fresh_queue, "packed") | {"payload": packed, "payloadZstd": True},
    )
    assert [one["status"] for one in results] == ["scheduled", "scheduled"]
    over = fits + b" "
    refused(wire.post_ops(op(fresh_queue, "a", payload=over)), 413, "payload_too_large")
    bomb = zstandard.compress(b'"' + b"x" * 50_000_000 + b'"')
    assert len(bomb) < 100_000
    answer = wire.post_ops(op(fresh_queue, "a") | {"payload": b64(bomb), "payloadZstd": True})
    refused(answer, 413, "payload_too_large")


def test_a_compressed_payload_is_delivered_plain(wire, fresh_queue):
    raw = b' {"z": 1.0, "a": "\\ud800"} '
    operation = op(fresh_queue, "a", 0) | {
        "payload": b64(zstandard.compress(raw)),
        "payloadZstd": True,
    }
    wire.apply(operation)
    [message] = wire.wait_for(fresh_queue)
    assert message["data"] == {"z": 1.0, "a": "\ud800"}


def test_a_queue_that_encrypts_takes_no_plain_timer(wire, fresh_queue):
    wire.configure(fresh_queue, encryptionEnabled=True)
    answer = wire.post_ops(op(fresh_queue + "x", "a"), op(fresh_queue, "a"))
    assert "encrypt" in refused(answer, 503, "timers_unavailable")["detail"]
    assert answer.headers["retry-after"]
    assert wire.peek(fresh_queue + "x", "a") == {"found": False}
    assert wire.cancel(fresh_queue, "a")["status"] == "absent"


# --- list and count -----------------------------------------------------------------------------


def test_the_list_goes_by_the_bytes_of_keys_page_by_page(wire, fresh_queue):
    keys = ["b", "a", "Z", "é", "a/b", "aa", "東"]
    wire.apply(*[op(fresh_queue, key) for key in keys])
    wire.apply(op(fresh_queue + "x", "foreign"))
    in_order = sorted(keys, key=str.encode)
    page = wire.page(fresh_queue, mode="list")
    assert [row["timerKey"] for row in page["rows"]] == in_order
    assert (page["truncated"], page["nextAfter"]) == (False, None)
    assert "payload" not in page["rows"][0] and page["rows"][0]["queue"] == fresh_queue
    seen, after = [], None
    while True:
        params = {"limit": 3} | ({} if after is None else {"after": after})
        page = wire.page(fresh_queue, **params)
        seen += [row["timerKey"] for row in page["rows"]]
        after = page["nextAfter"]
        if not page["truncated"]:
            break
        assert after == seen[-1]
    assert seen == in_order


def test_the_limit_of_a_list_is_clamped(wire, fresh_queue):
    wire.apply(*[op(fresh_queue, f"k{no:03}") for no in range(120)])
    assert len(wire.page(fresh_queue)["rows"]) == 100
    for limit, rows in ((0, 1), (-5, 1), (5000, 120), (2**63 - 1, 120), ("", 100)):
        assert len(wire.page(fresh_queue, limit=limit)["rows"]) == rows
    for limit in ("abc", "1.5", 2**63, "1_0"):
        answer = wire.get(f"{TIMERS}/{fresh_queue}", limit=limit)
        refused(answer, 400, "timers_bad_request")


def test_a_count_is_of_the_keys_that_begin_so(wire, fresh_queue):
    wire.apply(*[op(fresh_queue, key) for key in ("a", "a%", "a%b", "ab", "b")])
    for prefix, count in (("a", 4), ("a%", 2), ("a_", 0), ("b", 1), ("c", 0)):
        assert wire.page(fresh_queue, mode="count", prefix=prefix) == {"count": count}
    assert wire.page(fresh_queue, mode="count", prefix="é" * 64) == {"count": 0}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("mode=count", "timers_count_prefix_required"),
        ("mode=count&prefix=", "timers_count_prefix_required"),
        ("mode=count&prefix=a%00", "timers_count_prefix_invalid"),
        ("mode=count&prefix=%FF", "timers_count_prefix_invalid"),
        ("mode=count&prefix=" + "x" * 129, "timers_count_prefix_too_long"),
        ("mode=count&prefix=" + "%C3%A9" * 65, "timers_count_prefix_too_long"),
        ("mode=count&prefix=a&limit=5", "timers_count_no_paging"),
        ("mode=count&prefix=a&after=b", "timers_count_no_paging"),
        ("mode=sum", "timers_read_mode_unknown"),
        ("after=a%00", "timers_bad_request"),
    ],
)
def test_reads_that_mean_nothing_say_so(wire, fresh_queue, query, code):
    refused(wire.http.get(f"{TIMERS}/{fresh_queue}?{query}"), 400, code)


def test_methods_and_paths_beside_these_are_told(wire, fresh_queue):
    assert expect(wire.http.get(TIMERS), 405).headers["allow"] == "POST"
    assert "GET" in expect(wire.post(f"{TIMERS}/{fresh_queue}/a", {}), 405).headers["allow"]
    refused(wire.http.get(f"{TIMERS}/{fresh_queue}/"), 400, "timers_bad_request")


# --- the fired message --------------------------------------------------------------------------


def test_a_fired_timer_is_the_message_that_was_promised(wire, fresh_queue):
    payload = b'{"b":1,"a":1.0,"a":1E2,"big":9007199254740993,"s":"\\u0000"}'
    [result] = wire.apply(op(fresh_queue, "a", 200, payload=payload, txn="t1", partition="p"))
    answer = wire.http.get(f"/api/v1/pop/queue/{fresh_queue}?wait=true&timeout=9000")
    [message] = expect(answer, 200).json()["messages"]
    assert payload in answer.content
    assert message["id"] == result["messageId"]
    assert (message["transactionId"], message["partition"]) == ("t1", "p")
    assert (message["traceId"], message["producerSub"]) == (None, None)
    assert message["createdAt"] >= result["deliverAt"]
    assert wire.ack(message)["success"]
    assert wire.peek(fresh_queue, "a") == {"found": False}
    assert wire.cancel(fresh_queue, "a")["status"] == "absent"


@pytest.mark.parametrize("delay_ms", [0, -1, -(2**63)])
def test_a_delay_in_the_past_fires_at_once(wire, fresh_queue, delay_ms):
    started = time.monotonic()
    wire.apply(op(fresh_queue, "a", delay_ms))
    wire.wait_for(fresh_queue)
    assert time.monotonic() - started < 5


def test_the_past_reaches_as_far_back_as_the_horizon(wire, fresh_queue):
    results = wire.apply(op(fresh_queue, "a", -(2**63)), op(fresh_queue, "b", -60_000))
    now = time.time()
    ages = [
        now - datetime.fromisoformat(one["deliverAt"]).astimezone(UTC).timestamp()
        for one in results
    ]
    assert abs(ages[0] - 7_776_000) < 60 and abs(ages[1] - 60) < 60
    for one, age in zip(results, ages, strict=True):
        born = (uuid.UUID(one["messageId"]).int >> 80) / 1000
        assert abs(now - born - age) < 1
    assert len(wire.wait_for(fresh_queue, 2)) == 2


def test_the_queue_of_a_fired_timer_is_born_by_it(wire, fresh_queue, eventually):
    name = f"{fresh_queue}.task"
    wire.apply(op(name, "a", 0))
    assert wire.wait_for(name, autoAck="true")[0]["partition"] == "Default"
    queue = wire.queue(name)
    assert (queue["namespace"], queue["task"]) == (fresh_queue, "task")


def test_timers_of_one_partition_arrive_in_due_order(wire, fresh_queue):
    delays = [400, 100, 300, 150, 250, 200, 100, 350]
    wire.apply(*[op(fresh_queue, f"k{no}", delay) for no, delay in enumerate(delays)])
    messages = wire.wait_for(fresh_queue, len(delays))
    expected = sorted(range(len(delays)), key=lambda no: delays[no])
    assert [message["data"]["key"] for message in messages] == [f"k{no}" for no in expected]
    pairs = [(message["createdAt"][:23], message["id"]) for message in messages]
    assert pairs == sorted(pairs)


def test_a_fire_ignores_the_dedup_window_and_a_push_behind_it_does_not(wire, fresh_queue):
    wire.push(fresh_queue, "pushed", ids=["same"])
    wire.apply(op(fresh_queue, "a", 0, txn="same"), op(fresh_queue, "b", 0, txn="b"))
    assert len(wire.wait_for(fresh_queue, 3)) == 3
    [row] = wire.push(fresh_queue, "again", ids=["b"])
    assert row["status"] == "duplicate"


def test_deleting_a_queue_takes_its_timers(wire, fresh_queue):
    wire.configure(fresh_queue)
    wire.apply(op(fresh_queue, "a"), op(fresh_queue, "b", payload="old"))
    assert wire.delete(fresh_queue)["existed"]
    assert wire.peek(fresh_queue, "a") == {"found": False}
    assert wire.page(fresh_queue) == {"rows": [], "truncated": False, "nextAfter": None}
    assert wire.page(fresh_queue, mode="count", prefix="a") == {"count": 0}
    assert wire.cancel(fresh_queue, "a")["status"] == "absent"
    [result] = wire.apply(op(fresh_queue, "b", 100, payload="new"))
    assert result["status"] == "scheduled"
    assert [one["data"] for one in wire.wait_for(fresh_queue)] == ["new"]


# --- transactions -------------------------------------------------------------------------------


def test_a_rider_happens_with_its_transaction(wire, fresh_queue):
    wire.push(fresh_queue, "work")
    [message] = wire.messages(fresh_queue)
    wire.apply(op(fresh_queue, "old"))
    answer = wire.transaction(
        {"type": "push", "queue": fresh_queue, "payload": 1},
        {"type": "ack"} | ack_of(message),
        timers=[op(fresh_queue, "a", 100, txn="rider"), cancel_op(fresh_queue, "old")],
    )
    assert answer["success"]
    assert [one["index"] for one in answer["results"]] == [0, 1, 2, 3]
    assert [one["type"] for one in answer["results"]] == ["push", "ack", "timer", "timer"]
    scheduled, cancelled = answer["results"][2:]
    assert (scheduled["status"], cancelled["status"]) == ("scheduled", "cancelled")
    assert scheduled["success"] and cancelled["success"]
    fired = wire.wait_for(fresh_queue, 2)[1]
    assert (fired["id"], fired["transactionId"]) == (scheduled["messageId"], "rider")


def test_a_transaction_may_be_of_timers_alone(wire, fresh_queue):
    answer = wire.transaction(timers=[op(fresh_queue, "a"), cancel_op(fresh_queue, "none")])
    assert answer["success"]
    assert [one["success"] for one in answer["results"]] == [True, False]
    assert wire.peek(fresh_queue, "a")["found"]


def test_a_rolled_back_transaction_schedules_and_cancels_nothing(wire, fresh_queue):
    wire.push(fresh_queue, "there", ids=["dup"])
    wire.apply(op(fresh_queue, "old"))
    answer = wire.transaction(
        {"type": "push", "queue": fresh_queue, "payload": 1, "transactionId": "dup"},
        timers=[op(fresh_queue, "a"), cancel_op(fresh_queue, "old")],
    )
    assert (answer["success"], answer["reason"]) == (False, "duplicate")
    assert wire.peek(fresh_queue, "a") == {"found": False}
    assert wire.peek(fresh_queue, "old")["found"]


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ({"delayMs": 7_776_000_001}, "timer_horizon_exceeded"),
        ({"payload": b64(b'"' + b"x" * 1_048_576 + b'"')}, "payload_too_large"),
    ],
)
def test_a_rider_that_asks_for_too_much_rolls_back(wire, fresh_queue, operation, reason):
    push = {"type": "push", "queue": fresh_queue, "payload": 1}
    answer = wire.transaction(push, timers=[op(fresh_queue, "a") | operation])
    assert (answer["success"], answer["reason"], answer["results"]) == (False, reason, [])
    assert wire.messages(fresh_queue) == []


@pytest.mark.parametrize("timers", [{}, "x", 7, [7], [{"op": "schedule"}], [{"messageId": 1}]])
def test_a_rider_of_another_shape_is_a_bad_request(wire, fresh_queue, timers):
    push = {"type": "push", "queue": fresh_queue, "payload": 1}
    answer = wire.post("/api/v1/transaction", {"operations": [push], "timers": timers})
    expect(answer, 400)
    assert (answer.json()["success"], answer.json()["reason"]) == (False, "bad_request")
    assert wire.messages(fresh_queue) == []


def test_refused_schedules_are_counted_by_whatever_way_they_came(wire, fresh_queue):
    def rejected() -> float:
        text = wire.get("/metrics/prometheus").text
        [line] = re.findall(r"^queen_timers_schedule_rejected_total (\S+)$", text, re.MULTILINE)
        return float(line)

    before = rejected()
    too_far = op(fresh_queue, "a", 10**12)
    expect(wire.post_ops(too_far), 403)
    assert rejected() == before + 1
    assert wire.transaction(timers=[too_far])["reason"] == "timer_horizon_exceeded"
    assert rejected() == before + 2


# --- dead letters, tenants, metrics -------------------------------------------------------------


def test_a_poisoned_timer_ends_as_a_dead_letter_that_is_not_replayed(
    start_broker, fresh_database, fresh_queue, eventually
):
    """A trigger refuses the payload as a broken row would; its neighbours are delivered."""
    # A database of its own: another broker's sweeper counts by its own limits.
    own = fresh_database()
    broker = start_broker(on=own, QUEEN_SWEEPER_MAX_ATTEMPTS="2", QUEEN_SWEEPER_BACKOFF_MIN_MS="10")
    connection = own.connect()
    poison = harness.refusing_segments(connection, b"txn-poison", "poisoned")
    with connection, poison, TimerClient.at(broker.url) as wire:
        keys = ["k0", "k1", "poison", "k2", "k3", "k4"]
        wire.apply(*[op(fresh_queue, key, 50) for key in keys])
        assert len(wire.wait_for(fresh_queue, 5)) == 5
        [letter] = eventually(lambda: wire.dead_letters(fresh_queue))
        assert letter["consumerGroup"] == "__timer__"
        assert letter["transactionId"] == "txn-poison"
        assert letter["data"] == {"key": "poison"}
        assert "poisoned" in letter["errorMessage"]
        assert wire.peek(fresh_queue, "poison") == {"found": False}
        assert wire.replay(letter["id"]).status_code == 500
        assert len(wire.dead_letters(fresh_queue)) == 1

        def counted() -> bool:
            # Counted after the commit that made the letter, so a moment after it is seen.
            metrics = wire.get("/metrics/prometheus").text
            told = ("queen_timers_dlq_total 1.0", "queen_timers_poisoned_total 2.0")
            return all(one in metrics for one in told)

        eventually(counted)


def test_tenants_do_not_see_each_others_timers(start_broker, fresh_queue, eventually):
    broker = start_broker(
        QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true", QUEEN_KV_REQUIRE_GRANT="false"
    )
    tenants = [str(uuid.uuid4()) for _ in range(2)]
    with (
        TimerClient.at(broker.url, {"x-queen-tenant": tenants[0]}) as a,
        TimerClient.at(broker.url, {"x-queen-tenant": tenants[1]}) as b,
    ):
        a.apply(op(fresh_queue, "a"))
        assert b.peek(fresh_queue, "a") == {"found": False}
        assert b.page(fresh_queue)["rows"] == []
        assert b.page(fresh_queue, mode="count", prefix="a") == {"count": 0}
        assert b.cancel(fresh_queue, "a")["status"] == "absent"
        assert a.apply(op(fresh_queue, "a", 0))[0]["status"] == "rescheduled"
        assert len(a.wait_for(fresh_queue)) == 1
        assert b.messages(fresh_queue) == []

        def fired() -> str:
            # Counted after the commit that made the message, so a moment after it is seen.
            metrics = a.get("/metrics/prometheus").text
            return metrics if f'tenant="{tenants[0]}"' in metrics else ""

        assert tenants[1] not in eventually(fired)


def test_the_kill_switches_pause_schedules_and_fires_and_never_a_cancel(
    start_broker, fresh_database, fresh_queue
):
    broker = start_broker(on=fresh_database())
    with TimerClient.at(broker.url) as wire:

        def switch(**switches: bool) -> None:
            expect(wire.post("/api/v1/system/kv-timers", switches), 200)

        switch(timersFire=False, timersSchedule=True)
        wire.apply(op(fresh_queue, "a", 0), op(fresh_queue, "b", 0))
        assert wire.messages(fresh_queue, wait="true", timeout=1200) == []
        switch(timersSchedule=False)
        mixed = wire.post_ops(op(fresh_queue, "c"), cancel_op(fresh_queue, "a"))
        refused(mixed, 503, "timers_disabled")
        assert mixed.headers["retry-after"] and mixed.headers["x-queen-timers-hint"]
        answer = wire.post("/api/v1/transaction", {"operations": [], "timers": [op("q", "c")]})
        refused(answer, 503, "timers_disabled")
        assert wire.apply(cancel_op(fresh_queue, "none"))[0]["status"] == "absent"
        assert wire.cancel(fresh_queue, "a")["status"] == "cancelled"
        assert wire.peek(fresh_queue, "b")["found"]
        switch(timersFire=True)
        assert [one["data"] for one in wire.wait_for(fresh_queue)] == [{"key": "b"}]


def test_while_the_database_is_away_every_route_says_come_back(start_broker, tmp_path):
    broker = start_broker(ready=False, PG_HOST=str(tmp_path / "nowhere"))
    with TimerClient.at(broker.url) as wire:
        for answer in (
            wire.post_ops(op("q", "a")),
            wire.get(wire.path("q", "a")),
            wire.get(f"{TIMERS}/q"),
            wire.get(f"{TIMERS}/q", mode="count", prefix="a"),
            wire.http.delete(wire.path("q", "a")),
        ):
            refused(answer, 503, "timers_unavailable")
            assert int(answer.headers["retry-after"]) > 0


def test_every_broker_exposes_timers_and_sweeper(wire):
    metrics = wire.get("/metrics/prometheus").text
    for name in (
        *("timers_due", "timers_due_capped", "timers_oldest_late_seconds"),
        *("timers_fire_lag_seconds", "timers_fire_lag_tenants_dropped_total"),
        *("timers_fired_total", "timers_fire_failures_total", "timers_poisoned_total"),
        *("timers_dlq_total", "timers_schedule_rejected_total"),
        *("sweeper_cycle_milliseconds", "sweeper_sleep_milliseconds", "sweeper_rows_total"),
        *("sweeper_phase_skipped_total", "sweeper_skip_locked_total"),
    ):
        assert f"# TYPE queen_{name.removesuffix('_total')}" in metrics, name
