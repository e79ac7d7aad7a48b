"""Ack: move cursors as consumers say.

Imports domain; the work is flow/acks.py. Called by api/{hot,hot_soon}.py.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from brokers.domain import Ack, AckOutcome

if TYPE_CHECKING:
    from brokers.flow.acks import Settling
    from brokers.runtime import Broker


async def ack(broker: "Broker", tenant: UUID, acks: list[Ack]) -> list[AckOutcome]:
    """Carry out the acknowledgments; one outcome each, in request order."""
    broker.counters.ack_requests += 1
    outcomes = await broker.acks.settle(tenant, acks)
    broker.counters.count_acks(outcomes)
    return outcomes


def begin(broker: "Broker", tenant: UUID, acks: list[Ack]) -> "Settling":
    """The same for whoever has no task to wait in; `end` tells the outcomes."""
    broker.counters.ack_requests += 1
    return broker.acks.begin(tenant, acks)


def end(broker: "Broker", settling: "Settling") -> list[AckOutcome]:
    outcomes = settling.outcomes()
    broker.counters.count_acks(outcomes)
    return outcomes
