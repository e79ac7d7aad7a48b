"""The extent scanner accepts what RFC 8259 allows and nothing else.

Method: the judge is Python's own json module, told to refuse NaN and Infinity, on random
documents, on random damage to them, and on the texts that other brokers stumbled over.
"""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.api import scanner


def is_json(text: bytes) -> bool:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(text.decode("utf-8"), parse_constant=refuse, parse_int=len, parse_float=len)
    except ValueError:
        return False
    return True


def scans(text: bytes) -> bool:
    try:
        scanner.document(text)
    except scanner.Malformed:
        return False
    return True


LEGAL = [
    b"1E2", b"1.0", b"-0", b"-0.0e-0", b"1e400", b"1e200000", b'{"a":1,"a":2,"b":1}',
    b'"\\u0000"', b'"\\ud800"', b'["\\udc00\\ud800"]', b'{"\\ud800":1}', b"9007199254740993",
    b"-9223372036854775808", b"18446744073709551615", b"1" * 5000, b'"\x7f"', b" \t\r\n1 ",
    b"[]", b"{}", b"[ ]", b"{ }", b'""', b'{"":""}', b'"\\"\\\\\\/\\b\\f\\n\\r\\t"',
    b"[[],[[]],{}]", b'{"a":{"b":[1,{"c":null}]}}', b"true", b"false", b"null",
    "\"é東😀\"".encode(),
]  # fmt: skip
ILLEGAL = [
    b"", b" ", b"01", b"-", b"+1", b".5", b"1.", b"1e", b"1e+", b"0x1", b"NaN", b"Infinity",
    b"-Infinity", b"tru", b"nulll", b"True", b'"', b'"\\x"', b'"\\u12g4"', b'"\\u123"',
    b'"a\tb"', b'"a\x00b"', b'"\\', b"[1,]", b"[,1]", b"[1 2]", b"[1", b"]", b"[1]]", b"{",
    b'{"a"}', b'{"a":}', b'{"a":1,}', b'{,"a":1}', b'{"a":1 "b":2}', b"{a:1}", b"{1:2}",
    b"{'a':1}", b"[1}", b'{"a":1]', b"1 2", b"/**/1", b"\x0b1", b"\xa01", b"[1,,2]",
    b'{"a":1,,"b":2}', b"[-]", b"[01]", b"[1.]", b'["a\nb"]', b'{"a":[}',
]  # fmt: skip


@pytest.mark.parametrize("text", LEGAL, ids=lambda text: repr(text[:20]))
def test_a_text_that_the_rfc_allows_is_read_whole(text):
    assert is_json(text)
    start, end = scanner.document(text)
    assert text[start:end] == text.strip(b" \t\r\n")


@pytest.mark.parametrize("text", ILLEGAL, ids=lambda text: repr(text[:20]))
def test_a_text_that_the_rfc_forbids_is_refused(text):
    assert not is_json(text)
    with pytest.raises(scanner.Malformed):
        scanner.document(text)


texts = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)
documents = st.builds(
    lambda value, indent, ascii_only: json.dumps(value, indent=indent, ensure_ascii=ascii_only),
    values,
    st.sampled_from([None, 0, 2]),
    st.booleans(),
).filter(lambda text: "Infinity" not in text)


@given(documents)
def test_every_document_that_python_writes_is_read_whole(text):
    body = text.encode()
    assert scanner.document(body) == (0, len(body))


tokens = st.sampled_from(
    [
        "[", "]", "{", "}", ",", ":", '"', '"a"', '"\\ud800"', '"\\n"', "\\", "1", "-", "0", ".",
        "e", "E+", "true", "null", "NaN", " ", "\n", "\t", "1.5e3", '"b":', '{"a":', "[1,", "é",
        "\x00", "u12", "\\u0041",
    ]
)  # fmt: skip


@settings(max_examples=1000)
@given(st.lists(tokens, max_size=14).map("".join))
def test_scanner_and_python_agree_on_random_tokens(text):
    body = text.encode()
    assert scans(body) == is_json(body)


@settings(max_examples=500)
@given(documents, st.integers(0, 200), st.sampled_from(list('[]{},:"\\0e.-tn \x1f')), st.booleans())
def test_scanner_and_python_agree_on_damaged_documents(text, where, what, insert):
    where = min(where, len(text))
    body = (text[:where] + what + text[where + (not insert) :]).encode()
    assert scans(body) == is_json(body)


@given(st.lists(documents, max_size=6), st.sampled_from(["", " ", "\n\t"]))
def test_the_elements_of_an_array_are_its_own_bytes(parts, space):
    body = ("[" + f"{space},{space}".join(parts) + "]").encode()
    found = [body[start:end] for start, end in scanner.elements(body, 0)]
    assert found == [part.encode() for part in parts]


@given(st.lists(st.tuples(texts, documents), max_size=6))
def test_the_last_member_of_a_name_wins(pairs):
    body = ("{" + " , ".join(f"{json.dumps(name)} : {text}" for name, text in pairs) + "}").encode()
    wanted = {name for name, _ in pairs[:3]}
    found = scanner.members(body, 0, wanted)
    expected = {name: text.encode() for name, text in pairs if name in wanted}
    assert {name: body[start:end] for name, (start, end) in found.items()} == expected


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_read_to_its_limit_and_refused_beyond(opening, closing):
    # The innermost is a one-element container, so that nothing is taken in one stride.
    deepest = scanner.DEPTH_MAX
    body = opening * deepest + b"1" + closing * deepest
    assert scanner.document(body) == (0, len(body))
    with pytest.raises(scanner.Malformed, match="nested deeper"):
        scanner.document(opening * (deepest + 1) + b"1" + closing * (deepest + 1))
    with pytest.raises(scanner.Malformed, match="nested deeper"):
        scanner.document(opening * 10_000)


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"0," * 1_000_000 + b"x]",
        b'["' + b"\\n" * 1_000_000,
        b'["' + b"a" * 2_000_000,
        b"[" + b"9" * 2_000_000 + b"x",
        b"[" + b'"a",' * 500_000 + b'"\\ud800"',
        b"{" + b'"a":1,' * 300_000,
        b" " * 2_000_000,
        b"[" + b"[0]," * 100_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_a_hostile_text_costs_time_in_proportion_to_its_length(text):
    started = time.perf_counter()
    with pytest.raises(scanner.Malformed):
        scanner.document(text)
    assert time.perf_counter() - started < 3.0


def test_a_text_of_too_many_small_containers_is_refused(monkeypatch):
    monkeypatch.setattr(scanner, "STEPS_MAX", 1000)
    within = b"[" + b"[0]," * 300 + b"0]"
    assert scanner.document(within) == (0, len(within))
    with pytest.raises(scanner.Malformed, match="more than 1000 values"):
        scanner.document(b"[" + b"[0]," * 1000 + b"0]")
