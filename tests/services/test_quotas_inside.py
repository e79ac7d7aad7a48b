"""Quotas as one broker knows them: which tenants are near a bound.

Method: a broker in the test's own loop on the real database; quota rows and what is used of them
are written over a connection of the test's own, and the broker is told to look.
"""

import asyncio
import time
import uuid

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.errors import BrokerError, RequestError
from brokers.runtime import Broker
from brokers.services import queues
from brokers.services import quotas as quota_service
from brokers.services.term import Term

TENANTS = {
    "QUEEN_TENANCY_HEADER": "true",
    "QUEEN_KV_TRUSTED_PROXY": "true",
    "QUEEN_KV_QUOTA_REFRESH_MS": "600000",
}


@pytest.fixture
def metered(db):
    def make(**quota: int) -> uuid.UUID:
        tenant = uuid.uuid4()
        names = ", ".join(["tenant_id", *quota])
        marks = ", ".join(["%s"] * (1 + len(quota)))
        db.execute(f"INSERT INTO queen_quota ({names}) VALUES ({marks})", [tenant, *quota.values()])
        return tenant

    return make


def use(db, tenant: uuid.UUID, kind: str, rows: int) -> None:
    db.execute(
        "INSERT INTO queen_usage (tenant_id, kind, rows) VALUES (%(tenant)s, %(kind)s, %(rows)s)"
        " ON CONFLICT (tenant_id, kind) DO UPDATE SET rows = %(rows)s",
        {"tenant": tenant, "kind": kind, "rows": rows},
    )


@pytest.mark.parametrize(("percent", "cool", "hot"), [(None, 79, 80), ("50", 49, 50)])
async def test_a_tenant_is_hot_from_the_configured_share_of_a_bound_on(
    start_client, db, metered, percent, cool, hot
):
    more = {} if percent is None else {"QUEEN_KV_QUOTA_HOT_PERCENT": percent}
    quotas = (await start_client(**TENANTS, **more)).broker.quotas
    tenant, idle = metered(max_timers=100, max_rows=10**6), metered(max_rows=100)
    for count, expected in ((cool, set()), (hot, {tenant}), (cool, set())):
        use(db, tenant, "timers", count)
        for one in (tenant, idle):
            await quotas.granted(one)
        await quotas.refresh()
        assert quotas.hot() == expected


async def test_what_was_pushed_since_the_measure_counts_towards_the_retained_bytes(
    start_client, metered
):
    quotas = (await start_client(**TENANTS)).broker.quotas
    tenant, other = metered(max_retained_bytes=1000), metered()
    await quotas.admit_push(other, 1, 10**6)
    await quotas.admit_push(tenant, 1, 790)
    assert quotas.hot() == set()
    await quotas.admit_push(tenant, 1, 10)
    assert quotas.hot() == {tenant}


def measure(db, tenant: uuid.UUID, size: int, minutes_ago: int) -> None:
    """As the retained-bytes task leaves it, of the tenant's one queue."""
    db.execute(
        "INSERT INTO queen_queue (tenant_id, name) VALUES (%s, 'q') ON CONFLICT DO NOTHING",
        [tenant],
    )
    db.execute(
        "INSERT INTO queen_queue_statistics (queue_id, computed_at, next_at, partitions, total,"
        " pending, processing, completed, dead_letters, bytes, bytes_at)"
        " SELECT id, now(), now(), 1, 0, 0, 0, 0, 0, %(size)s,"
        "        now() - make_interval(mins => %(minutes)s)"
        "   FROM queen_queue WHERE tenant_id = %(tenant)s"
        " ON CONFLICT (queue_id)"
        " DO UPDATE SET bytes = excluded.bytes, bytes_at = excluded.bytes_at",
        {"tenant": tenant, "size": size, "minutes": minutes_ago},
    )


async def test_a_measure_that_finds_as_much_as_before_makes_room_for_what_was_pushed(
    start_client, db, metered
):
    """Whoever consumes as fast as it pushes must not be refused after some time."""
    quotas = (await start_client(**TENANTS)).broker.quotas
    tenant = metered(max_retained_bytes=1000)
    measure(db, tenant, 0, minutes_ago=60)
    for minutes in (50, 40, 30):
        await quotas.admit_push(tenant, 1, 900)
        measure(db, tenant, 0, minutes_ago=minutes)
        await quotas.refresh()
    await quotas.admit_push(tenant, 1, 1000)
    with pytest.raises(RequestError, match="retains more bytes"):
        await quotas.admit_push(tenant, 1, 1)


async def test_what_was_pushed_is_not_forgotten_while_its_tenant_rests(start_client, db, metered):
    """Else it could push as much again after each rest, until somebody measures."""
    quotas = (await start_client(**TENANTS)).broker.quotas
    tenant, other = metered(max_retained_bytes=1000), metered(push_rate=1000)
    await quotas.admit_push(tenant, 1, 1000)
    await quotas.admit_push(other, 1, 1000)
    for _ in range(3):
        await quotas.refresh()
    assert quotas.figures()[0] == 1, "of the other nothing has to be kept"
    with pytest.raises(RequestError, match="retains more bytes"):
        await quotas.admit_push(tenant, 1, 1)
    measure(db, tenant, 500, minutes_ago=0)
    await quotas.refresh()
    await quotas.admit_push(tenant, 1, 1)


async def test_of_what_is_soft_each_broker_lets_in_its_own_share_and_no_more(start_client, metered):
    """The documented bound: between two measures every broker goes by what it has seen itself."""
    brokers = [(await start_client(**TENANTS)).broker for _ in range(2)]
    fast, large = metered(push_rate=5), metered(max_retained_bytes=1000)
    began = time.monotonic()

    async def let_in(broker: Broker, tenant: uuid.UUID) -> bool:
        try:
            await broker.quotas.admit_push(tenant, 1, 100)
        except BrokerError:
            return False
        return True

    async def sixteen(tenant: uuid.UUID) -> int:
        asked = [let_in(broker, tenant) for _ in range(16) for broker in brokers]
        return sum(await asyncio.gather(*asked))

    pushed, held = await sixteen(fast), await sixteen(large)
    earned = 2 * 5 * (time.monotonic() - began)
    assert 2 * 10 <= pushed <= 2 * 10 + earned
    assert held == 2 * 10


async def test_the_default_tenant_is_never_hot(start_client, db):
    quotas = (await start_client(**TENANTS)).broker.quotas
    await quotas.admit_push(uuid.UUID(int=1), 1, 10**9)
    assert quotas.hot() == set()
    assert quotas.figures()[0] == 0


async def test_whoever_leads_counts_what_the_default_tenant_has(start_client, db):
    broker = (await start_client()).broker
    db.execute("DELETE FROM queen_holding")
    db.execute(
        "INSERT INTO queen_kv (tenant_id, ns, key, value, version)"
        " VALUES (%s, 'led', 'k', 'true', 1) ON CONFLICT DO NOTHING",
        [DEFAULT_TENANT],
    )
    await quota_service.cycle(broker, Term(token=0, ends_at=time.monotonic() + 60))
    entries, _ = await queues.holdings(broker, DEFAULT_TENANT)
    assert entries.rows >= 1
    assert entries.bytes >= len("led" + "k" + "true")
