"""Few pops of one partition each are served as the general procedure would do it.

Method: twins, two partitions of queues that are configured alike and get the same messages. One
is claimed through the procedure for few, the other through the general one, asked as for any
call; what is answered and what becomes of the cursor must be the same.
"""

import itertools
import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from brokers.store import calls, management_calls
from brokers.store.calls import Batch, ClaimJob, ClaimRow
from tests.store.calling import Lane, call, flush
from tests.store.retaining import configure

GROUP = "g"
CURSOR = """
SELECT committed, batch_start, batch_end, lease_id, last_lease_id, retry_offset, retry_count,
       attempt_offset, attempt_count, expiry_count, solo_until, total_consumed, retry_at IS NULL,
       round(extract(epoch FROM lease_expires_at - leased_at))
  FROM queen_cursor WHERE partition_id = %s AND consumer_group = 'g'
"""
WAITS_FOR_SEGMENTS = """
SELECT FROM pg_locks WHERE relation = 'queen_segment'::regclass AND NOT granted
"""
END_LEASES = """
UPDATE queen_cursor SET lease_expires_at = clock_timestamp() - interval '1 s'
 WHERE partition_id = ANY (%s) AND lease_id IS NOT NULL
"""


class Twins:
    def __init__(self, db, queue: str, **options) -> None:
        self.db = db
        self.one, self.general = Lane(db, f"{queue}-one"), Lane(db, f"{queue}-general")
        for lane in self.lanes:
            configure(lane, **options)
            lane.register(GROUP)

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        return self.one, self.general

    @property
    def ids(self) -> list[int]:
        return [lane.id for lane in self.lanes]

    def push(self, count: int, flags: bytes | None = None) -> None:
        group = flush(self.one.row, tuple(range(count)))
        group.flags = None if flags is None else flags * count
        for lane in self.lanes:
            group.partition_id, group.queue_id = lane.id, lane.row.queue_id
            group.version = lane.row.version
            call(self.db, calls.message_push, [group], wait_ms=5000)

    def claim(
        self, batch: int = 100, *, lease_s: int = 0, auto_ack: bool = False
    ) -> tuple[str, list[ClaimRow]]:
        lease_id, told = str(uuid.uuid4()), []
        for lane, through in ((self.one, calls.message_claim), (self.general, generally)):
            job = ClaimJob(GROUP, batch, 1, lease_id, lease_s, auto_ack, [lane.id])
            told.append(call(self.db, through, [job], window_batch=100))
        assert [alike(row) for row in told[0]] == [alike(row) for row in told[1]]
        for lane, rows in zip(self.lanes, told, strict=True):
            assert {(row.partition_id, row.queue_id) for row in rows if row.queue_id} <= {
                (lane.id, lane.row.queue_id)
            }
        cursors = [self.db.execute(CURSOR, [one]).fetchone() for one in self.ids]
        assert cursors[0] == cursors[1]
        return lease_id, told[0]

    def complete(self, lease_id: str, end: int) -> None:
        for lane in self.lanes:
            assert call(self.db, calls.cursor_complete, [Batch(lane.id, GROUP, lease_id, end)]) == {
                0
            }

    def end_leases(self) -> None:
        self.db.execute(END_LEASES, [self.ids])


async def generally(fetch, jobs, *, window_batch):
    by_sets = [replace(job, by_sets=True) for job in jobs]
    return await calls.message_claim(fetch, by_sets, window_batch=window_batch)


def alike(row: ClaimRow) -> ClaimRow:
    """Without what is each twin's own; of a time that is left, the half minute."""
    due = None if row.due_us is None else round(row.due_us / 30e6)
    return row._replace(
        partition_id=0,
        partition_uid=None,
        queue_id=None,
        queue_name=None,
        created_us=row.created_us and 0,
        due_us=due,
    )


