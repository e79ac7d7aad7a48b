"""A head that is known is what httptools would make of it, whatever the bytes.

Method: two connections to one door get the same bytes in the same pieces. One side remembers
heads, the other one never finds any, so that all of its bytes go through httptools. What the
door was asked and what went out over the wire must be the same. The first heads of a stream come
twice before it and are known then; what follows are those heads again, other ones, and near misses.
"""

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from brokers.api import hot, wire
from brokers.api.door import Door
from brokers.config import Config, ListenerConfig, ServerConfig
from queen_project.serving_heads import HEADS_MAX, Heads
from queen_project.serving_short import BODY_BYTES_MAX, HotSide
from queen_project.serving_uvicorn import JsonProtocol

HEADER_BYTES_MAX = 600
# Of the loop: more than the longest way through the door takes for all of a stream.
TURNS = 60


class Transport:
    """Keeps what is written; like a socket's, it gives nothing to whom has closed it."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5000) if name in ("peername", "sockname") else None

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Side:
    """One connection, and all that its door was asked."""

    def __init__(self, *, remembers: bool) -> None:
        config = Config(
            server=ServerConfig(), listener=ListenerConfig(header_bytes_max=HEADER_BYTES_MAX)
        )
        broker: Any = SimpleNamespace(config=config, access=SimpleNamespace(required=False))
        self.asked: list[Any] = []
        self.door = Door(
            self.django, lambda: broker, handlers=dict.fromkeys(hot.HANDLERS, self.echo), soon={}
        )
        answer = self.door.answer

        async def seen(match: Any, scope: Any, body: bytes, client: Any) -> Any:
            headers = [one for one in scope["headers"] if one[0] != b"content-length"]
            self.asked.append(("short", {**scope, "headers": headers}, match, body))
            return await answer(match, scope, body, client)

        self.door.answer = seen  # type: ignore[method-assign]
        self.hot = HotSide(
            self.door, body_bytes_max=BODY_BYTES_MAX, head_bytes_max=HEADER_BYTES_MAX
        )
        self.found = 0
        find = self.hot.heads.find

        def finding(data: bytes, start: int) -> Any:
            found = find(data, start) if remembers else None
            self.found += found is not None
            return found

        self.hot.heads.find = finding  # type: ignore[method-assign]
        kind = type("Protocol", (JsonProtocol,), {"hot": self.hot, "limits": config.listener})
        settings = uvicorn.Config(
            self.application,
            http=kind,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            timeout_keep_alive=3600,
        )
        settings.load()
        self.protocol = kind(config=settings, server_state=ServerState(), app_state={})
        self.transport = Transport()
        self.protocol.connection_made(self.transport)

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        seen = {key: scope[key] for key in ("method", "path", "raw_path", "headers")}
        self.asked.append(("long", seen))
        await self.door(scope, receive, send)

    async def django(self, scope: Any, receive: Any, send: Any) -> None:
        await wire.send_json(send, 200, b'"django"')

    async def echo(self, call: Any) -> wire.Reply:
        return wire.Reply(200, b'"%d bytes"' % len(call.body))

    async def hears(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            if self.transport.closed:
                return
            self.protocol.data_received(piece)
            await self.quiet()

    async def quiet(self) -> None:
        """Until all is done that needs nothing more from outside."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def heard(self) -> Any:
        return self.asked, self.transport.written, self.transport.closed


def compare(known: list[bytes], pieces: list[bytes]) -> int:
    """How often a head was found known on the one side; both sides must say the same."""

    async def both() -> tuple[Side, Side]:
        sides = Side(remembers=True), Side(remembers=False)
        for side in sides:
            for one in known:
                await side.hears([one, one])
            await side.hears(pieces)
        return sides

    quick, slow = asyncio.run(both())
    assert quick.heard() == slow.heard()
    assert not slow.found
    return quick.found


