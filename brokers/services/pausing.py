"""Pause and resume a queue: nothing is popped from a paused one, everything else goes on.

The state is a column that every claim reads, so no broker's cache decides. Rings are only
told: those of a paused queue run empty, and at a resume parked pops are rung here and at
the peers; a broker that hears nothing finds the moved version at its next floor.

Imports notify, store. Called by api/views/queue_operations.py.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from brokers.services import notify
from brokers.store import queue_calls as calls

if TYPE_CHECKING:
    from brokers.runtime import Broker


async def set_paused(
    broker: "Broker", tenant: UUID, queue: str, *, paused: bool
) -> calls.Paused | None:
    """None when there is no such queue. What is out under a lease may be acked as before."""
    async with broker.admission.call_slot("maint"):
        done = await calls.queue_pause(broker.store.fetch, tenant, queue, paused=paused)
    if done is None:
        return None
    if done.changed:
        broker.queues.forget(tenant, queue, queue_id=done.queue_id)
        if not paused:
            await notify.notify(broker, tenant, queue)
    return done
