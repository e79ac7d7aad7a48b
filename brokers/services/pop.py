"""Pop: hand out messages under a lease, waiting for some if there are none.

Stations: SIT -> LOOK -> (nothing there) PARK -> (bell, floor or due time) LOOK -> answer.
The seat is taken, and its bell rearmed, before the database is asked: a push that commits
between the look and the wait still rings.

Imports domain, frames, flow, store, services/subscriptions. Called by api/hot.py.
"""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from brokers import frames
from brokers.domain import PopRequest, PopResult
from brokers.flow.gates import Seat
from brokers.services.subscriptions import ensure_subscribed
from brokers.store import calls
from brokers.store.calls import ClaimJob, ClaimRow, QueueRow

if TYPE_CHECKING:
    from brokers.runtime import Broker

BATCH_DEFAULT = 200
CONFLATED_LANES_MAX = 64
LANES_MAX = 1000
# More candidates than lanes are looked up, because other pops take some meanwhile.
SPARE_CANDIDATES = 16
LOOKS_AFTER_LOST_RACES = 3


async def pop(broker: "Broker", request: PopRequest) -> PopResult:
    """Claim up to `batch` messages, waiting up to `timeout_s` for the first if asked to.

    No connection is held while parked. A cancelled pop leaves nothing but its seat, which
    is freed; what it had claimed is handed back.
    """
    broker.counters.pop_requests += 1
    deadline = time.monotonic() + (request.timeout_s if request.wait else 0.0)
    look = Look(broker, request, deadline)
    with broker.gates.seat(request.tenant, request.queue) as seat:
        while True:
            seat.rearm()
            result = await look.once(seat)
            remaining_s = deadline - time.monotonic()
            if result.messages or remaining_s <= 0 or broker.gates.closed:
                broker.counters.pop_messages += len(result.messages)
                return result
            await seat.wait(min(remaining_s, look.patience_s()))


async def hand_back(broker: "Broker", result: PopResult) -> None:
    """Return a claim whose answer was never begun; the delivery is not counted."""
    if result.lease_id and result.claimed:
        await calls.lease_release(
            broker.store.fetch, result.lease_id, result.claimed, result.group
        )
        broker.announce.released(result.claimed)


