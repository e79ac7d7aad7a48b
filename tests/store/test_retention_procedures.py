"""queen_retention_due and _step: what each rule gives up, what it keeps, and what it may touch.

Method: the store's coroutines on real PostgreSQL. Messages get their age by moving created_at
back, so nothing here waits for time to pass.
"""

import threading

import pytest

from brokers.store import leader_calls as calls
from brokers.store import management_calls
from tests.store.calling import Lane, call, waits_for_lock
from tests.store.retaining import commit, configure, due, lead, log_of, push_aged, step

HOUR_S = 3600


@pytest.fixture
def lane(db, fresh_queue):
    return Lane(db, fresh_queue)


@pytest.fixture
def token(db):
    return lead(db)


def counts(done):
    return done.retention_messages, done.completed_messages, done.eviction_messages


# --- the rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("window_s", [1, 10, HOUR_S, 3_153_600_000])
def test_age_alone_deletes_what_is_just_older_and_keeps_what_is_just_younger(
    db, lane, token, window_s
):
    configure(lane, retention_enabled=True, retention_seconds=window_s)
    push_aged(lane, window_s + 0.5)
    lane.push("young enough")
    lane.register("has consumed nothing")
    assert lane.id in due(db)
    done = step(db, token, lane)
    assert (done.verdict, counts(done)) == ("done", (1, 0, 0))
    assert log_of(lane) == (1, [1])
    assert lane.id not in due(db)
    assert step(db, token, lane).verdict == "nothing"


def test_what_is_younger_than_the_window_is_not_even_due(db, lane, token):
    configure(lane, retention_enabled=True, retention_seconds=10)
    push_aged(lane, 9.0)
    assert lane.id not in due(db)
    assert step(db, token, lane).verdict == "nothing"
    assert log_of(lane) == (0, [0])


@pytest.mark.parametrize(
    "options",
    [
        {"retention_enabled": False, "retention_seconds": 1, "completed_retention_seconds": 1},
        {"retention_enabled": True},
        {"retention_enabled": True, "retention_seconds": 0, "completed_retention_seconds": 0},
        {},
    ],
)
def test_without_its_switch_or_with_zero_nothing_is_deleted(db, lane, token, options):
    configure(lane, **options)
    push_aged(lane, 100 * HOUR_S)
    lane.register("g")
    commit(lane, "g", 0)
    assert lane.id not in due(db)
    assert step(db, token, lane).verdict == "nothing"
    assert log_of(lane) == (0, [0])


def test_eviction_needs_no_switch_and_ignores_leases(db, lane, token):
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, 11)
    lane.register("g")
    lane.claim("g")
    push_aged(lane, 9)
    assert due(db).count(lane.id) == 1
    done = step(db, token, lane)
    assert (done.verdict, counts(done)) == ("done", (0, 0, 1))
    assert log_of(lane) == (1, [1])
    assert lane.count("queen_dead_letter") == 0


def test_completed_messages_go_when_the_slowest_group_has_them_and_they_are_old(db, lane, token):
    configure(lane, retention_enabled=True, completed_retention_seconds=10)
    push_aged(lane, 12, 11, 9)
    for group, committed in (("fast", 2), ("slow", 0)):
        lane.register(group)
        commit(lane, group, committed)
    done = step(db, token, lane)
    assert (done.verdict, counts(done)) == ("done", (0, 1, 0))
    assert log_of(lane) == (1, [1, 2])
    commit(lane, "slow", 2)
    assert counts(step(db, token, lane)) == (0, 1, 0)
    assert log_of(lane) == (2, [2]), "the third is consumed and too young"


def test_a_registered_group_without_a_cursor_has_consumed_nothing(db, lane, token):
    configure(lane, retention_enabled=True, completed_retention_seconds=10)
    push_aged(lane, 20)
    lane.register("with a cursor")
    commit(lane, "with a cursor", 0)
    lane.register("without one")
    assert step(db, token, lane).verdict == "blocked"
    assert log_of(lane) == (0, [0])


def test_a_cursor_without_a_registered_group_does_not_count(db, lane, token):
    configure(lane, retention_enabled=True, completed_retention_seconds=10)
    push_aged(lane, 20)
    commit(lane, "ghost", 0)
    assert step(db, token, lane).verdict == "blocked", "nobody is there who could have consumed"
    lane.register("g")
    commit(lane, "g", 0)
    commit(lane, "ghost", -1)
    assert step(db, token, lane).verdict == "done"


