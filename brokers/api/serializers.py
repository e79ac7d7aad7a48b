"""What the management routes take: bodies as serializers, as strict as the wire is.

DRF's own number, truth and text fields are forgiving ("5" is 5, 1 is true, blanks are cut
off); here a value is of its JSON type or it is refused, and nothing is trimmed unless the
route says so. A null is a missing key, but for an option: there it restores the default.

Imports errors, services/queues (the table of options), wire. Used by views/.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from brokers.api import wire
from brokers.errors import RequestError
from brokers.services.queues import OPTIONS, Option

MODE_TEXT_MAX = 100

# Of an integer that is read as one.
DIGITS_MAX = 400


def json_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object; an empty one is an object without keys."""
    text = wire.json_text(body)
    if not text.strip(b" \t\r\n"):
        return {}
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_int=_integer)
    except RecursionError:
        raise RequestError("bad body: nested too deeply", code="bad_body") from None
    except ValueError as error:
        raise RequestError(f"bad body: {error}", code="bad_body") from None
    if not isinstance(value, dict):
        raise RequestError("bad body: must be a JSON object", code="bad_body")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int | float:
    """Python reads no integer beyond some thousand digits; to every field such a one is too
    large, and in a key that nobody knows it is nobody's business."""
    return int(digits) if len(digits) <= DIGITS_MAX else float(digits)


class WholeField(serializers.Field):
    """A JSON integer within bounds."""

    def __init__(self, *, low: int, high: int, **options: Any) -> None:
        super().__init__(**options)
        self.low, self.high = low, high

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            raise serializers.ValidationError("must be an integer")
        if not self.low <= data <= self.high:
            raise serializers.ValidationError(f"must be between {self.low} and {self.high}")
        return data

    def to_representation(self, value: int) -> int:
        return value


class TruthField(serializers.Field):
    """JSON true or false."""

    def to_internal_value(self, data: Any) -> bool:
        if type(data) is not bool:
            raise serializers.ValidationError("must be true or false")
        return data

    def to_representation(self, value: bool) -> bool:
        return value


class PatternField(serializers.Field):
    """Text that matches a pattern as a whole."""

    def __init__(self, *, pattern: str, **options: Any) -> None:
        super().__init__(**options)
        self.pattern = re.compile(pattern)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or self.pattern.fullmatch(data) is None:
            raise serializers.ValidationError(f"must be a string like {self.pattern.pattern}")
        return data

    def to_representation(self, value: str) -> str:
        return value


class NameField(serializers.Field):
    """An identifier, taken as it is; `trimmed` where a route says so."""

    def __init__(self, *, trimmed: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.trimmed = trimmed

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("must be a string")
        if self.trimmed:
            data = data.strip()
            if not data:
                raise serializers.ValidationError("must not be blank")
        problem = wire.identifier_problem(data, wire.NAME_BYTES_MAX)
        if problem is not None:
            raise serializers.ValidationError(problem)
        return data

    def to_representation(self, value: str) -> str:
        return value


def _option_field(option: Option) -> serializers.Field:
    if isinstance(option.default, bool):
        return TruthField(required=False, allow_null=True)
    if isinstance(option.default, int):
        return WholeField(low=option.low, high=option.high, required=False, allow_null=True)
    return PatternField(pattern=option.pattern, required=False, allow_null=True)


class OptionsSerializer(serializers.Serializer):
    """Every option of a queue; unknown ones are ignored, a null restores a default."""

    namespace = NameField(required=False, allow_null=True)
    task = NameField(required=False, allow_null=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        return super().get_fields() | {option.name: _option_field(option) for option in OPTIONS}


class QueueNameSerializer(serializers.Serializer):
    queue = NameField()


class ReplaySerializer(serializers.Serializer):
    """Where a dead letter shall go; what is missing stays as it was."""

    queue = NameField(trimmed=True, required=False, allow_null=True)
    partition = NameField(trimmed=True, required=False, allow_null=True)


class PurgeSerializer(serializers.Serializer):
    """Whether a purge takes dead letters too."""

    deadLetters = TruthField(required=False, allow_null=True)


def configuration(body: Mapping[str, Any]) -> tuple[str, bool, dict[str, Any]]:
    """Queue, whether to replace, and the options named, nested or at the top of the body.

    A nested option wins over one at the top. A null at the top is a default as well, but
    for namespace and task, which every client sends, set or not.
    """
    if body.get("queue") is None:
        raise RequestError("queue is required")
    queue = validated(QueueNameSerializer(data={"queue": body["queue"]}))["queue"]
    mode = body.get("mode")
    if mode not in (None, "merge", "replace"):
        told = json.dumps(mode)[:MODE_TEXT_MAX]
        raise RequestError(f'mode must be "merge" or "replace", got {told}')
    nested = body.get("options")
    if nested is not None and not isinstance(nested, dict):
        raise RequestError("bad body: options must be a JSON object", code="bad_body")
    at_top = {
        name: value
        for name, value in body.items()
        if not (name in ("namespace", "task") and value is None)
    }
    options = validated(OptionsSerializer(data=at_top | (nested or {})))
    return queue, mode == "replace", options


def validated(serializer: serializers.Serializer) -> dict[str, Any]:
    """The values, or a RequestError that names everything wrong at once."""
    if serializer.is_valid():
        return dict(serializer.validated_data)
    told = "; ".join(
        f"{name} {' and '.join(map(str, problems))}" for name, problems in serializer.errors.items()
    )
    [first, *_] = serializer.errors
    raise RequestError(told, body={"error": told, "invalid": first})
