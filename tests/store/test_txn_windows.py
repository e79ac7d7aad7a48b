"""A transactionId is known for as long as its window says, whatever slots come and go meanwhile.

Method: a database of the test's own in which `clock_timestamp()` is found in another schema
first, and answers the time that the test has set: hours pass between two statements. A model
that remembers when each id was stored says what a push must answer.
"""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.store import calls, chore_calls, leader_calls, management_calls
from tests.store.calling import Lane, call, flush, waits_for_lock
from tests.store.retaining import lead
from tests.store.retaining import step as delete_due

SPAN_S = 300
HOUR_S = 3600
DAY_S = 86_400
# A boundary of the periods of all classes, in the future of any server that runs the tests.
BEGIN_S = 2_592_000 * 2000
SLOTS_IN_USE = "SELECT array_agg(DISTINCT slot ORDER BY slot) FROM queen_txn"

OWN_CLOCK = """
CREATE SCHEMA IF NOT EXISTS own_clock;
CREATE OR REPLACE FUNCTION own_clock.clock_timestamp() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT to_timestamp(current_setting('test.now_s')::double precision)
$$;
"""


class Hours:
    """A connection to whose procedures it is as late as it is told."""

    def __init__(self, connection) -> None:
        self.db = connection
        connection.execute(OWN_CLOCK)
        connection.execute("SET search_path = own_clock, pg_catalog, public")
        self.set(BEGIN_S)

    def set(self, now_s: float) -> None:
        self.now_s = now_s
        self.db.execute("SELECT set_config('test.now_s', %s, false)", [str(now_s)])

    def clear(self, rows_max: int = 1000) -> int:
        return call(
            self.db, chore_calls.txn_slot_clear, longest_s=60, rows_max=rows_max, settle_s=0
        )

    def tell(self, floor_s: int) -> int:
        return call(self.db, chore_calls.txn_floor_set, floor_s)

    def configure(self, queue: str, **patch: int) -> tuple[int, bool]:
        row = call(self.db, management_calls.queue_configure, DEFAULT_TENANT, queue, patch)
        return row.columns["txn_class"], row.columns["txn_class_mixed"]

    def stands(self, queue: str) -> tuple[int, bool]:
        [row] = self.db.execute(
            "SELECT txn_class, txn_class_mixed FROM queen_queue WHERE name = %s", [queue]
        ).fetchall()
        return row

    def slots(self) -> list[int]:
        [[slots]] = self.db.execute(SLOTS_IN_USE).fetchall()
        return slots or []


@pytest.fixture
def hours(fresh_database):
    with fresh_database().connect() as connection:
        yield Hours(connection)


def knows(lane: Lane, *ids: str) -> list[bool]:
    """Push these ids, a flush together: whether each was a duplicate."""
    group = flush(lane.row, tuple(range(len(ids))), list(ids))
    [answer] = call(lane.db, calls.message_push, [group], wait_ms=5000)
    assert answer.verdict == "stored"
    left_out = answer.duplicate_positions or []
    return [position in left_out for position in range(len(ids))]


