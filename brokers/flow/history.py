"""The history: what this process counted and measured, written to the database by the minute.

Analytics are made of what every broker wrote. Losing a minute in a crash loses a minute of
figures and nothing else; what could not be written is counted with the next.

Imports flow/tally, metrics, store. Used by runtime.py.
"""

import asyncio
import logging
import resource
import time
from typing import TYPE_CHECKING

from brokers import metrics
from brokers.errors import StoreError
from brokers.flow.tally import COLUMNS
from brokers.store import history_calls
from brokers.store.failures import Failed

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

# Attributes of metrics.Counters, in the order that queen_broker_history_add_v1 has them.
COUNTERS = (
    "push_requests",
    "push_messages",
    "pop_requests",
    "pop_messages",
    "ack_requests",
    "ack_messages",
    "acks_succeeded",
    "acks_failed",
    "transactions",
    "dead_letters",
)
# A queue that nobody touches is written no row; one flush carries at most so many queues a call.
QUEUES_PER_CALL = 1000


class History:
    """One for each broker. `loop_lag_max_ms` is the worst since it was last written."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._written = dict.fromkeys(COUNTERS, 0)
        self._errors = Failed.calls
        self._cpu = _cpu_s()
        self._looked_at = time.monotonic()
        self.loop_lag_max_ms = 0.0

    async def run(self) -> None:
        """Write every METRICS_FLUSH_MS, for ever."""
        while True:
            await asyncio.sleep(self._broker.config.jobs.metrics_flush_ms / 1000)
            if self._broker.ready:
                await self.flush()

    async def flush(self) -> None:
        """Write what was counted since the last time."""
        broker = self._broker
        for queue_id, parked in broker.gates.parked_by_id().items():
            broker.tally.of(queue_id).parked += parked
        taken = broker.tally.take()
        for counts in taken.values():
            counts.parked_samples += 1
        waiting = sorted(taken)
        try:
            while waiting:
                ids = waiting[:QUEUES_PER_CALL]
                rows = [(one, [getattr(taken[one], name) for name in COLUMNS]) for one in ids]
                async with broker.admission.call_slot("maint"):
                    await history_calls.queue_counter_add(
                        broker.store.fetch, broker.config.server.server_id, rows
                    )
                del waiting[:QUEUES_PER_CALL]
            await self._flush_broker()
        except StoreError as error:
            log.info("history: %s", error.text)
            broker.tally.give_back({one: taken[one] for one in waiting})
        finally:
            # Whoever asks here from now on sees the new minute, also where a part was written.
            # Others hear of none: with many brokers there is a flush every second somewhere.
            broker.recent.forget()

    async def _flush_broker(self) -> None:
        """The process's own row. Totals are remembered only once their rise is written."""
        broker = self._broker
        totals = {name: getattr(broker.counters, name) for name in COUNTERS}
        errors, max_ms, lag = Failed.calls, self.loop_lag_max_ms, broker.tally.take_lag()
        self.loop_lag_max_ms = 0.0
        values: list[int | None] = [totals[name] - self._written[name] for name in COUNTERS]
        values += [errors - self._errors, lag.pop_lag_ms, lag.pop_lag_count, lag.pop_lag_max_ms]
        values += [int(max_ms * 1000), *self._gauges(), *self._spool()]
        try:
            async with broker.admission.call_slot("maint"):
                await history_calls.broker_history_add(
                    broker.store.fetch, broker.config.server.server_id, values
                )
        except StoreError:
            broker.tally.lag.add(lag)
            self.loop_lag_max_ms = max(self.loop_lag_max_ms, max_ms)
            raise
        self._written, self._errors = totals, errors

    def _gauges(self) -> list[int]:
        """What is true now, in the order of queen_broker_history_add_v1."""
        broker = self._broker
        stats = broker.store.stats()
        user, system = self._cpu_shares()
        return [
            int(broker.loop_lag_ms * 1000),
            user,
            system,
            metrics.resident_bytes(),
            stats["size"],
            stats["idle"],
            stats["waiting"],
            broker.gates.parked_count(),
            int(time.monotonic() - broker.counters.started),
        ]

    def _spool(self) -> list[int | None]:
        """Messages that wait on this disk, their bytes, messages set aside; unknown without one."""
        if self._broker.spool is None:
            return [None] * 3
        status = self._broker.spool.status()
        return [status.pending, status.total_bytes, status.failed_events]

    def _cpu_shares(self) -> tuple[int, int]:
        """Of one processor since the last look, in hundredths of a percent."""
        before, self._cpu = self._cpu, _cpu_s()
        now = time.monotonic()
        passed_s, self._looked_at = max(now - self._looked_at, 0.001), now
        user, system = (
            int(10_000 * (mine - then) / passed_s)
            for mine, then in zip(self._cpu, before, strict=True)
        )
        return user, system


def _cpu_s() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime
