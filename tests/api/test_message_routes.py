"""The message routes: browse, inspect, search, delete; and what dead letters died of.

Method: HTTP against a real broker.
"""

import uuid

import pytest

from brokers.services.messages import fold
from tests.wire_client import UNKNOWN_UUID, error_of, expect, segment

GROUP = {"consumerGroup": "g", "subscriptionMode": "all"}
BIG = 123456789012345678901234567890


def browse(wire, queue=None, **params):
    named = {} if queue is None else {"queue": queue}
    return expect(wire.get("/api/v1/messages", **named, **params), 200).json()


def rows(wire, queue=None, **params):
    return browse(wire, queue, **params)["messages"]


def address(partition_id: str, transaction_id: str) -> str:
    return f"/api/v1/messages/{segment(partition_id)}/{segment(transaction_id)}"


def search(wire, queue, text, **params):
    return expect(wire.get("/api/v1/messages/search", queue=queue, q=text, **params), 200).json()


def kill(wire, queue, error="why not", **params):
    [message] = wire.messages(queue, batch=1, **params)
    assert wire.ack(message, "dlq", error=error)["dlq"] is True
    return message


# --- browse -------------------------------------------------------------------------------------


def test_a_row_has_the_contracted_fields(wire, fresh_queue):
    wire.configure(fresh_queue, namespace="shop", task="pay", priority=7)
    [pushed] = wire.push(fresh_queue, {"a": [1]}, partition="p", ids=["t1"])
    answer = browse(wire, fresh_queue)
    assert answer["total"] == 1
    assert answer["mode"] == {"hasQueueMode": False, "busGroupsCount": 0, "type": "none"}
    assert answer["truncated"] is False
    [row] = answer["messages"]
    created, hashed, partition_id = row.pop("createdAt"), row.pop("txnHash"), row.pop("partitionId")
    assert created.endswith("Z")
    int(hashed, 16)
    uuid.UUID(partition_id)
    assert row == {
        "id": pushed["message_id"],
        "transactionId": "t1",
        "traceId": None,
        "producerSub": None,
        "data": {"a": [1]},
        "payload": {"a": [1]},
        "queue": fresh_queue,
        "partition": "p",
        "queuePath": f"{fresh_queue}/p",
        "namespace": "shop",
        "task": "pay",
        "status": "pending",
        "queueStatus": "pending",
        "busStatus": {"consumedBy": 0, "totalGroups": 0},
        "payloadAvailable": True,
        "segment": {"seq": 0, "frameIdx": 0},
        "leaseExpiresAt": None,
        "isEncrypted": False,
        "queuePriority": 7,
    }


