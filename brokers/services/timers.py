"""Timers: schedule, cancel and look at messages that are not yet in the log.

Stations of a schedule: check the switch -> apply (one commit) -> ring our sweeper -> answer.
Only the database's clock says when a timer is due; what we tell the sweeper is a hint.

Imports domain, encryption, store, flow/sleep (through the broker). Called by api/hot_timers.py
and services/transaction.py.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.domain import DEFAULT_TENANT, Timer, TimerOperation, TimerOutcome
from brokers.encryption import bounded
from brokers.errors import Permanent, Refusal, RequestError, StoreError
from brokers.store import timer_calls
from brokers.store.parcels import NO_KEY

if TYPE_CHECKING:
    from brokers.runtime import Broker

ENCRYPTS = "QN010"
SEAL_ROUNDS_MAX = 3
COUNT_MAX = 100_000
QUEUE_CHANGING = "the queue keeps changing: retry"
ALREADY_ENCRYPTED = "encrypted cannot be sent: the queue {queue!r} encrypts its messages itself"
RETRY_AFTER_S = 1
NOT_READY = "the operator's switches have not been read yet"
DISABLED = "an operator has paused the scheduling of timers; cancels and reads go on"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    tenant: UUID
    operations: Sequence[TimerOperation]
    producer_sub: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    timers: list[Timer]
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """`truncated`: there are more than anybody counted."""

    number: int
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseRequest:
    """`place` is a queue and a key; None is the end that the look starts from. A prefix of
    keys needs a queue."""

    tenant: UUID
    queue: str | None = None
    prefix: str = ""
    backward: bool = False
    place: tuple[str, str] | None = None
    limit: int = 100


async def apply(broker: "Broker", request: ApplyRequest) -> list[TimerOutcome]:
    """Carry out a batch in one commit; one outcome each, in request order.

    A batch with a schedule that is refused is refused whole.
    """
    if not request.operations:
        return []
    await admit(broker, request.tenant, request.operations)
    try:
        outcomes = await _apply(broker, request)
    except StoreError as error:
        schedules = sum(one.delay_ms is not None for one in request.operations)
        broker.timer_metrics.schedule_rejected += schedules
        raise refusal(error) from error
    scheduled(broker, request.operations)
    return outcomes


async def _apply(broker: "Broker", request: ApplyRequest) -> list[TimerOutcome]:
    """The database says which queues encrypt; what we believed costs a round at most."""
    for _ in range(SEAL_ROUNDS_MAX):
        operations = await sealed(broker, request.tenant, request.operations)
        try:
            async with broker.admission.call_slot("push"):
                return await timer_calls.timer_apply(
                    broker.store.fetch,
                    request.tenant,
                    operations,
                    producer_sub=request.producer_sub,
                )
        except Permanent as error:
            if not learned(broker, request.tenant, request.operations, error):
                raise
    raise StoreError(QUEUE_CHANGING)


async def sealed(
    broker: "Broker", tenant: UUID, operations: Sequence[TimerOperation]
) -> Sequence[TimerOperation]:
    """The operations with the payloads encrypted of those queues that are known to encrypt.

    Raises RequestError where the caller says that such a payload is encrypted already.
    """
    known = broker.directory.encrypting
    secret = {
        no: one
        for no, one in enumerate(operations)
        if one.delay_ms is not None and known.get((tenant, one.queue))
    }
    if not secret or not broker.keys.can_seal:
        return operations
    for one in secret.values():
        if one.marked_encrypted:
            text = ALREADY_ENCRYPTED.format(queue=one.queue)
            raise RequestError(text, code="timers_bad_request")
    seal = broker.keys.seal
    changed = list(operations)

    def work() -> None:
        for no, one in secret.items():
            changed[no] = replace(one, payload=seal(one.payload), encrypted=True)

    await bounded(work, sum(len(one.payload) for one in secret.values()))
    return changed


def learned(
    broker: "Broker", tenant: UUID, operations: Sequence[TimerOperation], error: Permanent
) -> bool:
    """Whether the call is to be made again, because the database named the queues that
    encrypt and we have a key."""
    if error.sqlstate != ENCRYPTS or not broker.keys.can_seal:
        return False
    encrypting = set(json.loads(error.detail or "[]"))
    for queue in {one.queue for one in operations}:
        if queue in encrypting:
            broker.directory.encrypting.put((tenant, queue), True)
        else:
            broker.directory.encrypting.forget((tenant, queue))
    return True


async def peek(broker: "Broker", tenant: UUID, queue: str, key: str) -> Timer | None:
    try:
        return await timer_calls.timer_peek(broker.reads.fetch, tenant, queue, key)
    except StoreError as error:
        raise refusal(error) from error


async def page(
    broker: "Broker", tenant: UUID, queue: str, *, after: str | None, limit: int
) -> Page:
    """By the bytes of the keys, behind `after`."""
    try:
        timers = await timer_calls.timer_list(
            broker.reads.fetch, tenant, queue, after=after, limit=limit + 1
        )
    except StoreError as error:
        raise refusal(error) from error
    return Page(timers=timers[:limit], truncated=len(timers) > limit)


async def browse(broker: "Broker", request: BrowseRequest) -> list[tuple[str, Timer]]:
    """Timers with their queues, for operators: by queue and key behind the place, or backward."""
    return await timer_calls.timer_browse(
        broker.reads.fetch,
        request.tenant,
        queue=request.queue,
        prefix=request.prefix,
        backward=request.backward,
        place=request.place,
        limit=request.limit,
    )


async def count(broker: "Broker", tenant: UUID, queue: str, prefix: str) -> Count:
    try:
        number = await timer_calls.timer_count(
            broker.reads.fetch, tenant, queue, prefix=prefix, count_max=COUNT_MAX + 1
        )
    except StoreError as error:
        raise refusal(error) from error
    return Count(number=min(number, COUNT_MAX), truncated=number > COUNT_MAX)


async def admit(broker: "Broker", tenant: UUID, operations: Sequence[TimerOperation]) -> None:
    """Whether the tenant may schedule these now; cancels are never refused."""
    check_switch(broker, operations)
    delays = [one.delay_ms for one in operations if one.delay_ms is not None]
    if not delays or tenant == DEFAULT_TENANT:
        return
    await broker.quotas.granted(tenant)
    horizon_s = await broker.quotas.horizon_s(tenant)
    if horizon_s is not None and max(delays) > horizon_s * 1000:
        text = f"the tenant may schedule at most {horizon_s} s ahead"
        raise RequestError(text, code="timer_horizon_exceeded")


def check_switch(broker: "Broker", operations: Sequence[TimerOperation]) -> None:
    """Whether an operator lets timers be scheduled; cancels are never refused."""
    schedules = sum(one.delay_ms is not None for one in operations)
    switches = getattr(broker, "switches", None)
    if schedules and switches is not None and not switches.known:
        raise refused("timers_unavailable", NOT_READY)
    if schedules and switches is not None and not switches.timers_schedule_enabled:
        broker.timer_metrics.schedule_rejected += schedules
        raise refused("timers_disabled", DISABLED)


def scheduled(broker: "Broker", operations: Sequence[TimerOperation]) -> None:
    """After the commit: our sweeper need not sleep past the earliest of them."""
    delays = [one.delay_ms for one in operations if one.delay_ms is not None]
    if delays:
        broker.timer_alarm.due_in(min(delays) / 1000)


def refused(code: str, text: str) -> Refusal:
    return Refusal(text, code=code, retry_after_s=RETRY_AFTER_S)


def refusal(error: StoreError) -> Exception:
    """What a failed call is to the caller. All of these calls may be repeated."""
    if isinstance(error, Permanent) and error.sqlstate == ENCRYPTS:
        return refused("timers_unavailable", NO_KEY)
    if isinstance(error, Permanent):
        return error
    return refused("timers_unavailable", error.text)
