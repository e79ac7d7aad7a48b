"""Seek, delete and start of groups, and their figures: the procedures and their races.

Method: the store's coroutines on real PostgreSQL; what races holds a real lock from a second
connection while the other call waits for it.
"""

import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from brokers.domain import QUEUE_MODE
from brokers.store import calls, group_calls, leader_calls, management_calls
from brokers.store.calls import Batch
from tests.store.calling import Lane, call, waits_for_lock

END = None
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def tenant():
    return uuid.uuid4()


@pytest.fixture
def lane(db, tenant):
    """Four messages in two segments, and a group that has read none."""
    made = Lane(db, "q", tenant=tenant)
    made.push(0, 1)
    made.push(2, 3)
    made.register("g")
    return made


def seek(db, lane, at, group="g"):
    return call(db, group_calls.group_seek, lane.row.queue_id, group, [lane.id], at)


def cursor(lane, columns="committed", group="g"):
    return lane.db.execute(
        f"SELECT {columns} FROM queen_cursor WHERE partition_id = %s AND consumer_group = %s",
        [lane.id, group],
    ).fetchone()


def wake(lane, group="g"):
    statement = "SELECT version FROM queen_wake WHERE queue_id = %s AND consumer_group = %s"
    return lane.scalar(statement, lane.row.queue_id, group) or 0


def forget(db, lane, group="g", *, subscription=True):
    queue_id = lane.row.queue_id
    return call(db, group_calls.group_delete, queue_id, group, forget=subscription)


def stored_at(lane, base):
    statement = "SELECT created_at FROM queen_segment WHERE partition_id = %s AND base_offset = %s"
    return lane.scalar(statement, lane.id, base)


def in_thread(work):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    return thread, answers


def test_a_seek_lands_at_the_end_the_beginning_or_the_first_segment_since(db, lane):
    moment = timedelta(microseconds=1)
    for at, committed in (
        (END, 3),
        (BEGINNING, -1),
        (stored_at(lane, 0), -1),
        (stored_at(lane, 0) + moment, 1),
        (stored_at(lane, 2), 1),
        (stored_at(lane, 2) + moment, 3),
        (datetime.now(UTC) + timedelta(days=9), 3),
    ):
        before = wake(lane)
        assert seek(db, lane, at) == 1
        assert cursor(lane) == (committed,), at
        assert wake(lane) == before + 1


def test_a_seek_before_what_is_retained_is_at_the_oldest_that_is(db, lane):
    lane.db.execute(
        "DELETE FROM queen_segment WHERE partition_id = %s AND base_offset = 0", [lane.id]
    )
    lane.db.execute(
        "UPDATE queen_partition SET log_start = 2, oldest_live_at = %s WHERE id = %s",
        [stored_at(lane, 2), lane.id],
    )
    seek(db, lane, BEGINNING)
    assert cursor(lane) == (1,)


def test_a_seek_of_a_queue_that_is_gone_or_a_group_that_nobody_knows_does_nothing(db, lane):
    assert seek(db, lane, END, "stranger") is None
    assert cursor(lane, group="stranger") is None
    call(db, management_calls.queue_delete, lane.tenant, lane.queue)
    assert seek(db, lane, END) is None


def test_a_partition_of_another_queue_is_not_moved(db, lane, tenant):
    other = Lane(db, "other", tenant=tenant)
    other.push(1)
    queue_id = lane.row.queue_id
    assert call(db, group_calls.group_seek, queue_id, "g", [lane.id, other.id], END) == 1
    assert cursor(other) is None


def test_a_seek_ends_the_lease_and_its_counts(db, lane):
    lane.claim("g", batch=2)
    db.execute(
        "UPDATE queen_cursor SET retry_offset = 0, retry_count = 2, solo_until = 3"
        " WHERE partition_id = %s",
        [lane.id],
    )
    seek(db, lane, BEGINNING)
    columns = "lease_id, lease_expires_at, batch_start, batch_end, retry_offset, retry_count,"
    columns += " attempt_offset, attempt_count, expiry_count, solo_until"
    assert cursor(lane, columns) == (None, None, None, None, None, 0, None, 0, 0, None)


