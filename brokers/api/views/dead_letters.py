"""The dead letters' routes: list, purge, replay by row and by address, signatures.

A payload leaves as the bytes that came in: it is spliced into the answer, never decoded.

Imports errors, serializers, services/{dead_letters,messages}, wire, base, paging. Used by urls.py.
"""

import json
import re
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from brokers.api import wire
from brokers.api.serializers import ReplaySerializer, validated
from brokers.api.views.base import ManagementView, timestamp
from brokers.api.views.paging import page_of
from brokers.errors import RequestError, StoreError, harmless
from brokers.services import dead_letters, messages
from brokers.services.dead_letters import PageRequest, Replayed, ReplayRequest
from brokers.store.management_calls import DeadLetterRow

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
SAMPLE_DEFAULT = 200
NOT_FOUND = "Message not found"

_uuid = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


class DeadLetterListView(ManagementView):
    """Newest first; parameters that are not known, `partition` and times among them, are
    ignored."""

    def get(self, request: Request) -> HttpResponse:
        query = self.query()
        page = page_of(query, default=LIMIT_DEFAULT, most=LIMIT_MAX)
        asked = PageRequest(
            tenant=self.tenant,
            queue=wire.query_name(query, "queue"),
            group=wire.query_name(query, "consumerGroup"),
            limit=page.limit,
            offset=page.offset,
        )
        rows = self.run(dead_letters.page(self.broker, asked))
        tail = json.dumps(
            {"pagination": page.told(), "total": len(rows)},
            separators=(",", ":"),
        )
        parts = (b'{"messages":[', b",".join(map(_row, rows)), b"],", tail[1:].encode())
        return HttpResponse(b"".join(parts), content_type="application/json")


class SignaturesView(ManagementView):
    """What the newest dead letters of a queue died of; no payload is looked at."""

    def get(self, request: Request) -> Response:
        query = self.query()
        queue = wire.query_name(query, "queue")
        if queue is None:
            raise RequestError("queue required")
        limit = wire.query_integer(query, "limit", SAMPLE_DEFAULT)
        assert limit is not None
        found = self.run(
            messages.signatures(self.broker, self.tenant, queue, min(max(limit, 1), LIMIT_MAX))
        )
        letters, sample = found.sample.letters, found.sample
        size = len(letters)
        return Response(
            {
                "queue": queue,
                "rowsNow": sample.rows,
                "sample": size,
                "retryCounts": sorted({retries for _, retries, *_ in letters}),
                "groups": sorted({group for _, _, group, *_ in letters}),
                "oldest": None if sample.oldest is None else timestamp(sample.oldest),
                "newest": None if sample.newest is None else timestamp(sample.newest),
                "avgBytes": round(sum(row[4] for row in letters) / size) if size else 0,
                "signatures": [
                    {"text": text, "n": n, "share": round(n / size, 4)} for text, n in found.texts
                ],
                "byDay": [{"day": day, "n": n} for day, n in found.days],
            }
        )


class DeadLetterPurgeView(ManagementView):
    def delete(self, request: Request) -> Response:
        query = self.query()
        queue, group = wire.query_name(query, "queue"), wire.query_name(query, "consumerGroup")
        if queue is None:
            raise RequestError("queue is required")
        deleted = self.run(dead_letters.purge(self.broker, self.tenant, queue, group))
        return Response(
            {"success": True, "deleted": deleted, "queue": queue, "consumerGroup": group or ""}
        )


class DeadLetterReplayView(ManagementView):
    """By row; the body may name another destination."""

    def post(self, request: Request) -> Response:
        sent = self.door["params"]["id"]
        destination = validated(ReplaySerializer(data=self.body()))
        row_id = uuid_or_none(sent)
        moved = None
        if row_id is not None:
            asked = ReplayRequest(tenant=self.tenant, dead_letter_id=row_id, **destination)
            moved = _replayed(self, asked)
        if moved is not None:
            return moved
        told = "No such dead letter: it was replayed or purged, or never was."
        answer = {"success": False, "result": "gone", "dlqId": sent}
        return Response(answer | {"error": NOT_FOUND, "message": told}, status=404)


class MessageRetryView(ManagementView):
    """By address: the newest dead letter of a partition and transactionId, in place."""

    def post(self, request: Request) -> Response:
        params = self.door["params"]
        sent, transaction_id = params["partitionId"], params["transactionId"]
        partition_uid = uuid_or_none(sent)
        moved = None
        if partition_uid is not None:
            try:
                row_id = self.run(
                    dead_letters.newest_at(self.broker, self.tenant, partition_uid, transaction_id)
                )
            except StoreError as error:
                error.text = f"dlq lookup failed: {error.text}"
                raise
            if row_id is not None:
                moved = _replayed(self, ReplayRequest(tenant=self.tenant, dead_letter_id=row_id))
        if moved is not None:
            return moved
        told = "No dead letter at this address."
        answer = {"success": False, "partitionId": sent, "transactionId": transaction_id}
        return Response(answer | {"error": NOT_FOUND, "message": told}, status=404)


def _replayed(view: ManagementView, asked: ReplayRequest) -> Response | None:
    """The answer of a replay; None when the dead letter is gone."""
    try:
        result = view.run(dead_letters.replay(view.broker, asked))
    except StoreError as error:
        # Null warns: nobody knows whether it moved, so the list has to be read again.
        removed = None if error.outcome_unknown else False
        answer = {"success": False, "dlqId": str(asked.dead_letter_id)}
        return Response(
            answer | {"error": harmless(error.text), "dlqRowRemoved": removed}, status=500
        )
    return None if result is None else Response(_moved(result))


def _moved(result: Replayed) -> dict[str, Any]:
    return {
        "success": True,
        "result": "moved" if result.moved else "duplicate",
        "queue": result.queue,
        "partition": result.partition,
        "consumerGroup": result.group,
        "dlqId": result.dead_letter_id,
        "originalTransactionId": result.original_transaction_id,
        "replayedAs": {
            "index": 0,
            "message_id": result.message_id,
            "transaction_id": result.transaction_id,
            "queueName": result.queue,
            "status": "queued" if result.moved else "duplicate",
            "offset": result.offset,
        },
        "dlqRowRemoved": result.moved,
    }


def _row(row: DeadLetterRow) -> bytes:
    """The transactionId is a JSON literal and the payload a JSON value: both go in as they are."""
    failed_at = timestamp(row.failed_at)
    head = {
        "id": row.id,
        "partitionId": row.partition_uid,
        "queue": row.queue,
        "partition": row.partition,
        "consumerGroup": row.group,
        "errorMessage": row.error,
        "retryCount": row.retry_count,
        "producerSub": None,
        "createdAt": failed_at,
        "failedAt": failed_at,
    }
    text = json.dumps(head, separators=(",", ":"))[:-1]
    text += f',"transactionId":{row.transaction_id},"data":'
    tail = b',"isEncrypted":true}' if row.encrypted else b"}"
    return text.encode() + row.payload + tail


def uuid_or_none(text: str) -> UUID | None:
    return UUID(text) if _uuid.fullmatch(text) else None
