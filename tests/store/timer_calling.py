"""The procedures of timers, called as the sweeper and the routes call them.

Used by the tests of timers in this directory.
"""

import uuid

from brokers import frames
from brokers.domain import DEFAULT_TENANT, TimerOperation
from brokers.store import timer_calls
from brokers.store.calls import PushGroup
from tests.store.calling import call

LEASE_MS = 30_000


def schedule(queue, key, delay_ms=60_000, *, payload=b'{"n":1}', partition="Default", txn=None):
    return TimerOperation(queue, key, txn or f"txn-{key}", delay_ms, partition, payload)


def cancel(queue, key):
    return TimerOperation(queue, key, None)


def apply(db, *operations, tenant=DEFAULT_TENANT):
    return call(db, timer_calls.timer_apply, tenant, operations)


def statuses(db, *operations, tenant=DEFAULT_TENANT):
    return [one.status for one in apply(db, *operations, tenant=tenant)]


def peek(db, queue, key, tenant=DEFAULT_TENANT):
    return call(db, timer_calls.timer_peek, tenant, queue, key)


def claim(db, *, token=None, limit=10_000, lease_ms=LEASE_MS, start=0, bytes_max=2**30):
    token = token or str(uuid.uuid4())
    timers = call(
        db,
        timer_calls.timer_claim,
        token,
        lease_ms=lease_ms,
        start=start,
        limit=limit,
        bytes_max=bytes_max,
    )
    return token, timers


def probe_of(db, due_cap=10, ahead_ms=120_000):
    return call(db, timer_calls.timer_probe, due_cap=due_cap, ahead_ms=ahead_ms)


def group(lane, timers):
    timers = sorted(timers, key=lambda one: one.message_id)
    made = [
        frames.frame(one.message_id, one.transaction_literal, None, None, one.payload)
        for one in timers
    ]
    joined, ends = frames.join(made)
    literals = [one.transaction_literal for one in timers]
    return PushGroup(
        partition_id=lane.id,
        queue_id=lane.row.queue_id,
        version=lane.row.version,
        frames=joined,
        ends=ends,
        transactions=frames.TEXT_SEPARATOR.join(literals),
        flags=None,
        first_id=timers[0].message_id,
        last_id=timers[-1].message_id,
    )


def fire(db, token, lane, timers, wait_ms=0):
    [row] = call(
        db,
        timer_calls.timer_fire,
        token,
        [one.place for one in timers],
        [1] * len(timers),
        [group(lane, timers)],
        wait_ms=wait_ms,
    )
    return row


def fail(db, token, timers, *, lane=None, error=None, attempts_max=3, backoff_ms=60_000):
    return call(
        db,
        timer_calls.timer_fail,
        token,
        [one.place for one in timers],
        [None if lane is None else lane.id] * len(timers),
        error=error,
        backoff_min_ms=backoff_ms,
        backoff_max_ms=backoff_ms * 4,
        attempts_max=attempts_max,
    )


def stored(db, queue):
    """(transactionId literal, payload) of all that lies in the queue, by partition and offset."""
    rows = db.execute(
        "SELECT segment.frames FROM queen_segment segment"
        " JOIN queen_partition lane ON lane.id = segment.partition_id"
        " JOIN queen_queue queue ON queue.id = lane.queue_id"
        " WHERE queue.name = %s ORDER BY lane.name, segment.base_offset",
        [queue],
    ).fetchall()
    all_frames = [one for (joined,) in rows for one in bytes(joined).split(frames.SEPARATOR)]
    return [
        (frames.transaction_of(one).decode(), one.split(frames.DATA, 1)[1]) for one in all_frames
    ]
