"""The message routes: browse, inspect, search, and delete what is dead.

A payload leaves as the bytes that came in: it is spliced into the answer, never decoded.

Imports errors, services/{messages,queues}, wire, base, dead_letters, instants. Used by urls.py.
"""

import base64
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import frames
from brokers.api import wire
from brokers.api.views.base import ManagementView, timestamp
from brokers.api.views.dead_letters import uuid_or_none
from brokers.api.views.instants import end_of_minute, query_instant
from brokers.errors import RequestError
from brokers.services import messages, queues
from brokers.services.messages import BrowseRequest, Hit, SearchRequest, Shown
from brokers.store.message_calls import Inspected, MessageRow, Place

LIMIT_DEFAULT, LIMIT_MAX = 200, 1000
SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX = 50, 200
TEXT_BYTES_MAX = 1000
CURSOR_BYTES_MAX = 4096
WINDOW = timedelta(hours=1)
STATUSES = ("pending", "processing", "completed", "dead_letter")
NOT_FOUND = "Message not found"
NO_DEAD_LETTER = "No dead letter at this address; a live message cannot be deleted singly."


class MessageListView(ManagementView):
    """Newest first; without times the last hour."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        status = query.get("status") or None
        if status is not None and status not in STATUSES:
            raise RequestError(f"status must be one of {', '.join(STATUSES)}")
        limit = wire.query_integer(query, "limit", LIMIT_DEFAULT)
        offset = wire.query_integer(query, "offset", 0)
        assert limit is not None and offset is not None
        since, until = window(query)
        namespace = "namespace" if "namespace" in query else "ns"
        asked = BrowseRequest(
            tenant=self.tenant,
            queue=wire.query_name(query, "queue"),
            partition=wire.query_name(query, "partition"),
            namespace=wire.query_name(query, namespace),
            task=wire.query_name(query, "task"),
            status=status,
            since=since,
            until=until,
            limit=min(max(limit, 1), LIMIT_MAX),
            offset=max(offset, 0),
        )
        page, shown = self.run(messages.browse(self.broker, asked))
        tail = {
            "mode": mode(page.queue_mode, page.bus_groups),
            "total": len(shown),
            "truncated": page.truncated,
        }
        return listed(map(_row, page.rows, shown), tail)


class MessageDetailView(ManagementView):
    def get(self, request: Request) -> HttpResponse:
        params = self.door["params"]
        partition_uid = uuid_or_none(params["partitionId"])
        found = None
        if partition_uid is not None:
            found = self.run(
                messages.inspect(self.broker, self.tenant, partition_uid, params["transactionId"])
            )
        if found is None:
            raise RequestError(NOT_FOUND, code="not_found")
        one, shown = found
        text = spliced(shown, _detail(params["partitionId"].lower(), one))
        # An array that is JSON text already.
        text = text[:-1] + b',"consumerGroups":' + one.readers.encode() + b"}"
        return HttpResponse(text, content_type="application/json")


class MessageDeleteView(ManagementView):
    def delete(self, request: Request) -> Response:
        params = self.door["params"]
        partition_uid = uuid_or_none(params["partitionId"])
        deleted = 0
        if partition_uid is not None:
            deleted = self.run(
                messages.delete(self.broker, self.tenant, partition_uid, params["transactionId"])
            )
        answer = {
            "success": deleted > 0,
            "partitionId": params["partitionId"],
            "transactionId": params["transactionId"],
        }
        if deleted:
            return Response(answer | {"message": "Message deleted successfully"})
        return Response(answer | {"error": NOT_FOUND, "message": NO_DEAD_LETTER}, status=404)


class MessageSearchView(ManagementView):
    """A text in the payloads of a queue, oldest first in each partition, a bounded look a call."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        queue, text = wire.query_name(query, "queue"), query.get("q")
        if queue is None:
            raise RequestError("queue is required")
        if not text:
            raise RequestError("q is required: the text to look for")
        wire.check_identifier("q", text, TEXT_BYTES_MAX)
        limit = wire.query_integer(query, "limit", SEARCH_LIMIT_DEFAULT)
        assert limit is not None
        since, until = window(query)
        asked = SearchRequest(
            tenant=self.tenant,
            queue=queue,
            partition=wire.query_name(query, "partition"),
            text=text.encode(),
            since=since,
            until=until,
            limit=min(max(limit, 1), SEARCH_LIMIT_MAX),
            after=read_cursor(query.get("cursor")),
        )
        found = self.run(messages.search(self.broker, asked))
        if found is None:
            raise RequestError("Queue not found", code="not_found")
        tail = {
            "total": len(found.hits),
            "cursor": None if found.reached is None else write_cursor(found.reached),
            "scanned": {
                "segments": found.segments,
                "bytes": found.bytes,
                "messages": found.messages,
            },
            "encryptedNotSearched": found.encrypted,
        }
        return listed((_hit(queue, hit) for hit in found.hits), tail)


