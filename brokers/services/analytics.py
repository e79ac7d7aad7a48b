"""Analytics: what was counted over time, read back in buckets.

The longer the window the wider its buckets, and the rows that are kept for wide buckets are
read for them. A listing shows the keys that were busiest, at most so many.

History grows when a broker writes what it counted, and what was read of it is told again for half
that time (flow/recent.py). This broker's own writing ends it, so it is of other brokers, and of
retention, that one hears so much later. A window begins and ends with whole minutes, so the next
minute is read anew in any case.

Imports store. Called by services/dashboard.py and api/views/analytics.py, cell.py, status.py.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from brokers.store import history_calls as calls
from brokers.store.history_calls import (
    ALL,
    BrokerRow,
    Filters,
    NowRow,
    ParkedRow,
    RetentionRow,
    SeriesRow,
    Window,
)

if TYPE_CHECKING:
    from brokers.runtime import Broker

T = TypeVar("T")

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
# Where the database counts buckets from.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# (windows up to this long, have buckets of so many minutes)
WIDTHS: Sequence[tuple[timedelta, int]] = (
    (HOUR, 1),
    (6 * HOUR, 5),
    (24 * HOUR, 15),
    (timedelta(days=7), 60),
)
WIDEST_MINUTES = 360
WINDOW_MAX = timedelta(days=400)
# What a row that is told again takes of memory, about.
ROW_BYTES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the busiest keys did and hold, and the same of all the tenant has."""

    series: list[SeriesRow]
    now: list[NowRow]
    tenant_series: list[SeriesRow]
    tenant_now: list[NowRow]


def window(since: datetime, until: datetime) -> Window:
    """With buckets as wide as its length asks for; one that is too long begins later."""
    since = max(since, until - WINDOW_MAX)
    length = until - since
    minutes = next((width for most, width in WIDTHS if length <= most), WIDEST_MINUTES)
    return Window(since=since, until=until, minutes=minutes)


async def queue_series(
    broker: "Broker",
    tenant: UUID | None,
    by: str,
    filters: Filters,
    asked: Window,
    *,
    keys_max: int,
) -> list[SeriesRow]:
    whole = _whole(asked)
    return await _history(
        broker,
        tenant,
        ("queue series", by, filters, whole, keys_max),
        lambda: calls.queue_series(
            broker.reads.fetch, tenant, by, filters, whole, keys_max=keys_max
        ),
    )


async def parked_series(
    broker: "Broker", tenant: UUID, queue: str | None, asked: Window, *, queues_max: int
) -> list[ParkedRow]:
    whole = _whole(asked)
    return await _history(
        broker,
        tenant,
        ("parked series", queue, whole, queues_max),
        lambda: calls.parked_series(
            broker.reads.fetch, tenant, queue, whole, queues_max=queues_max
        ),
    )


async def retention_series(
    broker: "Broker", tenant: UUID, by: str, queue: str | None, asked: Window, *, keys_max: int
) -> list[RetentionRow]:
    whole = _whole(asked)
    return await _history(
        broker,
        tenant,
        ("retention series", by, queue, whole, keys_max),
        lambda: calls.retention_series(
            broker.reads.fetch, tenant, by, queue, whole, keys_max=keys_max
        ),
    )


async def broker_series(broker: "Broker", asked: Window, server_id: str | None) -> list[BrokerRow]:
    whole = _whole(asked)
    return await _history(
        broker,
        "brokers",
        ("broker series", whole, server_id),
        lambda: calls.broker_series(broker.reads.fetch, whole, server_id=server_id),
    )


async def _history(
    broker: "Broker",
    whose: UUID | str | None,
    key: Hashable,
    read: Callable[[], Coroutine[Any, Any, list[T]]],
) -> list[T]:
    """Told again for half the time between two writings of a broker."""
    fresh_s = broker.config.jobs.metrics_flush_ms / 2000
    return await broker.recent.get(whose, key, read, size=_bytes, fresh_s=fresh_s)


async def workload(
    broker: "Broker", tenant: UUID, by: str, filters: Filters, asked: Window, *, keys_max: int
) -> Workload:
    series, tenant_series, now = await asyncio.gather(
        queue_series(broker, tenant, by, filters, asked, keys_max=keys_max),
        queue_series(broker, tenant, "", ALL, asked, keys_max=1),
        _workload_now(broker, tenant, by, filters, asked),
    )
    if filters == ALL:
        tenant_now = _together(now)
    else:
        tenant_now = await _workload_now(broker, tenant, "", ALL, asked)
    return Workload(series=series, now=now, tenant_series=tenant_series, tenant_now=tenant_now)


def _together(rows: Sequence[NowRow]) -> list[NowRow]:
    """What lies under all keys: no queue is under two."""
    if not rows:
        return []
    figures = zip(*(row[3:] for row in rows), strict=True)
    return [NowRow("", "", "", *(sum(column) for column in figures))]


async def _workload_now(
    broker: "Broker", tenant: UUID, by: str, filters: Filters, asked: Window
) -> list[NowRow]:
    whole = _whole(asked)
    return await broker.recent.get(
        tenant,
        ("workload now", by, filters, whole),
        lambda: calls.workload_now(broker.reads.fetch, tenant, by, filters, whole),
        size=_bytes,
    )


def _bytes(rows: Sequence[Any]) -> int:
    return len(rows) * ROW_BYTES


def _whole(asked: Window) -> Window:
    """The same buckets, whenever within a minute one asks: none begins within one."""
    width = timedelta(minutes=asked.minutes)
    since = asked.since - (asked.since - EPOCH) % width
    until = asked.until + (EPOCH - asked.until) % MINUTE
    return Window(since=since, until=until, minutes=asked.minutes)