def test_a_segment_goes_whole_or_not_at_all(db, lane, token):
    configure(lane, retention_enabled=True, completed_retention_seconds=10)
    push_aged(lane, 20, 15, each=5)
    lane.register("g")
    commit(lane, "g", 8)
    done = step(db, token, lane)
    assert (counts(done), done.segments) == ((0, 5, 0), 1)
    assert log_of(lane) == (5, [5])
    commit(lane, "g", 9)
    assert counts(step(db, token, lane)) == (0, 5, 0)
    assert log_of(lane) == (10, [])


def test_several_rules_at_once_count_for_the_first_that_asked(db, lane, token):
    configure(
        lane,
        retention_enabled=True,
        retention_seconds=100,
        completed_retention_seconds=50,
        max_wait_time_seconds=20,
    )
    push_aged(lane, 120, 60, 30, 10)
    lane.register("g")
    commit(lane, "g", 1)
    done = step(db, token, lane)
    assert counts(done) == (1, 1, 1)
    assert log_of(lane) == (3, [3])


def test_an_emptied_partition_is_not_due_and_takes_up_where_it_was(db, lane, token):
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, 30, 20)
    assert step(db, token, lane).segments == 2
    row = db.execute(
        "SELECT log_start, last_offset, oldest_live_at FROM queen_partition WHERE id = %s",
        [lane.id],
    ).fetchone()
    assert row == (2, 1, None)
    assert lane.id not in due(db)
    assert lane.push("next") == "stored"
    assert log_of(lane) == (2, [2])
    oldest, created = (
        lane.scalar(f"SELECT {column} FROM {table} WHERE {key} = %s", lane.id)
        for column, table, key in (
            ("oldest_live_at", "queen_partition", "id"),
            ("created_at", "queen_segment", "partition_id"),
        )
    )
    assert oldest == created


def test_dead_letters_outlive_what_they_were_taken_from(db, lane, token):
    configure(lane, max_wait_time_seconds=10)
    lane.bury("dead")
    push_aged(lane, 20)
    db.execute(
        "UPDATE queen_segment SET created_at = now() - interval '1 hour' WHERE partition_id = %s",
        [lane.id],
    )
    assert step(db, token, lane).segments == 2
    assert lane.count("queen_dead_letter") == 1


def test_a_retained_away_original_is_still_a_duplicate_without_an_id(db, lane, token):
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, 20)
    lane.push("x", ids=["t"])
    db.execute(
        "UPDATE queen_segment SET created_at = now() - interval '1 hour' WHERE partition_id = %s",
        [lane.id],
    )
    assert step(db, token, lane).segments == 2
    lane.push("again", ids=["t"])
    assert log_of(lane) == (2, [])


# --- bounds -------------------------------------------------------------------------------------


def test_a_step_is_bounded_in_segments_and_in_bytes_and_says_that_there_is_more(db, lane, token):
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, *range(60, 50, -1), each=3)
    done = step(db, token, lane, segments_max=4)
    assert (done.segments, done.more, counts(done)) == (4, True, (0, 0, 12))
    assert log_of(lane)[0] == 12
    done = step(db, token, lane, bytes_max=1)
    assert (done.segments, done.more) == (1, True), "one is let through however big it is"
    done = step(db, token, lane)
    assert (done.segments, done.more) == (5, False)


def test_what_waits_for_a_consumer_is_looked_at_more_and_more_seldom(db, lane, token):
    configure(lane, retention_enabled=True, completed_retention_seconds=10)
    lane.register("g")
    waits_s = {}
    for overdue_s in (4, 400, 40_000):
        db.execute("DELETE FROM queen_segment WHERE partition_id = %s", [lane.id])
        push_aged(lane, 10 + overdue_s)
        db.execute(
            "UPDATE queen_partition SET retention_look_at = NULL,"
            " log_start = last_offset WHERE id = %s",
            [lane.id],
        )
        assert lane.id in due(db)
        assert step(db, token, lane).verdict == "blocked"
        assert lane.id not in due(db)
        waits_s[overdue_s] = float(
            lane.scalar(
                "SELECT extract(epoch FROM retention_look_at - clock_timestamp())"
                "  FROM queen_partition WHERE id = %s",
                lane.id,
            )
        )
    assert 0 < waits_s[4] <= 2 < waits_s[400] <= 101 < waits_s[40_000] <= 300
    db.execute("UPDATE queen_partition SET retention_look_at = now() WHERE id = %s", [lane.id])
    assert lane.id in due(db)


def test_waiting_for_a_consumer_does_not_outwait_a_rule_that_needs_none(db, lane, token):
    configure(
        lane,
        retention_enabled=True,
        completed_retention_seconds=10,
        retention_seconds=1000,
        max_wait_time_seconds=990,
    )
    push_aged(lane, 989.5)
    lane.register("g")
    assert step(db, token, lane).verdict == "blocked"
    waits_s = lane.scalar(
        "SELECT extract(epoch FROM retention_look_at - clock_timestamp())"
        "  FROM queen_partition WHERE id = %s",
        lane.id,
    )
    assert waits_s <= 0.5


