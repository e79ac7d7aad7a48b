"""What tenants have of key/value state and timers, as it is counted for the list of queues.

Method: entries and timers are written through the product's procedures, and counted by those of
the usage task, some rows a step, beside whatever other tests left behind.
"""

import uuid

import pytest

from brokers.domain import DEFAULT_TENANT, KvOperation
from brokers.store import quota_calls
from brokers.store.quota_calls import Holding
from tests.store import timer_calling
from tests.store.calling import call
from tests.store.kv_calling import WAIT_MS, run

ROWS_MAX = 100
HOUR_MS = 3_600_000
ENTRIES = """
SELECT count(*),
       coalesce(sum(octet_length(ns) + octet_length(key) + octet_length(value)), 0)::bigint
  FROM queen_kv
 WHERE tenant_id = %s AND version > 0 AND (expires_at IS NULL OR expires_at > clock_timestamp())
"""
TIMERS = """
SELECT count(*), sum(octet_length(queue) + octet_length(timer_key) + octet_length(txn)
                     + octet_length(payload))::bigint
  FROM queen_timer WHERE tenant_id = %s
"""


@pytest.fixture(params=["a tenant", "the default tenant"])
def tenant(request, db):
    db.execute("DELETE FROM queen_holding")
    return uuid.uuid4() if request.param == "a tenant" else DEFAULT_TENANT


def find(db, kind):
    after = call(db, quota_calls.holding_find, kind, None, limit=2)
    while after is not None:
        after = call(db, quota_calls.holding_find, kind, after, limit=2)


def step(db, kind, every_ms=HOUR_MS):
    return call(db, quota_calls.holding_step, kind, every_ms=every_ms, rows_max=ROWS_MAX)


def count(db, kind):
    """Find and count all that were never counted; the steps that it took."""
    find(db, kind)
    steps = 0
    while step(db, kind):
        steps += 1
    return steps


def held(db, tenant):
    return call(db, quota_calls.holdings, tenant)


def found(db, statement, tenant):
    return Holding(*db.execute(statement, [tenant]).fetchone())


def put(db, tenant, *keys, **more):
    asked = [
        (tenant, KvOperation(op="put", namespace="held", key=key, value=b"12345", **more))
        for key in keys
    ]
    call(db, run, asked, wait_ms=WAIT_MS, bytes_max=10**9)


def delete(db, tenant, *keys):
    asked = [(tenant, KvOperation(op="delete", namespace="held", key=key)) for key in keys]
    call(db, run, asked, wait_ms=WAIT_MS, bytes_max=10**9)


def test_a_count_in_several_steps_finds_what_there_is_and_tells_it_when_it_is_done(db, tenant):
    keys = [f"k{no:03}" for no in range(2 * ROWS_MAX + 50)]
    put(db, tenant, *keys)
    find(db, "kv")
    assert held(db, tenant).get("kv", Holding(0, 0)) == Holding(0, 0)
    assert count(db, "kv") >= 3
    assert held(db, tenant)["kv"] == found(db, ENTRIES, tenant)
    assert held(db, tenant)["kv"].rows >= len(keys)
    delete(db, tenant, *keys)


def test_what_has_expired_is_not_counted_although_it_is_still_stored(db):
    db.execute("DELETE FROM queen_holding")
    tenant = uuid.uuid4()
    put(db, tenant, "stays", "goes")
    db.execute(
        "UPDATE queen_kv SET expires_at = now() - interval '1 hour'"
        " WHERE tenant_id = %s AND key = 'goes'",
        [tenant],
    )
    count(db, "kv")
    assert held(db, tenant)["kv"] == Holding(1, len("held" + "stays" + "12345"))


def test_timers_weigh_what_is_stored_of_them(db, tenant, fresh_queue):
    timer_calling.apply(
        db, *(timer_calling.schedule(fresh_queue, f"t{no}") for no in range(5)), tenant=tenant
    )
    count(db, "timers")
    assert held(db, tenant)["timers"] == found(db, TIMERS, tenant)
    assert held(db, tenant)["timers"].bytes >= 5 * len(fresh_queue)


def test_a_tenant_that_has_nothing_any_more_is_forgotten_at_the_next_count(db):
    db.execute("DELETE FROM queen_holding")
    tenant = uuid.uuid4()
    put(db, tenant, "k")
    count(db, "kv")
    assert held(db, tenant)["kv"].rows == 1
    delete(db, tenant, "k")
    db.execute("UPDATE queen_holding SET counted_at = now() - interval '2 hours'")
    count(db, "kv")
    assert held(db, tenant) == {}


def test_who_was_counted_a_moment_ago_is_not_counted_again(db):
    db.execute("DELETE FROM queen_holding")
    put(db, uuid.uuid4(), "k")
    count(db, "kv")
    assert step(db, "kv") is False


def test_two_who_count_do_not_wait_for_each_other(db, database):
    db.execute("DELETE FROM queen_holding")
    put(db, uuid.uuid4(), "k")
    find(db, "kv")
    with database.connect() as other, other.transaction():
        other.execute("SELECT 1 FROM queen_holding FOR UPDATE")
        assert step(db, "kv") is False
