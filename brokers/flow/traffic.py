"""The write traffic of a broker: what went through each lane, told and regulated.

Ticks the regulator, and tells every QUEEN_LOG_RATES_MS what went through and what the process
keeps for it: the lines `rates` and `sizes`. They say nothing when nothing happened meanwhile.

Imports metrics, flow/admission, giving_way, regulation. Used by runtime.py and
admission_metrics.py.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from brokers.flow.admission import KINDS, Kind
from brokers.flow.giving_way import GivingWay, Totals
from brokers.flow.regulation import Regulation
from brokers.metrics import resident_bytes

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

# What a broker without callers does for itself (who leads, what has expired) is nothing to tell.
OWN_CALLS_PER_S = 5.0


class Traffic:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._config = broker.config.admission
        self._admission = broker.admission
        self.regulation = Regulation(
            broker.admission,
            self._config,
            items=self._items,
            oldest_ready_s=broker.announce.rings.oldest_ready_s,
        )
        self.giving_way = GivingWay(broker.admission, self._totals, enabled=self._config.give_way)
        self._told_at = broker.admission.clock()
        self._granted = dict.fromkeys(KINDS, 0)
        self._carried = dict.fromkeys(KINDS, 0)
        self._held = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._config.tick_ms / 1000)
            self.regulation.tick()
            if self._admission.clock() - self._told_at >= self._config.log_rates_ms / 1000:
                line = self.line()
                if line is not None:
                    log.info("%s", line)
                    log.info("%s", self.sizes())

    def line(self) -> str | None:
        """What happened since this was last asked; None when that was nothing."""
        lines = self._admission.lines
        now = self._admission.clock()
        passed_s = max(now - self._told_at, 1e-9)
        granted = {kind: line.granted for kind, line in lines.items()}
        carried = self._items()
        calls = {kind: granted[kind] - self._granted[kind] for kind in KINDS}
        items = {kind: carried[kind] - self._carried[kind] for kind in KINDS}
        held = self.giving_way.held - self._held
        self._told_at, self._granted, self._carried = now, granted, carried
        self._held = self.giving_way.held
        own = calls["maint"] <= OWN_CALLS_PER_S * passed_s
        quiet = own and not any(calls[kind] for kind in KINDS if kind != "maint")
        if quiet and not any(line.waiters for line in lines.values()):
            return None
        lanes = "; ".join(
            f"{kind} {calls[kind] / passed_s:.1f} calls/s {items[kind] / passed_s:.1f} items/s"
            f" {line.in_flight} in flight {len(line.waiters)} waiting"
            f" oldest {1000 * line.oldest_wait_s(now):.0f} ms cap {line.cap}"
            for kind, line in lines.items()
        )
        cycle_s = self.regulation.cycle_s
        cycle = "unknown" if cycle_s is None else f"{1000 * cycle_s:.2f} ms"
        pinned = " (pinned)" if self.regulation.pinned else ""
        return (
            f"rates: {lanes}; budget {self._admission.budget}{pinned}, flush cycle {cycle},"
            f" {held} push calls gave way"
        )

    def sizes(self) -> str:
        """What this process holds in memory, and its connections."""
        broker = self._broker
        pool = broker.store.stats()
        return (
            f"sizes: {len(broker.directory.queues)} queues and"
            f" {len(broker.directory.partitions)} partitions known,"
            f" {broker.gates.parked_count()} pops parked,"
            f" ack registry {broker.registry.size_bytes} bytes,"
            f" {pool['size'] - pool['idle']} of {pool['size']} connections in use,"
            f" {resident_bytes()} bytes resident"
        )

    def _items(self) -> dict[Kind, int]:
        """What each lane has carried since the start: messages, or steps of maintenance."""
        counters = self._broker.counters
        return {
            "push": self._broker.push_combiner.flushed_items + counters.transactions,
            "pop": counters.pop_messages,
            "ack": counters.ack_messages,
            "maint": self._admission.lines["maint"].granted,
        }

    def _totals(self) -> Totals:
        broker, counters = self._broker, self._broker.counters
        return Totals(
            pushed=broker.push_combiner.flushed_items,
            delivered=counters.pop_messages,
            push_requests=counters.push_requests,
            consumer_requests=broker.claims.coalescer.items + broker.acks.coalescer.items,
        )
