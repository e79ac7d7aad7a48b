"""Request bodies of the hot routes, from bytes to domain values.

The fast path is msgspec with raw payloads: a payload is never decoded, its bytes are cut
out. msgspec is as strict as RFC 8259 with two exceptions, both seen to here: it does not
check the UTF-8 of what it skips (so the body is checked first), and it refuses lone
surrogate escapes, which the RFC allows (so a body that has one is read by tolerant.py).
A null is an absent key, except for a payload, which may be null.

Imports domain, errors, tolerant, wire. Used by hot.py.
"""

import asyncio
import re
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import msgspec

from brokers.api import tolerant
from brokers.api.wire import (
    INTEGER_MAX,
    INTEGER_MIN,
    NAME_BYTES_MAX,
    NAME_SURELY_SHORT,
    TRANSACTION_ID_BYTES_MAX,
    TRANSACTION_ID_SURELY_SHORT,
    check_identifier,
    json_text,
)
from brokers.domain import DEFAULT_PARTITION, QUEUE_MODE, Ack, PushItem
from brokers.errors import RequestError

LEASE_EXTENSION_DEFAULT_S = 60
LEASE_EXTENSION_MAX_S = 31_536_000
ERROR_TEXT_BYTES_MAX = 65_535
# Decoding a body of this size takes long enough that others should run meanwhile.
THREAD_BODY_BYTES = 262_144
NO_RAW = msgspec.Raw(b"")
EMPTY_OBJECT = b"{}"

# An escape that may be half of a surrogate pair. In a false alarm (a whole pair, or the
# text behind an escaped backslash) msgspec has succeeded and nobody asks.
_surrogate = re.compile(rb"\\u[dD][89a-fA-F]")

T = TypeVar("T")


class PushItemBody(msgspec.Struct, gc=False, rename="camel"):
    queue: str
    payload: msgspec.Raw
    partition: str | None = None
    transaction_id: str | None = None


class PushBody(msgspec.Struct, gc=False):
    items: list[PushItemBody]


class AckBody(msgspec.Struct, gc=False, rename="camel"):
    transaction_id: str
    partition_id: str
    status: str | None = None
    consumer_group: str | None = None
    lease_id: str | None = None
    error: str | None = None


class AckItemBody(msgspec.Struct, gc=False, rename="camel"):
    transaction_id: str
    partition_id: str
    status: str | None = None
    lease_id: str | None = None
    error: str | None = None


class AckBatchBody(msgspec.Struct, gc=False, rename="camel"):
    acknowledgments: list[AckItemBody]
    consumer_group: str | None = None


class LeaseBody(msgspec.Struct, gc=False):
    seconds: int | None = None


class TransactionItemBody(msgspec.Struct, gc=False, rename="camel"):
    queue: str
    payload: msgspec.Raw = NO_RAW
    data: msgspec.Raw = NO_RAW
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: msgspec.Raw = NO_RAW


class PushOperation(msgspec.Struct, gc=False, rename="camel", tag="push", tag_field="type"):
    """`items`, or one item written flat into the operation."""

    items: list[TransactionItemBody] | None = None
    queue: str | None = None
    payload: msgspec.Raw = NO_RAW
    data: msgspec.Raw = NO_RAW
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: msgspec.Raw = NO_RAW


class AckOperation(msgspec.Struct, gc=False, rename="camel", tag="ack", tag_field="type"):
    transaction_id: str
    partition_id: str
    status: str | None = None
    consumer_group: str | None = None
    lease_id: str | None = None
    error: str | None = None


class TransactionBody(msgspec.Struct, gc=False, rename="camel"):
    operations: list[PushOperation | AckOperation]
    required_leases: list[str] | None = None
    kv: msgspec.Raw = NO_RAW
    timers: msgspec.Raw = NO_RAW


class Transaction(msgspec.Struct, gc=False):
    """A transaction as its service wants it, but for the tenant and the producer.

    The riders are still as they stood in the body.
    """

    operations: list[PushItem | Ack]
    required_leases: list[str]
    mentions_lease: bool
    # The arrays as they were sent: their own readers take them, as on the routes.
    kv: bytes
    timers: bytes


