"""The nouns of the broker as plain values: what a request asks and what an answer says.

Nothing here decides anything or speaks to anyone; `services/` takes the requests and
returns the answers, `api/` turns bytes into the former and the latter into bytes.
Times are aware UTC datetimes or seconds (`_s`), sizes are bytes (`_bytes`).

What there are a hundred of in one request is a Struct, which is made in half the time.

Imports nothing of ours. Used by every part of the broker.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

DEFAULT_TENANT = UUID("00000000-0000-0000-0000-000000000001")
DEFAULT_PARTITION = "Default"
QUEUE_MODE = "__QUEUE_MODE__"
NIL_ID = "00000000-0000-0000-0000-000000000000"


class PushItem(Struct, gc=False):
    """One message to store. `payload` is the producer's JSON value, byte for byte."""

    queue: str
    partition: str
    payload: bytes
    transaction_id: str | None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    tenant: UUID
    items: list[PushItem]
    producer_sub: str | None = None


class PushOutcome(NamedTuple):
    """What became of one item: queued | duplicate | buffered | failed."""

    status: str
    message_id: str
    transaction_id: str
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PopRequest:
    """One pop. `queue` None is discovery by namespace/task; None elsewhere is "not sent"."""

    tenant: UUID
    queue: str | None
    partition: str | None = None
    namespace: str = ""
    task: str = ""
    group: str = QUEUE_MODE
    batch: int | None = None
    partitions: int | None = None
    auto_ack: bool = False
    wait: bool = False
    timeout_s: float = 30.0
    lease_s: int | None = None
    subscription_mode: str | None = None
    subscription_from: str | None = None
    conflation: bool = False
    autopilot: bool = False


@dataclass(slots=True)
class PopResult:
    """Messages under one lease, each rendered as its complete JSON object."""

    messages: list[bytes]
    queue: str
    group: str
    partition: str = ""
    partition_id: str = ""
    lease_id: str = ""
    partitions_claimed: int = 0
    conflation: bool = False
    conflation_conflict: bool = False
    paused: bool = False
    autopilot: dict[str, Any] | None = None
    # The partitions (internal ids) under the lease, for handing it back.
    claimed: list[int] = field(default_factory=list)
    claimed_queues: set[int] = field(default_factory=set)


class Ack(Struct, gc=False):
    """One acknowledgment as sent; `status` None is completed."""

    transaction_id: str
    partition_id: str
    group: str = QUEUE_MODE
    lease_id: str | None = None
    status: str | None = None
    error: str | None = None


class AckOutcome(NamedTuple):
    transaction_id: str
    success: bool
    error: str | None = None
    lease_released: bool = False
    dlq: bool = False
    noop: bool = False
    conflated: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseExtension:
    renewed: int
    expires_at: datetime | None


@dataclass(slots=True, kw_only=True)
class KvOperation:
    """One key/value operation, checked. `op` is its name on the wire.

    `keys` are those of a getMany, `key` is the prefix of a getPrefix. `expect` None asks for
    nothing; a `ttl_s` of None is for ever. Numbers of an incr are JSON literals.
    """

    op: str
    namespace: str
    key: str = ""
    keys: list[str] = field(default_factory=list)
    value: bytes = b""
    expect: int | None = None
    ttl_s: int | None = None
    delta: str | None = None
    low: str | None = None
    high: str | None = None
    required: bool = False
    after: str | None = None
    limit: int = 100
    keys_only: bool = False


class KvEntry(NamedTuple):
    """A live entry; `value` None where only keys were asked for."""

    key: str
    value: bytes | None
    version: int
    expires_at: datetime | None
    updated_at: datetime


@dataclass(slots=True)
class KvResult:
    """What became of one operation.

    A get has `entry` or none, a getMany and a getPrefix have `entries`, and the former its
    `missing` keys; `truncated` when the call's bytes or the page ended them. A write has
    `applied`, or the `reason` why not, and the `value` and `version` that are there now.
    """

    operation: KvOperation
    entry: KvEntry | None = None
    entries: list[KvEntry] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    truncated: bool = False
    applied: bool = False
    reason: str | None = None
    value: bytes | None = None
    version: int = 0


class KvLost(NamedTuple):
    """A required operation did not apply, so that none of its call was carried out."""

    no: int
    reason: str
    version: int
    value: bytes | None


@dataclass(slots=True)
class TimerOperation:
    """Schedule (or replace) the message of a timer, or cancel it: then `delay_ms` is None.

    `payload` is the JSON value, byte for byte, or, `encrypted`, the envelope of it.
    `marked_encrypted` is what the caller says of its own payload: kept and shown.
    """

    queue: str
    key: str
    txn: str | None
    delay_ms: int | None = None
    partition: str = DEFAULT_PARTITION
    payload: bytes = b""
    encrypted: bool = False
    marked_encrypted: bool = False


class TimerOutcome(NamedTuple):
    """scheduled | rescheduled | cancelled | absent | too_late."""

    status: str
    message_id: str | None = None
    deliver_us: int | None = None

    @property
    def ok(self) -> bool:
        return self.status in ("scheduled", "rescheduled", "cancelled")


class Timer(NamedTuple):
    """A pending timer as it is shown; times in microseconds since 1970.

    `encrypted` by a broker, or by its caller as that one says.
    """

    key: str
    partition: str
    deliver_us: int
    transaction_literal: str
    message_id: str
    encrypted: bool
    producer_sub: str | None
    attempts: int
    last_error: str | None
    claimed: bool
    created_us: int
    updated_us: int
    payload: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRequest:
    """Pushes and acks in the flat order of the request, then the riders: all or nothing.

    `mentions_lease` is true when an operation or `required_leases` named any lease.
    """

    tenant: UUID
    operations: list[PushItem | Ack]
    required_leases: list[str]
    mentions_lease: bool = False
    producer_sub: str | None = None
    kv: list[KvOperation] = field(default_factory=list)
    timers: list[TimerOperation] = field(default_factory=list)


class OperationResult(NamedTuple):
    type: str
    success: bool
    transaction_id: str
    message_id: str | None = None
    queue: str | None = None
    duplicate: bool = False
    error: str | None = None
    dlq: bool = False
    kv: KvResult | None = None
    timer: tuple[TimerOperation, TimerOutcome] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """`reason` and `error` are set on a rollback, and `results` is empty then.

    `lost` is the required key/value operation that made it, its `no` in the flat order.
    """

    transaction_id: str
    success: bool
    results: list[OperationResult]
    reason: str | None = None
    error: str | None = None
    lost: KvLost | None = None


class SpoolStatus(NamedTuple):
    """What lies in this broker's disk spool. Records are messages.

    `failed` counts the spool writes that failed since the start; the `failed_` members are
    what was set aside in `failed/`. `files` and `bytes` are those of finished files that
    wait for the drain, `total_bytes` has the unfinished one as well. `oldest_age_s` is the
    age of the oldest record that waits. `healthy` tells whether the drain believes that
    the database takes what it is given.
    """

    pending: int = 0
    failed: int = 0
    files: int = 0
    bytes: int = 0
    total_bytes: int = 0
    failed_files: int = 0
    failed_events: int = 0
    failed_bytes: int = 0
    oldest_age_s: float = 0.0
    free_bytes: int = 0
    healthy: bool = True


class Spooling(Protocol):
    """The disk spool, as those see it who only ask for its state."""

    def status(self) -> SpoolStatus:
        """Cheap: may be asked at every scrape and request."""

    def wake(self) -> None:
        """Push maintenance is over: finish the file that is open, and drain now."""
