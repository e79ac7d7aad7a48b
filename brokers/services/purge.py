"""Purge a queue, or one partition of it: what it holds now is deleted, in bounded steps.

Each step is one call in a maintenance slot and commits by itself; pushes and pops go on in
between. What is pushed while a purge runs stays. A purge that fails, or ends because its
request would take too long, has done part of its work, and can be repeated.

Imports dead_letters, store. Called by api/views/queue_operations.py.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.services import dead_letters
from brokers.store import queue_calls as calls

if TYPE_CHECKING:
    from datetime import datetime

    from brokers.runtime import Broker

LANES_PER_CALL = 1000
SEGMENTS_MAX = 1000
STEP_BYTES_MAX = 16_777_216
LOCK_WAIT_MS = 200
# How often a partition is tried whose row somebody keeps: for about ten seconds.
BUSY_ROUNDS = 50
# After so long it ends, so that whoever asked hears how far it came; what waits for a request
# of a view gives up after a minute.
PURGE_S = 40.0
LETTERS_MAX = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest:
    """`partition` None: all of the queue."""

    tenant: UUID
    queue: str
    partition: str | None = None
    dead_letters: bool = False


@dataclass(slots=True)
class Purged:
    """What is gone. `busy` counts partitions that were given up: somebody kept their rows.

    `more`: time ran out before the end.
    """

    partitions: int = 0
    messages: int = 0
    segments: int = 0
    bytes: int = 0
    dead_letters: int = 0
    busy: int = 0
    more: bool = False

    @property
    def complete(self) -> bool:
        return not (self.busy or self.more)


class UnknownQueue(Exception):
    """There is no such queue."""


class UnknownPartition(Exception):
    """There is such a queue, and no such partition of it."""


async def purge(broker: "Broker", request: PurgeRequest) -> Purged:
    """Raises UnknownQueue or UnknownPartition."""
    purged = Purged()
    deadline = time.monotonic() + PURGE_S
    after = 0
    while True:
        there, found, lanes = await calls.purge_lanes(
            broker.store.fetch,
            request.tenant,
            request.queue,
            request.partition,
            after=after,
            limit=LANES_PER_CALL,
        )
        if not there:
            raise UnknownQueue
        if not found:
            raise UnknownPartition
        for lane in lanes:
            await _purge_lane(broker, lane, purged, deadline)
            if purged.more:
                return purged
        if len(lanes) < LANES_PER_CALL:
            break
        after = lanes[-1].id
    if request.dead_letters:
        purged.dead_letters = await _purge_letters(broker, request)
    return purged


async def _purge_lane(
    broker: "Broker", lane: calls.PurgeLane, purged: Purged, deadline: float
) -> None:
    rounds = 0
    messages = 0
    while True:
        async with broker.admission.call_slot("maint"):
            step = await calls.partition_purge(
                broker.store.fetch,
                lane,
                segments_max=SEGMENTS_MAX,
                bytes_max=STEP_BYTES_MAX,
                wait_ms=LOCK_WAIT_MS,
            )
        messages += step.messages
        purged.segments += step.segments
        purged.bytes += step.bytes
        rounds = rounds + 1 if step.verdict == "busy" else 0
        if rounds >= BUSY_ROUNDS:
            purged.busy += 1
            break
        if not step.more:
            break
        if time.monotonic() >= deadline:
            purged.more = True
            break
    purged.messages += messages
    purged.partitions += messages > 0


async def _purge_letters(broker: "Broker", request: PurgeRequest) -> int:
    if request.partition is None:
        return await dead_letters.purge(broker, request.tenant, request.queue, None)
    deleted = 0
    until: datetime | None = None
    while True:
        async with broker.admission.call_slot("maint"):
            step, until = await calls.purge_letters(
                broker.store.fetch,
                request.tenant,
                request.queue,
                request.partition,
                until=until,
                rows_max=LETTERS_MAX,
            )
        deleted += step
        if step < LETTERS_MAX:
            return deleted
