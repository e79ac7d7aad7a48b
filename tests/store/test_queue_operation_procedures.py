"""Pause, purge and the enforced options, procedure by procedure.

Method: real PostgreSQL; the product's coroutines over the test's connections.
"""

import uuid

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.store import calls, queue_calls
from tests.store.calling import Lane, call, flush
from tests.store.retaining import configure, due, lead, log_of, push_aged, step


@pytest.fixture
def lane(db, fresh_queue):
    return Lane(db, fresh_queue)


def purge(lane, until, *, connection=None, segments_max=1000, wait_ms=5000):
    return call(
        connection or lane.db,
        queue_calls.partition_purge,
        queue_calls.PurgeLane(lane.id, until),
        segments_max=segments_max,
        bytes_max=10**9,
        wait_ms=wait_ms,
    )


def lanes(lane, partition=None, after=0, limit=10, tenant=DEFAULT_TENANT):
    return call(
        lane.db, queue_calls.purge_lanes, tenant, lane.queue, partition, after=after, limit=limit
    )


def claim_verdicts(lane, group="g"):
    job = calls.ClaimJob(group, 100, 1, str(uuid.uuid4()), 300, False, [lane.id])
    rows = call(lane.db, calls.message_claim, [job], window_batch=100)
    return [row.verdict for row in rows]


def test_a_claim_sees_a_pause_whatever_its_caller_believes(lane):
    lane.register("g")
    lane.push(1)
    paused = call(lane.db, queue_calls.queue_pause, lane.tenant, lane.queue, paused=True)
    assert (paused.queue_id, paused.changed) == (lane.row.queue_id, True)
    assert claim_verdicts(lane) == ["paused"]
    call(lane.db, queue_calls.queue_pause, lane.tenant, lane.queue, paused=False)
    assert claim_verdicts(lane) == ["took"]


def test_a_paused_queue_of_another_tenant_is_none(lane):
    stranger = uuid.uuid4()
    assert call(lane.db, queue_calls.queue_pause, stranger, lane.queue, paused=True) is None
    assert lanes(lane, tenant=stranger) == (False, False, [])


def test_a_probe_finds_no_work_in_a_paused_queue_and_sees_its_version_move(lane):
    lane.register("g")
    lane.push(1)

    def probe():
        rings = [(lane.row.queue_id, "g", None)]
        return call(lane.db, calls.ready_probe, rings, window_batch=100, limit=10)

    [head, work] = probe()
    call(lane.db, queue_calls.queue_pause, lane.tenant, lane.queue, paused=True)
    [paused] = probe()
    assert work.partition_id == lane.id
    assert paused.wake_version == head.wake_version + 1


def test_a_purge_goes_in_steps_and_stops_at_its_offset(lane):
    for number in range(5):
        lane.push(number)
    assert lanes(lane) == (True, True, [(lane.id, 4)])
    lane.push(5)
    assert purge(lane, 4, segments_max=3)[:4] == ("done", True, 3, 3)
    assert purge(lane, 4, segments_max=3)[:4] == ("done", False, 2, 2)
    assert log_of(lane) == (5, [5])
    assert purge(lane, 4)[:3] == ("done", False, 0)
    purge(lane, 5)
    assert lane.scalar("SELECT oldest_live_at FROM queen_partition WHERE id = %s", lane.id) is None
    assert lanes(lane) == (True, True, [])
    assert lanes(lane, "nowhere") == (True, False, [])


def test_lanes_come_in_pages(lane):
    others = [Lane(lane.db, lane.queue, f"p{number}") for number in range(3)]
    for one in others:
        one.push(1)
    _, _, first = lanes(lane, limit=2)
    _, _, rest = lanes(lane, after=first[-1].id, limit=2)
    assert [one.id for one in first + rest] == sorted(one.id for one in others)


def test_a_purge_holds_no_push_up_while_it_deletes(lane, second_connection):
    """Its deletion is made before the row is asked for: a push in between commits."""
    lane.push(1)
    pushing = second_connection()
    lane.push(2, connection=pushing)
    assert purge(lane, 0, wait_ms=50).verdict == "busy"
    assert log_of(lane) == (0, [0])
    pushing.commit()
    assert purge(lane, 0, wait_ms=50).verdict == "done"
    assert log_of(lane) == (1, [1])


