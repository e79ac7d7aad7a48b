"""What a tenant has in sum: overview, namespaces, tasks; and which partitions changed.

Imports errors, serializers, services/status, wire, base, paging. Used by urls.py.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from brokers.api import wire
from brokers.api.views.base import ManagementView, json_answer, timestamp
from brokers.api.views.paging import page_of
from brokers.errors import RequestError
from brokers.services import status
from brokers.services.status import ChangedRequest
from brokers.services.subscriptions import read_instant
from brokers.store.status_calls import ChangedRow

NAMES_LIMIT = 1000
NAMES_MAX = 10_000
ENTRIES_MAX = 64
CHANGED_LIMIT = 1000
CURSOR_CHARACTERS_MAX = 1024
RATE_S = 300


class OverviewView(ManagementView):
    def get(self, request: Request) -> Response:
        has = self.run(status.figures(self.broker, self.tenant))
        return Response(
            {
                "queues": has.queues,
                "partitions": has.partitions,
                "namespaces": has.namespaces,
                "tasks": has.tasks,
                "messages": {
                    "total": has.total,
                    "pending": has.pending,
                    "processing": has.processing,
                    "completed": has.completed,
                    "failed": 0,
                    "deadLetter": has.dead_letters,
                },
                "lag": {"time": _spread(has.lag_s), "offset": _spread(has.lag)},
                "throughput": {
                    "ingestedPerSecond": round(has.pushed / RATE_S, 3),
                    "processedPerSecond": round(has.acked / RATE_S, 3),
                },
                "timestamp": timestamp(datetime.now(UTC)),
                "statsAge": has.age_s,
            }
        )


class SplitView(ManagementView):
    """The namespaces of a tenant, or its tasks."""

    by_task = False
    title = "namespaces"
    word = "namespace"

    def get(self, request: Request) -> HttpResponse:
        page = page_of(self.query(), default=NAMES_LIMIT, most=NAMES_MAX)
        rows = self.run(
            status.split(self.broker, self.tenant, by_task=self.by_task, **page._asdict())
        )
        listed = [
            {
                self.word: row.name,
                "queues": row.queues,
                "partitions": row.partitions,
                "messages": {"total": row.total, "pending": row.pending},
            }
            for row in rows
        ]
        return json_answer({self.title: listed}, page.headers(len(rows)))


class NamespacesView(SplitView):
    """Queues without a namespace are under none."""


class TasksView(SplitView):
    """Queues without a task are under none."""

    by_task = True
    title = "tasks"
    word = "task"


class PartitionsChangedView(ManagementView):
    """Which partitions of some queues were written, page by page."""

    def post(self, request: Request) -> HttpResponse:
        entries = self.body().get("entries")
        if not isinstance(entries, list):
            raise RequestError("entries must be an array")
        if len(entries) > ENTRIES_MAX:
            raise RequestError(f"at most {ENTRIES_MAX} entries")
        asked = [_entry(entry, number) for number, entry in enumerate(entries)]
        readable = [one for one in asked if isinstance(one, ChangedRequest)]
        safe, answers = self.run(status.changed(self.broker, self.tenant, readable))
        rows = iter(answers)
        told = [
            _changed(one, next(rows))
            if isinstance(one, ChangedRequest)
            else {"queue": one, "error": "BAD_CURSOR"}
            for one in asked
        ]
        return json_answer(
            {
                "safeTime": timestamp(safe.at),
                "safeTimeDegraded": safe.degraded,
                "entries": told,
            }
        )


def _entry(entry: Any, number: int) -> ChangedRequest | str:
    """What one entry asks for; the name of the queue alone when its cursor is none of ours."""
    if not isinstance(entry, dict):
        raise RequestError(f"entry {number} must be an object")
    queue, since = entry.get("queue"), entry.get("since")
    if not isinstance(queue, str) or not queue:
        raise RequestError(f"queue of entry {number} is required")
    wire.check_identifier("queue", queue, index=number)
    limit = entry.get("limit")
    if limit is None:
        limit = CHANGED_LIMIT
    if type(limit) is not int:
        raise RequestError(f"limit of entry {number} must be an integer")
    at = None
    if since is not None:
        at = read_instant(since) if isinstance(since, str) and len(since) <= 64 else None
        if at is None:
            raise RequestError(f"since of entry {number} must be an instant")
    try:
        after_at, after_name = _cursor(entry.get("after"), timed=at is not None)
    except ValueError:
        return queue
    return ChangedRequest(
        queue=queue,
        since=at,
        after_at=after_at,
        after_name=after_name,
        limit=min(max(limit, 1), CHANGED_LIMIT),
    )


def _changed(asked: ChangedRequest, rows: Sequence[ChangedRow] | None) -> dict[str, Any]:
    if rows is None:
        return {"queue": asked.queue, "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    full = len(rows) >= asked.limit
    return {
        "queue": asked.queue,
        "partitions": [
            {
                "name": row.name,
                "lastOffset": row.last_offset,
                "logStart": row.log_start,
                "lastWriteAt": row.last_write_at and timestamp(row.last_write_at),
            }
            for row in rows
        ],
        "next": _cursor_of(rows[-1], timed=asked.since is not None) if full else None,
    }


def _cursor_of(row: ChangedRow, *, timed: bool) -> str:
    """Opaque to clients: where a page ended."""
    stamp = timestamp(row.last_write_at) if timed and row.last_write_at else ""
    return base64.urlsafe_b64encode(json.dumps([stamp, row.name]).encode()).decode()


def _cursor(sent: Any, *, timed: bool) -> tuple[datetime | None, str | None]:
    """Raises ValueError on what `_cursor_of` has not made for such a look."""
    if sent is None:
        return None, None
    if not isinstance(sent, str) or len(sent) > CURSOR_CHARACTERS_MAX * 4:
        raise ValueError
    try:
        pair = json.loads(base64.urlsafe_b64decode(sent.encode("ascii", "strict")))
    except (binascii.Error, RecursionError, UnicodeError) as error:
        raise ValueError from error
    if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)):
        raise ValueError
    at = read_instant(pair[0]) if pair[0] else None
    if (at is None) == timed or wire.identifier_problem(pair[1], wire.NAME_BYTES_MAX):
        raise ValueError
    return at, pair[1]


def _spread(numbers: Sequence[float]) -> dict[str, int]:
    average, median, least, most = (round(number) for number in numbers)
    return {"avg": average, "median": median, "min": least, "max": most}
