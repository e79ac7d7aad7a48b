"""Timers: schedule, cancel and look at messages that are not yet in the log.

Stations of a schedule: check the switch -> apply (one commit) -> ring our sweeper -> answer.
Only the database's clock says when a timer is due; what we tell the sweeper is a hint.

Imports domain, store, flow/sleep (through the broker). Called by api/hot_timers.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from brokers.domain import Timer, TimerOperation, TimerOutcome
from brokers.errors import Permanent, Refusal, StoreError
from brokers.store import timer_calls
from brokers.store.parcels import NO_KEY

if TYPE_CHECKING:
    from brokers.runtime import Broker

ENCRYPTS = "QN010"
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


async def apply(broker: "Broker", request: ApplyRequest) -> list[TimerOutcome]:
    """Carry out a batch in one commit; one outcome each, in request order.

    A batch with a schedule that is refused is refused whole.
    """
    if not request.operations:
        return []
    check_switch(broker, request.operations)
    try:
        outcomes = await timer_calls.timer_apply(
            broker.store.fetch,
            request.tenant,
            request.operations,
            producer_sub=request.producer_sub,
        )
    except StoreError as error:
        schedules = sum(one.delay_ms is not None for one in request.operations)
        broker.timer_metrics.schedule_rejected += schedules
        raise refusal(error) from error
    scheduled(broker, request.operations)
    return outcomes


async def peek(broker: "Broker", tenant: UUID, queue: str, key: str) -> Timer | None:
    try:
        return await timer_calls.timer_peek(broker.store.fetch, tenant, queue, key)
    except StoreError as error:
        raise refusal(error) from error


async def page(
    broker: "Broker", tenant: UUID, queue: str, *, after: str | None, limit: int
) -> Page:
    """By the bytes of the keys, behind `after`."""
    try:
        timers = await timer_calls.timer_list(
            broker.store.fetch, tenant, queue, after=after, limit=limit + 1
        )
    except StoreError as error:
        raise refusal(error) from error
    return Page(timers=timers[:limit], truncated=len(timers) > limit)


async def count(broker: "Broker", tenant: UUID, queue: str, prefix: str) -> int:
    try:
        return await timer_calls.timer_count(broker.store.fetch, tenant, queue, prefix=prefix)
    except StoreError as error:
        raise refusal(error) from error


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
