"""Plain requests of hot routes go to the door without ASGI, and no client can tell.

Method: our front in this loop on a real socket, the door with stand-in handlers, and a client
that writes and reads bytes. `wait` answers when it is told to, so that order, hang-ups and
stops can be put between a request and its answer.
"""

import asyncio
import json
import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from brokers.api import hot, wire
from brokers.api.call import Later
from brokers.api.door import Door
from brokers.config import Config, ServerConfig
from brokers.errors import RequestError
from queen_project.serving_short import BODY_BYTES_MAX, QUEUED_MAX, READ_ON_MAX
from queen_project.serving_uvicorn import UvicornFront
from tests.services.in_process import until

LATER = b"POST /api/v1/lease/l/extend HTTP/1.1\r\nHost: x\r\n\r\n"
NOW = b"POST /api/v1/transaction HTTP/1.1\r\nHost: x\r\n\r\n"
WAIT = b"GET /api/v1/pop?wait=true HTTP/1.1\r\nHost: x\r\n\r\n"
NOTHING = b"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST /api/v1/ack HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
PATIENCE_S = 10


class Served:
    """The front, and what its handlers have seen."""

    def __init__(self, config: ServerConfig) -> None:
        settings = Config(server=config)
        access = SimpleNamespace(required=False)
        broker: Any = SimpleNamespace(config=settings, ready=True, access=access)
        handlers = dict.fromkeys(hot.HANDLERS, self.echo)
        handlers |= {"pop_queue": self.nothing, "pop_discovery": self.wait, "health": self.work}
        # `lease_extend` is answered by whoever sets the result of what lies in `later`.
        self.later: list[asyncio.Future[wire.Reply]] = []
        soon = {"lease_extend": self.answer_later, "transaction": self.answer_now}
        self.door = Door(self.django, lambda: broker, handlers=handlers, soon=soon)
        self.scopes: list[str] = []
        self.go = asyncio.Event()
        self.waiting = self.cancelled = 0
        self.queued_most = 0
        self.gone: list[bool] = []
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self.front = UvicornFront(self.application, self.door, listener, settings)

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope["path"])
        await self.door(scope, receive, send)

    async def django(self, scope: Any, receive: Any, send: Any) -> None:
        await wire.send_json(send, 200, b'"django"')

    async def echo(self, call: Any) -> wire.Reply:
        return wire.Reply(200, json.dumps({"body": call.body.decode()}).encode())

    def answer_later(self, call: Any) -> Later:
        done = asyncio.get_running_loop().create_future()
        self.later.append(done)
        return Later(done, done.result)

    def answer_now(self, call: Any) -> wire.Reply:
        for connection in self.front._server.server_state.connections:
            self.queued_most = max(self.queued_most, len(connection.pipeline))
        return wire.Reply(200, b'"now"')

    async def nothing(self, call: Any) -> wire.Reply:
        return wire.NO_CONTENT

    async def work(self, call: Any) -> wire.Reply:
        """What no hang-up ends: nobody listens for one meanwhile."""
        self.waiting += 1
        await self.go.wait()
        return wire.Reply(200, b'"worked"')

    async def wait(self, call: Any) -> wire.Reply:
        async def work() -> None:
            self.waiting += 1
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise

        _, gone = await wire.unless_gone(call.client, work())
        self.gone.append(gone)
        return wire.Reply(200, b'"waited"')

    def connections(self) -> int:
        return self.front.connections()


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[Served]:
    one = Served(ServerConfig(**{"drain_s": 5, **settings}))
    await one.front.open()
    try:
        yield one
    finally:
        one.go.set()
        one.front.stop_accepting()
        async with asyncio.timeout(PATIENCE_S):
            await one.front.finish()


