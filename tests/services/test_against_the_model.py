"""Random sequences of everything a client can do, each answer judged by a model.

Method: hypothesis draws pushes, pops, acks, lease ends, transactions, edits and deletes, sends them
to a real broker over HTTP and hands request and answer to `model.Model`, which knows what the
contract allows. A lease ends by moving its expiry in the database, so nothing here waits. At the
end of every sequence the whole log is popped once more, by a group that starts at the beginning
and by every group that took part: what they get must be the model's log and its rest.

The suite runs a fixed, repeatable selection and shows the sequence that failed as it was drawn.
QUEEN_TEST_EXAMPLES=2000 (and QUEEN_TEST_STEPS) looks further, at random, and shrinks what it finds.
"""

import contextlib
import itertools
import json
import os
import sys
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from tests.services.model import QUEUE_MODE, Model, meaning
from tests.wire_client import FOREIGN_PARTITION, WireClient, expect

PARTITIONS = [None, "", "p/1", "Zürich"]
GROUPS = [None, "billing", "audit/é"]
PAYLOADS = [
    "null",
    "{}",
    '{"b":1,"a":1,"a":2,"f":1.0,"g":1E2}',
    "9007199254740993",
    '"x\\u0000y"',
    '"\\ud800"',
    "[1,[2,[3]]]",
    '{"data":{"data":",\\"data\\":"}}',
]
COMPLETIONS = ["completed", None, "success", "acked", "ok"]
REFUSALS = ["failed", "failed", "retry", "dlq", "nack", "", "Completed"]
UNKNOWN_LEASE = "0190a7c0-0000-7000-8000-00000000dead"
EDITS: list[dict[str, Any]] = [
    {},
    {"retryLimit": 0, "deadLetterQueue": False, "dlqAfterMaxRetries": False},
    {"retryLimit": 0, "deadLetterQueue": True, "dlqAfterMaxRetries": False},
    {"retryLimit": 1, "deadLetterQueue": True, "dlqAfterMaxRetries": None},
    {"retryLimit": None, "deadLetterQueue": None, "dlqAfterMaxRetries": None, "leaseTime": 120},
    {"dedupWindowSeconds": 0},
    {"dedupWindowSeconds": None, "leaseTime": None},
    {"dedupWindowSeconds": 600, "priority": 7},
]
# An edit that says nothing about dead letters must not meet a queue that keeps none: what a budget
# was is then visible nowhere. So "replace" goes with those that name all three or none.
names = itertools.count()


@dataclass
class Delivery:
    """A pop that somebody may still ack, or ack again, or ack too late."""

    lease_id: str
    group: str | None
    handed: list[tuple[str, str]]  # (partition uid, transaction id), in order


