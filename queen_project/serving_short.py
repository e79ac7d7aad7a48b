"""The short way: plain requests of hot routes go to the door without ASGI in between.

Most requests are small, whole and plain: a hot route, HTTP/1.1, no body or a sized one of at
most 64 KiB, nothing compressed or waited for. Such a request is handed to the door when its
last byte is here, and its answer leaves in one piece. uvicorn's way, with a scope, an event
and two messages each way, cost as much as everything else that was done for a pushed message.
Whatever is not so plain still goes that way, on the same connection and in order.

A request whose head is known (serving_heads.py) is taken without the parser, which stands between
two requests meanwhile and sees none of it. An answer that is one future's comes without a task.

Imports brokers.api, serving_heads, serving_upgrade. Used by serving_uvicorn.py.
"""

import asyncio
from collections.abc import Callable, Sized
from functools import partial
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

from brokers.api.call import Later
from brokers.api.door import Door
from brokers.api.routes import Match
from brokers.api.wire import Reply, Scope, error_reply
from queen_project.serving_heads import HEAD_BYTES_MAX, Addresses, Head, Heads
from queen_project.serving_upgrade import PlainAgain

BODY_BYTES_MAX = 65_536
NO_CONTENT = 204  # a member of an enumeration is looked up by a call before Python 3.12
BODILESS = (b"GET",)
# Headers that make a request more than a plain body.
DEMANDS = frozenset({b"transfer-encoding", b"content-encoding", b"expect", b"upgrade"})
# So many may queue behind one that waits to hear of a hang-up before we read no more.
QUEUED_MAX = 8
# And behind so many nobody has us read on: a hang-up is heard once there are fewer.
READ_ON_MAX = 64


class HotSide:
    """What the connections of one server have in common: the door, and what they know of it."""

    def __init__(
        self, door: Door, *, body_bytes_max: int, head_bytes_max: int = HEAD_BYTES_MAX
    ) -> None:
        self.door = door
        self.body_bytes_max = min(body_bytes_max, BODY_BYTES_MAX)
        self.addresses = Addresses(door)
        self.heads = Heads(head_bytes_max=head_bytes_max, body_bytes_max=self.body_bytes_max)
        self._defaults: list[tuple[bytes, bytes]] = []
        self._default_lines = b""
        self._begins: dict[tuple[int, bytes], bytes] = {}

    def head(self, reply: Reply, defaults: list[tuple[bytes, bytes]], *, close: bool) -> bytes:
        """Everything before the body, the blank line included. A 204 tells no size."""
        if defaults is not self._defaults:  # uvicorn makes a new list once a second
            self._defaults = defaults
            self._default_lines = _lines(defaults)
            self._begins.clear()
        if reply.status == NO_CONTENT:
            head = STATUS_LINE[reply.status] + self._default_lines
        else:
            kind = (reply.status, reply.content_type)
            begin = self._begins.get(kind)
            if begin is None:
                begin = self._begins[kind] = b"%b%bcontent-type: %b\r\ncontent-length: " % (
                    STATUS_LINE[reply.status],
                    self._default_lines,
                    reply.content_type,
                )
            head = b"%b%d\r\n" % (begin, len(reply.body))
        if reply.headers:
            head += _lines(reply.headers)
        return head + (b"connection: close\r\n\r\n" if close else b"\r\n")


def _lines(headers: Any) -> bytes:
    assert not any(HEADER_VALUE_RE.search(value) for _, value in headers)
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class Flow(FlowControl):
    """With each answer uvicorn reads on, whatever is queued already: who sends faster than we
    answer would have us keep all of it.
    """

    def __init__(self, transport: asyncio.Transport, queued: Sized) -> None:
        super().__init__(transport)
        self._queued = queued

    def resume_reading(self) -> None:
        if len(self._queued) < READ_ON_MAX:
            super().resume_reading()


class Exchange:
    """One plain request and its answer: uvicorn's cycle in short, and the door's client."""

    __slots__ = (
        "_flow",
        "_hung_up",
        "body",
        "disconnected",
        "has_turn",
        "keep_alive",
        "match",
        "more_body",
        "response_complete",
        "response_started",
        "scope",
    )

    def __init__(self, match: Match, scope: Scope, flow: FlowControl, *, keep_alive: bool) -> None:
        self.match = match
        self.scope = scope
        self.keep_alive = keep_alive
        self.body = b""
        self.more_body = True
        # Whether the answers to what came before it on its connection are out.
        self.has_turn = False
        self.disconnected = False
        self.response_started = self.response_complete = False
        self._flow = flow
        self._hung_up: Callable[[], None] | None = None

    def lose(self) -> None:
        self.disconnected = True
        hung_up, self._hung_up = self._hung_up, None
        if hung_up is not None:
            hung_up()

    @property
    def watched(self) -> bool:
        """Whether somebody wants to hear of a hang-up."""
        return self._hung_up is not None

    def watch(self, hung_up: Callable[[], None]) -> None:
        if self.disconnected:
            hung_up()
        else:
            self._hung_up = hung_up
            # Where requests are queued nobody reads, and who does not read hears nothing.
            self._flow.resume_reading()

    def unwatch(self) -> bool:
        self._hung_up = None
        return self.disconnected


