"""A mark moves with what was stored or not at all, whoever else is at work on the same file.

Method: a second connection plays the try that nobody waits for any more: it replays inside
a transaction that it ends when the test says so. Tries of the same records have ids of
their own in each, so that it is the mark that keeps them apart and not the search for
duplicates.
"""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from brokers.store.spool_calls import MARK_MOVED
from tests.harness import eventually, refusing_segments
from tests.store.calling import Lane, minter, waits_for_lock
from tests.store.spooling import Spool, ago_us, payloads, record

BUSY = "55P03"


@pytest.fixture
def lane(db, fresh_queue) -> Lane:
    return Lane(db, fresh_queue)


@pytest.fixture
def spool(db) -> Spool:
    return Spool(db)


@pytest.fixture
def aside():
    with ThreadPoolExecutor() as executor:
        yield executor.submit


def refused(call, *given, **named) -> str:
    with pytest.raises(psycopg.Error) as raised:
        call(*given, **named)
    assert raised.value.sqlstate is not None
    return raised.value.sqlstate


def sqlstate(future) -> str | None:
    return getattr(future.exception(timeout=30), "sqlstate", None)


def test_a_try_after_a_lost_answer_finds_the_mark_moved_and_writes_nothing(lane, spool):
    spool.replay(record(lane, b"0"))
    assert refused(spool.replay, record(lane, b"0 again")) == MARK_MOVED
    assert payloads(lane) == [b"0"]
    assert spool.marks() == {spool.file: 1}


@pytest.mark.parametrize("start", [1, 3])
def test_a_try_from_anywhere_but_the_mark_writes_nothing(lane, spool, start):
    spool.replay(record(lane, b"0"), record(lane, b"1"))
    assert refused(spool.replay, record(lane, b"x"), start=start) == MARK_MOVED
    assert payloads(lane) == [b"0", b"1"]


def test_a_file_without_a_mark_begins_at_its_first_record(lane, spool):
    assert refused(spool.replay, record(lane, b"x"), start=5) == MARK_MOVED
    assert payloads(lane) == [] and spool.marks() == {}


@pytest.mark.parametrize("start", [0, 1])
def test_a_try_behind_one_that_still_runs_waits_for_it_and_writes_nothing(
    db, lane, spool, second_connection, aside, start
):
    if start:
        spool.replay(record(lane, b"first"))
    zombie = second_connection()
    spool.replay(record(lane, b"zombie"), start=start, connection=zombie)
    second = aside(spool.replay, record(lane, b"second"), start=start)
    with onlooker(db) as watcher:
        eventually(lambda: waits_for_lock(watcher))
    zombie.commit()
    assert sqlstate(second) == MARK_MOVED
    assert payloads(lane)[start:] == [b"zombie"]
    assert spool.marks() == {spool.file: start + 1}


@pytest.mark.parametrize("start", [0, 1])
def test_a_try_behind_one_that_is_rolled_back_stores_the_records(
    db, lane, spool, second_connection, aside, start
):
    if start:
        spool.replay(record(lane, b"first"))
    zombie = second_connection()
    spool.replay(record(lane, b"zombie"), start=start, connection=zombie)
    second = aside(spool.replay, record(lane, b"second"), start=start)
    with onlooker(db) as watcher:
        eventually(lambda: waits_for_lock(watcher))
    zombie.rollback()
    assert second.result(timeout=30) == [True]
    assert payloads(lane)[start:] == [b"second"]
    assert spool.marks() == {spool.file: start + 1}


@pytest.mark.parametrize("start", [0, 1])
def test_tries_that_meet_at_the_mark_alone_are_kept_apart_by_it(
    db, fresh_queue, spool, second_connection, aside, start
):
    """The queue was made anew between them, so they share no partition."""
    one, other = Lane(db, fresh_queue, "a"), Lane(db, fresh_queue, "b")
    if start:
        spool.replay(record(one, b"first"))
    zombie = second_connection()
    spool.replay(record(one, b"zombie"), start=start, connection=zombie)
    second = aside(spool.replay, record(other, b"second"), start=start)
    with onlooker(db) as watcher:
        eventually(lambda: waits_for_lock(watcher))
    zombie.commit()
    assert sqlstate(second) == MARK_MOVED
    assert payloads(other) == []


def test_of_two_drains_of_one_spool_each_range_is_stored_by_one(
    db, lane, spool, second_connection, aside
):
    records = 60
    connections = [second_connection(), second_connection()]

    def drain(connection) -> int:
        connection.autocommit = True
        own = Spool(connection, spool.id)
        stored = 0
        while (start := own.marks().get(own.file, 0)) < records:
            items = [record(lane, b"%d" % n) for n in range(start, start + 3)]
            try:
                stored += sum(own.replay(*items, start=start))
            except psycopg.Error as error:
                if error.sqlstate != MARK_MOVED:
                    raise
        return stored

    drains = [aside(drain, connection) for connection in connections]
    assert sum(one.result(timeout=60) for one in drains) == records
    assert payloads(lane) == [b"%d" % n for n in range(records)]


def test_a_partition_that_is_held_fails_the_whole_batch_in_time(
    db, fresh_queue, spool, second_connection
):
    free, held = Lane(db, fresh_queue, "a"), Lane(db, fresh_queue, "b")
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_partition WHERE id = %s FOR UPDATE", [held.id])
    items = [record(free, b"0"), record(held, b"1")]
    assert refused(spool.replay, *items, wait_ms=30) == BUSY
    assert payloads(free) == [] and spool.marks() == {}
    holder.rollback()
    assert spool.replay(*items, wait_ms=30) == [True, True]


