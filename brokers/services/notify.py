"""Notify: somebody else knows that a queue has news, and says so.

A hint like every other: it may be wrong, and may get lost. Whoever waits for the queue is
not rung for it; the database is asked what there is, and that rings.

Imports errors, store, mesh.hints. Called by api/hot_system.py and services/mesh.py.
"""

import asyncio
import logging
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.errors import StoreError
from brokers.store import calls
from mesh.hints import Look

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)


async def notify(broker: "Broker", tenant: UUID, queue: str) -> None:
    """Look for those who wait at the queue, here and at the peers."""
    broker.announce.tell(Look(str(tenant), queue))
    await heard(broker, tenant, queue)


async def heard(broker: "Broker", tenant: UUID, queue: str) -> None:
    """Look for those who wait at the queue here, as the floor would a moment later."""
    ids = broker.gates.queues_waited_at(tenant, queue)
    known = broker.directory.queues.get((tenant, queue))
    if known is None:
        # It may be new, and match a discovery.
        broker.directory.discoveries.clear()
        broker.gates.ring_discovery(tenant)
    else:
        ids.add(known.id)
    rings = [broker.announce.rings.ring(*key) for key in broker.gates.occupied() if key[0] in ids]
    unborn = [one for one in broker.gates.unborn() if one[0] in ids]
    try:
        await asyncio.gather(*(broker.floor.look(ring) for ring in rings))
        if unborn:
            for queue_id, name in await calls.partition_find(broker.store.fetch, unborn):
                broker.gates.ring_unborn(queue_id, name)
    except StoreError as error:
        log.debug("notify: %s", error.text)
