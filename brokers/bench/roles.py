"""Roles: what one connection of the generator does, request by request.

producer   pushes pre-rendered requests, each to one partition, in turn
paced      pushes one stamped message at a fixed rate
consumer   pops, acknowledges what it got, pops again; a stamped message gives a latency
seeder     pushes a given number of messages across partitions, once (seeding.py)

Every answer is checked: each item must be queued, each payload must come back as it was
sent, each acknowledgment must have succeeded. A client that finds one wrong stops.

Imports payloads, tally, wire. Used by worker.py.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from brokers.bench import payloads, wire
from brokers.bench.tally import Tally

LEASE_ID = re.compile(rb'"leaseId":"([^"]*)"')
PARTITION_ID = re.compile(rb'"partitionId":"([^"]*)"')
TRANSACTION_ID = re.compile(rb'"transactionId":"([^"]*)"')
MESSAGES = b'"messages":['
RESUME_S = 0.001


@dataclass(slots=True)
class Lead:
    """How far producers may be ahead of the consumers of their process, and how many messages
    those take before they stop; 0 is without a limit."""

    messages_max: int = 0
    consumed_max: int = 0
    pushed: int = 0
    acked: int = 0

    def is_used_up(self) -> bool:
        return bool(self.messages_max) and self.pushed - self.acked >= self.messages_max

    def is_consumed(self) -> bool:
        return bool(self.consumed_max) and self.acked >= self.consumed_max


class Producer:
    """Pushes its requests in turn; with a lead, not further ahead than that."""

    def __init__(self, requests: Sequence[bytes], batch: int, tally: Tally, lead: Lead) -> None:
        self.tally = tally
        self._requests = requests
        self._batch = batch
        self._lead = lead
        self._turn = 0
        self._due_at: float | None = None

    def first(self) -> bytes | None:
        return self._next()

    def answered(self, answer: wire.Answer, now: float) -> bytes | None:
        queued = answer.body.count(b'"queued"')
        if answer.status != b"201" or queued != self._batch:
            self.tally.fail(f"push: {answer.status!r}, {queued} queued: {answer.body[:200]!r}")
            return None
        self.tally.add(queued)
        if self._lead.is_used_up():
            self._due_at = now + RESUME_S
            return None
        return self._next()

    def due_at(self) -> float | None:
        return self._due_at

    def resume(self, now: float) -> bytes | None:
        if self._lead.is_used_up():
            self._due_at = now + RESUME_S
            return None
        return self._next()

    def may_be_cut(self) -> bool:
        return False

    def must_finish(self) -> bool:
        return False

    def _next(self) -> bytes:
        self._lead.pushed += self._batch
        self._turn += 1
        return self._requests[self._turn % len(self._requests)]


class PacedProducer:
    """One stamped message every `1 / rate` seconds, whatever the answers take."""

    def __init__(self, queue: str, partitions: Sequence[str], rate: float, tally: Tally) -> None:
        self.tally = tally
        self._queue = queue
        self._partitions = partitions
        self._period_s = 1 / rate
        self._turn = 0
        self._due_at = 0.0

    def first(self) -> bytes | None:
        return None

    def answered(self, answer: wire.Answer, now: float) -> bytes | None:
        if answer.status != b"201" or answer.body.count(b'"queued"') != 1:
            self.tally.fail(f"push: {answer.status!r}: {answer.body[:200]!r}")
        self.tally.add(1)
        return None

    def due_at(self) -> float | None:
        return self._due_at

    def resume(self, now: float) -> bytes | None:
        self._due_at = max(self._due_at + self._period_s, now)
        partition = self._partitions[self._turn % len(self._partitions)]
        self._turn += 1
        data = payloads.stamped(int(now * 1e9))
        item = payloads.item(self._queue, partition, data)
        return wire.post("/api/v1/push", payloads.push_body([item]))

    def may_be_cut(self) -> bool:
        return False

    def must_finish(self) -> bool:
        return False


class Consumer:
    """Pops with a long poll, acknowledges, pops again."""

    def __init__(
        self,
        *,
        queue: str,
        group: str,
        batch: int,
        partitions: int,
        wait_ms: int,
        tally: Tally,
        lead: Lead,
        payload: bytes | None,
    ) -> None:
        self.tally = tally
        self._lead = lead
        self._held = 0
        self._batch = batch
        self._one_partition = partitions == 1
        self._data = None if payload is None else b'"data":' + payload
        query = {"batch": str(batch), "wait": "true", "timeout": str(wait_ms)}
        query |= {"partitions": str(partitions)}
        query |= {"consumerGroup": group, "subscriptionMode": "all"}
        self._pop = wire.get(wire.queue_path(queue), query)
        self._group = f'"consumerGroup":{json.dumps(group)}'.encode()
        self._ack_head = wire.post_head("/api/v1/ack")
        self._acks_head = wire.post_head("/api/v1/ack/batch")
        self.latencies_us: list[int] = []

    def first(self) -> bytes | None:
        return self._pop

    def answered(self, answer: wire.Answer, now: float) -> bytes | None:
        if self._held:
            return self._acked(answer)
        if answer.status == wire.NO_CONTENT:
            self.tally.empty += 1
            return self._pop_again()
        if answer.status != b"200":
            self.tally.fail(f"pop: {answer.status!r}: {answer.body[:200]!r}")
            return None
        if self._data is None and self.tally.open:
            stamp = payloads.stamp_of(answer.body)
            if stamp is not None:
                self.latencies_us.append(int(now * 1e6) - stamp // 1000)
        return self._acknowledge(answer.body)

    def due_at(self) -> float | None:
        return None

    def resume(self, now: float) -> bytes | None:
        return None

    def may_be_cut(self) -> bool:
        """A parked pop may wait long; an acknowledgment is answered at once."""
        return not self._held

    def must_finish(self) -> bool:
        return self._held > 0

    def _acked(self, answer: wire.Answer) -> bytes | None:
        succeeded = answer.body.count(b'"success":true')
        if answer.status != b"200" or succeeded != self._held:
            self.tally.fail(f"ack: {answer.status!r}, {succeeded}: {answer.body[:200]!r}")
            self._held = 0
            return None
        self._held = 0
        self._lead.acked += succeeded
        self.tally.add(succeeded)
        return self._pop_again()

    def _pop_again(self) -> bytes | None:
        return None if self._lead.is_consumed() else self._pop

    def _acknowledge(self, body: bytes) -> bytes | None:
        head, _, messages = body.partition(MESSAGES)
        ids = TRANSACTION_ID.findall(messages)
        lease = LEASE_ID.search(head)
        partition = PARTITION_ID.search(head)
        if lease is None or partition is None or not 0 < len(ids) <= self._batch:
            self.tally.fail(f"pop: not what was asked for: {body[:200]!r}")
            return None
        if self._data is not None and messages.count(self._data) != len(ids):
            self.tally.fail("pop: a payload is not what was pushed")
        self._held = len(ids)
        tail = b'","leaseId":"' + lease[1] + b'"'
        if len(ids) == 1:
            text = b'{"transactionId":"%b","partitionId":"%b%b,%b}' % (
                ids[0],
                partition[1],
                tail,
                self._group,
            )
            return self._ack_head % len(text) + text
        if self._one_partition:
            tail = b'","partitionId":"' + partition[1] + tail + b"}"
            parts = [b'{"transactionId":"' + one + tail for one in ids]
        else:
            parts = [
                b'{"transactionId":"' + one + b'","partitionId":"' + its + tail + b"}"
                for one, its in zip(ids, PARTITION_ID.findall(messages), strict=True)
            ]
        text = b'{%b,"acknowledgments":[%b]}' % (self._group, b",".join(parts))
        return self._acks_head % len(text) + text
