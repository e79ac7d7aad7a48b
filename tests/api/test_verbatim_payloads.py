"""A payload is stored verbatim: the producer's bytes are the consumer's bytes, everywhere.

Method: request bodies are put together as text and answers are taken apart by extent, so
that no JSON library has a chance to tidy what is compared. Each payload travels through
push and pop, dies, is listed as a dead letter, is replayed and popped again.
"""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.wire_client import ack_of, expect

NASTY = [
    b"null",
    b"true",
    b"0",
    b"-0",
    b"-0.0",
    b"1.0",
    b"1E2",
    b"1e-7",
    b"1e400",
    b"-1e200000",
    b"0.1000000000000000055511151231257827",
    b"9007199254740993",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"1" * 5000,
    b'""',
    b'"\\u0000"',
    b'"x\\u0000y"',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\ud83d\\ude00"',
    '"😀 é e\u0301 東京 \u2028 \u2029 \ufeff \x7f"'.encode(),
    b'"\\/ / \\b\\f\\n\\r\\t \\" \\\\"',
    b'"\\u00e9 \\u00E9"',
    b'"<script>&amp;</script>"',
    b'",\\"data\\":\\u001e}"',
    b'{"data":1,"a":{"data":[{"data":null}]}}',
    b'{"b":1,"a":1,"a":2,"f":1.0,"g":1E2,"s":"\\u00e9"}',
    b'{"a":"x\\u0000y","k\\u0000":1,"\\ud800":2}',
    b'{"id":9007199254740993,"neg":-9223372036854775808,"u":18446744073709551615}',
    b'{"__proto__":{},"constructor":1,"$ref":"#","@type":"x"}',
    b'{ "spaced" : [ 1 , 2 ] , "t":\t[\n] , "e" : { } }',
    b"{}",
    b"[]",
    b"[[[[[[[[]]]]]]]]",
    b"[" * 200 + b"]" * 200,
    b'{"":""}',
    b'"' + b"long " * 30_000 + b'"',
]

# --- taking JSON apart by extent ----------------------------------------------------------------

TOKEN = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^ \t\r\n{}\[\]:,"]+)')


def members(text: bytes) -> dict[str, bytes]:
    """The members of the object that ``text`` is, each value as its bytes."""
    found: dict[str, bytes] = {}
    [_, *pairs] = split(text, b"{")
    for key, value in pairs:
        found[json.loads(key)] = value
    return found


def elements(text: bytes) -> list[bytes]:
    [_, *values] = split(text, b"[")
    return [value for _, value in values]


def split(text: bytes, opening: bytes):
    """Yield the opening bracket, then (key, value) of each member or (b"", value)."""
    tokens = TOKEN.finditer(text)
    first = next(tokens)
    assert first.group(1) == opening
    yield opening
    key, start, end, depth = b"", None, 0, 0
    for token in tokens:
        word = token.group(1)
        if depth == 0 and word in (b",", b"}", b"]"):
            if start is not None:
                yield key, text[start:end]
            key, start = b"", None
            continue
        if depth == 0 and word == b":":
            key, start = text[start:end], None
            continue
        if start is None:
            start = token.start(1)
        end = token.end(1)
        depth += (word in (b"{", b"[")) - (word in (b"}", b"]"))


def test_the_scissors_of_this_file_cut_where_they_should():
    text = b' {"a" : [1, {"b":"}]"}] ,"\\u0062":  "x,\\"y" , "c":{} } '
    assert members(text) == {"a": b'[1, {"b":"}]"}]', "b": b'"x,\\"y"', "c": b"{}"}
    assert elements(b'[1, [2,3] ,{"a":"]"}]') == [b"1", b"[2,3]", b'{"a":"]"}']
    assert elements(b"[]") == []


# --- the journey --------------------------------------------------------------------------------


def push_texts(wire, queue: str, texts: list[bytes]) -> None:
    """All of them in one request, each in a partition of its own that carries its number."""
    items = b",".join(
        b'{"partition":"%d","payload": \n%s\t,"queue":"%s","transactionId":"t%d"}'
        % (number, text, queue.encode(), number)
        for number, text in enumerate(texts)
    )
    rows = expect(wire.post("/api/v1/push", b'{"items":[%s]}' % items), 201).json()
    assert {row["status"] for row in rows} <= {"queued"}


def popped_texts(wire, queue: str, **params) -> tuple[dict[int, bytes], list[dict]]:
    """What a pop of all partitions holds: payload bytes by number, and the messages."""
    texts: dict[int, bytes] = {}
    messages = []
    answer = wire.get_pop(queue, partitions=0, **params)
    while answer.status_code == 200:
        for element in elements(members(answer.content)["messages"]):
            parts = members(element)
            texts[int(json.loads(parts["partition"]))] = parts.pop("data")
            messages.append({name: json.loads(value) for name, value in parts.items()})
        answer = wire.get_pop(queue, partitions=0, **params)
    return texts, messages


def dead_texts(wire, queue: str) -> dict[int, tuple[str, bytes]]:
    answer = expect(wire.get("/api/v1/dlq", queue=queue, limit=1000), 200)
    found = {}
    for element in elements(members(answer.content)["messages"]):
        parts = members(element)
        found[int(json.loads(parts["partition"]))] = (json.loads(parts["id"]), parts["data"])
    return found