_push = msgspec.json.Decoder(PushBody)
_ack = msgspec.json.Decoder(AckBody)
_ack_batch = msgspec.json.Decoder(AckBatchBody)
_lease = msgspec.json.Decoder(LeaseBody)
_transaction = msgspec.json.Decoder(TransactionBody)
_string = msgspec.json.Decoder(str)


async def parsed(parse: Callable[[bytes], T], body: bytes) -> T:
    """What `parse` makes of a body; a large one is read beside the loop."""
    if len(body) < THREAD_BODY_BYTES:
        return parse(body)
    return await asyncio.to_thread(parse, body)


def push_items(body: bytes) -> list[PushItem]:
    body = json_text(body)
    parsed = decode(body, _push.decode, PushBody)
    # Without a backslash there is no escape, hence no NUL and no lone surrogate.
    escapes = b"\\" in body
    items: list[PushItem] = []
    add = items.append
    for index, one in enumerate(parsed.items):
        queue, partition, transaction_id = one.queue, one.partition, one.transaction_id
        if partition is None:
            partition = DEFAULT_PARTITION
        if (
            escapes
            or len(queue) > NAME_SURELY_SHORT
            or len(partition) > NAME_SURELY_SHORT
            or (transaction_id is not None and len(transaction_id) > TRANSACTION_ID_SURELY_SHORT)
        ):
            _check_address(queue, partition, transaction_id, index)
        add(PushItem(queue, partition, bytes(one.payload), transaction_id))
    return items


def single_ack(body: bytes) -> Ack:
    one = decode(json_text(body), _ack.decode, AckBody)
    return _ack_of(one, _group(one.consumer_group, None), None)


def ack_batch(body: bytes) -> list[Ack]:
    """The group is of the whole batch; one inside an item is ignored."""
    body = json_text(body)
    parsed = decode(body, _ack_batch.decode, AckBatchBody)
    group = _group(parsed.consumer_group, None)
    if b"\\" in body:
        return [_ack_of(one, group, index) for index, one in enumerate(parsed.acknowledgments)]
    # Without an escape an identifier that is surely short enough is a good one.
    return [
        Ack(one.transaction_id, one.partition_id, group, one.lease_id or None, one.status)
        if (
            one.error is None
            and len(one.transaction_id) <= TRANSACTION_ID_SURELY_SHORT
            and len(one.partition_id) <= NAME_SURELY_SHORT
            and (one.lease_id is None or len(one.lease_id) <= NAME_SURELY_SHORT)
        )
        else _ack_of(one, group, index)
        for index, one in enumerate(parsed.acknowledgments)
    ]


def lease_seconds(body: bytes) -> int:
    body = json_text(body)
    if not body.strip(b" \t\r\n"):
        return LEASE_EXTENSION_DEFAULT_S
    seconds = decode(body, _lease.decode, LeaseBody).seconds
    if seconds is None:
        return LEASE_EXTENSION_DEFAULT_S
    if not INTEGER_MIN <= seconds <= INTEGER_MAX:
        raise RequestError("seconds must be an integer of at most 64 bits")
    return min(max(seconds, 1), LEASE_EXTENSION_MAX_S)


def transaction(body: bytes) -> Transaction:
    parsed = decode(json_text(body), _transaction.decode, TransactionBody)
    kv, timers = bytes(parsed.kv), bytes(parsed.timers)
    has_kv, has_timers = _has_elements("kv", kv), _has_elements("timers", timers)
    if not (parsed.operations or has_kv or has_timers):
        raise RequestError("bad body: operations must not be empty", code="bad_body")
    leases = parsed.required_leases or []
    for index, lease_id in enumerate(leases):
        check_identifier("requiredLeases", lease_id, NAME_BYTES_MAX, index)
    operations: list[PushItem | Ack] = []
    mentions_lease = bool(leases)
    for operation in parsed.operations:
        if isinstance(operation, AckOperation):
            index = len(operations)
            ack = _ack_of(operation, _group(operation.consumer_group, index), index)
            mentions_lease = mentions_lease or ack.lease_id is not None
            operations.append(ack)
        else:
            for item in _items_of(operation):
                operations.append(_push_of(item, len(operations)))
    return Transaction(operations, leases, mentions_lease, kv, timers)


