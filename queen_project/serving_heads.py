"""Heads that repeat: a client sends the same request line and headers again and again.

The head of a plain request for a hot route, that came twice byte for byte but for the digits of
its Content-Length, is remembered with what httptools made of it. The next request with these
bytes is known by one look into a dict, and no parser runs. Nothing is parsed here: what httptools
has not read in exactly these bytes goes to httptools. Only syntax is remembered, never what
was decided about a caller.

Only heads of one shape are remembered: one space where one may stand, visible ASCII, no folded
lines. In those nothing but the digits can differ, and they can mean nothing but a size.

Imports brokers.api. Used by serving_short.py.
"""

import re
from typing import NamedTuple

import httptools

from brokers.api.door import Door
from brokers.api.routes import Match
from brokers.api.wire import Scope

METHODS = (b"GET", b"POST", b"PUT", b"DELETE")
ADDRESSES_MAX = 2048
ADDRESS_BYTES_MAX = 512

HEADS_MAX = 1024
HEAD_BYTES_MAX = 4096
# Heads that were seen once: those that differ in each request are not worth remembering.
STRANGERS_MAX = 4096
LENGTH_DIGITS_MAX = 5
END = b"\r\n\r\n"
LENGTH = b"content-length"
# As clients write it. Whoever writes it in another way has its heads parsed.
LENGTH_LINES = (b"\nContent-Length: ", b"\ncontent-length: ")
LENGTH_LINE_BYTES = len(LENGTH_LINES[0])

_line = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++: ?[!-~]++(?: ++[!-~]++)*+\r\n"
_head = re.compile(
    rb"(?:%b) [!-~]++ HTTP/1\.1\r\n(?:%b)*+\r\n" % (b"|".join(METHODS), _line), re.DOTALL
)


class Head(NamedTuple):
    """What a head says that was seen before; its scope lacks what differs by connection."""

    match: Match
    scope: Scope


class Found(NamedTuple):
    """A known head in what was received: where its body begins, and the size of that."""

    head: Head
    begin: int
    size: int


class Heads:
    """Known heads, by their bytes without the digits of the Content-Length."""

    def __init__(self, *, head_bytes_max: int, body_bytes_max: int) -> None:
        self._head_bytes_max = min(head_bytes_max, HEAD_BYTES_MAX)
        self._body_bytes_max = body_bytes_max
        self._known: dict[bytes, Head] = {}
        self._strangers: set[int] = set()

    def find(self, data: bytes, start: int) -> Found | None:
        """The known head that begins at `start`, if one stands there whole."""
        end = data.find(END, start, start + self._head_bytes_max)
        if end < 0:
            return None
        begin = end + len(END)
        at = data.find(LENGTH_LINES[0], start, end)
        if at < 0:
            at = data.find(LENGTH_LINES[1], start, end)
        if at < 0:
            head = self._known.get(data[start:begin])
            return None if head is None else Found(head, begin, 0)
        at += LENGTH_LINE_BYTES
        stop = data.find(b"\r", at, begin)
        head = self._known.get(data[start:at] + data[stop:begin])
        if head is None:
            return None
        digits = data[at:stop]
        if not digits.isdigit() or len(digits) > LENGTH_DIGITS_MAX:
            return None
        size = int(digits)
        return None if size > self._body_bytes_max else Found(head, begin, size)

    def learn(
        self, data: bytes, match: Match, scope: Scope, headers: list[tuple[bytes, bytes]]
    ) -> None:
        """`data` began with a head that httptools has read as these headers: a plain request
        that keeps its connection. Remember it, if it has the one shape and came before.
        """
        end = data.find(END, 0, self._head_bytes_max)
        if end < 0:
            return
        head = data[: end + len(END)]
        key = _key(head)
        if key is None or key in self._known or not self._came_before(key):
            return
        sizes = [value for name, value in headers if name == LENGTH]
        if len(sizes) > 1 or (len(key) == len(head)) != (not sizes):
            return
        if _head.fullmatch(head) is None or _headers(head) != headers:
            return
        if len(self._known) >= HEADS_MAX:
            del self._known[next(iter(self._known))]
        # Without its size, which is another one each time.
        kept = [header for header in headers if header[0] != LENGTH]
        self._known[key] = Head(match, {**scope, "headers": kept})

    def _came_before(self, key: bytes) -> bool:
        mark = hash(key)
        if mark in self._strangers:
            self._strangers.discard(mark)
            return True
        if len(self._strangers) >= STRANGERS_MAX:
            self._strangers.clear()
        self._strangers.add(mark)
        return False


def _key(head: bytes) -> bytes | None:
    """The head without the digits; None where something else stands in their place."""
    for line in LENGTH_LINES:
        at = head.find(line)
        if at >= 0:
            at += LENGTH_LINE_BYTES
            stop = head.index(b"\r", at)
            digits = head[at:stop]
            good = digits.isdigit() and len(digits) <= LENGTH_DIGITS_MAX
            return head[:at] + head[stop:] if good else None
    return head


def _headers(head: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of a head of the one shape, as httptools would tell them."""
    pairs = [line.partition(b":") for line in head[: -len(END)].split(b"\r\n")[1:]]
    return [(name.lower(), value.removeprefix(b" ")) for name, _, value in pairs]


class Addresses:
    """The hot routes of addresses, and of each a scope without what differs by request."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._known: dict[tuple[bytes, bytes], tuple[Match, Scope] | None] = {}

    def find(self, method: bytes, url: bytes) -> tuple[Match, Scope] | None:
        key = (method, url)
        try:
            return self._known[key]
        except KeyError:
            found = self._look_up(method, url)
        if len(url) <= ADDRESS_BYTES_MAX:
            if len(self._known) >= ADDRESSES_MAX:
                self._known.clear()
            self._known[key] = found
        return found

    def _look_up(self, method: bytes, url: bytes) -> tuple[Match, Scope] | None:
        if method not in METHODS or not url.startswith(b"/") or not url.isascii():
            return None
        try:
            parts = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            return None  # the other side says so
        name = method.decode("ascii")
        match = self._door.hot_match(name, parts.path)
        if match is None:
            return None
        return match, {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "root_path": "",
            "method": name,
            "path": parts.path.decode("ascii"),  # for the record: routes go by the raw one
            "raw_path": parts.path,
            "query_string": parts.query or b"",
        }
