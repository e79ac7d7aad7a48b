"""Every key/value procedure, and the operator's switches, as one typed coroutine each.

A function here names the procedure, passes the arguments, shapes the rows; it decides
nothing. An operation travels as one row of parallel arrays, a getMany as one row a key.

Imports domain, calls. Used by flow/kv.py, flow/switches.py and services/.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from json import dumps
from typing import Any, NamedTuple
from uuid import UUID

from brokers.domain import KvEntry, KvLost, KvOperation, KvResult
from brokers.store.calls import Fetch, array

KV_READ = """
SELECT no, verdict, key, value, version, expires_at, updated_at
  FROM queen_kv_read_v1(
       %s::uuid[], %s::smallint[], %b::text[], %b::text[], %b::text[], %s::integer[],
       %s::boolean[], %s::bigint, NULL)
"""
KV_APPLY = """
SELECT no, verdict, key, value, version, expires_at, updated_at
  FROM queen_kv_apply_v1(
       %s::uuid[], %s::smallint[], %b::text[], %b::text[], %b::bytea[], %s::bigint[],
       %s::bigint[], %s::numeric[], %s::numeric[], %s::numeric[], %s::boolean[], %b::text[],
       %s::integer[], %s::boolean[], %s::bigint, %s::integer)
"""
KV_PREFIX = """
SELECT key, value, version, expires_at, updated_at, expired, more
  FROM queen_kv_prefix_v1(
       %s::uuid, %s::text, %s::text, %s::text, %s::integer, %s::boolean, %s::boolean,
       %s::bigint, clock_timestamp())
"""
KV_NAMESPACE_LIST = "SELECT namespace, keys FROM queen_kv_namespace_list_v1(%s::uuid, %s::integer)"
KV_NAMESPACE_PAGE = """
SELECT namespace, keys
  FROM queen_kv_namespace_page_v1(%s::uuid, %s::text, %s::integer, %s::integer)
