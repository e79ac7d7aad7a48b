"""The handlers of key/value state, and of the operator's switches.

Each takes a `Call` and gives a `Reply`; see hot.py, which registers them.

Imports errors, kv_payloads, render_kv, services, wire. Used by hot.py.
"""

import json
from typing import TYPE_CHECKING

import msgspec

from brokers.api import kv_payloads, payloads, render_kv
from brokers.api.payloads import NO_RAW
from brokers.api.wire import Reply, json_text
from brokers.domain import KvLost, KvOperation, KvResult
from brokers.errors import RequestError
from brokers.services import kv as kv_service
from brokers.services import switches as switch_service

if TYPE_CHECKING:
    from brokers.api.call import Call


async def kv_batch(call: "Call") -> Reply:
    config = call.broker.config.kv
    operations = await payloads.parsed(lambda body: kv_payloads.batch(body, config), call.body)
    answer = await kv_service.apply(call.broker, call.tenant, operations)
    if isinstance(answer, KvLost):
        return Reply(200, render_kv.lost(answer))
    return Reply(200, render_kv.results(answer))


async def kv_get(call: "Call") -> Reply:
    answer = await _one(call, "get")
    if isinstance(answer, KvResult) and answer.entry is not None:
        etag = (b"etag", b'"%d"' % answer.entry.version)
        return Reply(200, render_kv.element(0, answer), headers=(etag,))
    return _single(answer)


async def kv_put(call: "Call") -> Reply:
    return _single(await _one(call, "put"))


async def kv_delete(call: "Call") -> Reply:
    return _single(await _one(call, "delete"))


async def _one(call: "Call", op: str) -> KvResult | KvLost:
    _refuse_query(call)
    operation: KvOperation = kv_payloads.path_operation(
        op, call.params, call.body, call.broker.config.kv
    )
    answer = await kv_service.apply(call.broker, call.tenant, [operation])
    return answer if isinstance(answer, KvLost) else answer[0]


def _single(answer: KvResult | KvLost) -> Reply:
    if isinstance(answer, KvLost):
        return Reply(200, render_kv.lost(answer))
    return Reply(200, render_kv.element(0, answer))


async def kv_namespaces(call: "Call") -> Reply:
    _refuse_query(call)
    found = await kv_service.namespaces(call.broker, call.tenant)
    # A full answer may have left some out.
    truncated = len(found) >= kv_service.NAMESPACES_MAX
    return Reply(200, render_kv.namespaces(found, truncated=truncated))


async def kv_list(call: "Call") -> Reply:
    _refuse_query(call)
    page = kv_payloads.page(call.body, call.broker.config.kv)
    request = kv_service.ListRequest(
        tenant=call.tenant,
        namespace=page.namespace,
        prefix=page.prefix,
        after=page.after,
        limit=page.limit,
        keys_only=page.keys_only,
        include_expired=page.include_expired,
    )
    return Reply(200, render_kv.page(await kv_service.page(call.broker, request)))


def _refuse_query(call: "Call") -> None:
    """Keys and prefixes in a query would end up in the access logs of everyone on the way."""
    if call.query_string:
        raise RequestError("this route takes no query string", code="kv_no_query_string")


# The operator's switches


class SwitchBody(msgspec.Struct, gc=False, rename="camel"):
    kv: msgspec.Raw = NO_RAW
    timers_schedule: msgspec.Raw = NO_RAW
    timers_fire: msgspec.Raw = NO_RAW


_switches = msgspec.json.Decoder(SwitchBody)


async def switches_get(call: "Call") -> Reply:
    return Reply(200, json.dumps(_switch_state(call)).encode("ascii"))


async def switches_set(call: "Call") -> Reply:
    said = payloads.decode(json_text(call.body), _switches.decode, SwitchBody)
    patch = {}
    for name, raw in zip(
        switch_service.NAMES, (said.kv, said.timers_schedule, said.timers_fire), strict=True
    ):
        text = bytes(raw)
        if text in (b"true", b"false"):
            patch[name] = text == b"true"
        elif text not in (b"", b"null"):
            raise RequestError(f"{name} must be a boolean")
    if not patch:
        raise RequestError("one of kv, timersSchedule, timersFire (boolean) is required")
    mirrored = await switch_service.throw(call.broker, patch)
    return Reply(200, json.dumps(_switch_state(call) | {"mirrored": mirrored}).encode("ascii"))


def _switch_state(call: "Call") -> dict[str, bool | int]:
    state = switch_service.state(call.broker)
    tenants, age_ms = call.broker.quotas.figures()
    return {
        "kvEnabled": state.kv_enabled,
        "timersScheduleEnabled": state.timers_schedule_enabled,
        "timersFireEnabled": state.timers_fire_enabled,
        "quotaTenants": tenants,
        "quotaAgeMs": age_ms,
        "quotaHot": len(call.broker.quotas.hot() | call.broker.kv.full),
    }


HANDLERS = {
    handler.__name__: handler
    for handler in (
        kv_batch,
        kv_get,
        kv_put,
        kv_delete,
        kv_namespaces,
        kv_list,
        switches_get,
        switches_set,
    )
}