class Look:
    """One pop's looks: what it wants, and what it learned about when to look again."""

    def __init__(self, broker: "Broker", request: PopRequest, deadline: float) -> None:
        self._broker = broker
        self._request = request
        self._deadline = deadline
        self._due_at: datetime | None = None
        self._filling_since: float | None = None

    def patience_s(self) -> float:
        """How long to park at most: the floor, or less when something falls due earlier."""
        floor_s = self._broker.config.pop.poll_ms / 1000
        if self._filling_since is not None:
            return min(floor_s, 0.01)
        if self._due_at is None:
            return floor_s
        due_s = (self._due_at - datetime.now(UTC)).total_seconds()
        return min(max(due_s, 0.005), floor_s)

    async def once(self, seat: Seat) -> PopResult:
        """Ask the database once, or again where others were quicker."""
        broker, request = self._broker, self._request
        queues = await self._queues()
        conflation = await self._subscribe(queues)
        result = PopResult(
            [],
            queue=request.queue or "",
            group=request.group,
            conflation=request.conflation and bool(conflation),
            conflation_conflict=conflation is not None and conflation != request.conflation,
        )
        if not queues or broker.gates.closed:
            return result
        batch, lanes = self._knobs(bool(conflation))
        for _ in range(LOOKS_AFTER_LOST_RACES):
            partition_id = await self._named_partition(queues)
            if partition_id == 0:
                return result
            broker.counters.probe_calls += 1
            readiness = await calls.partition_ready(
                broker.store.fetch,
                [queue.id for queue in queues],
                request.group,
                partition_id=partition_id,
                window_batch=broker.config.hotlist.window_batch,
                limit=min(lanes, LANES_MAX) + SPARE_CANDIDATES,
            )
            self._due_at = readiness.due_at
            if readiness.queues < len(queues):
                for queue in queues:
                    broker.directory.forget_queue(request.tenant, queue.name)
                return result
            if not readiness.ready:
                return result
            if self._still_filling(queues, sum(one.pending for one in readiness.ready), batch):
                return result
            rows = await self._claim([one.id for one in readiness.ready], batch, lanes)
            if any(row.verdict == "unregistered" for row in rows):
                for queue in queues:
                    broker.directory.groups.forget((queue.id, request.group))
                await self._subscribe(queues)
            if self._deliver(rows, result):
                return result
        return result

    async def _queues(self) -> list[QueueRow]:
        broker, request = self._broker, self._request
        if request.queue is None:
            return await calls.queue_discover(
                broker.store.fetch, request.tenant, request.namespace, request.task
            )
        known = broker.directory.queues.get((request.tenant, request.queue))
        if known is None:
            known = await calls.queue_ensure(broker.store.fetch, request.tenant, request.queue)
            broker.directory.queues.put((request.tenant, request.queue), known)
        return [known]

    async def _subscribe(self, queues: list[QueueRow]) -> bool | None:
        """The stored conflation policy of the group on these queues (of the last of them)."""
        stored = None
        for queue in queues:
            policy = await ensure_subscribed(self._broker, queue.id, self._request)
            if policy is None:
                self._broker.directory.forget_queue(self._request.tenant, queue.name)
            else:
                stored = policy
        return stored

    async def _named_partition(self, queues: list[QueueRow]) -> int | None:
        """None: any partition; 0: the named one does not exist yet."""
        if self._request.partition is None:
            return None
        found = await calls.partition_find(
            self._broker.store.fetch, queues[0].id, self._request.partition
        )
        return found or 0

    def _knobs(self, conflation: bool) -> tuple[int, int]:
        """(batch, lanes) of this pop."""
        request = self._request
        batch = BATCH_DEFAULT if request.batch is None else request.batch
        if request.partition is not None:
            return batch, 1
        if request.partitions is None:
            return batch, min(batch, CONFLATED_LANES_MAX) if conflation else 1
        return batch, request.partitions if request.partitions > 0 else min(batch, LANES_MAX)

    def _still_filling(self, queues: list[QueueRow], pending: int, batch: int) -> bool:
        """Whether an under-full batch is held back so that it fills (minPopWaitTime)."""
        hold_s = max(queue.min_pop_wait_time for queue in queues) / 1000
        if hold_s <= 0 or not self._request.wait or pending >= batch:
            self._filling_since = None
            return False
        now = time.monotonic()
        if self._filling_since is None:
            self._filling_since = now
        if now < min(self._filling_since + hold_s, self._deadline - 0.05):
            return True
        self._filling_since = None
        return False

    async def _claim(self, candidates: list[int], batch: int, lanes: int) -> list[ClaimRow]:
        broker, request = self._broker, self._request
        job = ClaimJob(
            group=request.group,
            batch=batch,
            lanes=lanes,
            lease_id=str(uuid4()),
            lease_s=request.lease_s or 0,
            auto_ack=request.auto_ack,
            candidates=candidates,
        )
        self._lease_id = job.lease_id
        broker.counters.claim_calls += 1
        async with broker.admission.slot("pop"):
            return await calls.message_claim(
                broker.store.fetch, [job], window_batch=broker.config.hotlist.window_batch
            )

    def _deliver(self, rows: list[ClaimRow], result: PopResult) -> bool:
        """Render what was taken into the result; whether there was any."""
        took = [row for row in rows if row.verdict == "took"]
        if not took:
            return False
        request = self._request
        lease_id = "" if request.auto_ack else self._lease_id
        group = frames.literal(request.group)
        for row in took:
            assert row.frames is not None and row.created_us is not None
            assert row.partition_name is not None and row.queue_name is not None
            queue = f',"queue":{frames.literal(row.queue_name)}' if request.queue is None else ""
            attempt = 1 if request.auto_ack else row.attempt
            tail = (
                f',"createdAt":"{frames.timestamp_text(row.created_us)}"'
                f',"partitionId":"{row.partition_uid}"'
                f',"partition":{frames.literal(row.partition_name)}'
                f',"leaseId":"{lease_id}","consumerGroup":{group}'
                f',"deliveryAttempt":{attempt}{queue}}}'
            )
            result.messages.extend(frames.complete(row.frames, tail.encode()))
        result.claimed = list(dict.fromkeys(row.partition_id for row in took))
        result.partitions_claimed = len(result.claimed)
        result.lease_id = lease_id
        result.partition = took[0].partition_name or ""
        result.partition_id = took[0].partition_uid or ""
        if not request.auto_ack:
            self._broker.leases.remember(lease_id, result.claimed)
        return True
