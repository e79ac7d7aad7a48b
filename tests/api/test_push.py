"""POST /api/v1/push: what is stored, what is refused, and what the answer says.

Method: HTTP against a real broker on a real PostgreSQL; what was stored is judged by
what a pop delivers, never by reading tables.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.wire_client import WireClient, error_of, expect

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


def test_a_push_answers_201_with_one_row_per_item_in_request_order(wire, fresh_queue):
    other = f"{fresh_queue}-other"
    items = [
        {"queue": queue, "partition": partition, "payload": number, "transactionId": f"t{number}"}
        for number, (queue, partition) in enumerate(
            [(fresh_queue, "a"), (other, "a"), (fresh_queue, "b"), (fresh_queue, "a"), (other, "a")]
        )
    ]

    rows = wire.push_items(*items)

    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["transaction_id"] for row in rows] == ["t0", "t1", "t2", "t3", "t4"]
    assert [row["queueName"] for row in rows] == [item["queue"] for item in items]
    assert {row["status"] for row in rows} == {"queued"}
    assert all(UUID7.match(row["message_id"]) for row in rows)
    assert len({row["message_id"] for row in rows}) == 5
    assert set(rows[0]) == {"index", "message_id", "transaction_id", "queueName", "status"}
    assert wire.payloads(fresh_queue, "a") == [0, 3]
    assert wire.payloads(fresh_queue, "b") == [2]
    assert wire.payloads(other, "a") == [1, 4]


def test_pushing_nothing_is_a_201_with_an_empty_array(wire):
    answer = expect(wire.post_items(), 201)
    assert answer.json() == []


def test_a_missing_transaction_id_becomes_the_minted_message_id(wire, fresh_queue):
    absent, null = wire.push_items(
        {"queue": fresh_queue, "payload": 1},
        {"queue": fresh_queue, "payload": 2, "transactionId": None},
    )
    assert absent["transaction_id"] == absent["message_id"]
    assert null["transaction_id"] == null["message_id"]
    first, second = wire.messages(fresh_queue)
    assert first["id"] == first["transactionId"] == absent["message_id"]
    assert second["id"] == null["message_id"]


def test_a_missing_or_null_partition_is_the_partition_called_default(wire, fresh_queue):
    wire.push_items(
        {"queue": fresh_queue, "payload": 1},
        {"queue": fresh_queue, "payload": 2, "partition": None},
        {"queue": fresh_queue, "payload": 3, "partition": "Default"},
    )
    messages = wire.messages(fresh_queue, "Default")
    assert [message["data"] for message in messages] == [1, 2, 3]
    assert {message["partition"] for message in messages} == {"Default"}


def test_a_null_payload_is_a_payload(wire, fresh_queue):
    wire.push(fresh_queue, None)
    assert wire.payloads(fresh_queue) == [None]


def test_what_a_producer_may_not_set_is_ignored(wire, fresh_queue):
    wire.push_items(
        {
            "queue": fresh_queue,
            "payload": 1,
            "traceId": "7f1c9f3e-8e0b-4f43-9d2a-6d0d5a4f1b11",
            "producerSub": "mallory",
            "messageId": "7f1c9f3e-8e0b-4f43-9d2a-6d0d5a4f1b11",
            "somethingElse": {"deep": [1]},
        }
    )
    [message] = wire.messages(fresh_queue)
    assert message["producerSub"] is None
    assert message["traceId"] is None


def test_data_is_not_another_name_of_payload(wire, fresh_queue):
    answer = wire.post_items({"queue": fresh_queue, "data": 1})
    assert error_of(answer, 400).startswith("bad body")


@pytest.mark.parametrize("flaw", ["queue", "payload"])
def test_an_item_without_queue_or_payload_refuses_the_whole_body(wire, fresh_queue, flaw):
    whole = {"queue": fresh_queue, "payload": 1}
    broken = {key: value for key, value in whole.items() if key != flaw}

    answer = wire.post_items(whole, broken, whole)

    assert error_of(answer, 400).startswith("bad body")
    assert wire.payloads(fresh_queue) == []


def test_a_null_queue_is_a_missing_queue(wire):
    assert error_of(wire.post_items({"queue": None, "payload": 1}), 400).startswith("bad body")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"items"',
        b"{}",
        b'{"items":null}',
        b'{"items":{}}',
        b'{"items":[null]}',
        b'{"items":[[]]}',
        b'{"items":["x"]}',
        b'{"items":[]} trailing',
        b"{'items':[]}",
        b'{"items":[],}',
    ],
)
def test_a_body_of_the_wrong_shape_is_a_400(wire, body):
    answer = wire.http.post("/api/v1/push", content=body)
    assert error_of(answer, 400).startswith("bad body")


@pytest.mark.parametrize("field", ["queue", "partition", "transactionId"])
@pytest.mark.parametrize("value", [123, True, {"a": 1}, ["x"]])
def test_an_identifier_that_is_not_a_string_is_a_400(wire, fresh_queue, field, value):
    item = {"queue": fresh_queue, "payload": 1} | {field: value}
    error_of(wire.post_items({"queue": fresh_queue, "payload": 0}, item), 400)
    assert wire.payloads(fresh_queue) == []


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "01", "1.", ".5", "+1", "tru"])
def test_what_is_not_json_is_not_a_payload(wire, fresh_queue, literal):
    body = f'{{"items":[{{"queue":"{fresh_queue}","payload":{literal}}}]}}'
    assert error_of(wire.post("/api/v1/push", body), 400).startswith("bad body")


@pytest.mark.parametrize("invalid", [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xe6\x97"])
@pytest.mark.parametrize("place", ["payload", "transactionId", "queue"])
def test_raw_invalid_utf8_anywhere_is_a_400(wire, fresh_queue, invalid, place):
    values = {"queue": fresh_queue.encode(), "payload": b"x", "transactionId": b"t"}
    values[place] = values[place] + invalid
    item = b",".join(b'"%s":"%s"' % (key.encode(), value) for key, value in values.items())

    answer = wire.http.post("/api/v1/push", content=b'{"items":[{%s}]}' % item)

    error_of(answer, 400)
    assert wire.payloads(fresh_queue) == []


@pytest.mark.parametrize("character", ["\\u0000", "\\ud800", "\\udc00x"])
@pytest.mark.parametrize("field", ["queue", "partition", "transactionId"])
def test_a_nul_or_a_lone_surrogate_in_an_identifier_is_a_400_that_names_it(
    wire, fresh_queue, character, field
):
    good = f'{{"queue":"{fresh_queue}","payload":1}}'
    fields = {"queue": fresh_queue, "partition": "p", "transactionId": "t"}
    fields[field] = f"x{character}"
    bad = ",".join(f'"{name}":"{value}"' for name, value in fields.items())

    answer = wire.post("/api/v1/push", f'{{"items":[{good},{{{bad},"payload":2}}]}}')

    text = error_of(answer, 400)
    assert field in text and "1" in text
    assert wire.payloads(fresh_queue) == [], "nothing of the request may be half-written"


@pytest.mark.parametrize("field", ["queue", "partition"])
@pytest.mark.parametrize("letter", ["x", "é", "東", "😀"])
def test_names_are_limited_to_255_bytes_and_never_cut(wire, fresh_queue, field, letter):
    size = len(letter.encode())
    head = fresh_queue if field == "queue" else ""
    room = 255 - len(head)
    longest = head + "y" * (room % size) + letter * (room // size)
    assert len(longest.encode()) == 255
    fits = {"queue": fresh_queue, "payload": 1} | {field: longest}
    too_long = fits | {field: longest + "z", "payload": 2}

    assert [row["status"] for row in wire.push_items(fits)] == ["queued"]
    assert field in error_of(wire.post_items(too_long), 400)

    assert wire.payloads(fits["queue"], fits.get("partition")) == [1]


def test_a_transaction_id_may_have_65535_bytes_and_is_compared_whole(wire, fresh_queue):
    longest = "é" * 32767 + "a"
    sibling = "é" * 32767 + "b"
    assert len(longest.encode()) == 65535

    rows = wire.push(fresh_queue, 1, 2, 3, ids=[longest, sibling, longest])

    assert [row["status"] for row in rows] == ["queued", "queued", "duplicate"]
    assert [message["transactionId"] for message in wire.messages(fresh_queue)] == [
        longest,
        sibling,
    ]
    refused = wire.post_items({"queue": fresh_queue, "payload": 4, "transactionId": longest + "c"})
    assert "transactionId" in error_of(refused, 400)


@pytest.mark.parametrize(
    "literal",
    [
        '"Bed\\u0026Breakfast"',
        '"a\\/b"',
        '"say \\"hi\\""',
        '"tab\\tin\\n"',
        '"\\ud83d\\ude00 \\\\"',
    ],
)
def test_any_json_escape_is_welcome_in_an_identifier(wire, fresh_queue, literal):
    body = (
        f'{{"items":[{{"queue":"{fresh_queue}","partition":{literal},'
        f'"transactionId":{literal},"payload":1}}]}}'
    )
    name = json.loads(literal)

    [row] = expect(wire.post("/api/v1/push", body), 201).json()

    assert row["transaction_id"] == name
    [message] = wire.messages(fresh_queue, name)
    assert (message["transactionId"], message["partition"]) == (name, name)


def test_identifiers_are_compared_by_code_points(wire, fresh_queue):
    ids = ["a", "A", "a ", " a", "é", "e\u0301", "a\u200b", ""]
    rows = wire.push(fresh_queue, *range(len(ids)), ids=ids)
    assert {row["status"] for row in rows} == {"queued"}
    assert [message["transactionId"] for message in wire.messages(fresh_queue)] == ids


def test_the_content_type_is_not_looked_at(wire, fresh_queue):
    body = json.dumps({"items": [{"queue": fresh_queue, "payload": 1}]})
    for content_type in ("text/plain", "APPLICATION/JSON; charset=latin-1", "image/png", ""):
        expect(wire.post("/api/v1/push", body, headers={"content-type": content_type}), 201)
    assert wire.payloads(fresh_queue) == [1, 1, 1, 1]


@pytest.mark.parametrize("depth", [500, 200_000])
def test_deep_nesting_is_stored_or_refused_but_never_a_500(wire, fresh_queue, depth):
    payload = "[" * depth + "]" * depth
    body = f'{{"items":[{{"queue":"{fresh_queue}","payload":{payload}}}]}}'

    answer = expect(wire.post("/api/v1/push", body), 201, 400)

    if answer.status_code == 400:
        error_of(answer, 400)
    else:
        popped = expect(wire.get_pop(fresh_queue), 200)
        assert payload.encode() in popped.content


# --- dedup --------------------------------------------------------------------------------------


def test_an_id_twice_in_one_body_is_stored_once_and_the_first_wins(wire, fresh_queue):
    first, second, other = wire.push(fresh_queue, "one", "two", "three", ids=["t", "t", "u"])
    assert (first["status"], second["status"], other["status"]) == ("queued", "duplicate", "queued")
    assert second["message_id"] == first["message_id"]
    assert wire.payloads(fresh_queue) == ["one", "three"]


def test_a_repeated_push_writes_nothing_and_answers_the_original_id(wire, fresh_queue):
    [original] = wire.push(fresh_queue, "one", ids=["t"])
    [repeated, fresh] = wire.push(fresh_queue, "again", "new", ids=["t", "u"])
    assert repeated["status"] == "duplicate"
    assert repeated["message_id"] == original["message_id"]
    assert repeated["transaction_id"] == "t"
    assert fresh["status"] == "queued"
    assert wire.payloads(fresh_queue) == ["one", "new"]


def test_an_id_that_was_consumed_is_still_a_duplicate(wire, fresh_queue):
    [original] = wire.push(fresh_queue, "one", ids=["t"])
    wire.pop(fresh_queue, autoAck=True)
    [repeated] = wire.push(fresh_queue, "one", ids=["t"])
    assert repeated["status"] == "duplicate"
    assert repeated["message_id"] == original["message_id"]


def test_the_same_id_in_another_partition_or_queue_is_another_message(wire, fresh_queue):
    rows = wire.push_items(
        {"queue": fresh_queue, "partition": "a", "transactionId": "t", "payload": 1},
        {"queue": fresh_queue, "partition": "b", "transactionId": "t", "payload": 2},
        {"queue": f"{fresh_queue}-2", "partition": "a", "transactionId": "t", "payload": 3},
    )
    assert [row["status"] for row in rows] == ["queued"] * 3


def test_many_concurrent_pushes_of_one_id_store_one(wire, fresh_queue):
    def push(number: int) -> dict:
        return wire.push(fresh_queue, number, ids=["the-one"])[0]

    with ThreadPoolExecutor(20) as pool:
        rows = list(pool.map(push, range(100)))

    [winner] = [row for row in rows if row["status"] == "queued"]
    assert [row["status"] for row in rows].count("duplicate") == 99
    assert {row["message_id"] for row in rows} == {winner["message_id"]}
    assert len(wire.messages(fresh_queue)) == 1


def test_a_dedup_window_of_zero_switches_dedup_off(wire, fresh_queue):
    wire.configure(fresh_queue, dedupWindowSeconds=0)
    rows = wire.push(fresh_queue, 1, ids=["t"]) + wire.push(fresh_queue, 2, ids=["t"])
    assert [row["status"] for row in rows] == ["queued", "queued"]
    assert wire.payloads(fresh_queue) == [1, 2]


def test_an_id_is_free_again_when_the_dedup_window_has_passed(wire, fresh_queue, eventually):
    wire.configure(fresh_queue, dedupWindowSeconds=1)
    wire.push(fresh_queue, 1, ids=["t"])
    assert wire.push(fresh_queue, 2, ids=["t"])[0]["status"] == "duplicate"
    eventually(lambda: wire.push(fresh_queue, 3, ids=["t"])[0]["status"] == "queued")
    assert wire.payloads(fresh_queue) == [1, 3]


# --- order --------------------------------------------------------------------------------------


def test_concurrent_producers_leave_one_order_without_gaps_or_repeats(wire, fresh_queue):
    def produce(producer: int) -> None:
        for number in range(10):
            wire.push(fresh_queue, [producer, number], [producer, number + 0.5])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(produce, range(8)))

    messages = wire.messages(fresh_queue, batch=1000)
    assert len(messages) == 160
    for producer in range(8):
        own = [message["data"][1] for message in messages if message["data"][0] == producer]
        assert own == sorted(own) and len(own) == 20
    keys = [(message["createdAt"][:23], message["id"]) for message in messages]
    assert keys == sorted(keys), "(createdAt in milliseconds, id) never decreases"
    stamps = [message["createdAt"] for message in messages]
    assert stamps == sorted(stamps)
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z", stamp) for stamp in stamps)


# --- birth of a queue ---------------------------------------------------------------------------


def test_a_push_gives_birth_to_a_queue_whose_dotted_name_says_namespace_and_task(
    wire: WireClient, fresh_queue
):
    queue = f"{fresh_queue}.created.late"
    wire.push(queue, 1)
    born = wire.queue(queue)
    assert (born["namespace"], born["task"]) == (fresh_queue, "created")
    assert born["options"]["leaseTime"] == 60


def test_an_encrypted_queue_without_a_key_refuses_the_push_and_says_why(wire, fresh_queue):
    wire.configure(fresh_queue, encryptionEnabled=True)
    answer = wire.post_items({"queue": fresh_queue, "payload": "secret"})
    if answer.status_code == 201:
        [row] = answer.json()
        assert row["status"] == "failed"
        assert "encrypt" in row["error"].lower()
    else:
        assert "encrypt" in error_of(answer, 400).lower()
    assert wire.payloads(fresh_queue) == []
