"""The queues' own routes: configure, list, one in detail, its depth, delete.

Imports errors, serializers, services/queues, base, paging. Used by urls.py.
"""

import json
from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from brokers.api import wire
from brokers.api.serializers import configuration
from brokers.api.views.base import ManagementView, json_answer, timestamp
from brokers.api.views.paging import page_of
from brokers.errors import RequestError, StoreError
from brokers.services import queues
from brokers.services.queues import ConfigureRequest

GONE = "Queue not found"
# So many partitions are told to whoever asks for no page, and to nobody more at once.
PARTITIONS_MAX = 10_000


class ConfigureView(ManagementView):
    def post(self, request: Request) -> Response:
        queue, replace, options = configuration(self.body())
        asked = ConfigureRequest(tenant=self.tenant, queue=queue, replace=replace, options=options)
        try:
            return Response(self.run(queues.configure(self.broker, asked)))
        except StoreError as error:
            error.text = f"configure failed: {error.text}"
            raise


class QueueListView(ManagementView):
    """Every queue of the tenant, and its key/value state and timers, as last counted. `stats`,
    filters and pages are accepted and change nothing."""

    def get(self, request: Request) -> HttpResponse:
        rows = self.run(queues.summaries(self.broker, self.tenant))
        listed = [
            {
                "id": row.uid,
                "name": row.name,
                "namespace": row.namespace,
                "task": row.task,
                "createdAt": timestamp(row.created_at),
                "paused": row.paused,
                "partitions": row.partitions,
                "retainedBytes": row.bytes,
                "segments": {"segments": row.segments, "messages": row.total},
                "messages": {
                    "total": row.total,
                    "pending": row.pending,
                    "processing": row.processing,
                },
            }
            for row in rows
        ]
        entries, timers = self.run(queues.holdings(self.broker, self.tenant))
        return json_answer(
            {
                "queues": listed,
                "kvBytes": entries.bytes,
                "timerBytes": timers.bytes,
                "kvRows": entries.rows,
            }
        )


class QueueDetailView(ManagementView):
    def get(self, request: Request) -> HttpResponse:
        page = page_of(self.query(), default=PARTITIONS_MAX, most=PARTITIONS_MAX)
        name = self.identifier("queue")
        found = self.run(queues.describe(self.broker, self.tenant, name, **page._asdict()))
        if found is None:
            raise RequestError(GONE, code="not_found")
        columns = found.columns
        namespace, task = columns["namespace"], columns["task"]
        head = {
            "id": columns["uid"],
            "name": columns["name"],
            "namespace": namespace,
            "task": task,
            "createdAt": timestamp(found.created_at),
            "paused": columns["paused"],
            "options": {"namespace": namespace, "task": task} | queues.effective(columns),
            "totals": {
                "total": found.total,
                "pending": found.pending,
                "processing": found.processing,
                "completed": found.completed,
                "failed": None,
                "deadLetter": found.dead_letters,
            },
            "retainedBytes": found.bytes,
            "segments": {"segments": found.segments, "messages": found.total},
        }
        return spliced(head, "partitions", found.partitions, page.headers_of(found.lanes))


class QueueDepthView(ManagementView):
    def get(self, request: Request) -> HttpResponse:
        page = page_of(self.query(), default=PARTITIONS_MAX, most=PARTITIONS_MAX)
        name, group = self.identifier("queue"), wire.query_name(self.query(), "group")
        found = self.run(queues.depth(self.broker, self.tenant, name, group, **page._asdict()))
        if found is None:
            raise RequestError(GONE, code="not_found")
        ready = found.pending - found.processing
        head = {
            "queue": name,
            "group": group,
            "pending": found.pending,
            "processing": found.processing,
            "ready": ready,
            "partitionsPending": found.partitions_pending,
            "partitionsReady": found.partitions_ready,
            "conflation": found.conflation,
            # A conflating group handles one message a partition, however many wait there.
            "effectivePending": found.partitions_pending if found.conflation else found.pending,
            "effectiveReady": found.partitions_ready if found.conflation else ready,
        }
        return spliced(head, "partitions", found.partitions, page.headers_of(found.lanes))


class QueueDeleteView(ManagementView):
    def delete(self, request: Request) -> Response:
        name = self.identifier("queue")
        if self.run(queues.delete(self.broker, self.tenant, name)):
            return Response({"deleted": True, "queue": name, "existed": True})
        told = "Queue not found, nothing was deleted"
        return Response({"deleted": False, "queue": name, "existed": False, "message": told})


def spliced(
    head: dict[str, Any], name: str, value: str, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """A JSON object whose last value is JSON text already."""
    text = f'{json.dumps(head, separators=(",", ":"))[:-1]},"{name}":{value}}}'
    return HttpResponse(text.encode(), content_type="application/json", headers=headers)
