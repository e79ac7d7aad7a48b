"""Every procedure of quotas, usage and holdings as one typed coroutine.

A function here names the procedure, passes the arguments, shapes the rows; it decides nothing.

Imports calls. Used by flow/quotas.py and services/{queues,quotas,stream_grants}.py.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch, array

QUOTA_LIST = """
SELECT tenant_id, enabled, max_horizon_s, max_retained_bytes, push_rate, retained_bytes,
       streams_enabled, max_queries, used_percent, retained_at
  FROM queen_quota_list_v1(%s::uuid[])
"""
USAGE_COUNT = "SELECT queen_usage_count_v1(%s::uuid, %s::text)"
USAGE_DUE = "SELECT tenant_id, kind FROM queen_usage_due_v1(%s::bigint, %s::integer)"
HOLDING_FIND = "SELECT queen_holding_find_v1(%s::text, %s::uuid, %s::integer)"
HOLDING_STEP = "SELECT queen_holding_step_v1(%s::text, %s::bigint, %s::integer)"
HOLDING_LIST = "SELECT kind, rows, bytes FROM queen_holding_list_v1(%s::uuid)"


class QuotaRow(NamedTuple):
    """What a broker itself must know of a tenant's quota; the procedures know the rest."""

    tenant_id: UUID
    enabled: bool
    max_horizon_s: int | None
    max_retained_bytes: int | None
    push_rate: int | None
    retained_bytes: int | None
    streams_enabled: bool
    max_queries: int | None
    used_percent: float | None
    retained_at: datetime | None


class Holding(NamedTuple):
    rows: int
    bytes: int


async def quota_list(fetch: Fetch, tenants: Sequence[UUID]) -> list[QuotaRow]:
    return [QuotaRow(*row) for row in await fetch(QUOTA_LIST, (array(tenants),))]


async def usage_count(fetch: Fetch, tenant: UUID, kind: str) -> None:
    await fetch(USAGE_COUNT, (str(tenant), kind))


async def usage_due(fetch: Fetch, *, every_ms: int, limit: int) -> list[tuple[UUID, str]]:
    return [(tenant, kind) for tenant, kind in await fetch(USAGE_DUE, (every_ms, limit))]


async def holding_find(fetch: Fetch, kind: str, after: UUID | None, *, limit: int) -> UUID | None:
    """The last tenant that was found behind `after`; None at their end."""
    place = None if after is None else str(after)
    [[tenant]] = await fetch(HOLDING_FIND, (kind, place, limit))
    return tenant


async def holding_step(fetch: Fetch, kind: str, *, every_ms: int, rows_max: int) -> bool:
    """Whether there was anything to count."""
    [[counted]] = await fetch(HOLDING_STEP, (kind, every_ms, rows_max))
    return counted


async def holdings(fetch: Fetch, tenant: UUID) -> dict[str, Holding]:
    """By kind; a kind of which the tenant has nothing is not there."""
    rows = await fetch(HOLDING_LIST, (str(tenant),))
    return {kind: Holding(*figures) for kind, *figures in rows}