"""
KV_PRUNE = "SELECT removed, waiting, oldest_s FROM queen_kv_prune_v1(%s::integer)"
SWITCH_SET = "SELECT queen_switch_set_v1(%s::jsonb)"

GET, GET_MANY, GET_PREFIX, PUT, DELETE, INCR = range(6)
KINDS = {
    "get": GET,
    "getMany": GET_MANY,
    "getPrefix": GET_PREFIX,
    "put": PUT,
    "putIfAbsent": PUT,
    "delete": DELETE,
    "incr": INCR,
}
WRITES = frozenset({"put", "putIfAbsent", "delete", "incr"})


class KvRow(NamedTuple):
    """One row of an answer, numbered from 1 like the rows that asked."""

    no: int
    verdict: str
    key: str | None
    value: bytes | None
    version: int | None
    expires_at: datetime | None
    updated_at: datetime | None


class ListedEntry(NamedTuple):
    key: str
    value: bytes | None
    version: int
    expires_at: datetime | None
    updated_at: datetime
    expired: bool
    more: bool


class Pruned(NamedTuple):
    """How many expired entries went, how many are left (counted so far), and their age."""

    removed: int
    waiting: int
    oldest_s: float


Asked = tuple[UUID, KvOperation]


def _rows(asked: Sequence[Asked]) -> Iterator[tuple[UUID, KvOperation, str]]:
    for tenant, one in asked:
        for key in one.keys if one.op == "getMany" else (one.key,):
            yield tenant, one, key


def apply_columns(asked: Sequence[Asked]) -> tuple[Any, ...]:
    """The operations as queen_kv_apply_v1 takes them, up to `p_required`."""
    rows = list(_rows(asked))
    counts = any(one.delta is not None for _, one, _ in rows)
    return (
        array(tenant for tenant, _, _ in rows),
        array(KINDS[one.op] for _, one, _ in rows),
        [one.namespace for _, one, _ in rows],
        [key for _, _, key in rows],
        [one.value for _, one, _ in rows],
        array(one.expect for _, one, _ in rows),
        array(one.ttl_s for _, one, _ in rows),
        array(one.delta for _, one, _ in rows) if counts else None,
        array(one.low for _, one, _ in rows) if counts else None,
        array(one.high for _, one, _ in rows) if counts else None,
        array(one.required for _, one, _ in rows) if any(o.required for _, o in asked) else None,
    )


def _page_columns(asked: Sequence[Asked]) -> tuple[Any, ...]:
    if not any(one.op == "getPrefix" for _, one in asked):
        return None, None, None
    rows = list(_rows(asked))
    return (
        [one.after or "" for _, one, _ in rows],
        array(one.limit for _, one, _ in rows),
        array(one.keys_only for _, one, _ in rows),
    )


async def kv_apply(
    fetch: Fetch, asked: Sequence[Asked], *, bytes_max: int, wait_ms: int, timeout_s: float
) -> list[KvRow]:
    parameters = (*apply_columns(asked), *_page_columns(asked), bytes_max, wait_ms)
    return [KvRow(*row) for row in await fetch(KV_APPLY, parameters, timeout_s=timeout_s)]


async def kv_read(
    fetch: Fetch, asked: Sequence[Asked], *, bytes_max: int, timeout_s: float
) -> list[KvRow]:
    rows = list(_rows(asked))
    parameters = (
        array(tenant for tenant, _, _ in rows),
        array(KINDS[one.op] for _, one, _ in rows),
        [one.namespace for _, one, _ in rows],
        [key for _, _, key in rows],
        *_page_columns(asked),
        bytes_max,
    )
    return [KvRow(*row) for row in await fetch(KV_READ, parameters, timeout_s=timeout_s)]


def results(operations: Sequence[KvOperation], rows: Sequence[KvRow]) -> list[KvResult] | KvLost:
    """One result an operation, in their order; or which required one did not apply.

    A `get` that is truncated was not read: the values before it have all the bytes there are.
    A write that was not carried out because others hold its key has the reason `busy`.
    """
    found = [KvResult(one) for one in operations]
    owners = [
        no
        for no, one in enumerate(operations)
        for _ in range(len(one.keys) if one.op == "getMany" else 1)
    ]
    for row in rows:
        index = owners[row.no - 1]
        if row.verdict == "lost":
            return KvLost(index, row.key or "", row.version or 0, row.value)
        _take(found[index], row)
    return found


def _take(result: KvResult, row: KvRow) -> None:
    match row.verdict:
        case "found" if result.operation.op == "get":
            result.entry = _entry(row)
        case "found" | "row":
            result.entries.append(_entry(row))
        case "missing":
            if result.operation.op == "getMany":
                result.missing.append(row.key or "")
        case "cut" | "more":
            result.truncated = True
        case "end":
            pass
        case "applied":
            result.applied = True
            result.version = row.version or 0
            result.value = row.value
            if result.operation.op in ("put", "putIfAbsent"):
                result.value = result.operation.value
        case reason:
            result.reason = reason
            result.version = row.version or 0
            result.value = row.value


def _entry(row: KvRow) -> KvEntry:
    assert row.key is not None and row.version is not None and row.updated_at is not None
    return KvEntry(row.key, row.value, row.version, row.expires_at, row.updated_at)


async def kv_prefix(
    fetch: Fetch,
    tenant: UUID,
    namespace: str,
    prefix: str,
    *,
    after: str | None,
    limit: int,
    keys_only: bool,
    include_expired: bool,
    bytes_max: int,
) -> list[ListedEntry]:
    rows = await fetch(
        KV_PREFIX,
        (
            str(tenant),
            namespace,
            prefix,
            after,
            limit,
            keys_only,
            include_expired,
            bytes_max,
        ),
    )
    return [ListedEntry(*row) for row in rows]


async def kv_namespace_list(
    fetch: Fetch, tenant: UUID, *, namespaces_max: int
) -> list[tuple[str, int]]:
    rows = await fetch(KV_NAMESPACE_LIST, (str(tenant), namespaces_max))
    return [(name, keys) for name, keys in rows]


async def kv_namespace_page(
    fetch: Fetch, tenant: UUID, *, after: str | None, limit: int, count_max: int
) -> list[tuple[str, int]]:
    """Namespaces behind `after`; of more keys than `count_max`, one more is told."""
    rows = await fetch(KV_NAMESPACE_PAGE, (str(tenant), after, limit, count_max))
    return [(name, keys) for name, keys in rows]


async def kv_prune(fetch: Fetch, *, rows_max: int) -> Pruned:
    [row] = await fetch(KV_PRUNE, (rows_max,))
    return Pruned(*row)


async def switch_set(fetch: Fetch, patch: Mapping[str, bool]) -> dict[str, Any]:
    """The switches as they stand after the patch; an empty one only reads."""
    [[switches]] = await fetch(SWITCH_SET, (dumps(patch),))
    return dict(switches)
