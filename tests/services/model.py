"""The broker in a page of dictionaries: what every answer of the message plane has to be.

A witness, not a simulator: the broker may choose which partitions a pop claims and what ids it
mints, so each method here takes the request *and* the answer, checks that the contract allows this
answer in this state, and moves the state the way the contract says. Where the contract leaves a
choice open, the model keeps every possibility and lets a later answer decide.

An answer that is not allowed is an AssertionError that says what was expected.

Imports nothing of ours. Used by test_against_the_model.py.
"""

import copy
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

QUEUE_MODE = "__QUEUE_MODE__"
COMPLETED = frozenset([None, "completed", "success", "acked", "ok"])
OPTION_DEFAULTS: dict[str, Any] = {
    "leaseTime": 300,
    "retryLimit": 3,
    "deadLetterQueue": True,
    "dlqAfterMaxRetries": True,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "minPopWaitTime": 0,
    "retentionEnabled": False,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "maxWaitTimeSeconds": 0,
    "encryptionEnabled": False,
    "dedupWindowSeconds": 3600,
    "priority": 0,
    "ttl": 3600,
    "maxSize": 0,
    "retryDelay": 1000,
}
IMPLICIT_LEASE_TIME_S = 60

INVALID_LEASE = "invalid or expired lease"
ALREADY_COMMITTED = "already committed: the cursor moved past this message before this ack"
UNRESOLVABLE = (
    "unresolvable: transaction not in the ack window (hash purged or never pushed);"
    " if leased, the message redelivers"
)
CONSUMER_NOT_FOUND = "consumer not found"


def meaning(status: str | None) -> str:
    """What an ack status is treated as."""
    if status in COMPLETED:
        return "completed"
    return status if status in ("retry", "dlq") else "failed"


@dataclass
class Message:
    transaction_id: str
    payload: str
    message_id: str
    created_at: str | None = None


@dataclass
class Lease:
    id: str
    end: int
    live: bool = True


@dataclass
class Cursor:
    committed: int = -1
    popped: bool = False
    lease: Lease | None = None
    # How often the batch that starts behind `committed` may have been delivered.
    deliveries: set[int] = field(default_factory=lambda: {0})
    # What may have been charged: (offset, count).
    charges: set[tuple[int, int]] = field(default_factory=lambda: {(-1, 0)})
    # Leases that ended because their last message was completed, and the one of them that is
    # still the last thing that happened here.
    finished_leases: set[str] = field(default_factory=set)
    last_finished: str | None = None
    # Leases that ended in a way the contract does not name: a lease-less ack moved past them, or
    # their last message was given up.
    overtaken_leases: set[str] = field(default_factory=set)

    def held(self) -> bool:
        return self.lease is not None and self.lease.live

    def batch_completed(self) -> None:
        self.deliveries = {0}
        self.charges = {(-1, 0)}


@dataclass
class Partition:
    name: str
    uid: str | None = None
    log: list[Message] = field(default_factory=list)
    cursors: dict[str, Cursor] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return len(self.log) - 1

    def copies(self, transaction_id: str) -> list[int]:
        return [n for n, one in enumerate(self.log) if one.transaction_id == transaction_id]

    def claimable(self, group: str) -> bool:
        cursor = self.cursors.get(group, Cursor())
        return not cursor.held() and cursor.committed < self.last


@dataclass
class Queue:
    name: str
    options: dict[str, Any]
    partitions: dict[str, Partition] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)

    def dedups(self) -> bool:
        return self.options["dedupWindowSeconds"] > 0

    def keeps_dead_letters(self) -> bool:
        return self.options["deadLetterQueue"] or self.options["dlqAfterMaxRetries"]


@dataclass
class DeadLetter:
    partition: str
    group: str
    transaction_id: str
    payload: str
    error: str | None


@dataclass
class Verdict:
    """What one row of an ack answer may say; None is "not specified"."""

    success: bool | None
    errors: tuple[str, ...] | None = None
    noop: bool | None = False
    dlq: bool | None = False
    released: bool | None = None


@dataclass(frozen=True)
class Mention:
    index: int
    transaction_id: str
    status: str | None
    error: str | None = None


