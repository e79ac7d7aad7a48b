"""The management routes, as DRF views; what they share is in base.py.

Imports base, queues, dead_letters, messages, redrive. Used by urls.py and, for its errors, by
DRF's settings.
"""

from brokers.api.views.base import exception_handler
from brokers.api.views.dead_letters import (
    DeadLetterListView,
    DeadLetterPurgeView,
    DeadLetterReplayView,
    MessageRetryView,
    SignaturesView,
)
from brokers.api.views.messages import (
    MessageDeleteView,
    MessageDetailView,
    MessageListView,
    MessageSearchView,
)
from brokers.api.views.queues import (
    ConfigureView,
    QueueDeleteView,
    QueueDepthView,
    QueueDetailView,
    QueueListView,
)
from brokers.api.views.redrive import (
    RedriveCancelView,
    RedriveCreateView,
    RedriveDetailView,
    RedriveListView,
    RedriveResumeView,
)

__all__ = [
    "ConfigureView",
    "DeadLetterListView",
    "DeadLetterPurgeView",
    "DeadLetterReplayView",
    "MessageDeleteView",
    "MessageDetailView",
    "MessageListView",
    "MessageRetryView",
    "MessageSearchView",
    "QueueDeleteView",
    "QueueDepthView",
    "QueueDetailView",
    "QueueListView",
    "RedriveCancelView",
    "RedriveCreateView",
    "RedriveDetailView",
    "RedriveListView",
    "RedriveResumeView",
    "SignaturesView",
    "exception_handler",
]
