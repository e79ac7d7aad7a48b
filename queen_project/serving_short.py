"""The short way: plain requests of hot routes go to the door without ASGI in between.

Most requests are small, whole and plain: a hot route, HTTP/1.1, no body or a sized one of at
most 64 KiB, nothing compressed or waited for. Such a request is handed to the door when its
last byte is here, and its answer leaves in one piece. uvicorn's way, with a scope, an event
and two messages each way, cost as much as everything else that was done for a pushed message.
Whatever is not so plain still goes that way, on the same connection and in order.

Imports brokers.api. Used by serving_uvicorn.py.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from brokers.api.door import Door
from brokers.api.routes import Match
from brokers.api.wire import Reply, Scope, error_reply

BODY_BYTES_MAX = 65_536
BODILESS = (b"GET",)
METHODS = (b"GET", b"POST", b"PUT", b"DELETE")
# Headers that make a request more than a plain body.
DEMANDS = frozenset({b"transfer-encoding", b"content-encoding", b"expect", b"upgrade"})
ADDRESSES_MAX = 2048
ADDRESS_BYTES_MAX = 512


class HotSide:
    """What the connections of one server have in common: the door, and what they know of it."""

    def __init__(self, door: Door, *, body_bytes_max: int) -> None:
        self.door = door
        self.body_bytes_max = min(body_bytes_max, BODY_BYTES_MAX)
        self._addresses: dict[tuple[bytes, bytes], tuple[Match, Scope] | None] = {}
        self._defaults: list[tuple[bytes, bytes]] = []
        self._default_lines = b""

    def address(self, method: bytes, url: bytes) -> tuple[Match, Scope] | None:
        """The hot route of an address and a scope without what differs by request."""
        key = (method, url)
        try:
            return self._addresses[key]
        except KeyError:
            found = self._look_up(method, url)
        if len(url) <= ADDRESS_BYTES_MAX:
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.clear()
            self._addresses[key] = found
        return found

    def _look_up(self, method: bytes, url: bytes) -> tuple[Match, Scope] | None:
        if method not in METHODS or not url.startswith(b"/") or not url.isascii():
            return None
        try:
            parts = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            return None  # the other side says so
        name = method.decode("ascii")
        match = self.door.hot_match(name, parts.path)
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

    def head(self, reply: Reply, defaults: list[tuple[bytes, bytes]], *, close: bool) -> bytes:
        """Everything before the body, the blank line included. A 204 tells no size."""
        if defaults is not self._defaults:  # uvicorn makes a new list once a second
            self._defaults = defaults
            self._default_lines = _lines(defaults)
        head = STATUS_LINE[reply.status] + self._default_lines
        if reply.status != HTTPStatus.NO_CONTENT:
            head += b"content-type: %b\r\ncontent-length: %d\r\n" % (
                reply.content_type,
                len(reply.body),
            )
        if reply.headers:
            head += _lines(reply.headers)
        return head + (b"connection: close\r\n\r\n" if close else b"\r\n")


def _lines(headers: Any) -> bytes:
    assert not any(HEADER_VALUE_RE.search(value) for _, value in headers)
    return b"".join([b"%b: %b\r\n" % header for header in headers])


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


class ShortWay(HttpToolsProtocol):
    """uvicorn's protocol with a short way for plain requests of hot routes."""

    hot: HotSide
    cycle: Any  # an Exchange or a RequestResponseCycle: the last request that has begun

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._running: Exchange | None = None
        self._idle_since: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    # The connection

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if isinstance(self.cycle, Exchange):
            self.cycle.lose()
            self.cycle = None
        if self._running is not None:  # others may be waiting behind it
            self._running.lose()
        super().connection_lost(exc)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
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

    # A request

    def on_message_begin(self) -> None:
        """Without a scope: most requests need none of uvicorn's."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        exchange = self._exchange()
        if exchange is None:
            self._begin_cycle()
            return
        before, self.cycle = self.cycle, exchange
        if before is None or before.response_complete:
            exchange.has_turn = True
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def _exchange(self) -> Exchange | None:
        """The request as one for the short way, if it is hot and plain."""
        parser = self.parser
        method = parser.get_method()
        found = self.hot.address(method, self.url)
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
        scope = {
            **common,
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
            "scheme": self.scheme,
        }
        return Exchange(match, scope, self.flow, keep_alive=parser.should_keep_alive())

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
        if isinstance(self.cycle, Exchange):
            self.cycle.more_body = False
            if self.cycle.has_turn:
                self._start(self.cycle)
        else:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle | Exchange, app: Any) -> None:
        """The next request has its turn, whichever kind it is of."""
        if not isinstance(cycle, Exchange):
            super()._start_asgi_task(cycle, app)
            return
        cycle.has_turn = True
        if not cycle.more_body:
            self._start(cycle)

    # The short way

    def _start(self, exchange: Exchange) -> None:
        self._running = exchange
        task = self.loop.create_task(self._serve(exchange))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

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
        self.transport.write(head + reply.body)
