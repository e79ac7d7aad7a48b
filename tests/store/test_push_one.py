"""A flush of one message is stored and answered as the general procedure would do it.

Method: twins, two partitions of queues that are configured alike. One gets its messages through
the procedure for one, the other through the general one, asked as for any flush; answers and
rows must be the same, whatever is special about the queue, the row or the message.
"""

import random

import pytest

from brokers.store import calls
from brokers.store.calls import PushVerdict
from tests.store.calling import Lane, call, flush
from tests.store.retaining import configure

SEGMENTS = """
SELECT base_offset, end_offset, format, frames, ends, flags
  FROM queen_segment WHERE partition_id = %s ORDER BY base_offset
"""
TRANSACTIONS = """
SELECT hash, message_offset, slot FROM queen_txn WHERE partition_id = %s ORDER BY message_offset
"""
LANE = """
SELECT last_offset, last_id, last_created_at IS NULL, last_write_at IS NULL, oldest_live_at IS NULL
  FROM queen_partition WHERE id = %s
"""
# Windows of all classes, and none.
WINDOWS_S = [0, 60, 3600, 86_400, 2_000_000, 90_000_000]


class Twins:
    def __init__(self, db, queue: str, **options) -> None:
        self.db = db
        self.one, self.general = Lane(db, f"{queue}-one"), Lane(db, f"{queue}-general")
        self.configure(**options)

    def configure(self, **options) -> None:
        for lane in (self.one, self.general):
            configure(lane, **options)

    def push(self, transaction: str, *, flags: bytes | None = None, **row) -> PushVerdict:
        """To both; `row` are columns of the address that shall be wrong."""
        group = flush(self.one.row, (1,), [transaction])
        group.flags = flags
        told = []
        for lane, through in ((self.one, calls.message_push), (self.general, generally)):
            address = {
                "partition_id": lane.id,
                "queue_id": lane.row.queue_id,
                "version": lane.row.version,
                **row,
            }
            for name, value in address.items():
                setattr(group, name, value)
            [verdict] = call(self.db, through, [group], wait_ms=0)
            told.append(verdict)
        assert told[0] == told[1], transaction
        return told[0]

    def same(self) -> None:
        for statement in (SEGMENTS, TRANSACTIONS, LANE):
            one, general = (
                self.db.execute(statement, [lane.id]).fetchall()
                for lane in (self.one, self.general)
            )
            assert one == general


async def generally(fetch, groups, *, wait_ms):
    rows = await fetch(calls.MESSAGE_PUSH, calls.push_parameters(groups, wait_ms))
    return [PushVerdict(*verdict) for _, *verdict in rows]


@pytest.mark.parametrize("window_s", WINDOWS_S)
def test_new_messages_and_duplicates_are_answered_and_stored_alike(db, fresh_queue, window_s):
    twins = Twins(db, fresh_queue, dedup_window_seconds=window_s)
    chance = random.Random(window_s)
    duplicates = 0
    for _ in range(40):
        flags = chance.choice([None, None, b"\x00", b"\x01"])
        verdict = twins.push(f"t{chance.randrange(25)}", flags=flags)
        assert verdict.verdict == "stored"
        duplicates += verdict.duplicate_positions is not None
    assert bool(duplicates) == (window_s > 0)
    twins.same()


def test_a_message_that_is_older_than_the_window_is_new(db, fresh_queue):
    twins = Twins(db, fresh_queue, dedup_window_seconds=60)
    twins.push("t")
    ids = [twins.one.id, twins.general.id]
    db.execute(
        "UPDATE queen_txn SET created_at = created_at - interval '61 s'"
        " WHERE partition_id = ANY (%s)",
        [ids],
    )
    assert twins.push("t").duplicate_positions is None
    assert twins.push("t").duplicate_positions == [0]
    twins.same()


def test_an_id_that_is_not_above_the_last_one_is_a_whole_millisecond_later(db, fresh_queue):
    twins = Twins(db, fresh_queue)
    early = [flush(lane.row, (1,)) for lane in (twins.one, twins.general)]
    twins.push("late")
    for lane, group, through in zip(
        (twins.one, twins.general), early, (calls.message_push, generally), strict=True
    ):
        # Its clock ahead, so that only the rule can move it.
        db.execute(
            "UPDATE queen_partition SET last_created_at = '2100-01-01 00:00:00.0005+00'"
            " WHERE id = %s",
            [lane.id],
        )
        assert call(db, through, [group], wait_ms=0)[0].verdict == "stored"
        stored = "SELECT max(created_at)::text FROM queen_segment WHERE partition_id = %s"
        assert lane.scalar(stored, lane.id).startswith("2100-01-01 00:00:00.001+")


def test_an_address_that_is_out_of_date_is_stale_and_nothing_is_stored(db, fresh_queue):
    twins = Twins(db, fresh_queue)
    version = twins.one.row.version
    for wrong in ({"version": version + 1}, {"queue_id": 1 << 40}, {"partition_id": 1 << 40}):
        assert twins.push("t", **wrong).verdict == "stale"
    twins.configure(lease_time=77)
    assert twins.push("t", version=version).verdict == "stale"
    assert twins.push("t").verdict == "stored"
    twins.same()


def test_a_partition_that_somebody_holds_is_busy(db, fresh_queue, second_connection):
    twins = Twins(db, fresh_queue)
    with second_connection() as holder:
        holder.execute(
            "SELECT FROM queen_partition WHERE id = ANY (%s) FOR UPDATE",
            [[twins.one.id, twins.general.id]],
        )
        assert twins.push("t").verdict == "busy"
        holder.rollback()
    assert twins.push("t").verdict == "stored"
    twins.same()


def test_a_queue_is_full_at_the_same_message(db, fresh_queue):
    twins = Twins(db, fresh_queue, max_size=2, enforce=True)
    verdicts = [twins.push(one).verdict for one in ("a", "b", "a", "c")]
    assert verdicts == ["stored", "stored", "stored", "full"]
    twins.same()


def test_a_queue_that_changed_its_class_knows_what_came_before(db, fresh_queue):
    twins = Twins(db, fresh_queue, dedup_window_seconds=60)
    twins.push("a")
    twins.configure(dedup_window_seconds=3600)
    assert twins.push("a").duplicate_positions == [0]
    twins.push("b")
    twins.configure(dedup_window_seconds=60)
    assert twins.push("b").duplicate_positions == [0]
    twins.same()
