"""What the dashboard alone asks: the busiest queues, the groups that lag, a page of partitions, the
health of PostgreSQL.

Method: the store's coroutines on real PostgreSQL, each test in a tenant of its own.
"""

import uuid
from typing import Any

import pytest

from brokers.store import dashboard_calls as calls
from brokers.store import leader_calls
from tests.store.calling import Lane, call
from tests.store.retaining import commit


@pytest.fixture
def tenant() -> uuid.UUID:
    return uuid.uuid4()


def count(db: Any) -> None:
    call(db, leader_calls.statistics_step, None, None, budget_ms=60_000)


def test_the_queues_that_most_waits_in_come_first_and_unknown_figures_are_none(db, tenant):
    little, much = Lane(db, "little", tenant=tenant), Lane(db, "much", tenant=tenant)
    little.push(1)
    much.push(*range(50))
    count(db)
    fresh = Lane(db, "fresh", tenant=tenant)
    fresh.push(1)
    rows = call(db, calls.queues, limit=100_000)
    ours = [row for row in rows if row.tenant == str(tenant)]
    assert [row.name for row in ours] == ["much", "little", "fresh"]
    assert [row.pending for row in ours] == [50, 1, None]
    assert ours[2].age_s is None and ours[2].pushed is None
    assert len(call(db, calls.queues, limit=1)) == 1


def test_groups_are_told_by_their_lag_and_of_one_queue_alone(db, tenant):
    orders, mails = Lane(db, "orders", tenant=tenant), Lane(db, "mails", tenant=tenant)
    for lane in (orders, mails):
        lane.push(*range(10))
    for lane, group, done in ((orders, "fast", 8), (orders, "slow", 1), (mails, "sender", 4)):
        lane.register(group)
        commit(lane, group, done)
    count(db)
    orders.register("new")
    told = call(db, calls.groups, None, None, limit=100_000)
    ours = [(row.group, row.lag) for row in told if row.tenant == str(tenant)]
    assert ours == [("slow", 8), ("sender", 5), ("fast", 1), ("new", None)]
    of_one = call(db, calls.groups, tenant, "orders", limit=10)
    assert [row.group for row in of_one] == ["slow", "fast", "new"]
    assert of_one[0].oldest_s is not None
    assert call(db, calls.groups, tenant, "nothing", limit=10) == []


def test_partitions_come_by_name_a_page_at_a_time_as_they_are_now(db, tenant):
    lanes = [Lane(db, "q", name, tenant=tenant) for name in ("a", "b", "c")]
    for number, lane in enumerate(lanes):
        lane.push(*range(number + 1))
    lanes[0].register("g")
    commit(lanes[2], "g", 0)
    first = call(db, calls.partitions, tenant, "q", after=None, limit=2)
    assert [row.name for row in first] == ["a", "b"]
    rest = call(db, calls.partitions, tenant, "q", after="b", limit=2)
    assert [(row.name, row.pending, row.last_offset) for row in rest] == [("c", 2, 2)]
    assert call(db, calls.partitions, uuid.uuid4(), "q", after=None, limit=2) == []


def test_the_oldest_transaction_is_found_with_whoever_has_it_open(db, second_connection):
    holder = second_connection()
    holder.execute("SELECT 1")
    health = call(db, calls.postgres_health)
    assert health.sees_all
    assert health.oldest_tx_s is not None and health.oldest_tx_s >= 0
    assert health.connections >= 2 and health.connections_max > health.connections
    assert health.wal_bytes and health.wal_bytes > 0
    assert not health.standby
    pids = db.execute(
        "SELECT pid FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
    ).fetchall()
    assert holder.info.backend_pid in [pid for (pid,) in pids]