def test_an_ack_that_comes_after_the_seek_is_refused_and_moves_nothing(db, lane):
    lease = lane.claim("g", batch=4)
    seek(db, lane, BEGINNING)
    batch = Batch(lane.id, "g", lease, 3)
    assert call(db, calls.cursor_complete, [batch]) == set()
    assert cursor(lane) == (-1,)


def test_a_seek_waits_for_an_ack_and_the_end_is_not_behind_it(
    db, lane, second_connection, eventually
):
    """The end that the seek saw when it began is older than what was completed meanwhile."""
    lease = lane.claim("g", batch=4)
    acking = second_connection()
    assert call(acking, calls.cursor_complete, [Batch(lane.id, "g", lease, 3)]) == {0}
    seeking = second_connection()
    thread, answers = in_thread(lambda: (seek(seeking, lane, END), seeking.commit()))
    eventually(lambda: waits_for_lock(db))
    lane.push(4)
    acking.commit()
    thread.join(20)
    assert answers[0][0] == 1
    assert cursor(lane) == (3,)
    assert lane.claim("g")


def test_a_claim_passes_over_a_cursor_that_a_seek_has(db, lane, second_connection):
    seek(db, lane, BEGINNING)
    seeking = second_connection()
    seek(seeking, lane, BEGINNING)
    job = calls.ClaimJob("g", 10, 1, str(uuid.uuid4()), 300, False, [lane.id])
    [row] = call(db, calls.message_claim, [job], window_batch=100)
    assert row.verdict == "busy"
    seeking.commit()
    assert lane.claim("g")


def test_a_push_goes_on_while_a_seek_and_a_delete_have_their_cursors(db, lane, second_connection):
    seeking = second_connection()
    seek(seeking, lane, BEGINNING)
    assert lane.push(4) == "stored"
    seeking.commit()
    deleting = second_connection()
    forget(deleting, lane)
    assert lane.push(5) == "stored"
    deleting.commit()


def test_a_delete_takes_cursors_and_subscription_and_moves_the_wake(db, lane):
    lane.claim("g", batch=1)
    before = wake(lane)
    assert forget(db, lane) == (1, True)
    assert cursor(lane) is None
    assert wake(lane) == before + 1
    assert forget(db, lane) == (0, False)
    assert call(db, group_calls.group_queues, lane.tenant, "g", None) == []


def test_a_claim_that_would_make_a_cursor_waits_for_the_delete_and_makes_none(
    db, lane, second_connection, eventually
):
    deleting = second_connection()
    assert forget(deleting, lane) == (0, True)
    claiming = second_connection()
    job = calls.ClaimJob("g", 10, 1, str(uuid.uuid4()), 300, False, [lane.id])
    thread, answers = in_thread(
        lambda: (call(claiming, calls.message_claim, [job], window_batch=100), claiming.commit())
    )
    eventually(lambda: waits_for_lock(db))
    deleting.commit()
    thread.join(20)
    assert [row.verdict for row in answers[0][0]] == ["unregistered"]
    assert cursor(lane) is None


def test_a_delete_waits_for_a_claim_that_makes_a_cursor_and_takes_it(
    db, lane, second_connection, eventually
):
    claiming = second_connection()
    job = calls.ClaimJob("g", 10, 1, str(uuid.uuid4()), 300, False, [lane.id])
    rows = call(claiming, calls.message_claim, [job], window_batch=100)
    assert rows[0].verdict == "took"
    deleting = second_connection()
    thread, answers = in_thread(lambda: (forget(deleting, lane), deleting.commit()))
    eventually(lambda: waits_for_lock(db))
    claiming.commit()
    thread.join(20)
    assert answers[0][0] == (1, True)
    assert cursor(lane) is None


