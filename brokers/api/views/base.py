"""What every management view stands on: the door's findings, and answers in JSON.

The door has routed, authorised and read the body; a view finds all that in
`scope["queen"]`, so nothing is negotiated here: bodies are JSON whatever their content
type, answers are JSON whatever was asked for. A view runs in a thread and touches nothing
of the broker's loop: `run` sends a service there and waits for its answer.

Imports errors, serializers, wire. Used by the views.
"""

import logging
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

import msgspec
from django.http import HttpResponse
from rest_framework.exceptions import APIException
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from brokers.api import wire
from brokers.api.serializers import json_object
from brokers.errors import BrokerError, NoSuchRoute, StoreError, error_body, logged

if TYPE_CHECKING:
    from brokers.runtime import Broker

T = TypeVar("T")
logger = logging.getLogger(__name__)

MOMENTS_MAX = 1024
_encode = msgspec.json.Encoder().encode


class NoNegotiation(BaseContentNegotiation):
    """The one renderer, whatever the headers and the query say."""

    def select_parser(self, request: Request, parsers: list[BaseParser]) -> None:
        return None

    def select_renderer(
        self, request: Request, renderers: list[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class ManagementView(APIView):
    """One route. The rights of its caller were the door's business."""

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()
    parser_classes = ()  # a body is read by `body`, whatever it calls itself
    renderer_classes = (JSONRenderer,)
    content_negotiation_class = NoNegotiation

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Whoever found another way here than through the door has found nothing."""
        if "queen" not in getattr(cast(Any, request)._request, "scope", {}):
            raise NoSuchRoute
        super().initial(request, *args, **kwargs)

    @property
    def door(self) -> dict[str, Any]:
        """What the door knows of this request."""
        return cast(Any, self.request)._request.scope["queen"]

    @property
    def broker(self) -> "Broker":
        return self.door["broker"]

    @property
    def tenant(self) -> UUID:
        return self.door["tenant"]

    def identifier(self, parameter: str) -> str:
        """A name of the path, refused when it is none."""
        value: str = self.door["params"][parameter]
        wire.check_identifier(parameter, value)
        return value

    def query(self) -> dict[str, str]:
        return wire.parse_query(cast(Any, self.request)._request.scope["query_string"])

    def body(self) -> dict[str, Any]:
        """The body as a JSON object, as the door has read it."""
        return json_object(self.door["body"])

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The answer of a service, which runs in the broker's own loop."""
        return self.broker.call_from_thread(work)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """Whatever was raised, by the one table of errors."""
    if isinstance(error, APIException):
        detail = error.detail if isinstance(error.detail, str) else "bad request"
        return Response({"error": detail}, status=error.status_code)
    station = type(context["view"]).__name__
    if not isinstance(error, BrokerError):
        logger.exception("%s failed", station, exc_info=error)
        status, document = error_body(error)
        return Response(document, status=status)
    if isinstance(error, StoreError):
        logger.warning("%s: %s", station, logged(error))
    status, document = error_body(error)
    return Response(document, status=status, headers=dict(error.headers))


def json_answer(document: Any, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """A large answer. The standard library takes ten times as long to make JSON of one, and the
    renderer of the framework longer."""
    return HttpResponse(_encode(document), content_type="application/json", headers=headers)


# Over very many queues the same few buckets come again and again.
@lru_cache(MOMENTS_MAX)
def timestamp(moment: datetime) -> str:
    """A time of the database as the wire writes it."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
