"""The tables, mapped for the admin and the management API; no behaviour lives here.

Hot paths never touch these classes: they call the procedures in `sql/procedures/`.

Imports nothing of ours.
"""

from brokers.models.access import ApiKey, Holding, Quota, Usage, UsageDelta
from brokers.models.audit import AuditEntry
from brokers.models.consumers import (
    Cursor,
    DeadLetter,
    Group,
    GroupStatistics,
    LetterStatistics,
    Redrive,
    Wake,
)
from brokers.models.history import BrokerHistory, CellCounter, QueueCounter
from brokers.models.kv import KeyValue
from brokers.models.log import Partition, Queue, Segment, Transaction
from brokers.models.streams import StreamQuery, StreamReclaim, StreamState
from brokers.models.system import (
    Lease,
    QueueStatistics,
    Reclaim,
    RetentionHistory,
    SpoolFile,
    System,
    TransactionSlot,
)
from brokers.models.timers import Timer, TimerReclaim
from brokers.models.traces import Trace, TraceName

__all__ = [
    "ApiKey",
    "AuditEntry",
    "BrokerHistory",
    "CellCounter",
    "Cursor",
    "DeadLetter",
    "Group",
    "GroupStatistics",
    "Holding",
    "KeyValue",
    "Lease",
    "LetterStatistics",
    "Partition",
    "Queue",
    "QueueCounter",
    "QueueStatistics",
    "Quota",
    "Reclaim",
    "Redrive",
    "RetentionHistory",
    "Segment",
    "SpoolFile",
    "StreamQuery",
    "StreamReclaim",
    "StreamState",
    "System",
    "Timer",
    "TimerReclaim",
    "Trace",
    "TraceName",
    "Transaction",
    "TransactionSlot",
    "Usage",
    "UsageDelta",
    "Wake",
]
