"""What tests of retention do to a partition: rules, messages of a chosen age, steps.

Used by the tests of retention's procedures. Imports the store's coroutines and calling.
"""

from typing import Any

import psycopg

from brokers.store import leader_calls as calls
from brokers.store import management_calls
from brokers.store.leader_calls import RetentionStep
from tests.store.calling import Lane, call

FOREVER_MS = 86_400_000


def lead(db: psycopg.Connection[Any], task: str = "retention") -> int:
    """Become the leader, whoever is."""
    db.execute(
        "UPDATE queen_lease SET held_until = NULL, next_due_at = now() WHERE task = %s", [task]
    )
    row = db.execute(
        "SELECT token FROM queen_lease_take_v1(%s, 'test', %s, 1000)", [task, FOREVER_MS]
    ).fetchone()
    assert row is not None and row[0] is not None
    return int(row[0])


def configure(lane: Lane, **columns: Any) -> None:
    call(lane.db, management_calls.queue_configure, lane.tenant, lane.queue, columns)
    lane.__post_init__()


def push_aged(lane: Lane, *ages_s: float, each: int = 1) -> None:
    """One segment for each age, the oldest first, each of so many messages."""
    assert list(ages_s) == sorted(ages_s, reverse=True)
    for age_s in ages_s:
        assert lane.push(*range(each)) == "stored"
        lane.db.execute(
            "UPDATE queen_segment SET created_at = clock_timestamp() - make_interval(secs => %s)"
            " WHERE partition_id = %s AND end_offset ="
            "       (SELECT last_offset FROM queen_partition WHERE id = %s)",
            [age_s, lane.id, lane.id],
        )
    lane.db.execute(
        "UPDATE queen_partition SET oldest_live_at ="
        " (SELECT min(created_at) FROM queen_segment WHERE partition_id = queen_partition.id),"
        " last_created_at ="
        " (SELECT max(created_at) FROM queen_segment WHERE partition_id = queen_partition.id)"
        " WHERE id = %s",
        [lane.id],
    )


def commit(lane: Lane, group: str, offset: int) -> None:
    lane.db.execute(
        "INSERT INTO queen_cursor (partition_id, consumer_group, committed) VALUES (%s, %s, %s)"
        " ON CONFLICT (partition_id, consumer_group) DO UPDATE SET committed = excluded.committed",
        [lane.id, group, offset],
    )


def step(
    db: psycopg.Connection[Any],
    token: int,
    lane: Lane,
    *,
    segments_max: int = 1000,
    bytes_max: int = 10**9,
    wait_ms: int = 5000,
) -> RetentionStep:
    return call(
        db,
        calls.retention_step,
        token,
        lane.id,
        segments_max=segments_max,
        bytes_max=bytes_max,
        wait_ms=wait_ms,
    )


def due(
    db: psycopg.Connection[Any], limit: int = 1000, leave_out: tuple[int, ...] = ()
) -> list[int]:
    return call(db, calls.retention_due, limit=limit, leave_out=leave_out)


def log_of(lane: Lane) -> tuple[int, list[int]]:
    """(log_start, the base offsets of the segments that are there)."""
    start = lane.scalar("SELECT log_start FROM queen_partition WHERE id = %s", lane.id)
    rows = lane.db.execute(
        "SELECT base_offset FROM queen_segment WHERE partition_id = %s ORDER BY base_offset",
        [lane.id],
    )
    return start, [base for [base] in rows]
