"""Retention: delete what the rules of its queue give up.

Stations of a cycle: delete segments of partitions that are due -> remove partitions that are
long empty -> forget old counters. Every step is one bounded call in a maintenance slot and
commits by itself; what may be deleted is decided in queen_retention_step_v1.

Imports store, services/term. Used by services/leaders.py.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brokers.services.term import Fenced, Term
from brokers.store import leader_calls as calls

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

# A lane is not left before so many steps, so that one with a backlog is not asked about anew.
STEPS_MAX = 10
STEP_BYTES_MAX = 16_777_216
# How long a step waits for a partition that somebody has.
LOCK_WAIT_MS = 200
CLEANUP_ROWS_MAX = 200
CLEANUP_STEPS_MAX = 20
PURGE_STEPS_MAX = 20
DAY_S = 86_400


@dataclass(slots=True)
class Deleted:
    """What one cycle did away with."""

    retention: int = 0
    completed: int = 0
    eviction: int = 0
    segments: int = 0
    bytes: int = 0
    touched: set[int] = field(default_factory=set)
    removed: int = 0

    def __bool__(self) -> bool:
        return bool(self.segments or self.removed)

    def __str__(self) -> str:
        messages = self.retention + self.completed + self.eviction
        return (
            f"deleted {messages} messages (retention {self.retention}, completed"
            f" {self.completed}, eviction {self.eviction}) in {self.segments} segments,"
            f" {self.bytes} bytes, of {len(self.touched)} partitions;"
            f" removed {self.removed} empty partitions"
        )


async def cycle(broker: "Broker", term: Term) -> None:
    """One round of everything. It says something only when something was deleted."""
    deleted = Deleted()
    try:
        await _delete_due(broker, term, deleted)
        await _clean_up(broker, term, deleted)
        await _forget(broker, term)
    finally:
        if deleted:
            log.info("retention: %s", deleted)


async def _delete_due(broker: "Broker", term: Term, deleted: Deleted) -> None:
    """Until nothing is due that can be had."""
    config = broker.config.leaders
    held: set[int] = set()
    while not term.is_over():
        due = await calls.retention_due(
            broker.store.fetch, limit=config.retention_batch_size, leave_out=held
        )
        if not due:
            return
        lanes = iter(due)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(config.retention_parallelism, len(due))):
                    group.create_task(_delete_from(broker, term, lanes, deleted, held))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None


async def _delete_from(
    broker: "Broker", term: Term, lanes: Iterator[int], deleted: Deleted, held: set[int]
) -> None:
    """Partitions one after the other, each until nothing is left to delete or it had its share."""
    config, metrics = broker.config.leaders, broker.leader_metrics
    for lane in lanes:
        for _ in range(STEPS_MAX):
            if term.is_over():
                return
            async with broker.admission.slot("maint"):
                step = await calls.retention_step(
                    broker.store.fetch,
                    term.token,
                    lane,
                    segments_max=config.retention_batch_size,
                    bytes_max=STEP_BYTES_MAX,
                    wait_ms=LOCK_WAIT_MS,
                )
            if step.verdict == "fenced":
                raise Fenced
            _count(broker, deleted, lane, step)
            if step.verdict == "busy":
                metrics.busy += 1
                held.add(lane)
            if step.verdict == "blocked":
                metrics.blocked += 1
            if not step.more:
                break


def _count(broker: "Broker", deleted: Deleted, lane: int, step: calls.RetentionStep) -> None:
    if not step.segments:
        return
    deleted.retention += step.retention_messages
    deleted.completed += step.completed_messages
    deleted.eviction += step.eviction_messages
    deleted.segments += step.segments
    deleted.bytes += step.bytes
    deleted.touched.add(lane)
    metrics = broker.leader_metrics
    metrics.deleted_messages["retention"] += step.retention_messages
    metrics.deleted_messages["completed"] += step.completed_messages
    metrics.deleted_messages["eviction"] += step.eviction_messages
    metrics.deleted_segments += step.segments
    metrics.deleted_bytes += step.bytes


async def _clean_up(broker: "Broker", term: Term, deleted: Deleted) -> None:
    """Partitions that stay (a dead letter points at them) are passed over at each walk."""
    config = broker.config.leaders
    if not config.cleanup_enabled:
        return
    step: calls.CleanupStep | None = None
    for _ in range(CLEANUP_STEPS_MAX):
        async with broker.admission.slot("maint"):
            step = await calls.partition_cleanup(
                broker.store.fetch,
                term.token,
                idle_s=config.cleanup_days * DAY_S,
                rows_max=min(config.retention_batch_size, CLEANUP_ROWS_MAX),
                after=step,
            )
        deleted.removed += step.removed
        broker.leader_metrics.removed_partitions += step.removed
        if step.reached_id is None or term.is_over():
            return


async def _forget(broker: "Broker", term: Term) -> None:
    config = broker.config.leaders
    for _ in range(PURGE_STEPS_MAX):
        async with broker.admission.slot("maint"):
            removed = await calls.history_purge(
                broker.store.fetch,
                term.token,
                days=config.metrics_days,
                rows_max=config.retention_batch_size,
            )
        if not removed or term.is_over():
            return