@asynccontextmanager
async def connected(to: Served) -> AsyncIterator["Wire"]:
    reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, bytes, bytes]:
        """Status, head and body."""
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            size = 0
            for line in head.split(b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    size = int(value)
            return int(head.split()[1]), head.lower(), await self.reader.readexactly(size)

    async def ended(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read() == b""


def posted(body: bytes, *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = [b"POST /api/v1/ack HTTP/" + version, b"Host: x", *headers]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", b""]) + body


async def test_a_request_that_comes_byte_by_byte_is_answered_once_it_is_whole():
    async with served() as server, connected(server) as client:
        for byte in posted(b"abc"):
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        status, head, body = await client.answer()
        assert (status, json.loads(body)) == (200, {"body": "abc"})
        assert b"content-type: application/json\r\n" in head and b"\r\ndate: " in head
        assert server.scopes == [], "it went through ASGI"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (posted(b"abc", b"Content-Encoding: identity"), "abc"),
        (posted(b"abc", b"Expect: nothing"), "abc"),
        (posted(b"abc", version=b"1.0"), "abc"),
        (CHUNKED + b"3\r\nabc\r\n0\r\n\r\n", "abc"),
        (posted(b"x" * (BODY_BYTES_MAX + 1)), "x" * (BODY_BYTES_MAX + 1)),
    ],
)
async def test_what_is_not_plain_goes_the_long_way_with_the_same_answer(request_: bytes, said: str):
    async with served() as server, connected(server) as client:
        client.writer.write(request_)
        status, _, body = await client.answer()
        assert (status, json.loads(body)) == (200, {"body": said})
        assert server.scopes == ["/api/v1/ack"]


async def test_answers_keep_the_order_of_requests_whichever_way_they_go():
    async with served() as server, connected(server) as client:
        client.writer.write(WAIT + CHUNKED + b"1\r\na\r\n0\r\n\r\n" + posted(b"b") + NOTHING)
        client.writer.write(b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n" + posted(b"c"))
        await until(lambda: server.waiting == 1)
        server.go.set()
        answers = [await client.answer() for _ in range(6)]
        assert [status for status, _, _ in answers] == [200, 200, 200, 204, 200, 200]
        assert [json.loads(body) for _, _, body in answers if body] == [
            "waited",
            {"body": "a"},
            {"body": "b"},
            "django",
            {"body": "c"},
        ]


@pytest.mark.parametrize("behind", [b"", posted(b"x"), posted(b"x")[:-1]])
async def test_a_hang_up_cancels_what_waits_for_the_client_whatever_came_behind(behind: bytes):
    async with served() as server:
        async with connected(server) as client:
            client.writer.write(WAIT + behind)
            await until(lambda: server.waiting == 1)
        await until(lambda: server.cancelled == 1)
        assert server.gone == []


async def test_a_client_that_is_still_there_gets_what_was_done_for_it():
    async with served() as server, connected(server) as client:
        client.writer.write(WAIT)
        await until(lambda: server.waiting == 1)
        server.go.set()
        assert (await client.answer())[2] == b'"waited"'
        assert server.gone == [False]


async def test_an_idle_connection_is_closed_and_one_that_waits_for_its_answer_is_not():
    async with (
        served(keep_alive_s=1) as server,
        connected(server) as idle,
        connected(server) as busy,
    ):
        busy.writer.write(NOTHING + WAIT)
        idle.writer.write(NOTHING)
        assert (await idle.answer())[0] == (await busy.answer())[0] == 204
        assert await idle.ended()
        assert server.waiting == 1
        server.go.set()
        assert (await busy.answer())[2] == b'"waited"'


async def test_a_stop_lets_the_answer_out_and_says_that_it_is_the_last():
    async with served() as server, connected(server) as client:
        client.writer.write(WAIT)
        await until(lambda: server.waiting == 1)
        server.front.stop_accepting()
        finishing = asyncio.create_task(server.front.finish())
        await asyncio.sleep(0.3)  # uvicorn looks every tenth of a second
        server.go.set()
        status, head, body = await client.answer()
        assert (status, body) == (200, b'"waited"')
        assert b"connection: close" in head
        assert await client.ended()
        await finishing


async def test_a_request_that_outlasts_the_patience_of_a_stop_is_answered_with_an_error():
    async with served(drain_s=1) as server, connected(server) as client:
        client.writer.write(WAIT)
        await until(lambda: server.waiting == 1)
        server.front.stop_accepting()
        finishing = asyncio.create_task(server.front.finish())
        status, head, body = await client.answer()
        assert (status, json.loads(body)) == (500, {"error": "internal error"})
        assert b"connection: close" in head
        assert await client.ended()
        await finishing


async def test_a_wrong_address_is_told_as_before():
    async with served() as server, connected(server) as client:
        for path, expected in ((b"/api/nope", 404), (b"/api/v1/pop/queue/%zz", 400)):
            client.writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            status, _, body = await client.answer()
            assert status == expected and "error" in json.loads(body)


async def test_a_request_whose_rest_we_do_not_read_is_not_a_slow_one():
    """It came behind another that is still worked on, and what is queued pauses the reading."""
    begun = b"POST /api/v1/ack HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
    async with served() as one, connected(one) as wire_:
        wire_.writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + begun)
        await until(lambda: one.waiting)
        [connection] = one.front._server.server_state.connections
        connection.end_if_slow(math.inf)
        one.go.set()
        assert (await wire_.answer())[::2] == (200, b'"worked"')
        wire_.writer.write(b"{}")
        assert (await wire_.answer())[::2] == (200, b'{"body": "{}"}')


@pytest.mark.parametrize("behind", [posted(b"x"), CHUNKED, LATER])
async def test_a_hang_up_reaches_what_goes_the_long_way_whatever_came_behind(behind: bytes):
    long_way = WAIT.replace(b"Host: x", b"Host: x\r\nExpect: nothing")
    async with served() as server:
        async with connected(server) as client:
            client.writer.write(long_way + behind)
            await until(lambda: server.waiting == 1)
            assert server.scopes == ["/api/v1/pop"]
        await until(lambda: server.cancelled == 1)


async def test_a_hang_up_is_heard_behind_requests_that_came_while_one_waited():
    async with served() as server:
        async with connected(server) as client:
            client.writer.write(WAIT)
            await until(lambda: server.waiting == 1)
            [connection] = server.front._server.server_state.connections
            client.writer.write(posted(b"x"))
            await until(lambda: len(connection.pipeline) == 1)
        await until(lambda: server.cancelled == 1)


async def test_who_sends_many_requests_behind_one_that_waits_is_read_no_further():
    async with served() as server, connected(server) as client:
        client.writer.write(WAIT)
        await until(lambda: server.waiting == 1)
        [connection] = server.front._server.server_state.connections
        while not connection.flow.read_paused:
            client.writer.write(posted(b"x"))
            await asyncio.sleep(0.001)
        assert QUEUED_MAX <= len(connection.pipeline) < 10 * QUEUED_MAX
        sent = len(connection.pipeline)
        server.go.set()
        for _ in range(sent + 1):
            assert (await client.answer())[0] == 200


async def test_answers_that_come_later_keep_the_order_of_requests():
    async with served() as server, connected(server) as client:
        client.writer.write(LATER + NOW + LATER + NOTHING + posted(b"x"))
        for no in range(2):
            await until(lambda: len(server.later) == no + 1)  # noqa: B023
            server.later[no].set_result(wire.Reply(200, b"%d" % no))
        answers = [await client.answer() for _ in range(5)]
        assert [body for _, _, body in answers] == [b"0", b'"now"', b"1", b"", b'{"body": "x"}']
        assert server.scopes == []


async def test_an_answer_that_fails_later_is_told_as_an_error():
    async with served() as server, connected(server) as client:
        for error, status in ((RequestError("no"), 400), (ValueError("ours"), 500)):
            client.writer.write(LATER)
            await until(lambda: server.later and not server.later[-1].done())
            server.later[-1].set_exception(error)
            assert (await client.answer())[0] == status


async def test_a_client_that_hangs_up_gets_no_answer_and_what_was_begun_goes_on():
    async with served() as server:
        async with connected(server) as client:
            client.writer.write(LATER)
            await until(lambda: server.later)
        await until(lambda: not server.connections())
        assert not server.later[0].done()
        server.later[0].set_result(wire.Reply(200))
        async with connected(server) as client:
            client.writer.write(NOTHING)
            assert (await client.answer())[0] == 204


async def test_a_stop_waits_for_an_answer_that_comes_later_but_not_for_ever():
    for patience_s in (5, 1):
        async with served(drain_s=patience_s) as server, connected(server) as client:
            client.writer.write(LATER)
            await until(lambda: server.later)
            server.front.stop_accepting()
            finishing = asyncio.create_task(server.front.finish())
            if patience_s == 5:
                await asyncio.sleep(0.3)  # uvicorn looks every tenth of a second
                server.later[0].set_result(wire.Reply(200, b'"late"'))
            status, head, _ = await client.answer()
            assert status == (200 if patience_s == 5 else 500)
            assert b"connection: close" in head
            assert await client.ended()
            await finishing


async def test_a_thousand_requests_at_once_are_answered_one_by_one():
    async with served() as server, connected(server) as client:
        client.writer.write(LATER + NOW * 3000)
        await until(lambda: server.later)
        server.later[0].set_result(wire.Reply(200, b'"first"'))
        answers = [(await client.answer())[2] for _ in range(3001)]
        assert answers == [b'"first"', *[b'"now"'] * 3000]


async def test_who_sends_faster_than_we_answer_has_us_keep_little_of_it():
    size = 1000
    request_ = NOW[:-2] + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
    async with served() as server, connected(server) as client:
        client.writer.write(LATER + request_ * 3000)
        await until(lambda: server.later)
        server.later[0].set_result(wire.Reply(200, b'"first"'))
        for _ in range(3001):
            assert (await client.answer())[0] == 200
        # What one read of a socket brings at most stands behind those that let us read.
        assert server.queued_most <= READ_ON_MAX + 262_144 // size


@pytest.mark.parametrize("between", [b"", posted(b"x"), NOW])
@pytest.mark.parametrize("way", [WAIT, WAIT.replace(b"Host: x", b"Host: x\r\nExpect: nothing")])
async def test_what_is_no_request_is_refused_once_those_before_it_are_answered(
    way: bytes, between: bytes
):
    async with served() as server, connected(server) as client:
        client.writer.write(way)
        await until(lambda: server.waiting == 1)
        client.writer.write(between + b"nonsense\r\n\r\n" + NOW)
        [connection] = server.front._server.server_state.connections
        await until(lambda: connection.transport.is_closing() or connection._last_words)
        server.go.set()
        answers = [await client.answer() for _ in range(3 if between else 2)]
        assert answers[0][2] == b'"waited"'
        assert answers[-1][0] == 400 and b"connection: close" in answers[-1][1]
        assert await client.ended()


@pytest.mark.parametrize("begun", [posted(b"abc")[:-1], NOW[:-3]])
async def test_a_slow_request_is_refused_once_those_before_it_are_answered(begun: bytes):
    async with served() as server, connected(server) as client:
        client.writer.write(WAIT)
        await until(lambda: server.waiting == 1)
        client.writer.write(begun)
        [connection] = server.front._server.server_state.connections
        await until(lambda: connection.begun_at is not None and not connection.flow.read_paused)
        connection.end_if_slow(math.inf)
        assert server.waiting == 1 and server.cancelled == 0
        server.go.set()
        assert (await client.answer())[2] == b'"waited"'
        assert (await client.answer())[0] == 408
        assert await client.ended()
        assert server.gone == [False]
