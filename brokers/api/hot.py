"""The handlers of the hot routes: parse, ask the service, render.

Each takes a `Call` and gives a `Reply`. They decide nothing; what a parameter means when
it is absent or out of bounds is written here, because it is the wire's contract.

Imports domain, errors, services, payloads, render, wire. Used by door.py.
"""

import asyncio
import json
from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID, uuid4

import prometheus_client

from brokers.api import (
    VERSION,
    hot_kv,
    hot_status,
    hot_streams,
    hot_system,
    hot_timers,
    hot_traces,
    kv_payloads,
    payloads,
    render,
    timer_payloads,
    wire,
)
from brokers.api.call import Call, Handler
from brokers.api.wire import NO_CONTENT, Reply
from brokers.domain import (
    QUEUE_MODE,
    Ack,
    PopRequest,
    PushItem,
    PushOutcome,
    PushRequest,
    TimerOperation,
    TransactionRequest,
)
from brokers.errors import RequestError, StoreError, error_text
from brokers.services import ack as ack_service
from brokers.services import cell as cell_service
from brokers.services import leases as lease_service
from brokers.services import pop as pop_service
from brokers.services import push as push_service
from brokers.services import transaction as transaction_service
from brokers.services import workers as worker_service

# The wire's own word for this storage layout; tooling compares it.
ENGINE = "segments-rust"
BATCH_MAX = 10_000
PARTITIONS_MAX = 10_000
POP_TIMEOUT_MAX_MS = 600_000
QUERIES_KEPT = 1024
QUERY_BYTES_KEPT = 512
LEASE_MAX_S = 31_536_000
SUBSCRIPTION_TEXT_MAX = 64
HEALTH_TIMEOUT_S = 5.0
REFUSED_BUNDLE = ("payload_too_large", "timer_horizon_exceeded")


# Messages


async def push(call: Call) -> Reply:
    items = await payloads.parsed(payloads.push_items, call.body)
    if not items:
        return Reply(201, b"[]")
    request = PushRequest(tenant=call.tenant, items=items, producer_sub=call.principal.subject)
    return push_reply(call, items, await push_service.push(call.broker, request))


def push_reply(call: Call, items: Sequence[PushItem], outcomes: Sequence[PushOutcome]) -> Reply:
    status = 201
    if call.broker.switches.push_maintenance and any(one.status == "failed" for one in outcomes):
        # The spool is where pushes have to go now, and it did not take it.
        status = 500
    return Reply(status, render.push(items, outcomes))


async def pop_queue(call: Call) -> Reply:
    return await _pop(call, queue=call.params["queue"], partition=None)


async def pop_partition(call: Call) -> Reply:
    return await _pop(call, queue=call.params["queue"], partition=call.params["partition"])


async def pop_discovery(call: Call) -> Reply:
    return await _pop(call, queue=None, partition=None)


async def _pop(call: Call, *, queue: str | None, partition: str | None) -> Reply:
    """A claim that its client did not wait for is handed back, uncharged, while that can
    still be told: until the first byte of the answer."""
    asked, timeout_ms = call.query_string, call.broker.config.pop.timeout_ms
    read = _pop_request if len(asked) > QUERY_BYTES_KEPT else _known_pop_request
    request = read(call.tenant, queue, partition, asked, timeout_ms)
    try:
        work = pop_service.pop(call.broker, request)
        result, gone = await wire.unless_gone(call.client, work)
    except StoreError as error:
        raise StoreError("pop failed", code=error.code) from error
    if gone:
        await pop_service.hand_back(call.broker, result)
        raise wire.ClientGone
    if render.is_nothing(result):
        return NO_CONTENT
    return Reply(200, render.pop(result))


@lru_cache(maxsize=QUERIES_KEPT)
def _known_pop_request(
    tenant: UUID, queue: str | None, partition: str | None, asked: bytes, timeout_ms: int
) -> PopRequest:
    """Consumers ask the same again and again: a request is a value, and read once."""
    return _pop_request(tenant, queue, partition, asked, timeout_ms)


def _pop_request(
    tenant: UUID, queue: str | None, partition: str | None, asked: bytes, default_timeout_ms: int
) -> PopRequest:
    query = wire.parse_query(asked)
    namespace = task = ""
    if queue is None:
        namespace = wire.query_name(query, "namespace") or ""
        task = wire.query_name(query, "task") or ""
        if not (namespace or task):
            raise _bad_pop("namespace or task is required")
    group = wire.query_name(query, "consumerGroup") or QUEUE_MODE
    auto_ack = wire.query_boolean(query, "autoAck")
    conflation = wire.query_boolean(query, "conflation")
    if conflation and group == QUEUE_MODE:
        raise _bad_pop("conflation needs a consumerGroup")
    if conflation and auto_ack:
        raise _bad_pop("conflation cannot be combined with autoAck")
    batch = wire.query_integer(query, "batch")
    partitions = wire.query_integer(query, "partitions")
    timeout_ms = wire.query_integer(query, "timeout")
    if timeout_ms is None:
        timeout_ms = default_timeout_ms
    lease_s = wire.query_integer(query, "leaseSeconds")
    return PopRequest(
        tenant=tenant,
        queue=queue,
        partition=partition,
        namespace=namespace,
        task=task,
        group=group,
        batch=None if batch is None else min(max(batch, 1), BATCH_MAX),
        partitions=None if partitions is None else min(max(partitions, 0), PARTITIONS_MAX),
        auto_ack=auto_ack,
        wait=wire.query_boolean(query, "wait"),
        timeout_s=min(max(timeout_ms, 0), POP_TIMEOUT_MAX_MS) / 1000,
        lease_s=None if lease_s is None or lease_s <= 0 else min(lease_s, LEASE_MAX_S),
        subscription_mode=_subscription_text(query, "subscriptionMode", otherwise="all"),
        subscription_from=_subscription_text(query, "subscriptionFrom", otherwise=None),
        conflation=conflation,
        autopilot=wire.query_boolean(query, "autopilot"),
    )


