"""Pop: hand out messages under a lease, waiting for some if there are none.

Stations: SIT -> LOOK -> (nothing there) PARK -> (bell or deadline) LOOK -> answer. The seat
is taken, and its bell rearmed, before the look: a push that commits between the look and
the wait still rings. The first look asks the database when the ring knows nothing; later
looks go through memory, and the floor sees to it that memory learns.

Imports domain, frames, encryption, flow, store, services/{autopilot,maintenance,subscriptions}.
Called by api/hot.py.
"""

import asyncio
import itertools
import time
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from brokers import frames
from brokers.domain import PopRequest, PopResult
from brokers.encryption import UndecryptableError, bounded, unreadable_frame
from brokers.errors import Refusal
from brokers.flow.gates import Seat
from brokers.flow.ready import Candidate, Ring
from brokers.flow.registry import HandedOut
from brokers.services import autopilot, maintenance
from brokers.services.autopilot import Knobs
from brokers.services.subscriptions import ensure_subscribed
from brokers.store import calls
from brokers.store.calls import ClaimJob, ClaimRow, QueueRow

if TYPE_CHECKING:
    from brokers.runtime import Broker

# Candidates beyond the lanes asked for: some turn out empty or taken, and a second call
# costs more than a few spare ones in the first.
SPARE_CANDIDATES = 3
CLAIMS_PER_LOOK = 8
HOLD_STEP_S = 0.02
UNPLACED_RECHECK_S = 1.0
TURNS = itertools.count()
SEATS_TAKEN = "too many pops wait here already"


async def pop(broker: "Broker", request: PopRequest) -> PopResult:
    """Claim up to `batch` messages, waiting up to `timeout_s` for the first if asked to.

    A parked pop holds a seat and nothing else; when all seats are taken it is refused. A
    cancelled pop frees its seat, and what was being claimed for it is handed back. In pop
    maintenance it is answered at once, and so is a parked one when that begins.
    """
    if maintenance.pops_paused(broker):
        broker.counters.pop_requests += 1
        broker.counters.pop_empty += 1
        return maintenance.paused_pop(request)
    if len(broker.gates) >= broker.config.pop.seats_max:
        raise Refusal(SEATS_TAKEN, code="rate_limited", retry_after_s=1)
    broker.counters.pop_requests += 1
    broker.counters.pop_targeted += request.partition is not None
    deadline = time.monotonic() + (request.timeout_s if request.wait else 0.0)
    visit = Visit(broker, request, deadline)
    with broker.gates.seat(request.queue, request.tenant) as seat:
        result = await visit.look(seat)
        while not (result.messages or broker.gates.closed or maintenance.pops_paused(broker)):
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0 and not visit.holding:
                break
            began = time.monotonic()
            rung = await seat.wait(max(min(remaining_s, visit.patience_s), 0.0))
            if visit.holding:
                broker.counters.fill_wait_us += int((time.monotonic() - began) * 1e6)
            late = time.monotonic() >= deadline
            if (late and not rung and not visit.holding) or maintenance.pops_paused(broker):
                break
            seat.rearm()
            result = await visit.look(seat)
            if late:
                break
    if maintenance.pops_paused(broker) and not result.messages:
        result = maintenance.paused_pop(request)
    if visit.sealed:
        await visit.open_sealed(result)
    broker.counters.pop_messages += len(result.messages)
    broker.counters.pop_empty += not result.messages
    if request.auto_ack and result.messages:
        broker.counters.count_auto_acks(len(result.messages))
    visit.count(result)
    return result


async def hand_back(broker: "Broker", result: PopResult) -> None:
    """Return a claim whose answer was never begun; the delivery is not counted."""
    if result.lease_id and result.claimed:
        await broker.claims.hand_back(
            result.lease_id, result.group, result.claimed, result.claimed_queues
        )


