"""Leases: extend what a pop handed out.

Imports domain, store, flow/acks. Called by api/hot.py.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from brokers.domain import LeaseExtension
from brokers.flow.acks import uuid_text
from brokers.store import lease_calls

if TYPE_CHECKING:
    from brokers.runtime import Broker


async def extend(broker: "Broker", tenant: UUID, lease_id: str, seconds: int) -> LeaseExtension:
    """Push back the end of every live lease under this id; what is no lease renews nothing."""
    known = uuid_text(lease_id)
    if known is None:
        return LeaseExtension(renewed=0, expires_at=None)
    async with broker.admission.call_slot("ack"):
        renewed, expires_at = await lease_calls.lease_extend(
            broker.store.fetch,
            broker.tenant_filter(tenant),
            known,
            seconds=max(seconds, 1),
            partition_ids=broker.registry.partitions(known),
        )
    return LeaseExtension(renewed=renewed, expires_at=expires_at)
