"""Analytics: what was counted over time, read back in buckets.

The longer the window the wider its buckets, and the rows that are kept for wide buckets are
read for them. A listing shows the keys that were busiest, at most so many.

Imports store. Called by api/views/analytics.py, cell.py and status.py.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
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

HOUR = timedelta(hours=1)
# (windows up to this long, have buckets of so many minutes)
WIDTHS: Sequence[tuple[timedelta, int]] = (
    (HOUR, 1),
    (6 * HOUR, 5),
    (24 * HOUR, 15),
    (timedelta(days=7), 60),
)
WIDEST_MINUTES = 360
WINDOW_MAX = timedelta(days=400)


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
    return await calls.queue_series(
        broker.reads.fetch, tenant, by, filters, asked, keys_max=keys_max
    )


async def parked_series(
    broker: "Broker", tenant: UUID, queue: str | None, asked: Window, *, queues_max: int
) -> list[ParkedRow]:
    return await calls.parked_series(
        broker.reads.fetch, tenant, queue, asked, queues_max=queues_max
    )


async def retention_series(
    broker: "Broker", tenant: UUID, by: str, queue: str | None, asked: Window, *, keys_max: int
) -> list[RetentionRow]:
    return await calls.retention_series(
        broker.reads.fetch, tenant, by, queue, asked, keys_max=keys_max
    )


async def broker_series(broker: "Broker", asked: Window, server_id: str | None) -> list[BrokerRow]:
    return await calls.broker_series(broker.reads.fetch, asked, server_id=server_id)


async def workload(
    broker: "Broker", tenant: UUID, by: str, filters: Filters, asked: Window, *, keys_max: int
) -> Workload:
    fetch, everything = broker.reads.fetch, ALL
    series, tenant_series, now, tenant_now = await asyncio.gather(
        calls.queue_series(fetch, tenant, by, filters, asked, keys_max=keys_max),
        calls.queue_series(fetch, tenant, "", everything, asked, keys_max=1),
        calls.workload_now(fetch, tenant, by, filters, asked),
        calls.workload_now(fetch, tenant, "", everything, asked),
    )
    return Workload(series=series, now=now, tenant_series=tenant_series, tenant_now=tenant_now)