def test_a_look_that_was_put_off_is_taken_back_when_it_finds_work_or_nothing(db, lane, token):
    configure(lane, retention_enabled=True, completed_retention_seconds=10)
    push_aged(lane, 60)
    lane.register("g")
    assert step(db, token, lane).verdict == "blocked"
    configure(lane, retention_enabled=True, completed_retention_seconds=1000)
    assert step(db, token, lane).verdict == "nothing"
    look = "SELECT retention_look_at FROM queen_partition WHERE id = %s"
    assert lane.scalar(look, lane.id) is None
    configure(lane, retention_enabled=True, completed_retention_seconds=10)
    assert step(db, token, lane).verdict == "blocked"
    commit(lane, "g", 0)
    assert step(db, token, lane).verdict == "done"
    assert lane.scalar(look, lane.id) is None


def test_the_longest_due_come_first_up_to_the_limit_without_those_left_out(db, fresh_queue):
    configure(Lane(db, fresh_queue), max_wait_time_seconds=5 * HOUR_S)
    lanes = [Lane(db, fresh_queue, name) for name in "abc"]
    for lane, age_s in zip(lanes, (10 * HOUR_S, 20 * HOUR_S, 15 * HOUR_S), strict=True):
        push_aged(lane, age_s)
    mine = {lane.id: lane.name for lane in lanes}

    def named(ids):
        return [mine[one] for one in ids if one in mine]

    assert named(due(db)) == ["b", "c", "a"]
    assert named(due(db, leave_out=(lanes[1].id,))) == ["c", "a"]
    assert len(due(db, limit=1)) == 1
    call(db, management_calls.queue_delete, lanes[0].tenant, fresh_queue)


def touched(connection, work):
    """What `work` reads of queen_partition and queen_segment: (rows by index, rows by scan)."""
    read = (
        "SELECT sum(idx_tup_fetch)::bigint, sum(seq_tup_read)::bigint"
        "  FROM pg_stat_xact_user_tables WHERE relname IN ('queen_partition', 'queen_segment')"
    )
    before = connection.execute(read).fetchone()
    answer = work()
    after = connection.execute(read).fetchone()
    return answer, [b - a for a, b in zip(before, after, strict=True)]


def test_of_ten_thousand_partitions_only_the_five_that_are_due_are_touched(
    db, fresh_queue, second_connection
):
    lane = Lane(db, fresh_queue)
    configure(
        lane, retention_enabled=True, retention_seconds=HOUR_S, completed_retention_seconds=60
    )
    lane.register("g")
    # Young, or old and not consumed and put off: neither may cost anything.
    db.execute(
        "INSERT INTO queen_partition (queue_id, name, last_offset, oldest_live_at,"
        "                             retention_look_at)"
        " SELECT %s, 'p' || no, 9,"
        "        now() - make_interval(secs => CASE WHEN no %% 2 = 0 THEN 30 ELSE 1800 END),"
        "        CASE WHEN no %% 2 = 1 THEN now() + interval '1 minute' END"
        "   FROM generate_series(1, 10000) AS no",
        [lane.row.queue_id],
    )
    for number in range(5):
        push_aged(Lane(db, fresh_queue, f"due-{number}"), 2 * HOUR_S)
    db.execute("ANALYZE queen_partition")
    connection = second_connection()
    ids, (by_index, by_scan) = touched(connection, lambda: due(connection))
    ours = [
        one
        for one in ids
        if lane.scalar("SELECT queue_id FROM queen_partition WHERE id = %s", one)
        == lane.row.queue_id
    ]
    assert len(ours) == 5
    assert by_scan == 0
    assert by_index <= len(ids) + 5
    connection.rollback()

    token = lead(db)
    for one in ours:
        done, (by_index, by_scan) = touched(
            connection,
            lambda one=one: call(
                connection,
                calls.retention_step,
                token,
                one,
                segments_max=1000,
                bytes_max=10**9,
                wait_ms=1000,
            ),
        )
        assert done.segments == 1
        assert by_scan == 0
        assert by_index < 10
    connection.commit()
    assert not [one for one in due(db) if one in ours]
    call(db, management_calls.queue_delete, lane.tenant, fresh_queue)


