"""Which view answers a management route: by the name of its handler in the route table.

Names and ids of a request travel beside the handler, never in a path that Django would decode
again. An unknown handler is a mistake of ours.

Imports views. Used by view_door.py.
"""

from brokers.api import views
from brokers.api.views import docs

VIEWS = {
    "configure": views.ConfigureView,
    "queue_list": views.QueueListView,
    "queue_detail": views.QueueDetailView,
    "queue_depth": views.QueueDepthView,
    "queue_delete": views.QueueDeleteView,
    "queue_pause": views.PauseView,
    "queue_resume": views.ResumeView,
    "queue_purge": views.PurgeView,
    "partition_purge": views.PartitionPurgeView,
    "dlq_list": views.DeadLetterListView,
    "dlq_purge": views.DeadLetterPurgeView,
    "dlq_replay": views.DeadLetterReplayView,
    "message_list": views.MessageListView,
    "message_search": views.MessageSearchView,
    "message_detail": views.MessageDetailView,
    "message_delete": views.MessageDeleteView,
    "message_retry": views.MessageRetryView,
    "redrive_create": views.RedriveCreateView,
    "redrive_list": views.RedriveListView,
    "redrive_detail": views.RedriveDetailView,
    "redrive_cancel": views.RedriveCancelView,
    "redrive_resume": views.RedriveResumeView,
    "dlq_signatures": views.SignaturesView,
    "group_list": views.GroupListView,
    "group_lagging": views.GroupLaggingView,
    "group_detail": views.GroupDetailView,
    "group_delete": views.GroupDeleteView,
    "group_start": views.GroupStartView,
    "group_seek": views.GroupSeekView,
    "group_partition_seek": views.GroupPartitionSeekView,
    "group_queue_delete": views.GroupQueueDeleteView,
    "cell_status": views.CellStatusView,
    "status_queues": views.StatusQueuesView,
    "status_queue": views.StatusQueueView,
    "status_analytics": views.StatusAnalyticsView,
    "queue_lag": views.QueueLagView,
    "queue_operations": views.QueueOperationsView,
    "parked_replicas": views.ParkedReplicasView,
    "retention_history": views.RetentionView,
    "workload": views.WorkloadView,
    "liveness": views.LivenessView,
    "system_metrics": views.SystemMetricsView,
    "worker_metrics": views.WorkerMetricsView,
    "postgres_stats": views.PostgresStatsView,
    "overview": views.OverviewView,
    "namespaces": views.NamespacesView,
    "tasks": views.TasksView,
    "partitions_changed": views.PartitionsChangedView,
    "openapi_schema": docs.SchemaView,
    "openapi_page": docs.PageView,
    "openapi_asset": docs.AssetView,
}
