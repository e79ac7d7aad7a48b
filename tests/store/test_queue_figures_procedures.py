"""queen_queue_list, _describe and _depth: what lies in a queue, what waits, for whom.

Method: the store's coroutines on real PostgreSQL, each test in a tenant of its own.
"""

import json
import time
import uuid

import pytest

from brokers.store import management_calls as calls
from tests.store.calling import Lane, call


@pytest.fixture
def tenant():
    return uuid.uuid4()


def summaries(db, tenant, segments_max=100):
    return {row.name: row for row in call(db, calls.queue_list, tenant, segments_max=segments_max)}


def describe(db, tenant, name, limit=1000, offset=0):
    found = call(
        db,
        calls.queue_describe,
        tenant,
        name,
        limit=limit,
        offset=offset,
        segments_max=100,
    )
    return found, {row["name"]: row for row in json.loads(found.partitions)}


def depth(db, tenant, name, group=None, limit=1000, offset=0):
    return call(db, calls.queue_depth, tenant, name, group=group, limit=limit, offset=offset)


def commit(lane, group, offset):
    lane.db.execute(
        "INSERT INTO queen_cursor (partition_id, consumer_group, committed) VALUES (%s, %s, %s)"
        " ON CONFLICT (partition_id, consumer_group) DO UPDATE SET committed = excluded.committed",
        [lane.id, group, offset],
    )


def retain_from(lane, offset):
    """As retention does: segments below go, the log starts later."""
    lane.db.execute("UPDATE queen_partition SET log_start = %s WHERE id = %s", [offset, lane.id])
    lane.db.execute(
        "DELETE FROM queen_segment WHERE partition_id = %s AND end_offset < %s", [lane.id, offset]
    )