def travel(wire, queue: str, texts: list[bytes]) -> None:
    expected = dict(enumerate(texts))
    push_texts(wire, queue, texts)

    popped, messages = popped_texts(wire, queue)
    assert popped == expected

    results = wire.ack_batch(*(ack_of(message, "dlq") for message in messages))
    assert all(result["dlq"] for result in results)
    dead = dead_texts(wire, queue)
    assert {number: text for number, (_, text) in dead.items()} == expected

    for row_id, _ in dead.values():
        assert expect(wire.replay(row_id), 200).json()["result"] == "moved"
    replayed, _ = popped_texts(wire, queue, autoAck=True)
    assert replayed == expected


def test_the_nasty_payloads_travel_unchanged(wire, fresh_queue):
    travel(wire, fresh_queue, NASTY)


@pytest.mark.parametrize("key", ["payload", "data"])
def test_the_nasty_payloads_travel_unchanged_through_a_transaction(wire, fresh_queue, key):
    operations = b",".join(
        b'{"type":"push","queue":"%s","partition":"%d","%s":%s}'
        % (fresh_queue.encode(), number, key.encode(), text)
        for number, text in enumerate(NASTY)
    )
    answer = expect(wire.post("/api/v1/transaction", b'{"operations":[%s]}' % operations), 200)
    assert answer.json()["success"] is True
    popped, _ = popped_texts(wire, fresh_queue)
    assert popped == dict(enumerate(NASTY))


def test_messages_of_one_partition_are_cut_apart_exactly(wire, fresh_queue):
    items = b",".join(
        b'{"queue":"%s","partition":"0","payload":%s}' % (fresh_queue.encode(), text)
        for text in NASTY
    )
    expect(wire.post("/api/v1/push", b'{"items":[%s]}' % items), 201)
    for size in (1, 5, 100):
        answer = expect(wire.get_pop(fresh_queue, batch=size), 200)
        popped = [members(each)["data"] for each in elements(members(answer.content)["messages"])]
        assert popped == NASTY[:size]
        last = members(elements(members(answer.content)["messages"])[-1])
        del last["data"]
        wire.ack({name: json.loads(value) for name, value in last.items()}, "retry")


def test_conflation_and_discovery_deliver_the_same_bytes(wire, fresh_queue):
    queue = f"{fresh_queue}.verbatim"
    push_texts(wire, queue, NASTY)
    group = {"consumerGroup": "g", "subscriptionMode": "all", "conflation": True, "partitions": 0}
    answer = expect(wire.get_pop(queue, batch=1000, **group), 200)
    conflated = [members(each) for each in elements(members(answer.content)["messages"])]
    assert {int(json.loads(each["partition"])): each["data"] for each in conflated} == dict(
        enumerate(NASTY)
    )
    answer = expect(wire.get_pop(None, namespace=fresh_queue, partitions=0), 200)
    found = [members(each) for each in elements(members(answer.content)["messages"])]
    assert {int(json.loads(each["partition"])): each["data"] for each in found} == dict(
        enumerate(NASTY)
    )


def test_a_listing_is_not_poisoned_by_any_payload(wire, fresh_queue):
    push_texts(wire, fresh_queue, NASTY)
    expect(wire.get(wire.queue_path(fresh_queue)), 200)
    expect(wire.get("/api/v1/resources/queues"), 200)
    assert wire.depth(fresh_queue)["pending"] == len(NASTY)


# --- random texts -------------------------------------------------------------------------------

BLANK = st.text(" \t\n\r", max_size=2)
NUMBER = st.from_regex(
    re.compile(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,5})?", re.ASCII),
    fullmatch=True,
)
CHARACTER = st.one_of(
    st.characters(min_codepoint=0x20, exclude_characters='"\\', exclude_categories=["Cs"]),
    st.sampled_from(["\\" + letter for letter in '"\\/bfnrt']),
    st.integers(0, 0xFFFF).map(lambda code: f"\\u{code:04x}"),
    st.integers(0, 0xFFFF).map(lambda code: f"\\u{code:04X}"),
)
STRING = st.lists(CHARACTER, max_size=12).map(lambda letters: '"' + "".join(letters) + '"')


def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    spaced = st.tuples(BLANK, inner, BLANK).map("".join)
    member = st.tuples(BLANK, STRING, BLANK, st.just(":"), spaced).map("".join)
    array = st.lists(spaced, max_size=4).map(lambda values: "[" + ",".join(values) + "]")
    obj = st.lists(member, max_size=4).map(lambda values: "{" + ",".join(values) + "}")
    return array | obj


JSON_TEXT = st.recursive(
    st.sampled_from(["null", "true", "false"]) | NUMBER | STRING, containers, max_leaves=15
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(JSON_TEXT, min_size=1, max_size=8))
def test_any_json_text_travels_unchanged(wire, texts):
    queue = "verbatim-random"
    wire.delete(queue)
    travel(wire, queue, [text.encode() for text in texts])
