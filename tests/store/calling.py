"""Calling procedures from a test: the product's own coroutines over the test's connection.

Used by the tests of the management procedures.
"""

import asyncio
import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg

from brokers import frames
from brokers.domain import DEFAULT_TENANT
from brokers.message_ids import Minter
from brokers.store import calls
from brokers.store.calls import PartitionRow, PushGroup

minter = Minter()


def call(
    connection: psycopg.Connection[Any], function: Callable[..., Any], *given: Any, **named: Any
):
    """`function` is a coroutine of the store; its answer, from this connection.

    Within a running loop, which it stops meanwhile, it runs in a thread with a loop of its own.
    """

    async def fetch(statement: str, parameters: Any = None) -> list[Any]:
        cursor = connection.cursor(binary=True).execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []

    work = function(fetch, *given, **named)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@dataclass
class Lane:
    """One partition of a queue, with what a test does to it."""

    db: psycopg.Connection[Any]
    queue: str
    name: str = "Default"
    tenant: UUID = DEFAULT_TENANT
    row: PartitionRow = field(init=False)

    def __post_init__(self) -> None:
        [self.row] = call(self.db, calls.partition_ensure, self.tenant, [(self.queue, self.name)])

    @property
    def id(self) -> int:
        return self.row.id

    def push(self, *payloads: Any, ids: list[str] | None = None, connection: Any = None) -> str:
        """One flush; returns its verdict."""
        group = flush(self.row, payloads, ids)
        [verdict] = call(connection or self.db, calls.message_push, [group], wait_ms=5000)
        return verdict.verdict

    def register(self, group: str, mode: str = "all") -> None:
        call(
            self.db,
            calls.group_register,
            self.row.queue_id,
            group,
            mode=mode,
            since=None,
            conflation=False,
        )

    def claim(self, group: str, batch: int = 100) -> str:
        """Lease what there is; returns the lease's id."""
        lease_id = str(uuid.uuid4())
        job = calls.ClaimJob(group, batch, 1, lease_id, 300, False, [self.id])
        rows = call(self.db, calls.message_claim, [job], window_batch=100)
        assert [row.verdict for row in rows if row.verdict == "took"], rows
        return lease_id

    def bury(self, *payloads: Any, group: str = "g", ids: list[str] | None = None) -> list[str]:
        """Push messages and dead-letter each for `group`; the ids of the dead letters."""
        first = self.scalar("SELECT last_offset + 1 FROM queen_partition WHERE id = %s", self.id)
        assert self.push(*payloads, ids=ids) == "stored"
        return [self.bury_at(first + position, group) for position in range(len(payloads))]

    def bury_at(self, offset: int, group: str = "g") -> str:
        add = "SELECT queen_dead_letter_add_v1(%s, %s, %s::bigint, 'why', 1)"
        assert self.scalar(add, self.id, group, offset)
        find = """
            SELECT id::text FROM queen_dead_letter
             WHERE partition_id = %s AND consumer_group = %s AND message_offset = %s
        """
        return str(self.scalar(find, self.id, group, offset))

    def bury_many(self, count: int, *, first: int = 0, group: str = "g") -> None:
        """Dead letters of messages that are gone, failed now, in one statement."""
        self.db.execute(
            """
            INSERT INTO queen_dead_letter (
                   tenant_id, queue_id, partition_id, consumer_group, message_offset, message_id,
                   transaction_id, transaction_hash, payload, error, retry_count)
            SELECT %s, %s, %s, %s, no, gen_random_uuid(), '"t"', 0, 'null', 'why', 1
              FROM generate_series(%s::bigint, %s::bigint) AS no
            """,
            [self.tenant, self.row.queue_id, self.id, group, first, first + count - 1],
        )

    def scalar(self, statement: str, *parameters: Any) -> Any:
        row = self.db.execute(statement, parameters).fetchone()
        return row[0] if row else None

    def count(self, table: str) -> int:
        """Rows of a table that belong to this partition."""
        return int(self.scalar(f"SELECT count(*) FROM {table} WHERE partition_id = %s", self.id))


def flush(row: PartitionRow, payloads: tuple[Any, ...], ids: list[str] | None = None) -> PushGroup:
    """The messages of one flush; bytes are payloads as they are, all else becomes JSON."""
    message_ids = minter.mint_many(len(payloads))
    literals = [frames.literal(one) for one in ids or message_ids]
    made = [
        frames.frame(
            message_id,
            literal,
            None,
            None,
            payload if isinstance(payload, bytes) else json.dumps(payload).encode(),
        )
        for message_id, literal, payload in zip(message_ids, literals, payloads, strict=True)
    ]
    joined, ends = frames.join(made)
    return PushGroup(
        partition_id=row.id,
        queue_id=row.queue_id,
        version=row.version,
        frames=joined,
        ends=ends,
        transactions=frames.TEXT_SEPARATOR.join(literals),
        flags=None,
        first_id=message_ids[0],
        last_id=message_ids[-1],
    )


def waits_for_lock(db: psycopg.Connection[Any], count: int = 1) -> bool:
    """Whether so many statements of this database wait for a lock right now."""
    row = db.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    assert row is not None
    return bool(row[0] >= count)
