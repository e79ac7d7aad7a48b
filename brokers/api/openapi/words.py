"""What a few lines about a route are made of: an Operation, and JSON Schema in short.

    "queue_pause": Operation(
        "Pause a queue",
        answers={200: record(queue=text(), paused=truth())},
    )

Imports nothing of ours. Used by areas/ and document.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]

ANYTHING: Schema = {}


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the query string; one that is not known is ignored by the broker."""

    name: str
    schema: Schema
    about: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """A route in words.

    `answers` are those that are no errors: status -> schema, None for no body, text for
    another content type than JSON. `body` is the schema of the body, None for none.
    `known_errors` are schemas of errors that have another shape than the usual one, and
    `also` are other content types in which the same answer is to be had.
    """

    summary: str
    about: str = ""
    query: tuple[Query, ...] = ()
    body: Schema | None = None
    body_required: bool = True
    answers: Mapping[int, Schema | str | None] = field(default_factory=lambda: {200: {}})
    known_errors: Mapping[int, Schema] = field(default_factory=dict)
    also: tuple[str, ...] = ()


def text(about: str = "", **more: Any) -> Schema:
    return _described({"type": "string", **more}, about)


def name(about: str = "") -> Schema:
    """An identifier: compared by code points, at most 255 bytes."""
    return text(about, maxLength=255)


def whole(about: str = "", **more: Any) -> Schema:
    return _described({"type": "integer", **more}, about)


def number(about: str = "") -> Schema:
    return _described({"type": "number"}, about)


def truth(about: str = "") -> Schema:
    return _described({"type": "boolean"}, about)


def moment(about: str = "") -> Schema:
    return _described({"type": "string", "format": "date-time"}, about)


def uuid(about: str = "") -> Schema:
    return _described({"type": "string", "format": "uuid"}, about)


def one_of(*values: str, about: str = "") -> Schema:
    return _described({"type": "string", "enum": list(values)}, about)


def anything(about: str = "") -> Schema:
    return _described({}, about)


def maybe(schema: Schema) -> Schema:
    """The same, or null."""
    if "type" in schema and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def many(schema: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": schema, **more}


def record(about: str = "", /, **members: Schema) -> Schema:
    """An object that has all of these members, and perhaps others: they are only added to."""
    return _described({"type": "object", "properties": members, "required": list(members)}, about)


def loose(about: str = "", needed: tuple[str, ...] = (), /, **members: Schema) -> Schema:
    """An object in which these members may be, and those `needed` must."""
    schema: Schema = {"type": "object", "properties": members}
    if needed:
        schema["required"] = list(needed)
    return _described(schema, about)


def ref(component: str) -> Schema:
    """One of the module's `COMPONENTS`."""
    return {"$ref": f"#/components/schemas/{component}"}


def _described(schema: Schema, about: str) -> Schema:
    return {**schema, "description": about} if about else schema
