"""The consumer groups' routes: list, lagging, one in detail, start, seek, delete.

Imports errors, serializers, services/groups, wire, base, paging. Used by urls.py.
"""

from datetime import datetime
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from brokers.api import wire
from brokers.api.views.base import ManagementView, json_answer, timestamp
from brokers.api.views.paging import page_of
from brokers.domain import QUEUE_MODE
from brokers.errors import RequestError
from brokers.services import groups
from brokers.services.groups import SeekRequest
from brokers.services.subscriptions import read_instant
from brokers.store.group_calls import GroupRow, LaggingRow, PlaceRow

LIST_LIMIT = 5_000
PLACES_LIMIT = 1_000
LIMIT_MAX = 10_000
LAGGING_S = 3600
LAGGING_FROM_S = 300
LAG_MAX_S = 3_153_600_000
INSTANT_CHARACTERS_MAX = 64
NO_TARGET = "Must specify toEnd=true or a timestamp"


class GroupListView(ManagementView):
    """A bare array: one row for each group and queue, as last counted."""

    def get(self, request: Request) -> HttpResponse:
        page = page_of(self.query(), default=LIST_LIMIT, most=LIMIT_MAX)
        rows = self.run(groups.listing(self.broker, self.tenant, **page._asdict()))
        return json_answer([_group(row) for row in rows], page.headers(len(rows)))


class GroupLaggingView(ManagementView):
    """A bare array: one row for each group and partition that lags for so long."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        asked = wire.query_integer(query, "minLagSeconds", LAGGING_S)
        assert asked is not None
        lag_s = min(max(asked, 0), LAG_MAX_S)
        page = page_of(query, default=PLACES_LIMIT, most=LIMIT_MAX)
        work = groups.lagging(self.broker, self.tenant, lag_s=lag_s, **page._asdict())
        rows = self.run(work)
        return json_answer([_lagging(row) for row in rows], page.headers(len(rows)))


class GroupDetailView(ManagementView):
    """By queue; a group that nobody knows has none."""

    def get(self, request: Request) -> HttpResponse:
        group = self.identifier("group")
        page = page_of(self.query(), default=PLACES_LIMIT, most=LIMIT_MAX)
        rows = self.run(groups.describe(self.broker, self.tenant, group, **page._asdict()))
        queues: dict[str, dict[str, Any]] = {}
        for row in rows:
            queue = queues.setdefault(row.queue, {"conflation": row.conflation, "partitions": []})
            if row.partition is not None:
                queue["partitions"].append(_place(row))
        return json_answer(queues, page.headers(len(rows)))


class GroupStartView(ManagementView):
    """Where the group begins in partitions that it has not touched yet."""

    def post(self, request: Request) -> Response:
        group = self.identifier("group")
        sent, at = _instant(self.body(), "subscriptionTimestamp")
        if at is None:
            raise RequestError("subscriptionTimestamp is required")
        changed = self.run(groups.start_from(self.broker, self.tenant, group, at))
        return Response(
            {
                "success": True,
                "consumerGroup": group,
                "newTimestamp": sent,
                "rowsUpdated": changed,
            }
        )


class GroupSeekView(ManagementView):
    """In all partitions of a queue."""

    def post(self, request: Request) -> Response:
        group, queue = _sought(self), self.identifier("queue")
        sent, at = _target(self.body())
        asked = SeekRequest(tenant=self.tenant, group=group, queue=queue, partition=None, at=at)
        moved = self.run(groups.seek(self.broker, asked))
        named = {"consumerGroup": group, "queueName": queue}
        if moved is None:
            told = "Queue not found or has no partitions"
            body = {"success": False, "error": told} | named | {"partitionsUpdated": 0}
            raise RequestError(told, code="not_found", body=body)
        return Response({"success": True} | named | sent | {"partitionsUpdated": moved})


class GroupPartitionSeekView(ManagementView):
    """In one partition; without a word of where, to the end."""

    def post(self, request: Request) -> Response:
        group, queue = _sought(self), self.identifier("queue")
        partition = self.identifier("partition")
        sent, at = _target(self.body() or {"toEnd": True})
        asked = SeekRequest(
            tenant=self.tenant, group=group, queue=queue, partition=partition, at=at
        )
        if self.run(groups.seek(self.broker, asked)) is None:
            told = "Partition not found"
            raise RequestError(told, code="not_found", body={"success": False, "error": told})
        named = {"consumerGroup": group, "queueName": queue, "partitionName": partition}
        return Response({"success": True} | named | sent | {"updated": True})


class GroupDeleteView(ManagementView):
    """Of all queues; one that nobody knows is deleted as well as one that was there."""

    def delete(self, request: Request) -> Response:
        group = self.identifier("group")
        return Response(_deleted(self, group, None))


class GroupQueueDeleteView(ManagementView):
    """Of one queue."""

    def delete(self, request: Request) -> Response:
        group, queue = self.identifier("group"), self.identifier("queue")
        return Response(_deleted(self, group, queue))


def _deleted(view: ManagementView, group: str, queue: str | None) -> dict[str, Any]:
    forget = wire.query_flag(view.query(), "deleteMetadata", True)
    work = groups.delete(view.broker, view.tenant, group, queue=queue, forget=forget)
    gone = view.run(work)
    named = {"consumerGroup": group} | ({} if queue is None else {"queueName": queue})
    told = {"deletedPartitions": gone.cursors, "metadataDeleted": gone.subscription}
    return {"success": True} | named | told


def _sought(view: ManagementView) -> str:
    """A seek may be a group's first contact, and no pop can be of one without a name."""
    group = view.identifier("group")
    if not group:
        raise RequestError("group must not be empty")
    return group


