"""queen_queue_delete and queen_queue_reclaim: gone at once, removed in bounded steps.

Method: the store's coroutines on real PostgreSQL, in a database of this file's own, since a
broker would reclaim as well; a second connection holds the locks.
"""

import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.store import calls as hot_calls
from brokers.store import chore_calls
from brokers.store import management_calls as calls
from tests import harness
from tests.store.calling import Lane, call, waits_for_lock

TABLES = ("queen_segment", "queen_cursor", "queen_dead_letter", "queen_reclaim")


@pytest.fixture(scope="module")
def database(postgres):
    own = harness.make_database(postgres, f"queen_{harness.WORKER}_{uuid.uuid4().hex[:8]}")
    yield own
    harness.drop_database(own)


def delete(db, name, tenant=DEFAULT_TENANT):
    return call(db, calls.queue_delete, tenant, name)


def reclaim(db, rows_max=1000):
    return call(db, chore_calls.queue_reclaim, rows_max=rows_max)


def reclaim_all(db):
    """What other tests left, too."""
    while reclaim(db):
        pass


def left_of(lane):
    return {table: lane.count(table) for table in TABLES}


def test_a_delete_counts_its_partitions_and_one_of_nothing_says_so(db, fresh_queue):
    for name in "abc":
        Lane(db, fresh_queue, name)
    assert delete(db, fresh_queue) == 3
    assert delete(db, fresh_queue) is None


def test_what_a_deleted_queue_held_is_removed_in_bounded_steps(db, fresh_queue):
    reclaim_all(db)
    lanes = [Lane(db, fresh_queue, name) for name in "ab"]
    for lane in lanes:
        lane.register("g")
        for number in range(5):
            lane.push(number)
        lane.claim("g")
        lane.bury_at(2)
    queue_id = lanes[0].row.queue_id
    delete(db, fresh_queue)
    for lane in lanes:
        assert left_of(lane)["queen_reclaim"] == 1
    for table in ("queen_group", "queen_partition", "queen_wake"):
        assert lanes[0].scalar(f"SELECT count(*) FROM {table} WHERE queue_id = %s", queue_id) == 0

    steps = []
    while removed := reclaim(db, rows_max=3):
        steps.append(removed)

    # Of each partition five segments, a cursor, a dead letter and its own entry.
    assert sum(steps) == 16
    assert max(steps) <= 3
    for lane in lanes:
        assert set(left_of(lane).values()) == {0}


def test_transaction_rows_of_the_longest_class_go_with_the_queue(db, fresh_queue):
    call(db, calls.queue_configure, DEFAULT_TENANT, fresh_queue, {"dedup_window_seconds": 9**8})
    lane = Lane(db, fresh_queue)
    lane.push(1, 2, 3)
    assert lane.count("queen_txn_9") == 3
    delete(db, fresh_queue)
    reclaim_all(db)
    assert lane.count("queen_txn_9") == 0


def test_a_queue_of_the_same_name_of_another_tenant_stays(db, fresh_queue):
    other = uuid.uuid4()
    mine, theirs = Lane(db, fresh_queue), Lane(db, fresh_queue, tenant=other)
    theirs.push(1)
    delete(db, fresh_queue)
    reclaim_all(db)
    assert theirs.count("queen_segment") == 1
    assert mine.push(1) == "stale"
    assert delete(db, fresh_queue, other) == 1


def test_a_delete_waits_for_a_push_under_way_and_takes_what_it_wrote(
    db, second_connection, database, fresh_queue
):
    lane = Lane(db, fresh_queue)
    pusher = second_connection()
    assert lane.push(1, connection=pusher) == "stored"
    with ThreadPoolExecutor(1) as pool, database.connect() as other:
        deleting = pool.submit(delete, other, fresh_queue)
        while not waits_for_lock(db):
            assert not deleting.done(), "it should wait for the push"
        pusher.commit()
        assert deleting.result(timeout=5) == 1
    reclaim_all(db)
    assert set(left_of(lane).values()) == {0}


