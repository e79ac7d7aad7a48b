"""The management routes, as DRF views; what they share is in base.py.

Imports base, queues, queue_operations, dead_letters. Used by urls.py and, for its errors, by
DRF's settings.
"""

from brokers.api.views.base import exception_handler
from brokers.api.views.dead_letters import (
    DeadLetterListView,
    DeadLetterPurgeView,
    DeadLetterReplayView,
    MessageRetryView,
)
from brokers.api.views.queue_operations import PartitionPurgeView, PauseView, PurgeView, ResumeView
from brokers.api.views.queues import (
    ConfigureView,
    QueueDeleteView,
    QueueDepthView,
    QueueDetailView,
    QueueListView,
)

__all__ = [
    "ConfigureView",
    "DeadLetterListView",
    "DeadLetterPurgeView",
    "DeadLetterReplayView",
    "MessageRetryView",
    "PartitionPurgeView",
    "PauseView",
    "PurgeView",
    "QueueDeleteView",
    "QueueDepthView",
    "QueueDetailView",
    "QueueListView",
    "ResumeView",
    "exception_handler",
]
