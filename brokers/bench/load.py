"""The load loop: many keep-alive connections in one process, one request in flight on each.

One epoll and no coroutines, because broker, PostgreSQL and load share the machine's cores:
what the generator burns is missing in the figure. What to send next is the role's business.

Imports tally, wire. Used by worker.py.
"""

import heapq
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from brokers.bench import wire
from brokers.bench.tally import Tally

RECEIVE_BYTES = 1 << 19
EVENTS_MAX = 512
# How long answers are awaited after the window, before their connections are cut.
GRACE_S = 3.0
# A pop that is not parked is answered within this, and what it got is acknowledged: a lease
# left behind would hide its partition from the next run.
LAST_POPS_S = 0.25
POLL_MAX_S = 0.25
PROGRESS_EVERY_S = 2.0


class Role(Protocol):
    """One client on one connection."""

    tally: Tally

    def first(self) -> bytes | None: ...

    def answered(self, answer: wire.Answer, now: float) -> bytes | None:
        """The next request; None to be asked again at `due_at`, or never when that is None."""

    def due_at(self) -> float | None: ...

    def resume(self, now: float) -> bytes | None: ...

    def may_be_cut(self) -> bool:
        """Whether an answer that is outstanding at the end need not be awaited."""

    def must_finish(self) -> bool:
        """Whether its next request is to be sent even after the end."""


class Link:
    """A connection, its role, and the halves of what is under way."""

    __slots__ = ("blocked", "received", "role", "sent_at", "sock", "unsent", "waiting")

    def __init__(self, sock: socket.socket, role: Role) -> None:
        self.sock = sock
        self.role = role
        self.received = b""
        self.unsent = b""
        self.blocked = False
        self.sent_at = 0.0
        self.waiting = False


def connect(host: str, port: int) -> socket.socket:
    sock = socket.create_connection((host, port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock


class Load:
    """`connect` first, then `run` from a given moment to another, on the monotonic clock."""

    def __init__(self, host: str, port: int, roles: Sequence[Role]) -> None:
        self._links: dict[int, Link] = {}
        self._poll = select.epoll()
        self._due: list[tuple[float, int]] = []
        self._tallies = list({id(role.tally): role.tally for role in roles}.values())
        self._stopping = False
        for role in roles:
            sock = connect(host, port)
            self._links[sock.fileno()] = Link(sock, role)
            self._poll.register(sock.fileno(), select.EPOLLIN)

    def run(
        self,
        opens_at: float,
        ends_at: float,
        *,
        on_window: Callable[[], None],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Load until `ends_at`, or until every role has nothing more to send."""
        for link in self._links.values():
            self._send(link, link.role.first(), time.monotonic())
        opened = False
        report_at = time.monotonic() + PROGRESS_EVERY_S
        while not (self._stopping and self._is_quiet(time.monotonic(), ends_at)):
            until = ends_at if opened else opens_at
            if self._stopping:
                until = time.monotonic() + LAST_POPS_S
            elif self._due:
                until = min(until, self._due[0][0])
            events = self._poll.poll(
                max(0.0, min(until - time.monotonic(), POLL_MAX_S)), EVENTS_MAX
            )
            now = time.monotonic()
            if not opened and now >= opens_at:
                opened = True
                on_window()
                self._set_open(True)
            if not self._stopping and (now >= ends_at or self._is_done()):
                self._stopping = True
                ends_at = now
                on_window()
                self._set_open(False)
            for tally in self._tallies:
                tally.now = now
            for file, event in events:
                self._serve(self._links[file], event, now)
            while self._due and self._due[0][0] <= now and not self._stopping:
                link = self._links[heapq.heappop(self._due)[1]]
                self._send(link, link.role.resume(now), now)
            if progress and now >= report_at:
                report_at = now + PROGRESS_EVERY_S
                progress(sum(tally.messages_in_all for tally in self._tallies))

    def close(self) -> None:
        for link in self._links.values():
            link.sock.close()
        self._poll.close()

    def _set_open(self, value: bool) -> None:
        for tally in self._tallies:
            tally.open = value

    def _is_done(self) -> bool:
        return not self._due and not any(link.waiting for link in self._links.values())

    def _is_quiet(self, now: float, ended_at: float) -> bool:
        if now > ended_at + GRACE_S:
            return True
        waiting = [link.role for link in self._links.values() if link.waiting]
        if any(not role.may_be_cut() for role in waiting):
            return False
        return not waiting or now > ended_at + LAST_POPS_S

    def _serve(self, link: Link, event: int, now: float) -> None:
        if event & select.EPOLLOUT:
            self._flush(link)
        if not event & ~select.EPOLLOUT:
            return
        try:
            data = link.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise wire.Misframed("the server closed a connection that it should have kept")
        if link.received:
            data = link.received + data
        answer = wire.split(data)
        if answer is None:
            link.received = data
            return
        link.received = b""
        link.waiting = False
        link.role.tally.took(now - link.sent_at)
        self._send(link, link.role.answered(answer, now), now)

    def _send(self, link: Link, request: bytes | None, now: float) -> None:
        if self._stopping and not link.role.must_finish():
            return
        if request is None:
            due_at = link.role.due_at()
            if due_at is not None:
                heapq.heappush(self._due, (due_at, link.sock.fileno()))
            return
        link.sent_at = now
        link.waiting = True
        link.unsent = request
        self._flush(link)

    def _flush(self, link: Link) -> None:
        """Send what the socket takes; wait for room with EPOLLOUT only where it is full."""
        try:
            sent = link.sock.send(link.unsent)
        except BlockingIOError:
            sent = 0
        link.unsent = link.unsent[sent:]
        if bool(link.unsent) != link.blocked:
            link.blocked = bool(link.unsent)
            wanted = select.EPOLLIN | (select.EPOLLOUT if link.blocked else 0)
            self._poll.modify(link.sock.fileno(), wanted)