def some_time_later(dice: random.Random, now_s: float) -> float:
    """Often around the end of a period: a little before it, on it, and just behind it."""
    if dice.random() < 0.5:
        return now_s + dice.uniform(0, 130)
    boundary = (now_s // SPAN_S + dice.choice([1, 1, 2])) * SPAN_S
    return max(now_s, boundary + dice.choice([-0.001, 0, 0.001, 4.999, 5, 6, 299]))


@pytest.mark.parametrize("windows", [(300,), (60,), (60, 300, 3600), (299, 4000, 100_000)])
@pytest.mark.parametrize("neighbour_window", [None, 3600])
def test_an_id_is_known_for_its_window_and_no_longer_over_any_slots_and_reconfigurations(
    hours, windows, neighbour_window
):
    dice = random.Random(f"{windows} {neighbour_window}")
    window = windows[0]
    hours.tell(60)
    hours.configure("q", dedup_window_seconds=window)
    if neighbour_window:
        hours.configure("neighbour", dedup_window_seconds=neighbour_window)
        neighbour = Lane(hours.db, "neighbour")
    stored_at: dict[str, float] = {}
    once_too_old: set[str] = set()
    for step in range(160):
        hours.set(some_time_later(dice, hours.now_s))
        once_too_old |= {one for one, at in stored_at.items() if hours.now_s - at >= window}
        if len(windows) > 1 and dice.random() < 0.1:
            window = dice.choice(windows)
            hours.configure("q", dedup_window_seconds=window)
        if dice.random() < 0.8:
            hours.tell(60)
            hours.clear()
            hours.clear()
        ids = [f"t{n}" for n in dice.sample(range(25), 3)]
        lane = Lane(hours.db, "q")
        if neighbour_window:
            other = flush(neighbour.row, ("n",), [f"n{step}"])
            group = flush(lane.row, tuple(ids), ids)
            answers = call(hours.db, calls.message_push, [other, group], wait_ms=5000)
            assert [answer.verdict for answer in answers] == ["stored", "stored"]
            left_out = answers[1].duplicate_positions or []
            known = [position in left_out for position in range(len(ids))]
        else:
            known = knows(lane, *ids)
        for one, was_known in zip(ids, known, strict=True):
            age = hours.now_s - stored_at.get(one, 0)
            # A window that was lengthened brings nothing back that had left the shorter one.
            if age >= window or one not in once_too_old:
                assert was_known == (age < window), (step, one, age, window)
            if not was_known:
                stored_at[one] = hours.now_s
                once_too_old.discard(one)
    assert once_too_old, "nothing grew old: this has shown little"


def test_a_short_window_lies_in_slots_of_five_minutes_and_three_of_them_at_most(hours):
    hours.tell(300)
    assert hours.configure("q", dedup_window_seconds=300) == (4, False)
    lane = Lane(hours.db, "q")
    for period in range(8):
        hours.set(BEGIN_S + period * SPAN_S + 2)
        knows(lane, f"a{period}")
        hours.set(BEGIN_S + period * SPAN_S + 6)
        hours.clear()
        filled = {10 + (BEGIN_S // SPAN_S + one) % 3 for one in (period, max(period - 1, 0))}
        assert set(hours.slots()) == filled


def test_a_slot_is_left_alone_while_a_push_may_still_read_it_that_read_the_clock_before(hours):
    hours.tell(60)
    hours.configure("q", dedup_window_seconds=300)
    lane = Lane(hours.db, "q")
    hours.set(BEGIN_S + SPAN_S - 0.001)
    knows(lane, "t")
    # Until here a push that read its clock in period 1 needs the id: now period 2 has begun.
    hours.set(BEGIN_S + 2 * SPAN_S + 4.9)
    assert (hours.clear(), len(hours.slots())) == (0, 1)
    hours.set(BEGIN_S + 2 * SPAN_S + 5.1)
    assert (hours.clear(), hours.slots()) == (1, [])


def test_a_slot_is_emptied_only_when_every_id_of_a_lengthened_window_is_carried_over(hours):
    hours.tell(60)
    hours.configure("q", dedup_window_seconds=60)
    ids = [f"t{n}" for n in range(25)]
    knows(Lane(hours.db, "q"), *ids)
    hours.configure("q", dedup_window_seconds=HOUR_S)
    hours.set(BEGIN_S + 2 * SPAN_S + 10)
    # A step carries at most twenty times its bound of rows.
    assert [hours.clear(rows_max=1) for _ in range(4)] == [0, 0, 1, 0]
    assert hours.slots() == [0]
    assert all(knows(Lane(hours.db, "q"), *ids))


def test_a_slot_without_rows_is_not_truncated(hours):
    hours.set(BEGIN_S + 10)
    node = "SELECT array_agg(pg_relation_filenode(inhrelid) ORDER BY 1) FROM pg_inherits"
    before = hours.db.execute(node).fetchall()
    assert hours.clear() == 0
    assert hours.db.execute(node).fetchall() == before
    [[marked]] = hours.db.execute(
        "SELECT count(*) FROM queen_txn_slot WHERE cleared_period > 0"
    ).fetchall()
    assert marked == 4


def test_until_a_broker_tells_its_floor_ids_are_kept_for_a_quarter_of_an_hour(hours):
    assert hours.configure("q", dedup_window_seconds=60) == (0, False)


def test_a_longer_floor_that_comes_later_moves_queues_to_longer_slots(hours):
    hours.tell(60)
    assert hours.configure("q", dedup_window_seconds=60) == (4, False)
    assert hours.configure("long", dedup_window_seconds=2 * DAY_S) == (2, False)
    assert hours.tell(900) == 1
    assert hours.tell(900) == 0
    assert hours.stands("q") == (0, True)
    assert hours.stands("long") == (2, False)
    assert hours.configure("later", dedup_window_seconds=60) == (0, False)


@pytest.mark.parametrize("order", [(60, 900), (900, 60)])
def test_the_longest_floor_holds_in_whatever_order_brokers_start(hours, order):
    for floor_s in order:
        hours.tell(floor_s)
    assert hours.configure("q", dedup_window_seconds=60) == (0, False)


def test_a_floor_is_given_up_an_hour_after_the_last_broker_told_it(hours):
    hours.tell(900)
    hours.set(BEGIN_S + HOUR_S - 1)
    hours.tell(60)
    assert hours.configure("q", dedup_window_seconds=60) == (0, False)
    hours.set(BEGIN_S + HOUR_S + 1)
    assert hours.configure("q", dedup_window_seconds=60) == (4, True)
    # It comes back: what was configured in between is moved up again.
    assert hours.tell(900) == 1
    assert hours.stands("q") == (0, True)


def test_a_queue_that_nobody_configured_keeps_ids_for_a_long_floor_too(hours):
    hours.tell(2 * HOUR_S)
    Lane(hours.db, "q")
    assert hours.stands("q") == (1, False)


def test_a_floor_that_comes_during_an_edit_is_looked_after_behind_it(fresh_database):
    own = fresh_database()
    with own.connect() as db, own.connect(autocommit=False) as editor, own.connect() as late:
        call(db, chore_calls.txn_floor_set, 60)
        patch = {"dedup_window_seconds": 60}
        row = call(editor, management_calls.queue_configure, DEFAULT_TENANT, "q", patch)
        assert row.columns["txn_class"] == 4
        with ThreadPoolExecutor(1) as pool:
            telling = pool.submit(call, late, chore_calls.txn_floor_set, 900)
            while not waits_for_lock(db):
                assert not telling.done(), "it should wait for the edit"
            editor.commit()
            assert telling.result(timeout=30) == 1
        [[txn_class]] = db.execute("SELECT txn_class FROM queen_queue").fetchall()
        assert txn_class == 0


NOTE_LOCKS = """
CREATE TABLE noted (locked bigint);
CREATE FUNCTION note_locks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO noted
    SELECT count(*) FROM pg_locks
     WHERE pid = pg_backend_pid() AND mode = 'AccessExclusiveLock'
       AND relation IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'queen_txn'::regclass);
    RETURN NEW;
END;
$$;
CREATE TRIGGER note_locks BEFORE INSERT ON queen_txn_8
   FOR EACH ROW EXECUTE FUNCTION note_locks();
"""


def test_no_slot_is_locked_while_rows_of_another_class_are_carried(hours):
    hours.tell(60)
    hours.configure("long", dedup_window_seconds=DAY_S)
    hours.configure("short", dedup_window_seconds=HOUR_S)
    knows(Lane(hours.db, "long"), "kept")
    hours.set(BEGIN_S + HOUR_S + 1)
    knows(Lane(hours.db, "short"), "old")
    hours.configure("long", dedup_window_seconds=20 * DAY_S)
    hours.db.execute(NOTE_LOCKS)
    # The slots of an hour and of a day are due together.
    hours.set(BEGIN_S + 2 * DAY_S + 10)
    assert hours.clear() == 1
    assert hours.slots() == [8]
    assert hours.db.execute("SELECT locked FROM noted").fetchall() == [(0,)]
    assert knows(Lane(hours.db, "long"), "kept") == [True]


ROWS_READ = """
SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_xact_user_tables
 WHERE relname = %s
"""


def rows_read(hours, table: str, rows_max: int) -> int:
    """How many rows of a table one step of clearing looks at."""
    with hours.db.transaction():
        [[before]] = hours.db.execute(ROWS_READ, [table]).fetchall()
        hours.clear(rows_max)
        [[after]] = hours.db.execute(ROWS_READ, [table]).fetchall()
    return int(after - before)


def test_what_is_carried_is_found_without_looking_at_the_rows_of_other_queues(hours):
    hours.tell(60)
    hours.configure("moved", dedup_window_seconds=60)
    hours.configure("stays", dedup_window_seconds=60)
    knows(Lane(hours.db, "moved"), "t")
    knows(Lane(hours.db, "stays"), *(f"t{n}" for n in range(500)))
    hours.configure("moved", dedup_window_seconds=HOUR_S)
    hours.set(BEGIN_S + 2 * SPAN_S + 10)
    assert rows_read(hours, "queen_txn_10", 1000) <= 10
    assert hours.slots() == [0, 10]
    assert hours.clear() == 1
    assert knows(Lane(hours.db, "moved"), "t") == [True]


def test_of_the_longest_class_a_step_looks_at_no_more_rows_than_it_is_told(hours):
    hours.tell(60)
    hours.configure("q", dedup_window_seconds=40 * DAY_S)
    needed = "SELECT %s, n, n, to_timestamp(%s + n), 9 FROM generate_series(1, 50) AS n"
    hours.db.execute(f"INSERT INTO queen_txn {needed}", [Lane(hours.db, "q").id, BEGIN_S])
    # Behind them one of a partition that is gone.
    hours.db.execute("INSERT INTO queen_txn SELECT 0, 0, 0, to_timestamp(%s), 9", [BEGIN_S + 51])
    hours.set(BEGIN_S + DAY_S)
    left = []
    for _ in range(6):
        assert rows_read(hours, "queen_txn_9", 10) <= 20
        left += hours.db.execute("SELECT count(*) FROM queen_txn_9").fetchall()
    assert [rows for [rows] in left] == [51] * 5 + [50]

    # It begins anew with the oldest.
    hours.set(BEGIN_S + 40 * DAY_S + 30)
    for _ in range(6):
        hours.clear(rows_max=10)
    assert hours.db.execute("SELECT count(*) FROM queen_txn_9").fetchall() == [(21,)]


def test_slots_that_were_emptied_under_a_clock_far_ahead_are_emptied_again(hours):
    hours.tell(300)
    hours.configure("q", dedup_window_seconds=300)
    lane = Lane(hours.db, "q")
    hours.db.execute("UPDATE queen_txn_slot SET cleared_period = 99999999")
    for period in range(9):
        hours.set(BEGIN_S + period * SPAN_S + 10)
        assert knows(lane, f"t{period}") == [False]
        hours.clear()
    filled = {10 + (BEGIN_S // SPAN_S + period) % 3 for period in (7, 8)}
    assert set(hours.slots()) == filled


def test_an_id_outlives_the_removal_of_its_empty_partition_within_its_window(hours):
    window_s = 20 * DAY_S
    hours.configure("q", dedup_window_seconds=window_s, max_wait_time_seconds=1)
    knows(Lane(hours.db, "q"), "first")
    # Within a second of the first: last_write_at does not move.
    hours.set(BEGIN_S + 0.9)
    knows(Lane(hours.db, "q"), "t")

    hours.set(BEGIN_S + window_s + 0.5)
    token = lead(hours.db)
    assert delete_due(hours.db, token, Lane(hours.db, "q")).verdict == "done"
    cleanup = {"idle_s": DAY_S, "rows_max": 100}
    assert call(hours.db, leader_calls.partition_cleanup, token, **cleanup).removed == 0
    assert knows(Lane(hours.db, "q"), "t") == [True]

    hours.set(BEGIN_S + window_s + 2)
    token = lead(hours.db)
    assert call(hours.db, leader_calls.partition_cleanup, token, **cleanup).removed == 1


@pytest.mark.parametrize("floor_s", [60, 900, 2 * DAY_S])
def test_a_queue_without_a_window_stores_what_comes_again_after_the_clock_was_put_back(
    hours, floor_s
):
    hours.tell(floor_s)
    hours.configure("q", dedup_window_seconds=0)
    lane = Lane(hours.db, "q")
    hours.set(BEGIN_S + 100)
    assert knows(lane, "t") == [False]
    hours.set(BEGIN_S + 50)
    assert knows(lane, "t") == [False]
