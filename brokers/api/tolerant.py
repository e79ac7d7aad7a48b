"""The tolerant decoder: msgspec's part for the texts that msgspec refuses.

RFC 8259 allows an escape of half a surrogate pair, and msgspec does not. Each is written as two
characters of the same six bytes before msgspec reads the text: a mark that the text does not
hold, and one that tells which half it was and how its digits were written. In what msgspec found
they are written back: such a payload is kept byte for byte, and such an identifier reaches the
check that refuses it by name. So a hostile text costs about what any other does.

Imports errors. Used by payloads.py and timer_payloads.py.
"""

import random
import re
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from brokers.errors import RequestError

T = TypeVar("T")

# An escape of one half with no other half beside it; escaped backslashes are masked before.
_HIGH = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_lone = re.compile(_HIGH + rb"(?!" + _LOW + rb")|(?<!" + _HIGH + rb")" + _LOW)
# Marks: characters of three bytes for private use. Codes: as many others, also of three bytes.
MARKS = range(0xE000, 0xF900)
CODES = 0x3400
HALVES = 0xD800
HALF_BITS = 11
HEX = 16


def decode(body: bytes, shape: type[T]) -> T:
    """The body as `shape`. Raises a RequestError that says where it does not fit."""
    whole, mark = without_halves(body)
    try:
        value: T = msgspec.json.decode(whole, type=shape)
    except RecursionError:
        raise RequestError("bad body: nested too deeply", code="bad_body") from None
    except msgspec.MsgspecError as error:
        raise RequestError(f"bad body: {error}", code="bad_body") from None
    return value if mark is None else _Writer(mark).value(value)


def without_halves(body: bytes) -> tuple[bytes, str | None]:
    """The text with a mark and a code for each lone half, and the mark; None where it has none."""
    visible = body.replace(rb"\\", b"\0\0")
    parts: list[bytes] = []
    end, mark = 0, b""
    for found in _lone.finditer(visible):
        if not parts:
            mark = _mark(body).encode()
        start = found.start()
        parts += (body[end:start], mark, _code(body[start + 2 : start + 6]))
        end = start + 6
    if not parts:
        return body, None
    parts.append(body[end:])
    return b"".join(parts), mark.decode()


def _mark(body: bytes) -> str:
    for one in random.sample(MARKS, len(MARKS)):
        if chr(one).encode() not in body:
            return chr(one)
    # Six thousand different ones, and half a pair beside them.
    raise RequestError("bad body: lone surrogates among too many private characters",
                       code="bad_body")  # fmt: skip


@lru_cache(1 << 15)
def _code(digits: bytes) -> bytes:
    """Three bytes for four digits: which half, and which of its digits are capitals."""
    text = digits.decode()
    capitals = sum(one.isupper() << place for place, one in enumerate(text))
    return chr(CODES + (int(text, HEX) - HALVES | capitals << HALF_BITS)).encode()


@lru_cache(1 << 15)
def _digits(code: str) -> str:
    capitals, half = divmod(ord(code) - CODES, 1 << HALF_BITS)
    text = f"{half + HALVES:04x}"
    return "".join(one.upper() if capitals >> place & 1 else one for place, one in enumerate(text))


class _Writer:
    """Writes halves back, in structs, lists, texts and raw values."""

    def __init__(self, mark: str) -> None:
        self._mark, self._raw_mark = mark, mark.encode()
        self._text = re.compile(f"{mark}(.)", re.DOTALL)
        self._raw = re.compile(self._raw_mark + b"(...)", re.DOTALL)

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            if self._mark not in value:
                return value
            return self._text.sub(lambda found: chr(int(_digits(found[1]), HEX)), value)
        if isinstance(value, msgspec.Raw):
            raw = bytes(value)
            if self._raw_mark not in raw:
                return value
            return msgspec.Raw(self._raw.sub(_escape, raw))
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, msgspec.Struct):
            fields = value.__struct_fields__
            return type(value)(**{name: self.value(getattr(value, name)) for name in fields})
        return value


def _escape(found: re.Match[bytes]) -> bytes:
    return rb"\u" + _digits(found[1].decode()).encode()
