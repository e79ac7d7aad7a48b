"""The addresses of the live pages. Names of queues may hold anything, a slash or a newline too.

Imports queue_pages, views. Used by queen_project/urls.py.
"""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from brokers.live import queue_pages, views

app_name = "live"


class AnythingConverter(StringConverter):
    """Django's `path` ends at a newline."""

    regex = r"[\s\S]+"


register_converter(AnythingConverter, "anything")
urlpatterns = [
    path("", views.dashboard, name="dashboard"),
    path("console/snapshot", views.snapshot, name="snapshot"),
    path("console/queue/history", queue_pages.history, name="history"),
    path("console/message", queue_pages.message, name="message"),
    path("queues", queue_pages.moved),
    path("queues/", queue_pages.queues, name="queues"),
    path("queues/<anything:name>", queue_pages.queue, name="queue"),
]