def decode(body: bytes, decode: Callable[[bytes], T], shape: type[T]) -> T:
    try:
        return decode(body)
    except RecursionError:
        raise RequestError("bad body: nested too deeply", code="bad_body") from None
    except msgspec.MsgspecError as error:
        if _surrogate.search(body) is None:
            raise RequestError(f"bad body: {error}", code="bad_body") from None
    return tolerant.decode(body, shape)


def _check_address(
    queue: str, partition: str, transaction_id: str | None, index: int | None
) -> None:
    check_identifier("queue", queue, NAME_BYTES_MAX, index)
    check_identifier("partition", partition, NAME_BYTES_MAX, index)
    if transaction_id is not None:
        check_identifier("transactionId", transaction_id, TRANSACTION_ID_BYTES_MAX, index)


def _group(name: str | None, index: int | None) -> str:
    """An empty name is no group, as in a query."""
    if not name:
        return QUEUE_MODE
    check_identifier("consumerGroup", name, NAME_BYTES_MAX, index)
    return name


def _ack_of(one: AckBody | AckItemBody | AckOperation, group: str, index: int | None) -> Ack:
    check_identifier("transactionId", one.transaction_id, TRANSACTION_ID_BYTES_MAX, index)
    check_identifier("partitionId", one.partition_id, NAME_BYTES_MAX, index)
    # "" is the leaseId of a message that was committed by its pop: no lease.
    lease_id = one.lease_id or None
    if lease_id is not None:
        check_identifier("leaseId", lease_id, NAME_BYTES_MAX, index)
    error = None if one.error is None else storable_text(one.error)
    return Ack(one.transaction_id, one.partition_id, group, lease_id, one.status, error)


def storable_text(text: str) -> str:
    """Free text for the log of a dead letter: what PostgreSQL cannot hold becomes visible.

    A nack must not fail because the consumer's error quotes a strange byte.
    """
    encoded = text.replace("\x00", "\\u0000").encode("utf-8", "backslashreplace")
    return encoded[:ERROR_TEXT_BYTES_MAX].decode("utf-8", "ignore")


def _items_of(operation: PushOperation) -> list[TransactionItemBody]:
    if operation.items is not None:
        return operation.items
    if operation.queue is None:
        raise RequestError("bad body: a push operation needs items or a queue", code="bad_body")
    flat = TransactionItemBody(
        operation.queue,
        operation.payload,
        operation.data,
        operation.partition,
        operation.transaction_id,
        operation.trace_id,
    )
    return [flat]


def _push_of(item: TransactionItemBody, index: int) -> PushItem:
    partition = DEFAULT_PARTITION if item.partition is None else item.partition
    _check_address(item.queue, partition, item.transaction_id, index)
    payload = bytes(item.payload) or bytes(item.data) or EMPTY_OBJECT
    trace_id = _uuid_or_none(bytes(item.trace_id))
    return PushItem(item.queue, partition, payload, item.transaction_id, trace_id)


def _uuid_or_none(raw: bytes) -> str | None:
    """A traceId that is no UUID is dropped: no transaction fails for its tracing."""
    if not raw.startswith(b'"') or len(raw) > 64:
        return None
    try:
        text = _string.decode(raw)
        return str(UUID(text)) if len(text) == 36 else None
    except (msgspec.MsgspecError, ValueError):
        return None


def _has_elements(name: str, raw: bytes) -> bool:
    """Whether a rider of a transaction brings anything; its elements are read elsewhere."""
    if raw in (b"", b"null"):
        return False
    if not raw.startswith(b"["):
        raise RequestError(f"bad body: {name} must be an array", code="bad_body")
    return bool(raw[1:-1].strip(b" \t\r\n"))
