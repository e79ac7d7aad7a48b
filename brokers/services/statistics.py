"""Statistics: count what every queue holds, so that whoever lists queues need not.

The figures of a queue are as old as the last count; what has to be exact (one queue's detail,
its depth) counts for itself. How much the segments weigh is measured much more seldom.

Imports store, services/{term,written}. Used by services/leaders.py and api/hot_system.py.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from brokers.services import written
from brokers.services.term import Fenced, Term
from brokers.store import leader_calls as calls

if TYPE_CHECKING:
    from brokers.runtime import Broker

STEP_MS = 250
STEPS_MAX = 10_000
SEGMENTS_MAX = 10_000


@dataclass(slots=True)
class Counted:
    queues: int = 0
    partitions: int = 0


async def cycle(broker: "Broker", term: Term) -> None:
    """Count the queues that are due."""
    await _count(broker, term)


async def refresh(broker: "Broker") -> Counted:
    """Count all of them now, whoever leads; what somebody else counts meanwhile is new enough."""
    try:
        return await _count(broker, None)
    finally:
        written.tell(broker, None)


async def bytes_cycle(broker: "Broker", term: Term) -> None:
    """Measure what the queues hold."""
    since: datetime | None = None
    for _ in range(STEPS_MAX):
        async with broker.admission.slot("maint"):
            step = await calls.retained_bytes_step(
                broker.store.fetch,
                term.token,
                since,
                segments_max=SEGMENTS_MAX,
                budget_ms=STEP_MS,
            )
        since = _since(step.since)
        if not step.queues or term.is_over():
            return


async def _count(broker: "Broker", term: Term | None) -> Counted:
    counted = Counted()
    since: datetime | None = None
    for _ in range(STEPS_MAX):
        async with broker.admission.slot("maint"):
            step = await calls.statistics_step(
                broker.store.fetch,
                None if term is None else term.token,
                since,
                budget_ms=STEP_MS,
            )
        since = _since(step.since)
        counted.queues += step.queues
        counted.partitions += step.partitions
        if not step.queues or (term is not None and term.is_over()):
            break
    return counted


def _since(told: datetime | None) -> datetime:
    """A step that does nothing because its leader is another now tells no time."""
    if told is None:
        raise Fenced
    return told
