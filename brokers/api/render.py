"""Answers as bytes, built by hand: messages are spliced in as they lie in the log.

A payload never passes through an encoder on its way out; the bytes that a producer wrote
are the bytes that a consumer gets. Only what we say ourselves is encoded.

Imports domain, errors, render_kv. Used by hot.py.
"""

import json
from collections.abc import Sequence
from datetime import UTC
from json.encoder import encode_basestring
from uuid import uuid4

from brokers.api import render_kv, render_timers
from brokers.domain import (
    AckOutcome,
    LeaseExtension,
    OperationResult,
    PopResult,
    PushItem,
    PushOutcome,
    TransactionResult,
)
from brokers.errors import harmless


def push(items: Sequence[PushItem], outcomes: Sequence[PushOutcome]) -> bytes:
    """The mixed casing is the contract."""
    parts: list[str] = []
    queue, queue_literal = "", '""'
    for index, (item, outcome) in enumerate(zip(items, outcomes, strict=True)):
        if item.queue != queue:
            queue, queue_literal = item.queue, encode_basestring(item.queue)
        failure = "" if outcome.error is None else f',"error":{_text(outcome.error)}'
        parts.append(
            f'{{"index":{index},"message_id":"{outcome.message_id}",'
            f'"transaction_id":{encode_basestring(outcome.transaction_id)},'
            f'"queueName":{queue_literal},"status":"{outcome.status}"{failure}}}'
        )
    return f"[{','.join(parts)}]".encode()


def stored(items: Sequence[PushItem], ids: Sequence[str], literals: Sequence[str]) -> bytes:
    """What `push` makes when every item was queued; `literals` are the transactionIds."""
    parts: list[str] = []
    queue, tail = None, ""
    for index, (item, message_id, literal) in enumerate(zip(items, ids, literals, strict=True)):
        if item.queue != queue:
            queue = item.queue
            tail = f',"queueName":{encode_basestring(queue)},"status":"queued"}}'
        parts.append(
            f'{{"index":{index},"message_id":"{message_id}","transaction_id":{literal}{tail}'
        )
    return f"[{','.join(parts)}]".encode()


def pop(result: PopResult) -> bytes:
    """The envelope of a delivery, or of an empty conflating one."""
    flags = ""
    if result.conflation:
        flags += ',"conflation":true'
    if result.conflation_conflict:
        flags += ',"conflationConflict":true'
    if result.paused:
        flags += ',"paused":true'
    if result.autopilot is not None:
        flags += f',"autopilot":{json.dumps(result.autopilot)}'
    head = (
        f'{{"success":true,"queue":{encode_basestring(result.queue)},'
        f'"partition":{encode_basestring(result.partition)},'
        f'"partitionId":{encode_basestring(result.partition_id)},'
        f'"leaseId":{encode_basestring(result.lease_id)},'
        f'"consumerGroup":{encode_basestring(result.group)},'
        f'"partitionsClaimed":{result.partitions_claimed}{flags},"messages":['
    )
    return b"".join((head.encode(), b",".join(result.messages), b"]}"))


def is_nothing(result: PopResult) -> bool:
    """Whether the answer is a bare 204; a conflating pop is told so even when it is empty."""
    return not (result.messages or result.conflation or result.conflation_conflict)


def acks(outcomes: Sequence[AckOutcome]) -> bytes:
    parts: list[str] = []
    last: tuple[object, ...] = ()
    tail = ""
    for index, outcome in enumerate(outcomes):
        rest = outcome[1:]
        if rest != last:  # most have the outcome of the one before
            last, tail = rest, _ack_tail(outcome)
        parts.append(f'{{"index":{index},"transactionId":{encode_basestring(outcome[0])}{tail}')
    return f"[{','.join(parts)}]".encode()


def _ack_tail(outcome: AckOutcome) -> str:
    conflated = "" if outcome.conflated is None else f',"conflated":{outcome.conflated}'
    return (
        f',"success":{_boolean(outcome.success)},"error":{_optional(outcome.error)},'
        f'"leaseReleased":{_boolean(outcome.lease_released)},'
        f'"dlq":{_boolean(outcome.dlq)},"noop":{_boolean(outcome.noop)}{conflated}}}'
    )


def lease(lease_id: str, extension: LeaseExtension) -> bytes:
    """One expiry under three names: each client looks for another one."""
    expires = "null"
    if extension.expires_at is not None:
        expires = extension.expires_at.astimezone(UTC).strftime('"%Y-%m-%dT%H:%M:%S.%fZ"')
    return (
        f'{{"leaseId":{encode_basestring(lease_id)},'
        f'"success":{_boolean(extension.renewed > 0)},"renewed":{extension.renewed},'
        f'"newExpiresAt":{expires},"expiresAt":{expires},"lease_expires_at":{expires}}}'
    ).encode()


def transaction(result: TransactionResult) -> bytes:
    head = (
        f'{{"transactionId":{encode_basestring(result.transaction_id)},'
        f'"success":{_boolean(result.success)}'
    )
    if not result.success:
        head += f',"reason":{_optional(result.reason)},"error":{_text(result.error or "")}'
    start = head.encode()
    if result.lost is not None:
        start += b"," + render_kv.lost_fields(result.lost)
    parts = ",".join([_operation(index, one) for index, one in enumerate(result.results)])
    return start + f',"results":[{parts}]}}'.encode()


def refused_transaction(reason: str, error: str) -> bytes:
    """A transaction that was turned away before it reached the database."""
    return transaction(
        TransactionResult(
            transaction_id=str(uuid4()), success=False, results=[], reason=reason, error=error
        )
    )


def _operation(index: int, one: OperationResult) -> str:
    if one.timer is not None:
        own = render_timers.members(*one.timer)
        return f'{{"index":{index},"type":"timer","success":{_boolean(one.success)},{own}}}'
    if one.kv is not None:
        return render_kv.element(index, one.kv, b',"type":"kv","success":true').decode()
    head = (
        f'{{"index":{index},"type":"{one.type}","success":{_boolean(one.success)},'
        f'"transactionId":{encode_basestring(one.transaction_id)}'
    )
    if one.type == "push":
        duplicate = ',"duplicate":true' if one.duplicate else ""
        failure = "" if one.error is None else f',"error":{_text(one.error)}'
        return (
            f'{head},"messageId":{_optional(one.message_id)},'
            f'"queueName":{_optional(one.queue)}{duplicate}{failure}}}'
        )
    return f'{head},"error":{_optional(one.error)},"dlq":{_boolean(one.dlq)}}}'


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _optional(text: str | None) -> str:
    return "null" if text is None else _text(text)


def _text(text: str) -> str:
    return encode_basestring(harmless(text))
