"""Bodies that a serializer reads, as JSON Schema: drf-spectacular maps them, field by field.

Our own fields know their bounds and are told to it here.

Imports serializers. Used by areas/.
"""

from typing import Any

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from brokers.api import wire


class WholeFieldExtension(OpenApiSerializerFieldExtension):
    target_class = "brokers.api.serializers.WholeField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: str) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.target.low, "maximum": self.target.high}


class TruthFieldExtension(OpenApiSerializerFieldExtension):
    target_class = "brokers.api.serializers.TruthField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: str) -> dict[str, Any]:
        return {"type": "boolean"}


class PatternFieldExtension(OpenApiSerializerFieldExtension):
    target_class = "brokers.api.serializers.PatternField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: str) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{self.target.pattern.pattern}$"}


class NameFieldExtension(OpenApiSerializerFieldExtension):
    target_class = "brokers.api.serializers.NameField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: str) -> dict[str, Any]:
        return {"type": "string", "maxLength": wire.NAME_BYTES_MAX}


class _NoView(APIView):
    """A serializer is mapped for a view; ours are shared, and belong to none."""

    request = None
    format_kwarg = None


def schema_of(serializer: type[Serializer]) -> dict[str, Any]:
    """The schema of what the serializer takes."""
    mapper = AutoSchema()
    mapper.view = _NoView()
    mapper.method = "POST"
    return dict(mapper._map_serializer(serializer(), "request"))
