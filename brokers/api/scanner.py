"""The extent scanner: where the values of a JSON text begin and end, byte for byte.

The fast decoder refuses some texts that RFC 8259 allows (lone surrogate escapes). This
scanner reads exactly what the RFC allows, and nothing else: it checks the syntax and
reports extents, it builds no values and does not recurse. So a hostile text costs time in
proportion to its length, and no memory.

Whoever calls has checked that the text is UTF-8.

Imports nothing of ours. Used by payloads.py.
"""

import json
import re
from collections.abc import Collection, Iterator

DEPTH_MAX = 512
# Looks at single containers and strings in one text. At about a microsecond each, this is
# what keeps a hostile 64 MiB of `[[0],[0],...` from working for minutes.
STEPS_MAX = 4_000_000

# Every pattern below either cannot fail (it may match nothing) or fails at its first
# wrong byte, so none backtracks beyond one token; and what repeats is bounded, because
# the engine keeps a record of every turn. Possessive quantifiers would say it better,
# but Python 3.11 before 3.11.5 gets them wrong.
_WS = rb"[ \t\n\r]*"
_PLAIN = rb'"[^"\\\x00-\x1f]*"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_SIMPLE = rb"(?:" + _PLAIN + rb"|" + _NUMBER + rb"|true|false|null|\[\]|\{\})"

_space = re.compile(_WS)
_simple = re.compile(_SIMPLE)
_string_part = re.compile(
    rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*){0,200}'
)
# Many simple elements or members at a stride; what is left is looked at one by one.
_element_run = re.compile(rb"(?:" + _SIMPLE + _WS + rb"," + _WS + rb"){0,500}")
_member_run = re.compile(
    rb"(?:" + _PLAIN + _WS + rb":" + _WS + _SIMPLE + _WS + rb"," + _WS + rb"){0,500}"
)

_QUOTE, _COMMA, _COLON = b'",:'
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = b"[]{}"

type_of_first_byte = {
    _QUOTE: "string",
    _OPEN_LIST: "array",
    _OPEN_OBJECT: "object",
    ord("t"): "boolean",
    ord("f"): "boolean",
    ord("n"): "null",
}


class Malformed(ValueError):
    """The text is not JSON, or beyond what we are ready to read."""


def document(body: bytes) -> tuple[int, int]:
    """The extent of the one value that a body is; checks the whole text."""
    start = skip_space(body, 0)
    end = value_end(body, start)
    if skip_space(body, end) != len(body):
        raise Malformed(f"trailing characters (byte {end})")
    return start, end


def kind(body: bytes, start: int) -> str:
    """What sort of value begins here: string, array, object, boolean, null or number."""
    return type_of_first_byte.get(body[start], "number")


def elements(body: bytes, start: int) -> Iterator[tuple[int, int]]:
    """The extents of the elements of the array that begins at `start`."""
    position = skip_space(body, start + 1)
    if _byte(body, position) == _CLOSE_LIST:
        return
    while True:
        end = value_end(body, position)
        yield position, end
        position = skip_space(body, end)
        if _byte(body, position) == _CLOSE_LIST:
            return
        position = _after(body, position, _COMMA, "',' or ']'")


def members(body: bytes, start: int, wanted: Collection[str]) -> dict[str, tuple[int, int]]:
    """The extents of the wanted members of the object at `start`; the last of a name wins."""
    found: dict[str, tuple[int, int]] = {}
    position = skip_space(body, start + 1)
    if _byte(body, position) == _CLOSE_OBJECT:
        return found
    while True:
        key_start, key_end = position, string_end(body, position)
        position = skip_space(body, key_end)
        position = _after(body, position, _COLON, "':'")
        end = value_end(body, position)
        name = string(body, key_start, key_end)
        if name in wanted:
            found[name] = (position, end)
        position = skip_space(body, end)
        if _byte(body, position) == _CLOSE_OBJECT:
            return found
        position = _after(body, position, _COMMA, "',' or '}'")


def value_end(body: bytes, start: int, *, depth_max: int = DEPTH_MAX) -> int:
    """The end of the value that begins at `start`. Walks with a stack of its own."""
    open_with = bytearray()
    position = start
    for _ in range(STEPS_MAX):
        simple = _simple.match(body, position)
        if simple is not None:
            position = simple.end()
        else:
            opener = _byte(body, position)
            if opener == _QUOTE:
                position = string_end(body, position)
            elif opener in (_OPEN_LIST, _OPEN_OBJECT):
                if len(open_with) >= depth_max:
                    raise Malformed(f"nested deeper than {depth_max} levels")
                open_with.append(opener)
                position = skip_space(body, position + 1)
                if _byte(body, position) != opener + 2:  # the closer of [ or { is two further
                    position = _next_value(body, position, opener)
                    continue
                open_with.pop()
                position += 1
            else:
                raise Malformed(f"expected a value (byte {position})")
        # A value has ended: close what closes here, or go on behind a comma.
        while open_with:
            opener = open_with[-1]
            position = skip_space(body, position)
            if _byte(body, position) != opener + 2:
                closer = chr(opener + 2)
                position = _after(body, position, _COMMA, f"',' or '{closer}'")
                position = _next_value(body, position, opener)
                break
            open_with.pop()
            position += 1
        else:
            return position
    raise Malformed(f"more than {STEPS_MAX} values to look at")


def string_end(body: bytes, start: int) -> int:
    """The end of the string that begins at `start`."""
    if _byte(body, start) != _QUOTE:
        raise Malformed(f"expected a string (byte {start})")
    position = start + 1
    while True:
        part = _string_part.match(body, position)
        assert part is not None, "the pattern may match nothing, so it always matches"
        if _byte(body, part.end()) == _QUOTE:
            return part.end() + 1
        if part.end() == position:
            raise Malformed(f"invalid character in a string (byte {position})")
        position = part.end()


def string(body: bytes, start: int, end: int) -> str:
    """The text of the string of this extent; lone surrogates stay in it."""
    raw = body[start + 1 : end - 1]
    if b"\\" not in raw:
        return raw.decode("utf-8")
    text: str = json.loads(body[start:end])
    return text


def integer(body: bytes, start: int, end: int) -> int | None:
    """The integer of this extent, None when it is not a plain one of at most 64 bits."""
    raw = body[start:end]
    if len(raw) > 20 or not raw.removeprefix(b"-").isdigit():
        return None
    return int(raw)


def skip_space(body: bytes, position: int) -> int:
    space = _space.match(body, position)
    assert space is not None, "the pattern may match nothing, so it always matches"
    return space.end()


def _next_value(body: bytes, position: int, opener: int) -> int:
    """From behind an opener or a comma to the next value that needs a look."""
    if opener == _OPEN_LIST:
        run = _element_run.match(body, position)
        assert run is not None, "the pattern may match nothing, so it always matches"
        return run.end()
    run = _member_run.match(body, position)
    assert run is not None, "the pattern may match nothing, so it always matches"
    position = skip_space(body, string_end(body, run.end()))
    return _after(body, position, _COLON, "':'")


def _byte(body: bytes, position: int) -> int:
    return body[position] if position < len(body) else -1


def _after(body: bytes, position: int, expected: int, names: str) -> int:
    if _byte(body, position) != expected:
        raise Malformed(f"expected {names} (byte {position})")
    return skip_space(body, position + 1)