def request(
    line: bytes = b"POST /api/v1/ack HTTP/1.1",
    headers: tuple[bytes, ...] = (b"Host: x",),
    body: bytes | None = b"abc",
    length: bytes = b"Content-Length: %d",
) -> bytes:
    sized = () if body is None else (length % len(body),)
    return b"\r\n".join([line, *headers, *sized, b"", b""]) + (body or b"")


POST = request()
GET = request(b"GET /api/v1/pop/queue/q%20x?batch=3 HTTP/1.1", (b"Host: x", b"A: b c"), None)


def test_a_head_that_came_twice_is_known_with_bodies_of_any_size():
    bodies = [b"", b"x", b"x" * 10, b"x" * BODY_BYTES_MAX, b"x" * (BODY_BYTES_MAX + 1)]
    assert compare([POST], [request(body=body) for body in bodies]) == 4
    assert compare([GET], [GET, GET + GET + POST + GET]) == 3


@pytest.mark.parametrize("length", [b"Content-Length: %d", b"content-length: %d"])
@pytest.mark.parametrize("step", [1, 2, 7, 40, 1000])
def test_a_known_request_may_come_in_any_pieces(step: int, length: bytes):
    data = request(length=length, body=b"x" * 30) * 3 + GET
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    compare([request(length=length), GET], pieces)


def test_a_head_and_its_body_in_two_pieces_are_known_too():
    head = request(body=b"x" * 300)[:-300]
    assert compare([POST], [head, b"x" * 299, b"x" + head, b"x" * 300 + POST + POST]) == 4


@pytest.mark.parametrize(
    "other",
    [
        request(length=b"CONTENT-LENGTH: %d"),
        request(length=b"Content-Length:%d"),
        request(length=b"Content-Length:  %d"),
        request(length=b"Content-Length: %d "),
        request(length=b"Content-Length: +%d"),
        request(length=b"Content-Length: 0000000%d"),
        request(length=b"Content-Length: \r\n %d"),
        request(length=b"Content-Length: %d\r\nContent-Length: 3"),
        request(length=b"Content-Length: %d\r\ncontent-length: 3"),
        request(length=b"X: 1\nContent-Length: %d"),
        request(length=b"X: 1\rContent-Length: %d"),
        request(length=b"X-Content-Length: %d"),
        request(headers=(b"Host: x", b"Transfer-Encoding: chunked")),
        request(headers=(b"Host: x", b"Transfer-Encoding: chunked"), body=None) + b"0\r\n\r\n",
        request(headers=(b"Host: x", b"Expect: 100-continue")),
        request(headers=(b"Host: x", b"Connection: close")),
        request(headers=(b"Host: x", b"Connection: Upgrade", b"Upgrade: websocket")),
        request(headers=(b"Host: x", b"Content-Encoding: identity")),
        request(headers=(b"Host: x", b"X: a\r\n b")),
        request(headers=(b"Host: x", b"X: \xff")),
        request(headers=(b"Host: x", b"X:")),
        request(headers=(b"Host: x", b"X : y")),
        request(headers=(b"Host: x", b"X: " + b"y" * HEADER_BYTES_MAX)),
        request(b"POST /api/v1/ack HTTP/1.0"),
        request(b"POST  /api/v1/ack HTTP/1.1"),
        request(b"post /api/v1/ack HTTP/1.1"),
        request(b"POST http://x/api/v1/ack HTTP/1.1"),
        request(b"POST /api/v1/elsewhere HTTP/1.1"),
        request(b"GET /api/v1/pop/queue/q HTTP/1.1"),
        b"\r\n\r\n" + POST,
        POST.replace(b"\r\n", b"\n"),
    ],
)
def test_what_is_not_of_the_one_shape_is_never_known(other: bytes):
    """Neither when it comes again and again, nor to those that resemble it."""

    async def seen() -> dict[bytes, Any]:
        side = Side(remembers=True)
        for _ in range(3):
            await side.hears([other])
        return side.hot.heads._known

    assert not asyncio.run(seen())
    compare([other], [other, POST, other])
    compare([POST, GET], [POST, other, POST, GET])


