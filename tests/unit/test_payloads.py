"""Bodies become domain values, and payloads stay what the producer wrote.

Method: the decoders alone. A payload is compared byte for byte. The tolerant decoder is
held against msgspec on the bodies that both can read.
"""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.api import payloads, tolerant
from brokers.domain import Ack, PushItem
from brokers.errors import RequestError

NASTY = [
    b"1E2", b"1.0", b"-0", b'{"b":1,"a":1,"a":2,"f":1.0,"g":1E2,"s":"\\u00e9"}', b"1e400",
    b'{"x":1e200000}', b'{"a":"x\\u0000y","k\\u0000":1}', b'{"a":"\\ud800"}', b'"\\udc00\\ud800"',
    b'{"\\ud800":"\\ud83d\\ude00"}', b"9007199254740993", b"-9223372036854775808",
    b"18446744073709551615", b"1" * 5000, b"null", b"true", b'""', b"[]", b"{}",
    b'{ "spaced" : [ 1 , 2 ] }', b'"\\/\\b\\"\\\\"', "\"é東😀\"".encode(), b'"\x7f"',
    b'"\\\\ud800"', b"[" * 500 + b"]" * 500,
    b"[" * 500 + b'"\\ud800"' + b"]" * 500,
]  # fmt: skip


def pushed(payload: bytes, space: bytes = b"") -> list[PushItem]:
    item = b'{"queue":"q","payload"' + space + b":" + space + payload + space + b',"z":1}'
    return payloads.push_items(b'{"items":[' + item + b"]}")


def refusal(parse, body) -> str:
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    with pytest.raises(RequestError) as caught:
        parse(body)
    assert caught.value.status == 400
    return caught.value.text


@pytest.mark.parametrize("payload", NASTY, ids=lambda payload: repr(payload[:24]))
@pytest.mark.parametrize("space", [b"", b" \r\n\t"])
def test_a_payload_is_kept_byte_for_byte_without_the_space_around_it(payload, space):
    assert [item.payload for item in pushed(payload, space)] == [payload]
    item = {"type": "push", "items": [{"queue": "q", "payload": 0}]}
    body = json.dumps({"operations": [item]}).encode().replace(b": 0", b":" + space + payload)
    [operation] = payloads.transaction(body).operations
    assert isinstance(operation, PushItem)
    assert operation.payload == payload


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@given(values, st.booleans())
def test_any_json_payload_is_kept_byte_for_byte(value, indent):
    # ensure_ascii, so that lone surrogates of hypothesis become escapes.
    payload = json.dumps(value, indent=2 if indent else None).encode()
    assert pushed(payload)[0].payload == payload


@pytest.mark.parametrize(
    "payload",
    [b"NaN", b"Infinity", b"-Infinity", b"01", b"1.", b"+1", b"[1,]", b"{'a':1}", b"tru", b"",
     b'"\\x"', b'"a\nb"', b'"\xff"', b'"\xed\xa0\x80"', b'["\\ud800",NaN]', b'["\\ud800" 1]',
     b"[" * 10_000 + b"]" * 10_000, b'["\\ud800",' + b"[" * 10_000 + b"]" * 10_000 + b"]",
     b'{"a":' * 10_000 + b"1" + b"}" * 10_000, b"[" * 100_000],
    ids=lambda payload: repr(payload[:16]),
)  # fmt: skip
def test_what_is_not_json_or_nested_too_deeply_is_400(payload):
    body = b'{"items":[{"queue":"q","payload":' + payload + b"}]}"
    assert refusal(payloads.push_items, body).startswith("bad body: ")
    body = b'{"operations":[{"type":"push","queue":"q","payload":' + payload + b"}]}"
    assert refusal(payloads.transaction, body).startswith("bad body: ")


# Push


def test_a_push_item_without_partition_and_id_gets_the_defaults():
    body = b'{"items":[{"queue":"","payload":null,"partition":null,"transactionId":null}],"x":[{}]}'
    assert payloads.push_items(body) == [PushItem("", "Default", b"null", None)]
    assert payloads.push_items(b'\xef\xbb\xbf {"items":[]} ') == []


