"""Who calls, and for which tenant: the two questions that both doors ask first.

The role hook lets everybody pass for now; every route states its level already, and this
is the one place that will enforce it.

Imports domain, errors, routes, wire. Used by door.py.
"""

import re
from dataclasses import dataclass
from uuid import UUID

from brokers.api.route import Route
from brokers.api.wire import Scope
from brokers.domain import DEFAULT_TENANT
from brokers.errors import RequestError

TENANT_HEADER = b"x-queen-tenant"

_uuid = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller. The subject is stamped on what it pushes."""

    subject: str | None = None


ANYBODY = Principal()


def authorize(route: Route, scope: Scope) -> Principal:
    """The caller, if it may use the route. Raises a RequestError (401, 403) if not."""
    return ANYBODY


def tenant_of(scope: Scope) -> UUID:
    """The tenant that a trusted proxy named; no header, or a blank one, is the default.

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
