"""The procedures of timers: statuses, claims that come before and after, and one lock order.

Method: the store's coroutines on real PostgreSQL; a second connection holds the locks, and
plays the broker that has the claim. Due and lease times are made past by the table's own
columns or by waiting for the database's clock, never by this process's.
"""

import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.store import management_calls, timer_calls, transaction_calls
from tests.harness import eventually as wait_until
from tests.store.calling import Lane, call, flush, waits_for_lock
from tests.store.timer_calling import (
    apply,
    cancel,
    claim,
    fail,
    fire,
    group,
    peek,
    probe_of,
    schedule,
    statuses,
    stored,
)


def claim_that_runs_out(db, queue, key="a"):
    """A claim whose lease is over, and whose rows nobody has touched since."""
    claimed = claim(db, lease_ms=1)
    wait_until(lambda: not peek(db, queue, key).claimed)
    return claimed


@pytest.fixture(autouse=True)
def nothing_left_behind(db):
    """Claims take what is due whosever it is, so each test begins and ends without timers."""
    db.execute("DELETE FROM queen_timer")
    yield
    db.execute("DELETE FROM queen_timer")


# --- statuses -----------------------------------------------------------------------------------


def test_the_closed_list_of_statuses(db, fresh_queue):
    assert statuses(db, schedule(fresh_queue, "a"), cancel(fresh_queue, "b")) == [
        "scheduled",
        "absent",
    ]
    assert statuses(db, schedule(fresh_queue, "a")) == ["rescheduled"]
    assert statuses(db, cancel(fresh_queue, "a")) == ["cancelled"]
    assert statuses(db, cancel(fresh_queue, "a")) == ["absent"]
    apply(db, schedule(fresh_queue, "a", -1))
    claim(db)
    assert statuses(db, cancel(fresh_queue, "a"), schedule(fresh_queue, "b")) == [
        "too_late",
        "scheduled",
    ]
    assert statuses(db, schedule(fresh_queue, "a")) == ["too_late"]


def test_outcomes_are_in_the_order_asked_whatever_the_order_of_locks(db, fresh_queue):
    keys = ["z", "a", "é", "Z", "m", "aa"]
    outcomes = apply(db, *[schedule(fresh_queue, key, 1000 * no) for no, key in enumerate(keys, 1)])
    for no, (key, outcome) in enumerate(zip(keys, outcomes, strict=True), 1):
        timer = peek(db, fresh_queue, key)
        assert (timer.message_id, timer.deliver_us) == (outcome.message_id, outcome.deliver_us)
        assert timer.deliver_us - timer.updated_us == no * 1_000_000


def test_a_reschedule_starts_anew_under_the_old_name(db, fresh_queue):
    apply(db, schedule(fresh_queue, "a", -1))
    token, timers = claim(db)
    fail(db, token, timers, error="why")
    before = peek(db, fresh_queue, "a")
    assert (before.attempts, before.last_error) == (1, "why")
    apply(db, schedule(fresh_queue, "a", 5000, payload=b"[]", partition="p2", txn="other"))
    after = peek(db, fresh_queue, "a")
    assert (after.attempts, after.last_error, after.claimed) == (0, None, False)
    assert (after.payload, after.partition, after.transaction_literal) == (b"[]", "p2", '"other"')
    assert after.message_id != before.message_id
    assert after.created_us == before.created_us < after.updated_us


def test_a_key_belongs_to_a_tenant_and_a_queue(db, fresh_queue):
    other = uuid.uuid4()
    apply(db, schedule(fresh_queue, "a"))
    assert peek(db, fresh_queue, "a", other) is None
    assert peek(db, fresh_queue + "x", "a") is None
    assert statuses(db, cancel(fresh_queue, "a"), tenant=other) == ["absent"]
    assert statuses(db, schedule(fresh_queue, "a"), tenant=other) == ["scheduled"]
    assert statuses(db, cancel(fresh_queue, "a")) == ["cancelled"]
    assert peek(db, fresh_queue, "a", other) is not None