def test_a_queue_delete_waits_for_a_seek_and_leaves_no_cursor_out_of_reach(
    db, lane, second_connection, eventually
):
    seeking = second_connection()
    seek(seeking, lane, END)
    deleting = second_connection()
    thread, _ = in_thread(
        lambda: (
            call(deleting, management_calls.queue_delete, lane.tenant, lane.queue),
            deleting.commit(),
        )
    )
    eventually(lambda: waits_for_lock(db))
    seeking.commit()
    thread.join(20)
    assert lane.scalar("SELECT count(*) FROM queen_reclaim WHERE partition_id = %s", lane.id) == 1


def test_a_subscription_that_stays_says_where_a_cursor_begins_that_is_born_late(db, lane):
    lane.register("h", "new")
    lane.push(4)
    assert cursor(lane, group="h") == (3,)
    assert forget(db, lane, "h", subscription=False) == (1, False)
    lane.claim("h")
    assert cursor(lane, "committed, batch_start, batch_end", "h") == (3, 4, 4)
    assert forget(db, lane, "g", subscription=False) == (0, False)
    lane.claim("g")
    assert cursor(lane, "batch_start, batch_end") == (0, 4)


def test_a_changed_start_moves_no_cursor_that_is_there(db, lane, tenant):
    seek(db, lane, BEGINNING)
    later = datetime.now(UTC) + timedelta(hours=1)
    assert call(db, group_calls.group_start, tenant, "g", later) == 1
    assert cursor(lane) == (-1,)
    fresh = Lane(db, "q", "fresh", tenant=tenant)
    fresh.push(1)
    job = calls.ClaimJob("g", 10, 1, str(uuid.uuid4()), 300, False, [fresh.id])
    [row] = call(db, calls.message_claim, [job], window_batch=100)
    assert row.verdict == "empty"
    assert cursor(fresh) == (0,)
    assert call(db, group_calls.group_start, uuid.uuid4(), "g", later) == 0


def test_what_was_counted_of_a_group_is_what_its_detail_tells(db, lane, tenant):
    other = Lane(db, "q", "other", tenant=tenant)
    other.push(1, 2, 3)
    lane.claim("g", batch=1)
    lane.register(QUEUE_MODE)
    call(db, leader_calls.statistics_step, None, None, budget_ms=60_000)
    rows = call(db, group_calls.group_list, tenant, limit=10, offset=0)
    assert [(row.group, row.lag, row.lagging, row.cursors) for row in rows] == [
        (QUEUE_MODE, 7, 2, 0),
        ("g", 7, 2, 1),
    ]
    places = call(db, group_calls.group_describe, tenant, "g", limit=10, offset=0)
    assert [(place.partition, place.lag, place.leased) for place in places] == [
        ("Default", 4, True),
        ("other", 3, False),
    ]
    seek(db, lane, END)
    call(db, leader_calls.statistics_step, None, None, budget_ms=60_000)
    [_, row] = call(db, group_calls.group_list, tenant, limit=10, offset=0)
    assert (row.lag, row.lagging) == (3, 1)
    assert call(db, group_calls.group_list, tenant, limit=1, offset=1) == [row]


def test_figures_of_a_group_that_is_gone_are_not_those_of_the_next(db, lane, tenant):
    lane.claim("g")
    call(db, leader_calls.statistics_step, None, None, budget_ms=60_000)
    forget(db, lane)
    assert call(db, group_calls.group_list, tenant, limit=10, offset=0) == []
    lane.register("g", "new")
    [row] = call(db, group_calls.group_list, tenant, limit=10, offset=0)
    assert (row.lag, row.cursors) == (0, 1)
    call(db, management_calls.queue_delete, tenant, lane.queue)
    statement = "SELECT count(*) FROM queen_group_statistics WHERE queue_id = %s"
    assert lane.scalar(statement, lane.row.queue_id) == 0


def test_what_lags_is_found_among_what_was_counted_and_judged_as_it_is_now(db, lane, tenant):
    call(db, leader_calls.statistics_step, None, None, budget_ms=60_000)

    def lagging(lag_s=0):
        return call(db, group_calls.group_lagging, tenant, lag_s=lag_s, limit=10, offset=0)

    [row] = lagging()
    assert (row.group, row.queue, row.lag) == ("g", "q", 4)
    assert lagging(3600) == []
    seek(db, lane, END)
    assert lagging() == []
