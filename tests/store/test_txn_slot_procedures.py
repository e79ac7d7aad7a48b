"""The slots of the transaction index are emptied when nobody can need them, and never before."""

import psycopg
import pytest

from tests import harness

CLEAR = "SELECT queen_txn_slot_clear_v1(900, 1000, 0)"
PERIOD = "SELECT floor(extract(epoch FROM clock_timestamp()) / 3600)::bigint"


INTO_PERIOD_S = "SELECT mod(extract(epoch FROM clock_timestamp()), 3600)::float8"


@pytest.fixture
def slots(fresh_database):
    """Well inside an hour: no test here crosses from one period into the next, nor is one in
    the first seconds, when a slot is left alone."""
    own: harness.Database = fresh_database()
    with own.connect() as connection:
        harness.eventually(lambda: 8 < into_period_s(connection) < 3585, timeout_s=60)
        yield connection


def into_period_s(connection: psycopg.Connection) -> float:
    [[seconds]] = connection.execute(INTO_PERIOD_S).fetchall()
    return float(seconds)


def fill(connection: psycopg.Connection) -> int:
    """A row in each slot of the hour class; the present period."""
    for slot in range(3):
        connection.execute(
            "INSERT INTO queen_txn (partition_id, hash, message_offset, created_at, slot)"
            " VALUES (1, %s, 0, clock_timestamp(), %s)",
            [slot, slot],
        )
    [[period]] = connection.execute(PERIOD).fetchall()
    return int(period)


def filled(connection: psycopg.Connection) -> set[int]:
    return {slot for [slot] in connection.execute("SELECT DISTINCT slot FROM queen_txn")}


def test_only_the_slot_that_is_filled_next_is_emptied_and_once_a_period(slots):
    period = fill(slots)
    slots.execute("UPDATE queen_txn_slot SET cleared_period = 0")
    slots.execute(CLEAR)
    assert filled(slots) == {period % 3, (period - 1) % 3}

    fill(slots)
    slots.execute(CLEAR)
    assert filled(slots) == {0, 1, 2}, "emptied twice in one period"


def test_a_slot_that_somebody_reads_is_left_for_the_next_step(slots, fresh_database):
    period = fill(slots)
    slots.execute("UPDATE queen_txn_slot SET cleared_period = 0")
    with psycopg.connect(slots.info.dsn) as reader:
        reader.execute(f"SELECT count(*) FROM queen_txn_{(period + 1) % 3}")
        slots.execute(CLEAR)
        assert filled(slots) == {0, 1, 2}
        reader.rollback()
    slots.execute(CLEAR)
    assert (period + 1) % 3 not in filled(slots)


def test_the_longest_class_is_purged_row_by_row_within_its_bound(slots):
    for age in ("1 day", "1 second"):
        slots.execute(
            "INSERT INTO queen_txn (partition_id, hash, message_offset, created_at, slot)"
            " VALUES (1, 1, 0, clock_timestamp() - %s::interval, 9)",
            [age],
        )
    slots.execute(CLEAR)
    [[left]] = slots.execute("SELECT count(*) FROM queen_txn WHERE slot = 9").fetchall()
    assert left == 1


def hold(connection: psycopg.Connection, age_s: float, *, told: str = "1 second") -> None:
    """A spool whose oldest record is so old; its mark moved `told` ago."""
    connection.execute("DELETE FROM queen_spool")
    connection.execute(
        "INSERT INTO queen_spool (spool_id, file, done, server_id, oldest_accepted_at, updated_at)"
        " VALUES (gen_random_uuid(), 'a.buf', 1, 's',"
        " clock_timestamp() - make_interval(secs => %s), clock_timestamp() - %s::interval)",
        [age_s, told],
    )


def emptied(connection: psycopg.Connection) -> bool:
    """Whether a clear empties a slot that is due, however young its period is."""
    fill(connection)
    connection.execute("UPDATE queen_txn_slot SET cleared_period = 0")
    connection.execute("UPDATE queen_txn_slot SET cleared_period = 10000000 WHERE txn_class > 0")
    [[cleared]] = connection.execute(CLEAR).fetchall()
    return bool(cleared)


def test_slots_are_kept_while_a_spool_is_replayed_whose_records_are_that_old(slots):
    hold(slots, 2 * 3600)
    assert not emptied(slots)
    assert filled(slots) == {0, 1, 2}
    hold(slots, 0)
    assert emptied(slots)


def test_a_slot_is_due_again_when_its_youngest_row_is_as_much_too_old_as_the_spool(slots):
    # How far we are into the period is how much older than a span the youngest row is.
    hold(slots, into_period_s(slots) + 30)
    assert not emptied(slots)
    hold(slots, into_period_s(slots) - 7)
    assert emptied(slots)


def test_the_oldest_record_of_all_spools_counts(slots):
    hold(slots, 2 * 3600)
    slots.execute(
        "INSERT INTO queen_spool (spool_id, file, done, server_id, oldest_accepted_at)"
        " VALUES (gen_random_uuid(), 'b.buf', 1, 's', clock_timestamp()),"
        "        (gen_random_uuid(), 'c.buf', 1, 's', NULL)"
    )
    assert not emptied(slots)


def test_a_mark_that_has_not_moved_for_five_minutes_holds_nothing_up(slots):
    hold(slots, 2 * 3600, told="4 minutes 30 seconds")
    assert not emptied(slots)
    hold(slots, 2 * 3600, told="5 minutes")
    assert emptied(slots)


def test_a_server_that_has_just_started_keeps_its_slots(slots):
    fill(slots)
    slots.execute("UPDATE queen_txn_slot SET cleared_period = 0")
    [[up_s]] = slots.execute(
        "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::integer"
    ).fetchall()
    clear = "SELECT queen_txn_slot_clear_v1(900, 1000, %s)"
    assert slots.execute(clear, [up_s + 300]).fetchall() == [(0,)]
    assert filled(slots) == {0, 1, 2}
    [[cleared]] = slots.execute(clear, [0]).fetchall()
    assert cleared > 0


def test_rows_of_the_longest_class_are_kept_longer_by_the_age_of_the_spool(slots):
    for age in ("3 hours", "1 hour"):
        slots.execute(
            "INSERT INTO queen_txn (partition_id, hash, message_offset, created_at, slot)"
            " VALUES (1, 1, 0, clock_timestamp() - %s::interval, 9)",
            [age],
        )
    hold(slots, 2 * 3600)
    slots.execute(CLEAR)
    [[left]] = slots.execute("SELECT count(*) FROM queen_txn WHERE slot = 9").fetchall()
    assert left == 1
    slots.execute("DELETE FROM queen_spool")
    slots.execute(CLEAR)
    [[left]] = slots.execute("SELECT count(*) FROM queen_txn WHERE slot = 9").fetchall()
    assert left == 0