def test_a_partition_whose_cursor_is_held_is_left_for_a_later_step(
    db, second_connection, fresh_queue
):
    """An ack that read the partition before the delete may still give a message up."""
    reclaim_all(db)
    lane = Lane(db, fresh_queue)
    lane.register("g")
    lane.push(1, 2)
    lane.claim("g")
    acker = second_connection()
    acker.execute("SELECT 1 FROM queen_cursor WHERE partition_id = %s FOR UPDATE", [lane.id])
    delete(db, fresh_queue)

    assert reclaim(db) == 0
    assert left_of(lane) == {
        "queen_segment": 1,
        "queen_cursor": 1,
        "queen_dead_letter": 0,
        "queen_reclaim": 1,
    }
    acker.execute("SELECT queen_dead_letter_add_v1(%s, 'g', 0::bigint, 'late', 1)", [lane.id])
    acker.commit()
    assert left_of(lane)["queen_dead_letter"] == 0, "nobody could come by it"

    assert reclaim(db) == 3
    assert set(left_of(lane).values()) == {0}


def test_reclaimers_share_the_work_and_do_not_wait(db, second_connection, fresh_queue):
    reclaim_all(db)
    lanes = [Lane(db, fresh_queue, name) for name in "ab"]
    for lane in lanes:
        lane.push(1)
    delete(db, fresh_queue)
    first = second_connection()
    assert reclaim(first, rows_max=1) == 1
    db.execute("SET lock_timeout = '1s'")
    try:
        assert reclaim(db) == 2, "the other partition, whole"
    finally:
        db.execute("RESET lock_timeout")
    first.commit()
    assert reclaim(db) == 1
    assert [left_of(lane)["queen_segment"] for lane in lanes] == [0, 0]


def test_a_wake_that_came_back_after_its_queue_is_removed_in_the_end(db, fresh_queue):
    reclaim_all(db)
    lane = Lane(db, fresh_queue)
    delete(db, fresh_queue)
    db.execute(
        "INSERT INTO queen_wake (queue_id, consumer_group) VALUES (%s, 'g')", [lane.row.queue_id]
    )
    reclaim_all(db)
    wakes = "SELECT count(*) FROM queen_wake WHERE queue_id = %s"
    assert lane.scalar(wakes, lane.row.queue_id) == 0


def test_deletes_beside_pushes_edits_replays_and_reclaims_never_deadlock(db, database, fresh_queue):
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    [before] = db.execute(deadlocks).fetchone()
    queues = [f"{fresh_queue}-{number}" for number in range(2)]
    until = time.monotonic() + 4

    def work(seed: int) -> int:
        dice, rounds = random.Random(seed), 0
        with database.connect() as connection:
            while time.monotonic() < until:
                queue = dice.choice(queues)
                match dice.randrange(6):
                    case 0:
                        delete(connection, queue)
                    case 1:
                        patch = {"lease_time": dice.randrange(9)}
                        call(connection, calls.queue_configure, DEFAULT_TENANT, queue, patch)
                    case 2:
                        reclaim(connection, rows_max=5)
                    case 3:
                        call(
                            connection,
                            calls.dead_letter_purge,
                            DEFAULT_TENANT,
                            queue,
                            None,
                            after=None,
                            rows_max=5,
                        )
                    case _:
                        ensure = hot_calls.PARTITION_ENSURE
                        names = ["a", "b", "c"]
                        dice.shuffle(names)
                        connection.execute(ensure, (DEFAULT_TENANT, [queue] * 3, names, True))
                        connection.execute(
                            "SELECT queen_dead_letter_add_v1(id, 'g', last_offset, '', 1)"
                            "  FROM queen_partition ORDER BY id"
                        )
                rounds += 1
        return rounds

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))

    [after] = db.execute(deadlocks).fetchone()
    assert after == before
