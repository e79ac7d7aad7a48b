"""Claims: pops of this process share calls to the database.

Several claims ride in one transaction. A claim whose pop was cancelled while the call was
under way is handed back at once: nobody will read it.

Imports flow, store. Used by runtime.py and services/pop.py.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from brokers.errors import StoreError
from brokers.flow.coalesce import Coalescer
from brokers.flow.ending import ended
from brokers.store import calls, lease_calls
from brokers.store.calls import ClaimJob, ClaimRow

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

JOBS_WEIGHT_MAX = 20_000
CANDIDATE_WEIGHT = 20
# How long a stop waits for claims that are being handed back.
HAND_BACK_S = 5.0


class Claims:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._returning: set[asyncio.Task[None]] = set()
        # None: left out, see claim.
        self.coalescer: Coalescer[ClaimJob, list[ClaimRow] | None] = Coalescer(
            "claim",
            self._flush,
            weight_max=JOBS_WEIGHT_MAX,
            weight=lambda job: min(job.batch, 200) + CANDIDATE_WEIGHT * len(job.candidates),
            orphaned=self._orphaned,
        )

    async def claim(self, job: ClaimJob) -> list[ClaimRow]:
        rows = await self.coalescer.ask(job)
        if rows is None:
            # Nothing usual was there for it, beside some that have their messages now.
            rows = await self.coalescer.ask(replace(job, by_sets=True))
        return rows or []

    async def _flush(self, jobs: Sequence[ClaimJob]) -> list[list[ClaimRow] | None]:
        broker = self._broker
        async with broker.admission.slot("pop"):
            if broker.switches.pop_maintenance:
                # Thrown while they waited for their turn: nothing is leased any more.
                return [[] for _ in jobs]
            broker.counters.claim_calls += 1
            rows = await calls.message_claim(
                broker.claim_lane.fetch, jobs, window_batch=broker.config.hotlist.window_batch
            )
        by_job: dict[int, list[ClaimRow]] = {}
        for row in rows:
            by_job.setdefault(row.job, []).append(row)
        nothing: list[ClaimRow] | None = None if calls.leaves_out(jobs, rows) else []
        return [by_job.get(no, nothing) for no in range(1, len(jobs) + 1)]

    def _orphaned(self, job: ClaimJob, rows: list[ClaimRow] | None) -> None:
        rows = rows or []
        took = list(dict.fromkeys(row.partition_id for row in rows if row.verdict == "took"))
        if not took or job.auto_ack:
            return
        queues = {row.queue_id for row in rows if row.verdict == "took" and row.queue_id}
        task = asyncio.create_task(self.hand_back(job.lease_id, job.group, took, queues))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def hand_back(
        self, lease_id: str, group: str, partition_ids: Sequence[int], queue_ids: set[int]
    ) -> None:
        """Return a lease that nobody saw, uncharged; if that fails it runs out by itself."""
        try:
            async with self._broker.admission.call_slot("ack"):
                await lease_calls.lease_release(
                    self._broker.store.fetch, lease_id, partition_ids, group
                )
        except StoreError as error:
            log.info("claim not handed back, its lease will run out: %s", error.text)
            return
        for queue_id in queue_ids:
            self._broker.announce.released(queue_id, group, partition_ids)

    async def stop(self) -> None:
        await self.coalescer.stop()
        if self._returning:
            # What is not handed back by then runs out by itself.
            await asyncio.wait(self._returning, timeout=HAND_BACK_S)
        await ended(self._returning)
