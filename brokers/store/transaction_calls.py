"""The procedure of a transaction as one typed coroutine.

Imports calls. Used by services/transaction.py.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from brokers.store.calls import AckItem, Fetch, PushGroup, ack_columns, array, push_parameters

TRANSACTION_COMMIT = """
SELECT kind, no, outcome, duplicate_positions, duplicate_ids::text[], lease_released,
       dead_lettered, queue_id, partition_id, key, value, version, expires_at, updated_at,
       timer_message_id::text, (extract(epoch FROM timer_deliver_at) * 1000000)::bigint
  FROM queen_transaction_commit_v1(
       %s::bigint[], %s::bigint[], %s::bigint[], %b::bytea[], %b::bytea[], %b::text[],
       %b::bytea[], %s::uuid[], %s::uuid[], %s::integer,
       %s::uuid, %s::uuid[], %b::text[], %s::uuid[], %b::text[], %s::smallint[], %b::text[],
       %s::uuid[], %s::boolean,
       %s::uuid[], %s::smallint[], %b::text[], %b::text[], %b::bytea[], %s::bigint[],
       %s::bigint[], %s::numeric[], %s::numeric[], %s::numeric[], %s::boolean[], %s::bigint,
       %s::uuid, %b::text[], %b::text[], %b::text[], %s::bigint[], %b::text[], %b::bytea[],
       %s::boolean[], %s::boolean[], %s::text)
"""
NO_KV = (None,) * 11


class CommitRow(NamedTuple):
    kind: str
    no: int
    outcome: str
    duplicate_positions: list[int] | None
    duplicate_ids: list[str] | None
    lease_released: bool | None
    dead_lettered: bool | None
    queue_id: int | None
    partition_id: int | None
    key: str | None
    value: bytes | None
    version: int | None
    expires_at: datetime | None
    updated_at: datetime | None
    timer_message_id: str | None
    timer_deliver_us: int | None


async def transaction_commit(
    fetch: Fetch,
    groups: Sequence[PushGroup],
    acks: Sequence[AckItem],
    *,
    tenant: UUID | None,
    required_leases: Sequence[str],
    mentions_lease: bool,
    wait_ms: int,
    timers: Sequence[Any],
    kv: Sequence[Any] = NO_KV,
    kv_bytes_max: int = 0,
) -> list[CommitRow]:
    """`kv` and `timers` are the riders as kv_calls and timer_calls.apply_columns() make them."""
    rows = await fetch(
        TRANSACTION_COMMIT,
        (
            *push_parameters(groups, wait_ms),
            None if tenant is None else str(tenant),
            *ack_columns(acks),
            array(required_leases),
            mentions_lease,
            *kv,
            kv_bytes_max,
            *timers,
        ),
    )
    return [CommitRow(*row) for row in rows]