def test_a_message_id_is_a_uuid_7_of_its_due_time_and_sorts_by_it(db, fresh_queue):
    same = [schedule(fresh_queue, f"same-{no:02}", 7000) for no in range(20)]
    random.shuffle(same)
    outcomes = apply(db, *same)
    ids = [one.message_id for one in outcomes]
    assert len({one.deliver_us for one in outcomes}) == 1
    assert ids == sorted(ids), "timers of one call that are due together keep its order"
    for one in outcomes:
        made = UUID(one.message_id)
        assert (made.version, made.variant) == (7, uuid.RFC_4122)
        assert made.int >> 80 == one.deliver_us // 1000
    later = [apply(db, schedule(fresh_queue, f"later-{no}", 7000))[0] for no in range(50)]
    ids = [one.message_id for one in later]
    assert ids == sorted(ids)


def test_a_queue_that_encrypts_takes_no_plain_timer_and_the_batch_is_left_undone(db, fresh_queue):
    Lane(db, fresh_queue)
    db.execute("UPDATE queen_queue SET encryption_enabled = true WHERE name = %s", [fresh_queue])
    with pytest.raises(psycopg.Error) as refused:
        apply(db, schedule(fresh_queue + "x", "a"), schedule(fresh_queue, "a"))
    assert refused.value.sqlstate == "QN010"
    assert peek(db, fresh_queue + "x", "a") is None
    assert statuses(db, cancel(fresh_queue, "a"), schedule(fresh_queue + "x", "a")) == [
        "absent",
        "scheduled",
    ]


# --- pages and counts ---------------------------------------------------------------------------


def test_pages_are_by_the_bytes_of_the_keys(db, fresh_queue):
    keys = ["Z", "a", "a/b", "a\U0010ffff", "aa", "b", "é", "東"]
    apply(db, *[schedule(fresh_queue, key) for key in keys])
    in_order = sorted(keys, key=lambda key: key.encode())
    seen, after = [], None
    while rows := call(
        db, timer_calls.timer_list, DEFAULT_TENANT, fresh_queue, after=after, limit=3
    ):
        seen += [row.key for row in rows]
        after = seen[-1]
    assert seen == in_order


def count(db, queue, prefix, count_max):
    return call(
        db, timer_calls.timer_count, DEFAULT_TENANT, queue, prefix=prefix, count_max=count_max
    )


def test_a_prefix_is_counted_by_its_bytes_and_has_no_wildcards(db, fresh_queue):
    keys = ["a", "a%", "a%b", "a_b", "axb", "b", "a\U0010ffff" + "x", "a" * 512, "é", "é1"]
    apply(db, *[schedule(fresh_queue, key) for key in keys])
    for prefix in ("a", "a%", "a_", "é", "b", "c", "a\U0010ffff", "a" * 128):
        counted = count(db, fresh_queue, prefix, 1000)
        assert counted == sum(key.startswith(prefix) for key in keys), prefix


def test_a_count_goes_no_further_than_it_is_told(db, fresh_queue):
    apply(db, *[schedule(fresh_queue, f"k{no}") for no in range(5)])
    assert [count(db, fresh_queue, "k", most) for most in (4, 5, 6)] == [4, 5, 5]


# --- claims -------------------------------------------------------------------------------------


def test_nothing_is_claimed_before_its_time_by_the_databases_clock(db, fresh_queue, eventually):
    apply(db, schedule(fresh_queue, "a", 300), schedule(fresh_queue, "b", 60_000))
    assert claim(db)[1] == []
    _, [timer] = eventually(lambda: (found := claim(db))[1] and found)
    assert timer.late_us >= 0
    assert timer.transaction_literal == '"txn-a"'
    assert claim(db)[1] == []


def test_two_brokers_share_what_is_due(db, fresh_queue, second_connection):
    apply(db, *[schedule(fresh_queue, f"k{no}", -no) for no in range(50)])
    other = second_connection()
    mine = claim(other, limit=20)[1]
    yours = claim(db)[1]
    other.commit()
    assert len(mine) == 20 and len(yours) == 30
    assert not {one.message_id for one in mine} & {one.message_id for one in yours}


