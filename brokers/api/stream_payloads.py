"""The bodies of the streams' routes, from bytes to requests.

State values and payloads are never decoded: their bytes are cut out. Of a state value one
member is looked at, `windowEnd`, because the route that reads state filters by it.

Imports domain, errors, flow/acks, payloads, wire, services/streams, store. Used by
hot_streams.py.
"""

import re
from uuid import UUID

import msgspec

from brokers import frames
from brokers.api import payloads
from brokers.api.payloads import EMPTY_OBJECT, NO_RAW
from brokers.api.wire import (
    INTEGER_MAX,
    NAME_BYTES_MAX,
    TRANSACTION_ID_BYTES_MAX,
    check_identifier,
    json_text,
)
from brokers.domain import DEFAULT_PARTITION, QUEUE_MODE, PushItem
from brokers.errors import RequestError, harmless
from brokers.flow.acks import ACTIONS, COMPLETED, uuid_text
from brokers.services.streams import CycleRequest, RegisterRequest, StateRequest
from brokers.store.stream_calls import GIVE_BACK, PART, WHOLE, CycleAck, StateWrite

# What an index can hold for certain, beside the two numbers before it.
STATE_KEY_BYTES_MAX = 2048
OP_TEXT_MAX = 100

_integer = re.compile(rb"-?[0-9]{1,19}")
_number = re.compile(rb"-?[0-9].*", re.DOTALL)


class RegisterBody(msgspec.Struct, gc=False):
    name: str | None = None
    source_queue: str | None = None
    sink_queue: str | None = None
    config_hash: str | None = None
    reset: msgspec.Raw = NO_RAW


class StateBody(msgspec.Struct, gc=False):
    query_id: str | None = None
    partition_id: str | None = None
    keys: list[str] | None = None
    key_prefix: str | None = None
    ripe_at_or_before: msgspec.Raw = NO_RAW


class StateOpBody(msgspec.Struct, gc=False):
    type: str | None = None
    key: str | None = None
    value: msgspec.Raw = NO_RAW


class SinkItemBody(msgspec.Struct, gc=False, rename="camel"):
    queue: str | None = None
    partition: str | None = None
    payload: msgspec.Raw = NO_RAW
    data: msgspec.Raw = NO_RAW
    message_id: str | None = None
    transaction_id: str | None = None


class CycleAckBody(msgspec.Struct, gc=False, rename="camel"):
    transaction_id: str | None = None
    lease_id: str | None = None
    status: str | None = None
    count: msgspec.Raw = NO_RAW


class CycleBody(msgspec.Struct, gc=False):
    query_id: str | None = None
    partition_id: str | None = None
    consumer_group: str | None = None
    state_ops: list[StateOpBody] | None = None
    push_items: list[SinkItemBody] | None = None
    ack: CycleAckBody | None = None
    release_lease: msgspec.Raw = NO_RAW


class Windowed(msgspec.Struct, gc=False, rename="camel"):
    window_end: msgspec.Raw = NO_RAW


_register = msgspec.json.Decoder(RegisterBody)
_state = msgspec.json.Decoder(StateBody)
_cycle = msgspec.json.Decoder(CycleBody)
_windowed = msgspec.json.Decoder(Windowed)


def register(body: bytes, tenant: UUID) -> RegisterRequest:
    said = payloads.decode(json_text(body), _register.decode, RegisterBody)
    name = _text("name", said.name)
    config_hash = _text("config_hash", said.config_hash)
    if said.source_queue is None:
        raise RequestError("source_queue is required")
    check_identifier("source_queue", said.source_queue)
    if said.sink_queue is not None:
        check_identifier("sink_queue", said.sink_queue)
    return RegisterRequest(
        tenant=tenant,
        name=name,
        source_queue=said.source_queue,
        sink_queue=said.sink_queue or None,
        config_hash=config_hash,
        reset=_truth("reset", said.reset, otherwise=False),
    )


def state(body: bytes, tenant: UUID) -> StateRequest:
    said = payloads.decode(json_text(body), _state.decode, StateBody)
    for index, key in enumerate(said.keys or ()):
        check_identifier("keys", key, STATE_KEY_BYTES_MAX, index)
    if said.key_prefix:
        check_identifier("key_prefix", said.key_prefix, STATE_KEY_BYTES_MAX)
    return StateRequest(
        tenant=tenant,
        query_id=_uuid("query_id", said.query_id),
        partition_id=_uuid("partition_id", said.partition_id),
        keys=said.keys or None,
        prefix=said.key_prefix or None,
        ripe_at=_ripe_at(bytes(said.ripe_at_or_before)),
    )


