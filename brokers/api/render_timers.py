"""Timers as bytes: what became of operations, and what is pending.

Imports domain, errors, frames. Used by hot_timers.py and render.py.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from json.encoder import encode_basestring

from brokers.domain import Timer, TimerOperation, TimerOutcome
from brokers.errors import harmless
from brokers.frames import timestamp_text

NOT_FOUND = b'{"found":false}'


def members(operation: TimerOperation, outcome: TimerOutcome) -> str:
    """The members of one operation's object, without its braces."""
    txn = "null" if operation.txn is None else encode_basestring(operation.txn)
    told = (
        f'"ok":{"true" if outcome.ok else "false"},"status":"{outcome.status}",'
        f'"queue":{encode_basestring(operation.queue)},'
        f'"timerKey":{encode_basestring(operation.key)},"txn":{txn}'
    )
    if outcome.message_id is not None and outcome.deliver_us is not None:
        told += f',"messageId":"{outcome.message_id}"'
        told += f',"deliverAt":"{timestamp_text(outcome.deliver_us)}"'
    return told


def result(operation: TimerOperation, outcome: TimerOutcome) -> bytes:
    return f"{{{members(operation, outcome)}}}".encode()


def results(operations: Sequence[TimerOperation], outcomes: Sequence[TimerOutcome]) -> bytes:
    pairs = zip(operations, outcomes, strict=True)
    return b'{"results":[' + b",".join([result(*pair) for pair in pairs]) + b"]}"


def peek(queue: str, timer: Timer) -> bytes:
    assert timer.payload is not None
    payload = b64encode(timer.payload).decode("ascii")
    return f'{{"found":true,{_members(queue, timer)},"payload":"{payload}"}}'.encode()


def page(queue: str, timers: Sequence[Timer], *, truncated: bool) -> bytes:
    rows = ",".join([f"{{{_members(queue, one)}}}" for one in timers])
    after = encode_basestring(timers[-1].key) if truncated else "null"
    return (
        f'{{"rows":[{rows}],"truncated":{"true" if truncated else "false"},"nextAfter":{after}}}'
    ).encode()


def count(number: int, *, truncated: bool) -> bytes:
    return b'{"count":%d%b}' % (number, b',"truncated":true' if truncated else b"")


def _members(queue: str, timer: Timer) -> str:
    """The payload is kept as plain JSON, whether or not it came compressed."""
    return (
        f'"queue":{encode_basestring(queue)},"timerKey":{encode_basestring(timer.key)},'
        f'"partition":{encode_basestring(timer.partition)},'
        f'"deliverAt":"{timestamp_text(timer.deliver_us)}","txn":{timer.transaction_literal},'
        f'"messageId":"{timer.message_id}","payloadZstd":false,'
        f'"encrypted":{json.dumps(timer.encrypted)},'
        f'"producerSub":{_optional(timer.producer_sub)},"attempts":{timer.attempts},'
        f'"lastError":{_optional(timer.last_error)},"claimed":{json.dumps(timer.claimed)},'
        f'"createdAt":"{timestamp_text(timer.created_us)}",'
        f'"updatedAt":"{timestamp_text(timer.updated_us)}"'
    )


def _optional(text: str | None) -> str:
    return "null" if text is None else encode_basestring(harmless(text))
