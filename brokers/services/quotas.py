"""Usage: what metered tenants have, counted anew now and then.

The sums are kept exactly by the calls that add and remove. What they cannot see is what went on
while a quota was being written for the first time; counting heals that.

Imports store. Used by services/leaders.py.
"""

from typing import TYPE_CHECKING

from brokers.services.term import Term
from brokers.store import quota_calls

if TYPE_CHECKING:
    from brokers.runtime import Broker

TENANTS_MAX = 1000


async def cycle(broker: "Broker", term: Term) -> None:
    """Count those that were not counted for the configured time."""
    fetch = broker.store.fetch
    every_ms = broker.config.quota.usage_every_ms
    for tenant, kind in await quota_calls.usage_due(fetch, every_ms=every_ms, limit=TENANTS_MAX):
        async with broker.admission.slot("maint"):
            await quota_calls.usage_count(fetch, tenant, kind)
        if term.is_over():
            return