OPTIONS = [
    {},
    {"lease_time": 7},
    {"lease_time": 0},
    {"max_deliveries": 2},
    {"delayed_processing": 3600},
    {"window_buffer": 3600},
    {"ttl": 3600, "enforce": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_leases_acks_and_redeliveries_are_alike(db, fresh_queue, options):
    twins = Twins(db, fresh_queue, **options)
    chance = random.Random(len(options))
    assert twins.claim()[1][0].verdict == "empty"
    for _ in range(40):
        what = chance.randrange(6)
        if what < 2:
            twins.push(chance.randrange(1, 5), chance.choice([None, b"\x00", b"\x01"]))
        elif what == 2:
            twins.end_leases()
        lease_id, rows = twins.claim(
            chance.choice([1, 2, 3, 100]),
            lease_s=chance.choice([0, 0, 90]),
            auto_ack=chance.random() < 0.3,
        )
        if (
            rows[0].verdict == "took"
            and what % 2
            and db.execute(CURSOR, [twins.one.id]).fetchone()[3]
        ):
            twins.complete(lease_id, rows[0].batch_end)


def test_a_paused_queue_and_a_group_that_is_not_registered_are_told_alike(db, fresh_queue):
    twins = Twins(db, fresh_queue)
    twins.push(2)
    twins.claim(1)
    twins.end_leases()
    db.execute(
        "UPDATE queen_queue SET paused = true WHERE id = ANY (%s)",
        [[lane.row.queue_id for lane in twins.lanes]],
    )
    assert twins.claim()[1][0].verdict == "paused"
    db.execute("UPDATE queen_queue SET paused = false WHERE name LIKE %s", [f"{fresh_queue}-%"])
    assert twins.claim()[1][0].verdict == "took"
    for lane in twins.lanes:
        db.execute("DELETE FROM queen_group WHERE queue_id = %s", [lane.row.queue_id])
    assert twins.claim()[1][0].verdict == "unregistered"
    for lane in twins.lanes:
        call(db, management_calls.queue_delete, lane.tenant, lane.queue)
    assert twins.claim()[1][0].verdict == "gone"


def test_a_cursor_that_somebody_holds_is_busy(db, fresh_queue, second_connection):
    twins = Twins(db, fresh_queue)
    twins.push(2)
    twins.claim(1, auto_ack=True)
    with second_connection() as holder:
        holder.execute(
            "SELECT FROM queen_cursor WHERE partition_id = ANY (%s) FOR UPDATE", [twins.ids]
        )
        assert twins.claim()[1][0].verdict == "busy"
        holder.rollback()
    assert twins.claim()[1][0].verdict == "took"


def test_only_a_lease_may_be_lost_in_a_crash(db, fresh_queue):
    """The commit of an auto-ack is waited for, and so is the birth of a cursor."""
    lane = Lane(db, fresh_queue)
    lane.register(GROUP)
    lane.push(1, 2, 3)

    def waits_for_the_disk(*, auto_ack: bool) -> bool:
        with db.transaction():
            db.execute("SET LOCAL synchronous_commit = on")
            job = ClaimJob(GROUP, 1, 1, str(uuid.uuid4()), 0, auto_ack, [lane.id])
            [row] = call(db, calls.message_claim, [job], window_batch=100)
            assert row.verdict == "took"
            db.execute(END_LEASES, [[lane.id]])
            return lane.scalar("SHOW synchronous_commit") == "on"

    assert waits_for_the_disk(auto_ack=False), "its cursor was born"
    assert not waits_for_the_disk(auto_ack=False)
    assert waits_for_the_disk(auto_ack=True)


class Several:
    """Partitions of one queue with a message each, whose cursors are there."""

    def __init__(self, db, queue: str, count: int) -> None:
        self.db = db
        self.lanes = [Lane(db, queue, f"p{no}") for no in range(count)]
        self.lanes[0].register(GROUP)
        for lane in self.lanes:
            lane.push(1, 2)
            db.execute(
                "INSERT INTO queen_cursor (partition_id, consumer_group, committed)"
                " VALUES (%s, 'g', -1)",
                [lane.id],
            )

    def claim(self, *wanted: tuple[int, ...], auto_acks: tuple[bool, ...] = ()) -> dict[int, int]:
        """Pops of one message, each with the candidates of which it is told; which got what."""
        jobs = [
            ClaimJob(GROUP, 1, 1, str(uuid.uuid4()), 0, auto_ack, [self.lanes[no].id for no in one])
            for one, auto_ack in itertools.zip_longest(wanted, auto_acks, fillvalue=False)
        ]
        rows = call(self.db, calls.message_claim, jobs, window_batch=100)
        rows = [row for row in rows if row.verdict == "took"]
        for row in rows:
            lease_id = self.db.execute(CURSOR, [row.partition_id]).fetchone()[3]
            assert lease_id is None or str(lease_id) == jobs[row.job - 1].lease_id
        ids = [lane.id for lane in self.lanes]
        return {row.job: ids.index(row.partition_id) for row in rows}

    def leased(self) -> list[int]:
        held = [self.db.execute(CURSOR, [lane.id]).fetchone() for lane in self.lanes]
        return [no for no, cursor in enumerate(held) if cursor and cursor[3]]


def test_each_of_few_pops_gets_its_first_candidate(db, fresh_queue):
    several = Several(db, fresh_queue, 5)
    assert several.claim((0, 1), (3, 4)) == {1: 0, 2: 3}
    assert several.leased() == [0, 3], "a spare candidate is left alone"


def test_one_partition_is_leased_to_one_of_the_pops_that_ask_for_it(db, fresh_queue):
    several = Several(db, fresh_queue, 2)
    assert several.claim((0, 1), (0,), (0,)) == {2: 0}


@pytest.mark.parametrize("beside", [(), ((2,),)], ids=["alone", "beside another"])
def test_a_partition_that_the_group_has_not_met_is_not_passed_over_for_a_spare(
    db, fresh_queue, beside
):
    """It would be again and again, while there is a spare. Beside another that is leased to, its
    pop is left out: making a cursor may wait for others, and that is not done meanwhile."""
    several = Several(db, fresh_queue, 3)
    db.execute("DELETE FROM queen_cursor WHERE partition_id = %s", [several.lanes[0].id])
    assert several.claim((0, 1), *beside) == ({2: 2} if beside else {1: 0})
    assert 1 not in several.leased()


def test_few_pops_of_which_one_commits_are_waited_for(db, fresh_queue):
    several = Several(db, fresh_queue, 6)
    turns = (((False, False), "off"), ((True, False), "on"), ((False, True), "on"))
    for no, (auto_acks, waits) in enumerate(turns):
        with db.transaction():
            db.execute("SET LOCAL synchronous_commit = on")
            assert len(several.claim((2 * no,), (2 * no + 1,), auto_acks=auto_acks)) == 2
            assert db.execute("SHOW synchronous_commit").fetchone() == (waits,)


@pytest.mark.parametrize("auto_ack", [False, True], ids=["lease", "auto-ack"])
def test_what_is_deleted_while_it_is_being_leased_holds_up_nothing_behind_it(
    db, fresh_queue, second_connection, eventually, auto_ack
):
    """As retention does it, between the look at the cursor and the one at the segments."""
    lane = Lane(db, fresh_queue)
    lane.register(GROUP)
    lane.push(1, 2, 3)
    lane.push(4)
    db.execute(
        "INSERT INTO queen_cursor (partition_id, consumer_group, committed) VALUES (%s, 'g', -1)",
        [lane.id],
    )
    retention = second_connection()
    retention.execute("LOCK TABLE queen_segment IN ACCESS EXCLUSIVE MODE")
    job = ClaimJob(GROUP, 2, 1, str(uuid.uuid4()), 0, auto_ack, [lane.id])
    with ThreadPoolExecutor(1) as pool:
        claim = pool.submit(call, db, calls.message_claim, [job], window_batch=100)
        eventually(lambda: retention.execute(WAITS_FOR_SEGMENTS).fetchone() is not None)
        retention.execute(
            "DELETE FROM queen_segment WHERE partition_id = %s AND base_offset = 0", [lane.id]
        )
        retention.execute("UPDATE queen_partition SET log_start = 3 WHERE id = %s", [lane.id])
        retention.commit()
        assert claim.result(timeout=30) == []
    [row] = call(db, generally, [job], window_batch=100)
    assert (row.verdict, row.base_offset, row.batch_end, row.attempt) == ("took", 3, 3, 1)
    committed, start, end = db.execute(CURSOR, [lane.id]).fetchone()[:3]
    assert (committed, start, end) == ((3, None, None) if auto_ack else (-1, 3, 3))
