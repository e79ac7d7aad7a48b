"""The procedures of streams: one commit under the lease, resets, and what deletes leave behind.

Method: the store's coroutines on real PostgreSQL; a race is a lock that a second connection holds,
and whoever shall lose is seen waiting for it before it is let go.
"""

import threading
import uuid

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.store import chore_calls, leader_calls, management_calls
from brokers.store import stream_calls as calls
from brokers.store.stream_calls import GIVE_BACK, PART, WHOLE, CycleAck, StateWrite
from tests.store.calling import Lane, call, flush, waits_for_lock
from tests.store.retaining import configure, lead, push_aged, step

WAIT_MS = 5000
DAY_S = 86_400


class Query:
    def __init__(self, db, **more):
        self.db = db
        self.name = f"query-{uuid.uuid4().hex[:12]}"
        self.id = self.register(**more).query_id

    def register(self, config_hash="h", connection=None, tenant=DEFAULT_TENANT, **more):
        given = {
            "source_queue": "source",
            "sink_queue": None,
            "config_hash": config_hash,
            "reset": False,
            "granted": True,
            "queries_max": None,
            "wait_ms": WAIT_MS,
        }
        return call(connection or self.db, calls.stream_register, tenant, self.name, **given | more)

    def cycle(self, lane, *, state=None, groups=(), ack=None, connection=None, group="g"):
        writes = {
            key: StateWrite(None if value is None else value.encode(), None)
            for key, value in (state or {}).items()
        }
        return call(
            connection or self.db,
            calls.stream_cycle,
            None,
            self.id,
            lane.row.uid,
            group,
            writes,
            list(groups),
            ack,
            wait_ms=WAIT_MS,
        )

    def state(self, lane):
        rows = call(
            self.db,
            calls.stream_state_get,
            None,
            self.id,
            lane.row.uid,
            keys=None,
            prefix=None,
            ripe_at=None,
            bytes_max=1000,
        )
        return {row.key: row.value.decode() for row in rows}


@pytest.fixture
def query(db):
    return Query(db)


