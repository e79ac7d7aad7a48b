"""Retention and cleaning up beside everything else: no deadlock, nothing lost that was not due.

Method: two brokers that take turns at retention as fast as they can, with partitions removed as
soon as they are empty, while threads push, pop, ack and let leases run out, and one deletes a
third queue over and over. Of one queue only what every group has consumed may go: so each group has
to see every message of every producer, in order, once or again, whatever was deleted or born
again meanwhile. Of the other, messages go by age: what a group missed must have been old enough.
"""

import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.faults.test_lock_order import ServerLog
from tests.wire_client import WireClient, ack_of

SECONDS = 12
PRODUCERS = 4
PARTITIONS = 6
GROUPS = ("billing", "audit")
SETTINGS = {
    "RETENTION_INTERVAL": "20",
    "RETENTION_PARALLELISM": "4",
    "RETENTION_BATCH_SIZE": "5",
    "PARTITION_CLEANUP_DAYS": "0",
    "STATS_INTERVAL_MS": "50",
    "RETAINED_BYTES_INTERVAL_MS": "50",
    "QUEEN_LEADER_LEASE_MS": "2000",
}


class Producers:
    """Number their messages along each partition, and pause so that partitions run empty."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.sent: dict[tuple[int, int], list[float]] = defaultdict(list)

    def run(self, wire: WireClient, producer: int, deadline: float) -> None:
        turn = 0
        while time.monotonic() < deadline:
            turn += 1
            partition = (turn // 20) % PARTITIONS
            number = len(self.sent[producer, partition])
            [row] = wire.push(self.queue, [producer, number], partition=str(partition))
            assert row["status"] == "queued", row
            self.sent[producer, partition].append(time.monotonic())
            if turn % 20 == 0:
                time.sleep(0.1)


class Consumers:
    """Of one group: what it was handed, by producer and partition."""

    def __init__(self, queue: str, group: str) -> None:
        self.queue = queue
        self.group = group
        self.seen: dict[tuple[int, int], set[int]] = defaultdict(set)
        self.lock = threading.Lock()

    def round(self, wire: WireClient, *, lose: bool) -> int:
        messages = wire.messages(
            self.queue,
            consumerGroup=self.group,
            subscriptionMode="all",
            batch=40,
            partitions=3,
            leaseSeconds=1,
        )
        last: dict[tuple[int, str], int] = {}
        for message in messages:
            producer, number = message["data"]
            assert number > last.get((producer, message["partition"]), -1), (
                "order along a partition"
            )
            last[producer, message["partition"]] = number
            with self.lock:
                self.seen[producer, int(message["partition"])].add(number)
        if messages and not lose:
            wire.ack_batch(*map(ack_of, messages), group=self.group)
        return len(messages)

    def run(self, wire: WireClient, deadline: float) -> None:
        turn = 0
        while time.monotonic() < deadline:
            turn += 1
            if not self.round(wire, lose=turn % 10 == 0):
                time.sleep(0.005)


def churn(wire: WireClient, queue: str, deadline: float) -> None:
    """A queue that is filled, retained and deleted all the time, and everybody's options."""
    while time.monotonic() < deadline:
        wire.configure(queue, maxWaitTimeSeconds=1, dedupWindowSeconds=0)
        wire.push(queue, *range(20))
        wire.messages(queue, batch=10)
        wire.post("/api/v1/stats/refresh")
        time.sleep(0.2 if time.monotonic() % 4 > 1 else 1.2)
        wire.delete(queue)


def test_nothing_is_lost_that_was_not_due_and_nothing_deadlocks(
    db, fresh_queue, start_broker, fresh_database
):
    database = fresh_database()
    with database.connect() as own, ExitStack() as stack:
        brokers = [start_broker(on=database, **SETTINGS) for _ in range(2)]
        wires = [stack.enter_context(WireClient.at(broker.url)) for broker in brokers]
        kept, aged = f"{fresh_queue}.kept", f"{fresh_queue}.aged"
        rules = {"retentionEnabled": True, "dedupWindowSeconds": 0}
        wires[0].configure(kept, completedRetentionSeconds=1, **rules)
        wires[0].configure(aged, retentionSeconds=2, **rules)
        log = ServerLog(own)
        producers = [Producers(queue) for queue in (kept, aged)]
        consumers = [Consumers(queue, group) for queue in (kept, aged) for group in GROUPS]
        for one in consumers:
            one.round(wires[0], lose=False)  # registered before the first message
        deadline = time.monotonic() + SECONDS
        with ThreadPoolExecutor(32) as pool:
            jobs = [
                pool.submit(one.run, wires[n % 2], n, deadline)
                for one in producers
                for n in range(PRODUCERS)
            ]
            jobs += [
                pool.submit(one.run, wires[n % 2], deadline) for one in consumers for n in range(2)
            ]
            jobs.append(pool.submit(churn, wires[0], f"{fresh_queue}.churn", deadline))
            for job in jobs:
                job.result(timeout=SECONDS + 60)
        ended = time.monotonic()
        quiet_since = time.monotonic()
        while time.monotonic() < quiet_since + 1.5:  # the last leases run out after a second
            if sum(one.round(wires[0], lose=False) for one in consumers[:2]):
                quiet_since = time.monotonic()
            time.sleep(0.02)

        for one in consumers[:2]:
            for lane, sent in producers[0].sent.items():
                missed = set(range(len(sent))) - one.seen[lane]
                assert not missed, f"{one.group} never saw {sorted(missed)[:5]} of {lane}"
        for one in consumers[2:]:
            for lane, sent in producers[1].sent.items():
                missed = set(range(len(sent))) - one.seen[lane]
                # Its consumers stop with the producers, so the end of the log may wait still.
                reached = max(one.seen[lane], default=0)
                early = [n for n in missed if n < reached and ended - sent[n] < 2]
                assert not early, f"{one.group} was never given {early} of {lane}"

        rules_used = own.execute(
            "SELECT sum(retention_messages), sum(completed_messages), sum(eviction_messages),"
            " sum(partitions_deleted) FROM queen_retention_history"
        ).fetchone()
        assert all(rules_used), rules_used
        written = log.text()
        assert "deadlock detected" not in written
