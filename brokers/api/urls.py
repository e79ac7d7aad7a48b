"""Where the door hands the management routes over to Django: one internal path a handler.

The door addresses a view by the name of its handler in the route table; names and ids of
the request travel beside it, never in this path. So nothing here is decoded twice, and an
unknown handler is a mistake of ours.

Imports views. Used by queen_project/urls.py.
"""

from django.urls import path

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
    "message_retry": views.MessageRetryView,
    "openapi_schema": docs.SchemaView,
    "openapi_page": docs.PageView,
    "openapi_asset": docs.AssetView,
}

urlpatterns = [path(f"_queen/{handler}", view.as_view()) for handler, view in VIEWS.items()]