@pytest.fixture
def lane(db, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.register("g")
    lane.push(*range(5))
    return lane


@pytest.fixture
def sink(db, fresh_queue):
    return Lane(db, f"{fresh_queue}-sink")


def refused(error):
    return (error.sqlstate, error.diag.message_primary)


def beside(work):
    """Run in a thread; the answer, or the error, is in the list when it has been joined."""
    told = []

    def run():
        try:
            told.append(work())
        except Exception as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, told


def test_of_two_workers_that_commit_one_batch_exactly_one_does(
    db, query, lane, sink, second_connection, eventually
):
    lease = lane.claim("g")
    first, second = second_connection(), second_connection()
    ack = CycleAck(WHOLE, lease, None, 5)
    query.cycle(
        lane, state={"n": "1"}, groups=[flush(sink.row, ("one",))], ack=ack, connection=first
    )
    # Another sink, so that it is the lease and nothing before it that they both want.
    other = Lane(db, sink.queue, "other")
    late = flush(other.row, ("two",))
    thread, told = beside(
        lambda: query.cycle(lane, state={"n": "2"}, groups=[late], ack=ack, connection=second)
    )
    eventually(lambda: waits_for_lock(db))
    first.commit()
    thread.join(30)
    assert refused(told[0]) == ("QN030", "lease")
    second.rollback()
    assert query.state(lane) == {"n": "1"}
    assert (sink.count("queen_segment"), other.count("queen_segment")) == (1, 0)


def test_a_lease_that_runs_out_while_the_cycle_waits_commits_nothing(
    db, query, lane, sink, second_connection, eventually
):
    lease = lane.claim("g")
    holder, worker = second_connection(), second_connection()
    holder.execute("SELECT FROM queen_cursor WHERE partition_id = %s FOR UPDATE", [lane.id])
    thread, told = beside(
        lambda: query.cycle(
            lane,
            state={"n": "1"},
            groups=[flush(sink.row, ("one",))],
            ack=CycleAck(WHOLE, lease, None, 5),
            connection=worker,
        )
    )
    eventually(lambda: waits_for_lock(db))
    holder.execute(
        "UPDATE queen_cursor SET lease_expires_at = clock_timestamp() WHERE partition_id = %s",
        [lane.id],
    )
    holder.commit()
    thread.join(30)
    assert refused(told[0]) == ("QN030", "lease")
    worker.rollback()
    assert query.state(lane) == {}
    assert sink.count("queen_segment") == 0
    assert lane.scalar("SELECT committed FROM queen_cursor WHERE partition_id = %s", lane.id) == -1


@pytest.mark.parametrize(
    ("ack", "text"),
    [
        (CycleAck(WHOLE, str(uuid.uuid4()), None, 5), "lease"),
        (CycleAck(GIVE_BACK, None, None, None), "lease"),
        (CycleAck(PART, "own", None, 6), "beyond"),
    ],
)
def test_state_and_sinks_are_undone_with_a_refused_ack(db, query, lane, sink, ack, text):
    lease = lane.claim("g")
    if ack.lease_id == "own":
        ack = ack._replace(lease_id=lease)
    with pytest.raises(Exception, match=text):
        query.cycle(lane, state={"n": "1"}, groups=[flush(sink.row, (1,))], ack=ack)
    assert query.state(lane) == {}
    assert sink.count("queen_segment") == 0


def test_a_stale_sink_undoes_the_state_and_the_ack(db, query, lane, sink):
    lease = lane.claim("g")
    group = flush(sink.row, (1,))
    call(db, management_calls.queue_delete, DEFAULT_TENANT, sink.queue)
    with pytest.raises(Exception, match="changed or deleted"):
        query.cycle(lane, state={"n": "1"}, groups=[group], ack=CycleAck(WHOLE, lease, None, 5))
    assert query.state(lane) == {}
    assert str(
        lane.scalar("SELECT lease_id FROM queen_cursor WHERE partition_id = %s", lane.id)
    ) == (lease)


def test_a_whole_batch_is_completed_also_behind_a_part_of_it(db, query, lane):
    lease = lane.claim("g")
    query.cycle(lane, ack=CycleAck(PART, lease, None, 2))
    [done] = query.cycle(lane, ack=CycleAck(WHOLE, lease, None, 3))
    assert (done.completed, done.lease_released) == (3, True)
    row = lane.db.execute(
        "SELECT committed, total_consumed, lease_id, batch_end FROM queen_cursor"
        " WHERE partition_id = %s",
        [lane.id],
    ).fetchone()
    assert row == (4, 5, None, None)


def test_a_count_beyond_the_truth_is_not_believed(query, lane):
    lease = lane.claim("g")
    [done] = query.cycle(lane, ack=CycleAck(WHOLE, lease, None, 10**15))
    assert done.completed == 5


def test_a_part_counts_what_was_handed_out_though_retention_took_some(db, query, fresh_queue):
    lane = Lane(db, fresh_queue)
    lane.register("g")
    configure(lane, max_wait_time_seconds=10)
    push_aged(lane, 20, each=2)
    lane.push("x", "y")
    lease = lane.claim("g")
    assert step(db, lead(db), lane).verdict == "done"
    assert lane.scalar("SELECT log_start FROM queen_partition WHERE id = %s", lane.id) > 0
    query.cycle(lane, ack=CycleAck(PART, lease, None, 3))
    committed = "SELECT committed FROM queen_cursor WHERE partition_id = %s"
    last = lane.scalar("SELECT last_offset FROM queen_partition WHERE id = %s", lane.id)
    assert lane.scalar(committed, lane.id) == last - (last + 1 - 3)


def test_a_reset_waits_for_a_cycle_and_empties_what_it_wrote(
    db, query, lane, second_connection, eventually
):
    worker, operator = second_connection(), second_connection()
    query.cycle(lane, state={"k": "1"}, connection=worker)
    thread, told = beside(lambda: query.register("h2", connection=operator, reset=True))
    eventually(lambda: waits_for_lock(db))
    worker.commit()
    thread.join(30)
    operator.commit()
    assert told[0].outcome == "reset"
    assert query.state(lane) == {}


def test_a_cycle_that_waits_for_a_reset_writes_into_the_new_state(
    db, query, lane, second_connection, eventually
):
    query.cycle(lane, state={"old": "1"})
    operator, worker = second_connection(), second_connection()
    query.register("h2", connection=operator, reset=True)
    thread, told = beside(lambda: query.cycle(lane, state={"new": "1"}, connection=worker))
    eventually(lambda: waits_for_lock(db))
    operator.commit()
    thread.join(30)
    worker.commit()
    assert not isinstance(told[0], Exception), told
    assert query.state(lane) == {"new": "1"}


def test_state_that_was_reset_is_removed_in_bounded_steps(db, query, lane):
    rows = "SELECT count(*) FROM queen_stream_state WHERE partition_id = %s"
    query.cycle(lane, state={f"k{no}": "1" for no in range(20)})
    query.register("h2", reset=True)
    query.cycle(lane, state={"new": "1"})
    assert lane.scalar(rows, lane.id) == 21
    steps = 0
    while call(db, chore_calls.queue_reclaim, rows_max=8):
        steps += 1
    assert steps >= 3
    assert lane.scalar(rows, lane.id) == 1
    assert lane.scalar("SELECT count(*) FROM queen_stream_reclaim") == 0
    assert query.state(lane) == {"new": "1"}


def test_two_first_registrations_of_a_name_make_one_query(db, query, second_connection, eventually):
    first, second = second_connection(), second_connection()
    query.name += "-raced"
    one = query.register(connection=first)
    thread, told = beside(lambda: query.register(connection=second))
    eventually(lambda: waits_for_lock(db))
    first.commit()
    thread.join(30)
    second.commit()
    assert (one.outcome, told[0]) == ("fresh", one._replace(outcome="known"))


def test_a_cap_holds_between_two_that_come_together(db, second_connection, eventually):
    tenant = uuid.uuid4()
    query = Query(db, tenant=tenant)
    limited = {"tenant": tenant, "queries_max": 2}
    first, second = second_connection(), second_connection()
    query.name = "one"
    assert query.register(connection=first, **limited).outcome == "fresh"
    query.name = "two"
    thread, told = beside(lambda: query.register(connection=second, **limited))
    eventually(lambda: waits_for_lock(db))
    first.commit()
    thread.join(30)
    second.commit()
    assert told[0].outcome == "full"
    query.name = "one"
    assert query.register(**limited).outcome == "known", "what is there is never refused"


def test_without_a_grant_a_new_name_is_refused_and_a_known_one_is_not(db, query):
    assert query.register(granted=False).outcome == "known"
    query.name += "-new"
    assert query.register(granted=False).outcome == "denied"
    assert query.register().outcome == "fresh", "the refusal has written nothing"


def test_state_beyond_the_limit_is_refused_whole(query, lane):
    query.cycle(lane, state={"a": '"' + "x" * 600 + '"', "b": '"' + "x" * 600 + '"'})
    with pytest.raises(Exception, match="more than 1000"):
        query.state(lane)


def test_deleting_the_source_removes_its_state_behind_it(db, query, lane):
    lane.claim("g")
    query.cycle(lane, state={"k": "1"})
    call(db, management_calls.queue_delete, DEFAULT_TENANT, lane.queue)
    assert query.state(lane) == {}
    while call(db, chore_calls.queue_reclaim, rows_max=1000):
        pass
    rows = "SELECT count(*) FROM queen_stream_state WHERE partition_id = %s"
    assert lane.scalar(rows, lane.id) == 0


def test_a_cycle_under_way_while_its_source_is_deleted_leaves_nothing_behind(
    db, query, lane, second_connection, eventually
):
    """The delete does not wait for it, and the reclaim comes back for what it wrote."""
    lease = lane.claim("g")
    worker = second_connection()
    query.cycle(lane, state={"k": "1"}, ack=CycleAck(WHOLE, lease, None, 5), connection=worker)
    call(db, management_calls.queue_delete, DEFAULT_TENANT, lane.queue)
    while call(db, chore_calls.queue_reclaim, rows_max=1000):
        pass
    worker.commit()
    rows = "SELECT count(*) FROM queen_stream_state WHERE partition_id = %s"
    assert lane.scalar(rows, lane.id) == 1
    while call(db, chore_calls.queue_reclaim, rows_max=1000):
        pass
    assert lane.scalar(rows, lane.id) == 0


# Removal of empty partitions


@pytest.fixture
def empty(db, fresh_queue):
    """A partition that cleanup would take: a group has a cursor, all messages are gone."""
    token = lead(db)
    lane = Lane(db, fresh_queue)
    configure(lane, max_wait_time_seconds=10)
    lane.register("g")
    push_aged(lane, 20, each=3)
    lane.claim("g")
    assert step(db, token, lane).verdict == "done"
    lane.db.execute(
        "UPDATE queen_partition SET last_write_at = now() - interval '31 days' WHERE id = %s",
        [lane.id],
    )
    return lane


def clean_up(db, token):
    return call(db, leader_calls.partition_cleanup, token, idle_s=30 * DAY_S, rows_max=1000)


def expire(lane):
    lane.db.execute(
        "UPDATE queen_cursor SET lease_expires_at = now() - interval '1 s' WHERE partition_id = %s",
        [lane.id],
    )


def test_a_partition_with_state_is_not_cleaned_up(db, query, empty):
    token = lead(db)
    expire(empty)
    query.cycle(empty, state={"k": "1"})
    assert clean_up(db, token).removed == 0
    query.cycle(empty, state={"k": None})
    assert clean_up(db, token).removed == 1


def test_a_partition_is_not_cleaned_up_under_a_cycle_that_writes_its_first_state(
    db, query, empty, second_connection
):
    """Not even when no lease is live: who has a cursor may be about to write."""
    token, worker = lead(db), second_connection()
    expire(empty)
    query.cycle(empty, state={"k": "1"}, connection=worker)
    assert clean_up(db, token).removed == 0
    worker.commit()
    assert clean_up(db, token).removed == 0
    assert query.state(empty) == {"k": "1"}
