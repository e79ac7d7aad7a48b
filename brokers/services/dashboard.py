"""What the dashboard shows of the cell, and its pages of one queue, as the database knows it.

Figures of the cell are of all tenants: whoever looks after a broker looks after all of it.

Imports store, services/analytics. Called by live/parts.py and live/queue_pages.py.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.services import analytics
from brokers.store import dashboard_calls as calls
from brokers.store import status_calls, timer_calls
from brokers.store.dashboard_calls import BusyQueue, LaggingGroup, PartitionRow, PostgresHealth
from brokers.store.history_calls import BrokerRow, Filters, SeriesRow
from brokers.store.status_calls import TenantFigures
from brokers.store.timer_calls import Probe

if TYPE_CHECKING:
    from brokers.runtime import Broker

ROWS_MAX = 12
# More due timers than that are told as "at least".
DUE_CAP = 10_000
AHEAD_MS = 86_400_000
HOUR = timedelta(hours=1)


async def totals(broker: "Broker") -> TenantFigures:
    return await status_calls.tenant_figures(broker.reads.fetch, None)


async def queues(broker: "Broker") -> list[BusyQueue]:
    return await calls.queues(broker.reads.fetch, limit=ROWS_MAX)


async def groups(broker: "Broker") -> list[LaggingGroup]:
    return await calls.groups(broker.reads.fetch, None, None, limit=ROWS_MAX)


async def groups_of(
    broker: "Broker", tenant: UUID, queue: str, *, limit: int
) -> list[LaggingGroup]:
    return await calls.groups(broker.reads.fetch, tenant, queue, limit=limit)


async def partitions_of(
    broker: "Broker", tenant: UUID, queue: str, *, after: str | None, limit: int
) -> list[PartitionRow]:
    """By name, behind `after`."""
    return await calls.partitions(broker.reads.fetch, tenant, queue, after=after, limit=limit)


async def history_of(broker: "Broker", tenant: UUID, queue: str) -> list[SeriesRow]:
    """What all brokers counted for the queue in each minute of the last hour."""
    until = datetime.now(UTC)
    asked = analytics.window(until - HOUR, until)
    return await analytics.queue_series(
        broker, tenant, "queue", Filters(queue=queue), asked, keys_max=1
    )


async def postgres(broker: "Broker") -> PostgresHealth:
    return await calls.postgres_health(broker.reads.fetch)


async def timers(broker: "Broker") -> Probe:
    return await timer_calls.timer_probe(broker.reads.fetch, due_cap=DUE_CAP, ahead_ms=AHEAD_MS)


async def minutes(broker: "Broker") -> list[BrokerRow]:
    """What every broker counted in each minute of the last hour."""
    until = datetime.now(UTC)
    asked = analytics.window(until - HOUR, until)
    return await analytics.broker_series(broker, asked, None)
