"""The analytics routes of a tenant: lag, operations, parked pops, retention, workload, liveness.

A listing over queues shows the busiest, `limit` of them.

Imports services/{analytics,status}, wire, base, paging, windows. Used by urls.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from brokers.api import wire
from brokers.api.views.base import ManagementView, json_answer, timestamp
from brokers.api.views.paging import page_of
from brokers.api.views.windows import axis, filters_of, grouping_of, told, window_of
from brokers.services import analytics, status
from brokers.store.history_calls import NowRow, RetentionRow, SeriesRow, Window

QUEUES_LIMIT = 50
KEYS_LIMIT = 100
KEYS_MAX = 1000
LIVENESS_LIMIT = 20
LIVENESS_MAX = 200

SUMS = (
    "push_messages",
    "push_requests",
    "pop_messages",
    "pop_empty",
    "ack_requests",
    "ack_success",
    "ack_failed",
    "transactions",
    "conflated",
    "partitions_created",
    "partitions_deleted",
)


class QueueLagView(ManagementView):
    """A bare array, the newest bucket first: how old messages were when they were delivered."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        window = window_of(query)
        rows = sorted(self.run(_by_queue(self, query, window)), key=lambda row: row.key)
        rows.sort(key=lambda row: row.bucket, reverse=True)
        return json_answer(
            [
                {
                    "queueName": row.key,
                    "popCount": row.pop_messages,
                    "avgLagMs": row.avg_lag_ms,
                    "maxLagMs": row.max_lag_ms,
                    "bucketMinutes": window.minutes,
                    "bucketTime": timestamp(row.bucket),
                }
                for row in rows
            ]
        )


class QueueOperationsView(ManagementView):
    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        window = window_of(query)
        rows = self.run(_by_queue(self, query, window))
        names = sorted({row.key for row in rows})
        partitions = self.run(status.lanes(self.broker, self.tenant, names))
        series = [_operations(row, window, partitions) for row in rows]
        return json_answer({**told(window), "series": series, "queues": names})


class ParkedReplicasView(ManagementView):
    """How many pops waited, at which broker."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        window = window_of(query)
        queue = wire.query_name(query, "queue")
        most = page_of(query, default=QUEUES_LIMIT, most=KEYS_MAX).limit
        rows = self.run(
            analytics.parked_series(self.broker, self.tenant, queue, window, queues_max=most)
        )
        series = [
            {
                "bucket": timestamp(row.bucket),
                "queueName": row.queue,
                "hostname": row.server_id,
                "workerId": 0,
                "parkedCount": round(row.parked, 2),
            }
            for row in rows
        ]
        hosts = sorted({row.server_id for row in rows})
        replicas = [{"hostname": host, "workerId": 0} for host in hosts]
        return json_answer({**told(window), "series": series, "replicas": replicas})


class RetentionView(ManagementView):
    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        window, by = window_of(query), grouping_of(query, "")
        queue = wire.query_name(query, "queue")
        most = page_of(query, default=KEYS_LIMIT, most=KEYS_MAX).limit
        rows = self.run(
            analytics.retention_series(self.broker, self.tenant, by, queue, window, keys_max=most)
        )
        answer: dict[str, Any] = {
            **told(window),
            "series": [
                {"bucket": timestamp(row.bucket), **_deleted(row)} for row in rows if row.bucket
            ],
            "totals": next(_deleted(row) for row in rows if row.bucket is None and row.key is None),
        }
        if by:
            answer["rows"] = [
                {"key": row.key, "queues": row.queues, **_deleted(row)}
                for row in rows
                if row.key is not None
            ]
        return json_answer(answer)


class WorkloadView(ManagementView):
    """What the keys did over the window and what they hold now, and the same of the tenant."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        window, by = window_of(query), grouping_of(query, "namespace")
        most = page_of(query, default=KEYS_LIMIT, most=KEYS_MAX).limit
        found = self.run(
            analytics.workload(
                self.broker, self.tenant, by, filters_of(query), window, keys_max=most
            )
        )
        buckets = axis(window)
        series: dict[str, list[SeriesRow]] = defaultdict(list)
        for row in found.series:
            series[row.key].append(row)
        # The busiest first; then those that hold something.
        pushed = {key: sum(row.push_messages for row in rows) for key, rows in series.items()}
        now = sorted(found.now, key=lambda row: (-pushed.get(row.key, -1), -row.pending, row.key))
        rows = [_worked(row, series[row.key], buckets, by) for row in now[:most]]
        tenant = [_worked(row, found.tenant_series, buckets, "") for row in found.tenant_now]
        nothing = _worked(NowRow("", "", "", *[0] * 11), [], buckets, "")
        del (tenant[0] if tenant else nothing)["key"]
        return json_answer(
            {
                **told(window),
                "groupBy": by,
                "buckets": [timestamp(bucket) for bucket in buckets],
                "rows": rows,
                "tenant": tenant[0] if tenant else nothing,
            }
        )


