"""The wire keeps its limits: bodies, queries and identifiers.

Method: a `receive` that plays a list of messages, as both servers would send them.
"""

import gzip
import json
import tracemalloc
import zlib
from urllib.parse import urlencode

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from brokers import errors
from brokers.api import wire
from brokers.errors import RequestError

LIMIT = 1000


def playing(*chunks: bytes, end: str = "complete"):
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if end == "complete":
        messages[-1]["more_body"] = False
    messages.append({"type": "http.disconnect"})
    left = iter(messages)

    async def receive():
        return next(left)

    return receive


def scope_with(*headers: tuple[bytes, bytes]):
    return {"type": "http", "headers": list(headers)}


GZIP = (b"content-encoding", b"gzip")


def in_chunks(data: bytes, size: int = 7) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


async def read(*chunks: bytes, headers=(), limit: int = LIMIT) -> bytes:
    return await wire.read_body(scope_with(*headers), playing(*chunks), limit)


async def refused(*chunks: bytes, headers=(), limit: int = LIMIT) -> int:
    with pytest.raises(RequestError) as caught:
        await read(*chunks, headers=headers, limit=limit)
    return caught.value.status


async def test_a_body_arrives_whole_however_it_is_cut():
    body = bytes(range(256)) * 3
    assert await read(body) == body
    assert await read(*in_chunks(body)) == body
    assert await read(b"", body, b"") == body
    assert await read(b"") == b""


async def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_is_413():
    assert len(await read(b"x" * LIMIT)) == LIMIT
    assert await refused(b"x" * (LIMIT + 1)) == 413
    assert await refused(*[b"x" * 100] * 11) == 413


async def test_a_declared_size_over_the_limit_is_413_before_a_byte_is_read():
    async def receive():
        raise AssertionError("the body was asked for")

    with pytest.raises(RequestError) as caught:
        await wire.read_body(scope_with((b"content-length", b"1001")), receive, LIMIT)
    assert caught.value.status == 413


@pytest.mark.parametrize("size", [b"-1", b"abc", b"9" * 30, b"1_0"])
async def test_a_senseless_content_length_is_400(size):
    assert await refused(b"x", headers=[(b"content-length", size)]) == 400


async def test_a_chunked_body_without_end_is_refused_at_the_limit():
    chunks = 0

    async def receive():
        nonlocal chunks
        chunks += 1
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    with pytest.raises(RequestError):
        await wire.read_body(scope_with(), receive, LIMIT)
    assert chunks == 11


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_gone():
    with pytest.raises(wire.ClientGone):
        await wire.read_body(scope_with(), playing(b"half", end="cut"), LIMIT)


async def test_gzip_is_decoded_however_it_is_cut():
    body = json.dumps({"n": list(range(100))}).encode()
    packed = gzip.compress(body)
    for size in (1, 7, 1000):
        assert await read(*in_chunks(packed, size), headers=[GZIP]) == body
    big = b"0123456789abcdef" * 100_000
    assert await read(gzip.compress(big), headers=[GZIP], limit=len(big)) == big


@given(st.binary(max_size=3000), st.integers(1, 500))
async def test_any_gzip_body_comes_out_as_it_went_in(body, size):
    chunks = in_chunks(gzip.compress(body), size)
    assert await read(*chunks, headers=[GZIP], limit=10_000) == body


async def test_a_gzip_bomb_is_413_in_constant_memory():
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"\x00" * 1_000_000) for _ in range(200)) + packer.flush()
    assert len(bomb) < 1_000_000
    tracemalloc.start()
    try:
        assert await refused(bomb, headers=[GZIP], limit=4_000_000) == 413
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(b"hello")[:-1],
        gzip.compress(b"hello")[:10],
        b"",
        b"not gzip",
        gzip.compress(b"a") + b"junk",
        gzip.compress(b"hello")[:-8] + b"\x00" * 8,
    ],
    ids=["cut", "head only", "empty", "plain", "trailing junk", "wrong checksum"],
)
async def test_damaged_gzip_is_400(packed):
    assert await refused(packed, headers=[GZIP]) == 400


async def test_identity_is_plain_and_other_encodings_are_415():
    assert await read(b"x", headers=[(b"content-encoding", b"Identity")]) == b"x"
    for coding in (b"br", b"zstd", b"deflate", b"gzip, gzip"):
        assert await refused(b"x", headers=[(b"content-encoding", coding)]) == 415
    assert await refused(b"x", headers=[GZIP, GZIP]) == 415