def test_a_body_supplied_producer_and_trace_are_ignored():
    item = {"queue": "q", "payload": 1, "producerSub": "me", "traceId": 5, "partition": ""}
    body = json.dumps({"items": [item]}).encode()
    assert payloads.push_items(body) == [PushItem("q", "", b"1", None, None)]


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"null", b"[]", b'"x"', b"{}", {"items": None}, {"items": {}}, {"items": [None]},
        {"items": [[]]}, {"items": [{}]}, {"items": [{"queue": "q"}]}, {"items": [{"payload": 1}]},
        {"items": [{"queue": None, "payload": 1}]}, {"items": [{"queue": 123, "payload": 1}]},
        {"items": [{"queue": "q", "data": 1}]},
        {"items": [{"queue": "q", "payload": 1, "partition": 1}]},
        {"items": [{"queue": "q", "payload": 1, "transactionId": {}}]},
        {"items": [{"queue": "q", "payload": "\ud800", "partition": 1}]},
        {"items": [{"queue": "q", "partition": "\ud800"}]},
        b'{"items":[]} x', b'{"items":[],}', b"{'items':[]}",
    ],
)  # fmt: skip
def test_a_push_body_of_the_wrong_shape_is_400(body):
    assert refusal(payloads.push_items, body).startswith("bad body: ")


def test_a_misfit_is_named_with_its_item():
    good = {"queue": "q", "payload": 1}
    for surrogate in ("plain", "\ud800"):
        bad = {"queue": 5, "payload": surrogate}
        assert "items[1].queue" in refusal(payloads.push_items, {"items": [good, bad]})


@pytest.mark.parametrize("field", ["queue", "partition", "transactionId"])
@pytest.mark.parametrize("value", ["a\x00", "\ud800", "\udc00x", "é" * 40_000])
def test_an_illegal_identifier_is_400_and_named_with_its_item(field, value):
    good = {"queue": "q", "payload": 1}
    bad = {"queue": "q", "payload": 1} | {field: value}
    assert f"{field} of item 1" in refusal(payloads.push_items, {"items": [good, bad]})
    operations = [{"type": "push", "items": [good, bad]}]
    assert f"{field} of item 1" in refusal(payloads.transaction, {"operations": operations})


def test_identifiers_are_read_through_their_escapes_and_never_changed():
    for name in ("Bed&Breakfast", "a/b", 'say "hi"', "tab\tin", " q ", "\u200b", "Zürich/東京/😀"):
        body = json.dumps({"items": [{"queue": name, "payload": 1, "transactionId": name}]})
        for text in (body.encode(), body.replace("/", "\\/").encode()):
            [item] = payloads.push_items(text)
            assert (item.queue, item.transaction_id) == (name, name)
    longest = "x" * 65_535
    body = json.dumps({"items": [{"queue": "x" * 255, "payload": 1, "transactionId": longest}]})
    assert payloads.push_items(body.encode())[0].transaction_id == longest


@pytest.mark.parametrize("payload", [b"1", b'"\\ud800"'])
def test_of_duplicate_keys_the_last_wins(payload):
    body = (
        b'{"items":[{"queue":"a","payload":0}],"items":[{"queue":"b","queue":"c","payload":0,'
        b'"payload":' + payload + b"}]}"
    )
    assert payloads.push_items(body) == [PushItem("c", "Default", payload, None)]


# Acks


def test_an_ack_with_nulls_is_an_ack_without_them():
    body = (
        b'{"transactionId":"t","partitionId":"p","status":null,"consumerGroup":null,"error":null}'
    )
    assert payloads.single_ack(body) == Ack("t", "p")
    body = b'{"transactionId":"t","partitionId":"p","status":"x","consumerGroup":"g","leaseId":"l"}'
    assert payloads.single_ack(body) == Ack("t", "p", "g", "l", "x", None)
    body = b'{"transactionId":"t","partitionId":"p","consumerGroup":"","leaseId":""}'
    assert payloads.single_ack(body) == Ack("t", "p")


def test_the_group_of_a_batch_stands_at_the_top_only():
    item = {"transactionId": "t", "partitionId": "p", "consumerGroup": "other"}
    body = json.dumps({"consumerGroup": "g", "acknowledgments": [item]}).encode()
    assert payloads.ack_batch(body) == [Ack("t", "p", "g")]
    assert payloads.ack_batch(b'{"acknowledgments":[]}') == []


@pytest.mark.parametrize(
    "change",
    [{"transactionId": None}, {"partitionId": None}, {"transactionId": 1}, {"status": True},
     {"status": 1}, {"leaseId": 5}, {"consumerGroup": []}, {"error": {}},
     {"partitionId": "\x00"}, {"transactionId": "\ud800"}, {"leaseId": "\x00"},
     {"consumerGroup": "g" * 256}],
)  # fmt: skip
def test_an_ack_of_the_wrong_shape_or_with_an_illegal_name_is_400(change):
    good = {"transactionId": "t", "partitionId": "p"}
    refusal(payloads.single_ack, good | change)
    refusal(payloads.transaction, {"operations": [{"type": "ack"} | good | change]})
    group = {"consumerGroup": change["consumerGroup"]} if "consumerGroup" in change else {}
    refusal(payloads.ack_batch, {"acknowledgments": [good | change]} | group)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", {"acknowledgments": None}, {"acks": []}])
