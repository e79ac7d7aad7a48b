"""The operations of timers, from bytes to domain values: for their route and for a transaction.

An operation is read key by key, because some keys are the server's alone and are refused
by name. The payload comes as base64, perhaps compressed; what it decodes to must be JSON,
as strictly as in a push, and is kept byte for byte.

Imports domain, errors, payloads, tolerant, wire. Used by hot_timers.py and hot.py.
"""

import binascii
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import zstandard

from brokers.api import tolerant
from brokers.api.wire import (
    INTEGER_MAX,
    INTEGER_MIN,
    NAME_BYTES_MAX,
    TIMER_KEY_BYTES_MAX,
    TRANSACTION_ID_BYTES_MAX,
    identifier_problem,
    json_text,
)
from brokers.config import TimersConfig
from brokers.domain import DEFAULT_PARTITION, TimerOperation
from brokers.errors import RequestError

# A message id holds the time it is due, and has none for times before 1970.
PAST_MAX_MS = 1_000_000_000_000
ZSTD_WINDOW_MAX = 8_388_608
SCHEDULES = ("schedule", "reschedule")
SERVERS_OWN = ("producerSub", "messageId", "tenant")
SPACE = b" \t\r\n"
_surrogate = re.compile(rb"\\u[dD][89a-fA-F]")

_operations = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_body = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any = msgspec.json.Decoder(msgspec.Raw)
_fields: dict[type, Any] = {kind: msgspec.json.Decoder(kind) for kind in (str, int, bool)}
_NAMES = {str: "a string", int: "an integer", bool: "true or false"}


def bad(text: str) -> RequestError:
    return timers_error("timers_bad_request", text)


def timers_error(code: str, text: str) -> RequestError:
    return RequestError(text, code=code)


def batch(body: bytes, config: TimersConfig) -> list[TimerOperation]:
    """The body of the route: `{"operations": [...]}`."""
    try:
        raw = _body.decode(_json_text(body)).get("operations")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise bad(f"bad body: {error}") from None
    if raw is None:
        raise bad("operations is required")
    return operations(bytes(raw), config)


def rider(raw: bytes, config: TimersConfig) -> list[TimerOperation]:
    """The timers of a transaction; absent and null are none."""
    return [] if raw in (b"", b"null") else operations(raw, config)


def operations(raw: bytes, config: TimersConfig) -> list[TimerOperation]:
    """An array of operations, all of them checked."""
    try:
        found = _operations.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise bad(f"bad operations: {error}") from None
    if len(found) > config.ops_max:
        raise bad(f"at most {config.ops_max} operations a call")
    read = [_operation(Fields(one, no), config) for no, one in enumerate(found)]
    _refuse_repeated(read)
    for no, one in enumerate(read):
        if one.delay_ms is not None and one.delay_ms > config.horizon_s * 1000:
            raise timers_error(
                "timer_horizon_exceeded",
                f"delayMs of operation {no} is beyond {config.horizon_s} s",
            )
    return read


class Fields:
    """The keys of one operation; an explicit null is an absent key."""

    def __init__(self, raw: dict[str, msgspec.Raw], no: int) -> None:
        self._no = no
        self._raw = {name: bytes(value) for name, value in raw.items()}
        for name in self._raw:
            if name in SERVERS_OWN or name.startswith("_"):
                raise self.bad(name, "is the server's own and cannot be sent")

    def bad(self, name: str, problem: str) -> RequestError:
        return bad(f"{name} of operation {self._no} {problem}")

    def value(self, name: str, kind: type) -> Any:
        raw = self._raw.get(name, b"null")
        if raw == b"null":
            return None
        try:
            return _fields[kind].decode(raw)
        except msgspec.MsgspecError:
            raise self.bad(name, f"must be {_NAMES[kind]}") from None

    def identifier(self, name: str, bytes_max: int) -> str | None:
        value: str | None = self.value(name, str)
        problem = None if value is None else identifier_problem(value, bytes_max)
        if problem is not None:
            raise self.bad(name, problem)
        return value

    def required(self, name: str, value: Any) -> Any:
        if value is None:
            raise self.bad(name, "is required")
        return value


