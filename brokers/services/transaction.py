"""Transaction: pushes and acks of any queues and partitions with their riders, all or nothing.

Imports domain, store, flow/acks, flow/kv, services/bundle, kv and timers. Called by api/hot.py.
"""

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from brokers.domain import (
    DEFAULT_TENANT,
    NIL_ID,
    Ack,
    KvLost,
    KvResult,
    OperationResult,
    PushItem,
    TimerOutcome,
    TransactionRequest,
    TransactionResult,
)
from brokers.errors import QUOTA_CODES, Permanent, RequestError, StoreError
from brokers.flow.acks import ERRORS, ack_item, uuid_text
from brokers.flow.kv import READS_TOO_MUCH
from brokers.services import kv as kv_service
from brokers.services import timers as timer_service
from brokers.services.bundle import QUEUE_CHANGING, SPOOLED, STALE_ROUNDS_MAX, Bundle
from brokers.store import kv_calls, timer_calls, transaction_calls
from brokers.store.kv_calls import KvRow
from brokers.store.parcels import NO_KEY
from brokers.store.transaction_calls import CommitRow

if TYPE_CHECKING:
    from brokers.runtime import Broker

STALE, DUPLICATE, ACK_REJECTED = "QN001", "QN002", "QN003"
UNRESOLVABLE = "QTXN ack references unknown transactionId; transaction rolled back"


async def commit(broker: "Broker", request: TransactionRequest) -> TransactionResult:
    """Carry out every operation in one database transaction, or none of them.

    A refusal is an answer (`success` false with its reason). A database that is away is an
    error: a transaction is never spooled.
    """
    transaction_id = str(uuid4())
    await _admit(broker, request)
    plan = Plan(broker, request)
    if not await plan.bundle.in_order():
        return _failure(transaction_id, "db_error", SPOOLED)
    for _ in range(STALE_ROUNDS_MAX):
        refused = await plan.bundle.resolve()
        if refused is not None:
            return _failure(transaction_id, "db_error", refused)
        timers = await timer_service.sealed(broker, request.tenant, request.timers)
        try:
            async with broker.admission.call_slot("push"):
                rows = await transaction_calls.transaction_commit(
                    broker.store.fetch,
                    plan.bundle.groups,
                    plan.acks,
                    tenant=broker.tenant_filter(request.tenant),
                    required_leases=[uuid_text(one) or NIL_ID for one in request.required_leases],
                    mentions_lease=request.mentions_lease,
                    wait_ms=broker.config.push.busy_ms,
                    **plan.riders(),
                    timers=timer_calls.apply_columns(request.tenant, timers, request.producer_sub),
                )
        except Permanent as error:
            if error.sqlstate == STALE:
                plan.bundle.forget()
                continue
            if timer_service.learned(broker, request.tenant, request.timers, error):
                continue
            return _refusal(transaction_id, plan, error)
        except StoreError as error:
            if error.code == "pool" or error.outcome_unknown:
                raise
            return _failure(transaction_id, "db_error", error.text)
        finally:
            if request.kv:
                kv_service.wrote(broker, request.tenant)
        kv = plan.kv_results(rows)
        if isinstance(kv, KvLost):
            operation = request.kv[kv.no - len(request.operations)]
            broker.kv.counters.lost("transaction", operation, kv.reason)
            return _precondition(transaction_id, kv)
        plan.announce(rows)
        timer_service.scheduled(broker, request.timers)
        broker.counters.transactions += 1
        broker.kv.counters.count("transaction", kv)
        return TransactionResult(
            transaction_id=transaction_id, success=True, results=plan.results(rows, kv)
        )
    return _failure(transaction_id, "db_error", QUEUE_CHANGING)


async def _admit(broker: "Broker", request: TransactionRequest) -> None:
    """The operator's switches, and what the tenant may have. Raises what turns it away."""
    if request.kv:
        await kv_service.check_rider(broker, request.tenant, request.kv)
    await timer_service.admit(broker, request.tenant, request.timers)
    pushes = [one for one in request.operations if isinstance(one, PushItem)]
    if pushes and request.tenant != DEFAULT_TENANT:
        size = sum(len(one.payload) for one in pushes)
        await broker.quotas.admit_push(request.tenant, len(pushes), size)