def test_a_byte_order_mark_is_tolerated_and_bytes_that_are_not_utf8_are_400():
    assert wire.json_text(b"\xef\xbb\xbf{}") == b"{}"
    assert wire.json_text('"é"'.encode()) == '"é"'.encode()
    for raw in (b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf4\x90\x80\x80"', b"\xff\xfe{"):
        with pytest.raises(RequestError) as caught:
            wire.json_text(raw)
        assert caught.value.status == 400


# Queries


def test_a_query_is_form_encoded_and_the_last_of_a_name_wins():
    query = wire.parse_query(b"a=1&b=x+y%2Bz&a=2&c&d=&=x&%61b=%C3%A9&&e=1=2")
    assert query == {"a": "2", "b": "x y+z", "c": "", "d": "", "ab": "é", "e": "1=2"}
    assert wire.parse_query(b"") == {}


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_whatever_python_encodes_is_read_back(expected):
    assume(all(is_encodable(name) and is_encodable(value) for name, value in expected.items()))
    assert wire.parse_query(urlencode(expected).encode()) == expected


def is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 7), ("5", 5), ("+5", 5), ("-3", -3), ("007", 7), (str(2**63 - 1), 2**63 - 1),
     (str(-(2**63)), -(2**63))],
)  # fmt: skip
def test_a_query_integer_is_read(text, value):
    assert wire.query_integer({"batch": text}, "batch", 7) == value
    assert wire.query_integer({}, "batch", 7) == 7


@pytest.mark.parametrize(
    "text",
    ["abc", "1.5", " 5 ", " 7", "1_000", "٣", "1e3", "0x1", "5\n", "--1", "+", str(2**63),
     str(-(2**63) - 1), "9" * 5000, "\udcff"],
)  # fmt: skip
def test_what_is_not_an_integer_of_64_bits_is_400(text):
    with pytest.raises(RequestError) as caught:
        wire.query_integer({"batch": text}, "batch")
    assert caught.value.status == 400
    assert "batch" in caught.value.text


def test_a_query_boolean_is_true_false_1_or_0_and_nothing_else():
    for text, value in {"true": True, "1": True, "false": False, "0": False, "": True}.items():
        assert wire.query_boolean({"wait": text}, "wait", True) is value
    for text in ("TRUE", "yes", "2", "t", " true"):
        with pytest.raises(RequestError):
            wire.query_boolean({"wait": text}, "wait")


def test_a_name_in_a_query_that_is_not_utf8_is_400_and_an_empty_one_is_absent():
    for raw in (b"g=%ED%A0%80", b"g=%FF", b"g=a%00b", b"g=" + b"a" * 256):
        with pytest.raises(RequestError) as caught:
            wire.query_name(wire.parse_query(raw), "g")
        assert caught.value.status == 400
    assert wire.query_name({"g": ""}, "g") is None
    assert wire.query_name({}, "g") is None


# Identifiers


@pytest.mark.parametrize("character", ["a", "é", "東", "😀"])
def test_the_limit_of_an_identifier_counts_utf8_bytes(character):
    width = len(character.encode())
    fits = character * (255 // width)
    wire.check_identifier("queue", fits)
    with pytest.raises(RequestError, match="queue of item 3 must be at most 255 bytes"):
        wire.check_identifier("queue", fits + character, 255, 3)


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", "x\udfff"])
def test_a_nul_or_a_lone_surrogate_in_an_identifier_is_400_and_named(value):
    with pytest.raises(RequestError, match="partition of item 0 must not contain"):
        wire.check_identifier("partition", value, 255, 0)


@pytest.mark.parametrize("value", ["", " ", "\u200b", "q ", "..", "a/b", "a\nb", '"', "\x7f"])
def test_a_strange_identifier_is_legal(value):
    wire.check_identifier("queue", value)


# Errors


@given(st.text())
def test_an_error_body_is_valid_utf8_json_whatever_it_quotes(text):
    reply = wire.error_reply(RequestError(text + "\ud800"))
    document = json.loads(reply.body.decode("utf-8"))
    assert reply.status == 400
    document["error"].encode("utf-8")


def test_an_error_of_each_family_gets_its_status_and_headers():
    reply = wire.error_reply(errors.Refusal("later", retry_after_s=3))
    assert (reply.status, dict(reply.headers)) == (503, {b"retry-after": b"3"})
    assert errors.error_body(errors.NoSuchRoute()) == (
        404,
        {"error": "Not Found", "code": "no_such_route"},
    )
    assert errors.error_body(errors.NoConnection("pool timeout after 5 s")) == (
        500,
        {"error": "pool"},
    )
    assert errors.StoreError("lost", outcome_unknown=True).code == "outcome_unknown"
    assert errors.error_body(ZeroDivisionError("secret")) == (500, {"error": "internal error"})
