"""The routes that work on a queue as a whole: pause, resume, purge.

Imports errors, serializers, services/{pausing,purge}, base. Used by urls.py.
"""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from brokers.api.serializers import PurgeSerializer, validated
from brokers.api.views.base import ManagementView
from brokers.api.views.queues import GONE
from brokers.errors import RequestError
from brokers.services import pausing, purge
from brokers.services.purge import PurgeRequest, UnknownPartition, UnknownQueue

PARTITION_GONE = "Partition not found"


class PauseView(ManagementView):
    paused = True

    def post(self, request: Request) -> Response:
        name = self.identifier("queue")
        self.body()
        done = self.run(pausing.set_paused(self.broker, self.tenant, name, paused=self.paused))
        if done is None:
            raise RequestError(GONE, code="not_found")
        return Response({"queue": name, "paused": self.paused, "changed": done.changed})


class ResumeView(PauseView):
    paused = False


class PurgeView(ManagementView):
    def post(self, request: Request) -> Response:
        return self.purged(None)

    def purged(self, partition: str | None) -> Response:
        name = self.identifier("queue")
        asked = validated(PurgeSerializer(data=self.body()))
        work = purge.purge(
            self.broker,
            PurgeRequest(
                tenant=self.tenant,
                queue=name,
                partition=partition,
                dead_letters=bool(asked.get("deadLetters")),
            ),
        )
        try:
            done = self.run(work)
        except UnknownQueue:
            raise RequestError(GONE, code="not_found") from None
        except UnknownPartition:
            raise RequestError(PARTITION_GONE, code="not_found") from None
        answer: dict[str, Any] = {"purged": done.complete, "queue": name}
        if partition is not None:
            answer["partition"] = partition
        return Response(
            answer
            | {
                "partitions": done.partitions,
                "messages": done.messages,
                "segments": done.segments,
                "bytes": done.bytes,
                "deadLetters": done.dead_letters,
                "partitionsBusy": done.busy,
                "more": done.more,
            }
        )


class PartitionPurgeView(PurgeView):
    def post(self, request: Request) -> Response:
        return self.purged(self.identifier("partition"))
