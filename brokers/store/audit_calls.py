"""Every procedure of the audit as one typed coroutine.

Imports calls. Used by services/audit.py.
"""

from uuid import UUID

from brokers.store.calls import Fetch

AUDIT_BEGIN = """
SELECT queen_audit_begin_v1(
       %s::bigint, %s::text, %s::text, %s::text, %s::uuid, %s::text, %s::text)
"""
AUDIT_END = "SELECT queen_audit_end_v1(%s::bigint, %s::text, %s::bigint, %s::text)"


async def audit_begin(
    fetch: Fetch,
    *,
    user_id: int | None,
    user_name: str,
    peer: str,
    action: str,
    tenant: UUID | None,
    target: str,
    detail: str,
) -> int:
    tenant_id = None if tenant is None else str(tenant)
    [[entry]] = await fetch(
        AUDIT_BEGIN, (user_id, user_name, peer, action, tenant_id, target, detail)
    )
    return int(entry)


async def audit_end(
    fetch: Fetch, entry: int, *, outcome: str, hits: int | None, detail: str
) -> None:
    await fetch(AUDIT_END, (entry, outcome, hits, detail))
