"""Grants of streams: whether a tenant may register a new query, and how many in all.

A grant is the tenant's quota row. Registrations are rare, so the row is read anew for each: a
grant counts from the moment in which the operator writes it.

Imports domain, store. Used by services/streams.py.
"""

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from brokers.domain import DEFAULT_TENANT
from brokers.store import quota_calls

if TYPE_CHECKING:
    from brokers.runtime import Broker


class Grant(NamedTuple):
    """`queries_max` None: no limit."""

    queries_max: int | None


UNLIMITED = Grant(None)


async def grant_of(broker: "Broker", tenant: UUID) -> Grant | None:
    """None: this tenant may not register any. The default tenant is unmetered.

    A row always rules. Without one a tenant has no grant where a proxy names the tenants, and
    an unlimited one where only API keys do.
    """
    if tenant == DEFAULT_TENANT:
        return UNLIMITED
    rows = await quota_calls.quota_list(broker.store.fetch, [tenant])
    if not rows:
        return None if broker.config.tenancy.header else UNLIMITED
    [row] = rows
    return Grant(row.max_queries) if row.streams_enabled else None
