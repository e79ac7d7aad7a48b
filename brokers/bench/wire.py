"""HTTP/1.1 as the load generator needs it: rendered requests, framed answers.

Everything that can be rendered before the clock starts is. An answer is framed as the
standard says: a 204 has no body, anything else has its Content-Length; what does not fit
is an error, as a server that frames its answers wrongly must not look quick.

Imports nothing of ours. Used by load.py, roles.py and seeding.py.
"""

import re
from typing import NamedTuple
from urllib.parse import quote, urlencode

LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*\r", re.IGNORECASE)
HEAD_END = b"\r\n\r\n"
HEAD_BYTES_MAX = 65_536
NO_CONTENT = b"204"


class Misframed(Exception):
    """The server's bytes are no HTTP/1.1 answer to one request."""


class Answer(NamedTuple):
    status: bytes
    body: bytes


def split(received: bytes) -> Answer | None:
    """The one answer that `received` is, or None while it is not complete."""
    end = received.find(HEAD_END)
    if end < 0:
        if len(received) > HEAD_BYTES_MAX:
            raise Misframed("a head without an end")
        return None
    if not received.startswith(b"HTTP/1.1 "):
        raise Misframed(f"not an answer: {received[:60]!r}")
    status = received[9:12]
    length = LENGTH.search(received, 0, end + 1)
    if status == NO_CONTENT:
        if length or len(received) > end + 4:
            raise Misframed("a 204 with a body or a length")
        return Answer(status, b"")
    if length is None:
        raise Misframed(f"no Content-Length: {received[:end]!r}")
    missing = end + 4 + int(length[1]) - len(received)
    if missing < 0:
        raise Misframed("bytes behind the end of the body")
    return None if missing else Answer(status, received[end + 4 :])


def get(path: str, query: dict[str, str]) -> bytes:
    return f"GET {path}?{urlencode(query)} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    return post_head(path) % len(body) + body


def post_head(path: str) -> bytes:
    """A head that waits for its length, for bodies that are rendered while the clock runs."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        "Content-Length: %d\r\n\r\n"
    ).encode()


def queue_path(queue: str) -> str:
    return f"/api/v1/pop/queue/{quote(queue, safe='')}"