def test_an_ack_batch_without_its_list_is_400(body):
    refusal(payloads.ack_batch, body)


def test_a_strange_error_text_never_fails_the_nack():
    text = "broke\x00 here \ud800 and é" + "x" * 100_000
    body = json.dumps({"transactionId": "t", "partitionId": "p", "error": text}).encode()
    error = payloads.single_ack(body).error
    assert error is not None
    assert error.startswith("broke\\u0000 here \\ud800 and é")
    assert "\x00" not in error
    assert len(error.encode()) <= payloads.ERROR_TEXT_BYTES_MAX


# Lease


@pytest.mark.parametrize(
    ("body", "seconds"),
    [(b"", 60), (b" \n", 60), (b"{}", 60), (b'{"seconds":null}', 60), (b'{"seconds":5}', 5),
     (b'{"seconds":0}', 1), (b'{"seconds":-7}', 1), (b'{"seconds":99999999999}', 31_536_000),
     (b'{"other":1}', 60)],
)  # fmt: skip
def test_the_seconds_of_an_extension_have_a_default_and_bounds(body, seconds):
    assert payloads.lease_seconds(body) == seconds


@pytest.mark.parametrize(
    "body",
    [b"[]", b"5", b"null", {"seconds": "5"}, {"seconds": 1.5}, {"seconds": 2**63},
     b'{"seconds":1e400}', b'{"seconds":' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_an_extension_of_the_wrong_shape_is_400(body):
    refusal(payloads.lease_seconds, body)


# Transactions

TRACE = "0190b6d4-7a3c-7c4e-9a57-0d8f4b1f2a3b"


def test_the_operations_of_a_transaction_are_one_flat_list_in_request_order():
    body = {
        "operations": [
            {"type": "ack", "transactionId": "t", "partitionId": "p", "consumerGroup": "g"},
            {"type": "push", "items": [{"queue": "a", "data": 1}, {"queue": "b", "payload": 2}]},
            {"type": "push", "queue": "c", "partition": "x", "traceId": TRACE.upper()},
            {"type": "push", "items": []},
        ]
    }
    parsed = payloads.transaction(json.dumps(body).encode())
    assert parsed.operations == [
        Ack("t", "p", "g"),
        PushItem("a", "Default", b"1", None),
        PushItem("b", "Default", b"2", None),
        PushItem("c", "x", b"{}", None, TRACE),
    ]
    assert (parsed.required_leases, parsed.mentions_lease) == ([], False)


def test_payload_wins_over_data_and_null_is_a_payload():
    for fields, payload in (
        ({"payload": None, "data": 1}, b"null"),
        ({"data": None}, b"null"),
        ({"payload": 1, "data": 2}, b"1"),
        ({}, b"{}"),
    ):
        body = {"operations": [{"type": "push", "queue": "q"} | fields]}
        [operation] = payloads.transaction(json.dumps(body).encode()).operations
        assert operation.payload == payload


@pytest.mark.parametrize("trace", ["nope", 5, None, {}, "\ud800", TRACE[:-1], "{" + TRACE + "}"])
def test_a_trace_id_that_is_no_uuid_is_dropped(trace):
    body = {"operations": [{"type": "push", "queue": "q", "traceId": trace}]}
    [operation] = payloads.transaction(json.dumps(body).encode()).operations
    assert operation.trace_id is None


def test_a_lease_is_mentioned_by_an_operation_or_by_the_request():
    ack = {"type": "ack", "transactionId": "t", "partitionId": "p"}
    for body, mentioned in (
        ({"operations": [ack], "requiredLeases": None}, False),
        ({"operations": [ack], "requiredLeases": []}, False),
        ({"operations": [ack], "requiredLeases": ["l"]}, True),
        ({"operations": [ack | {"leaseId": "l"}]}, True),
    ):
        assert payloads.transaction(json.dumps(body).encode()).mentions_lease is mentioned


PUSH = {"type": "push", "queue": "q"}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", {"operations": None}, {"operations": {}}, {"operations": []},
        {"operations": [None]}, {"operations": [{}]}, {"operations": [{"type": "pop"}]},
        {"operations": [{"type": None}]}, {"operations": [{"type": 1}]},
        {"operations": [{"type": "push"}]}, {"operations": [{"type": "push", "items": {}}]},
        {"operations": [{"type": "push", "items": [{}]}]}, {"operations": [{"type": "ack"}]},
        {"operations": [PUSH, {"type": "Push", "queue": "q"}]},
        {"operations": [PUSH], "requiredLeases": "x"},
        {"operations": [PUSH], "requiredLeases": [1]},
        {"operations": [], "kv": []}, {"operations": [PUSH], "timers": {}},
        {"operations": [PUSH], "kv": {}}, {"operations": [{"type": "\ud800"}]},
    ],
)  # fmt: skip
def test_a_transaction_of_the_wrong_shape_is_400(body):
    refusal(payloads.transaction, body)


