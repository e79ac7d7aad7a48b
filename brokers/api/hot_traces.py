"""The handlers of the traces' routes: parse, ask the service, render.

The keys of what is read are snake_case here, as on no other route. The data of a trace leaves
as the bytes that came in.

Imports errors, flow/acks, services, payloads, wire. Used by hot.py.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from brokers.api import payloads, wire
from brokers.api.payloads import NO_RAW
from brokers.api.wire import Reply, check_identifier, json_text
from brokers.domain import QUEUE_MODE
from brokers.errors import RequestError, StoreError
from brokers.flow.acks import uuid_text
from brokers.frames import timestamp_text
from brokers.services import traces as trace_service
from brokers.services.subscriptions import read_instant
from brokers.services.traces import NamedPage, NewTrace
from brokers.store.trace_calls import NamedTraceRow, TraceRow

if TYPE_CHECKING:
    from brokers.api.call import Call

DATA_BYTES_MAX = 1_048_576
NAMES_MAX = 64
PAGE_LIMIT, NAMES_LIMIT, LIMIT_MAX = 100, 50, 1000
# The contract's word; it is no worker of ours.
WORKER = "seg-rust"
NO_MESSAGE = Reply(404, b'{"success":false,"error":"Message not found"}')
NO_TRACES = Reply(200, b'{"traces":[]}')


class TraceBody(msgspec.Struct, gc=False, rename="camel"):
    transaction_id: str | None = None
    partition_id: str | None = None
    data: msgspec.Raw = NO_RAW
    consumer_group: str | None = None
    event_type: str | None = None
    trace_names: msgspec.Raw = NO_RAW


_trace = msgspec.json.Decoder(TraceBody)
_values = msgspec.json.Decoder(list[msgspec.Raw])
_name = msgspec.json.Decoder(str)


async def trace_add(call: "Call") -> Reply:
    read = partial(_read, tenant=call.tenant)
    trace = await payloads.parsed(read, call.body)
    partition_id = uuid_text(trace.partition_id)
    if partition_id is None:
        if call.broker.config.tenants:
            return NO_MESSAGE
        raise StoreError("trace failed: partitionId is not a UUID")
    trace = replace(trace, partition_id=partition_id)
    try:
        trace_id = await trace_service.add(call.broker, trace)
    except StoreError as error:
        if error.code != "pool":
            error.text = f"trace failed: {error.text}"
        raise
    if trace_id is None:
        return NO_MESSAGE
    return Reply(201, b'{"success":true,"traceId":"%b"}' % trace_id.encode("ascii"))


def _read(body: bytes, tenant: UUID) -> NewTrace:
    said = payloads.decode(json_text(body), _trace.decode, TraceBody)
    if not said.transaction_id or not said.partition_id:
        raise RequestError("transactionId and partitionId are required")
    data = bytes(said.data)
    if data in (b"", b"null"):
        raise RequestError("data is required")
    if len(data) > DATA_BYTES_MAX:
        text = f"data of a trace has at most {DATA_BYTES_MAX} bytes"
        raise RequestError(text, code="body_too_large")
    check_identifier("transactionId", said.transaction_id, wire.TRANSACTION_ID_BYTES_MAX)
    group = said.consumer_group or QUEUE_MODE
    check_identifier("consumerGroup", group)
    event_type = "info" if said.event_type is None else said.event_type
    check_identifier("eventType", event_type)
    return NewTrace(
        tenant=tenant,
        partition_id=said.partition_id,
        transaction_id=said.transaction_id,
        data=data,
        group=group,
        event_type=event_type,
        names=_names_of(bytes(said.trace_names)),
    )


def _names_of(raw: bytes) -> list[str]:
    """An array of strings, or one; what is neither is no name and no error."""
    if not raw.startswith((b"[", b'"')):
        return []
    values = [raw]
    if raw.startswith(b"["):
        values = [bytes(one) for one in payloads.decode(raw, _values.decode, list[msgspec.Raw])]
    texts = [payloads.decode(one, _name.decode, str) for one in values if one.startswith(b'"')]
    names = list(dict.fromkeys(texts))
    if len(names) > NAMES_MAX:
        raise RequestError(f"a trace has at most {NAMES_MAX} names")
    for index, name in enumerate(names):
        check_identifier("traceNames", name, index=index)
    return names


async def traces_of_message(call: "Call") -> Reply:
    partition_id = uuid_text(call.params["partitionId"])
    if partition_id is None:
        return NO_TRACES
    rows = await trace_service.of_message(
        call.broker, call.tenant, partition_id, call.params["transactionId"]
    )
    return Reply(200, b'{"traces":[' + b",".join(map(_trace_object, rows)) + b"]}")


async def traces_by_name(call: "Call") -> Reply:
    query = wire.parse_query(call.query_string)
    limit, offset = _paging(query, PAGE_LIMIT)
    page = NamedPage(
        tenant=call.tenant,
        name=call.params["traceName"],
        limit=limit,
        offset=offset,
        since=_instant(query, "from"),
        until=_instant(query, "to"),
    )
    total, rows = await trace_service.by_name(call.broker, page)
    body = b'{"traces":[' + b",".join(map(_named_object, rows)) + b"],"
    return Reply(200, body + _tail(total, limit, offset))


async def trace_names(call: "Call") -> Reply:
    limit, offset = _paging(wire.parse_query(call.query_string), NAMES_LIMIT)
    total, rows = await trace_service.names(call.broker, call.tenant, limit=limit, offset=offset)
    names = [
        {
            "trace_name": row.name,
            "trace_count": row.traces,
            "message_count": row.messages,
            "last_seen": timestamp_text(row.last_seen_us),
        }
        for row in rows
    ]
    text = json.dumps(names, separators=(",", ":")).encode("ascii")
    return Reply(200, b'{"trace_names":' + text + b"," + _tail(total, limit, offset))


def _paging(query: dict[str, str], limit_default: int) -> tuple[int, int]:
    limit = wire.query_integer(query, "limit", limit_default)
    offset = wire.query_integer(query, "offset", 0)
    assert limit is not None and offset is not None
    return min(max(limit, 1), LIMIT_MAX), max(offset, 0)


def _instant(query: dict[str, str], name: str) -> datetime | None:
    text = query.get(name)
    if not text:
        return None
    instant = read_instant(text)
    if instant is None:
        raise RequestError(f"{name} must be an ISO-8601 instant")
    return instant


def _tail(total: int, limit: int, offset: int) -> bytes:
    return b'"total":%d,"pagination":{"limit":%d,"offset":%d}}' % (total, limit, offset)


def _trace_object(row: TraceRow) -> bytes:
    return b"{" + _members(row) + b"}"


def _named_object(row: NamedTraceRow) -> bytes:
    place = {
        "transaction_id": row.transaction_id,
        "partition_id": row.partition_uid,
        "queue_name": row.queue,
        "partition_name": row.partition,
        "message_payload": None,
    }
    text = json.dumps(place, separators=(",", ":"))[1:].encode("ascii")
    return b"{" + _members(row.trace) + b"," + text


def _members(row: TraceRow) -> bytes:
    head = {
        "id": row.id,
        "event_type": row.event_type,
        "consumer_group": row.group,
        "worker_id": WORKER,
        "created_at": timestamp_text(row.created_us),
    }
    text = json.dumps(head, separators=(",", ":"))[1:-1]
    return text.encode("ascii") + b',"trace_names":' + row.names.encode() + b',"data":' + row.data


HANDLERS: dict[str, Callable[["Call"], Awaitable[Reply]]] = {
    handler.__name__: handler
    for handler in (trace_add, traces_of_message, traces_by_name, trace_names)
}