def test_a_lease_that_reaches_beyond_the_purge_stays(lane):
    lane.register("g")
    lane.push(1)
    lane.push(2)
    lease = lane.claim("g")
    purge(lane, 0)
    held = "SELECT lease_id::text FROM queen_cursor WHERE partition_id = %s"
    assert lane.scalar(held, lane.id) == lease
    purge(lane, 1)
    assert lane.scalar(held, lane.id) is None
    assert claim_verdicts(lane) == ["empty"]


def test_retention_that_was_overtaken_by_a_purge_moves_nothing_back(lane, second_connection):
    configure(lane, retention_enabled=True, retention_seconds=100)
    push_aged(lane, 500, 400, 300)
    token = lead(lane.db)
    purging = second_connection()
    purge(lane, 2, connection=purging)
    # Retention read log_start before the purge committed, and finds its segments gone.
    assert step(lane.db, token, lane, wait_ms=50).verdict == "busy"
    purging.commit()
    step(lane.db, token, lane)
    assert log_of(lane) == (3, [])


def test_an_enforced_ttl_is_a_rule_of_retention(lane):
    push_aged(lane, 500, 400, 10)
    configure(lane, ttl=100)
    token = lead(lane.db)
    assert lane.id not in due(lane.db)
    configure(lane, enforce=True)
    assert lane.id in due(lane.db)
    done = step(lane.db, token, lane)
    assert (done.eviction_messages, log_of(lane)) == (2, (2, [2]))
    configure(lane, ttl=0)
    assert lane.id not in due(lane.db)


@pytest.mark.parametrize(
    ("ages", "first"), [((50, 40), 0), ((500, 400), 4), ((500, 40), 2), ((500, 400, 300, 2), 6)]
)
def test_the_log_begins_where_it_is_young_enough(lane, ages, first):
    push_aged(lane, *ages, each=2)
    found = lane.scalar(
        "SELECT queen_log_start_v1(id, log_start, last_offset, oldest_live_at,"
        " clock_timestamp() - interval '100 s') FROM queen_partition WHERE id = %s",
        lane.id,
    )
    assert found == first


def test_a_full_queue_counts_all_of_its_partitions_and_the_groups_before(lane):
    other = Lane(lane.db, lane.queue, "other")
    configure(lane, enforce=True, max_size=4)
    other.__post_init__()
    assert lane.push(1) == "stored"
    groups = [flush(lane.row, (1, 2)), flush(other.row, (1, 2))]
    first, second = call(lane.db, calls.message_push, groups, wait_ms=0)
    assert (first.verdict, second.verdict, second.divisible) == ("stored", "full", True)
    assert other.push(1) == "stored"
    [last] = call(lane.db, calls.message_push, [flush(other.row, (1, 2))], wait_ms=0)
    assert (last.verdict, last.divisible) == ("full", False)


def test_two_pushes_at_once_may_pass_the_bound_by_one_of_them(lane, second_connection):
    """The promised bound of what may be too much: what is under way in another partition."""
    other = Lane(lane.db, lane.queue, "other")
    configure(lane, enforce=True, max_size=2)
    other.__post_init__()
    elsewhere = second_connection()
    assert lane.push(1, 2, connection=elsewhere) == "stored"
    assert other.push(1, 2) == "stored"
    elsewhere.commit()
    assert other.push(3) == "full"


def test_dead_letters_of_one_partition_go_in_steps(lane):
    Lane(lane.db, lane.queue, "other").bury(9)
    lane.bury(1, 2, 3)
    assert (lane.count("queen_dead_letter"), until_none(lane, 2)) == (3, 2)
    assert until_none(lane, 2) == 1
    assert lane.count("queen_dead_letter") == 0
    assert lane.scalar("SELECT count(*) FROM queen_dead_letter WHERE payload = '9'::bytea") >= 1


def until_none(lane, rows_max):
    deleted, _ = call(
        lane.db,
        queue_calls.purge_letters,
        lane.tenant,
        lane.queue,
        lane.name,
        until=None,
        rows_max=rows_max,
    )
    return deleted