@pytest.mark.parametrize("name", ["kv", "timers"])
def test_an_empty_rider_is_no_rider_and_a_full_one_is_handed_on_as_it_is(name):
    for rider in ([], None):
        body = {"operations": [PUSH], name: rider}
        assert len(payloads.transaction(json.dumps(body).encode()).operations) == 1
        assert "must not be empty" in refusal(payloads.transaction, body | {"operations": []})
    body = b'{"operations":[],"%s":[{"op": 1.0}]}' % name.encode()
    assert getattr(payloads.transaction(body), name) == b'[{"op": 1.0}]'


# The tolerant decoder

keys = st.sampled_from(
    ["items", "queue", "payload", "partition", "transactionId", "traceId", "data", "operations",
     "type", "requiredLeases", "kv", "partitionId", "status", "consumerGroup", "error", "seconds",
     "acknowledgments", "x"]
)  # fmt: skip
leaves = st.sampled_from(["push", "ack", "é", "", 1, -1, 1.5, 10**25, None, True])
shaped = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=20,
)
push_item = st.fixed_dictionaries(
    {"queue": st.text(), "payload": shaped}, optional={"partition": leaves, "transactionId": leaves}
)
ack_operation = st.fixed_dictionaries(
    {"type": st.just("ack"), "transactionId": st.text(), "partitionId": leaves},
    optional={"status": leaves, "consumerGroup": leaves, "leaseId": leaves},
)
push_operation = st.fixed_dictionaries(
    {"type": st.just("push")},
    optional={"items": st.lists(push_item, max_size=3), "queue": leaves, "data": shaped},
)
bodies = (
    shaped
    | st.fixed_dictionaries({"items": st.lists(push_item, max_size=3)})
    | st.fixed_dictionaries(
        {"operations": st.lists(ack_operation | push_operation, max_size=3)},
        optional={"requiredLeases": shaped, "kv": shaped},
    )
)
SHAPES = [
    payloads.PushBody,
    payloads.AckBody,
    payloads.AckBatchBody,
    payloads.LeaseBody,
    payloads.TransactionBody,
]


@given(bodies, st.booleans())
def test_the_tolerant_decoder_and_msgspec_agree_where_both_can_read(value, ascii_only):
    try:
        body = json.dumps(value, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return
    if payloads._surrogate.search(body):
        return
    for shape in SHAPES:
        try:
            expected = msgspec.json.decode(body, type=shape)
        except msgspec.ValidationError:
            with pytest.raises(RequestError):
                tolerant.decode(body, shape)
            continue
        assert comparable(tolerant.decode(body, shape)) == comparable(expected)


pieces = st.sampled_from(
    [rb"\ud800", rb"\uDfFf", rb"\uDBfF", rb"\udc00", rb"\ud83d\ude00", rb"\\", rb"\n", rb"\u00e9",
     b"x", b"ud800", "\ue000".encode(), "\uf8ff".encode(), "\u3400".encode(), "\ub3ff".encode()]
)  # fmt: skip


@given(st.lists(pieces), st.lists(pieces))
def test_halves_of_pairs_come_out_byte_for_byte_whatever_stands_around_them(payload, name):
    payload, name = b'["' + b"".join(payload) + b'"]', b'"' + b"".join(name) + b'"'
    body = b'{"items":[{"queue":' + name + b',"payload":' + payload + b"}]}"
    [item] = tolerant.decode(body, payloads.PushBody).items
    assert bytes(item.payload) == payload
    assert item.queue == json.loads(name)


def test_a_text_of_halves_is_read_where_it_holds_many_a_mark_itself():
    full = "".join(chr(one) for one in tolerant.MARKS[:-1]).encode()
    payload = rb'"\ud800' + full + b'"'
    body = b'{"items":[{"queue":"q","payload":' + payload + b"}]}"
    [item] = tolerant.decode(body, payloads.PushBody).items
    assert bytes(item.payload) == payload


def comparable(value):
    """Structs with raw parts, which msgspec compares by identity, as plain values."""
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    if isinstance(value, msgspec.Struct):
        return type(value), [comparable(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, list):
        return [comparable(one) for one in value]
    return value
