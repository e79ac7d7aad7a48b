"""A request that would rather speak another protocol is the plain request that it is too.

Method: one connection gets requests that ask for another protocol, another one the same without
that wish, in the same pieces. What the door was asked and what went out must be the same.
"""

import asyncio

import pytest

from tests.unit.test_known_heads import GET, POST, Side, request

WISH = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"
TAIL = b"X-Id: \x01\xff"  # bytes that no header of ours holds, and the parser lets by


def heard(stream: bytes, step: int) -> tuple[list[tuple[str, bytes]], bytes]:
    """What the door was asked, and what was answered."""

    async def connection() -> Side:
        side = Side(remembers=True)
        await side.hears([stream[at : at + step] for at in range(0, len(stream), step)])
        return side

    side = asyncio.run(connection())
    asked = [(one[0], one[3] if one[0] == "short" else b"") for one in side.asked]
    return asked, side.transport.written


@pytest.mark.parametrize("step", [1, 7, 40, 1000, 100_000])
@pytest.mark.parametrize(
    ("line", "headers", "body"),
    [
        (b"POST /api/v1/ack HTTP/1.1", (), b"abc"),
        (b"POST /api/v1/configure HTTP/1.1", (), b"abc"),
        (b"POST /api/v1/ack HTTP/1.1", (b"Transfer-Encoding: chunked",), None),
        (b"GET /api/v1/pop/queue/q?batch=3 HTTP/1.1", (TAIL,), None),
        (b"GET /api/v1/nowhere HTTP/1.1", (), None),
    ],
)
def test_what_asks_for_another_protocol_is_heard_like_what_does_not(
    step: int, line: bytes, headers: tuple[bytes, ...], body: bytes | None
):
    chunks = CHUNKS if headers and b"chunked" in headers[0] else b""
    asking = request(line, (b"Host: x", *WISH, *headers), body) + chunks
    plain = request(line, (b"Host: x", WISH[0], WISH[2], *headers), body) + chunks

    large = request(body=b"x" * (70_000 if step >= 1000 else 70))

    def stream(one: bytes) -> bytes:
        return 2 * one + POST + GET + large + one + POST

    assert heard(stream(asking), step) == heard(stream(plain), step)


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"TLS/1.2"])
def test_the_body_of_a_request_that_asks_for_another_protocol_is_never_a_request(protocol: bytes):
    asking = request(headers=(b"Connection: Upgrade", b"Upgrade: " + protocol), body=POST)

    for step in (len(asking) - len(POST), 1, len(asking)):
        asked, _ = heard(asking, step)
        assert asked == [("short", POST)]


def test_a_wish_with_a_length_and_chunks_at_once_is_refused_like_any_other():
    both = (*WISH, b"Transfer-Encoding: chunked")
    assert heard(request(headers=both), 1000) == heard(request(headers=both[3:]), 1000)
