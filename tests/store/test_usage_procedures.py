"""What metered tenants have, counted by those who add and remove: exact, and nobody deadlocks.

Method: sixteen connections play sixteen brokers, at random; afterwards the sum that was kept must
be what a count finds.
"""

import random
import uuid
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from brokers.domain import KvOperation
from brokers.store import quota_calls, timer_calls
from tests.harness import eventually
from tests.store import timer_calling
from tests.store.calling import call
from tests.store.kv_calling import run

CONNECTIONS = 16
ROUNDS = 15


def metered(db, **quota: int) -> uuid.UUID:
    tenant = uuid.uuid4()
    names = ", ".join(["tenant_id", *quota])
    marks = ", ".join(["%s"] * (1 + len(quota)))
    db.execute(f"INSERT INTO queen_quota ({names}) VALUES ({marks})", [tenant, *quota.values()])
    return tenant


def kept(db, tenant, kind):
    return db.execute(
        "SELECT usage.rows + coalesce(sum(delta.rows), 0)::bigint,"
        "       usage.bytes + coalesce(sum(delta.bytes), 0)::bigint"
        "  FROM queen_usage usage LEFT JOIN queen_usage_delta delta USING (tenant_id, kind)"
        " WHERE usage.tenant_id = %s AND usage.kind = %s GROUP BY usage.rows, usage.bytes",
        [tenant, kind],
    ).fetchone()


def stored(db, tenant):
    return db.execute(
        "SELECT count(*), coalesce(sum(octet_length(ns) + octet_length(key)"
        " + octet_length(value)), 0)::bigint FROM queen_kv WHERE tenant_id = %s",
        [tenant],
    ).fetchone()


def an_operation(dice: random.Random) -> KvOperation:
    key = f"k{dice.randrange(12)}"
    if dice.random() < 0.4:
        return KvOperation(op="delete", namespace="n", key=key)
    made = KvOperation(op="put", namespace="n", key=key, value=b"1" * dice.randrange(1, 90))
    made.ttl_s = dice.choice([None, None, 1])
    return made


def refusal(*arguments, **options) -> str:
    """The SQLSTATE that a call was refused with, or nothing."""
    try:
        call(*arguments, **options)
    except psycopg.Error as error:
        return error.sqlstate or "unknown"
    return ""


def test_brokers_that_add_remove_prune_and_count_stay_exact_and_never_deadlock(database, db):
    tenants = [metered(db, max_rows=8, max_bytes=400) for _ in range(3)]

    def work(number: int) -> int:
        dice, refused = random.Random(number), 0
        with database.connect() as connection:
            for _ in range(ROUNDS):
                # Several tenants in one call, in any order, as shared calls have them.
                asked = [(tenant, an_operation(dice)) for tenant in dice.sample(tenants, 2)]
                wait_ms = dice.choice([0, 20_000])
                state = refusal(connection, run, asked, wait_ms=wait_ms, bytes_max=10**9)
                assert state in ("", "QN031", "55P03")
                refused += state == "QN031"
                for tenant in tenants:
                    rows, size = stored(connection, tenant)
                    assert rows <= 8 and size <= 400, "what is committed is within the quota"
                if dice.random() < 0.3:
                    connection.execute("SELECT * FROM queen_kv_prune_v1(100)")
                if dice.random() < 0.2:
                    connection.execute(
                        "SELECT queen_usage_count_v1(%s, 'kv')", [dice.choice(tenants)]
                    )
        return refused

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        assert sum(pool.map(work, range(CONNECTIONS))) > 0, "nobody met a quota"
    for tenant in tenants:
        assert kept(db, tenant, "kv") == stored(db, tenant)


HELD = """
CREATE TABLE gate (shut integer);
INSERT INTO gate VALUES (1);
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM gate) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER wait_at_gate AFTER UPDATE ON queen_kv
   FOR EACH ROW WHEN (NEW.key = 'k2') EXECUTE FUNCTION wait_at_gate();
"""
SLEEPS = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep')"


