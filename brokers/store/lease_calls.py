"""The procedures of leases that a pop has handed out: extend them, hand them back.

Imports calls. Used by services/leases.py and flow/claims.py.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from brokers.store.calls import Fetch, array

LEASE_EXTEND = """
SELECT renewed, expires_at
  FROM queen_lease_extend_v1(%s::uuid, %s::uuid, %s::bigint, %s::bigint[])
"""
LEASE_RELEASE = "SELECT queen_lease_release_v1(%s::uuid, %s::bigint[], %s::text)"


async def lease_extend(
    fetch: Fetch,
    tenant: UUID | None,
    lease_id: str,
    *,
    seconds: int,
    partition_ids: Sequence[int] | None,
) -> tuple[int, datetime | None]:
    [[renewed, expires_at]] = await fetch(
        LEASE_EXTEND,
        (
            None if tenant is None else str(tenant),
            lease_id,
            seconds,
            None if partition_ids is None else array(partition_ids),
        ),
    )
    return renewed, expires_at


async def lease_release(
    fetch: Fetch, lease_id: str, partition_ids: Sequence[int], group: str
) -> int:
    [[count]] = await fetch(LEASE_RELEASE, (lease_id, array(partition_ids), group))
    return count