def cycle(body: bytes, tenant: UUID, producer_sub: str | None) -> CycleRequest:
    said = payloads.decode(json_text(body), _cycle.decode, CycleBody)
    query_id = _uuid("query_id", said.query_id)
    partition_id = _uuid("partition_id", said.partition_id)
    group = said.consumer_group or QUEUE_MODE
    check_identifier("consumer_group", group)
    state, refused = _state_of(said.state_ops or [])
    # An item without a queue goes nowhere: the SDKs' way to say that there is no sink.
    sinks = [one for one in said.push_items or () if one.queue]
    release = _truth("release_lease", said.release_lease, otherwise=True)
    return CycleRequest(
        tenant=tenant,
        query_id=query_id,
        partition_id=partition_id,
        group=group,
        state=state,
        state_ops=len(said.state_ops or ()),
        items=[_item(one, index) for index, one in enumerate(sinks)],
        message_ids=[uuid_text(one.message_id or "") for one in sinks],
        ack=None if said.ack is None else _ack(said.ack, release=release),
        refused=refused,
        producer_sub=producer_sub,
    )


def _state_of(ops: list[StateOpBody]) -> tuple[dict[str, StateWrite], str | None]:
    """What the operations come to, in their order, and what is wrong with one of them."""
    state: dict[str, StateWrite] = {}
    for index, one in enumerate(ops):
        if one.type not in ("upsert", "delete"):
            told = harmless(str(one.type)[:OP_TEXT_MAX])
            return {}, f"state_ops[{index}]: unknown type {told}"
        if one.key is None:
            raise RequestError(f"key of state_ops item {index} is required")
        check_identifier("key of state_ops", one.key, STATE_KEY_BYTES_MAX, index)
        if one.type == "delete":
            state[one.key] = StateWrite(None, None)
        else:
            value = bytes(one.value) or b"null"
            state[one.key] = StateWrite(value, window_end(value))
    return state, None


def window_end(value: bytes) -> float | None:
    """The number under `windowEnd` of an object; None when there is none."""
    if not value.startswith(b"{") or not (b"windowEnd" in value or b"\\" in value):
        return None
    return _float(bytes(payloads.decode(value, _windowed.decode, Windowed).window_end))


def _item(one: SinkItemBody, index: int) -> PushItem:
    assert one.queue is not None
    partition = DEFAULT_PARTITION if one.partition is None else one.partition
    check_identifier("queue", one.queue, NAME_BYTES_MAX, index)
    check_identifier("partition", partition, NAME_BYTES_MAX, index)
    if one.message_id is not None and uuid_text(one.message_id) is None:
        raise RequestError(f"messageId of item {index} must be a UUID")
    transaction_id = one.message_id if one.transaction_id is None else one.transaction_id
    if transaction_id is not None:
        check_identifier("transactionId", transaction_id, TRANSACTION_ID_BYTES_MAX, index)
    payload = bytes(one.payload) or bytes(one.data) or EMPTY_OBJECT
    return PushItem(one.queue, partition, payload, transaction_id)


def _ack(said: CycleAckBody, *, release: bool) -> CycleAck:
    """A lease that is no UUID is nobody's. The status words are those of any ack."""
    count = _count(bytes(said.count))
    transaction = None
    if said.transaction_id:
        check_identifier("ack.transactionId", said.transaction_id, TRANSACTION_ID_BYTES_MAX)
        transaction = frames.literal(said.transaction_id)
    lease_id = uuid_text(said.lease_id or "")
    if ACTIONS.get(said.status) != COMPLETED:
        return CycleAck(GIVE_BACK, lease_id, transaction, count)
    if release:
        return CycleAck(WHOLE, lease_id, transaction, count)
    if count is None:
        raise RequestError("ack.count is required where release_lease is false")
    return CycleAck(PART, lease_id, transaction, count)


def _count(raw: bytes) -> int | None:
    if raw in (b"", b"null"):
        return None
    # Far below 64 bits, because it is added to an offset.
    if _integer.fullmatch(raw) is None or not 0 <= int(raw) <= INTEGER_MAX // 2:
        raise RequestError("ack.count must be an integer that is not negative")
    return int(raw)


def _text(name: str, value: str | None) -> str:
    if not value:
        raise RequestError(f"{name} is required")
    check_identifier(name, value)
    return value


def _uuid(name: str, value: str | None) -> str:
    if not value:
        raise RequestError(f"{name} is required")
    found = uuid_text(value)
    if found is None:
        raise RequestError(f"{name} must be a UUID")
    return found


def _truth(name: str, raw: msgspec.Raw, *, otherwise: bool) -> bool:
    text = bytes(raw)
    if text in (b"", b"null"):
        return otherwise
    if text not in (b"true", b"false"):
        raise RequestError(f"{name} must be true or false")
    return text == b"true"


def _ripe_at(raw: bytes) -> float | None:
    if raw in (b"", b"null"):
        return None
    value = _float(raw)
    if value is None:
        raise RequestError("ripe_at_or_before must be a number")
    return value


def _float(raw: bytes) -> float | None:
    """A JSON number, which may be too large for one that is finite; else None."""
    return float(raw) if _number.fullmatch(raw) else None