def test_deleted_segments_are_not_walked_over_again(db, lane, second_connection):
    token = lead(db)
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, *range(1060, 60, -1))
    holder = second_connection()
    holder.execute("SELECT 1")  # an old snapshot: no vacuum may take the dead ones away
    assert step(db, token, lane).segments == 1000
    push_aged(lane, 20)
    connection = second_connection()
    read = (
        "SELECT pg_stat_get_xact_blocks_hit('queen_segment_pkey'::regclass)"
        " + pg_stat_get_xact_blocks_fetched('queen_segment_pkey'::regclass)"
    )
    del read
    done, (by_index, _) = touched(connection, lambda: step(connection, token, lane))
    assert done.segments == 1
    assert by_index < 10
    connection.commit()


# --- locks --------------------------------------------------------------------------------------


def test_a_held_partition_is_given_up_after_a_moment_and_nothing_of_it_is_deleted(
    db, lane, token, second_connection
):
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, 20)
    holder = second_connection()
    holder.execute("SELECT 1 FROM queen_partition WHERE id = %s FOR UPDATE", [lane.id])
    assert step(db, token, lane, wait_ms=50).verdict == "busy"
    assert log_of(lane) == (0, [0])
    holder.rollback()
    assert step(db, token, lane).verdict == "done"


def test_a_push_that_commits_while_retention_waits_is_not_forgotten(
    db, lane, token, second_connection, eventually, database
):
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, 20)
    pushing = second_connection()
    assert lane.push("late", connection=pushing) == "stored"
    answers = []
    with database.connect() as other:
        thread = threading.Thread(target=lambda: answers.append(step(other, token, lane)))
        thread.start()
        eventually(lambda: waits_for_lock(db))
        pushing.commit()
        thread.join()
    assert answers[0].verdict == "done"
    assert log_of(lane) == (1, [1])
    oldest = lane.scalar("SELECT oldest_live_at FROM queen_partition WHERE id = %s", lane.id)
    assert oldest is not None, "what was pushed meanwhile would never become due"


def test_retention_of_a_partition_that_is_deleted_meanwhile_is_no_error(
    db, lane, token, second_connection, eventually, database
):
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, 20)
    deleting = second_connection()
    call(deleting, management_calls.queue_delete, lane.tenant, lane.queue)
    answers = []
    with database.connect() as other:
        thread = threading.Thread(target=lambda: answers.append(step(other, token, lane)))
        thread.start()
        eventually(lambda: waits_for_lock(db))
        deleting.commit()
        thread.join()
    assert answers[0].verdict == "done"
    assert step(db, token, lane).verdict == "gone"


# --- history ------------------------------------------------------------------------------------


def history(db, lane):
    return db.execute(
        "SELECT sum(retention_messages)::bigint, sum(completed_messages)::bigint,"
        "       sum(eviction_messages)::bigint, sum(events)::bigint, sum(segments)::bigint,"
        "       sum(partitions_deleted)::bigint"
        "  FROM queen_retention_history WHERE queue_id = %s AND tenant_id = %s",
        [lane.row.queue_id, str(lane.tenant)],
    ).fetchone()


def test_history_tells_by_rule_what_was_deleted_and_outlives_the_queue(db, lane, token):
    configure(
        lane,
        retention_enabled=True,
        retention_seconds=100,
        completed_retention_seconds=50,
        max_wait_time_seconds=20,
    )
    push_aged(lane, 120, 60, 30, each=2)
    lane.register("g")
    commit(lane, "g", 3)
    assert history(db, lane) == (None,) * 6
    step(db, token, lane)
    assert step(db, token, lane).verdict == "nothing", "which is no event"
    push_aged(lane, 21)
    step(db, token, lane)
    told = (2, 2, 3, 2, 4, 0)
    assert history(db, lane) == told
    call(db, management_calls.queue_delete, lane.tenant, lane.queue)
    assert history(db, lane) == told


def test_counters_and_history_of_long_ago_are_forgotten_in_bounded_steps(db, lane, token):
    for table, columns, values in (
        ("queen_queue_counter", "bucket, span, queue_id, server_id", "15, %s, 's'"),
        ("queen_retention_history", "bucket, queue_id, tenant_id", "%s, gen_random_uuid()"),
    ):
        db.execute(
            f"INSERT INTO {table} ({columns}) SELECT now() - make_interval(days => 91) -"
            f" make_interval(mins => no), {values} FROM generate_series(1, 10) AS no"
            f" UNION ALL SELECT now() - make_interval(days => 89), {values}",
            [lane.row.queue_id] * 2,
        )
    removed = [call(db, calls.history_purge, token, days=90, rows_max=6) for _ in range(3)]
    assert removed == [12, 8, 0]
    assert (
        lane.scalar(
            "SELECT count(*) FROM queen_queue_counter WHERE queue_id = %s", lane.row.queue_id
        )
        == 1
    )
    assert (
        lane.scalar(
            "SELECT count(*) FROM queen_retention_history WHERE queue_id = %s", lane.row.queue_id
        )
        == 1
    )