def test_what_another_call_does_to_a_key_that_was_busy_is_counted_by_that_call_alone(
    fresh_database,
):
    def put(key):
        return tenant, KvOperation(op="put", namespace="n", key=key, value=b"1")

    options = {"wait_ms": 0, "bytes_max": 10**9}
    database = fresh_database()
    with database.connect() as db, database.connect() as other, database.connect() as third:
        tenant = metered(db, max_rows=8)
        call(db, run, [put("k1")], **options)
        db.execute(HELD)
        other.execute("BEGIN")
        gone = KvOperation(op="delete", namespace="n", key="k1")
        call(other, run, [(tenant, gone)], **options)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(call, third, run, [put("k1"), put("k2")], **options)
            eventually(lambda: db.execute(SLEEPS).fetchone()[0])
            other.execute("COMMIT")
            db.execute("DELETE FROM gate")
            slow.result(timeout=60)
        assert kept(db, tenant, "kv") == stored(db, tenant) == (1, 4)


def test_timers_that_come_and_go_are_counted(database, db):
    tenant = metered(db, max_timers=5)

    def work(number: int) -> None:
        dice = random.Random(number)
        with database.connect() as connection:
            for _ in range(ROUNDS):
                key = f"t{dice.randrange(8)}"
                make = timer_calling.cancel if dice.random() < 0.4 else timer_calling.schedule
                state = refusal(connection, timer_calls.timer_apply, tenant, [make("q", key)])
                assert state in ("", "QN032")

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(work, range(CONNECTIONS)))
    [count] = db.execute(
        "SELECT count(*) FROM queen_timer WHERE tenant_id = %s", [tenant]
    ).fetchone()
    assert kept(db, tenant, "timers")[0] == count <= 5
    db.execute("DELETE FROM queen_timer WHERE tenant_id = %s", [tenant])
    assert kept(db, tenant, "timers")[0] == 0, "in whichever way they go"


def test_a_tenant_without_bounds_is_not_counted(db):
    tenant = metered(db)
    asked = [(tenant, KvOperation(op="put", namespace="n", key="k", value=b"1"))]
    call(db, run, asked, wait_ms=0, bytes_max=10**9)
    assert kept(db, tenant, "kv") is None


@pytest.mark.parametrize(
    ("quota", "percent"),
    [
        ({}, None),
        ({"max_queues": 1}, None),
        ({"max_rows": 8}, 25.0),
        ({"max_rows": 8, "max_bytes": 12}, 50.0),
        ({"max_rows": 8, "max_timers": 2}, 50.0),
        ({"max_rows": 8, "max_bytes": 12, "max_timers": 1}, 100.0),
        ({"max_rows": 8, "max_timers": 1}, 100.0),
    ],
)
def test_of_several_bounds_the_nearest_tells_how_much_is_used(db, quota, percent):
    tenant = metered(db, **quota)
    put = [(tenant, KvOperation(op="put", namespace="n", key=key, value=b"1")) for key in "abc"]
    call(db, run, put, wait_ms=0, bytes_max=10**9)
    call(db, timer_calls.timer_apply, tenant, [timer_calling.schedule("q", "t")])
    # What is only a delta yet is taken off too.
    call(db, run, [(tenant, KvOperation(op="delete", namespace="n", key="a"))],
         wait_ms=0, bytes_max=10**9)  # fmt: skip
    [row] = call(db, quota_calls.quota_list, [tenant])
    assert row.used_percent == percent


def test_who_may_have_nothing_has_used_all_of_it(db):
    [row] = call(db, quota_calls.quota_list, [metered(db, max_rows=0)])
    assert row.used_percent == 100


def test_who_removes_does_not_wait_for_who_adds(db, second_connection):
    tenant = metered(db, max_rows=10)
    put = [(tenant, KvOperation(op="put", namespace="n", key=key, value=b"1")) for key in "ab"]
    call(db, run, put, wait_ms=0, bytes_max=10**9)
    adding = second_connection()
    adding.execute("SELECT 1 FROM queen_usage WHERE tenant_id = %s FOR UPDATE", [tenant])
    remove = [(tenant, KvOperation(op="delete", namespace="n", key="a"))]
    call(db, run, remove, wait_ms=0, bytes_max=10**9)
    more = [(tenant, KvOperation(op="put", namespace="n", key="c", value=b"1"))]
    assert refusal(db, run, more, wait_ms=0, bytes_max=10**9) == "55P03"
    adding.rollback()
    assert kept(db, tenant, "kv") == stored(db, tenant)
