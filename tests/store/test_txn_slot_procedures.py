"""The slots of the transaction index are emptied when nobody can need them, and never before."""

import psycopg
import pytest

from tests import harness

CLEAR = "SELECT queen_txn_slot_clear_v1(900, 1000, 0)"
PERIOD = "SELECT floor(extract(epoch FROM clock_timestamp()) / 3600)::bigint"


@pytest.fixture
def slots(fresh_database):
    own: harness.Database = fresh_database()
    with own.connect() as connection:
        yield connection


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
