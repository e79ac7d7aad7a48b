"""Who calls, how far, and for which tenant: the questions that both doors ask first.

A route states its level, and a caller satisfies it or does not; whatever states none cannot be
reached. A caller of a tenant is that tenant's, whatever a header says. One that is confined to
a prefix may use a route that says it names queues (see confine.py), and no other.

Imports config, domain, errors, flow/access, principal, route, wire. Used by door.py.
"""

import re
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.api.route import Level, Route
from brokers.api.wire import Scope
from brokers.domain import DEFAULT_TENANT
from brokers.errors import RequestError
from brokers.principal import ANYBODY, NOBODY, Principal
from brokers.tokens import unauthorized

if TYPE_CHECKING:
    from brokers.runtime import Broker

TENANT_HEADER = b"x-queen-tenant"
# Routes that may be closed although they are public by the table.
METRICS = frozenset({"prometheus", "metrics"})
# What is no route of the table but a page: open to everybody, or a door of its own (/admin/).
PUBLIC_PAGES = ("/assets/", "/favicon", "/static/", "/admin/", "/console/", "/queues/")

_uuid = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


async def authorize(broker: "Broker", route: Route, scope: Scope, raw_path: bytes) -> Principal:
    """The caller, if it may use the route. Raises a RequestError (401, 403) if not."""
    access = broker.access
    if not access.required:
        return ANYBODY
    level: str = route.level
    may_be_closed = level == Level.PUBLIC and route.handler in METRICS
    if may_be_closed and not broker.config.auth.metrics_public:
        level = Level.READ_ONLY
    elif level == Level.PUBLIC or access.skips(raw_path):
        return NOBODY
    return await _caller(broker, level, scope)


async def authorize_page(broker: "Broker", scope: Scope, raw_path: bytes) -> None:
    """The same for what the table does not know: pages are few, all else needs read-write."""
    if not broker.access.required:
        return
    path = scope["path"]
    if path in ("/", "/admin", "/queues") or path.startswith(PUBLIC_PAGES):
        return
    if not broker.access.skips(raw_path):
        await _caller(broker, Level.READ_WRITE, scope)


async def _caller(broker: "Broker", level: str, scope: Scope) -> Principal:
    given: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            if given is not None:  # nobody knows which of the two was meant
                raise unauthorized("Bad token header")
            given = value
    if given is None:
        raise unauthorized("Authentication required")
    access = broker.access
    principal = access.remembered(given)
    if principal is None:
        principal = await access.identify(given)
    if level not in principal.levels:
        raise forbidden()
    return principal


def forbidden() -> RequestError:
    return RequestError("Insufficient permissions", code="forbidden")


def tenant_of(broker: "Broker", principal: Principal, scope: Scope) -> UUID:
    """The caller's own tenant, else the one that a trusted proxy named in a header."""
    by_header = broker.config.tenancy.header
    if principal.tenant is None:
        return named_tenant(scope) if by_header else DEFAULT_TENANT
    if by_header and named_tenant(scope) not in (DEFAULT_TENANT, principal.tenant):
        raise forbidden()
    return principal.tenant


def named_tenant(scope: Scope) -> UUID:
    """No header, or a blank one, is the default tenant.

    Two headers are refused: the proxy's word and a client's would be one guess apart.
    """
    values = [value for name, value in scope["headers"] if name == TENANT_HEADER]
    if not values:
        return DEFAULT_TENANT
    if len(values) == 1:
        value = values[0].strip()
        if not value:
            return DEFAULT_TENANT
        if _uuid.fullmatch(value) is not None:
            return UUID(value.decode("ascii"))
    raise RequestError("invalid x-queen-tenant header (must be a UUID)", code="bad_tenant")
