"""Claims: pops of this process share calls to the database.

Several claims ride in one transaction. A claim whose pop was cancelled while the call was
under way is handed back at once: nobody will read it.

Imports flow, store. Used by runtime.py and services/pop.py.
"""

import asyncio
import logging
from collections.abc import Sequence
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
        self.coalescer: Coalescer[ClaimJob, list[ClaimRow]] = Coalescer(
            "claim",
            self._flush,
            weight_max=JOBS_WEIGHT_MAX,
            weight=lambda job: min(job.batch, 200) + CANDIDATE_WEIGHT * len(job.candidates),
            orphaned=self._orphaned,
        )

    async def claim(self, job: ClaimJob) -> list[ClaimRow]:
        return await self.coalescer.ask(job)

    async def _flush(self, jobs: Sequence[ClaimJob]) -> list[list[ClaimRow]]:
        broker = self._broker
        async with broker.admission.slot("pop"):
            if broker.switches.pop_maintenance:
                # Thrown while they waited for their turn: nothing is leased any more.
                return [[] for _ in jobs]
            broker.counters.claim_calls += 1
            rows = await self._claim(jobs)
        answers: list[list[ClaimRow]] = [[] for _ in jobs]
        for row in rows:
            answers[row.job - 1].append(row)
        return answers

    async def _claim(self, jobs: Sequence[ClaimJob]) -> list[ClaimRow]:
        fetch, window = self._broker.claim_lane.fetch, self._broker.config.hotlist.window_batch
        rows = await calls.message_claim(fetch, jobs, window_batch=window)
        served = {row.job for row in rows}
        left = [no for no in range(1, len(jobs) + 1) if no not in served]
        if not left or any(row.verdict != "took" for row in rows):
            return rows
        # Nothing usual was there for these, beside some that have their messages.
        self._broker.counters.claim_calls += 1
        try:
            more = await calls.message_claim(
                fetch, [jobs[no - 1] for no in left], window_batch=window, by_sets=True
            )
        except StoreError as error:
            if not rows:
                raise
            # Those that have their messages are answered; the others found nothing.
            log.info("some pops of a call were not looked after: %s", error.text)
            return rows
        return rows + [row._replace(job=left[row.job - 1]) for row in more]

    def _orphaned(self, job: ClaimJob, rows: list[ClaimRow]) -> None:
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