def _target(body: dict[str, Any]) -> tuple[dict[str, Any], datetime | None]:
    """What the answer says of where to, and the instant; None for the end."""
    to_end = body.get("toEnd")
    if to_end is not None and type(to_end) is not bool:
        raise RequestError("toEnd must be true or false")
    if to_end:
        return {"seekToEnd": True, "targetTimestamp": None}, None
    sent, at = _instant(body, "timestamp")
    if at is None:
        raise RequestError(NO_TARGET)
    return {"seekToEnd": False, "targetTimestamp": sent}, at


def _instant(body: dict[str, Any], name: str) -> tuple[str, datetime | None]:
    """An instant as it was sent, and what it means; None when it is not there."""
    sent = body.get(name)
    if sent is None or sent == "":
        return "", None
    at = None
    if isinstance(sent, str) and len(sent) <= INSTANT_CHARACTERS_MAX:
        at = read_instant(sent)
    if at is None:
        raise RequestError(f"{name} must be an instant such as 2026-01-31T12:00:00Z")
    return sent, at


def _group(row: GroupRow) -> dict[str, Any]:
    state = "Stable" if row.consumed else "Dead"
    subscribed = row.group != QUEUE_MODE
    since = row.subscribed_from
    return {
        "name": row.group,
        "topics": [row.queue],
        "queueName": row.queue,
        "members": row.cursors,
        "partitionCursors": row.cursors,
        "partitionsWithLag": row.lagging,
        "totalLag": row.lag,
        "maxTimeLag": row.oldest_s,
        "state": "Lagging" if row.oldest_s > LAGGING_FROM_S else state,
        "storage": "segments",
        "subscriptionMode": row.mode if subscribed else None,
        "subscriptionTimestamp": timestamp(since) if subscribed and since else None,
        "subscriptionCreatedAt": timestamp(row.created_at) if subscribed else None,
        "conflation": row.conflation,
    }


def _lagging(row: LaggingRow) -> dict[str, Any]:
    return {
        "consumer_group": row.group,
        "queue_name": row.queue,
        "partition_name": row.partition,
        "partition_id": row.partition_uid,
        "worker_id": None,
        "offset_lag": row.lag,
        "time_lag_seconds": int(row.lag_s),
        "lag_hours": round(row.lag_s / 3600, 2),
        "oldest_unconsumed_at": timestamp(row.oldest_at),
        "last_consumed_at": None,
    }


def _place(row: PlaceRow) -> dict[str, Any]:
    return {
        "partition": row.partition,
        "workerId": None,
        "lastConsumedAt": None,
        "totalConsumed": row.consumed,
        "offsetLag": row.lag,
        "timeLagSeconds": row.lag_s,
        "leaseActive": row.leased,
    }
