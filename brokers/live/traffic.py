"""Traffic: what the workers of this broker do a second, made of their pulses.

A worker that has no earlier pulse, or was started anew since, adds nothing to the rates this time;
with none that can be compared they are unknown.

Imports flow/pulse. Used by collector.py.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from brokers.flow import pulse
from brokers.flow.pulse import COUNTERS, Pulse

if TYPE_CHECKING:
    from brokers.runtime import Broker

# What is told as a rate: its name in the picture, and the counter.
RATES = {
    "pushed": "push_messages",
    "popped": "pop_messages",
    "acked": "acks_succeeded",
    "failed": "acks_failed",
    "dead": "dead_letters",
    "empty": "pop_empty",
}
PARKED_QUEUES_MAX = 10


class Traffic:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._before: dict[int, Pulse] = {}

    async def look(self) -> dict[str, Any]:
        siblings = self._broker.siblings
        pulses, missing = [pulse.take(self._broker)], list[int]()
        if siblings is not None:
            pulses, missing = await siblings.pulses()
        told = {
            "workers": self._broker.config.server.workers,
            "missing": missing,
            "rates": self._rates(pulses),
            "totals": {
                name: str(sum(_counted(one, counter) for one in pulses))
                for name, counter in RATES.items()
            },
            "parked": str(sum(one.parked for one in pulses)),
            "parked_queues": _parked(pulses),
            "processes": [self._process(one) for one in pulses],
            "spool": _spool(pulses),
            "database_up": all(one.database_up for one in pulses),
        }
        self._before = {one.worker: one for one in pulses}
        return told

    def forget(self) -> None:
        """Nobody watches any more: the next pulses are not compared with these."""
        self._before = {}

    def _rates(self, pulses: Sequence[Pulse]) -> dict[str, float] | None:
        compared = [(self._before[one.worker], one) for one in pulses if self._follows(one)]
        if not compared:
            return None
        return {
            name: round(
                sum(
                    (_counted(now, counter) - _counted(then, counter)) / (now.up_s - then.up_s)
                    for then, now in compared
                ),
                2,
            )
            for name, counter in RATES.items()
        }

    def _follows(self, now: Pulse) -> bool:
        then = self._before.get(now.worker)
        return then is not None and now.up_s - then.up_s > 0.01

    def _process(self, now: Pulse) -> dict[str, Any]:
        cpu_percent = None
        if self._follows(now):
            then = self._before[now.worker]
            cpu_percent = round(100 * (now.cpu_s - then.cpu_s) / (now.up_s - then.up_s), 1)
        in_flight, waiting, budget = now.admission
        return {
            "id": now.server_id,
            "up_s": round(now.up_s),
            "cpu_percent": cpu_percent,
            "rss_bytes": str(now.rss_bytes),
            "loop_lag_max_ms": round(now.loop_lag_max_ms, 1),
            "pool": now.pool,
            "writes": {"in_flight": in_flight, "waiting": waiting, "budget": budget},
            "database_up": now.database_up,
            "spool": {
                "pending": str(now.spool.pending),
                "bytes": str(now.spool.total_bytes),
                "set_aside": str(now.spool.failed_events),
            },
        }


def _counted(one: Pulse, counter: str) -> int:
    return one.counters[COUNTERS.index(counter)]


def _parked(pulses: Sequence[Pulse]) -> list[list[str]]:
    sums: Counter[str] = Counter()
    for one in pulses:
        sums.update(dict(one.parked_queues))
    return [[queue, str(count)] for queue, count in sums.most_common(PARKED_QUEUES_MAX)]


def _spool(pulses: Sequence[Pulse]) -> dict[str, Any]:
    spools = [one.spool for one in pulses]
    return {
        "pending": str(sum(one.pending for one in spools)),
        "bytes": str(sum(one.total_bytes for one in spools)),
        "oldest_s": max(one.oldest_age_s for one in spools),
        "failed_writes": str(sum(one.failed for one in spools)),
        "set_aside": str(sum(one.failed_events for one in spools)),
        "healthy": all(one.healthy for one in spools),
    }