def test_a_partition_that_is_given_free_in_time_is_waited_for(
    db, lane, spool, second_connection, aside
):
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_partition WHERE id = %s FOR UPDATE", [lane.id])
    waiting = aside(spool.replay, record(lane, b"0"), wait_ms=20_000)
    with onlooker(db) as watcher:
        eventually(lambda: waits_for_lock(watcher))
    holder.rollback()
    assert waiting.result(timeout=30) == [True]


def test_a_mark_that_is_held_fails_the_whole_batch_in_time(db, lane, spool, second_connection):
    spool.replay(record(lane, b"0"))
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_spool WHERE spool_id = %s FOR UPDATE", [spool.id])
    assert refused(spool.replay, record(lane, b"1"), start=1, wait_ms=30) == BUSY
    assert payloads(lane) == [b"0"]
    assert spool.marks() == {spool.file: 1}


def test_a_record_that_cannot_be_stored_takes_its_batch_along_and_leaves_the_mark(
    db, fresh_queue, spool
):
    one, other = Lane(db, fresh_queue, "a"), Lane(db, fresh_queue, "b")
    poison = fresh_queue.encode()
    # Its id falls, so it is stored after the group before it.
    early_id, late_id = minter.mint_many(2)
    late = record(other, b'"%s"' % poison, message_id=early_id)
    items = [record(one, b"0"), record(other, b"1", message_id=late_id), late]
    with refusing_segments(db, poison, "no", state="P0001"):
        assert refused(spool.replay, *items) == "P0001"
    assert payloads(one) == payloads(other) == []
    assert spool.marks() == {}
    assert spool.replay(*items) == [True] * 3


def test_passing_over_moves_the_mark_and_writes_nothing_else(lane, spool):
    spool.pass_over(2)
    assert spool.marks() == {spool.file: 2}
    assert spool.replay(record(lane, b"2"), start=2) == [True]
    spool.pass_over(1, start=3)
    assert spool.marks() == {spool.file: 4}
    assert payloads(lane) == [b"2"]
    assert refused(spool.pass_over, 1, start=3) == MARK_MOVED
    assert spool.marks() == {spool.file: 4}


def test_passing_over_keeps_what_is_known_of_the_oldest_record(db, lane, spool):
    oldest_us = ago_us(1_234_567)
    spool.replay(record(lane), oldest_us=oldest_us)
    spool.pass_over(1, start=1)
    [row] = db.execute(
        "SELECT (extract(epoch FROM oldest_accepted_at) * 1000000)::bigint, server_id"
        " FROM queen_spool WHERE spool_id = %s",
        [spool.id],
    ).fetchall()
    assert row == (oldest_us, "server-1")


def test_a_mark_that_does_not_move_can_say_that_its_spool_is_alive(db, lane, spool):
    """A paused drain holds the transaction slots so, before its first record and after."""
    for start in (0, 1):
        spool.pass_over(0, start=start, oldest_us=ago_us(3_600_000_000))
        [[held_s]] = db.execute(
            "SELECT extract(epoch FROM clock_timestamp() - oldest_accepted_at)::integer"
            " FROM queen_spool WHERE spool_id = %s AND done = %s",
            [spool.id, start],
        ).fetchall()
        assert 3600 <= held_s < 3660
        assert spool.replay(record(lane), start=start) == [True]
    assert spool.marks() == {spool.file: 2}


def test_a_file_that_is_skipped_keeps_its_mark_while_later_files_go_on(db, lane, spool):
    later = Spool(db, spool.id, file="0000000000002-00000002.buf")
    spool.replay(record(lane, b"0"))
    later.replay(record(lane, b"10"))
    later.replay(record(lane, b"11"), start=1)
    assert spool.marks() == {spool.file: 1, later.file: 2}
    spool.replay(record(lane, b"1"), start=1)
    assert spool.marks() == {spool.file: 2, later.file: 2}


def test_marks_are_forgotten_by_file_and_leave_other_spools_alone(db, lane, spool):
    stranger = Spool(db)
    later = Spool(db, spool.id, file="0000000000002-00000002.buf")
    for one in (stranger, spool, later):
        one.pass_over(1)
    assert spool.forget(spool.file, "never-there.buf") == 1
    assert spool.marks() == {later.file: 1}
    assert stranger.marks() == {stranger.file: 1}
    assert spool.forget() == 0


def test_a_try_that_comes_when_the_mark_is_forgotten_finds_its_records_stored(
    db, lane, spool, second_connection, aside
):
    """Its file is finished and gone, so only the message ids are left to tell."""
    item = record(lane, b"0")
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_partition WHERE id = %s FOR UPDATE", [lane.id])
    spool.replay(item, connection=holder)
    with psycopg.connect(db.info.dsn, autocommit=True) as connection:
        zombie = aside(spool.replay, item, connection=connection)
        with onlooker(db) as watcher:
            eventually(lambda: waits_for_lock(watcher))
        spool_in_holder = Spool(holder, spool.id)
        assert spool_in_holder.forget(spool.file) == 1
        holder.commit()
        assert zombie.result(timeout=30) == [False]
    assert payloads(lane) == [b"0"]


def onlooker(db) -> psycopg.Connection:
    """Another connection to look on: `db` may be waiting itself."""
    return psycopg.connect(db.info.dsn, autocommit=True)