def _subscription_text(query: dict[str, str], name: str, otherwise: str | None) -> str | None:
    """Text that nobody can mean counts as the unknown word that it is: never an error."""
    text = query.get(name) or None
    if text is None:
        return None
    return otherwise if wire.identifier_problem(text, SUBSCRIPTION_TEXT_MAX) else text


def _bad_pop(text: str) -> RequestError:
    return RequestError(text, body={"success": False, "error": text, "messages": []})


async def ack(call: Call) -> Reply:
    one = await payloads.parsed(payloads.single_ack, call.body)
    return await _acked(call, [one])


async def ack_batch(call: Call) -> Reply:
    return await _acked(call, await payloads.parsed(payloads.ack_batch, call.body))


async def _acked(call: Call, acks: list[Ack]) -> Reply:
    if not acks:
        return Reply(200, b"[]")
    return Reply(200, render.acks(await ack_service.ack(call.broker, call.tenant, acks)))


async def lease_extend(call: Call) -> Reply:
    lease_id = call.params["leaseId"]
    seconds = payloads.lease_seconds(call.body)
    extension = await lease_service.extend(call.broker, call.tenant, lease_id, seconds)
    return Reply(200, render.lease(lease_id, extension))


async def transaction(call: Call) -> Reply:
    config = call.broker.config
    try:
        parsed = await payloads.parsed(payloads.transaction, call.body)
        kv = kv_payloads.rider(parsed.kv, config.kv)
        timers = _timers_of(call, parsed.timers)
    except RequestError as error:
        return _refused_transaction(error)
    request = TransactionRequest(
        tenant=call.tenant,
        operations=parsed.operations,
        required_leases=parsed.required_leases,
        mentions_lease=parsed.mentions_lease,
        producer_sub=call.principal.subject,
        kv=kv,
        timers=timers,
    )
    try:
        result = await transaction_service.commit(call.broker, request)
    except RequestError as error:
        return _refused_transaction(error)
    return Reply(200, render.transaction(result))


def _timers_of(call: Call, raw: bytes) -> list[TimerOperation]:
    try:
        return timer_payloads.rider(raw, call.broker.config.timers)
    except RequestError:
        call.broker.timer_metrics.schedule_rejected += 1
        raise


def _refused_transaction(error: RequestError) -> Reply:
    """Refused before any storage, in the envelope that a transaction's caller reads. A bundle
    that could be read but asks for too much is answered like a rollback."""
    if error.code in REFUSED_BUNDLE:
        return Reply(200, render.refused_transaction(error.code, error.text))
    told = error_text(error)
    error.body = {
        "transactionId": str(uuid4()),
        "success": False,
        "reason": "bad_request",
        "error": told,
        "results": [],
    }
    if told != error.text:
        error.body["detail"] = error.text
    raise error


# Health: answered here and never behind a thread pool, so that it tells of the loop.


async def health(call: Call) -> Reply:
    """A real round trip to PostgreSQL: for readiness, never for liveness."""
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_S):
            await call.broker.store.ping()
    except (StoreError, TimeoutError):
        return _json(
            503, status="unhealthy", database="disconnected", engine=ENGINE, version=VERSION
        )
    return _json(200, status="healthy", database="connected", engine=ENGINE, version=VERSION)


async def status(call: Call) -> Reply:
    return _json(200, status="ok", engine=ENGINE)


async def livez(call: Call) -> Reply:
    return _json(200, status="alive")


async def readyz(call: Call) -> Reply:
    if call.broker.ready:
        return _json(200, status="ready")
    return _json(503, status="not ready")


async def prometheus(call: Call) -> Reply:
    """Of all workers: a scrape cannot choose which of them it reaches."""
    await cell_service.refresh(call.broker)
    registry = await worker_service.registry(call.broker)
    return Reply(
        200,
        prometheus_client.generate_latest(registry) + call.broker.cell_metrics.exposition(),
        content_type=b"text/plain; version=0.0.4; charset=utf-8",
        headers=((b"cache-control", b"no-cache"),),
    )


def _json(code: int, /, **document: str) -> Reply:
    return Reply(code, json.dumps(document).encode("ascii"))


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        push,
        pop_queue,
        pop_partition,
        pop_discovery,
        ack,
        ack_batch,
        lease_extend,
        transaction,
        health,
        status,
        livez,
        readyz,
        prometheus,
    )
}
HANDLERS |= hot_kv.HANDLERS
HANDLERS |= hot_streams.HANDLERS
HANDLERS |= hot_status.HANDLERS
HANDLERS |= hot_system.HANDLERS
HANDLERS |= hot_timers.HANDLERS
HANDLERS |= hot_traces.HANDLERS