def test_the_status_of_a_message_follows_it(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    assert [row["status"] for row in rows(wire, fresh_queue)] == ["pending"]
    [message] = wire.messages(fresh_queue)
    [row] = rows(wire, fresh_queue, status="processing")
    assert row["leaseExpiresAt"].endswith("Z")
    assert wire.ack(message)["success"] is True
    assert [row["data"] for row in rows(wire, fresh_queue, status="completed")] == [1]
    assert rows(wire, fresh_queue, status="pending") == []
    wire.push(fresh_queue, 2)
    kill(wire, fresh_queue)
    assert [row["data"] for row in rows(wire, fresh_queue, status="dead_letter")] == [2]
    assert [row["data"] for row in rows(wire, fresh_queue)] == [2, 1]


def test_the_mode_tells_who_consumes(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    wire.messages(fresh_queue, autoAck=True, **GROUP)
    answer = browse(wire, fresh_queue)
    assert answer["mode"] == {"hasQueueMode": False, "busGroupsCount": 1, "type": "bus"}
    [row] = answer["messages"]
    assert row["busStatus"] == {"consumedBy": 1, "totalGroups": 1}
    wire.messages(fresh_queue, autoAck=True)
    assert browse(wire, fresh_queue)["mode"]["type"] == "hybrid"


def test_pages_do_not_overlap_and_end_with_a_short_one(wire, fresh_queue):
    wire.push_each(fresh_queue, *range(5))
    pages = [rows(wire, fresh_queue, limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [[row["data"] for row in page] for page in pages] == [[4, 3], [2, 1], [0], []]
    assert browse(wire, fresh_queue, limit=0)["total"] == 1, "clamped"
    assert browse(wire, fresh_queue, limit=10**6)["total"] == 5
    assert "narrow" in error_of(wire.get("/api/v1/messages", offset=10**6), 400)


def test_filters_are_exact_and_the_old_name_of_namespace_is_heard(wire, fresh_queue):
    wire.configure(fresh_queue, namespace=f"n-{fresh_queue}", task="t")
    wire.push(fresh_queue, 1, partition="a")
    wire.push(fresh_queue, 2, partition="b")
    space = f"n-{fresh_queue}"
    assert len(rows(wire, namespace=space)) == 2
    assert len(rows(wire, ns=space, task="t")) == 2
    assert rows(wire, namespace="other", ns=space) == []
    assert rows(wire, namespace=space, task="T") == []
    assert [row["data"] for row in rows(wire, fresh_queue, partition="b")] == [2]
    assert rows(wire, fresh_queue, partition="B") == []


def test_times_are_instants_and_the_named_minute_is_included(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [row] = rows(wire, fresh_queue)
    minute = row["createdAt"][:16]
    assert len(rows(wire, fresh_queue, to=f"{minute}:00Z")) == 1
    assert rows(wire, fresh_queue, to="2020-01-01T00:00:00Z") == []
    assert rows(wire, fresh_queue, **{"from": "2999-01-01T00:00:00Z"}) == []
    assert len(rows(wire, fresh_queue, **{"from": "1999-01-01"})) == 1


@pytest.mark.parametrize(
    "params",
    [
        {"from": "yesterday"},
        {"to": "0001-01-01T00:00:00Z"},
        {"to": "9999-12-31T23:59:59Z"},
        {"status": "failed"},
        {"limit": "many"},
        {"offset": "1.5"},
        {"queue": "a\x00b"},
    ],
)
def test_a_parameter_of_the_wrong_type_is_a_400(wire, params):
    error_of(wire.get("/api/v1/messages", **params), 400)


def test_of_an_unknown_queue_there_is_nothing(wire, fresh_queue):
    answer = browse(wire, fresh_queue)
    assert (answer["messages"], answer["total"], answer["mode"]["type"]) == ([], 0, "none")


def test_payloads_are_verbatim_digit_for_digit(wire, fresh_queue):
    payload = f'{{"b":1.0,"a":{BIG},"a":1E400,"s":"\\u00e9\\ud800"}}'
    body = f'{{"items":[{{"queue":"{fresh_queue}","transactionId":"t","payload":{payload}}}]}}'
    expect(wire.http.post("/api/v1/push", content=body), 201)
    told = wire.get("/api/v1/messages", queue=fresh_queue).text
    assert told.count(payload) == 2
    [row] = rows(wire, fresh_queue)
    assert wire.get(address(row["partitionId"], "t")).text.count(payload) == 2
    assert payload in wire.get("/api/v1/messages/search", queue=fresh_queue, q=str(BIG)).text


# --- one message --------------------------------------------------------------------------------


def test_a_message_has_the_contracted_fields(wire, fresh_queue):
    wire.configure(fresh_queue, retryLimit=9)
    [pushed] = wire.push(fresh_queue, None, ids=["a/b é"])
    wire.messages(fresh_queue, autoAck=True, **GROUP)
    [message] = wire.messages(fresh_queue)
    found = expect(wire.get(address(message["partitionId"], "a/b é")), 200).json()
    assert found["id"] == pushed["message_id"]
    assert found["transactionId"] == "a/b é"
    assert (found["data"], found["payload"]) == (None, None)
    assert (found["queue"], found["partition"]) == (fresh_queue, "Default")
    assert found["queuePath"] == f"{fresh_queue}/Default"
    assert (found["status"], found["retryCount"], found["errorMessage"]) == ("processing", 0, None)
    assert found["leaseExpiresAt"].endswith("Z")
    assert found["consumerGroups"] == [
        {"name": "g", "group": "g", "consumed": True, "leaseExpiresAt": None}
    ]
    assert found["mode"]["type"] == "hybrid"
    assert found["queueConfig"]["retryLimit"] == 9
    assert {"leaseTime", "priority", "ttl", "retryDelay"} <= set(found["queueConfig"])
    assert found["isEncrypted"] is False
    assert found["createdAt"].endswith("Z")


def test_names_stored_empty_are_told_by_the_dots_of_the_queue(wire, fresh_queue):
    queue = f"shop.pay.{fresh_queue}"
    wire.configure(queue, namespace="", task="")
    wire.push(queue, 1, ids=["t"])
    [row] = rows(wire, queue)
    found = wire.get(address(row["partitionId"], "t")).json()
    assert (found["namespace"], found["task"]) == ("shop", "pay")


def test_a_dead_message_tells_why(wire, fresh_queue):
    wire.push(fresh_queue, 1, ids=["t"])
    message = kill(wire, fresh_queue, "boom")
    found = wire.get(address(message["partitionId"], "t")).json()
    assert (found["status"], found["errorMessage"]) == ("dead_letter", "boom")
    assert isinstance(found["retryCount"], int)


@pytest.mark.parametrize("partition_id", [UNKNOWN_UUID, "not-a-uuid", "é"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_unknown_or_malformed_address_is_a_404(wire, partition_id, method):
    answer = wire.http.request(method, address(partition_id, "t"))
    assert error_of(answer, 404) == "Message not found"


# --- delete -------------------------------------------------------------------------------------


def test_a_delete_takes_the_dead_letters_of_every_group_and_no_live_message(wire, fresh_queue):
    wire.push(fresh_queue, 1, ids=["t"])
    live = wire.messages(fresh_queue, consumerGroup="live", subscriptionMode="all")
    message = kill(wire, fresh_queue)
    kill(wire, fresh_queue, **GROUP)
    path = address(message["partitionId"], "t")
    assert expect(wire.http.delete(path), 200).json() == {
        "success": True,
        "partitionId": message["partitionId"],
        "transactionId": "t",
        "message": "Message deleted successfully",
    }
    assert wire.dead_letters(fresh_queue) == []
    again = expect(wire.http.delete(path), 404).json()
    assert again["success"] is False
    assert again["error"] == "Message not found"
    assert isinstance(again["message"], str)
    assert wire.ack(live[0])["success"] is True
    assert wire.get(path).json()["status"] == "completed"


# --- search -------------------------------------------------------------------------------------


def test_a_search_finds_payloads_by_their_bytes(wire, fresh_queue):
    wire.push(fresh_queue, {"name": "Ada"}, {"name": "Bob"}, ids=["Ada", "Bob"])
    answer = search(wire, fresh_queue, "Ada")
    assert answer["total"] == 1
    assert answer["cursor"] is None
    assert answer["encryptedNotSearched"] == 0
    assert answer["scanned"]["messages"] == 2
    [hit] = answer["messages"]
    assert (hit["transactionId"], hit["data"], hit["offset"]) == ("Ada", {"name": "Ada"}, 0)
    assert hit["createdAt"].endswith("Z")
    assert search(wire, fresh_queue, "Bob", partition="Default")["total"] == 1
    assert search(wire, fresh_queue, "ada")["messages"] == []
    assert search(wire, fresh_queue, "transactionId")["messages"] == [], "not a payload"
    assert search(wire, fresh_queue, "Ada", to="2020-01-01")["messages"] == []


def test_a_search_goes_on_at_its_cursor(wire, fresh_queue):
    for partition in ("a", "é/ b"):
        wire.push(fresh_queue, *("x" * number for number in range(1, 4)), partition=partition)
    found, cursor, calls = [], None, 0
    while calls == 0 or cursor is not None:
        answer = search(wire, fresh_queue, "x", limit=2, **({"cursor": cursor} if cursor else {}))
        found += [(hit["partition"], hit["data"]) for hit in answer["messages"]]
        cursor = answer["cursor"]
        calls += 1
        assert calls < 10
    assert found == [(p, "x" * n) for p in ("a", "é/ b") for n in range(1, 4)]


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"q": "x"}, "queue is required"),
        ({"queue": "a"}, "q is required"),
        ({"queue": "a", "q": "x" * 1001}, "at most"),
        ({"queue": "a", "q": "x", "cursor": "zzz"}, "cursor"),
        ({"queue": "a", "q": "x", "cursor": "W10="}, "cursor"),
        ({"queue": "a", "q": "x", "cursor": "WzEsMl0="}, "cursor"),
        ({"queue": "a", "q": "x", "limit": "no"}, "limit"),
        ({"queue": "a", "q": "x", "from": "no"}, "from"),
    ],
)
def test_a_search_that_is_wrong_is_a_400(wire, params, told):
    assert told in error_of(wire.get("/api/v1/messages/search", **params), 400)


def test_a_search_of_an_unknown_queue_is_a_404(wire, fresh_queue):
    answer = wire.get("/api/v1/messages/search", queue=fresh_queue, q="x")
    assert error_of(answer, 404) == "Queue not found"


# --- signatures ---------------------------------------------------------------------------------


def test_signatures_fold_what_failures_of_one_kind_have_in_common(wire, fresh_queue):
    for number in range(3):
        wire.push(fresh_queue, {"secret": number})
        kill(wire, fresh_queue, f"order {number} of {uuid.uuid4()}:  timed out")
    wire.push(fresh_queue, 4)
    kill(wire, fresh_queue, "broken", **GROUP)
    answer = expect(wire.get("/api/v1/analytics/dlq-signatures", queue=fresh_queue), 200)
    assert "secret" not in answer.text
    found = answer.json()
    assert (found["queue"], found["rowsNow"], found["sample"]) == (fresh_queue, 4, 4)
    assert found["signatures"] == [
        {"text": "order <n> of <id>: timed out", "n": 3, "share": 0.75},
        {"text": "broken", "n": 1, "share": 0.25},
    ]
    assert found["groups"] == ["__QUEUE_MODE__", "g"]
    assert all(isinstance(one, int) for one in found["retryCounts"])
    assert found["oldest"] < found["newest"]
    assert found["avgBytes"] > 0
    assert sum(day["n"] for day in found["byDay"]) == 4
    few = wire.get("/api/v1/analytics/dlq-signatures", queue=fresh_queue, limit=1).json()
    assert (few["rowsNow"], few["sample"]) == (4, 1)


def test_signatures_need_a_queue_and_have_nothing_of_an_unknown_one(wire, fresh_queue):
    assert error_of(wire.get("/api/v1/analytics/dlq-signatures"), 400) == "queue required"
    answer = wire.get("/api/v1/analytics/dlq-signatures", queue=fresh_queue)
    found = expect(answer, 200).json()
    assert (found["rowsNow"], found["signatures"], found["oldest"]) == (0, [], None)


@pytest.mark.parametrize(
    ("error", "signature"),
    [
        ("at 2026-01-02T03:04:05.678Z", "at <date>"),
        ("on 2026-01-02", "on <date>"),
        ("key deadbeefdeadbeef00 gone", "key <id> gone"),
        ("row 12, col -3", "row <n>, col <n>"),
        ("v1.5 of x86", "v1.5 of x86"),
        (" a \n\t b ", "a b"),
        ("x" * 200, "x" * 120),
    ],
)
def test_an_error_folds_into_its_signature(error, signature):
    assert fold(error) == signature


# --- the rest -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/v1/messages", {"GET", "HEAD"}),
        ("/api/v1/messages/search", {"GET", "HEAD"}),
        (f"/api/v1/messages/{UNKNOWN_UUID}/t", {"GET", "HEAD", "DELETE"}),
        ("/api/v1/analytics/dlq-signatures", {"GET", "HEAD"}),
    ],
)
def test_another_method_is_a_405(wire, path, allowed):
    answer = wire.http.request("PATCH", path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