def test_a_claim_is_bounded_in_rows_and_in_bytes_but_never_empty(db, fresh_queue):
    apply(db, *[schedule(fresh_queue, f"k{no}", -1, payload=b'"xxxxxxxx"') for no in range(9)])
    assert len(claim(db, limit=2)[1]) == 2
    assert len(claim(db, bytes_max=35)[1]) == 3
    assert len(claim(db, bytes_max=1)[1]) == 1
    assert len(claim(db, limit=100)[1]) == 3


def test_a_long_backlog_of_one_partition_does_not_keep_the_others_waiting(db, fresh_queue):
    apply(db, *[schedule(fresh_queue, f"old{no}", -9000 - no) for no in range(200)])
    apply(db, *[schedule(fresh_queue, f"k{no}", -1, partition=f"p{no}") for no in range(30)])
    elsewhere = db.execute(
        "SELECT partition FROM queen_timer WHERE shard <>"
        " (SELECT shard FROM queen_timer WHERE timer_key = 'old0')"
    ).fetchall()
    claimed = claim(db, limit=160, start=random.randrange(64))[1]
    assert len(claimed) == 160
    assert {one.partition for one in claimed} >= {"Default", *(name for (name,) in elsewhere)}


def test_the_oldest_of_a_partition_are_claimed_first(db, fresh_queue):
    apply(db, *[schedule(fresh_queue, f"k{no}", -1000 + no) for no in range(20)])
    claimed = claim(db, limit=8)[1]
    assert {one.transaction_literal for one in claimed} == {f'"txn-k{no}"' for no in range(8)}


def test_a_claim_that_ran_out_is_taken_by_the_next(db, fresh_queue):
    apply(db, schedule(fresh_queue, "a", -1))
    first, timers = claim_that_runs_out(db, fresh_queue)
    second, again = claim(db)
    assert [one.message_id for one in again] == [one.message_id for one in timers]
    lane = Lane(db, fresh_queue)
    assert claim(db)[1] == []
    assert fire(db, first, lane, timers).verdict == "short"
    assert fire(db, second, lane, again).verdict == "stored"
    assert len(stored(db, fresh_queue)) == 1


def test_the_probe_tells_what_is_due_and_when_the_next_is(db, fresh_queue):
    assert probe_of(db) == (0, None, None)
    apply(db, schedule(fresh_queue, "far", 60_000))
    probe = probe_of(db)
    assert (probe.due, probe.late_us) == (0, None)
    assert 50_000_000 < probe.next_us <= 60_000_000
    assert probe_of(db, ahead_ms=50_000) == (0, None, None), "nobody sleeps as long as that"
    apply(db, *[schedule(fresh_queue, f"k{no}", -5000, partition=f"p{no}") for no in range(12)])
    assert probe_of(db, 1000).due == 12
    probe = probe_of(db)
    assert probe.due == 10
    assert probe.late_us >= 5_000_000 and probe.next_us > 50_000_000
    claim(db, lease_ms=20_000)
    probe = probe_of(db)
    assert probe.due == 0
    assert 10_000_000 < probe.next_us <= 20_000_000, "a claimed one is due when its lease ends"


def test_the_probe_and_the_claim_read_index_ranges_only(db, fresh_queue):
    """A million timers a week ahead cost nothing because no plan ever sees them."""
    for name in ("queen_timer_probe_v1", "queen_timer_claim_v1"):
        row = db.execute("SELECT proconfig FROM pg_proc WHERE proname = %s", [name]).fetchone()
        assert "enable_seqscan=off" in row[0] and "enable_sort=off" in row[0]
    db.execute(
        "INSERT INTO queen_timer (tenant_id, queue, timer_key, partition, deliver_at, txn,"
        " message_id, payload, shard) SELECT %s, %s, 'far' || n, 'p', clock_timestamp() +"
        " interval '7 days', '\"t\"', gen_random_uuid(), '0', n %% 64"
        " FROM generate_series(1, 20000) AS n",
        [DEFAULT_TENANT, fresh_queue],
    )

    def rows_read() -> int:
        """Of this transaction alone: what others did is told late, and to all."""
        row = db.execute(
            "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables"
            " WHERE relname = 'queen_timer'"
        ).fetchone()
        return row[0]

    with db.transaction():
        before = rows_read()
        assert probe_of(db, 2000, ahead_ms=1000) == (0, None, None)
        assert claim(db, limit=200)[1] == []
        assert rows_read() == before


