"""The handlers of the streams' routes: parse, ask the service, render.

Imports errors, services/streams, stream_payloads, render_streams, wire. Used by hot.py.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from brokers.api import payloads, render_streams, stream_payloads
from brokers.api.wire import Reply
from brokers.errors import RequestError, harmless
from brokers.services import streams as stream_service

if TYPE_CHECKING:
    from brokers.api.call import Call

QUERY_TEXT_MAX = 300


async def stream_register(call: "Call") -> Reply:
    request = stream_payloads.register(call.body, call.tenant)
    answer = await stream_service.register(call.broker, request)
    name = request.name[:QUERY_TEXT_MAX]
    if answer.outcome == "mismatch":
        text = harmless(
            f"config_hash mismatch for query {name}: it is registered with another configuration;"
            " send reset to drop its state"
        )
        raise RequestError(text, code="conflict", body={"success": False, "error": text})
    if answer.outcome in ("denied", "full"):
        why = {
            "denied": "this tenant has no grant for streams",
            "full": "this tenant has as many stream queries as it may have",
        }
        text = why[answer.outcome]
        body = {"success": False, "denied": True, "error": text}
        raise RequestError(text, code="feature_gated", body=body)
    return Reply(200, render_streams.registered(request, answer))


async def stream_state_get(call: "Call") -> Reply:
    read = partial(stream_payloads.state, tenant=call.tenant)
    request = await payloads.parsed(read, call.body)
    return Reply(200, render_streams.state(await stream_service.state(call.broker, request)))


async def stream_cycle(call: "Call") -> Reply:
    read = partial(stream_payloads.cycle, tenant=call.tenant, producer_sub=call.principal.subject)
    request = await payloads.parsed(read, call.body)
    result = await stream_service.cycle(call.broker, request)
    return Reply(200, render_streams.cycle(request, result))


HANDLERS: dict[str, Callable[["Call"], Awaitable[Reply]]] = {
    handler.__name__: handler for handler in (stream_register, stream_state_get, stream_cycle)
}
