"""Consumer groups as a whole: what they lag behind, seek, delete, change of their start.

A seek is a group's first contact like a pop: it registers the group where nobody has. It goes
in bounded steps, each a call that commits by itself, so a seek that breaks off has moved some
partitions and not others; repeating it finishes it.

Imports domain, store, services/subscriptions. Called by api/views/groups.py.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.domain import QUEUE_MODE
from brokers.store import calls, group_calls
from brokers.store.group_calls import Forgotten, GroupRow, LaggingRow, PlaceRow

if TYPE_CHECKING:
    from brokers.runtime import Broker

# Cursors of one step: claims pass over them meanwhile, and acks wait.
STEP_PARTITIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekRequest:
    """`at` None: to the end. `partition` None: in all partitions of the queue."""

    tenant: UUID
    group: str
    queue: str
    partition: str | None
    at: datetime | None


async def listing(broker: "Broker", tenant: UUID, *, limit: int, offset: int) -> list[GroupRow]:
    return await group_calls.group_list(broker.reads.fetch, tenant, limit=limit, offset=offset)


async def lagging(
    broker: "Broker", tenant: UUID, *, lag_s: int, limit: int, offset: int
) -> list[LaggingRow]:
    return await group_calls.group_lagging(
        broker.reads.fetch, tenant, lag_s=lag_s, limit=limit, offset=offset
    )


async def describe(
    broker: "Broker", tenant: UUID, group: str, *, limit: int, offset: int
) -> list[PlaceRow]:
    return await group_calls.group_describe(
        broker.reads.fetch, tenant, group, limit=limit, offset=offset
    )


async def seek(broker: "Broker", request: SeekRequest) -> int | None:
    """How many partitions were put; None when there is no such queue, or nothing in it."""
    target = await group_calls.group_target(
        broker.reads.fetch, request.tenant, request.queue, request.partition
    )
    if target is None or not await _known(broker, target.queue_id, request.group):
        return None
    moved = 0
    try:
        for first in range(0, len(target.partition_ids), STEP_PARTITIONS):
            step = target.partition_ids[first : first + STEP_PARTITIONS]
            async with broker.admission.call_slot("maint"):
                put = await group_calls.group_seek(
                    broker.store.fetch, target.queue_id, request.group, step, request.at
                )
            if put is None:
                break
            moved += put
    finally:
        _tell(broker, target.queue_id, request.group)
    return moved or None


async def delete(
    broker: "Broker", tenant: UUID, group: str, *, queue: str | None, forget: bool
) -> Forgotten:
    """Of one queue or of all; `forget`: the subscriptions too."""
    cursors, subscription = 0, False
    ids = await group_calls.group_queues(broker.reads.fetch, tenant, group, queue)
    for queue_id in ids:
        try:
            async with broker.admission.call_slot("maint"):
                gone = await group_calls.group_delete(
                    broker.store.fetch, queue_id, group, forget=forget
                )
        finally:
            broker.directory.groups.forget((queue_id, group))
            _tell(broker, queue_id, group)
        cursors += gone.cursors
        subscription = subscription or gone.subscription
    return Forgotten(cursors, subscription)


async def start_from(broker: "Broker", tenant: UUID, group: str, at: datetime) -> int:
    """Where cursors begin that are not there yet; how many subscriptions that changed."""
    async with broker.admission.call_slot("maint"):
        return await group_calls.group_start(broker.store.fetch, tenant, group, at)


async def _known(broker: "Broker", queue_id: int, group: str) -> bool:
    """Register the group unless it is; False when the queue is gone."""
    mode = "all" if group == QUEUE_MODE else broker.config.pop.subscription_mode
    async with broker.admission.call_slot("maint"):
        stored = await calls.group_register(
            broker.store.fetch, queue_id, group, mode=mode, since=None, conflation=False
        )
    return stored is not None


def _tell(broker: "Broker", queue_id: int, group: str) -> None:
    """Cursors moved, or may have: whoever waits here or at a peer looks at all partitions."""
    broker.announce.moved_back(queue_id, group)
    ring = broker.announce.rings.find(queue_id, group)
    if ring is not None:
        broker.floor.nudge(ring, 0.0)