# --- a cancel or a reschedule against a claim ---------------------------------------------------


def test_a_cancel_that_waits_for_a_claim_is_too_late(db, fresh_queue, second_connection):
    apply(db, schedule(fresh_queue, "a", -1))
    other = second_connection()
    with ThreadPoolExecutor(1) as pool:
        claim(other)
        waiting = pool.submit(statuses, db, cancel(fresh_queue, "a"))
        with psycopg.connect(**db.info.get_parameters(), autocommit=True) as watcher:
            wait_until(lambda: waits_for_lock(watcher))
        other.commit()
        assert waiting.result(10) == ["too_late"]


def test_a_claim_passes_by_a_timer_that_is_being_cancelled(db, fresh_queue, second_connection):
    apply(db, schedule(fresh_queue, "a", -1), schedule(fresh_queue, "b", -1))
    other = second_connection()
    assert statuses(other, cancel(fresh_queue, "a")) == ["cancelled"]
    [timer] = claim(db)[1]
    assert timer.transaction_literal == '"txn-b"'
    other.commit()
    assert claim(db)[1] == []


def test_a_cancel_that_is_rolled_back_cancelled_nothing(db, fresh_queue, second_connection):
    apply(db, schedule(fresh_queue, "a", -1))
    other = second_connection()
    assert statuses(other, cancel(fresh_queue, "a")) == ["cancelled"]
    other.rollback()
    assert len(claim(db)[1]) == 1


def test_a_schedule_that_waits_for_a_fire_makes_a_new_timer(db, fresh_queue, second_connection):
    apply(db, schedule(fresh_queue, "a", -1))
    lane = Lane(db, fresh_queue)
    token, timers = claim(db)
    other = second_connection()
    assert fire(other, token, lane, timers).verdict == "stored"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(statuses, db, schedule(fresh_queue, "a"))
        with psycopg.connect(**db.info.get_parameters(), autocommit=True) as watcher:
            wait_until(lambda: waits_for_lock(watcher))
        other.commit()
        assert waiting.result(10) == ["scheduled"]
    assert len(stored(db, fresh_queue)) == 1


def test_a_cancel_during_a_fire_is_told_at_once_and_after_it_finds_nothing(
    db, fresh_queue, second_connection
):
    apply(db, schedule(fresh_queue, "a", -1))
    lane = Lane(db, fresh_queue)
    token, timers = claim(db)
    other = second_connection()
    assert fire(other, token, lane, timers).verdict == "stored"
    assert statuses(db, cancel(fresh_queue, "a")) == ["too_late"]
    other.commit()
    assert statuses(db, cancel(fresh_queue, "a")) == ["absent"]


@pytest.mark.parametrize("operation", [schedule, cancel])
def test_a_lease_that_ran_out_lets_the_timer_be_changed_and_stops_the_late_fire(
    db, fresh_queue, operation
):
    apply(db, schedule(fresh_queue, "a", -1), schedule(fresh_queue, "b", -1))
    token, timers = claim_that_runs_out(db, fresh_queue)
    assert statuses(db, operation(fresh_queue, "a")) == [
        "rescheduled" if operation is schedule else "cancelled"
    ]
    lane = Lane(db, fresh_queue)
    row = fire(db, token, lane, timers)
    assert row.verdict == "short"
    assert stored(db, fresh_queue) == []
    held = [timers[no - 1] for no in row.held]
    assert [one.transaction_literal for one in held] == ['"txn-b"']
    assert fire(db, token, lane, held).verdict == "stored"
    assert [txn for txn, _ in stored(db, fresh_queue)] == ['"txn-b"']


# --- the fire -----------------------------------------------------------------------------------


