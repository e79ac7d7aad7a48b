"""The console as an ASGI application: files from memory, pages a few at a time.

It stands between the door and Django, where only what is no route of the API comes by. A file
is answered in the loop and costs it microseconds (assets.py). A page is made in a thread, over
a connection of Django's own, so no more of them are made at once than `PAGES_AT_ONCE`, and as
many that act, which may take longer: neither the loop nor PostgreSQL has to bear more of the
console than that, however many people look.

Imports api/wire, assets, errors. Used by queen_project/asgi.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from brokers.admin import assets
from brokers.api import wire
from brokers.api.wire import Message, Receive, Scope, Send
from brokers.errors import Refusal

PAGES_AT_ONCE = 4
PAGES_WAITING_MAX = 200
READS = frozenset({"GET", "HEAD"})
RETRY_AFTER_S = 2
SMALL_BYTES_MAX = 131_072
LARGE_AT_ONCE = 2

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class ConsoleApplication:
    """`body_bytes_max` bounds what a form may bring: Django would put any size on the disk."""

    def __init__(self, django_application: Any, *, body_bytes_max: int) -> None:
        self._django: Application = django_application
        self._body_bytes_max = body_bytes_max
        self._reading = asyncio.Semaphore(PAGES_AT_ONCE)
        self._acting = asyncio.Semaphore(PAGES_AT_ONCE)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = assets.name_of(scope["path"])
        if name is not None:
            await assets.answer(name, scope, send)
            return
        # daphne believes whoever claims a root path, and Django would look up another address
        # than the one that the gate has judged.
        plain = dict(scope, root_path="")
        body = await self._body(scope, receive)
        if self._waiting >= PAGES_WAITING_MAX:
            raise Refusal("too many pages are asked for at once", retry_after_s=RETRY_AFTER_S)
        self._waiting += 1
        try:
            async with self._reading if scope["method"] in READS else self._acting:
                await self._django(plain, _replay(body, receive), send)
        finally:
            self._waiting -= 1

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Nobody has said yet who asks, so few may bring much at once."""
        if _is_small(scope):
            return await wire.read_body(scope, receive, SMALL_BYTES_MAX)
        async with self._large:
            return await wire.read_body(scope, receive, self._body_bytes_max)


def _is_small(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers or b"content-encoding" in headers:
        return False
    try:
        return int(headers.get(b"content-length", b"0")) <= SMALL_BYTES_MAX
    except ValueError:
        return True  # and will be refused


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that has been read, then what the server has to say."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
