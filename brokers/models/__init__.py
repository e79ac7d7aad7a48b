"""The tables, mapped for the admin and the management API; no behaviour lives here.

Hot paths never touch these classes: they call the procedures in `sql/procedures/`.

Imports nothing of ours.
"""

from brokers.models.access import ApiKey, Quota, Usage, UsageDelta
from brokers.models.consumers import Cursor, DeadLetter, Group, Wake
from brokers.models.kv import KeyValue
from brokers.models.log import Partition, Queue, Segment, Transaction
from brokers.models.system import (
    Lease,
    QueueCounter,
    QueueStatistics,
    Reclaim,
    RetentionHistory,
    SpoolFile,
    System,
    TransactionSlot,
)
from brokers.models.timers import Timer, TimerReclaim

__all__ = [
    "ApiKey",
    "Cursor",
    "DeadLetter",
    "Group",
    "KeyValue",
    "Lease",
    "Partition",
    "Queue",
    "QueueCounter",
    "QueueStatistics",
    "Quota",
    "Reclaim",
    "RetentionHistory",
    "Segment",
    "SpoolFile",
    "System",
    "Timer",
    "TimerReclaim",
    "Transaction",
    "TransactionSlot",
    "Usage",
    "UsageDelta",
    "Wake",
]
