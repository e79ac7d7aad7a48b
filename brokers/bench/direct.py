"""The direct twin: the same procedures straight over psycopg, without broker or HTTP.

A client is a connection with one call in flight, made by the very functions that the
broker calls. `groups` is what one call carries: 1 is what each client of the HTTP run
would do by itself; as many as there were clients is what a combiner would make of them.

Imports payloads, tally and, of the broker, store.calls, store.pool, frames. Used by worker.py.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from brokers import frames
from brokers.bench import payloads
from brokers.bench.tally import Tally
from brokers.config import PostgresConfig
from brokers.domain import DEFAULT_TENANT
from brokers.message_ids import Minter
from brokers.store import calls
from brokers.store.calls import Batch, ClaimJob, PartitionRow, PushGroup
from brokers.store.pool import Lane

NAMES_MAX = 1000
WINDOW_BATCH = 100


class Client:
    """One connection and the partitions that are its own: `groups` of them go into one call."""

    def __init__(self, lane: Lane, lots: list[list[PartitionRow]], job: dict[str, Any]) -> None:
        self.lane = lane
        self.lots = [deque(lot) for lot in lots]
        self.batch: int = job["batch"]
        self.group: str = job.get("group", "")
        self.minter = Minter()
        self.payload = payloads.payload(job["payload_bytes"])

    async def push(self) -> int:
        groups = [self._flush(lot) for lot in self.lots]
        verdicts = await calls.message_push(self.lane.fetch, groups, wait_ms=0)
        wrong = [one for one in verdicts if one.verdict != "stored" or one.duplicate_positions]
        if wrong:
            raise RuntimeError(f"direct push: {wrong[0]}")
        return self.batch * len(groups)

    def _flush(self, lot: deque[PartitionRow]) -> PushGroup:
        row = lot[0]
        lot.rotate(-1)
        ids = self.minter.mint_many(self.batch)
        literals = [frames.literal(one) for one in ids]
        joined, ends = frames.join(
            [
                frames.frame(one, literal, None, None, self.payload)
                for one, literal in zip(ids, literals, strict=True)
            ]
        )
        return PushGroup(
            partition_id=row.id,
            queue_id=row.queue_id,
            version=row.version,
            frames=joined,
            ends=ends,
            transactions=frames.TEXT_SEPARATOR.join(literals),
            flags=None,
            first_id=ids[0],
            last_id=ids[-1],
        )

    async def pop(self) -> int:
        """Claim and acknowledge once; 0 when nothing is left in any of its partitions."""
        lots = [lot for lot in self.lots if lot]
        if not lots:
            return 0
        leases = [str(uuid4()) for _ in lots]
        jobs = [
            ClaimJob(self.group, self.batch, 1, lease, 0, False, [lot[0].id])
            for lot, lease in zip(lots, leases, strict=True)
        ]
        rows = await calls.message_claim(self.lane.fetch, jobs, window_batch=WINDOW_BATCH)
        messages = 0
        batches: dict[int, Batch] = {}
        for row in rows:
            if row.verdict != "took":
                if row.verdict != "empty":
                    raise RuntimeError(f"direct claim: {row.verdict}")
                lots[row.job - 1].popleft()
                continue
            assert row.frames is not None and row.base_offset is not None
            count = row.frames.count(frames.SEPARATOR) + 1
            messages += count
            end = row.base_offset + count - 1
            batches[row.job] = Batch(row.partition_id, self.group, leases[row.job - 1], end)
        if not messages:
            return await self.pop()
        done = await calls.cursor_complete(self.lane.fetch, list(batches.values()))
        if len(done) != len(batches):
            raise RuntimeError("direct ack: a batch was not completed")
        for lot in lots:
            lot.rotate(-1)
        return messages


class Direct:
    """Connects first, then runs from a given moment to another."""

    def __init__(self, job: dict[str, Any], tally: Tally) -> None:
        self._job = job
        self._tally = tally
        postgres = {**job["postgres"]}
        postgres["hosts"], postgres["ports"] = tuple(postgres["hosts"]), tuple(postgres["ports"])
        self._config = PostgresConfig(**postgres)
        self._clients: list[Client] = []

    async def open(self) -> None:
        job = self._job
        count, groups = job["clients"], job["groups"]
        lanes = [Lane(self._config, name="queen-bench") for _ in range(count)]
        names = [payloads.partition_name(number) for number in range(job["partitions"])]
        rows: list[PartitionRow] = []
        for at in range(0, len(names), NAMES_MAX):
            pairs = [(job["queue"], name) for name in names[at : at + NAMES_MAX]]
            found = await calls.partition_ensure(lanes[0].fetch, DEFAULT_TENANT, pairs)
            rows += [row for row in found if row is not None]
        if job["verb"] == "pop":
            await calls.group_register(
                lanes[0].fetch,
                rows[0].queue_id,
                job["group"],
                mode="all",
                since=None,
                conflation=False,
            )
        lots = [rows[number :: count * groups] for number in range(count * groups)]
        self._clients = [
            Client(lane, lots[number * groups : (number + 1) * groups], job)
            for number, lane in enumerate(lanes)
        ]
        for lane in lanes:
            await lane.fetch(calls.PING, ())

    async def run(self, opens_at: float, ends_at: float, *, on_window: Callable[[], None]) -> None:
        tasks = [asyncio.create_task(self._watch(opens_at, ends_at, on_window))]
        tasks += [asyncio.create_task(self._drive(one, ends_at)) for one in self._clients]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            for client in self._clients:
                await client.lane.close()

    async def _watch(self, opens_at: float, ends_at: float, on_window: Callable[[], None]) -> None:
        for moment, is_open in ((opens_at, True), (ends_at, False)):
            await asyncio.sleep(max(0.0, moment - time.monotonic()))
            self._tally.open = is_open
            on_window()

    async def _drive(self, client: Client, ends_at: float) -> None:
        call = client.push if self._job["verb"] == "push" else client.pop
        now = time.monotonic()
        while now < ends_at:
            messages = await call()
            if not messages:
                return
            began, now = now, time.monotonic()
            self._tally.now = now
            self._tally.took(now - began)
            self._tally.add(messages)
