"""Leader tasks: what one broker at a time does for all of them.

Every broker asks for every task; who asks first when it is due leads it for one cycle. The
schedule is a row of `queen_lease` on the database's clock, so nobody is elected and nobody
coordinates: each waits until the task is due and a little longer by chance, and whoever led
last waits longer than the others, so that cycles go round.

A cycle ends when half its lease is spent, and what is left is the next one's. A leader that
dies keeps its task for the rest of its lease. One that is late is fenced: its steps carry an
old token and do nothing.

Imports store, services/quotas, redrive, retention and statistics. Used by services/background.py.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brokers.errors import StoreError
from brokers.services import quotas, redrive, retention, statistics
from brokers.services.term import Fenced, Term
from brokers.store import leader_calls as calls

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

NOT_READY_S = 0.25
SHORTEST_S = 0.01
JITTER_SHARE = 0.1
JITTER_MAX_S = 0.25
AFTER_ERROR_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Work that is due every so often, for whoever leads then."""

    name: str
    every_ms: int
    work: Callable[["Broker", Term], Awaitable[None]]
    # Whether there is anything to do: asked first where most turns find nothing, since
    # leading a cycle is two commits.
    wanted: Callable[["Broker"], Awaitable[bool]] | None = None


def tasks(broker: "Broker") -> list[Task]:
    config = broker.config.leaders
    return [
        Task(name="retention", every_ms=config.retention_interval_ms, work=retention.cycle),
        Task(name="statistics", every_ms=config.statistics_interval_ms, work=statistics.cycle),
        Task(
            name="retained-bytes",
            every_ms=config.retained_bytes_interval_ms,
            work=statistics.bytes_cycle,
        ),
        Task(
            name="redrive",
            every_ms=redrive.LOOK_EVERY_MS,
            work=redrive.cycle,
            wanted=redrive.wanted,
        ),
        Task(name="usage", every_ms=broker.config.quota.usage_every_ms, work=quotas.cycle),
    ]


class Leaders:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._lease_ms = broker.config.leaders.lease_ms
        self._metrics = broker.leader_metrics
        self._dice = random.Random()

    async def run(self) -> None:
        """Until cancelled, which is as good as a crash: a lease that is held then runs out."""
        async with asyncio.TaskGroup() as group:
            for task in tasks(self._broker):
                self._metrics.knows(task.name)
                group.create_task(self.follow(task), name=f"leader {task.name}")

    async def follow(self, task: Task) -> None:
        while True:
            if not self._broker.ready:
                await asyncio.sleep(NOT_READY_S)
                continue
            led = False
            try:
                wait_s = await self.turn(task)
                led = wait_s is None
            except StoreError as error:
                log.info("%s: %s", task.name, error.text)
                wait_s = AFTER_ERROR_S
            except Exception:
                log.exception("%s", task.name)
                wait_s = AFTER_ERROR_S
            await asyncio.sleep(self._pause_s(task, wait_s, led=led))

    def _pause_s(self, task: Task, wait_s: float | None, *, led: bool) -> float:
        """A little longer than asked, by chance; the last leader lets the others go first."""
        jitter_s = min(task.every_ms / 1000 * JITTER_SHARE, JITTER_MAX_S)
        chance = self._dice.random() + (1.0 if led else 0.0)
        return max(wait_s or 0.0, SHORTEST_S) + chance * jitter_s

    async def turn(self, task: Task) -> float | None:
        """Lead one cycle if the task is due and free; else how long nobody need ask again."""
        if task.wanted is not None and not await task.wanted(self._broker):
            return task.every_ms / 1000
        fetch = self._broker.store.fetch
        server_id = self._broker.config.server.server_id
        async with self._broker.admission.slot("maint"):
            began = time.monotonic()
            taken = await calls.lease_take(
                fetch, task.name, server_id, lease_ms=self._lease_ms, interval_ms=task.every_ms
            )
        if taken.token is None:
            assert taken.wait_us is not None
            return taken.wait_us / 1e6
        term = Term(token=taken.token, ends_at=began + self._lease_ms / 2000)
        await self._lead(task, term)
        self._metrics.cycle_ms[task.name] = (time.monotonic() - began) * 1000
        return None

    async def _lead(self, task: Task, term: Term) -> None:
        """The work, and the task given back whatever came of it, unless it is lost."""
        try:
            await task.work(self._broker, term)
        except Fenced:
            self._lost(task)
        except Exception:
            self._metrics.failures[task.name] += 1
            await self._give_back(task, term)
            raise
        else:
            # Steps that find nothing to do and steps that must not do it answer the same.
            if await self._give_back(task, term):
                self._metrics.cycles[task.name] += 1
            else:
                self._lost(task)

    def _lost(self, task: Task) -> None:
        self._metrics.fenced[task.name] += 1
        log.warning("%s: the lease was lost, somebody else leads", task.name)

    async def _give_back(self, task: Task, term: Term) -> bool:
        """False when it was not ours any more."""
        interval_ms = 0 if term.cut_short else task.every_ms
        async with self._broker.admission.slot("maint"):
            return await calls.lease_done(
                self._broker.store.fetch, task.name, term.token, interval_ms=interval_ms
            )
