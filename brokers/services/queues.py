"""Queues as a whole: configure, delete, describe.

What an option is called on the wire, where it is kept, what it is by default and what it
may be is written in one table, `OPTIONS`; the API reads and renders options by it.

Imports store. Called by api/views/queues.py and api/serializers.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from brokers.store import management_calls as calls
from brokers.store import quota_calls
from brokers.store.quota_calls import Holding

if TYPE_CHECKING:
    from brokers.runtime import Broker

INT32_MAX = 2_147_483_647
INT64_MAX = 9_223_372_036_854_775_807
# A hundred years: whatever PostgreSQL adds to or takes from its clock stays a time.
AGE_MAX_S = 3_153_600_000
LEASE_MAX_S = 31_536_000
SINK_NAME = r"[A-Za-z0-9._-]{0,64}"
LIST_SEGMENTS_MAX = 100
SEGMENTS_MAX = 10_000
NOTHING = Holding(rows=0, bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its bounds hold for numbers, its pattern for text."""

    name: str
    column: str
    default: bool | int | str
    low: int = 0
    high: int = INT64_MAX
    pattern: str = ""


OPTIONS: tuple[Option, ...] = (
    Option(name="leaseTime", column="lease_time", default=300, high=LEASE_MAX_S),
    Option(name="retryLimit", column="retry_limit", default=3, high=INT32_MAX),
    Option(name="deadLetterQueue", column="dead_letter_queue", default=True),
    Option(name="dlqAfterMaxRetries", column="dlq_after_max_retries", default=True),
    Option(name="maxDeliveries", column="max_deliveries", default=0, high=INT32_MAX),
    Option(name="delayedProcessing", column="delayed_processing", default=0, high=AGE_MAX_S),
    Option(name="windowBuffer", column="window_buffer", default=0, high=AGE_MAX_S),
    Option(name="minPopWaitTime", column="min_pop_wait_time", default=0, high=60_000),
    Option(name="retentionEnabled", column="retention_enabled", default=False),
    Option(name="retentionSeconds", column="retention_seconds", default=0, high=AGE_MAX_S),
    Option(
        name="completedRetentionSeconds",
        column="completed_retention_seconds",
        default=0,
        high=AGE_MAX_S,
    ),
    Option(name="maxWaitTimeSeconds", column="max_wait_time_seconds", default=0, high=AGE_MAX_S),
    Option(name="encryptionEnabled", column="encryption_enabled", default=False),
    Option(name="dedupWindowSeconds", column="dedup_window_seconds", default=3600, high=AGE_MAX_S),
    Option(name="retentionSinkHold", column="retention_sink_hold", default="", pattern=SINK_NAME),
    Option(
        name="retentionSinkHoldMaxSeconds",
        column="retention_sink_hold_max_seconds",
        default=604_800,
        low=60,
        high=31_536_000,
    ),
    # Kept and told; all but the first are in force where `enforce` says so.
    Option(name="priority", column="priority", default=0, low=-INT64_MAX),
    Option(name="ttl", column="ttl", default=3600),
    Option(name="maxSize", column="max_size", default=0),
    Option(name="retryDelay", column="retry_delay", default=1000),
    Option(name="enforce", column="enforce", default=False),
    Option(name="requireLease", column="require_lease", default=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureRequest:
    """`options` holds those that were named, by their wire name; None restores a default.

    `namespace` and `task` may be among them; their default comes from the queue's name.
    """

    tenant: UUID
    queue: str
    replace: bool
    options: Mapping[str, Any]


async def configure(broker: "Broker", request: ConfigureRequest) -> dict[str, Any]:
    """Create or edit a queue; the answer tells every option that is in force now."""
    patch = _patch(request)
    async with broker.admission.call_slot("maint"):
        row = await calls.queue_configure(broker.store.fetch, request.tenant, request.queue, patch)
    broker.queues.forget(request.tenant, request.queue)
    return {
        "configured": True,
        "queueId": row.uid,
        "partitionId": None,
        "queue": request.queue,
        "namespace": row.columns["namespace"],
        "task": row.columns["task"],
        "storage": "segments",
        "options": effective(row.columns),
    }


async def delete(broker: "Broker", tenant: UUID, name: str) -> bool:
    """Take a queue and all it holds out of everybody's reach; False when there was none."""
    async with broker.admission.call_slot("maint"):
        partitions = await calls.queue_delete(broker.store.fetch, tenant, name)
    broker.queues.forget(tenant, name, deleted=True)
    return partitions is not None


async def summaries(broker: "Broker", tenant: UUID) -> list[calls.QueueSummary]:
    return await calls.queue_list(broker.reads.fetch, tenant, segments_max=LIST_SEGMENTS_MAX)


async def holdings(broker: "Broker", tenant: UUID) -> tuple[Holding, Holding]:
    """Key/value entries and timers of the tenant, as last counted."""
    found = await quota_calls.holdings(broker.reads.fetch, tenant)
    return found.get("kv", NOTHING), found.get("timers", NOTHING)


async def describe(
    broker: "Broker", tenant: UUID, name: str, *, limit: int, offset: int
) -> calls.QueueDescription | None:
    return await calls.queue_describe(
        broker.reads.fetch, tenant, name, limit=limit, offset=offset, segments_max=SEGMENTS_MAX
    )


async def depth(
    broker: "Broker", tenant: UUID, name: str, group: str | None, *, limit: int, offset: int
) -> calls.QueueDepth | None:
    return await calls.queue_depth(
        broker.reads.fetch, tenant, name, group=group, limit=limit, offset=offset
    )


def effective(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a queue's row, by their wire names."""
    return {option.name: columns[option.column] for option in OPTIONS}


def _patch(request: ConfigureRequest) -> dict[str, Any]:
    """The columns that shall have another value: named options, and under replace all."""
    namespace, task = dotted(request.queue)
    settable: list[tuple[str, str, Any]] = [
        ("namespace", "namespace", namespace),
        ("task", "task", task),
        *((option.name, option.column, option.default) for option in OPTIONS),
    ]
    patch: dict[str, Any] = {}
    for name, column, default in settable:
        if name in request.options:
            value = request.options[name]
            patch[column] = default if value is None else value
        elif request.replace:
            patch[column] = default
    return patch


def dotted(name: str) -> tuple[str, str]:
    """What a dotted name says: before its first dot, and between the first and the second."""
    if "." not in name:
        return "", ""
    namespace, task, *_ = name.split(".")
    return namespace, task
