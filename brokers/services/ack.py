"""Ack: move cursors as consumers say.

Imports domain; the work is flow/acks.py. Called by api/hot.py.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from brokers.domain import Ack, AckOutcome

if TYPE_CHECKING:
    from brokers.runtime import Broker


async def ack(broker: "Broker", tenant: UUID, acks: list[Ack]) -> list[AckOutcome]:
    """Carry out the acknowledgments; one outcome each, in request order."""
    broker.counters.ack_requests += 1
    outcomes = await broker.acks.settle(tenant, acks)
    broker.counters.count_acks(outcomes)
    return outcomes