names = st.sampled_from([b"Host", b"host", b"X-Id", b"Accept", b"Authorization", b"Connection"])
odd_names = st.sampled_from(
    [b"Transfer-Encoding", b"Expect", b"Upgrade", b"Content-Encoding", b"CONTENT-LENGTH", b" X"]
)
values = st.sampled_from([b"x", b"a b", b"1", b"keep-alive", b"close", b"", b"chunked", b"gzip"])
spaces = st.sampled_from([b" ", b" ", b" ", b"", b"  ", b"\t", b"\r\n "])
lengths = st.sampled_from(
    [b"Content-Length: %d", b"content-length: %d", b"Content-length: %d", b"Content-Length:%d"]
)
lines = st.sampled_from(
    [
        b"POST /api/v1/ack HTTP/1.1",
        b"POST /api/v1/push?x=%20 HTTP/1.1",
        b"GET /api/v1/pop/queue/q HTTP/1.1",
        b"GET /nowhere HTTP/1.1",
        b"PUT /api/v1/ack HTTP/1.0",
    ]
)


@st.composite
def requests(draw: Any) -> bytes:
    header = st.builds(
        lambda name, space, value: name + b":" + space + value,
        st.one_of(names, names, names, odd_names),
        spaces,
        values,
    )
    headers = tuple(draw(st.lists(header, max_size=3)))
    body = draw(st.one_of(st.none(), st.binary(max_size=20)))
    made = request(draw(lines), headers, body, draw(lengths))
    if draw(st.integers(0, 9)) == 0:  # a byte that is another one
        at = draw(st.integers(0, len(made) - 1))
        made = made[:at] + bytes([draw(st.integers(0, 255))]) + made[at + 1 :]
    return made


@st.composite
def streams(draw: Any) -> tuple[list[bytes], list[bytes]]:
    """Requests that come before, and a stream of them and of others, cut somewhere."""
    known = draw(st.lists(requests(), min_size=1, max_size=2))
    data = b"".join(draw(st.lists(st.one_of(st.sampled_from(known), requests()), max_size=5)))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    bounds = [0, *cuts, len(data)]
    pieces = [data[one:two] for one, two in itertools.pairwise(bounds) if two > one]
    return known, pieces


@settings(max_examples=150, deadline=None)
@example(([POST], [POST + POST]))
@given(streams())
def test_both_sides_agree_on_every_stream(stream: tuple[list[bytes], list[bytes]]):
    compare(*stream)


def heads() -> Heads:
    return Heads(head_bytes_max=4096, body_bytes_max=BODY_BYTES_MAX)


def learned(known: Heads, name: bytes, times: int = 2) -> bytes:
    head = b"POST /api/v1/ack HTTP/1.1\r\nX: %b\r\n\r\n" % name
    match: Any = None
    for _ in range(times):
        known.learn(head, match, {}, [(b"x", name)])
    return head


def test_only_so_many_heads_are_remembered_and_the_oldest_goes_first():
    known = heads()
    first, second = learned(known, b"first"), learned(known, b"second")
    for no in range(HEADS_MAX - 1):
        learned(known, b"%d" % no)
    assert known.find(first, 0) is None
    assert known.find(second, 0) is not None


def test_a_head_that_never_comes_again_takes_no_place():
    known = heads()
    lasting = learned(known, b"lasting")
    for no in range(HEADS_MAX * 10):
        learned(known, b"%d" % no, times=1)
    assert known.find(lasting, 0) is not None


def test_nothing_is_learned_that_was_not_read_in_these_very_bytes():
    known = heads()
    head = b"POST /api/v1/ack HTTP/1.1\r\nX: a\r\n\r\n"
    match: Any = None
    for headers in ([], [(b"x", b"b")], [(b"x", b"a"), (b"y", b"c")], [(b"X", b"a")]):
        for _ in range(3):
            known.learn(head, match, {}, headers)
    assert known.find(head, 0) is None
