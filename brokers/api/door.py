"""The door: one raw ASGI application that every HTTP request comes in by.

Route, role, tenant, body and reach are settled here, alike for both sides of the door. A hot
route is answered by its handler at once. A DRF route is handed to Django under an internal
path, `/_queen/<handler>`, with its parameters beside it in `scope["queen"]`: a path that
Django would decode again never carries a name, so no name can reach another's route.

Nothing else reaches `/_queen`: whoever asks for it from outside is told there is no such
route. What is left over (admin pages, assets) goes to Django as it came.

Imports auth, confine, errors, hot, hot_soon, routes, services/written, shared, wire. Used by
queen_project/asgi.py and serving_short.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from brokers.api import auth, confine, hot, hot_soon, shared, wire
from brokers.api.call import Call, Handler, Later, SoonHandler
from brokers.api.route import Kind, Route
from brokers.api.routes import ROUTES, Match, Router
from brokers.api.wire import Message, Receive, Reply, Scope, Send
from brokers.domain import DEFAULT_TENANT
from brokers.errors import BrokerError, MethodNotAllowed, NoSuchRoute, StoreError, logged
from brokers.principal import Principal
from brokers.services import written

if TYPE_CHECKING:
    from brokers.runtime import Broker

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

INTERNAL_PREFIX = "/_queen"
# Below these there are only routes of the table: an unknown one is a JSON 404, not a page.
API_PREFIXES = ("/api/", "/streams/", "/internal/", "/auth/", INTERNAL_PREFIX)
# Pages of Django's that take forms; all others are only read.
FORM_PREFIXES = ("/admin/", "/console/")
BODILESS = frozenset({"GET", "HEAD"})
# The hot handlers whose answers may be told again.
SHARED = frozenset(one.handler for one in ROUTES if one.shared and one.kind is Kind.HOT)

logger = logging.getLogger(__name__)


class Admitted(NamedTuple):
    """A request that may be carried out."""

    broker: "Broker"
    principal: Principal
    tenant: UUID
    body: bytes


class Door:
    """`broker` is asked at each request, because the server may exist before the broker."""

    def __init__(
        self,
        django_application: Any,
        broker: "Callable[[], Broker]",
        *,
        router: Router | None = None,
        handlers: Mapping[str, Handler] = hot.HANDLERS,
        soon: Mapping[str, SoonHandler] = hot_soon.SOON,
    ) -> None:
        self._django: Application = django_application
        self._broker = broker
        self._router = router or Router()
        self._handlers = {
            name: shared.handled(handler) if name in SHARED else handler
            for name, handler in handlers.items()
        }
        self._soon = soon

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server's router sends us HTTP only"
        sending = _Sending(send)
        station = f"{scope['method']} (unrouted)"
        try:
            raw_path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
            match = await self._match(scope, raw_path)
            if match is None:
                await self._page(scope, receive, sending)
                return
            station = match.route.name
            if match.route.kind is Kind.HOT:
                await self._hot(match, raw_path, scope, receive, sending)
            else:
                await self._drf(match, raw_path, scope, receive, sending)
        except wire.ClientGone:
            return
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self._failed(station, error, scope, sending)

    async def _match(self, scope: Scope, raw_path: bytes) -> Match | None:
        """The route of the table; None for what Django may answer by itself."""
        try:
            return self._router.find(scope["method"], raw_path)
        except (NoSuchRoute, MethodNotAllowed) as error:
            await auth.authorize_page(self._broker(), scope, raw_path)
            page = isinstance(error, NoSuchRoute) and _is_page(scope["method"], scope["path"])
            if page:
                return None
            raise

    async def _page(self, scope: Scope, receive: Receive, send: "_Sending") -> None:
        """A page of Django's; what a form of its does to whom is not known here."""
        told = send if scope["method"] in BODILESS else _telling(send, self._broker(), None)
        # daphne believes a client about the root path: what lies below it would be another
        # path to Django than the one that was judged here.
        await self._django(dict(scope, root_path=""), receive, told)

    async def _caller(
        self, match: Match, raw_path: bytes, scope: Scope
    ) -> tuple["Broker", Principal, UUID]:
        """Who may ask, and for which tenant: told before anybody's body is read."""
        broker = self._broker()
        principal = auth.recognise(broker, match.route, scope, raw_path)
        if principal is None:
            principal = await auth.meet(broker, match.route, scope, raw_path)
        return broker, principal, _tenant(broker, match.route, principal, scope)

    async def _admit(
        self, match: Match, raw_path: bytes, scope: Scope, receive: Receive
    ) -> Admitted:
        """Role, tenant, body and reach, in that order. Nobody's body is read who may not ask."""
        broker, principal, tenant = await self._caller(match, raw_path, scope)
        body = b""
        if scope["method"] not in BODILESS or match.route.kind is Kind.DRF:
            body = await wire.read_body(scope, receive, broker.config.server.body_bytes_max)
        admitted = Admitted(broker, principal, tenant, body)
        await _confine(match, admitted, scope)
        return admitted

    async def _hot(
        self, match: Match, raw_path: bytes, scope: Scope, receive: Receive, send: "_Sending"
    ) -> None:
        admitted = await self._admit(match, raw_path, scope, receive)
        call = _call(match, admitted, scope, wire.AsgiClient(receive))
        reply = await self._handlers[match.route.handler](call)
        await wire.send_reply(send, reply, head=scope["method"] == "HEAD")

    # For a front that has read a whole request by itself: the same without ASGI in between,
    # which costs such a request as much as all the rest of it.

    def hot_match(self, method: str, raw_path: bytes) -> Match | None:
        """The match of a hot route; None for whatever else `__call__` has an answer to."""
        try:
            match = self._router.find(method, raw_path)
        except BrokerError:
            return None
        return match if match.route.kind is Kind.HOT else None

    async def answer(
        self, match: Match, scope: Scope, body: bytes, client: wire.Client
    ) -> Reply | None:
        """The answer to a plain body within the limit; None when nobody waits for it any more.

        The scope is that of ASGI.
        """
        try:
            broker, principal, tenant = await self._caller(match, scope["raw_path"], scope)
            admitted = Admitted(broker, principal, tenant, body)
            await _confine(match, admitted, scope)
            return await self._handlers[match.route.handler](_call(match, admitted, scope, client))
        except wire.ClientGone:
            return None
        except Exception as error:
            return self.failure(match, error)

    def answer_soon(
        self, match: Match, scope: Scope, body: bytes, client: wire.Client
    ) -> Reply | Later | None:
        """The same without a task, for a request that waits for one future at most; None, and
        nothing has been done, where it may wait for more."""
        handler = self._soon.get(match.route.handler)
        if handler is None:
            return None
        route = match.route
        try:
            broker = self._broker()
            principal = auth.recognise(broker, route, scope, scope["raw_path"])
            if principal is None or principal.queue_prefix:
                return None
            tenant = _tenant(broker, route, principal, scope)
            return handler(_call(match, Admitted(broker, principal, tenant, body), scope, client))
        except Exception as error:
            return self.failure(match, error)

    def failure(self, match: Match, error: Exception) -> Reply:
        _log(match.route.name, error)
        return wire.error_reply(error)

    async def _drf(
        self, match: Match, raw_path: bytes, scope: Scope, receive: Receive, send: "_Sending"
    ) -> None:
        """An answer that may be shared is asked for as a GET that nobody hangs up on: it is
        everybody's who waits for it."""
        route = match.route
        admitted = await self._admit(match, raw_path, scope, receive)
        broker, principal, tenant, body = admitted
        if not route.shared:
            whose = tenant if route.tenant else None
            told = _telling(send, broker, whose) if route.writes else send
            await self._django(_inner(match, admitted, scope), _replay(body, receive), told)
            return

        async def ask(told: Send) -> None:
            inner = _inner(match, admitted, dict(scope, method="GET"))
            await self._django(inner, _replay(b"", _forever), told)

        reply = await shared.reply(broker, match, tenant, principal, scope["query_string"], ask)
        await wire.send_reply(send, reply, head=scope["method"] == "HEAD")

    async def _failed(
        self, station: str, error: Exception, scope: Scope, sending: "_Sending"
    ) -> None:
        _log(station, error)
        if sending.begun:
            return  # half an answer is out: all we can do is to end it
        reply = wire.error_reply(error)
        await wire.send_reply(sending, reply, head=scope["method"] == "HEAD")


