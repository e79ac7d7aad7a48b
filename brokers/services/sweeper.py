"""The sweeper: it fires due timers, and does what is done slowly behind the traffic.

Stations of a cycle: probe -> (claim -> fire), again while there is work -> slow chores ->
sleep. Every broker runs one and nobody is elected: rows are shared by SKIP LOCKED, because
an owner that dies would orphan its timers.

A claim is a lease and nothing else. Whoever dies with it, or does not know whether its
fire was committed, leaves the timers to the end of the lease; the fire deletes by the
claim's token, so no timer enters the log twice. It never switches itself off.

Imports store, flow/sleep, services/firing and kv. Used by services/background.py and the
sweeper command.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from brokers.errors import StoreError
from brokers.flow.sleep import Seen, sleep_s
from brokers.services import kv
from brokers.services.firing import Firing
from brokers.store import timer_calls
from brokers.store.timer_calls import Probe

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

NOT_READY_S = 0.1
SHARDS = 64
BACKOFF_DOUBLINGS_MAX = 16


@dataclass(slots=True)
class Chore:
    """A bounded step that is done every so often; it answers how many rows it did."""

    name: str
    every_s: float
    step: Callable[["Broker"], Awaitable[int]]
    due_at: float = 0.0


@dataclass(slots=True)
class Cycle:
    """What one cycle did, for whoever prints it."""

    due: int = 0
    late_s: float = 0.0
    claimed: int = 0
    fired: int = 0
    took_s: float = 0.0
    sleep_s: float = 0.0
    chores: int = 0
    error: str | None = None

    def __str__(self) -> str:
        trouble = "" if self.error is None else f"; {self.error}"
        return (
            f"due {self.due}, oldest {self.late_s:.3f} s late, claimed {self.claimed},"
            f" fired {self.fired}, chores {self.chores} rows, in {self.took_s * 1000:.1f} ms,"
            f" next look in {self.sleep_s * 1000:.0f} ms{trouble}"
        )


def slow_chores(broker: "Broker") -> list[Chore]:
    """What runs on the slow clocks."""
    return [Chore("kv prune", broker.config.kv.expire_every_ms / 1000, _prune_kv)]


async def _prune_kv(broker: "Broker") -> int:
    return (await kv.prune_step(broker)).removed


class Sweeper:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._config = broker.config.sweeper
        self._metrics = broker.timer_metrics
        self._fetch = broker.sweeper_lane.fetch
        self._firing = Firing(broker, self._fetch)
        self._chores = slow_chores(broker)
        self._dice = random.Random()
        self._idle_cycles = 0
        self._failures = 0

    async def run(self, tell: Callable[[Cycle], None] = lambda cycle: None) -> None:
        """Sweep until the alarm is closed; the cancelled end is as good as a crash."""
        alarm = self._broker.timer_alarm
        while not alarm.closed:
            if not self._broker.ready:
                await alarm.sleep(NOT_READY_S)
                continue
            cycle = await self.cycle()
            tell(cycle)
            await alarm.sleep(cycle.sleep_s)

    async def cycle(self) -> Cycle:
        """One round of everything. What goes wrong is told in the answer, and tried again."""
        started = time.monotonic()
        self._broker.timer_alarm.begin_look()
        cycle = Cycle()
        try:
            seen = await self._fire_due(cycle, started)
            self._failures = 0
        except StoreError as error:
            self._failures += 1
            cycle.error = error.text
            log.info("sweeper: %s", error.text)
            seen = Seen()
        except Exception as error:
            self._failures += 1
            cycle.error = repr(error)
            log.exception("sweeper: cycle")
            seen = Seen()
        cycle.chores = await self._do_chores()
        cycle.took_s = time.monotonic() - started
        cycle.sleep_s = sleep_s(self._config, seen, self._dice.random())
        self._metrics.cycle_ms = cycle.took_s * 1000
        self._metrics.sleep_ms = cycle.sleep_s * 1000
        return cycle

    async def _fire_due(self, cycle: Cycle, started: float) -> Seen:
        config = self._config
        probe = await timer_calls.timer_probe(
            self._fetch,
            due_cap=config.due_cap,
            ahead_ms=max(config.max_sleep_ms, config.idle_max_sleep_ms),
        )
        probed_at = time.monotonic()
        self._count(probe, cycle)
        due, cut_short = probe.due, False
        if due and not self._may_fire():
            self._metrics.phases_skipped["fire"] += 1
            due = 0
        elif due:
            cut_short = await self._claim_and_fire(cycle, started)
            if not cycle.claimed:
                self._metrics.skip_locked += 1
        next_due_s = None
        if probe.next_us is not None:
            next_due_s = probe.next_us / 1e6 - (time.monotonic() - probed_at)
        return Seen(
            due=due,
            claimed=cycle.claimed,
            cut_short=cut_short,
            next_due_s=next_due_s,
            idle_cycles=self._idle_cycles,
        )

    async def _claim_and_fire(self, cycle: Cycle, started: float) -> bool:
        """Claim and fire until there is nothing more; true when a bound came first."""
        config = self._config
        bytes_left_free = config.fire_bytes_max - self._broker.config.timers.payload_bytes_max
        while True:
            limit = min(config.claim_batch, config.cycle_rows_max - cycle.claimed)
            half_spent = time.monotonic() - started > config.lease_ms / 2000
            if limit <= 0 or half_spent or self._broker.timer_alarm.closed:
                return True
            token = str(uuid4())
            async with self._broker.admission.slot("maint"):
                timers = await timer_calls.timer_claim(
                    self._fetch,
                    token,
                    lease_ms=config.lease_ms,
                    start=self._dice.randrange(SHARDS),
                    limit=limit,
                    bytes_max=config.fire_bytes_max,
                )
            if not timers:
                return False
            cycle.claimed += len(timers)
            self._metrics.rows["claimed"] += len(timers)
            cycle.fired += await self._firing.fire(token, timers, backoff_ms=self._backoff_ms())
            size = sum(len(one.payload) for one in timers)
            if len(timers) < limit and size < bytes_left_free:
                return False

    def _backoff_ms(self) -> int:
        """After a transient failure: doubling with each cycle that had one."""
        doublings = min(self._failures, BACKOFF_DOUBLINGS_MAX)
        return min(self._config.backoff_max_ms, self._config.backoff_min_ms << doublings)

    def _may_fire(self) -> bool:
        switches = getattr(self._broker, "switches", None)
        return switches is None or bool(switches.timers_fire_enabled)

    def _count(self, probe: Probe, cycle: Cycle) -> None:
        cycle.due = probe.due
        cycle.late_s = (probe.late_us or 0) / 1e6
        self._metrics.due = probe.due
        self._metrics.due_capped = probe.due >= self._config.due_cap
        self._metrics.oldest_late_s = cycle.late_s
        pending = probe.due or probe.next_us is not None
        self._idle_cycles = 0 if pending else self._idle_cycles + 1

    async def _do_chores(self) -> int:
        """Those whose time has come. One that fails does not keep the others from theirs."""
        rows = 0
        for chore in self._chores:
            if chore.due_at > time.monotonic():
                continue
            chore.due_at = time.monotonic() + chore.every_s
            try:
                rows += await chore.step(self._broker)
            except asyncio.CancelledError:
                raise
            except StoreError as error:
                log.info("%s: %s", chore.name, error.text)
            except Exception:
                log.exception("%s", chore.name)
        return rows