def test_a_fire_stores_the_payload_as_it_is_and_leaves_no_timer(db, fresh_queue):
    payload = b'{"b":1,"a":1.0,"a":1E2,"s":"\\ud800"}'
    apply(db, schedule(fresh_queue, "a", -1, payload=payload, txn='say "hi"'))
    token, timers = claim(db)
    assert fire(db, token, Lane(db, fresh_queue), timers).verdict == "stored"
    assert stored(db, fresh_queue) == [('"say \\"hi\\""', payload)]
    assert peek(db, fresh_queue, "a") is None


def test_a_fire_enters_the_log_in_due_order(db, fresh_queue):
    apply(db, *[schedule(fresh_queue, f"k{no:02}", -1000 + no * 7 % 40) for no in range(40)])
    token, timers = claim(db)
    by_due = sorted(timers, key=lambda one: -one.late_us)
    assert fire(db, token, Lane(db, fresh_queue), timers).verdict == "stored"
    assert [txn for txn, _ in stored(db, fresh_queue)] == [
        one.transaction_literal for one in by_due
    ]


def test_a_fire_does_not_ask_the_dedup_window_but_is_remembered_by_it(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    assert lane.push("pushed", ids=["same"]) == "stored"
    apply(db, schedule(fresh_queue, "a", -1, txn="same"), schedule(fresh_queue, "b", -1, txn="b"))
    token, timers = claim(db)
    assert fire(db, token, lane, timers).verdict == "stored"
    assert len(stored(db, fresh_queue)) == 3
    assert lane.push("again", ids=["b"]) == "stored"  # the verdict of a group of duplicates
    assert len(stored(db, fresh_queue)) == 3


def test_created_at_and_id_never_decrease_behind_a_fired_message(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.push("first")
    apply(db, schedule(fresh_queue, "a", -3_600_000))
    token, timers = claim(db)
    assert fire(db, token, lane, timers).verdict == "stored"
    lane.push("last")
    rows = db.execute(
        "SELECT date_trunc('milliseconds', created_at), substr(convert_from(frames, 'UTF8'), 8, 36)"
        " FROM queen_segment WHERE partition_id = %s ORDER BY base_offset",
        [lane.id],
    ).fetchall()
    assert rows == sorted(rows) and len(rows) == 3


def test_a_fire_that_is_rolled_back_keeps_its_timers_and_their_ids(
    db, fresh_queue, second_connection
):
    [scheduled] = apply(db, schedule(fresh_queue, "a", -1))
    lane = Lane(db, fresh_queue)
    token, timers = claim_that_runs_out(db, fresh_queue)
    other = second_connection()
    assert fire(other, token, lane, timers).verdict == "stored"
    other.rollback()
    assert stored(db, fresh_queue) == []
    token, timers = claim(db)
    assert fire(db, token, lane, timers).verdict == "stored"
    assert timers[0].message_id == scheduled.message_id
    assert fire(db, token, lane, timers).verdict == "short", "a repeated fire finds them gone"
    assert len(stored(db, fresh_queue)) == 1


def test_a_partition_that_somebody_holds_is_busy_and_its_timers_stay_claimed(
    db, fresh_queue, second_connection
):
    free, held = Lane(db, fresh_queue, "free"), Lane(db, fresh_queue, "held")
    apply(
        db,
        schedule(fresh_queue, "a", -1, partition="free"),
        schedule(fresh_queue, "b", -1, partition="held"),
    )
    token, timers = claim(db)
    timers.sort(key=lambda one: one.partition)
    other = second_connection()
    other.execute("SELECT 1 FROM queen_partition WHERE id = %s FOR UPDATE", [held.id])
    rows = call(
        db,
        timer_calls.timer_fire,
        token,
        [one.place for one in timers],
        [1, 2],
        [group(free, timers[:1]), group(held, timers[1:])],
        wait_ms=0,
    )
    assert {row.group: row.verdict for row in rows} == {1: "stored", 2: "busy"}
    assert peek(db, fresh_queue, "a") is None
    assert peek(db, fresh_queue, "b").claimed
    other.commit()
    assert fire(db, token, held, timers[1:]).verdict == "stored"


def test_ids_of_before_a_configure_are_stale_and_nothing_is_lost(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    apply(db, schedule(fresh_queue, "a", -1))
    token, timers = claim(db)
    db.execute(
        "UPDATE queen_queue SET config_version = config_version + 1 WHERE name = %s", [fresh_queue]
    )
    assert fire(db, token, lane, timers).verdict == "stale"
    assert peek(db, fresh_queue, "a").claimed
    assert fire(db, token, Lane(db, fresh_queue), timers).verdict == "stored"


def test_a_deleted_queue_takes_its_timers_with_it(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    apply(db, schedule(fresh_queue, "a", -1), schedule(fresh_queue, "b"))
    apply(db, schedule(fresh_queue + "x", "a"))
    token, timers = claim(db)
    call(db, management_calls.queue_delete, DEFAULT_TENANT, fresh_queue)
    assert peek(db, fresh_queue, "b") is None
    assert fire(db, token, lane, timers).verdict == "short"
    assert peek(db, fresh_queue + "x", "a") is not None


# --- failures -----------------------------------------------------------------------------------


def test_a_transient_failure_charges_nothing_and_waits(db, fresh_queue):
    apply(db, schedule(fresh_queue, "a", -1))
    token, timers = claim(db)
    assert fail(db, token, timers) == [(1, False, 0)]
    timer = peek(db, fresh_queue, "a")
    assert (timer.attempts, timer.last_error, timer.claimed) == (0, None, False)
    assert claim(db)[1] == []
    assert statuses(db, cancel(fresh_queue, "a")) == ["cancelled"]


def test_a_poisoned_timer_backs_off_longer_each_time_and_stays_cancellable(db, fresh_queue):
    apply(db, schedule(fresh_queue, "a", -1))
    lane = Lane(db, fresh_queue)
    waits = []
    for attempt in (1, 2, 3, 4):
        token, timers = claim(db)
        [row] = fail(db, token, timers, lane=lane, error="bad", attempts_max=9, backoff_ms=10_000)
        assert (row.dead, row.attempts) == (False, attempt)
        assert claim(db)[1] == []
        [[wait]] = db.execute(
            "SELECT extract(epoch FROM claimed_until - clock_timestamp()) FROM queen_timer"
            " WHERE queue = %s",
            [fresh_queue],
        ).fetchall()
        waits.append(round(float(wait), -1))
        db.execute("UPDATE queen_timer SET claimed_until = NULL WHERE queue = %s", [fresh_queue])
    assert waits == [10, 20, 40, 40]
    assert peek(db, fresh_queue, "a").last_error == "bad"
    assert statuses(db, cancel(fresh_queue, "a")) == ["cancelled"]


def test_at_the_limit_a_timer_becomes_a_dead_letter_of_its_own_address(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.bury("pushed", group="__timer__")  # whoever wrote it, its offset is not ours
    for key in ("a", "b"):
        apply(db, schedule(fresh_queue, key, -1, payload=b'{"key":"%s"}' % key.encode()))
        token, timers = claim(db)
        [row] = fail(db, token, timers, lane=lane, error="poison", attempts_max=1)
        assert row.dead
        assert peek(db, fresh_queue, key) is None
    rows = db.execute(
        "SELECT message_offset, transaction_id, payload, error, retry_count FROM queen_dead_letter"
        " WHERE partition_id = %s ORDER BY message_offset",
        [lane.id],
    ).fetchall()
    assert [row[0] for row in rows] == [-2, -1, 0]
    assert rows[1][1:] == ('"txn-a"', b'{"key":"a"}', "poison", 1)
    assert rows[0][1:] == ('"txn-b"', b'{"key":"b"}', "poison", 1)


def test_without_a_partition_to_bury_it_in_a_timer_keeps_backing_off(db, fresh_queue):
    apply(db, schedule(fresh_queue, "a", -1))
    token, timers = claim(db)
    [row] = fail(db, token, timers, lane=None, error="poison", attempts_max=1)
    assert (row.dead, row.attempts) == (False, 1)
    assert peek(db, fresh_queue, "a").attempts == 1


def test_a_failure_of_a_claim_that_was_lost_changes_nothing(db, fresh_queue):
    apply(db, schedule(fresh_queue, "a", -1))
    first, timers = claim_that_runs_out(db, fresh_queue)
    claim(db)
    assert fail(db, first, timers, error="late", attempts_max=1, lane=Lane(db, fresh_queue)) == []
    assert peek(db, fresh_queue, "a").claimed


# --- one lock order -----------------------------------------------------------------------------


def test_batches_in_shuffled_orders_claims_fires_and_deletes_never_deadlock(
    database, db, fresh_queue
):
    """Keys that exist and keys that do not, in any order, against claims, fires and failures."""
    keys = [f"k{no}" for no in range(12)]
    queues = [fresh_queue, fresh_queue + "2"]
    errors: list[str] = []
    stop = threading.Event()

    def client(seed: int) -> None:
        dice = random.Random(seed)
        with database.connect() as own:
            while not stop.is_set():
                chosen = [(queue, key) for queue in queues for key in keys]
                dice.shuffle(chosen)
                apply(
                    own,
                    *[
                        schedule(queue, key, dice.choice([-5, 0, 3]))
                        if dice.random() < 0.7
                        else cancel(queue, key)
                        for queue, key in chosen[: dice.randint(1, 12)]
                    ],
                )

    def sweeper(seed: int) -> None:
        dice = random.Random(seed)
        with database.connect() as own:
            while not stop.is_set():
                try:
                    token, timers = claim(own, limit=6, lease_ms=5, start=dice.randrange(64))
                except psycopg.errors.LockNotAvailable:
                    continue  # a row that was changed twice: the next cycle
                for queue in queues:
                    mine = [one for one in timers if one.queue == queue]
                    if not mine:
                        continue
                    lane = Lane(own, queue)
                    if lane.row is None:  # deleted in the same moment
                        continue
                    if dice.random() < 0.3:
                        fail(own, token, mine, lane=lane, error="x", backoff_ms=1, attempts_max=2)
                    else:
                        fire(own, token, lane, mine, wait_ms=5000)

    def deleter() -> None:
        with database.connect() as own:
            while not stop.wait(0.1):
                call(own, management_calls.queue_delete, DEFAULT_TENANT, random.choice(queues))

    def guarded(work, *given) -> None:
        try:
            work(*given)
        except psycopg.errors.Error as error:
            errors.append(repr(error))

    jobs = [(client, no) for no in range(4)] + [(sweeper, no) for no in range(3)] + [(deleter,)]
    threads = [threading.Thread(target=guarded, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    stop.wait(5)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not errors
    row = db.execute(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ).fetchone()
    assert row == (0,)


def test_two_schedules_of_keys_new_to_both_wait_and_do_not_deadlock(
    db, fresh_queue, second_connection
):
    other = second_connection()
    apply(other, schedule(fresh_queue, "b", 60_000))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(statuses, db, schedule(fresh_queue, "c"), schedule(fresh_queue, "b"))
        with psycopg.connect(**db.info.get_parameters(), autocommit=True) as watcher:
            wait_until(lambda: waits_for_lock(watcher))
        # It waits at "b" and has not touched "c" yet, which is behind it in the order.
        assert statuses(other, schedule(fresh_queue, "c")) == ["scheduled"]
        other.commit()
        assert waiting.result(10) == ["rescheduled", "rescheduled"]


# --- riders -------------------------------------------------------------------------------------


def test_a_rider_is_undone_with_its_transaction(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.push("there", ids=["dup"])
    rider = timer_calls.apply_columns(DEFAULT_TENANT, [schedule(fresh_queue, "a")], None)

    def commit(groups):
        return call(
            db,
            transaction_calls.transaction_commit,
            groups,
            [],
            tenant=None,
            required_leases=[],
            mentions_lease=False,
            wait_ms=1000,
            timers=rider,
        )

    with pytest.raises(psycopg.Error) as refused:
        commit([flush(lane.row, ("x",), ["dup"])])
    assert refused.value.sqlstate == "QN002"
    assert peek(db, fresh_queue, "a") is None
    [timer, push] = commit([flush(lane.row, ("x",), ["new"])])
    assert (timer.kind, timer.no, timer.outcome) == ("timer", 1, "scheduled")
    assert push.kind == "push"
    assert peek(db, fresh_queue, "a").message_id == timer.timer_message_id
