"""Records: their bytes, which no release may ever change, and what is refused as one.

Method: a file of bytes that is committed; what the present code writes is compared with it,
and what it reads from it.
"""

from pathlib import Path
from struct import pack, unpack
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.errors import DamagedRecord
from spool.records import BODY_BYTES_MAX, MARKER, Record, Whereabouts, decode, encode, encode_many
from tests.spool_parts import message, record

GOLDEN = Path(__file__).parent / "golden" / "spool-format-1.buf"

GOLDEN_RECORDS = [
    Record(
        queue="orders",
        partition="Default",
        accepted_us=1_790_000_000_123_456,
        message=b'"id":"0199a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b","transactionId":"tx-1","traceId":null,'
        b'"producerSub":null,"data":{"price": 1.50, "text":"\xc3\xa4"}',
    ),
    Record(
        queue='a "quoted"\nqueue',
        partition="分区-\U0001f600",
        accepted_us=1,
        message=b'"id":"0199a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5c","transactionId":"\\u001e",'
        b'"traceId":"11111111-2222-3333-4444-555555555555","producerSub":"me","data":null',
        tenant="0d0c0b0a-0000-4000-8000-000000000002",
        encrypted=True,
        unclear=True,
    ),
    Record(
        queue="q",
        partition="p",
        accepted_us=1_790_000_000_123_457,
        message=b'"id":"0199a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5d","transactionId":"t",'
        b'"traceId":null,"producerSub":null,"data":[{"id":"x"},",\\"id\\":\\""]',
        unclear=True,
    ),
]


def test_the_bytes_of_a_record_are_those_of_the_first_release():
    assert encode_many(GOLDEN_RECORDS) == GOLDEN.read_bytes()


def test_the_bytes_of_the_first_release_are_still_read():
    data = GOLDEN.read_bytes()
    found = []
    while data:
        length = unpack(">I", data[4:8])[0]
        found.append(decode(data[12 : 12 + length]))
        data = data[12 + length :]
    assert found == GOLDEN_RECORDS


def test_a_record_of_the_default_tenant_has_no_tenant_field():
    assert b"tenant" not in encode(GOLDEN_RECORDS[0])
    assert decode(encode(GOLDEN_RECORDS[0])[12:]).tenant is None


def test_the_checksum_covers_the_length_and_the_body():
    data = encode(GOLDEN_RECORDS[0])
    assert data[:4] == MARKER == b"\x1eQS1"
    assert data[4:8] == pack(">I", len(data) - 12)
    assert data[8:12] == pack(">I", crc32(data[4:8] + data[12:]))


def test_a_record_knows_its_message_and_its_partition():
    one = record(7, tenant="0d0c0b0a-0000-4000-8000-000000000002")
    assert one.message_id == "01890000-0000-7000-8000-000000000007"
    assert one.whereabouts == Whereabouts("0d0c0b0a-0000-4000-8000-000000000002", "orders", "p1")
    assert one.as_unclear() == record(7, tenant=one.tenant, unclear=True)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
payloads = st.binary(max_size=50).map(lambda data: data.replace(b"\x1e", b""))


@given(
    st.builds(
        Record,
        queue=texts,
        partition=texts,
        accepted_us=st.integers(0, 2**53),
        message=payloads.map(lambda payload: message(1, payload)),
        tenant=st.none() | st.uuids().map(str),
        encrypted=st.booleans(),
        unclear=st.booleans(),
    )
)
def test_every_record_is_read_as_it_was_written(one: Record):
    data = encode(one)
    assert b"\x1e" not in data[12:]
    assert decode(data[12:]) == one


def test_fields_of_a_later_release_are_passed_over():
    body = b'{"queue":"q","partition":"p","acceptedAt":5,"later":{"x":[1]},%b}' % message(1)
    assert decode(body) == Record("q", "p", 5, message(1))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b'{"queue":"q","partition":"p","acceptedAt":5}',
        b'{"queue":"q","partition":"p","acceptedAt":5,' + message(1, b"1"),
        b'{"queue":"q","partition":"p","acceptedAt":"5",' + message(1) + b"}",
        b'{"queue":1,"partition":"p","acceptedAt":5,' + message(1) + b"}",
        b'{"queue":"q","acceptedAt":5,' + message(1) + b"}",
        b'{"queue":"\xff","partition":"p","acceptedAt":5,' + message(1) + b"}",
        b"[" * 100_000 + b"," + message(1) + b"}",
        b'{"later":' + b"[" * 100_000 + b"," + message(1) + b"}",
        b'{"queue":"q","partition":"p","acceptedAt":5,"id":"short"}',
    ],
)
def test_a_body_that_is_none_is_damage_and_nothing_worse(body: bytes):
    with pytest.raises(DamagedRecord):
        decode(body)


@pytest.mark.parametrize(
    "one",
    [
        Record("q", "p", 1, b'"transactionId":"t"'),
        Record("q", "p", 1, message(1, b'"\x1e"')),
        Record("\ud800", "p", 1, message(1)),
        Record("q", "p", 1, message(1, b" " * BODY_BYTES_MAX)),
    ],
    ids=["no id", "a marker's byte", "half a character", "too large"],
)
def test_what_could_not_be_read_back_is_not_written(one: Record):
    with pytest.raises(ValueError):
        encode(one)
