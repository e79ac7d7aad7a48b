"""The redrive procedures: what a job finds, steps that are all or nothing, races.

Method: the store's coroutines on real PostgreSQL; a second connection holds the locks. The
tests lead the task themselves.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.store import management_calls
from brokers.store import redrive_calls as calls
from brokers.store.redrive_calls import Filter
from tests.store.calling import Lane, call, waits_for_lock
from tests.store.redriving import begin, letters, payloads_of, shown, step, turn
from tests.store.retaining import lead


@pytest.fixture
def token(db):
    db.execute("UPDATE queen_redrive SET state = 'cancelled' WHERE state = 'running'")
    return lead(db, "redrive")


def errors(lane: Lane, *texts: str) -> None:
    """Give the dead letters of a partition these errors, in the order of their offsets."""
    for offset, text in enumerate(texts):
        lane.db.execute(
            "UPDATE queen_dead_letter SET error = %s WHERE partition_id = %s"
            " AND message_offset = %s",
            [text, lane.id, offset],
        )


def payloads(page) -> list[bytes]:
    return [letter.payload for letter in page.letters]


def delete_queue(db, queue: str) -> None:
    call(db, management_calls.queue_delete, DEFAULT_TENANT, queue)


# --- what a job finds ---------------------------------------------------------------------------


def test_a_job_finds_the_letters_of_its_queue_the_oldest_first(db, fresh_queue):
    a, b = Lane(db, fresh_queue, "a"), Lane(db, fresh_queue, "b")
    for number in range(3):
        a.bury(f"a{number}")
        b.bury(f"b{number}")
    Lane(db, f"{fresh_queue}-other").bury("other")
    Lane(db, fresh_queue, tenant=uuid.uuid4()).bury("foreign")
    page = letters(db, begin(db, fresh_queue))
    assert payloads(page) == [b'"a0"', b'"b0"', b'"a1"', b'"b1"', b'"a2"', b'"b2"']
    assert (page.queue, page.tenant, page.queue_gone) == (fresh_queue, DEFAULT_TENANT, False)
    assert (page.looks, page.at_end) == (6, True)


def test_a_filter_narrows_a_job_to_a_group_a_text_and_a_time(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury(0, 1, 2, 3)
    lane.bury_at(1, "h")
    errors(lane, "Connection refused", "timeout 100%", "timeout_100x", "connection refused")
    assert payloads(letters(db, begin(db, fresh_queue, group="h"))) == [b"1"]
    assert payloads(letters(db, begin(db, fresh_queue, error="onnection"))) == [b"0", b"3"]
    assert payloads(letters(db, begin(db, fresh_queue, error="0%", group="g"))) == [b"1"]
    assert payloads(letters(db, begin(db, fresh_queue, group="nobody"))) == []
    times = [
        lane.scalar(
            "SELECT failed_at FROM queen_dead_letter WHERE partition_id = %s"
            " AND consumer_group = 'g' AND message_offset = %s",
            lane.id,
            offset,
        )
        for offset in range(4)
    ]
    one = begin(db, fresh_queue, since=times[1], until=times[2])
    assert payloads(letters(db, one)) == [b"1", b"2"]


def test_what_fails_after_a_job_began_is_no_part_of_it(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury("before")
    later = datetime.now(UTC) + timedelta(days=1)
    one = begin(db, fresh_queue, until=later)
    lane.bury("after")
    assert payloads(letters(db, one)) == [b'"before"']
    assert shown(db, one).until < later


def test_a_look_is_bounded_in_rows_bytes_and_looks_and_goes_on(db, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    lane.bury(*["x" * 10] * 10)
    one = begin(db, fresh_queue)
    assert len(letters(db, one, rows_max=3).letters) == 3
    assert len(letters(db, one, bytes_max=30).letters) == 2
    assert len(letters(db, one, bytes_max=1).letters) == 1
    assert len(letters(db, begin(db, fresh_queue, rate=8)).letters) == 2
    page = letters(db, one, looks_max=4)
    assert (len(page.letters), page.looks, page.at_end) == (4, 4, False)
    assert step(db, token, one, page, lane).verdict == "moved"
    page = letters(db, one, looks_max=100)
    assert (len(page.letters), page.looks, page.at_end) == (6, 6, True)


def test_a_filter_that_matches_nothing_still_moves_its_place(db, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    lane.bury(*range(5))
    one = begin(db, fresh_queue, error="no such text")
    looks = []
    while (page := letters(db, one, looks_max=2)) is not None:
        looks.append(page.looks)
        assert page.letters == []
        assert step(db, token, one, page).verdict == "moved"
    assert looks == [2, 2, 1]
    row = shown(db, one)
    assert (row.state, row.looked_at, row.moved) == ("done", 5, 0)
    assert lane.count("queen_dead_letter") == 5


def test_timers_that_could_not_be_fired_are_passed_over(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury(1, 2)
    db.execute(
        "UPDATE queen_dead_letter SET consumer_group = '__timer__'"
        " WHERE partition_id = %s AND message_offset = 0",
        [lane.id],
    )
    page = letters(db, begin(db, fresh_queue))
    assert (payloads(page), page.looks) == ([b"2"], 2)


def test_a_count_is_exact_up_to_its_limit_and_else_unknown(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury(*range(4))
    errors(lane, "a", "b", "ab")

    def count(rows_max=100, tenant=DEFAULT_TENANT, **named):
        which = Filter(queue=fresh_queue, **named)
        return call(db, calls.redrive_count, tenant, which, rows_max=rows_max)

    assert count() == 4
    assert count(rows_max=4) == 4
    assert count(rows_max=3) is None
    assert count(error="a") == 2
    assert count(group="h") == 0
    assert count(since=datetime.now(UTC) + timedelta(hours=1)) == 0
    assert count(tenant=uuid.uuid4()) == 0


# --- steps --------------------------------------------------------------------------------------


def test_a_step_moves_its_letters_and_its_place_in_one_commit(db, fresh_queue, token):
    source, target = Lane(db, fresh_queue), Lane(db, f"{fresh_queue}-target")
    source.bury(1, 2, 3)
    one = begin(db, fresh_queue)
    assert step(db, token, one, letters(db, one, rows_max=2), target) == ("moved", [])
    assert payloads_of(target) == ["1", "2"]
    row = shown(db, one)
    assert (row.state, row.looked_at, row.moved, row.skipped) == ("running", 2, 2, 0)
    assert step(db, token, one, letters(db, one), target).verdict == "moved"
    row = shown(db, one)
    assert (row.state, row.moved) == ("done", 3)
    assert row.finished_at is not None
    assert source.count("queen_dead_letter") == 0
    assert letters(db, one) is None


def test_a_step_into_several_partitions_keeps_the_order_in_each(db, fresh_queue, token):
    source = Lane(db, fresh_queue, "source")
    lanes = [Lane(db, fresh_queue, name) for name in "cab"]
    source.bury(*range(7))
    one = begin(db, fresh_queue)
    assert step(db, token, one, letters(db, one), *lanes).verdict == "moved"
    assert [payloads_of(lane) for lane in lanes] == [["0", "3", "6"], ["1", "4"], ["2", "5"]]


def test_a_letter_that_is_there_already_stays_and_is_counted(db, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    dead = lane.bury(1, 2, 3)
    lane.push("taken", ids=[f"dlq:{dead[1]}"])
    one = begin(db, fresh_queue)
    assert step(db, token, one, letters(db, one), lane) == ("moved", [2])
    row = shown(db, one)
    assert (row.moved, row.skipped, row.state) == (2, 1, "done")
    assert "kept" in row.problem
    assert (
        lane.scalar("SELECT id::text FROM queen_dead_letter WHERE partition_id = %s", lane.id)
        == dead[1]
    )
    assert payloads_of(lane)[3:] == ['"taken"', "1", "3"]


def test_a_letter_that_is_gone_makes_the_step_look_again(db, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    dead = lane.bury(1, 2)
    one = begin(db, fresh_queue)
    page = letters(db, one)
    db.execute("DELETE FROM queen_dead_letter WHERE id = %s", [dead[0]])
    assert step(db, token, one, page, lane) == ("changed", None)
    assert lane.count("queen_dead_letter") == 1
    assert step(db, token, one, letters(db, one), lane).verdict == "moved"
    assert payloads_of(lane)[2:] == ["2"]


def test_a_destination_that_changed_undoes_the_whole_step(db, fresh_queue, token):
    source = Lane(db, fresh_queue)
    good, stale = Lane(db, f"{fresh_queue}-good"), Lane(db, f"{fresh_queue}-stale")
    source.bury(1, 2)
    one = begin(db, fresh_queue)
    call(db, management_calls.queue_configure, DEFAULT_TENANT, stale.queue, {"priority": 1})
    with pytest.raises(psycopg.Error) as caught:
        step(db, token, one, letters(db, one), good, stale)
    assert caught.value.sqlstate == "QN001"
    assert payloads_of(good) == []
    assert source.count("queen_dead_letter") == 2
    assert shown(db, one).looked_at == 0


def test_a_step_under_an_old_token_does_nothing(db, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    lane.bury(1)
    one = begin(db, fresh_queue)
    page = letters(db, one)
    heir = lead(db, "redrive")
    assert step(db, token, one, page, lane) == ("fenced", None)
    assert call(db, calls.redrive_fail, token, one, "late") is False
    assert step(db, heir, one, page, lane).verdict == "moved"


def test_the_pace_is_that_of_the_rate(db, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    lane.bury(*range(20))
    one = begin(db, fresh_queue, rate=4)
    for _ in range(3):
        step(db, token, one, letters(db, one), lane)
    wait_us = dict(call(db, calls.redrive_due, limit=1000))[one]
    # Three letters are three quarters of a second; what the calls took is off.
    assert 0 < wait_us <= 750_000
    db.execute("UPDATE queen_redrive SET next_at = now() - interval '1 hour' WHERE id = %s", [one])
    step(db, token, one, letters(db, one), lane)
    lag = "SELECT extract(epoch FROM clock_timestamp() - next_at) FROM queen_redrive WHERE id = %s"
    assert lane.scalar(lag, one) < 60, "an hour is not caught up"


# --- races --------------------------------------------------------------------------------------


def test_of_two_steps_at_once_one_moves_and_the_other_looks_again(
    db, second_connection, database, fresh_queue, token
):
    lane = Lane(db, fresh_queue)
    lane.bury(1, 2)
    one = begin(db, fresh_queue)
    page = letters(db, one)
    first = second_connection()
    assert step(first, token, one, page, lane).verdict == "moved"
    with ThreadPoolExecutor(1) as pool, database.connect() as other:
        second = pool.submit(step, other, token, one, page, lane)
        while not waits_for_lock(db):
            assert not second.done(), "it should wait for the first"
        first.commit()
        assert second.result(timeout=5).verdict == "stopped"
    assert payloads_of(lane)[2:] == ["1", "2"]


def test_of_two_jobs_at_the_same_letters_each_letter_moves_once(
    db, second_connection, database, fresh_queue, token
):
    source = Lane(db, fresh_queue)
    a, b = Lane(db, f"{fresh_queue}-a"), Lane(db, f"{fresh_queue}-b")
    source.bury(1, 2)
    one, two = begin(db, fresh_queue), begin(db, fresh_queue)
    page = letters(db, two)
    first = second_connection()
    assert step(first, token, one, letters(db, one), a).verdict == "moved"
    with ThreadPoolExecutor(1) as pool, database.connect() as other:
        second = pool.submit(step, other, token, two, page, b)
        while not waits_for_lock(db):
            assert not second.done(), "it should wait for the first"
        first.commit()
        assert second.result(timeout=5).verdict == "changed"
    assert letters(db, two).letters == []
    assert (payloads_of(a), payloads_of(b)) == (["1", "2"], [])


def test_a_step_that_is_rolled_back_is_done_anew(db, second_connection, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    lane.bury(1, 2)
    one = begin(db, fresh_queue)
    dying = second_connection()
    page = letters(dying, one)
    assert step(dying, token, one, page, lane).verdict == "moved"
    dying.rollback()
    assert shown(db, one).moved == 0
    assert step(db, token, one, letters(db, one), lane).verdict == "moved"
    assert payloads_of(lane)[2:] == ["1", "2"]


def test_a_cancel_waits_for_the_step_and_nothing_moves_after_it(
    db, second_connection, database, fresh_queue, token
):
    lane = Lane(db, fresh_queue)
    lane.bury(1, 2, 3)
    one = begin(db, fresh_queue)
    working = second_connection()
    assert step(working, token, one, letters(working, one, rows_max=1), lane).verdict == "moved"
    with ThreadPoolExecutor(1) as pool, database.connect() as other:
        cancelling = pool.submit(turn, other, one, "cancelled")
        while not waits_for_lock(db):
            assert not cancelling.done(), "it should wait for the step"
        page = letters(working, one)
        working.commit()
        assert cancelling.result(timeout=5) == "running"
    assert step(db, token, one, page, lane) == ("stopped", None)
    row = shown(db, one)
    assert (row.state, row.moved) == ("cancelled", 1)
    assert letters(db, one) is None
    assert one not in dict(call(db, calls.redrive_due, limit=1000))

    assert turn(db, one, "running") == "cancelled"
    assert step(db, token, one, letters(db, one), lane).verdict == "moved"
    row = shown(db, one)
    assert (row.state, row.moved, row.looked_at) == ("done", 3, 2)
    assert payloads_of(lane)[3:] == ["1", "2", "3"]


def test_a_queue_that_is_deleted_in_the_middle_ends_its_job(
    db, second_connection, database, fresh_queue, token
):
    source, target = Lane(db, fresh_queue), Lane(db, f"{fresh_queue}-target")
    source.bury(1, 2)
    one = begin(db, fresh_queue)
    page = letters(db, one)
    with ThreadPoolExecutor(1) as pool, database.connect() as other:
        holder = second_connection()
        holder.execute("SELECT FROM queen_partition WHERE id = %s FOR UPDATE", [target.id])
        stepping = pool.submit(step, other, token, one, page, target)
        while not waits_for_lock(db):
            assert not stepping.done(), "it should wait for the destination"
        delete_queue(db, fresh_queue)
        holder.rollback()
        assert stepping.result(timeout=5).verdict == "changed"
    page = letters(db, one)
    assert (page.queue_gone, page.letters) == (True, [])
    assert call(db, calls.redrive_fail, token, one, "the queue was deleted") is True
    assert shown(db, one).state == "failed"
    assert payloads_of(target) == []


def test_a_step_in_place_whose_queue_is_deleted_does_nothing(db, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    lane.bury(1)
    one = begin(db, fresh_queue)
    page = letters(db, one)
    delete_queue(db, fresh_queue)
    assert step(db, token, one, page, lane).verdict == "changed"


def test_a_step_does_not_wait_for_ever(db, second_connection, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    lane.bury(1)
    one = begin(db, fresh_queue)
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_partition WHERE id = %s FOR UPDATE", [lane.id])
    with pytest.raises(psycopg.errors.LockNotAvailable):
        step(db, token, one, letters(db, one), lane, wait_ms=50)
    assert lane.count("queen_dead_letter") == 1


# --- jobs ---------------------------------------------------------------------------------------


def test_a_job_of_an_unknown_queue_or_beyond_the_limit_is_not_begun(db, fresh_queue):
    def create(queue, tenant=DEFAULT_TENANT, running_max=1000):
        which = Filter(queue=queue)
        target = {"target_queue": None, "target_partition": None, "rate": 1, "total": None}
        return call(
            db,
            calls.redrive_create,
            tenant,
            which,
            **target,
            running_max=running_max,
            keep_days=30,
        )

    tenant = uuid.uuid4()
    Lane(db, fresh_queue, tenant=tenant)
    assert create(fresh_queue) == ("unknown", None)
    outcome, one = create(fresh_queue, tenant)
    assert outcome == "created"
    assert create(fresh_queue, tenant, running_max=1) == ("full", None)
    turn(db, one, "cancelled", tenant=tenant)
    assert create(fresh_queue, tenant, running_max=1)[0] == "created"


def test_jobs_are_listed_newest_first_and_are_their_tenants(db, fresh_queue):
    tenant, other = uuid.uuid4(), uuid.uuid4()
    Lane(db, fresh_queue, tenant=tenant)
    jobs = [begin(db, fresh_queue, tenant=tenant) for _ in range(3)]

    def listed(of=tenant, **named):
        rows = call(db, calls.redrive_list, of, **({"limit": 10} | named))
        return [uuid.UUID(row.id) for row in rows]

    assert listed() == jobs[::-1]
    assert listed(limit=1, offset=1) == [jobs[1]]
    assert listed(offset=3) == []
    assert listed(of=other) == []
    assert listed(of=other, redrive_id=jobs[0]) == []
    turn(db, jobs[0], "cancelled", tenant=tenant)
    assert listed(state="cancelled") == [jobs[0]]
    assert turn(db, jobs[0], "running", tenant=other) is None
    assert shown(db, jobs[0], tenant).state == "cancelled"


def test_a_job_that_is_done_stays_done_and_a_failed_one_runs_again(db, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    done = begin(db, fresh_queue)
    step(db, token, done, letters(db, done))
    assert turn(db, done, "cancelled") == "done"
    assert turn(db, done, "running") == "done"
    assert shown(db, done).state == "done"

    lane.bury(1)
    failed = begin(db, fresh_queue)
    call(db, calls.redrive_fail, token, failed, "no key")
    assert shown(db, failed).problem == "no key"
    assert turn(db, failed, "running") == "failed"
    row = shown(db, failed)
    assert (row.state, row.problem, row.finished_at) == ("running", None, None)


def test_a_job_beyond_the_limit_does_not_run_again(db, fresh_queue):
    tenant = uuid.uuid4()
    Lane(db, fresh_queue, tenant=tenant)
    one = begin(db, fresh_queue, tenant=tenant)
    turn(db, one, "cancelled", tenant=tenant)
    begin(db, fresh_queue, tenant=tenant)
    assert turn(db, one, "running", tenant=tenant, running_max=1) == "full"
    assert shown(db, one, tenant).state == "cancelled"
    assert turn(db, one, "running", tenant=tenant, running_max=2) == "cancelled"
    assert shown(db, one, tenant).state == "running"


def test_a_job_that_pauses_is_due_later_and_only_by_its_leader(db, fresh_queue, token):
    Lane(db, fresh_queue)
    job = begin(db, fresh_queue)

    def wait_us():
        return dict(call(db, calls.redrive_due, limit=1000))[job]

    assert not call(db, calls.redrive_pause, token - 1, job, wait_ms=60_000)
    assert wait_us() == 0
    assert call(db, calls.redrive_pause, token, job, wait_ms=60_000)
    assert 0 < wait_us() <= 60_000_000
    turn(db, job, "cancelled")


def test_jobs_that_ended_long_ago_are_forgotten(db, fresh_queue):
    tenant = uuid.uuid4()
    Lane(db, fresh_queue, tenant=tenant)
    old, running = (begin(db, fresh_queue, tenant=tenant) for _ in range(2))
    turn(db, old, "cancelled", tenant=tenant)
    db.execute(
        "UPDATE queen_redrive SET created_at = created_at - interval '31 days',"
        " finished_at = finished_at - interval '31 days' WHERE tenant_id = %s",
        [tenant],
    )
    new = begin(db, fresh_queue, tenant=tenant)
    rows = call(db, calls.redrive_list, tenant, limit=10)
    assert {uuid.UUID(row.id) for row in rows} == {running, new}
