"""Usage and holdings: what tenants have, counted now and then.

The usage of metered tenants is kept exactly by the calls that add and remove. What they cannot
see is what went on while a quota was being written for the first time; counting heals that.

What any tenant holds, the default one too, is only told and bounds nothing, so nobody keeps it:
it is counted in steps, and a count that a cycle does not end is gone on with in the next.

Imports store. Used by services/leaders.py.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from brokers.services.term import Term
from brokers.store import quota_calls

if TYPE_CHECKING:
    from brokers.runtime import Broker

TENANTS_MAX = 1000
KINDS = ("kv", "timers")
STEP_ROWS_MAX = 20_000


async def cycle(broker: "Broker", term: Term) -> None:
    """Count those that were not counted for the configured time."""
    fetch = broker.store.fetch
    every_ms = broker.config.quota.usage_every_ms
    for tenant, kind in await quota_calls.usage_due(fetch, every_ms=every_ms, limit=TENANTS_MAX):
        async with broker.admission.slot("maint"):
            await quota_calls.usage_count(fetch, tenant, kind)
        if term.is_over():
            return
    for kind in KINDS:
        await _count_holdings(broker, term, kind)


async def _count_holdings(broker: "Broker", term: Term, kind: str) -> None:
    fetch = broker.store.fetch
    # Whatever was counted in the cycle before this one is due, also where that ended late.
    every_ms = broker.config.quota.usage_every_ms // 2
    after: UUID | None = None
    while not term.is_over():
        async with broker.admission.slot("maint"):
            after = await quota_calls.holding_find(fetch, kind, after, limit=TENANTS_MAX)
        if after is None:
            break
    counted = True
    while counted and not term.is_over():
        async with broker.admission.slot("maint"):
            counted = await quota_calls.holding_step(
                fetch, kind, every_ms=every_ms, rows_max=STEP_ROWS_MAX
            )