def test_without_any_group_everything_waits(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    lane.push(1, 2, 3)
    row = summaries(db, tenant)["q"]
    assert (row.total, row.pending, row.processing) == (3, 3, 0)


def test_without_a_group_named_the_slowest_counts_and_one_without_a_cursor_has_nothing(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    lane.push(*range(10))
    lane.register("fast")
    commit(lane, "fast", 8)
    assert depth(db, tenant, "q").pending == 1
    lane.register("slow")
    assert depth(db, tenant, "q").pending == 10
    commit(lane, "slow", 4)
    assert depth(db, tenant, "q").pending == 5
    assert depth(db, tenant, "q", "fast").pending == 1
    assert depth(db, tenant, "q", "never seen").pending == 10


def test_a_cursor_of_a_group_that_is_not_registered_does_not_count(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    lane.push(1, 2)
    commit(lane, "ghost", 1)
    assert depth(db, tenant, "q").pending == 2


def test_what_retention_took_is_neither_there_nor_waiting(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    for number in range(6):
        lane.push(number)
    lane.register("g")
    retain_from(lane, 4)
    row = summaries(db, tenant)["q"]
    assert (row.total, row.pending, row.segments) == (2, 2, 2)
    retain_from(lane, 6)
    row = summaries(db, tenant)["q"]
    assert (row.total, row.pending, row.segments, row.bytes) == (0, 0, 0, 0)


def test_a_live_lease_is_processing_and_a_dead_one_is_not(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    lane.push(*range(5))
    lane.register("g")
    lane.claim("g", batch=3)
    told = depth(db, tenant, "q", "g")
    assert (told.pending, told.processing) == (5, 3)
    assert (told.partitions_pending, told.partitions_ready) == (1, 1)
    db.execute(
        "UPDATE queen_cursor SET lease_expires_at = clock_timestamp() WHERE partition_id = %s",
        [lane.id],
    )
    assert depth(db, tenant, "q", "g").processing == 0


def test_completed_is_what_neither_waits_nor_died(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    lane.push(*range(6))
    lane.register("g")
    commit(lane, "g", 3)
    lane.bury_at(1)
    found, partitions = describe(db, tenant, "q")
    stats = {
        "total": 6,
        "pending": 2,
        "processing": 0,
        "completed": 3,
        "failed": None,
        "deadLetter": 1,
    }
    assert partitions["Default"]["stats"] == stats
    assert (found.total, found.pending, found.completed, found.dead_letters) == (6, 2, 3, 1)


def test_partitions_are_listed_by_name_up_to_a_bound_and_the_totals_are_of_all(db, tenant):
    for name in ("b", "", "é", 'say "hi"\n', "a"):
        Lane(db, "q", name, tenant=tenant).push(1)
    found, partitions = describe(db, tenant, "q")
    assert list(partitions) == ["", "a", "b", 'say "hi"\n', "é"]
    found, partitions = describe(db, tenant, "q", limit=2)
    assert list(partitions) == ["", "a"]
    assert (found.total, found.lanes) == (5, 5)
    found, partitions = describe(db, tenant, "q", limit=2, offset=3)
    assert list(partitions) == ['say "hi"\n', "é"]
    assert (found.total, found.lanes) == (5, 5)
    for offset, names in ((0, ["", "a"]), (4, ["é"]), (5, [])):
        told = depth(db, tenant, "q", limit=2, offset=offset)
        assert [row["partition"] for row in json.loads(told.partitions)] == names
        assert (told.pending, told.lanes) == (5, 5)


def test_times_are_those_of_the_messages_that_are_there(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    _, partitions = describe(db, tenant, "q")
    assert (partitions["Default"]["oldestMessage"], partitions["Default"]["newestMessage"]) == (
        None,
        None,
    )
    lane.push(1)
    lane.push(2)
    db.execute("SET timezone = 'Asia/Tokyo'")
    try:
        _, partitions = describe(db, tenant, "q")
    finally:
        db.execute("RESET timezone")
    first, last = (
        lane.scalar(
            f"SELECT to_char({which}(created_at) AT TIME ZONE 'UTC',"
            ' \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\') FROM queen_segment WHERE partition_id = %s',
            lane.id,
        )
        for which in ("min", "max")
    )
    assert partitions["Default"]["oldestMessage"] == first
    assert partitions["Default"]["newestMessage"] == last


def test_segments_are_counted_while_few_and_estimated_when_many(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    for _ in range(10):
        lane.push("x" * 100, "y" * 100)
    counted, estimated = (summaries(db, tenant, most)["q"] for most in (11, 5))
    assert counted.segments == estimated.segments == 10
    assert 2000 < counted.bytes < 10_000
    assert counted.bytes == pytest.approx(estimated.bytes, rel=0.05)


def test_an_unknown_or_foreign_queue_is_no_row(db, tenant):
    Lane(db, "q", tenant=uuid.uuid4())
    assert depth(db, tenant, "q") is None
    assert call(db, calls.queue_describe, tenant, "q", limit=1, offset=0, segments_max=1) is None
    assert summaries(db, tenant) == {}


@pytest.mark.slow
def test_a_hundred_thousand_partitions_are_told_in_one_pass_of_seconds(db, tenant):
    lane = Lane(db, "q", tenant=tenant)
    lane.register("g")
    lane.register("h")
    db.execute(
        "INSERT INTO queen_partition (queue_id, name, last_offset)"
        " SELECT %s, 'p' || no, 9 FROM generate_series(1, 100000) AS no",
        [lane.row.queue_id],
    )
    db.execute(
        "INSERT INTO queen_cursor (partition_id, consumer_group, committed)"
        " SELECT id, 'g', 4 FROM queen_partition WHERE queue_id = %s AND last_offset > 4",
        [lane.row.queue_id],
    )
    took_s = {}
    for name, look in (
        ("list", lambda: summaries(db, tenant)["q"]),
        ("describe", lambda: describe(db, tenant, "q", 200_000)[0]),
        ("depth", lambda: depth(db, tenant, "q", "g", 200_000)),
    ):
        began = time.monotonic()
        told = look()
        took_s[name] = time.monotonic() - began
        assert told.pending == (500_000 if name == "depth" else 1_000_000)
    call(db, calls.queue_delete, tenant, "q")
    assert max(took_s.values()) < 20, took_s
