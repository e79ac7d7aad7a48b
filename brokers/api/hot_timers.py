"""The handlers of the timers' routes: parse, ask the service, render.

Every refusal of this family says its code in `error`. A batch that is refused whole names
the route on which a timer can be cancelled all the same.

Imports domain, errors, services/timers, timer_payloads, render_timers, wire. Used by hot.py.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from brokers.api import payloads, render_timers, timer_payloads, wire
from brokers.api.timer_payloads import bad, timers_error
from brokers.api.wire import Reply
from brokers.domain import TimerOperation
from brokers.errors import BrokerError, RequestError
from brokers.services import timers as timer_service

if TYPE_CHECKING:
    from brokers.api.call import Call

LIMIT_DEFAULT, LIMIT_MAX = 100, 1000
PREFIX_BYTES_MAX = 128
HINT = (("x-queen-timers-hint", "DELETE /api/v1/timers/:queue/*timerKey"),)


async def timers_apply(call: "Call") -> Reply:
    try:
        config = call.broker.config.timers
        read = partial(timer_payloads.batch, config=config)
        operations = await payloads.parsed(read, call.body)
        request = timer_service.ApplyRequest(
            tenant=call.tenant, operations=operations, producer_sub=call.principal.subject
        )
        outcomes = await timer_service.apply(call.broker, request)
    except BrokerError as error:
        if isinstance(error, RequestError):
            call.broker.timer_metrics.schedule_rejected += 1
        error.headers += HINT
        raise
    return Reply(200, render_timers.results(operations, outcomes))


async def timer_cancel(call: "Call") -> Reply:
    """Always allowed: a switch or a quota that kept a timer from being cancelled would make
    messages that nobody can stop."""
    query = wire.parse_query(call.query_string)
    txn = query.get("txn")
    if txn is not None:
        problem = wire.identifier_problem(txn, wire.TRANSACTION_ID_BYTES_MAX)
        if problem is not None:
            raise bad(f"txn {problem}")
    operation = TimerOperation(call.params["queue"], _key(call), txn)
    request = timer_service.ApplyRequest(tenant=call.tenant, operations=[operation])
    [outcome] = await timer_service.apply(call.broker, request)
    return Reply(200, render_timers.result(operation, outcome))


async def timer_peek(call: "Call") -> Reply:
    queue = call.params["queue"]
    timer = await timer_service.peek(call.broker, call.tenant, queue, _key(call))
    if timer is None:
        return Reply(200, render_timers.NOT_FOUND)
    return Reply(200, render_timers.peek(queue, timer))


async def timers_read(call: "Call") -> Reply:
    query = wire.parse_query(call.query_string)
    mode = query.get("mode", "") or "list"
    if mode == "count":
        return await _count(call, query)
    if mode != "list":
        raise timers_error("timers_read_mode_unknown", "mode must be list or count")
    after = query.get("after") or None
    if after is not None:
        problem = wire.identifier_problem(after, wire.TIMER_KEY_BYTES_MAX)
        if problem is not None:
            raise bad(f"after {problem}")
    try:
        limit = wire.query_integer(query, "limit", LIMIT_DEFAULT)
    except RequestError as error:
        raise bad(error.text) from None
    assert limit is not None
    queue = call.params["queue"]
    page = await timer_service.page(
        call.broker, call.tenant, queue, after=after, limit=min(max(limit, 1), LIMIT_MAX)
    )
    return Reply(200, render_timers.page(queue, page.timers, truncated=page.truncated))


async def _count(call: "Call", query: dict[str, str]) -> Reply:
    if "after" in query or "limit" in query:
        raise timers_error("timers_count_no_paging", "a count takes neither after nor limit")
    prefix = query.get("prefix", "")
    if not prefix:
        raise timers_error("timers_count_prefix_required", "a count needs a prefix")
    if wire.identifier_problem(prefix, wire.INTEGER_MAX) is not None:
        raise timers_error("timers_count_prefix_invalid", "prefix must be text without NUL")
    problem = wire.identifier_problem(prefix, PREFIX_BYTES_MAX)
    if problem is not None:
        raise timers_error("timers_count_prefix_too_long", f"prefix {problem}")
    found = await timer_service.count(call.broker, call.tenant, call.params["queue"], prefix)
    return Reply(200, render_timers.count(found.number, truncated=found.truncated))


def _key(call: "Call") -> str:
    key = call.params["timerKey"]
    if not key:
        raise bad("timerKey must not be empty")
    return key


HANDLERS: dict[str, Callable[["Call"], Awaitable[Reply]]] = {
    handler.__name__: handler for handler in (timers_apply, timer_cancel, timer_peek, timers_read)
}
