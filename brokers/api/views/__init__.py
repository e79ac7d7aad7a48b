"""The management routes, as DRF views; what they share is in base.py.

Imports base and the modules of the views. Used by urls.py and, for its errors, by DRF's settings.
"""

from brokers.api.views.aggregates import (
    NamespacesView,
    OverviewView,
    PartitionsChangedView,
    TasksView,
)
from brokers.api.views.analytics import (
    LivenessView,
    ParkedReplicasView,
    QueueLagView,
    QueueOperationsView,
    RetentionView,
    WorkloadView,
)
from brokers.api.views.base import exception_handler
from brokers.api.views.cell import (
    CellStatusView,
    PostgresStatsView,
    SystemMetricsView,
    WorkerMetricsView,
)
from brokers.api.views.dead_letters import (
    DeadLetterListView,
    DeadLetterPurgeView,
    DeadLetterReplayView,
    MessageRetryView,
    SignaturesView,
)
from brokers.api.views.groups import (
    GroupDeleteView,
    GroupDetailView,
    GroupLaggingView,
    GroupListView,
    GroupPartitionSeekView,
    GroupQueueDeleteView,
    GroupSeekView,
    GroupStartView,
)
from brokers.api.views.messages import (
    MessageDeleteView,
    MessageDetailView,
    MessageListView,
    MessageSearchView,
)
from brokers.api.views.queue_operations import PartitionPurgeView, PauseView, PurgeView, ResumeView
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
from brokers.api.views.status import (
    StatusAnalyticsView,
    StatusQueuesView,
    StatusQueueView,
)

__all__ = [
    "CellStatusView",
    "ConfigureView",
    "DeadLetterListView",
    "DeadLetterPurgeView",
    "DeadLetterReplayView",
    "GroupDeleteView",
    "GroupDetailView",
    "GroupLaggingView",
    "GroupListView",
    "GroupPartitionSeekView",
    "GroupQueueDeleteView",
    "GroupSeekView",
    "GroupStartView",
    "LivenessView",
    "MessageDeleteView",
    "MessageDetailView",
    "MessageListView",
    "MessageRetryView",
    "MessageSearchView",
    "NamespacesView",
    "OverviewView",
    "ParkedReplicasView",
    "PartitionPurgeView",
    "PartitionsChangedView",
    "PauseView",
    "PostgresStatsView",
    "PurgeView",
    "QueueDeleteView",
    "QueueDepthView",
    "QueueDetailView",
    "QueueLagView",
    "QueueListView",
    "QueueOperationsView",
    "RedriveCancelView",
    "RedriveCreateView",
    "RedriveDetailView",
    "RedriveListView",
    "RedriveResumeView",
    "ResumeView",
    "RetentionView",
    "SignaturesView",
    "StatusAnalyticsView",
    "StatusQueueView",
    "StatusQueuesView",
    "SystemMetricsView",
    "TasksView",
    "WorkerMetricsView",
    "WorkloadView",
    "exception_handler",
]