class Visit:
    """One pop's looks: what it wants, and what it learned between them."""

    def __init__(self, broker: "Broker", request: PopRequest, deadline: float) -> None:
        self._broker = broker
        self._request = request
        self._deadline = deadline
        # The queues that there were at the first look.
        self._met: set[int] | None = None
        self._holding_until: float | None = None
        self._rings: list[Ring] = []
        self._again = False
        self._asked = False
        # Whether an answer of the database may come a moment later, by a bell.
        self._patient = request.wait
        self._queue_gone = False
        self._looked_anew = False
        # What was taken encrypted: its position in the result, and its bytes up to and
        # behind the end of the payload.
        self.sealed: list[tuple[int, bytes, bytes]] = []
        # How long to park before looking again without a bell.
        self.patience_s = float("inf")

    @property
    def holding(self) -> bool:
        """An under-full batch is being held back: the last look is still to come."""
        return self._holding_until is not None

    async def look(self, seat: Seat) -> PopResult:
        broker, request = self._broker, self._request
        self.patience_s = float("inf")
        held_until, self._holding_until = self._holding_until, None
        queues = await self._queues()
        conflation = await self._subscribe(queues)
        result = PopResult(
            [],
            queue=request.queue or "",
            group=request.group,
            conflation=bool(conflation),
            conflation_conflict=conflation is not None and conflation != request.conflation,
        )
        if not queues or broker.gates.closed:
            self.patience_s = UNPLACED_RECHECK_S
            return result
        rings = [broker.announce.rings.ring(queue.id, request.group) for queue in queues]
        if rings != self._rings:
            # Other queues than at the last look: of theirs the rings may know nothing.
            self._rings, self._asked = rings, False
        partition_id = await self._named_partition(queues, seat)
        if partition_id == 0:
            return result
        seat.partition_id = partition_id
        broker.gates.place(seat, [(queue.id, request.group) for queue in queues])
        if request.queue is None:
            self.patience_s = UNPLACED_RECHECK_S
        if await self._held_back(queues, partition_id, held_until):
            return result
        knobs = autopilot.choose(request, bool(conflation), self._rings, broker.config.pop)
        if knobs.chosen is not None:
            result.autopilot = knobs.chosen
        if partition_id is not None:
            await self._claim_named(partition_id, knobs, result)
        else:
            await self._claim_ready(knobs, result)
            if self._queue_gone and not self._looked_anew:
                # Deleted through another broker, and perhaps made anew: look at that one.
                self._looked_anew = True
                return await self.look(seat)
        if result.messages:
            self._ring_the_next()
        elif partition_id is None and any(ring.ready_count for ring in self._rings):
            # Every claim of this look was lost to others, and there are more candidates.
            self.patience_s = HOLD_STEP_S
        return result

    async def open_sealed(self, result: PopResult) -> None:
        """Decrypt what was taken. A message that cannot be opened carries its error instead
        of its data, can be acked like any other, and holds up nobody.

        Where that takes a while the loop goes on, so the client may be gone meanwhile.
        """
        try:
            await bounded(
                lambda: self._open(result.messages), sum(len(frame) for _, frame, _ in self.sealed)
            )
        except asyncio.CancelledError:
            await hand_back(self._broker, result)
            raise

    def _open(self, messages: list[bytes]) -> None:
        keys = self._broker.keys
        for position, frame, tail in self.sealed:
            try:
                message = keys.open_frame(frame)
            except UndecryptableError as error:
                message = unreadable_frame(frame, error)
                self._broker.counters.undecryptable += 1
            messages[position] = message + tail

    def count(self, result: PopResult) -> None:
        """What this pop adds to its queue's statistics; a discovery counts where it found."""
        found = result.claimed_queues or {ring.queue_id for ring in self._rings[:1]}
        for queue_id in found:
            counts = self._broker.tally.of(queue_id)
            counts.pop_requests += 1
            counts.pop_messages += len(result.messages) // len(found)
            counts.pop_empty += not result.messages
            if self._request.auto_ack:
                counts.ack_success += len(result.messages) // len(found)

    # Where to look

    async def _queues(self) -> list[QueueRow]:
        """The queues to look at; those that ask for an unknown one at once share the answer."""
        broker, request = self._broker, self._request
        fetch, directory = broker.store.fetch, broker.directory
        if request.queue is None:
            place = (request.tenant, request.namespace, request.task)
            found = directory.discoveries.get(place)
            if found is None:
                found = await broker.lookups.run(
                    ("discover", *place), lambda: calls.queue_discover(fetch, *place)
                )
                directory.discoveries.put(place, found)
            return found
        key = (request.tenant, request.queue)
        queue = directory.queues.get(key)
        if queue is None:
            queue = await broker.lookups.run(("queue", *key), lambda: self._ensure_queue(*key))
            directory.learn_queue(key, queue)
        return [queue]

    async def _ensure_queue(self, tenant: UUID, name: str) -> QueueRow:
        async with self._broker.admission.call_slot("pop"):
            return await calls.queue_ensure(self._broker.store.fetch, tenant, name)

    async def _subscribe(self, queues: list[QueueRow]) -> bool | None:
        """The stored conflation policy of the group on these queues (of the last of them)."""
        stored = None
        if self._met is None:
            self._met = {queue.id for queue in queues}
        for queue in queues:
            policy = await ensure_subscribed(
                self._broker, queue.id, self._request, born=queue.id not in self._met
            )
            if policy is None:
                self._broker.directory.forget_queue(self._request.tenant, queue.name)
            else:
                stored = policy
        return stored

    async def _named_partition(self, queues: list[QueueRow], seat: Seat) -> int | None:
        """None: any partition; 0: the named one does not exist yet, and the seat hears of it."""
        request, broker = self._request, self._broker
        if request.partition is None:
            return None
        key = (queues[0].id, request.partition)
        found = broker.directory.partition_ids.get(key)
        if found is not None:
            return found
        # Seated before it is asked: a birth in between rings, or the floor finds it.
        broker.gates.place_unborn(seat, *key)
        born = await broker.lookups.run(
            ("partition", *key), lambda: calls.partition_find(broker.store.fetch, [key])
        )
        if key not in born:
            return 0
        broker.directory.partition_ids.put(key, born[key])
        return born[key]

    # Claiming

    async def _claim_ready(self, knobs: Knobs, result: PopResult) -> None:
        """Check candidates out of the rings until some are claimed or none are left.

        The first time that the rings yield nothing the database is asked; after that they
        are believed.
        """
        for _ in range(CLAIMS_PER_LOOK):
            checked = self._check_out(knobs.lanes)
            if checked:
                if await self._claim(checked, knobs, result):
                    return
            elif self._asked:
                return
            else:
                self._asked = True
                self._queue_gone = not await self._probe()
                if self._queue_gone:
                    self._asked = False
                    return

    def _check_out(self, lanes: int) -> list[tuple[Ring, Candidate]]:
        wanted = lanes + min(lanes, SPARE_CANDIDATES)
        checked: list[tuple[Ring, Candidate]] = []
        # A discovery begins with another queue each time, or the first would starve the rest.
        turn = next(TURNS) % len(self._rings)
        for ring in self._rings[turn:] + self._rings[:turn]:
            checked += [(ring, one) for one in ring.check_out(wanted - len(checked))]
            if len(checked) >= wanted:
                break
        return checked

    async def _probe(self) -> bool:
        """Ask the database for all rings; False when a queue is gone (look again, anew)."""
        floor = self._broker.floor
        look = floor.look_soon if self._patient else floor.look
        if len(self._rings) == 1:
            return await look(self._rings[0])
        return all(await asyncio.gather(*(look(ring) for ring in self._rings)))

    async def _claim(
        self, checked: list[tuple[Ring, Candidate]], knobs: Knobs, result: PopResult
    ) -> bool:
        request = self._request
        job = self._job([one.partition_id for _, one in checked], knobs)
        try:
            rows = await self._broker.claims.claim(job)
        except BaseException:
            for ring, candidate in reversed(checked):
                ring.put_back([candidate])
            raise
        by_partition = {row.partition_id: row for row in rows}
        enough = False
        took = [row for row in rows if row.verdict == "took"]
        if took:
            lanes = len({row.partition_id for row in took})
            enough = lanes >= knobs.lanes or _count(took) >= knobs.batch
        untouched: list[tuple[Ring, Candidate]] = []
        unregistered = False
        for ring, candidate in checked:
            row = by_partition.get(candidate.partition_id)
            if row is None or (row.verdict == "busy" and enough):
                untouched.append((ring, candidate))
            elif row.verdict == "took":
                more = (row.last_offset or 0) > (row.batch_end or 0)
                ring.took(candidate, more=more, committed=request.auto_ack, lease=job.lease_id)
            elif row.verdict == "empty":
                ring.empty(candidate)
            elif row.verdict == "until":
                ring.until(candidate, (row.due_us or 0) / 1e6, leased=bool(row.leased))
            elif row.verdict == "busy":
                ring.until(candidate, HOLD_STEP_S, leased=False)
            elif row.verdict == "paused":
                # Nothing of the queue is to be had: no use to ask for its others one by one.
                ring.empty(candidate)
                self._broker.announce.rings.drop(ring.queue_id)
            elif row.verdict == "gone":
                ring.gone(candidate)
                self._forget_named_partition()
            else:
                unregistered = True
                untouched.append((ring, candidate))
        for ring, candidate in reversed(untouched):
            ring.put_back([candidate])
        # Delivered before anything is awaited: what is claimed must not get lost on the way.
        if took:
            self._deliver(job, took, result)
        # Without a row it was another pop's of that call, which may have left some of it.
        self._again = unregistered or (request.auto_ack and len(by_partition) < len(checked))
        if unregistered and not took:
            await self._register_again()
        return bool(took)

    async def _claim_named(self, partition_id: int, knobs: Knobs, result: PopResult) -> None:
        """The partition route has one candidate, whatever the ring believes of it."""
        [ring] = self._rings
        for _ in range(2):
            checked = [(ring, ring.take(partition_id))]
            if await self._claim(checked, knobs, result) or not self._again:
                return

    async def _register_again(self) -> None:
        """The subscription was deleted: this pop is the group's first contact again."""
        for ring in self._rings:
            self._broker.directory.groups.forget((ring.queue_id, ring.group))
        await self._subscribe(await self._queues())

    def _forget_named_partition(self) -> None:
        request = self._request
        if request.queue is not None and request.partition is not None:
            for ring in self._rings:
                self._broker.directory.partition_ids.forget((ring.queue_id, request.partition))
            self._broker.directory.forget_queue(request.tenant, request.queue)
            self.patience_s = HOLD_STEP_S

    def _job(self, candidates: list[int], knobs: Knobs) -> ClaimJob:
        request = self._request
        return ClaimJob(
            group=request.group,
            batch=knobs.batch,
            lanes=knobs.lanes,
            lease_id=str(uuid4()),
            lease_s=request.lease_s or 0,
            auto_ack=request.auto_ack,
            candidates=candidates,
        )

    def _ring_the_next(self) -> None:
        """There was work; if more of it lies ready, the next one in the row is woken."""
        for ring in self._rings:
            if ring.ready_count:
                self._broker.gates.ring((ring.queue_id, ring.group), 0)
                return

    # Holding back

    async def _held_back(
        self, queues: list[QueueRow], partition_id: int | None, held_until: float | None
    ) -> bool:
        """Whether an under-full batch waits to fill (minPopWaitTime): by count, without a lease.

        Counted is what this call may claim: the fullest partitions, as many as it takes.
        """
        request = self._request
        hold_s = max(queue.min_pop_wait_time for queue in queues) / 1000
        batch = autopilot.BATCH_DEFAULT if request.batch is None else request.batch
        if hold_s <= 0 or not request.wait or batch <= 1:
            return False
        readiness = await calls.partition_ready(
            self._broker.store.fetch,
            [queue.id for queue in queues],
            request.group,
            partition_id=partition_id,
            window_batch=self._broker.config.hotlist.window_batch,
            limit=autopilot.LANES_MAX,
        )
        lanes = 1 if request.partitions is None else request.partitions or batch
        fullest = sorted((one.pending for one in readiness.ready), reverse=True)[:lanes]
        pending = sum(fullest)
        now = time.monotonic()
        # Never past the caller's own timeout, with time left to claim.
        until = (
            min(now + hold_s, self._deadline - HOLD_STEP_S) if held_until is None else held_until
        )
        if not pending or pending >= batch or now >= until:
            if held_until is not None:
                self._asked = self._patient = False
            return False
        self._broker.counters.fill_waits += held_until is None
        self._holding_until = until
        self.patience_s = max(min(self._holding_until - now, hold_s / 4), 0.001)
        return True

    # Answering

    def _deliver(self, job: ClaimJob, took: list[ClaimRow], result: PopResult) -> None:
        """Render what was taken into the result, and remember what was handed out."""
        request = self._request
        lease_id = "" if request.auto_ack else job.lease_id
        group = frames.literal(request.group)
        batches: dict[int, HandedOut] = {}
        for row in took:
            assert row.frames is not None and row.created_us is not None
            assert row.partition_name is not None and row.queue_name is not None
            assert row.partition_uid is not None and row.queue_id is not None
            assert row.batch_end is not None
            queue = f',"queue":{frames.literal(row.queue_name)}' if request.queue is None else ""
            attempt = 1 if request.auto_ack else row.attempt
            tail = (
                f',"createdAt":"{frames.timestamp_text(row.created_us)}"'
                f',"partitionId":"{row.partition_uid}"'
                f',"partition":{frames.literal(row.partition_name)}'
                f',"leaseId":"{lease_id}","consumerGroup":{group}'
                f',"deliveryAttempt":{attempt}{queue}}}'
            ).encode()
            split = row.frames.split(frames.SEPARATOR)
            if row.flags is not None:
                first = len(result.messages)
                self.sealed += [
                    (first + no, split[no], tail)
                    for no, flag in enumerate(row.flags)
                    if flag & frames.FLAG_ENCRYPTED
                ]
            result.messages.extend([one + tail for one in split])
            self._broker.tally.delivered(row.queue_id, row.created_us, len(split))
            if not request.auto_ack:
                batch = batches.get(row.partition_id)
                if batch is None:
                    batch = batches[row.partition_id] = HandedOut(
                        row.queue_id,
                        row.partition_id,
                        row.partition_uid,
                        request.group,
                        row.batch_end,
                        [],
                        request.tenant,
                    )
                batch.ids.extend([frames.transaction_of(one) for one in split])
        result.claimed = list(dict.fromkeys(row.partition_id for row in took))
        result.claimed_queues = {row.queue_id for row in took if row.queue_id is not None}
        result.partitions_claimed = len(result.claimed)
        result.lease_id = lease_id
        result.partition = took[0].partition_name or ""
        result.partition_id = took[0].partition_uid or ""
        if batches and not result.conflation:
            self._broker.registry.remember(lease_id, list(batches.values()))


def _count(took: list[ClaimRow]) -> int:
    """How many messages these rows hold."""
    return sum(row.frames.count(frames.SEPARATOR) + 1 for row in took if row.frames is not None)
