"""queen_partition_cleanup: empty partitions go when they are long idle and nothing points at them.

Method: the store's coroutines on real PostgreSQL; idleness is written into the row.
"""

import threading

import pytest

from brokers.store import calls as hot_calls
from brokers.store import chore_calls, management_calls
from brokers.store import leader_calls as calls
from tests.store.calling import Lane, call, flush, waits_for_lock
from tests.store.retaining import configure, lead, push_aged, step

DAY_S = 86_400
IDLE_S = 30 * DAY_S


@pytest.fixture
def token(db):
    return lead(db)


@pytest.fixture
def lane(db, fresh_queue, token):
    """A partition whose messages are gone and whose last push was 31 days ago."""
    lane = Lane(db, fresh_queue)
    emptied(db, lane, token)
    idle_for(lane, 31 * DAY_S)
    return lane


def emptied(db, lane, token):
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, 20, each=3)
    assert step(db, token, lane).verdict == "done"


def idle_for(lane, seconds):
    lane.db.execute(
        "UPDATE queen_partition SET last_write_at = clock_timestamp() - make_interval(secs => %s)"
        " WHERE id = %s",
        [seconds, lane.id],
    )


def clean_up(db, token, connection=None):
    return call(connection or db, calls.partition_cleanup, token, idle_s=IDLE_S, rows_max=1000)


def exists(lane):
    return lane.scalar("SELECT true FROM queen_partition WHERE id = %s", lane.id) is True


def test_a_partition_that_is_long_empty_goes_with_its_cursors(db, lane, token):
    lane.register("g")
    db.execute(
        "INSERT INTO queen_cursor (partition_id, consumer_group) VALUES (%s, 'g')", [lane.id]
    )
    assert clean_up(db, token).removed == 1
    assert not exists(lane)
    while call(db, chore_calls.queue_reclaim, rows_max=1000):
        pass
    assert lane.count("queen_cursor") == 0
    row = db.execute(
        "SELECT sum(partitions_deleted) FROM queen_retention_history WHERE queue_id = %s",
        [lane.row.queue_id],
    ).fetchone()
    assert row == (1,)


def test_born_again_it_starts_at_offset_zero_under_a_new_id(db, lane, token):
    lane.register("g")
    clean_up(db, token)
    again = Lane(db, lane.queue)
    assert again.row.uid != lane.row.uid
    assert again.push("first") == "stored"
    assert (
        again.scalar("SELECT base_offset FROM queen_segment WHERE partition_id = %s", again.id) == 0
    )
    again.claim("g")
    assert (
        again.scalar("SELECT batch_start FROM queen_cursor WHERE partition_id = %s", again.id) == 0
    )


def test_the_idle_time_is_a_limit_to_the_second(db, lane, token):
    idle_for(lane, IDLE_S - 5)
    assert clean_up(db, token).removed == 0
    idle_for(lane, IDLE_S + 1)
    assert clean_up(db, token).removed == 1


def test_one_that_never_had_a_message_counts_from_its_birth(db, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    assert clean_up(db, token).removed == 0
    db.execute(
        "UPDATE queen_partition SET created_at = now() - interval '31 days' WHERE id = %s",
        [lane.id],
    )
    assert clean_up(db, token).removed == 1
    assert not exists(lane)


def test_one_with_messages_stays_however_old(db, fresh_queue, token):
    lane = Lane(db, fresh_queue)
    push_aged(lane, 40 * DAY_S)
    idle_for(lane, 40 * DAY_S)
    assert clean_up(db, token).removed == 0


def test_a_dead_letter_keeps_its_partition(db, lane, token):
    lane.push("dead")
    lane.bury_at(3)
    db.execute(
        "UPDATE queen_segment SET created_at = now() - interval '1 day' WHERE partition_id = %s",
        [lane.id],
    )
    assert step(db, token, lane).verdict == "done"
    idle_for(lane, 31 * DAY_S)
    assert clean_up(db, token).removed == 0
    db.execute("DELETE FROM queen_dead_letter WHERE partition_id = %s", [lane.id])
    assert clean_up(db, token).removed == 1


def test_a_live_lease_keeps_its_partition_and_a_dead_one_does_not(db, lane, token):
    db.execute(
        "INSERT INTO queen_cursor (partition_id, consumer_group, lease_id, lease_expires_at)"
        " VALUES (%s, 'g', gen_random_uuid(), now() + interval '1 minute')",
        [lane.id],
    )
    assert clean_up(db, token).removed == 0
    db.execute(
        "UPDATE queen_cursor SET lease_expires_at = now() WHERE partition_id = %s", [lane.id]
    )
    assert clean_up(db, token).removed == 1


def test_a_queue_that_would_still_know_its_transaction_ids_keeps_it(db, lane, token):
    configure(lane, dedup_window_seconds=32 * DAY_S)
    assert clean_up(db, token).removed == 0
    configure(lane, dedup_window_seconds=30 * DAY_S)
    assert clean_up(db, token).removed == 1


def test_a_walk_goes_on_where_the_last_step_ended(db, fresh_queue, token):
    lanes = [Lane(db, fresh_queue, str(number)) for number in range(5)]
    for number, lane in enumerate(lanes):
        emptied(db, lane, token)
        idle_for(lane, (40 + number) * DAY_S)
    lanes[3].bury("dead")  # it is not empty any more
    at = None
    removed = []
    for _ in range(20):
        at = call(db, calls.partition_cleanup, token, idle_s=IDLE_S, rows_max=2, after=at)
        removed.append(at.removed)
        if at.reached_id is None:
            break
    assert sum(removed) == 4
    assert max(removed) <= 2
    assert [exists(lane) for lane in lanes] == [False, False, False, True, False]


def test_a_push_that_came_first_wins_and_one_that_comes_later_finds_no_partition(
    db, lane, token, second_connection
):
    pushing = second_connection()
    assert lane.push("first", connection=pushing) == "stored"
    assert clean_up(db, token).removed == 0
    pushing.rollback()

    cleaning = second_connection()
    assert clean_up(db, token, cleaning).removed == 1
    group = flush(lane.row, ("late",), None)
    [verdict] = call(db, hot_calls.message_push, [group], wait_ms=0)
    assert verdict.verdict == "busy"
    cleaning.commit()
    [verdict] = call(db, hot_calls.message_push, [group], wait_ms=0)
    assert verdict.verdict == "stale"


def test_a_push_that_waits_for_the_cleaned_partition_is_told_that_it_is_gone(
    db, lane, token, second_connection, eventually, database
):
    cleaning = second_connection()
    assert clean_up(db, token, cleaning).removed == 1
    verdicts = []
    with database.connect() as other:
        thread = threading.Thread(target=lambda: verdicts.append(lane.push("x", connection=other)))
        thread.start()
        eventually(lambda: waits_for_lock(db))
        cleaning.commit()
        thread.join()
    assert verdicts == ["stale"]


def test_a_queue_that_somebody_holds_is_passed_over(db, lane, token, second_connection):
    """Who makes partitions or registers groups holds it: no cursor is born beside the removal."""
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_queue WHERE id = %s FOR KEY SHARE", [lane.row.queue_id])
    assert clean_up(db, token).removed == 0
    holder.rollback()
    deleting = second_connection()
    call(deleting, management_calls.queue_delete, lane.tenant, lane.queue)
    assert clean_up(db, token).removed == 0
    deleting.commit()
    assert clean_up(db, token).removed == 0
