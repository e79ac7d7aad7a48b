"""Every procedure of the API keys as one typed coroutine.

A function here names the procedure, passes the arguments, shapes the rows; it decides nothing.

Imports calls. Used by flow/access.py and services/api_keys.py.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from brokers.store.calls import Fetch, array

API_KEY_CREATE = """
SELECT queen_api_key_create_v1(
       %s::text, %b::bytea, %s::text, %s::text, %s::uuid, %s::text, %s::bigint, %s::integer)
"""
API_KEY_REVOKE = "SELECT queen_api_key_revoke_v1(%s::text)"
API_KEY_CHANGES = """
SELECT version, id, digest, name, role, tenant_id, queue_prefix, expires_at
  FROM queen_api_key_changes_v1(%s::bigint)
"""
API_KEY_USED = "SELECT queen_api_key_used_v1(%s::bigint[], %b::timestamptz[])"
PARTITION_QUEUES = "SELECT queue FROM queen_partition_queues_v1(%s::uuid, %s::uuid[])"
STREAM_SOURCES = "SELECT queue FROM queen_stream_sources_v1(%s::uuid, %s::uuid[], %s::text[])"
API_KEY_LIST = """
SELECT id, key_id, name, role, tenant_id, queue_prefix, created_at, expires_at, revoked_at,
       last_used_at
  FROM queen_api_key_list_v1(%s::bigint, %s::integer, %s::boolean)
"""


class ApiKeyRow(NamedTuple):
    """A key in force, as brokers know it."""

    id: int
    digest: bytes
    name: str
    role: str
    tenant_id: UUID | None
    queue_prefix: str
    expires_at: datetime | None


class ListedKey(NamedTuple):
    """A key as people see it."""

    id: int
    key_id: str
    name: str
    role: str
    tenant_id: UUID | None
    queue_prefix: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


async def api_key_create(
    fetch: Fetch,
    *,
    key_id: str,
    digest: bytes,
    name: str,
    role: str,
    tenant: UUID | None,
    queue_prefix: str,
    expires_s: int | None,
    keys_max: int,
) -> None:
    tenant_id = None if tenant is None else str(tenant)
    await fetch(
        API_KEY_CREATE,
        (key_id, digest, name, role, tenant_id, queue_prefix, expires_s, keys_max),
    )


async def api_key_revoke(fetch: Fetch, key_id: str) -> str:
    """revoked | already | unknown"""
    [[outcome]] = await fetch(API_KEY_REVOKE, (key_id,))
    return str(outcome)


async def api_key_changes(fetch: Fetch, known: int | None) -> tuple[int, list[ApiKeyRow]] | None:
    """The version and all keys in force; None when the version is the one that is known."""
    rows = await fetch(API_KEY_CHANGES, (known,))
    if not rows:
        return None
    keys = [ApiKeyRow(*row) for _, *row in rows if row[0] is not None]
    return rows[0][0], keys


async def api_key_used(fetch: Fetch, moments: Sequence[tuple[int, datetime]]) -> None:
    ids = array(one for one, _ in moments)
    await fetch(API_KEY_USED, (ids, [moment for _, moment in moments]))


async def api_key_list(
    fetch: Fetch, *, after: int, limit: int, everything: bool
) -> list[ListedKey]:
    return [ListedKey(*row) for row in await fetch(API_KEY_LIST, (after, limit, everything))]


async def partition_queues(fetch: Fetch, tenant: UUID, partitions: Sequence[UUID]) -> list[str]:
    """The names of the tenant's queues that any of these partitions belong to."""
    rows = await fetch(PARTITION_QUEUES, (str(tenant), array(partitions)))
    return [name for (name,) in rows]


async def stream_sources(
    fetch: Fetch, tenant: UUID, ids: Sequence[UUID], names: Sequence[str]
) -> list[str]:
    """The source queues of the tenant's stream queries of these ids or names."""
    rows = await fetch(STREAM_SOURCES, (str(tenant), array(ids), list(names)))
    return [name for (name,) in rows]