class Plan:
    """The operations, sorted into a bundle of messages and a list of acks."""

    def __init__(self, broker: "Broker", request: TransactionRequest) -> None:
        self._broker = broker
        self._request = request
        operations = request.operations
        # By position among the pushes: where it stands among all operations.
        self._push_nos = [no for no, one in enumerate(operations) if isinstance(one, PushItem)]
        ids = broker.ids.mint_many(len(self._push_nos)) if self._push_nos else []
        self._ids = dict(zip(self._push_nos, ids, strict=True))
        items = [one for one in operations if isinstance(one, PushItem)]
        self.bundle = Bundle(broker, request.tenant, items, ids, request.producer_sub)
        self._ack_nos = [no for no, one in enumerate(operations) if isinstance(one, Ack)]
        self.acks = [ack_item(one) for one in operations if isinstance(one, Ack)]

    def riders(self) -> dict[str, Any]:
        """What the procedure takes of the riders, by the names of transaction_commit()."""
        if not self._request.kv:
            return {}
        asked = [(self._request.tenant, one) for one in self._request.kv]
        return {
            "kv": kv_calls.apply_columns(asked),
            "kv_bytes_max": self._broker.config.kv.read_bytes_max,
        }

    def kv_results(self, rows: list[CommitRow]) -> list[KvResult] | KvLost:
        """One result a key/value operation, or the one that was required and did not apply:
        its index counts in the flat order, behind the pushes and acks."""
        kv_rows = [
            KvRow(
                row.no,
                row.outcome,
                row.key,
                row.value,
                row.version,
                row.expires_at,
                row.updated_at,
            )
            for row in rows
            if row.kind == "kv"
        ]
        found = kv_calls.results(self._request.kv, kv_rows)
        if isinstance(found, KvLost):
            return found._replace(no=len(self._request.operations) + found.no)
        return found

    def announce(self, rows: list[CommitRow]) -> None:
        self.bundle.announce()
        moved: set[tuple[int, str]] = set()
        for row in rows:
            if row.kind == "ack" and row.queue_id and self.acks[row.no - 1].action:
                moved.add((row.queue_id, self.acks[row.no - 1].group))
            if row.kind == "ack" and row.lease_released and row.queue_id and row.partition_id:
                item = self.acks[row.no - 1]
                if item.lease_id is not None:
                    self._broker.registry.ended(item.lease_id, item.partition_uid)
                self._broker.announce.released(row.queue_id, item.group, [row.partition_id])
        for queue_id, group in moved:
            self._broker.announce.moved_back(queue_id, group, released=True)
        for queue_id in {row.queue_id for row in rows if row.queue_id is not None}:
            self._broker.tally.of(queue_id).transactions += 1

    def results(self, rows: list[CommitRow], kv: list[KvResult]) -> list[OperationResult]:
        """One result an operation, in the flat order of the request."""
        originals: dict[int, str] = {}
        groups = list(self.bundle.places.values())
        acked: dict[int, CommitRow] = {}
        timed: dict[int, TimerOutcome] = {}
        for row in rows:
            if row.kind == "timer":
                timed[row.no - 1] = TimerOutcome(
                    row.outcome, row.timer_message_id, row.timer_deliver_us
                )
            elif row.kind == "ack":
                acked[self._ack_nos[row.no - 1]] = row
            elif row.kind == "push" and row.duplicate_positions and row.duplicate_ids:
                positions = groups[row.no - 1]
                for position, original in zip(
                    row.duplicate_positions, row.duplicate_ids, strict=True
                ):
                    originals[self._push_nos[positions[position]]] = original
        results = []
        for no, operation in enumerate(self._request.operations):
            if isinstance(operation, PushItem):
                own = self._ids[no]
                results.append(
                    OperationResult(
                        "push",
                        True,
                        own if operation.transaction_id is None else operation.transaction_id,
                        message_id=originals.get(no, own),
                        queue=operation.queue,
                        duplicate=no in originals,
                    )
                )
            else:
                results.append(
                    OperationResult(
                        "ack", True, operation.transaction_id, dlq=bool(acked[no].dead_lettered)
                    )
                )
        results += [OperationResult("kv", True, "", kv=one) for one in kv]
        for no, timer in enumerate(self._request.timers):
            outcome = timed[no]
            results.append(
                OperationResult("timer", outcome.ok, timer.txn or "", timer=(timer, outcome))
            )
        return results

    def ack_text(self, detail: str) -> str:
        """What to tell about the ack that the database refused (`<no> <outcome>`)."""
        no, _, refused = detail.partition(" ")
        operation = self._request.operations[self._ack_nos[int(no) - 1]]
        assert isinstance(operation, Ack)
        if refused == "unresolvable":
            return UNRESOLVABLE
        return f"ack of {operation.transaction_id}: {ERRORS[refused]}"


def _refusal(transaction_id: str, plan: Plan, error: Permanent) -> TransactionResult:
    if error.sqlstate == DUPLICATE:
        return _failure(transaction_id, "duplicate", error.text.split("\n")[0])
    if error.sqlstate == ACK_REJECTED:
        return _failure(transaction_id, "ack_rejected", plan.ack_text(error.detail))
    if error.code in QUOTA_CODES.values():
        raise RequestError(error.text.split("\n")[0], code=error.code) from error
    if error.sqlstate == timer_service.ENCRYPTS:
        return _failure(transaction_id, "db_error", NO_KEY)
    if error.sqlstate == READS_TOO_MUCH:
        return _failure(transaction_id, "payload_too_large", error.text.split("\n")[0])
    return _failure(transaction_id, "db_error", error.text.split("\n")[0])


def _precondition(transaction_id: str, lost: KvLost) -> TransactionResult:
    return TransactionResult(
        transaction_id=transaction_id,
        success=False,
        results=[],
        reason="kv_precondition",
        error=f"operation {lost.no} is required and did not apply: {lost.reason}",
        lost=lost,
    )


def _failure(transaction_id: str, reason: str, error: str) -> TransactionResult:
    return TransactionResult(
        transaction_id=transaction_id, success=False, results=[], reason=reason, error=error
    )
