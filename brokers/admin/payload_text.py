"""Payloads for people: as they lie there, indented, and as an operator has edited them.

A payload is text to us and never numbers: an integer of thirty digits, `1.0` and `1E400` are
shown and sent on digit for digit, because nothing here reads a value.

Imports api/scanner, api/wire, errors. Used by the pages that show payloads.
"""

import re
from dataclasses import dataclass

from brokers.api import scanner, wire
from brokers.errors import RequestError

# What a page shows of a payload; the rest is to be had as a file.
SHOWN_BYTES_MAX = 262_144
INDENT = "  "
INDENT_DEPTH_MAX = 40

_token = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"'  # a string
    r"|[{}\[\],:]"
    r'|[^\s{}\[\],:"]+',  # a number or a word
    re.DOTALL,
)
_space = re.compile(r"[ \t\n\r]*")
_OPENERS, _CLOSERS = "{[", "}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """`verbatim` is the payload as it is, or its beginning; `pretty` is "" where there is none."""

    verbatim: str
    pretty: str
    size: int
    whole: bool


def shown(payload: bytes) -> Shown:
    whole = len(payload) <= SHOWN_BYTES_MAX
    verbatim = text_of(payload[:SHOWN_BYTES_MAX])
    pretty = indented(verbatim) if whole else None
    return Shown(verbatim=verbatim, pretty=pretty or "", size=len(payload), whole=whole)


def text_of(payload: bytes) -> str:
    """Bytes that are no text (half a character where a payload was cut) as visible escapes."""
    return payload.decode("utf-8", "backslashreplace")


def indented(text: str) -> str | None:
    """The JSON text with other white space between its tokens; None if it is no JSON."""
    parts: list[str] = []
    depth = position = 0
    before = ""
    while True:
        position = _end(_space, text, position)
        if position == len(text):
            break
        token = _token.match(text, position)
        if token is None:
            return None
        position = token.end()
        one = token[0]
        if one in _CLOSERS:
            depth -= 1
            if before not in _OPENERS or not before:
                parts.append(_line(depth))
        elif before == "," or (before and before in _OPENERS):
            parts.append(_line(depth))
        parts.append(": " if one == ":" else one)
        if one in _OPENERS:
            depth += 1
        before = one
    return "".join(parts) if depth == 0 and parts else None


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    assert found is not None, "the pattern may match nothing, so it always matches"
    return found.end()


def _line(depth: int) -> str:
    return "\n" + INDENT * min(max(depth, 0), INDENT_DEPTH_MAX)


class Edited:
    """A payload out of a form. As text it tells its size and nothing more: the audit and the
    log are no places for what may be a secret."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload

    def __str__(self) -> str:
        return f"{len(self.payload)} bytes"

    def unless_same(self, original: bytes) -> bytes | None:
        """None when nobody has changed it. A browser gives every line another end, so that
        much is no change: what goes out then are the original's own bytes."""
        return None if self.payload == _one_value(_plain_lines(original)) else self.payload


def edited(text: str) -> Edited:
    """What a text field holds, as a JSON value. Raises RequestError where it is none."""
    try:
        body = wire.json_text(_plain_lines(text.encode("utf-8")))
    except UnicodeEncodeError:
        raise RequestError("not UTF-8") from None
    try:
        return Edited(_one_value(body))
    except scanner.Malformed as error:
        raise RequestError(f"not JSON: {error}") from None


def _one_value(body: bytes) -> bytes:
    start, end = scanner.document(body)
    return body[start:end]


def _plain_lines(body: bytes) -> bytes:
    return body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
