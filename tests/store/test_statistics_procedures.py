"""queen_statistics_step and _retained_bytes_step: the figures that lists are made of.

Method: the store's coroutines on real PostgreSQL, each test in a tenant of its own. The figures
have to be those that a queue's own detail counts live.
"""

import json
import threading
import time
import uuid

import pytest

from brokers.store import leader_calls as calls
from brokers.store import management_calls, status_calls
from tests.store.calling import Lane, call, waits_for_lock
from tests.store.retaining import commit, configure, lead, push_aged, step


@pytest.fixture
def tenant():
    return uuid.uuid4()


def count(db, budget_ms=60_000):
    return call(db, calls.statistics_step, None, None, budget_ms=budget_ms)


def measure(db):
    token = lead(db, "retained-bytes")
    return call(db, calls.retained_bytes_step, token, None, segments_max=1000, budget_ms=60_000)


def listed(db, tenant):
    rows = call(db, management_calls.queue_list, tenant, segments_max=100)
    return {row.name: row for row in rows}


def described(db, tenant, name):
    return call(
        db, management_calls.queue_describe, tenant, name, limit=10, offset=0, segments_max=9
    )


def kept(db, lane, columns):
    return db.execute(
        f"SELECT {columns} FROM queen_queue_statistics WHERE queue_id = %s", [lane.row.queue_id]
    ).fetchone()


def test_what_is_counted_is_what_the_detail_counts_live(db, tenant):
    lanes = [Lane(db, "q", name, tenant=tenant) for name in "abcd"]
    for lane in lanes[:3]:
        lane.push(*range(10))
    lanes[0].register("g")
    lanes[0].register("h")
    commit(lanes[0], "g", 8)
    commit(lanes[0], "h", 3)
    commit(lanes[1], "g", 9)
    commit(lanes[2], "ghost", 9)
    lanes[0].claim("h", batch=4)
    lanes[0].bury_at(1)
    lanes[1].bury_at(2)
    count(db)
    live = described(db, tenant, "q")
    figures = (live.total, live.pending, live.processing, live.completed, live.dead_letters)
    assert figures == (30, 26, 4, 3, 2)
    columns = "total, pending, processing, completed, dead_letters, partitions"
    assert kept(db, lanes[0], columns) == (*figures, 4)


def test_more_than_a_thousand_letters_of_a_partition_are_told_as_last_counted(db, tenant):
    full, few = Lane(db, "q", "full", tenant=tenant), Lane(db, "q", "few", tenant=tenant)
    full.bury_many(1500)
    few.bury_many(1000)

    def told():
        found = described(db, tenant, "q")
        looked = call(db, status_calls.queue_inspect, tenant, "q", limit=10, offset=0)
        assert looked.totals[-1] == found.dead_letters
        rows = {row["name"]: row for row in json.loads(looked.partitions)}
        letters = [row["stats"]["deadLetter"] for row in json.loads(found.partitions)]
        assert letters == [rows[name]["stats"]["deadLetter"] for name in ("few", "full")]
        return letters

    assert told() == [1000, 1001]
    count(db)
    assert told() == [1000, 1500]
    assert kept(db, full, "dead_letters") == (2500,)
    full.bury_many(10, first=1500)
    assert told() == [1000, 1500]
    count(db)
    assert told() == [1000, 1510]
    db.execute("DELETE FROM queen_dead_letter WHERE message_offset >= 5")
    assert told() == [5, 5]
    count(db)
    assert full.count("queen_letter_statistics") == 0


def test_retention_and_leases_on_what_it_took_are_counted_as_the_contract_says(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, 20, each=5)
    lane.register("g")
    lane.claim("g")
    assert step(db, lead(db), lane).verdict == "done"
    lane.push(1, 2)
    count(db)
    assert kept(db, lane, "total, pending, processing") == (2, 2, 0)
    live = described(db, tenant, "q")
    assert (live.total, live.pending, live.processing) == (2, 2, 0)


def test_the_list_shows_the_last_count_and_counts_what_was_never_counted(db, tenant):
    lane = Lane(db, "old", tenant=tenant)
    lane.push(1)
    count(db)
    lane.push(2)
    Lane(db, "new", tenant=tenant).push(1, 2, 3)
    rows = listed(db, tenant)
    assert (rows["old"].total, rows["old"].pending) == (1, 1)
    assert (rows["new"].total, rows["new"].pending, rows["new"].segments) == (3, 3, 1)
    count(db)
    assert listed(db, tenant)["old"].total == 2