class LivenessView(ManagementView):
    """An explicit empty `namespace` or `task` asks for queues without one."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        filters = filters_of(query)
        for name in ("namespace", "task"):
            if query.get(name) == "":
                filters = replace(filters, **{name: ""})
        limit = page_of(query, default=LIVENESS_LIMIT, most=LIVENESS_MAX).limit
        rows = self.run(status.liveness(self.broker, self.tenant, filters, limit=limit))
        listed = [
            {
                "queue": row.name,
                "namespace": row.namespace,
                "task": row.task,
                "partitions": row.partitions,
                "live1h": row.written_1h,
                "live24h": row.written_24h,
                "live7d": row.written_7d,
                "created24h": row.created_24h,
                "oldestWriteAt": row.oldest_write_at and timestamp(row.oldest_write_at),
                "newestWriteAt": row.newest_write_at and timestamp(row.newest_write_at),
                "pending": row.pending,
            }
            for row in rows
        ]
        return json_answer({"capturedAt": timestamp(datetime.now().astimezone()), "rows": listed})


async def _by_queue(view: ManagementView, query: dict[str, str], window: Window) -> list[SeriesRow]:
    most = page_of(query, default=QUEUES_LIMIT, most=KEYS_MAX).limit
    filters = replace(filters_of(query), namespace=None, task=None)
    return await analytics.queue_series(
        view.broker, view.tenant, "queue", filters, window, keys_max=most
    )


def _operations(row: SeriesRow, window: Window, partitions: Mapping[str, int]) -> dict[str, Any]:
    seconds = 60 * window.minutes
    return {
        "bucket": timestamp(row.bucket),
        "queueName": row.key,
        "pushRequests": row.push_requests,
        "pushMessages": row.push_messages,
        "popMessages": row.pop_messages,
        "popEmpty": row.pop_empty,
        "ackRequests": row.ack_requests,
        "ackSuccess": row.ack_success,
        "ackFailed": row.ack_failed,
        "transactions": row.transactions,
        "partitionsCreated": row.partitions_created,
        "partitionsDeleted": row.partitions_deleted,
        "partitionCount": partitions.get(row.key, 0),
        "avgLagMs": row.avg_lag_ms,
        "maxLagMs": row.max_lag_ms,
        "pushPerSecond": round(row.push_messages / seconds, 3),
        "popPerSecond": round(row.pop_messages / seconds, 3),
        "ackPerSecond": round((row.ack_success + row.ack_failed) / seconds, 3),
        "emptyPerSecond": round(row.pop_empty / seconds, 3),
        "parkedCount": round(row.parked, 2),
    }


def _deleted(row: RetentionRow) -> dict[str, int]:
    return {
        "retentionMsgs": row.retention,
        "completedRetentionMsgs": row.completed,
        "evictionMsgs": row.eviction,
        "totalMsgs": row.retention + row.completed + row.eviction,
        "eventCount": row.events,
    }


def _worked(
    now: NowRow, series: Sequence[SeriesRow], buckets: Sequence[datetime], by: str
) -> dict[str, Any]:
    row: dict[str, Any] = {"key": now.key, "queues": now.queues}
    if by == "queue":
        row |= {"namespace": now.namespace, "task": now.task}
    at = {one.bucket: one for one in series}
    row["window"] = _window(series, len(buckets))
    row["series"] = {
        name: [None if at.get(bucket) is None else value(at[bucket]) for bucket in buckets]
        for name, value in (
            ("push", lambda one: one.push_messages),
            ("pop", lambda one: one.pop_messages),
            ("popEmpty", lambda one: one.pop_empty),
            ("ackFailed", lambda one: one.ack_failed),
            ("parked", lambda one: round(one.parked, 2)),
            ("avgLagMs", lambda one: one.avg_lag_ms),
            ("maxLagMs", lambda one: one.max_lag_ms),
        )
    }
    row["now"] = {
        "pending": now.pending,
        "processing": now.processing,
        "deadLetter": now.dead_letters,
        "retainedBytes": now.bytes,
        "partitions": now.partitions,
        "groups": now.groups,
        "queuesWithoutGroup": now.queues_without_group,
        "pendingWithoutGroup": now.pending_without_group,
        "queuesTouched": now.touched,
        "queuesActive": now.active,
    }
    return row


def _window(series: Iterable[SeriesRow], buckets: int) -> dict[str, Any]:
    rows = list(series)
    lagged = sum(row.pop_lag_count for row in rows)
    answer: dict[str, Any] = {
        _camel(name): sum(getattr(row, name) for row in rows) for name in SUMS
    }
    answer["parkedAvg"] = round(sum(row.parked for row in rows) / max(buckets, 1), 2)
    answer["avgLagMs"] = sum(row.pop_lag_ms for row in rows) // lagged if lagged else None
    answer["maxLagMs"] = max(row.pop_lag_max_ms for row in rows) if lagged else None
    return answer


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
