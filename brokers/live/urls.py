"""The addresses of the live pages. Names of queues may hold anything, a slash too.

Imports queue_pages, views. Used by queen_project/urls.py.
"""

from django.urls import path

from brokers.live import queue_pages, views

app_name = "live"
urlpatterns = [
    path("", views.dashboard, name="dashboard"),
    path("console/snapshot", views.snapshot, name="snapshot"),
    path("console/queue/history", queue_pages.history, name="history"),
    path("console/message", queue_pages.message, name="message"),
    path("queues", queue_pages.moved),
    path("queues/", queue_pages.queues, name="queues"),
    path("queues/<path:name>", queue_pages.queue, name="queue"),
]