def _operation(fields: Fields, config: TimersConfig) -> TimerOperation:
    op = fields.required("op", fields.value("op", str))
    if op not in (*SCHEDULES, "cancel"):
        raise fields.bad("op", "must be schedule, reschedule or cancel")
    queue = fields.required("queue", fields.identifier("queue", NAME_BYTES_MAX))
    key = fields.required("timerKey", fields.identifier("timerKey", TIMER_KEY_BYTES_MAX))
    if not key:
        raise fields.bad("timerKey", "must not be empty")
    txn = fields.identifier("txn", TRANSACTION_ID_BYTES_MAX)
    if op == "cancel":
        return TimerOperation(queue, key, txn)
    fields.required("txn", txn)
    delay_ms = fields.required("delayMs", fields.value("delayMs", int))
    if not INTEGER_MIN <= delay_ms <= INTEGER_MAX:
        raise fields.bad("delayMs", "must be an integer of at most 64 bits")
    partition = fields.identifier("partition", NAME_BYTES_MAX)
    marked = bool(fields.value("encrypted", bool))
    return TimerOperation(
        queue=queue,
        key=key,
        txn=txn,
        # The past reaches as far back as the future goes: all of it fires at once.
        delay_ms=max(delay_ms, -config.horizon_s * 1000, -PAST_MAX_MS),
        partition=DEFAULT_PARTITION if partition is None else partition,
        payload=_payload(fields, config.payload_bytes_max),
        marked_encrypted=marked,
    )


def _refuse_repeated(read: Sequence[TimerOperation]) -> None:
    seen: set[tuple[str, str]] = set()
    for no, one in enumerate(read):
        if (one.queue, one.key) in seen:
            raise bad(f"operation {no} names a queue and timerKey that stand in the batch already")
        seen.add((one.queue, one.key))


def _payload(fields: Fields, bytes_max: int) -> bytes:
    text: str = fields.required("payload", fields.value("payload", str))
    compressed = bool(fields.value("payloadZstd", bool))
    # Four characters for three bytes: too long is known before anything is decoded.
    if len(text) // 4 * 3 > bytes_max + 2 and not compressed:
        raise _too_large(bytes_max)
    try:
        raw = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise fields.bad("payload", "must be base64") from None
    if compressed:
        raw = _decompressed(fields, raw, bytes_max)
    if len(raw) > bytes_max:
        raise _too_large(bytes_max)
    problem = _json_problem(raw)
    if problem is not None:
        raise fields.bad("payload", f"must decode to JSON: {problem}")
    return raw.strip(SPACE)


def _too_large(bytes_max: int) -> RequestError:
    return timers_error("payload_too_large", f"a payload has at most {bytes_max} bytes")


def _decompressed(fields: Fields, raw: bytes, bytes_max: int) -> bytes:
    """Never more than one byte beyond the limit, whatever the frame promises."""
    decoder = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX)
    try:
        with decoder.stream_reader(raw, read_across_frames=True) as reader:
            parts, size = [], 0
            while size <= bytes_max and (part := reader.read(bytes_max + 1 - size)):
                parts.append(part)
                size += len(part)
    except zstandard.ZstdError:
        raise fields.bad("payload", "must be zstd data where payloadZstd is set") from None
    return b"".join(parts)


def _json_problem(raw: bytes) -> str | None:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8 (byte {error.start})"
    try:
        _any.decode(tolerant.without_halves(raw)[0] if _surrogate.search(raw) else raw)
    except RecursionError:
        return "nested too deeply"
    except msgspec.MsgspecError as error:
        return str(error)
    return None


def _json_text(body: bytes) -> bytes:
    try:
        return json_text(body)
    except RequestError as error:
        raise bad(error.text) from None
