"""Pushes and acks without a task: what has to be waited for is one future of a combiner.

A handler here begins a request at once and says what its answer is made of once that future is
done; or it says None, and the request goes to the handler of the same name in hot.py, which
may wait for anything. Both parse and render alike.

Imports domain, services, call, hot, payloads, render, wire. Used by door.py.
"""

from functools import partial

from brokers.api import hot, payloads, render
from brokers.api.call import Call, Later, SoonHandler
from brokers.api.wire import Reply
from brokers.domain import DEFAULT_TENANT, Ack, PushItem
from brokers.flow.acks import Settling
from brokers.services import ack as ack_service
from brokers.services import push as push_service


def push(call: Call) -> Reply | Later | None:
    # By identity: that of a tenant's own UUID is compared in Python, and most have none.
    if call.tenant is not DEFAULT_TENANT or len(call.body) >= payloads.THREAD_BODY_BYTES:
        return None  # quotas may have to be asked for; a long body is parsed in a thread
    items = payloads.push_items(call.body)
    if not items:
        return Reply(201, b"[]")
    pushing = push_service.begin(call.broker, items, call.principal.subject)
    return Later(pushing.finished, partial(_pushed, call, items, pushing))


def _pushed(call: Call, items: list[PushItem], pushing: push_service.Pushing) -> Reply:
    if pushing.stored:
        return Reply(201, render.stored(items, *pushing.told()))
    return hot.push_reply(call, items, pushing.outcomes())


def ack(call: Call) -> Reply | Later | None:
    if len(call.body) >= payloads.THREAD_BODY_BYTES:
        return None
    return _acked(call, [payloads.single_ack(call.body)])


def ack_batch(call: Call) -> Reply | Later | None:
    if len(call.body) >= payloads.THREAD_BODY_BYTES:
        return None
    return _acked(call, payloads.ack_batch(call.body))


def _acked(call: Call, acks: list[Ack]) -> Reply | Later:
    if not acks:
        return Reply(200, b"[]")
    settling = ack_service.begin(call.broker, call.tenant, acks)
    return Later(settling.finished, partial(_ack_reply, call, settling))


def _ack_reply(call: Call, settling: Settling) -> Reply:
    return Reply(200, render.acks(ack_service.end(call.broker, settling)))


SOON: dict[str, SoonHandler] = {handler.__name__: handler for handler in (push, ack, ack_batch)}
