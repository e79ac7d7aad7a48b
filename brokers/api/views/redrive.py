"""The redrive routes: start one, watch it, cancel it, let it run again.

Imports errors, serializers, services/redrive, wire, base, dead_letters, instants. Used by
urls.py.
"""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers.api import wire
from brokers.api.serializers import NameField, ReplaySerializer, WholeField, validated
from brokers.api.views.base import ManagementView, timestamp
from brokers.api.views.dead_letters import uuid_or_none
from brokers.api.views.instants import InstantField
from brokers.errors import RequestError
from brokers.services import redrive
from brokers.services.redrive import ListRequest, RedriveRequest
from brokers.store.redrive_calls import Filter, RedriveRow

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
ERROR_TEXT_MAX = 1000
STATES = ("running", "done", "cancelled", "failed")
WAITING = "push maintenance"


class ErrorTextField(serializers.Field):
    """A text that the error has to hold somewhere; case counts."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or not data:
            raise serializers.ValidationError("must be a string that is not empty")
        problem = wire.identifier_problem(data, ERROR_TEXT_MAX)
        if problem is not None:
            raise serializers.ValidationError(problem)
        return data

    def to_representation(self, value: str) -> str:
        return value


class DestinationField(serializers.Field):
    """An object like the body of a replay."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise serializers.ValidationError("must be a JSON object")
        return validated(ReplaySerializer(data=data))

    def to_representation(self, value: dict[str, Any]) -> dict[str, Any]:
        return value


OPTIONAL: dict[str, Any] = {"required": False, "allow_null": True}


class RedriveSerializer(serializers.Serializer):
    """Which dead letters, where to, and how fast."""

    queue = NameField()
    consumerGroup = NameField(**OPTIONAL)
    error = ErrorTextField(**OPTIONAL)
    to = InstantField(**OPTIONAL)
    destination = DestinationField(**OPTIONAL)
    rate = WholeField(low=1, high=redrive.RATE_MAX, **OPTIONAL)

    def get_fields(self) -> dict[str, serializers.Field]:
        # `from` is a word of the language.
        return super().get_fields() | {"from": InstantField(**OPTIONAL)}


class RedriveCreateView(ManagementView):
    def post(self, request: Request) -> Response:
        body = self.body()
        if body.get("queue") is None:
            raise RequestError("queue is required")
        asked = validated(RedriveSerializer(data=body))
        destination = asked.get("destination") or {}
        since, until = asked.get("from"), asked.get("to")
        if since is not None and until is not None and since > until:
            raise RequestError("from must not be later than to")
        work = RedriveRequest(
            tenant=self.tenant,
            which=Filter(
                queue=asked["queue"],
                group=asked.get("consumerGroup") or None,
                error=asked.get("error"),
                since=since,
                until=until,
            ),
            target_queue=destination.get("queue"),
            target_partition=destination.get("partition"),
            rate=asked.get("rate") or redrive.RATE_DEFAULT,
        )
        return Response(document(self, self.run(redrive.create(self.broker, work))), status=201)


class RedriveListView(ManagementView):
    """Newest first."""

    def get(self, request: Request) -> Response:
        query = self.query()
        state = query.get("state") or None
        if state is not None and state not in STATES:
            raise RequestError(f"state must be one of {', '.join(STATES)}")
        limit = wire.query_integer(query, "limit", LIMIT_DEFAULT)
        offset = wire.query_integer(query, "offset", 0)
        assert limit is not None and offset is not None
        asked = ListRequest(
            tenant=self.tenant,
            state=state,
            limit=min(max(limit, 1), LIMIT_MAX),
            offset=max(offset, 0),
        )
        rows = self.run(redrive.page(self.broker, asked))
        return Response(
            {
                "redrives": [document(self, row) for row in rows],
                "pagination": {"limit": asked.limit, "offset": asked.offset},
                "total": len(rows),
            }
        )


class RedriveDetailView(ManagementView):
    def get(self, request: Request) -> Response:
        redrive_id = uuid_or_none(self.door["params"]["id"])
        return Response(
            document(self, self.run(redrive.find(self.broker, self.tenant, redrive_id)))
        )


class RedriveCancelView(ManagementView):
    def post(self, request: Request) -> Response:
        redrive_id = uuid_or_none(self.door["params"]["id"])
        return Response(
            document(self, self.run(redrive.cancel(self.broker, self.tenant, redrive_id)))
        )


class RedriveResumeView(ManagementView):
    def post(self, request: Request) -> Response:
        redrive_id = uuid_or_none(self.door["params"]["id"])
        return Response(
            document(self, self.run(redrive.resume(self.broker, self.tenant, redrive_id)))
        )


def document(view: ManagementView, row: RedriveRow) -> dict[str, Any]:
    waits = row.state == "running" and view.broker.switches.push_maintenance
    return {
        "id": row.id,
        "queue": row.queue,
        "consumerGroup": row.group,
        "error": row.error,
        "from": None if row.since is None else timestamp(row.since),
        "to": timestamp(row.until),
        "destination": {"queue": row.target_queue, "partition": row.target_partition},
        "rate": row.rate,
        "state": row.state,
        "waitingFor": WAITING if waits else None,
        "total": row.total,
        "scanned": row.looked_at,
        "moved": row.moved,
        "skipped": row.skipped,
        "problem": row.problem,
        "createdAt": timestamp(row.created_at),
        "updatedAt": timestamp(row.updated_at),
        "finishedAt": None if row.finished_at is None else timestamp(row.finished_at),
    }