class Model:
    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.dead_letters: dict[str, list[DeadLetter]] = defaultdict(list)
        self.message_ids: set[str] = set()

    # --- push -----------------------------------------------------------------------------------

    def pushed(self, items: Sequence[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
        assert len(rows) == len(items), f"{len(items)} items, {len(rows)} rows"
        for n, (item, row) in enumerate(zip(items, rows, strict=True)):
            assert row["index"] == n, row
            assert row["queueName"] == item["queue"], row
            originals = self._originals(item)
            expected = "duplicate" if originals else "queued"
            assert row["status"] == expected, f"item {n} {item}: expected {expected}, got {row}"
            transaction_id = item.get("transactionId") or row["message_id"]
            assert row["transaction_id"] == transaction_id, row
            if originals:
                assert row["message_id"] in originals, f"{row}: not the original's id {originals}"
            else:
                self._append(item, transaction_id, row["message_id"])

    def _originals(self, item: dict[str, Any]) -> list[str]:
        """The message ids of which this item is a duplicate; none when it is to be stored."""
        queue = self.queue_born(item["queue"])
        partition = self._partition_born(queue, item)
        if not queue.dedups() or item.get("transactionId") is None:
            return []
        return [partition.log[n].message_id for n in partition.copies(item["transactionId"])]

    def _append(self, item: dict[str, Any], transaction_id: str, message_id: str) -> None:
        assert UUID(message_id).version == 7, f"{message_id} is not a UUIDv7"
        assert message_id not in self.message_ids, f"{message_id} was minted before"
        self.message_ids.add(message_id)
        partition = self._partition_born(self.queues[item["queue"]], item)
        partition.log.append(Message(transaction_id, item.get("payload", "{}"), message_id))

    def queue_born(self, name: str) -> Queue:
        if name not in self.queues:
            self.queues[name] = Queue(name, {**OPTION_DEFAULTS, "leaseTime": IMPLICIT_LEASE_TIME_S})
        return self.queues[name]

    @staticmethod
    def _partition_born(queue: Queue, item: dict[str, Any]) -> Partition:
        given = item.get("partition")
        name = "Default" if given is None else given
        return queue.partitions.setdefault(name, Partition(name))

    # --- pop ------------------------------------------------------------------------------------

    def popped(
        self,
        *,
        queue: str,
        partition: str | None,
        group: str | None,
        batch: int,
        partitions: int,
        auto_ack: bool,
        mode: str | None,
        status: int,
        body: bytes,
    ) -> dict[str, Any] | None:
        """Check a pop's answer and take the lease it gave; None for an empty one."""
        born = self.queue_born(queue)
        name = group or QUEUE_MODE
        self._subscribe(born, name, mode)
        scope = [
            one for one in born.partitions.values() if partition is None or one.name == partition
        ]
        ready = [one.name for one in scope if one.claimable(name)]
        if status == 204:
            assert body == b""
            assert not ready, f"204, but group {name!r} has work in {ready}"
            return None
        assert status == 200, body
        answer = json.loads(body)
        spans: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for message in answer["messages"]:
            spans[message["partition"]].append(message)
        assert spans, f"a 200 without messages: {answer}"
        assert sum(map(len, spans.values())) <= batch
        assert partitions <= 0 or len(spans) <= partitions, f"{len(spans)} partitions claimed"
        assert set(spans) <= set(ready), f"claimed {set(spans)}, but only {ready} are ready"
        self._check_pop_head(answer, queue, name, spans, auto_ack=auto_ack)
        for partition_name, messages in spans.items():
            self._take_span(born.partitions[partition_name], name, messages, body, answer, auto_ack)
        return answer

    @staticmethod
    def _subscribe(queue: Queue, group: str, mode: str | None) -> None:
        if group in queue.groups:
            return
        queue.groups.add(group)
        if group != QUEUE_MODE and mode in (None, "", "new", "new-only"):
            for partition in queue.partitions.values():
                partition.cursors[group] = Cursor(committed=partition.last)

    @staticmethod
    def _check_pop_head(
        answer: dict[str, Any],
        queue: str,
        group: str,
        spans: dict[str, list[dict[str, Any]]],
        *,
        auto_ack: bool,
    ) -> None:
        first = answer["messages"][0]
        assert answer["success"] is True
        assert answer["queue"] == queue
        assert answer["partition"] == first["partition"]
        assert answer["partitionId"] == first["partitionId"]
        assert answer["consumerGroup"] == group
        assert answer["partitionsClaimed"] == len(spans)
        assert (answer["leaseId"] == "") is auto_ack, answer["leaseId"]
        for message in answer["messages"]:
            assert message["leaseId"] == answer["leaseId"], message
            assert message["consumerGroup"] == group, message

    def _take_span(
        self,
        partition: Partition,
        group: str,
        messages: list[dict[str, Any]],
        body: bytes,
        answer: dict[str, Any],
        auto_ack: bool,
    ) -> None:
        cursor = partition.cursors.setdefault(group, Cursor())
        start, end = cursor.committed + 1, cursor.committed + len(messages)
        expected = partition.log[start : end + 1]
        got = [(one["transactionId"], one["id"]) for one in messages]
        want = [(one.transaction_id, one.message_id) for one in expected]
        assert got == want, f"{partition.name!r} for {group!r} from {start}: {got} is not {want}"
        for message, stored in zip(messages, expected, strict=True):
            self._check_message(partition, message, stored, body)
        self._check_order(partition)

        attempts = {one["deliveryAttempt"] for one in messages}
        allowed = {1} if auto_ack else {count + 1 for count in cursor.deliveries}
        assert len(attempts) == 1 and attempts <= allowed, (
            f"{partition.name!r} for {group!r} from {start}: deliveryAttempt {attempts},"
            f" expected one of {allowed}"
        )
        cursor.popped = True
        cursor.last_finished = None
        if auto_ack:
            cursor.committed = end
            cursor.lease = None
            cursor.batch_completed()
        else:
            cursor.lease = Lease(answer["leaseId"], end)
            cursor.deliveries = attempts

    def _check_message(
        self, partition: Partition, message: dict[str, Any], stored: Message, body: bytes
    ) -> None:
        if partition.uid is None:
            partition.uid = message["partitionId"]
        assert message["partitionId"] == partition.uid
        assert message["traceId"] is None and message["producerSub"] is None, message
        verbatim = b'"data":' + stored.payload.encode() + b","
        assert verbatim in body, f"the payload {stored.payload} of {message['id']} was rewritten"
        if stored.created_at is None:
            stored.created_at = message["createdAt"]
        assert message["createdAt"] == stored.created_at, "createdAt changed between deliveries"

    @staticmethod
    def _check_order(partition: Partition) -> None:
        """(createdAt in milliseconds, id) never decreases along a partition."""
        seen = [(one.created_at[:23], one.message_id) for one in partition.log if one.created_at]
        assert seen == sorted(seen), f"{partition.name!r}: stream clients would reorder {seen}"

    # --- leases ---------------------------------------------------------------------------------

    def expired(self, lease_id: str, partition_uid: str, group: str) -> None:
        cursor = self._cursor(partition_uid, group)
        if cursor is not None and cursor.lease is not None and cursor.lease.id == lease_id:
            cursor.lease.live = False

    def extended(self, lease_id: str, answer: dict[str, Any]) -> None:
        held = sum(
            cursor.held() and cursor.lease is not None and cursor.lease.id == lease_id
            for _, partition in self._partitions()
            for cursor in partition.cursors.values()
        )
        assert answer["leaseId"] == lease_id
        assert answer["renewed"] == held, f"expected {held} renewed: {answer}"
        assert answer["success"] is (held > 0), answer
        times = {answer["newExpiresAt"], answer["expiresAt"], answer["lease_expires_at"]}
        assert len(times) == 1 and (None in times) is (held == 0), answer

    def live_leases(self) -> dict[str, list[tuple[str, str]]]:
        """Every live lease: its id, and the (partition uid, group) pairs it holds."""
        leases: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for _, partition in self._partitions():
            for group, cursor in partition.cursors.items():
                if cursor.held() and cursor.lease is not None and partition.uid is not None:
                    leases[cursor.lease.id].append((partition.uid, group))
        return leases

    # --- ack ------------------------------------------------------------------------------------

    def acked(
        self, group: str | None, acks: Sequence[dict[str, Any]], rows: list[dict[str, Any]]
    ) -> None:
        verdicts = self._carry_out(group or QUEUE_MODE, acks, rows)
        assert len(rows) == len(acks), f"{len(acks)} acks, {len(rows)} rows"
        for n, (ack, row) in enumerate(zip(acks, rows, strict=True)):
            assert row["index"] == n and row["transactionId"] == ack["transactionId"], row
            self._compare(ack, verdicts[n], row)

    @staticmethod
    def _compare(ack: dict[str, Any], verdict: Verdict, row: dict[str, Any]) -> None:
        told = f"ack {ack}: expected {verdict}, got {row}"
        assert verdict.success in (None, row["success"]), told
        assert (row["error"] is None) is row["success"], told
        if verdict.errors is not None and not row["success"]:
            assert row["error"] in verdict.errors, told
        assert verdict.noop in (None, row["noop"]), told
        assert verdict.dlq in (None, row["dlq"]), told
        assert verdict.released in (None, row["leaseReleased"]), told

    def _carry_out(
        self, group: str, acks: Sequence[dict[str, Any]], rows: list[dict[str, Any]]
    ) -> dict[int, Verdict]:
        """Judge every ack of a call and move the cursors; rows settle what is left open."""
        calls: dict[tuple[str, str | None], list[Mention]] = defaultdict(list)
        for n, ack in enumerate(acks):
            mention = Mention(n, ack["transactionId"], ack.get("status"), ack.get("error"))
            calls[ack["partitionId"], ack.get("leaseId")].append(mention)
        verdicts: dict[int, Verdict] = {}
        for (uid, lease_id), mentions in calls.items():
            verdicts |= self._carry_out_one(group, uid, lease_id, mentions, rows)
        return verdicts

    def _carry_out_one(
        self,
        group: str,
        uid: str,
        lease_id: str | None,
        mentions: list[Mention],
        rows: list[dict[str, Any]],
    ) -> dict[int, Verdict]:
        found = self._find(uid)
        if found is None:
            return {one.index: Verdict(False) for one in mentions}
        queue, partition = found
        cursor = partition.cursors.get(group)
        if cursor is not None and not cursor.popped and lease_id is None:
            # Subscribed, but never handed anything here: "never popped that partition" may mean
            # the one or the other. The answer decides.
            cursor.popped = rows[mentions[0].index].get("error") != CONSUMER_NOT_FOUND
        if cursor is None or not cursor.popped:
            errors = (CONSUMER_NOT_FOUND,) if lease_id is None else None
            return {one.index: Verdict(False, errors) for one in mentions}
        if lease_id is not None and not (
            cursor.held() and cursor.lease is not None and cursor.lease.id == lease_id
        ):
            return {
                one.index: self._dead_lease(partition, cursor, lease_id, one) for one in mentions
            }
        end = cursor.lease.end if lease_id is not None and cursor.lease else partition.last
        verdicts, offsets = self._resolve(partition, cursor, end, mentions)
        if offsets:
            self._move(queue, partition, group, cursor, lease_id, offsets, verdicts, rows)
        return verdicts

    @staticmethod
    def _dead_lease(
        partition: Partition, cursor: Cursor, lease_id: str, mention: Mention
    ) -> Verdict:
        copies = partition.copies(mention.transaction_id)
        done = bool(copies) and copies[0] <= cursor.committed
        if lease_id in cursor.finished_leases and done:
            if meaning(mention.status) == "completed":
                # Completed, and perhaps followed by another lease: then both readings hold.
                success = True if lease_id == cursor.last_finished else None
                return Verdict(success, noop=None, released=None)
            return Verdict(False, (INVALID_LEASE, ALREADY_COMMITTED))
        if lease_id in cursor.finished_leases:
            return Verdict(False, (INVALID_LEASE, UNRESOLVABLE))
        if lease_id in cursor.overtaken_leases:
            return Verdict(None, noop=None, released=None)
        return Verdict(False, (INVALID_LEASE,))

    @staticmethod
    def _resolve(
        partition: Partition, cursor: Cursor, end: int, mentions: list[Mention]
    ) -> tuple[dict[int, Verdict], dict[int, Mention]]:
        """Find the offset that each mention means; what means none gets its verdict here."""
        verdicts: dict[int, Verdict] = {}
        offsets: dict[int, Mention] = {}
        nth: Counter[str] = Counter()
        for mention in mentions:
            copies = partition.copies(mention.transaction_id)
            is_open = [offset for offset in copies if cursor.committed < offset <= end]
            k = nth[mention.transaction_id]
            nth[mention.transaction_id] += 1
            if k < len(is_open):
                offsets[is_open[k]] = mention
            elif copies and copies[0] <= cursor.committed:
                if meaning(mention.status) == "completed":
                    verdicts[mention.index] = Verdict(True, noop=True)
                else:
                    verdicts[mention.index] = Verdict(False, (ALREADY_COMMITTED,))
            else:
                verdicts[mention.index] = Verdict(False, (UNRESOLVABLE,))
        return verdicts, offsets

    def _move(
        self,
        queue: Queue,
        partition: Partition,
        group: str,
        cursor: Cursor,
        lease_id: str | None,
        offsets: dict[int, Mention],
        verdicts: dict[int, Verdict],
        rows: list[dict[str, Any]],
    ) -> None:
        negatives = [n for n, one in offsets.items() if meaning(one.status) != "completed"]
        winner = min(negatives, default=None)
        completed = [
            n
            for n, one in offsets.items()
            if meaning(one.status) == "completed" and (winner is None or n < winner)
        ]
        prefix = max(completed, default=cursor.committed)
        for mention in offsets.values():
            verdicts[mention.index] = Verdict(True)
        if winner is None:
            self._complete(cursor, prefix, lease_id)
            released = cursor.lease is None
            for mention in offsets.values():
                verdicts[mention.index].released = False if not released else None
            if lease_id is not None and released:
                verdicts[offsets[prefix].index].released = True
            return

        mention = offsets[winner]
        verdict = verdicts[mention.index]
        verdict.released = True if cursor.held() else None
        # A nack ends the lease in any case, also one that nobody named.
        lease, cursor.lease = cursor.lease, None
        action = meaning(mention.status)
        if action == "failed":
            action = self._charge(queue, cursor, winner, rows[mention.index])
        given_up = action in ("dlq", "drop")
        if lease is not None and (lease_id is None or (given_up and winner == lease.end)):
            cursor.overtaken_leases.add(lease.id)
        if action in ("failed", "retry"):
            cursor.committed = prefix
            if lease_id is None:
                cursor.deliveries = cursor.deliveries | {0}
            return
        if action == "dlq":
            verdict.dlq = True
            self._bury(queue, partition, group, winner, mention.error)
        # Past a dead letter the contract does not say whether the rest counts as seen.
        cursor.committed = winner
        cursor.deliveries = cursor.deliveries | {0}
        cursor.charges = cursor.charges | {(-1, 0)}

    @staticmethod
    def _complete(cursor: Cursor, prefix: int, lease_id: str | None) -> None:
        cursor.committed = prefix
        lease = cursor.lease
        if lease is None:
            cursor.deliveries = cursor.deliveries | {0}
            return
        if prefix >= lease.end:
            if lease_id is None or not lease.live:
                cursor.overtaken_leases.add(lease.id)
            else:
                cursor.finished_leases.add(lease.id)
                cursor.last_finished = lease.id
            cursor.lease = None
            if lease.live:
                cursor.batch_completed()
            else:
                cursor.deliveries = cursor.deliveries | {0}
                cursor.charges = cursor.charges | {(-1, 0)}
        elif lease_id is None:
            cursor.deliveries = cursor.deliveries | {0}

    @staticmethod
    def _charge(queue: Queue, cursor: Cursor, offset: int, row: dict[str, Any]) -> str:
        """Charge the budget of an offset: redeliver (failed), dead-letter (dlq) or drop."""
        counts = {count + 1 if at == offset else 1 for at, count in cursor.charges}
        limit = queue.options["retryLimit"]
        exhausted = {count > limit for count in counts}
        if exhausted == {True, False}:
            # Only a queue with dead letters can be asked which it was.
            assert queue.keeps_dead_letters()
            exhausted = {bool(row["dlq"])}
        if exhausted == {True}:
            return "dlq" if queue.keeps_dead_letters() else "drop"
        cursor.charges = {(offset, count) for count in counts if count <= limit}
        return "failed"

    def _bury(
        self, queue: Queue, partition: Partition, group: str, offset: int, error: str | None
    ) -> None:
        message = partition.log[offset]
        self.dead_letters[queue.name].append(
            DeadLetter(partition.name, group, message.transaction_id, message.payload, error)
        )

    # --- transaction ----------------------------------------------------------------------------

    def transacted(
        self, operations: Sequence[dict[str, Any]], required: Sequence[str], answer: dict[str, Any]
    ) -> None:
        mentions = bool(required) or any(one.get("leaseId") for one in operations)
        trial = copy.deepcopy(self)
        reasons: set[str] = set()
        rows: list[dict[str, Any]] = answer["results"]
        index = 0
        acks: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        pushed_here: dict[tuple[str, str, str], str] = {}
        assert isinstance(answer["success"], bool) and UUID(answer["transactionId"]), answer
        for operation in operations:
            if operation["type"] == "ack":
                acks[operation.get("consumerGroup") or QUEUE_MODE].append((index, operation))
                index += 1
                continue
            for item in operation.get("items") or [operation]:
                row = rows[index] if answer["success"] else None
                if not trial._push_in_transaction(item, row, index, pushed_here):
                    reasons.add("duplicate")
                index += 1
        for group, listed in acks.items():
            if not trial._acks_in_transaction(group, listed, required, mentions, rows):
                reasons.add("ack_rejected")
        if reasons:
            assert answer["success"] is False, f"expected a rollback for {reasons}: {answer}"
            assert answer["results"] == [] and answer["reason"] in reasons, answer
            assert answer["error"], answer
            return
        assert answer["success"] is True, f"expected a commit, got {answer}"
        assert [row["index"] for row in rows] == list(range(index)), rows
        self.__dict__ = trial.__dict__

    def _push_in_transaction(
        self,
        item: dict[str, Any],
        row: dict[str, Any] | None,
        index: int,
        pushed_here: dict[tuple[str, str, str], str],
    ) -> bool:
        """Store one item of a bundle; False when it must roll the bundle back."""
        given = item.get("transactionId")
        partition = "Default" if item.get("partition") is None else item["partition"]
        address = (item["queue"], partition, given or "")
        if given is not None and address in pushed_here:
            if row is not None:
                assert row["duplicate"] is True and row["success"] is True, row
                assert row["messageId"] == pushed_here[address], row
            return True
        if self._originals(item):
            return False
        if row is None:
            pushed_here[address] = ""
            return True
        told = f"transaction row {index}: {row}"
        assert row["type"] == "push" and row["success"] is True, told
        assert row["queueName"] == item["queue"], told
        assert row["transactionId"] == (given or row["messageId"]), told
        assert not row.get("duplicate"), told
        self._append(item, row["transactionId"], row["messageId"])
        pushed_here[address] = row["messageId"]
        return True

    def _acks_in_transaction(
        self,
        group: str,
        listed: list[tuple[int, dict[str, Any]]],
        required: Sequence[str],
        mentions: bool,
        rows: list[dict[str, Any]],
    ) -> bool:
        acks = []
        for _, operation in listed:
            lease_id = operation.get("leaseId")
            if lease_id is None:
                cursor = self._cursor(operation["partitionId"], group)
                lease = cursor.lease if cursor is not None and cursor.held() else None
                if lease is not None and lease.id in required:
                    lease_id = lease.id
                elif mentions:
                    return False
            acks.append({**operation, "leaseId": lease_id})
        placed = [rows[index] if rows else {"dlq": False} for index, _ in listed]
        verdicts = self._carry_out(group, acks, placed)
        if not all(verdict.success for verdict in verdicts.values()):
            return False
        for n, row in enumerate(placed if rows else []):
            told = f"ack {acks[n]}: expected {verdicts[n]}, got {row}"
            assert row["type"] == "ack" and row["success"] is True, told
            assert row["transactionId"] == acks[n]["transactionId"] and row["error"] is None, told
            assert verdicts[n].dlq in (None, row["dlq"]), told
        return True

    # --- queues, groups, dead letters -----------------------------------------------------------

    def configured(
        self, queue: str, options: dict[str, Any], mode: str | None, answer: dict[str, Any]
    ) -> None:
        existed = queue in self.queues
        target = self.queue_born(queue)
        kept = {} if mode == "replace" or not existed else target.options
        edited = {key: OPTION_DEFAULTS[key] if v is None else v for key, v in options.items()}
        target.options = {**OPTION_DEFAULTS, **kept, **edited}
        assert answer["configured"] is True and answer["queue"] == queue, answer
        assert answer["storage"] == "segments" and answer["partitionId"] is None, answer
        assert UUID(answer["queueId"])
        effective = {key: answer["options"].get(key) for key in OPTION_DEFAULTS}
        assert effective == target.options, f"{effective} is not {target.options}"

    def deleted(self, queue: str, answer: dict[str, Any]) -> None:
        existed = self.queues.pop(queue, None) is not None
        self.dead_letters.pop(queue, None)
        assert answer["queue"] == queue, answer
        assert answer["existed"] is existed and answer["deleted"] is existed, answer

    def dead_letters_listed(self, queue: str, answer: dict[str, Any]) -> None:
        listed = [
            (one["partition"], one["consumerGroup"], one["transactionId"])
            for one in answer["messages"]
        ]
        expected = [
            (one.partition, one.group, one.transaction_id) for one in self.dead_letters[queue]
        ]
        assert sorted(listed) == sorted(expected), f"{listed} is not {expected}"
        told = {
            (one["partition"], one["consumerGroup"], one["transactionId"], one["errorMessage"])
            for one in answer["messages"]
        }
        for one in self.dead_letters[queue]:
            if one.error is not None:
                assert (one.partition, one.group, one.transaction_id, one.error) in told, told

    def replayed(self, queue: str, row: dict[str, Any], answer: dict[str, Any]) -> None:
        letters = self.dead_letters[queue]
        letter = next(
            one
            for one in letters
            if (one.partition, one.group, one.transaction_id)
            == (row["partition"], row["consumerGroup"], row["transactionId"])
        )
        letters.remove(letter)
        replay = answer["replayedAs"]
        assert answer["success"] is True and answer["result"] == "moved", answer
        assert answer["dlqRowRemoved"] is True, answer
        assert answer["originalTransactionId"] == letter.transaction_id, answer
        assert replay["transaction_id"] == f"dlq:{row['id']}", answer
        item = {"queue": queue, "partition": letter.partition, "payload": letter.payload}
        self._append(item, replay["transaction_id"], replay["message_id"])
        assert replay["offset"] == self.queues[queue].partitions[letter.partition].last, answer

    def depth_told(self, queue: str, group: str, answer: dict[str, Any]) -> None:
        pending, least, most = 0, 0, 0
        for partition in self.queues[queue].partitions.values():
            cursor = partition.cursors.get(group, Cursor())
            pending += partition.last - cursor.committed
            if cursor.lease is not None:
                most += cursor.lease.end - cursor.committed
                least += cursor.lease.end - cursor.committed if cursor.lease.live else 0
        assert answer["queue"] == queue and answer["group"] == group, answer
        assert answer["pending"] == pending, f"expected {pending} pending: {answer}"
        assert least <= answer["processing"] <= most, f"expected {least}..{most}: {answer}"
        assert answer["ready"] == pending - answer["processing"], answer

    # --- lookups --------------------------------------------------------------------------------

    def _partitions(self) -> list[tuple[Queue, Partition]]:
        return [(q, p) for q in self.queues.values() for p in q.partitions.values()]

    def _find(self, uid: str) -> tuple[Queue, Partition] | None:
        return next(((q, p) for q, p in self._partitions() if p.uid == uid), None)

    def _cursor(self, uid: str, group: str) -> Cursor | None:
        found = self._find(uid)
        return found[1].cursors.get(group) if found else None

    def partition(self, uid: str) -> Partition | None:
        found = self._find(uid)
        return found[1] if found else None
