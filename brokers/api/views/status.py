"""The status routes of a tenant: its queues, one of them, and messages over time.

Imports errors, services/{analytics,queues,status}, base, paging, windows. Used by urls.py.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from brokers.api.views.base import ManagementView, json_answer, timestamp
from brokers.api.views.paging import page_of
from brokers.api.views.queues import GONE, spliced
from brokers.api.views.windows import filters_of, window_of
from brokers.errors import RequestError
from brokers.services import analytics, status
from brokers.services.queues import effective

LIMIT = 100
LIMIT_MAX = 1000
PARTITIONS_LIMIT = 1000
PARTITIONS_MAX = 10_000
# Beyond it buckets of a minute would be more than anybody looks at.
MINUTES_MAX = timedelta(hours=6)
INTERVALS = {"minute": 1, "hour": 60, "day": 1440}
CONFIGURED = (
    "leaseTime",
    "retryLimit",
    "ttl",
    "priority",
    "delayedProcessing",
    "windowBuffer",
)


class StatusQueuesView(ManagementView):
    """A page of queues, as last counted."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        page = page_of(query, default=LIMIT, most=LIMIT_MAX)
        window_of(query)  # accepted, and checked; figures are those of now
        rows = self.run(
            status.queues(self.broker, self.tenant, filters_of(query), **page._asdict())
        )
        listed = [
            {
                "id": row.uid,
                "name": row.name,
                "namespace": row.namespace,
                "task": row.task,
                "createdAt": timestamp(row.created_at),
                "partitions": row.partitions,
                "messages": {
                    "total": row.total,
                    "pending": row.pending,
                    "processing": row.processing,
                    "completed": row.completed,
                    "deadLetter": row.dead_letters,
                },
            }
            for row in rows
        ]
        return json_answer({"queues": listed, "pagination": page.told()})


class StatusQueueView(ManagementView):
    """One queue as it is, and a page of its partitions."""

    def get(self, request: Request) -> HttpResponse:
        page = page_of(self.query(), default=PARTITIONS_LIMIT, most=PARTITIONS_MAX)
        name = self.identifier("queue")
        found = self.run(status.queue(self.broker, self.tenant, name, **page._asdict()))
        if found is None:
            raise RequestError(GONE, code="not_found")
        options = effective(found.columns)
        partitions, total, pending, processing, completed, dead_letters = found.totals
        head = {
            "queue": {
                "id": found.columns["uid"],
                "name": found.columns["name"],
                "namespace": found.columns["namespace"],
                "task": found.columns["task"],
                "createdAt": timestamp(found.created_at),
                "config": {option: options[option] for option in CONFIGURED},
            },
            "totals": {
                "partitions": partitions,
                "total": total,
                "pending": pending,
                "processing": processing,
                "completed": completed,
                "failed": None,
                "deadLetter": dead_letters,
            },
            "pagination": page.told(),
        }
        return spliced(head, "partitions", found.partitions)


class StatusAnalyticsView(ManagementView):
    """Messages pushed, by the minute, hour or day."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        interval = query.get("interval", "hour")
        interval = interval if interval in INTERVALS else "hour"
        window = window_of(query, back=timedelta(hours=24))
        if interval == "minute":
            window = replace(window, since=max(window.since, window.until - MINUTES_MAX))
        window = replace(window, minutes=INTERVALS[interval])
        rows = self.run(
            analytics.queue_series(
                self.broker, self.tenant, "", filters_of(query), window, keys_max=1
            )
        )
        return json_answer(
            {
                "dataPoints": [_point(row.bucket, row.push_messages) for row in rows],
                "interval": interval,
                "from": timestamp(window.since),
                "to": timestamp(window.until),
            }
        )


def _point(bucket: datetime, messages: int) -> dict[str, Any]:
    return {"timestamp": timestamp(bucket), "messages": messages}