# What they share


def window(query: dict[str, str]) -> tuple[datetime, datetime]:
    """`from` is included, and so is the minute that `to` names."""
    now = datetime.now(UTC)
    since, until = query_instant(query, "from"), query_instant(query, "to")
    return since or now - WINDOW, end_of_minute(until or now)


def mode(queue_mode: bool, bus_groups: int) -> dict[str, Any]:
    if queue_mode:
        kind = "hybrid" if bus_groups else "queue"
    else:
        kind = "bus" if bus_groups else "none"
    return {"hasQueueMode": queue_mode, "busGroupsCount": bus_groups, "type": kind}


def read_cursor(text: str | None) -> Place:
    if not text:
        return Place()
    try:
        raw = base64.urlsafe_b64decode(text[:CURSOR_BYTES_MAX].encode("ascii"))
        offset, partition = json.loads(raw)
    except (ValueError, RecursionError):
        raise RequestError("cursor is not one that this route gave") from None
    if type(offset) is not int or not isinstance(partition, str):
        raise RequestError("cursor is not one that this route gave")
    if not -1 <= offset <= wire.INTEGER_MAX - 1:
        raise RequestError("cursor is not one that this route gave")
    wire.check_identifier("cursor", partition)
    return Place(partition, offset)


def write_cursor(place: Place) -> str:
    raw = json.dumps([place.offset, place.partition]).encode()
    return base64.urlsafe_b64encode(raw).decode()


def listed(rows: Iterable[bytes], tail: dict[str, Any]) -> HttpResponse:
    end = json.dumps(tail, separators=(",", ":"))
    parts = (b'{"messages":[', b",".join(rows), b"],", end[1:].encode())
    return HttpResponse(b"".join(parts), content_type="application/json")


def spliced(shown: Shown, more: dict[str, Any]) -> bytes:
    """A message: the head of its frame, its payload under both names, and what is known of it."""
    if shown.problem is not None:
        more = more | {"error": shown.problem}
    rest = json.dumps(more, separators=(",", ":"))
    return b"".join(
        (
            shown.head,
            frames.DATA,
            shown.payload,
            b',"payload":',
            shown.payload,
            b",",
            rest[1:].encode(),
        )
    )


def _row(row: MessageRow, shown: Shown) -> bytes:
    more = {
        "partitionId": row.partition_uid,
        "partition": row.partition,
        "queue": row.queue,
        "queuePath": f"{row.queue}/{row.partition}",
        "namespace": row.namespace,
        "task": row.task,
        "status": row.status,
        "queueStatus": row.queue_status,
        "busStatus": {"consumedBy": row.consumed_by, "totalGroups": row.groups},
        "payloadAvailable": row.whole,
        "segment": {"seq": row.base, "frameIdx": row.offset - row.base},
        "txnHash": messages.transaction_hash(shown.head),
        "createdAt": timestamp(row.created_at),
        "leaseExpiresAt": _optional(row.lease_expires_at),
        "isEncrypted": row.encrypted,
        "queuePriority": row.priority,
    }
    return spliced(shown, more)


def _detail(partition_uid: str, one: Inspected) -> dict[str, Any]:
    name = one.columns["name"]
    namespace, task = queues.dotted(name)
    return {
        "createdAt": timestamp(one.created_at),
        "partitionId": partition_uid,
        "partition": one.partition,
        "isEncrypted": one.encrypted,
        "queue": name,
        "queuePath": f"{name}/{one.partition}",
        "namespace": one.columns["namespace"] or namespace,
        "task": one.columns["task"] or task,
        "status": "dead_letter" if one.dead else one.queue_status,
        "queueStatus": one.queue_status,
        "errorMessage": one.error,
        "retryCount": one.retry_count,
        "leaseExpiresAt": _optional(one.lease_expires_at),
        "mode": mode(one.queue_mode, one.bus_groups) | {"consumedByGroups": one.consumed_by},
        "queueConfig": queues.effective(one.columns),
    }


def _hit(queue: str, hit: Hit) -> bytes:
    more = {
        "partitionId": hit.partition_uid,
        "partition": hit.partition,
        "queue": queue,
        "offset": hit.offset,
        "createdAt": timestamp(hit.created_at),
    }
    return hit.frame + b"," + json.dumps(more, separators=(",", ":"))[1:].encode()


def _optional(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)