class Broker(RuleBasedStateMachine):
    wire: WireClient
    db: psycopg.Connection

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        prefix = f"model-{os.getpid()}-{next(names)}"
        self.queues = [f"{prefix}-a", f"{prefix}-ü b"]
        self.deliveries: list[Delivery] = []
        self.fresh = itertools.count()

    @initialize(burst=st.integers(4, 20))
    def begin(self, burst: int) -> None:
        """Something to pop, for a group that came first and for those that come later."""
        self.pop_and_judge(self.queues[0], None, "billing", mode="new")
        items = [self.item(n % 2, PARTITIONS[n % 3], -1, str(n)) for n in range(burst)]
        self.push_and_judge(items)

    # --- pushing --------------------------------------------------------------------------------

    @rule(
        items=st.lists(
            st.tuples(
                st.integers(0, 1),
                st.sampled_from(PARTITIONS),
                st.one_of(st.none(), st.integers(0, 11), st.just(-1)),
                st.sampled_from(PAYLOADS),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def push(self, items: list[tuple[int, str | None, int | None, str]]) -> None:
        self.push_and_judge([self.item(*one) for one in items])

    def push_and_judge(self, asked: list[dict[str, Any]]) -> None:
        body = '{"items":' + listed(map(rendered, asked)) + "}"
        rows = expect(self.wire.post("/api/v1/push", body), 201).json()
        self.model.pushed(asked, rows)

    def item(self, queue: int, partition: str | None, txn: int | None, payload: str) -> dict:
        item: dict[str, Any] = {"queue": self.queues[queue], "payload": payload}
        if partition is not None:
            item["partition"] = partition
        if txn is not None:
            item["transactionId"] = f"new-{next(self.fresh)}" if txn < 0 else f'id "{txn}" & ü'
        return item

    # --- popping --------------------------------------------------------------------------------

    @rule(
        queue=st.integers(0, 1),
        partition=st.one_of(st.none(), st.none(), st.sampled_from(["Default", *PARTITIONS[1:]])),
        group=st.sampled_from(GROUPS),
        batch=st.sampled_from([1, 2, 3, 10, 200]),
        partitions=st.sampled_from([None, 1, 2, 0]),
        mode=st.sampled_from([None, "all", "all", "new", "new-only", "from_beginning"]),
        auto_ack=st.sampled_from([False, False, False, True]),
    )
    def pop(
        self,
        queue: int,
        partition: str | None,
        group: str | None,
        batch: int,
        partitions: int | None,
        mode: str | None,
        auto_ack: bool,
    ) -> None:
        self.pop_and_judge(
            self.queues[queue],
            partition,
            group,
            batch=batch,
            partitions=None if partition is not None else partitions,
            mode=mode,
            auto_ack=auto_ack,
        )

    def pop_and_judge(
        self,
        queue: str,
        partition: str | None,
        group: str | None,
        *,
        batch: int = 10_000,
        partitions: int | None = 0,
        mode: str | None = None,
        auto_ack: bool = True,
    ) -> dict[str, Any] | None:
        params: dict[str, Any] = {"batch": batch, "autoAck": auto_ack}
        if group is not None:
            params["consumerGroup"] = group
        if partitions is not None:
            params["partitions"] = partitions
        if mode is not None:
            params["subscriptionMode"] = mode
        answer = self.wire.get_pop(queue, partition, **params)
        popped = self.model.popped(
            queue=queue,
            partition=partition,
            group=group,
            batch=batch,
            partitions=1 if partitions is None else partitions,
            auto_ack=auto_ack,
            mode=mode,
            status=answer.status_code,
            body=answer.content,
        )
        if popped is not None and not auto_ack:
            handed = [(one["partitionId"], one["transactionId"]) for one in popped["messages"]]
            self.deliveries.append(Delivery(popped["leaseId"], group, handed))
        return popped

    # --- acking ---------------------------------------------------------------------------------

    @rule(which=st.integers(0, 11), single=st.booleans())
    def ack_a_whole_batch(self, which: int, single: bool) -> None:
        delivery = self.delivery(which)
        if single:
            # The last message of a partition completes everything below it.
            last = dict(delivery.handed)
            for uid, transaction_id in last.items():
                self.send_acks(delivery.group, [self.ack(uid, transaction_id, delivery.lease_id)])
            return
        acks = [self.ack(uid, txn, delivery.lease_id) for uid, txn in delivery.handed]
        self.send_acks(delivery.group, acks)

    @rule(
        which=st.integers(0, 11),
        chosen=st.lists(
            st.tuples(st.integers(0, 20), st.sampled_from(COMPLETIONS + REFUSALS)),
            min_size=1,
            max_size=5,
        ),
        lease=st.sampled_from(["own", "own", "own", "own", "unknown", "none"]),
        elsewhere=st.integers(0, 9),
        other=st.sampled_from(GROUPS),
    )
    def ack_some(
        self,
        which: int,
        chosen: list[tuple[int, str | None]],
        lease: str,
        elsewhere: int,
        other: str | None,
    ) -> None:
        """Some messages of a delivery in any order and with any status, and perhaps one that was
        not part of it, or all of it for a group that it was not handed to."""
        delivery = self.delivery(which)
        lease_id = {"own": delivery.lease_id, "unknown": UNKNOWN_LEASE, "none": None}[lease]
        acks = []
        for position, status in chosen:
            uid, transaction_id = delivery.handed[position % len(delivery.handed)]
            acks.append(self.ack(uid, transaction_id, lease_id, status))
        if elsewhere == 0:
            acks.append(self.ack(delivery.handed[0][0], "never pushed", lease_id))
        partition = self.model.partition(delivery.handed[0][0])
        if elsewhere in (1, 2) and partition is not None:
            newest = partition.log[-1].transaction_id
            acks.append(self.ack(delivery.handed[0][0], newest, lease_id, chosen[0][1]))
        group = other if elsewhere == 3 else delivery.group
        self.send_acks(group, self.unmistakable(acks))

    @rule(queue=st.integers(0, 1), group=st.sampled_from(GROUPS), times=st.integers(1, 5))
    def refuse_until_the_budget_is_spent(self, queue: int, group: str | None, times: int) -> None:
        """The first message of a partition fails again and again."""
        for _ in range(times):
            popped = self.pop_and_judge(
                self.queues[queue], None, group, batch=3, partitions=1, mode="all", auto_ack=False
            )
            if popped is None:
                return
            first = popped["messages"][0]
            refused = self.ack(
                first["partitionId"], first["transactionId"], popped["leaseId"], "failed"
            )
            self.send_acks(group, self.unmistakable([refused]))

    def delivery(self, which: int) -> Delivery:
        """One to ack: that of a live lease, any earlier one, or a new one."""
        live = self.model.live_leases()
        open_ones = [one for one in self.deliveries if one.lease_id in live]
        if which < 6 and open_ones:
            return open_ones[-1 - which % len(open_ones)]
        if which < 9 and self.deliveries:
            return self.deliveries[-1 - which % len(self.deliveries)]
        queue, group = self.queues[which // 2 % 2], GROUPS[which % len(GROUPS)]
        batch, partitions = 2 + which, which % 3
        for _ in range(2):
            popped = self.pop_and_judge(
                queue, None, group, batch=batch, partitions=partitions, mode="all", auto_ack=False
            )
            if popped is not None:
                break
            item = [self.item(which // 2 % 2, name, -1, "0") for name in PARTITIONS[:2] * 3]
            self.push_and_judge(item)
        return self.deliveries[-1]

    @staticmethod
    def ack(
        uid: str, transaction_id: str, lease_id: str | None, status: str | None = "completed"
    ) -> dict[str, Any]:
        ack: dict[str, Any] = {"transactionId": transaction_id, "partitionId": uid}
        if status is not None:
            ack["status"] = status
        if lease_id is not None:
            ack["leaseId"] = lease_id
        if meaning(status) != "completed":
            ack["error"] = f"could not: {status!r}"
        return ack

    def unmistakable(self, acks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Leave out what the contract does not decide: an id named more often than it stands in
        the log, and a lease-less ack of an id that stands there twice."""
        kept: list[dict[str, Any]] = []
        for ack in acks:
            partition = self.model.partition(ack["partitionId"])
            copies = len(partition.copies(ack["transactionId"])) if partition else 1
            before = sum(
                one["partitionId"] == ack["partitionId"]
                and one["transactionId"] == ack["transactionId"]
                for one in kept
            )
            if before < max(copies, 1) and (copies <= 1 or ("leaseId" in ack and before == 0)):
                kept.append(ack)
        return kept

    def send_acks(self, group: str | None, acks: list[dict[str, Any]]) -> None:
        if not acks:
            return
        top = {} if group is None else {"consumerGroup": group}
        if len(acks) == 1:
            answer = self.wire.post("/api/v1/ack", acks[0] | top)
        else:
            answer = self.wire.post("/api/v1/ack/batch", {"acknowledgments": acks} | top)
        self.model.acked(group, acks, expect(answer, 200).json())

    # --- leases ---------------------------------------------------------------------------------

    @rule(
        which=st.integers(0, 11),
        how=st.sampled_from(["runs out", "runs out", "runs out in one partition", "is extended"]),
        body=st.sampled_from([None, {}, {"seconds": 1}, {"seconds": 600}]),
    )
    def lease(self, which: int, how: str, body: dict[str, Any] | None) -> None:
        lease_id = self.delivery(which).lease_id
        if how == "is extended":
            self.model.extended(lease_id, self.wire.extend(lease_id, body))
            return
        held = self.model.live_leases().get(lease_id, [])
        for uid, group in held if how == "runs out" else held[:1]:
            self.expire(lease_id, uid, group)

    def expire(self, lease_id: str, uid: str, group: str) -> None:
        moved = self.db.execute(
            "UPDATE queen_cursor SET lease_expires_at = clock_timestamp() - interval '1 second'"
            " WHERE lease_id = %s AND consumer_group = %s"
            " AND partition_id = (SELECT id FROM queen_partition WHERE uid = %s)",
            [lease_id, group, uid],
        )
        assert moved.rowcount == 1, f"no cursor holds {lease_id} for {group!r}"
        # What moves a cursor behind the brokers' backs moves the wake version too. Without it a
        # broker believes for a second that the lease goes on, and its look at what was written
        # lately finds the partition only while it was: a slow machine's pop would be empty.
        self.db.execute(
            "INSERT INTO queen_wake AS wake (queue_id, consumer_group, version)"
            " SELECT queue_id, %s, 1 FROM queen_partition WHERE uid = %s"
            " ON CONFLICT (queue_id, consumer_group) DO UPDATE SET version = wake.version + 1",
            [group, uid],
        )
        self.model.expired(lease_id, uid, group)

    # --- transactions ---------------------------------------------------------------------------

    @rule(
        pushes=st.lists(
            st.tuples(
                st.integers(0, 1),
                st.sampled_from(PARTITIONS),
                st.one_of(st.none(), st.just(-1), st.just(-1), st.integers(0, 11)),
                st.sampled_from(PAYLOADS),
            ),
            max_size=3,
        ),
        flat=st.booleans(),
        acks=st.lists(st.integers(0, 20), max_size=3),
        which=st.integers(0, 11),
        refuse=st.sampled_from([None, None, None, "failed", "retry", "dlq"]),
        lease=st.sampled_from(["required", "required", "own", "none", "unknown"]),
    )
    def transaction(
        self,
        pushes: list[tuple[int, str | None, int | None, str]],
        flat: bool,
        acks: list[int],
        which: int,
        refuse: str | None,
        lease: str,
    ) -> None:
        items = [self.item(*one) for one in pushes]
        # Whether a bundle may repeat an id where dedup is off, the contract does not say.
        items = [
            one
            for one in items
            if "transactionId" not in one
            or one["transactionId"].startswith("new-")
            or self.model.queues.get(one["queue"]) is None
            or self.model.queues[one["queue"]].dedups()
        ]
        operations: list[dict[str, Any]] = []
        if flat:
            operations += [{"type": "push", **one} for one in items]
        elif items:
            operations.append({"type": "push", "items": items})
        required: list[str] = []
        if acks:
            delivery = self.delivery(which)
            chosen = [delivery.handed[n % len(delivery.handed)] for n in acks]
            ops, required = self.ack_operations(delivery, chosen, refuse, lease)
            operations += ops
        if not operations:
            return
        written = listed(map(rendered_operation, operations))
        body = '{"operations":' + written + ',"requiredLeases":' + json.dumps(required) + "}"
        answer = expect(self.wire.post("/api/v1/transaction", body), 200).json()
        self.model.transacted(operations, required, answer)

    def ack_operations(
        self,
        delivery: Delivery,
        chosen: list[tuple[str, str]],
        refuse: str | None,
        lease: str,
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Acks of messages that are still open: a late one in a bundle is not decided."""
        group = delivery.group or QUEUE_MODE
        acks = []
        for uid, transaction_id in chosen if refuse is None else chosen[:1]:
            partition = self.model.partition(uid)
            if partition is None:
                continue
            copies = partition.copies(transaction_id)
            if len(copies) == 1 and copies[0] > partition.cursors[group].committed:
                acks.append(self.ack(uid, transaction_id, None, refuse or "completed"))
        acks = self.unmistakable(acks)
        for ack in acks:
            ack["type"] = "ack"
            if delivery.group is not None:
                ack["consumerGroup"] = delivery.group
            if lease == "own":
                ack["leaseId"] = delivery.lease_id
            if lease == "unknown":
                ack["leaseId"] = UNKNOWN_LEASE
        return acks, [delivery.lease_id] if lease == "required" else []

    # --- queues ---------------------------------------------------------------------------------

    @rule(
        queue=st.integers(0, 1),
        action=st.sampled_from(["look", "configure", "configure", "replay", "delete"]),
        options=st.sampled_from(EDITS),
        mode=st.sampled_from([None, "merge", "replace"]),
    )
    def administer(
        self, queue: int, action: str, options: dict[str, Any], mode: str | None
    ) -> None:
        name = self.queues[queue]
        if action == "configure":
            answer = self.wire.configure(name, mode, **options)
            self.model.configured(name, options, mode, answer)
        elif action == "delete":
            self.model.deleted(name, self.wire.delete(name))
        elif action == "replay":
            for row in self.wire.dead_letters(name, limit=1) if name in self.model.queues else []:
                replay = expect(self.wire.replay(row["id"]), 200).json()
                self.model.replayed(name, row, replay)
        elif name in self.model.queues:
            for group in sorted(self.model.queues[name].groups - {QUEUE_MODE}):
                self.model.depth_told(name, group, self.wire.depth(name, group=group))

    # --- the end --------------------------------------------------------------------------------

    def teardown(self) -> None:
        """The log as a fresh group reads it, the rest that every known group is owed, the dead
        letters."""
        if sys.exc_info()[0] is not None:
            return  # a rule has failed already: its error is the one to read
        for lease_id, held in self.model.live_leases().items():
            for uid, group in held:
                self.expire(lease_id, uid, group)
        for name, queue in list(self.model.queues.items()):
            listing = self.wire.get("/api/v1/dlq", queue=name, limit=1000)
            self.model.dead_letters_listed(name, expect(listing, 200).json())
            for group in [*sorted(queue.groups), "at the end"]:
                asked = None if group == QUEUE_MODE else group
                while self.pop_and_judge(name, None, asked, mode="all") is not None:
                    pass
                for partition in queue.partitions.values():
                    assert not partition.claimable(group), f"{group!r} missed {partition}"
            self.model.deleted(name, self.wire.delete(name))


class Tenants(Broker):
    """Two tenants with the same names, each judged by a model that knows nothing of the other.

    The sequence changes over between them at random, and now and then one of them holds what
    was handed to the other.
    """

    wires: list[WireClient]

    def __init__(self) -> None:
        super().__init__()
        self.sides: list[dict[str, Any]] = []
        for wire in self.wires:
            state = {"model": Model(), "deliveries": [], "fresh": itertools.count(), "wire": wire}
            self.sides.append(state)
        self.take(0)

    def take(self, side: int) -> None:
        self.side = side
        for name, value in self.sides[side].items():
            setattr(self, name, value)

    @initialize(burst=st.integers(4, 20))
    def begin(self, burst: int) -> None:
        for side in (0, 1):
            self.take(side)
            super().begin(burst)

    @rule()
    def change_over(self) -> None:
        self.take(1 - self.side)

    @rule(which=st.integers(0, 99))
    def hold_what_was_handed_to_the_other(self, which: int) -> None:
        theirs: list[Delivery] = self.sides[1 - self.side]["deliveries"]
        if not theirs:
            return
        delivery = theirs[which % len(theirs)]
        acks = [
            {"partitionId": uid, "transactionId": txn, "leaseId": delivery.lease_id}
            for uid, txn in delivery.handed
        ]
        body = {"acknowledgments": acks, "consumerGroup": delivery.group}
        for row in expect(self.wire.post("/api/v1/ack/batch", body), 200).json():
            assert (row["success"], row["error"]) == (False, FOREIGN_PARTITION)
        assert self.wire.extend(delivery.lease_id)["renewed"] == 0

    def teardown(self) -> None:
        for side in (0, 1):
            self.take(side)
            super().teardown()


def rendered(item: dict[str, Any]) -> str:
    """An item as JSON text with its payload as it is, byte for byte."""
    parts = [f"{json.dumps(key)}:{json.dumps(item[key])}" for key in item if key != "payload"]
    return "{" + ",".join([*parts, f'"payload":{item["payload"]}']) + "}"


def rendered_operation(operation: dict[str, Any]) -> str:
    if operation["type"] == "ack":
        return json.dumps(operation)
    if "items" in operation:
        return '{"type":"push","items":' + listed(map(rendered, operation["items"])) + "}"
    return rendered(operation)


def listed(texts: Iterable[str]) -> str:
    return "[" + ",".join(texts) + "]"


def profile(otherwise: int = 60) -> settings:
    examples = os.environ.get("QUEEN_TEST_EXAMPLES")
    return settings(
        max_examples=int(examples or otherwise),
        stateful_step_count=int(os.environ.get("QUEEN_TEST_STEPS", "40")),
        derandomize=examples is None,
        phases=[Phase.generate, *([Phase.shrink] if examples else [])],
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def test_every_answer_and_the_whole_log_are_what_the_model_says(
    client: httpx.Client, db: psycopg.Connection
):
    Broker.wire = WireClient(client)
    Broker.db = db
    run_state_machine_as_test(Broker, settings=profile())


def test_two_tenants_with_the_same_names_are_two_logs(start_broker, db: psycopg.Connection):
    broker = start_broker(QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true")
    with contextlib.ExitStack() as clients:
        Tenants.wires = [
            clients.enter_context(WireClient.at(broker.url, {"x-queen-tenant": str(uuid.uuid4())}))
            for _ in range(2)
        ]
        Tenants.db = db
        run_state_machine_as_test(Tenants, settings=profile(15))