def test_bytes_are_those_of_the_last_measurement_and_not_of_a_count(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    lane.push("x" * 1000)
    count(db)
    live = listed(db, tenant)["q"]
    assert live.segments == 1 and live.bytes > 1000
    assert measure(db).queues >= 1
    lane.push("y" * 5000)
    count(db)
    row = listed(db, tenant)["q"]
    assert (row.total, row.segments, row.bytes) == (2, 1, live.bytes)
    measure(db)
    row = listed(db, tenant)["q"]
    assert row.segments == 2 and row.bytes > 6000


def test_a_step_stops_at_its_budget_and_the_next_goes_on_with_the_oldest(db, tenant):
    lanes = [Lane(db, f"q{number}", tenant=tenant) for number in range(3)]
    count(db)
    db.execute("UPDATE queen_queue_statistics SET next_at = computed_at")
    since, counted = None, []
    while True:
        one = call(db, calls.statistics_step, lead(db, "statistics"), since, budget_ms=0)
        since = one.since
        if not one.queues:
            break
        counted.append(one.queues)
    assert set(counted) == {1}, "a queue at a time, each once"
    assert len(counted) == db.execute("SELECT count(*) FROM queen_queue").fetchone()[0]
    ages = [kept(db, lane, "computed_at")[0] for lane in lanes]
    assert min(ages) >= since


def test_a_queue_that_takes_long_is_counted_more_seldom_unless_somebody_asks(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    count(db)
    db.execute(
        "UPDATE queen_queue_statistics SET next_at = now() + interval '1 minute',"
        " computed_at = now() - interval '1 minute' WHERE queue_id = %s",
        [lane.row.queue_id],
    )
    before = kept(db, lane, "computed_at")
    call(db, calls.statistics_step, lead(db, "statistics"), None, budget_ms=60_000)
    assert kept(db, lane, "computed_at") == before
    count(db)
    assert kept(db, lane, "computed_at") > before
    took = kept(db, lane, "extract(epoch FROM next_at - computed_at)")[0]
    assert 0 < took < 10


def test_a_deleted_queue_leaves_no_figures_whoever_counts_meanwhile(
    db, tenant, second_connection, eventually, database
):
    lane = Lane(db, "q", tenant=tenant)
    count(db)
    call(db, management_calls.queue_delete, tenant, "q")
    assert kept(db, lane, "1") is None

    lane = Lane(db, "q", tenant=tenant)
    deleting = second_connection()
    call(deleting, management_calls.queue_delete, tenant, "q")
    with database.connect() as other:
        thread = threading.Thread(target=count, args=[other])
        thread.start()
        eventually(lambda: waits_for_lock(db))
        deleting.commit()
        thread.join()
    assert kept(db, lane, "1") is None


@pytest.mark.slow
def test_a_list_with_a_hundred_thousand_partitions_reads_none_of_them(
    db, tenant, second_connection
):
    lane = Lane(db, "q", tenant=tenant)
    lane.register("g")
    lane.register("h")
    db.execute(
        "INSERT INTO queen_partition (queue_id, name, last_offset)"
        " SELECT %s, 'p' || no, 9 FROM generate_series(1, 100000) AS no",
        [lane.row.queue_id],
    )
    for group in "gh":
        db.execute(
            "INSERT INTO queen_cursor (partition_id, consumer_group, committed)"
            " SELECT id, %s, 4 FROM queen_partition WHERE queue_id = %s AND last_offset > 4",
            [group, lane.row.queue_id],
        )
    began = time.monotonic()
    count(db)
    took_s = time.monotonic() - began
    print("count", took_s)
    measure(db)
    connection = second_connection()
    read = (
        "SELECT coalesce(sum(idx_tup_fetch + seq_tup_read), 0) FROM pg_stat_xact_user_tables"
        " WHERE relname IN ('queen_partition', 'queen_cursor')"
    )
    row = listed(connection, tenant)["q"]
    assert (row.partitions, row.total, row.pending) == (100_001, 1_000_000, 500_000)
    assert connection.execute(read).fetchone()[0] == 0
    call(db, management_calls.queue_delete, tenant, "q")
    assert took_s < 20


def test_the_partitions_of_queues_are_told_by_name_counted_or_not(db, tenant):
    for queue, name in (("a", "1"), ("a", "2"), ("é,{}", "1")):
        Lane(db, queue, name, tenant=tenant)
    count(db)
    for name in "123":
        Lane(db, "new", name, tenant=tenant)
    db.execute(
        "INSERT INTO queen_queue (tenant_id, name) SELECT %s, 'before ' || no"
        "  FROM generate_series(1, 1100) AS no",
        [tenant],
    )
    asked = ["a", "é,{}", "new", "none"]
    rows = call(db, status_calls.queue_lanes, tenant, asked)
    db.execute("DELETE FROM queen_queue WHERE tenant_id = %s AND name LIKE 'before %%'", [tenant])
    assert dict(rows) == {"a": 2, "é,{}": 1, "new": 3}
    assert call(db, status_calls.queue_lanes, uuid.uuid4(), asked) == []
    assert call(db, status_calls.queue_lanes, tenant, []) == []
