"""Payloads for people: nothing that a page shows or sends on has gone through a number."""

import json

import pytest

from brokers.admin import payload_text
from brokers.errors import RequestError

BIG = b'{"n":123456789012345678901234567890,"f":1.0,"e":1E400,"n":-0}'


def test_an_indented_payload_has_every_digit_and_every_escape_it_had():
    text = '{"n":123456789012345678901234567890,"f":1.0,"e":1E400,"s":"a\\"b\\u00e9{[,:]}","l":[]}'
    assert payload_text.indented(text) == (
        "{\n"
        '  "n": 123456789012345678901234567890,\n'
        '  "f": 1.0,\n'
        '  "e": 1E400,\n'
        '  "s": "a\\"b\\u00e9{[,:]}",\n'
        '  "l": []\n'
        "}"
    )


@pytest.mark.parametrize(
    "text",
    ['[1, [2, {}], {"a": [true, null]}]', "7", '"x"', "[]", "{}", " [ ] ", '{"a":{"b":[{}]}}'],
)
def test_an_indented_payload_is_the_same_value(text):
    pretty = payload_text.indented(text)
    assert json.loads(pretty) == json.loads(text)
    assert payload_text.indented(pretty) == pretty


@pytest.mark.parametrize("text", ["", "[", '"half', "[1}]]"])
def test_what_is_no_json_is_not_made_pretty(text):
    assert payload_text.indented(text) is None


def test_a_deep_payload_costs_no_stack_and_a_line_a_level():
    text = "[" * 500 + "]" * 500
    pretty = payload_text.indented(text)
    assert pretty.count("\n") == 998
    assert len(pretty) < 200_000


def test_a_large_payload_is_shown_up_to_a_bound_and_says_so():
    payload = b'"' + "é".encode() * payload_text.SHOWN_BYTES_MAX + b'"'
    found = payload_text.shown(payload)
    assert (found.whole, found.pretty, found.size) == (False, "", len(payload))
    assert len(found.verbatim) < payload_text.SHOWN_BYTES_MAX
    assert payload_text.shown(BIG).verbatim == BIG.decode()


@pytest.mark.parametrize(
    "original",
    [BIG, b'{\r\n "a": 1,\n "b":\t2\r}', b'"\xe2\x80\xa8"', b'"\\ud800"', b"  7 "],
)
def test_a_payload_that_a_browser_gave_back_unchanged_is_sent_as_it_was(original):
    field = original.decode().replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
    assert payload_text.edited(field).unless_same(original) is None


def test_a_change_is_sent_as_it_was_written():
    changed = payload_text.edited('{\r\n  "n": 1234567890123456789012345678901\r\n}  ')
    assert changed.unless_same(BIG) == b'{\n  "n": 1234567890123456789012345678901\n}'
    assert str(changed) == "42 bytes"


@pytest.mark.parametrize("text", ["", "{", "{'a':1}", "1 2", "NaN", '"\x01"', "[01]", '{"a":1,}'])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(RequestError, match="JSON"):
        payload_text.edited(text)
