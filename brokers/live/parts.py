"""The parts of a picture that are read from the database: how often, and how they are told.

Integers that may pass 2**53 are told as text, digit for digit. What is not known is null: a zero
is a zero that somebody counted.

Imports domain, services/dashboard. Used by collector.py.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from brokers.domain import DEFAULT_TENANT
from brokers.services import dashboard
from brokers.store.history_calls import BrokerRow

if TYPE_CHECKING:
    from brokers.runtime import Broker

MINUTE = timedelta(minutes=1)
MINUTES = 60
# A broker that has not written its history for so long is told as silent.
SILENT_S = 150
# Positions in BrokerRow.counts and in its gauges.
PUSHED, POPPED, ACKED, FAILED, DEAD, DB_ERRORS = 1, 3, 6, 7, 9, 10
LOOP_LAG_US, CPU_USER, CPU_SYSTEM, RSS_BYTES = 0, 1, 2, 3
POOL_SIZE, POOL_IDLE, PARKED, UP_S = 4, 5, 7, 8


@dataclass(frozen=True, slots=True)
class Part:
    """`read` gives what is sent, ready to be written as JSON."""

    name: str
    every_s: float
    read: "Callable[[Broker], Awaitable[Any]]"


def exact(number: int | None) -> str | None:
    return None if number is None else str(number)


def milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _tenant(tenant: str) -> str | None:
    """None for the default one, which needs no naming."""
    return None if tenant == str(DEFAULT_TENANT) else tenant


async def _totals(broker: "Broker") -> dict[str, Any]:
    held = await dashboard.totals(broker)
    return {
        "queues": exact(held.queues),
        "partitions": exact(held.partitions),
        "total": exact(held.total),
        "pending": exact(held.pending),
        "processing": exact(held.processing),
        "dead_letters": exact(held.dead_letters),
        "dead_letter_queues": exact(held.dead_letter_queues),
        "lag_max_s": held.lag_s[3],
        # While queues were not counted yet, the zeros above are none.
        "counted_s": held.age_s if held.age_s >= 0 else None if held.queues else 0,
    }


async def _queues(broker: "Broker") -> list[dict[str, Any]]:
    return [
        {
            "tenant": _tenant(one.tenant),
            "name": one.name,
            "paused": one.paused,
            "partitions": exact(one.partitions),
            "pending": exact(one.pending),
            "processing": exact(one.processing),
            "dead_letters": exact(one.dead_letters),
            "pushed": exact(one.pushed),
            "popped": exact(one.popped),
            "acked": exact(one.acked),
            "failed": exact(one.failed),
            "oldest_s": one.oldest_s,
        }
        for one in await dashboard.queues(broker)
    ]


async def _groups(broker: "Broker") -> list[dict[str, Any]]:
    return [
        {
            "tenant": _tenant(one.tenant),
            "queue": one.queue,
            "group": one.group,
            "lag": exact(one.lag),
            "partitions_lagging": exact(one.partitions_lagging),
            "oldest_s": one.oldest_s,
        }
        for one in await dashboard.groups(broker)
    ]


async def _timers(broker: "Broker") -> dict[str, Any]:
    probe = await dashboard.timers(broker)
    return {
        "due": exact(probe.due),
        "capped": probe.due >= dashboard.DUE_CAP,
        "late_s": None if probe.late_us is None else probe.late_us / 1e6,
        "next_s": None if probe.next_us is None else probe.next_us / 1e6,
    }


async def _postgres(broker: "Broker") -> dict[str, Any]:
    health = await dashboard.postgres(broker)
    told: dict[str, Any] = health._asdict()
    numbers = ("dead_rows", "live_rows", "worst_dead_rows", "wal_bytes", "deadlocks")
    for name in (*numbers, "blocks_hit", "blocks_read", "database_bytes"):
        told[name] = exact(told[name])
    return told


async def _minutes(broker: "Broker") -> dict[str, Any]:
    rows = await dashboard.minutes(broker)
    return {"points": _points(rows), "brokers": _brokers(rows)}


def _points(rows: list[BrokerRow]) -> list[list[float | None]]:
    """[ms, pushed, delivered, acknowledged, failed, dead-lettered] a second, for each minute from
    the first that was written; a minute that nobody wrote is unknown, not idle."""
    sums: defaultdict[datetime, list[int]] = defaultdict(lambda: [0] * 5)
    for row in rows:
        for position, column in enumerate((PUSHED, POPPED, ACKED, FAILED, DEAD)):
            sums[row.bucket][position] += row.counts[column]
    if not sums:
        return []
    points: list[list[float | None]] = []
    at, last = min(sums), max(sums)
    while at <= last and len(points) <= MINUTES:
        counted = sums.get(at)
        rates = [None] * 5 if counted is None else [round(one / 60, 2) for one in counted]
        points.append([milliseconds(at), *rates])
        at += MINUTE
    return points


def _brokers(rows: list[BrokerRow]) -> list[dict[str, Any]]:
    """The latest minute of each broker that was heard of within the hour."""
    latest: dict[str, BrokerRow] = {}
    for row in rows:
        if row.server_id not in latest or row.bucket > latest[row.server_id].bucket:
            latest[row.server_id] = row
    return [
        {
            "id": server_id,
            "heard": milliseconds(row.bucket),
            "pushed_per_s": round(row.counts[PUSHED] / 60, 2),
            "popped_per_s": round(row.counts[POPPED] / 60, 2),
            "db_errors": exact(row.counts[DB_ERRORS]),
            "loop_lag_max_ms": round(row.loop_lag_max_us / 1000, 1),
            "cpu_percent": round((row.lasts[CPU_USER] + row.lasts[CPU_SYSTEM]) / 100, 1),
            "rss_bytes": exact(row.lasts[RSS_BYTES]),
            "pool_active": row.lasts[POOL_SIZE] - row.lasts[POOL_IDLE],
            "pool_size": row.lasts[POOL_SIZE],
            "parked": exact(row.lasts[PARKED]),
            "up_s": row.lasts[UP_S],
            "spool": _spool(row.spool),
        }
        for server_id, row in sorted(latest.items())
    ]


def _spool(told: list[int | None]) -> dict[str, str | None]:
    return dict(zip(("pending", "bytes", "set_aside"), map(exact, told), strict=True))


PARTS = (
    Part("totals", 4.0, _totals),
    Part("queues", 4.0, _queues),
    Part("groups", 4.0, _groups),
    Part("timers", 4.0, _timers),
    Part("postgres", 4.0, _postgres),
    Part("minutes", 10.0, _minutes),
)