class ShortWay(PlainAgain):
    """uvicorn's protocol with a short way for plain requests of hot routes."""

    hot: HotSide
    cycle: Any  # an Exchange or a RequestResponseCycle: the last request that has begun
    # Sends an answer that comes in one piece.
    write_whole: Callable[[bytes], None]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The request whose answer is due, of whichever kind.
        self._running: Any = None
        self._idle_since: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        # When the request that is still coming began: of a new connection its own beginning, None
        # between two requests and once all of one is here.
        self.begun_at: float | None = self.loop.time()
        # Whether the parser stands between two requests, and then: what is missing of the body
        # of a request that it does not see.
        self._parser_rests = True
        self._missing = 0
        # What the parser was given when it stood there last, until the head in it is read.
        self._fed: bytes | None = None
        self._last_head: Head | None = None
        self._last_scope: Scope = {}
        # The answer to what was refused, which ends the connection, until it has its turn.
        self._last_words: bytes | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        # Both: the last request may stand behind the one that is being answered.
        last, self.cycle = self.cycle, None
        for cycle in {last, self._running} - {None}:
            if isinstance(cycle, Exchange):
                cycle.lose()
            else:
                cycle.disconnected = cycle.disconnected or not cycle.response_complete
                cycle.message_event.set()
        super().connection_lost(exc)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_response_complete(self) -> None:
        self._running = None
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._last_words is not None and (not self.pipeline or self.pipeline[-1][0].more_body):
            self._end()
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        # One timer for many requests: setting one for each costs more than routing it.
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._look_later(self.timeout_keep_alive)

    def _look_later(self, seconds: float) -> None:
        self._idle_timer = self.loop.call_later(seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return  # the next answer sets it again
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._look_later(left_s)
        else:
            self.timeout_keep_alive_handler()

    def end_with(self, words: bytes) -> None:
        """Refuse what is coming, and read no more: once all that came whole before is answered."""
        self._last_words = words
        running = self._running
        if running is None or running.more_body:
            self._end()

    def _end(self) -> None:
        assert self._last_words is not None
        self.transport.write(self._last_words)
        self.transport.close()

    # A request whose head is known

    def data_received(self, data: bytes) -> None:
        if self._last_words is not None:
            return
        if self._parser_rests:
            data = self._take_known(data)
            if not data:
                if self._missing and self.begun_at is None:
                    self.begun_at = self.loop.time()
                return
            self._fed = data
        if self.begun_at is None:
            self.begun_at = self.loop.time()
        self.parse(data)
        self._fed = None

    def _take_known(self, data: bytes) -> bytes:
        """Take the requests with known heads that `data` begins with; what is left of it is for
        the parser. Only while that rests."""
        self._idle_since = None
        start = 0
        if self._missing:
            exchange = self.cycle
            part = data[: self._missing]
            exchange.body = exchange.body + part if exchange.body else part
            self._missing -= len(part)
            if self._missing:
                return b""
            start = len(part)
            self._whole(exchange)
        end = len(data)
        while start < end:
            found = self.hot.heads.find(data, start)
            if found is None:
                return data[start:] if start else data
            head, begin, size = found
            exchange = Exchange(head.match, self._scope_of(head), self.flow, keep_alive=True)
            start = begin + size
            exchange.body = data[begin:start]
            self._line_up(exchange)
            if start > end:
                self._missing = start - end
            else:
                self._whole(exchange)
        return b""

    def _scope_of(self, head: Head) -> Scope:
        """Of this connection; most send one head again and again."""
        if head is not self._last_head:
            self._last_head = head
            self._last_scope = {
                **head.scope,
                "client": self.client,
                "server": self.server,
                "scheme": self.scheme,
            }
        return self._last_scope

    def _line_up(self, exchange: Exchange) -> None:
        """Its turn, or its place behind those that are not answered yet."""
        before, self.cycle = self.cycle, exchange
        if before is None or before.response_complete:
            exchange.has_turn = True
            return
        running = self._running
        heard = isinstance(running, Exchange) and running.watched
        if not heard or len(self.pipeline) >= QUEUED_MAX:
            self.flow.pause_reading()
        self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def _whole(self, exchange: Exchange) -> None:
        self.begun_at = None
        exchange.more_body = False
        if exchange.has_turn:
            self._start(exchange)

    # A request that is parsed

    def on_message_begin(self) -> None:
        """Without a scope: most requests need none of uvicorn's."""
        self._parser_rests = False
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        fed, self._fed = self._fed, None
        if self.declines():
            return
        exchange = self._exchange(fed)
        if exchange is None:
            self._begin_cycle()
        else:
            self._line_up(exchange)

    def _exchange(self, fed: bytes | None) -> Exchange | None:
        """The request as one for the short way, if it is hot and plain."""
        parser = self.parser
        method = parser.get_method()
        found = self.hot.addresses.find(method, self.url)
        if found is None or parser.should_upgrade() or parser.get_http_version() != "1.1":
            return None
        for name, value in self.headers:
            if name in DEMANDS:
                return None
            if name == b"content-length" and (
                len(value) > 6
                or not value.isdigit()
                or int(value) > self.hot.body_bytes_max
                or method in BODILESS
            ):
                return None
        match, common = found
        keep_alive = parser.should_keep_alive()
        if fed is not None and keep_alive:
            self.hot.heads.learn(fed, match, common, self.headers)
        scope = {
            **common,
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
            "scheme": self.scheme,
        }
        return Exchange(match, scope, self.flow, keep_alive=keep_alive)

    def _begin_cycle(self) -> None:
        if self.parser.should_upgrade() and self._should_upgrade():
            self.cycle = None  # what was last answered here is not to be begun anew
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers  # the scope has this list
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if isinstance(self.cycle, Exchange):
            self.cycle.body = self.cycle.body + body if self.cycle.body else body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        # Whoever closes, or wants another protocol, has sent us its last request.
        self._parser_rests = self.parser.should_keep_alive() and not self.parser.should_upgrade()
        if self.declined:
            return
        if isinstance(self.cycle, Exchange):
            self._whole(self.cycle)
        else:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle | Exchange, app: Any) -> None:
        """The next request has its turn, whichever kind it is of."""
        if not isinstance(cycle, Exchange):
            self._running = cycle
            super()._start_asgi_task(cycle, app)
            return
        cycle.has_turn = True
        if not cycle.more_body:
            self._start(cycle)

    # The short way

    def _start(self, exchange: Exchange) -> None:
        self._running = exchange
        answer = self.hot.door.answer_soon(exchange.match, exchange.scope, exchange.body, exchange)
        if isinstance(answer, Later):
            # Among the tasks: a stop waits for it, and ends it when its patience does.
            self.tasks.add(answer.done)  # type: ignore[arg-type]
            answer.done.add_done_callback(partial(self._answered, exchange, answer))
        elif answer is not None:
            # Not here and now: many in a row would be as many calls deep.
            self.loop.call_soon(self._finish, exchange, answer)
        else:
            task = self.loop.create_task(self._serve(exchange))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)

    def _answered(self, exchange: Exchange, answer: Later, done: asyncio.Future[Any]) -> None:
        self.tasks.discard(done)  # type: ignore[arg-type]
        try:
            if done.cancelled():  # the patience of a stop has ended
                exchange.keep_alive = False
                reply = error_reply(asyncio.CancelledError())
            else:
                reply = answer.reply()
        except Exception as error:
            reply = self.hot.door.failure(exchange.match, error)
        if self.flow.write_paused and not exchange.disconnected:
            task = self.loop.create_task(self._finish_when_writable(exchange, reply))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
        else:
            self._finish(exchange, reply)

    async def _finish_when_writable(self, exchange: Exchange, reply: Reply) -> None:
        try:
            await self.flow.drain()
        finally:
            self._finish(exchange, reply)

    async def _serve(self, exchange: Exchange) -> None:
        try:
            reply = await self.hot.door.answer(
                exchange.match, exchange.scope, exchange.body, exchange
            )
            if self.flow.write_paused and not exchange.disconnected:
                await self.flow.drain()
        except BaseException as interruption:  # the patience of a stop has ended
            exchange.keep_alive = False
            self._finish(exchange, error_reply(interruption))
            raise
        self._finish(exchange, reply)

    def _finish(self, exchange: Exchange, reply: Reply | None) -> None:
        exchange.response_started = exchange.response_complete = True
        self._running = None
        if exchange.disconnected:
            return
        if reply is None or not exchange.keep_alive:
            if reply is not None:
                self._write(reply, close=True)
            self.transport.close()
        else:
            self._write(reply, close=False)
        self.on_response_complete()

    def _write(self, reply: Reply, *, close: bool) -> None:
        head = self.hot.head(reply, self.server_state.default_headers, close=close)
        self.write_whole(head + reply.body)
