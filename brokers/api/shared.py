"""Shared answers: what the same caller may be told again, as the bytes that went out before.

A route of the table says of itself whether its answers are `shared`. Such an answer is the same
for everybody of a tenant whose reach is the same and who asks the same at the same address; all of
that is its key. It goes out without Django and without the database for as long as
flow/recent.py tells it, and those who ask at once wait for one reading.

Imports call, flow/recent, route, routes, wire. Used by door.py.
"""

from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from brokers.api.call import Call, Handler
from brokers.api.route import Route
from brokers.api.routes import Match
from brokers.api.wire import Message, Reply, Send
from brokers.flow.recent import CELL, Topic
from brokers.principal import Principal

if TYPE_CHECKING:
    from brokers.runtime import Broker

# What send_reply writes by itself.
WRITTEN_AGAIN = (b"content-type", b"content-length")
# Beside its body: headers, key, the entry itself.
ENTRY_BYTES = 1024

# Whoever answers is given a `send` and answers in full.
Ask = Callable[[Send], Awaitable[None]]


async def reply(
    broker: "Broker",
    match: Match,
    tenant: UUID,
    principal: Principal,
    query_string: bytes,
    ask: Ask,
) -> Reply:
    """The answer, read now or lately. One that is no success is told to nobody who comes later."""

    async def read() -> Reply:
        answer = _Answer()
        await ask(answer)
        return answer.reply()

    route, params = match
    return await _told(broker, _Question(route, params, tenant, principal, query_string), read)


def handled(handler: Handler) -> Handler:
    """The same of a hot handler."""

    async def told(call: Call) -> Reply:
        async def read() -> Reply:
            return await handler(call)

        question = _Question(
            call.route, call.params, call.tenant, call.principal, call.query_string
        )
        return await _told(call.broker, question, read)

    return told


class _Question(NamedTuple):
    route: Route
    params: dict[str, str]
    tenant: UUID
    principal: Principal
    query_string: bytes


async def _told(
    broker: "Broker", asked: _Question, read: Callable[[], Coroutine[Any, Any, Reply]]
) -> Reply:
    route = asked.route
    whose: Hashable = asked.tenant if route.tenant else CELL
    if route.topic:
        whose = Topic(asked.tenant, route.topic)
    reach = asked.principal.queue_prefix
    return await broker.recent.get(
        whose,
        (route.handler, reach, tuple(asked.params.items()), asked.query_string),
        read,
        size=lambda told: len(told.body) + ENTRY_BYTES if told.status == 200 else None,
    )


class _Answer:
    """A `send` that keeps what it is given."""

    def __init__(self) -> None:
        self._start: Message | None = None
        self._body: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        else:
            self._body.append(message.get("body", b""))

    def reply(self) -> Reply:
        start = self._start
        assert start is not None, "Django answers every request"
        headers = {name.lower(): value for name, value in start["headers"]}
        return Reply(
            start["status"],
            b"".join(self._body),
            content_type=headers[b"content-type"],
            headers=tuple(
                (name, value) for name, value in headers.items() if name not in WRITTEN_AGAIN
            ),
        )