class _Sending:
    """The server's `send`, with a memory of whether the answer has begun."""

    __slots__ = ("_send", "begun")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    def __call__(self, message: Message) -> Awaitable[None]:
        self.begun = True
        return self._send(message)


def _tenant(broker: "Broker", route: Route, principal: Principal, scope: Scope) -> UUID:
    if route.tenant:
        if broker.config.tenants:
            return auth.tenant_of(broker, principal, scope)
    elif principal.tenant is not None:
        raise auth.forbidden()  # what is the cell's is no tenant's
    return DEFAULT_TENANT


async def _confine(match: Match, admitted: Admitted, scope: Scope) -> None:
    """A caller with a prefix reaches only what lies below it."""
    if admitted.principal.queue_prefix:
        await confine.check(
            admitted.broker,
            match.route,
            admitted.principal.queue_prefix,
            admitted.tenant,
            params=match.params,
            query_string=scope["query_string"],
            body=admitted.body,
        )


def _call(match: Match, admitted: Admitted, scope: Scope, client: wire.Client) -> Call:
    return Call(
        broker=admitted.broker,
        route=match.route,
        params=match.params,
        query_string=scope["query_string"],
        tenant=admitted.tenant,
        principal=admitted.principal,
        client=client,
        body=admitted.body,
    )


def _log(station: str, error: Exception) -> None:
    if not isinstance(error, BrokerError):
        logger.exception("%s failed", station, exc_info=error)
    elif isinstance(error, StoreError) and error.status >= 500:
        logger.warning("%s: %s", station, logged(error))


def _is_page(method: str, path: str) -> bool:
    if path == "/api" or path.startswith(API_PREFIXES):
        return False
    return method in BODILESS or path.startswith(FORM_PREFIXES)


def _inner(match: Match, admitted: Admitted, scope: Scope) -> Scope:
    """The request as Django gets it."""
    path = f"{INTERNAL_PREFIX}/{match.route.handler}"
    return dict(
        scope,
        path=path,
        raw_path=path.encode("ascii"),
        root_path="",
        headers=_with_body_of(scope["headers"], len(admitted.body)),
        queen={
            "route": match.route,
            "params": match.params,
            "tenant": admitted.tenant,
            "principal": admitted.principal,
            "broker": admitted.broker,
            "body": admitted.body,
        },
    )


def _telling(send: Send, broker: "Broker", whose: UUID | None) -> Send:
    """A `send` that says first that something was written: whoever reads after this answer has
    come must not be told what was read before it."""

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            written.tell(broker, whose)
        await send(message)

    return told


async def _forever() -> Message:
    """Of a client that never hangs up."""
    return await asyncio.get_running_loop().create_future()


def _with_body_of(headers: list[tuple[bytes, bytes]], body_bytes: int) -> list[tuple[bytes, bytes]]:
    """The headers of the request as if its body had come plain and sized."""
    framing = (b"content-length", b"content-encoding", b"transfer-encoding")
    kept = [(name, value) for name, value in headers if name not in framing]
    return [*kept, (b"content-length", b"%d" % body_bytes)]


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
