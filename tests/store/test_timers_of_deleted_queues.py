"""Timers of a deleted queue: gone for every reader at once, removed behind it in bounded steps.

Method: the store's coroutines on real PostgreSQL, in a database of this file's own, since a
broker would reclaim as well. A second connection holds a transaction open at the point in
question, so both orders of a race are made and not awaited.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.store import chore_calls, management_calls, timer_calls
from tests import harness
from tests.harness import eventually as wait_until
from tests.store.calling import Lane, call, waits_for_lock
from tests.store.timer_calling import (
    apply,
    cancel,
    claim,
    fail,
    fire,
    peek,
    schedule,
    statuses,
    stored,
)


@pytest.fixture(scope="module")
def database(postgres):
    own = harness.make_database(postgres, f"queen_{harness.WORKER}_{uuid.uuid4().hex[:8]}")
    yield own
    harness.drop_database(own)


@pytest.fixture(autouse=True)
def nothing_left_behind(db):
    db.execute("DELETE FROM queen_timer")
    yield
    db.execute("DELETE FROM queen_timer")
    db.execute("DELETE FROM queen_timer_reclaim")


@pytest.fixture
def watching(db):
    with psycopg.connect(**db.info.get_parameters(), autocommit=True) as watcher:
        yield watcher


def delete(db, queue, tenant=DEFAULT_TENANT):
    return call(db, management_calls.queue_delete, tenant, queue)


def reclaim(db, rows_max=1000):
    return call(db, chore_calls.queue_reclaim, rows_max=rows_max)


def reclaim_all(db):
    while reclaim(db):
        pass


def keys(db, queue):
    page = call(db, timer_calls.timer_list, DEFAULT_TENANT, queue, after=None, limit=1000)
    return [one.key for one in page]


def count(db, queue, prefix="k"):
    return call(
        db, timer_calls.timer_count, DEFAULT_TENANT, queue, prefix=prefix, count_max=1_000_000
    )


def rows(db, queue):
    """Rows in the table, whether or not anybody can still see them as timers."""
    statement = "SELECT count(*) FROM queen_timer WHERE queue = %s"
    return db.execute(statement, [queue]).fetchone()[0]


def being_reclaimed(db, queue):
    statement = "SELECT count(*) FROM queen_timer_reclaim WHERE queue = %s"
    return bool(db.execute(statement, [queue]).fetchone()[0])


def forgotten(db, queue):
    """Its row leaves once nothing that began before the delete can commit, in any database."""

    def gone():
        reclaim_all(db)
        return not being_reclaimed(db, queue)

    return wait_until(gone, 60)


def test_what_a_delete_took_is_gone_for_every_reader_before_any_row_is(db, fresh_queue):
    Lane(db, fresh_queue)
    apply(db, *[schedule(fresh_queue, key) for key in ("k1", "k2", "k3")])
    delete(db, fresh_queue)
    assert rows(db, fresh_queue) == 3
    assert peek(db, fresh_queue, "k1") is None
    assert keys(db, fresh_queue) == []
    assert count(db, fresh_queue) == 0
    assert statuses(db, cancel(fresh_queue, "k1")) == ["absent"]


def test_a_key_may_be_scheduled_anew_at_once_and_survives_the_reclaim(db, fresh_queue):
    Lane(db, fresh_queue)
    apply(db, *[schedule(fresh_queue, key, payload=b'"old"') for key in ("k1", "k2", "k3")])
    old = peek(db, fresh_queue, "k2")
    delete(db, fresh_queue)
    assert statuses(db, schedule(fresh_queue, "k2", payload=b'"new"')) == ["scheduled"]
    new = peek(db, fresh_queue, "k2")
    assert new.payload == b'"new"' and new.created_us > old.created_us
    assert statuses(db, schedule(fresh_queue, "k2", payload=b'"newer"')) == ["rescheduled"]
    reclaim_all(db)
    assert keys(db, fresh_queue) == ["k2"]
    assert rows(db, fresh_queue) == 1
    assert forgotten(db, fresh_queue)
    assert peek(db, fresh_queue, "k2").payload == b'"newer"'


def test_a_key_that_was_claimed_when_its_queue_was_deleted_is_free(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    apply(db, schedule(fresh_queue, "k1", -1), schedule(fresh_queue, "k2", -1))
    token, timers = claim(db)
    delete(db, fresh_queue)
    assert statuses(db, cancel(fresh_queue, "k2"), schedule(fresh_queue, "k1")) == [
        "absent",
        "scheduled",
    ]
    assert not peek(db, fresh_queue, "k1").claimed
    assert fire(db, token, lane, timers).verdict == "short"


def test_every_delete_ends_a_generation(db, fresh_queue):
    for payload in (b"1", b"2", b"3"):
        Lane(db, fresh_queue)
        assert statuses(db, schedule(fresh_queue, "k1", payload=payload)) == ["scheduled"]
        assert peek(db, fresh_queue, "k1").payload == payload
        assert delete(db, fresh_queue) == 1
        assert keys(db, fresh_queue) == []
    reclaim_all(db)
    assert rows(db, fresh_queue) == 0
    Lane(db, fresh_queue)
    assert statuses(db, schedule(fresh_queue, "k1")) == ["scheduled"]
    delete(db, fresh_queue)
    assert keys(db, fresh_queue) == [], "also after the first ones were forgotten"


def test_other_queues_and_other_tenants_keep_their_timers(db, fresh_queue):
    other = uuid.uuid4()
    Lane(db, fresh_queue)
    apply(db, schedule(fresh_queue, "k1"), schedule(fresh_queue + "x", "k1"))
    apply(db, schedule(fresh_queue, "k1"), tenant=other)
    delete(db, fresh_queue)
    reclaim_all(db)
    assert peek(db, fresh_queue, "k1") is None
    assert peek(db, fresh_queue + "x", "k1") is not None
    assert peek(db, fresh_queue, "k1", other) is not None


def test_timers_that_wait_for_a_queue_which_was_never_there_stay(db, fresh_queue):
    apply(db, schedule(fresh_queue, "k1"))
    assert delete(db, fresh_queue) is None
    assert keys(db, fresh_queue) == ["k1"]
    assert not being_reclaimed(db, fresh_queue)


# --- size ---------------------------------------------------------------------------------------


def test_two_hundred_thousand_timers_are_deleted_by_one_row_and_removed_in_steps(db, fresh_queue):
    Lane(db, fresh_queue)
    db.execute(
        "INSERT INTO queen_timer (tenant_id, queue, timer_key, partition, deliver_at, txn,"
        " message_id, payload, shard) SELECT %s, %s, 'k' || n, 'p', clock_timestamp() +"
        " interval '7 days', '\"t\"', gen_random_uuid(), '0', n %% 64"
        " FROM generate_series(1, 200000) AS n",
        [DEFAULT_TENANT, fresh_queue],
    )
    assert count(db, fresh_queue) == 200_000

    def written() -> int:
        db.execute("SELECT pg_stat_force_next_flush()")
        [[number]] = db.execute(
            "SELECT n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables"
            " WHERE relname = 'queen_timer'"
        ).fetchall()
        return number

    before = written()
    assert delete(db, fresh_queue) == 1
    assert written() == before, "the delete's transaction touches no timer"
    assert (count(db, fresh_queue), keys(db, fresh_queue)) == (0, [])
    assert rows(db, fresh_queue) == 200_000

    apply(db, *[schedule(fresh_queue, f"k{no}") for no in (1, 100_000, 200_000)])
    steps = 0
    while done := reclaim(db, rows_max=5000):
        steps += 1
        assert done <= 5000
    assert steps >= 40
    assert sorted(keys(db, fresh_queue)) == ["k1", "k100000", "k200000"]
    assert rows(db, fresh_queue) == 3
    assert forgotten(db, fresh_queue)


def test_a_step_is_bounded_in_payload_bytes_too(db, fresh_queue):
    Lane(db, fresh_queue)
    payload = b'"' + b"x" * 1_000_000 + b'"'
    for no in range(80):
        apply(db, schedule(fresh_queue, f"k{no:02}", payload=payload))
    delete(db, fresh_queue)
    assert reclaim(db) > 0
    assert 0 < rows(db, fresh_queue) <= 16
    reclaim_all(db)
    assert rows(db, fresh_queue) == 0
    assert forgotten(db, fresh_queue)


def test_reclaimers_do_not_wait_and_what_is_held_is_left_for_a_later_step(
    db, second_connection, fresh_queue
):
    Lane(db, fresh_queue)
    apply(db, schedule(fresh_queue, "k1"), schedule(fresh_queue, "k2"))
    delete(db, fresh_queue)
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_timer WHERE timer_key = 'k1' FOR UPDATE")
    db.execute("SET lock_timeout = '1s'")
    try:
        reclaim_all(db)
        assert rows(db, fresh_queue) == 1
        assert being_reclaimed(db, fresh_queue)
        holder.rollback()
        wait_until(lambda: reclaim(db) == 0 and not being_reclaimed(db, fresh_queue))
    finally:
        db.execute("RESET lock_timeout")
    assert rows(db, fresh_queue) == 0


# --- a schedule against a delete ----------------------------------------------------------------


def test_a_schedule_that_saw_no_delete_is_before_it_even_if_it_commits_later(
    db, second_connection, fresh_queue
):
    Lane(db, fresh_queue)
    scheduler = second_connection()
    assert statuses(scheduler, schedule(fresh_queue, "k1", -1)) == ["scheduled"]
    delete(db, fresh_queue)
    reclaim_all(db)
    assert being_reclaimed(db, fresh_queue), "somebody may still add to what was deleted"
    scheduler.commit()
    assert rows(db, fresh_queue) == 1
    assert (keys(db, fresh_queue), peek(db, fresh_queue, "k1")) == ([], None)
    Lane(db, fresh_queue)
    assert claim(db)[1] == []
    wait_until(lambda: reclaim(db) == 0 and not being_reclaimed(db, fresh_queue))
    assert rows(db, fresh_queue) == 0


def test_a_schedule_does_not_wait_for_a_delete_and_what_it_commits_first_goes_with_it(
    db, second_connection, fresh_queue
):
    Lane(db, fresh_queue)
    deleter = second_connection()
    assert delete(deleter, fresh_queue) == 1
    assert statuses(db, schedule(fresh_queue, "k1")) == ["scheduled"]
    assert keys(db, fresh_queue) == ["k1"]
    deleter.commit()
    assert keys(db, fresh_queue) == []


def test_a_delete_that_is_rolled_back_took_nothing(db, second_connection, fresh_queue):
    Lane(db, fresh_queue)
    apply(db, schedule(fresh_queue, "k1"))
    deleter = second_connection()
    delete(deleter, fresh_queue)
    deleter.rollback()
    reclaim_all(db)
    assert keys(db, fresh_queue) == ["k1"]


def test_a_schedule_from_before_a_delete_that_meets_a_timer_from_after_it_keeps_that_alive(
    db, database, second_connection, watching, fresh_queue
):
    Lane(db, fresh_queue)
    holder = second_connection()
    apply(holder, schedule(fresh_queue, "k1"))
    with ThreadPoolExecutor(1) as pool, database.connect() as early:
        # It has looked which deletes there were, and waits at its first key.
        batch = [schedule(fresh_queue, key, payload=b'"early"') for key in ("k1", "k2")]
        waiting = pool.submit(statuses, early, *batch)
        wait_until(lambda: waits_for_lock(watching))
        delete(db, fresh_queue)
        assert statuses(db, schedule(fresh_queue, "k2", payload=b'"late"')) == ["scheduled"]
        holder.commit()
        assert waiting.result(10) == ["rescheduled", "rescheduled"]
    assert keys(db, fresh_queue) == ["k2"]
    assert peek(db, fresh_queue, "k2").payload == b'"early"'
    wait_until(lambda: reclaim(db) == 0 and not being_reclaimed(db, fresh_queue))
    assert keys(db, fresh_queue) == ["k2"]


# --- a fire against a delete --------------------------------------------------------------------


def test_a_claimed_timer_does_not_enter_the_next_queue_of_its_name(db, fresh_queue):
    Lane(db, fresh_queue)
    apply(db, schedule(fresh_queue, "k1", -1))
    token, timers = claim(db)
    delete(db, fresh_queue)
    again = Lane(db, fresh_queue)
    assert call(db, timer_calls.timer_held, token, [one.place for one in timers]) == []
    row = fire(db, token, again, timers)
    assert (row.verdict, row.held) == ("short", [])
    assert stored(db, fresh_queue) == []


def test_of_a_claim_the_timers_of_other_queues_are_still_held(db, fresh_queue):
    Lane(db, fresh_queue)
    other = Lane(db, fresh_queue + "x")
    apply(db, schedule(fresh_queue, "k1", -1), schedule(fresh_queue + "x", "k1", -1))
    token, timers = claim(db)
    timers.sort(key=lambda one: one.queue)
    delete(db, fresh_queue)
    assert call(db, timer_calls.timer_held, token, [one.place for one in timers]) == [2]
    assert fire(db, token, other, timers[1:]).verdict == "stored"


def test_a_delete_waits_for_a_fire_under_way_and_takes_what_it_stored(
    db, database, second_connection, watching, fresh_queue
):
    lane = Lane(db, fresh_queue)
    apply(db, schedule(fresh_queue, "k1", -1))
    token, timers = claim(db)
    firing = second_connection()
    assert fire(firing, token, lane, timers).verdict == "stored"
    with ThreadPoolExecutor(1) as pool, database.connect() as own:
        deleting = pool.submit(delete, own, fresh_queue)
        wait_until(lambda: waits_for_lock(watching))
        firing.commit()
        assert deleting.result(10) == 1
    Lane(db, fresh_queue)
    assert stored(db, fresh_queue) == []
    assert rows(db, fresh_queue) == 0


def test_a_fire_that_waits_for_a_delete_finds_its_partition_gone_and_then_its_timers(
    db, database, second_connection, watching, fresh_queue
):
    lane = Lane(db, fresh_queue)
    apply(db, schedule(fresh_queue, "k1", -1))
    token, timers = claim(db)
    deleter = second_connection()
    delete(deleter, fresh_queue)
    with ThreadPoolExecutor(1) as pool, database.connect() as own:
        firing = pool.submit(fire, own, token, lane, timers, 5000)
        wait_until(lambda: waits_for_lock(watching))
        deleter.commit()
        assert firing.result(10).verdict == "stale"
    assert fire(db, token, Lane(db, fresh_queue), timers).verdict == "short"
    assert stored(db, fresh_queue) == []


def test_a_claim_removes_the_dead_that_it_meets_and_goes_on_to_the_living(db, fresh_queue):
    Lane(db, fresh_queue)
    apply(db, *[schedule(fresh_queue, f"k{no:02}", -1000) for no in range(50)])
    delete(db, fresh_queue)
    apply(db, schedule(fresh_queue, "k50", -1), schedule(fresh_queue, "k01", -1))
    claimed = claim(db, limit=20)[1]
    assert {one.transaction_literal for one in claimed} == {'"txn-k50"', '"txn-k01"'}
    assert rows(db, fresh_queue) < 52


def test_a_poisoned_timer_of_a_deleted_queue_is_nobodys_dead_letter(db, fresh_queue):
    Lane(db, fresh_queue)
    apply(db, schedule(fresh_queue, "k1", -1))
    token, timers = claim(db)
    delete(db, fresh_queue)
    again = Lane(db, fresh_queue)
    assert fail(db, token, timers, lane=again, error="poison", attempts_max=1) == []
    assert again.count("queen_dead_letter") == 0
