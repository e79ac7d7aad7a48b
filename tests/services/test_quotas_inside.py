"""Quotas as one broker knows them: which tenants are near a bound.

Method: a broker in the test's own loop on the real database; quota rows and what is used of them
are written over a connection of the test's own, and the broker is told to look.
"""

import uuid

import pytest

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


async def test_the_default_tenant_is_never_hot(start_client, db):
    quotas = (await start_client(**TENANTS)).broker.quotas
    await quotas.admit_push(uuid.UUID(int=1), 1, 10**9)
    assert quotas.hot() == set()
    assert quotas.figures()[0] == 0
