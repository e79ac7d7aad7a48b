"""The OpenAPI 3.1 document: the table of routes, and what areas/ say of each.

Whatever a route's row tells is taken from there: path, parameters, level, tenant. Only
words, queries, bodies and answers come from areas/, and a route of which nobody says
anything is described by its row alone; so none is ever missing.

Imports areas, words, routes. Used by api/views/docs.py.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from brokers.api import VERSION
from brokers.api.auth import TENANT_HEADER
from brokers.api.openapi import areas
from brokers.api.openapi.words import Operation, Schema, loose, ref, text
from brokers.api.route import Level, Route
from brokers.api.routes import PARAMETER_BYTES_MAX, ROUTES
from brokers.api.wire import NAME_BYTES_MAX

OPENAPI = "3.1.0"
PARAMETER = re.compile(r"[:*](\w+)")
ERRORS = {
    400: "The request is wrong; nothing was done",
    401: "No valid token",
    403: "The token's role may not do this, or a quota is used up",
    404: "There is no such thing",
    405: "The path is right and the method is not: see `Allow`",
    408: "The request did not come to its end in time",
    409: "It contradicts what is stored",
    413: "Too large",
    415: "An encoding of the body that is not known",
    429: "Too much at once: see `Retry-After`",
    431: "The address and the headers are too long together",
    500: "The database or the disk failed",
    503: "Paused, or not available: see `Retry-After`",
}
LEVELS = {
    Level.PUBLIC: "Anybody.",
    Level.READ_ONLY: "Roles: read-only, read-write, admin.",
    Level.WRITE_ONLY: "Roles: write-only, read-write, admin.",
    Level.READ_WRITE: "Roles: read-write, admin.",
    Level.ADMIN: "Role: admin.",
}
SHARED = (
    "The answer may be told again for `QUEEN_ANALYTICS_FRESH_MS`, until something is changed"
    " through this broker."
)
UNDESCRIBED = Operation(
    "", answers={200: {}, 201: {}, 202: {}, 204: None}, body={}, body_required=False
)
COMPONENTS: dict[str, Schema] = {
    "Error": loose(
        "Some families tell a `code` as well, or have it in `error`",
        ("error",),
        error=text(),
        code=text(),
    )
}
ABOUT = """Messages in queues of ordered partitions, on PostgreSQL.

Names in paths are percent-encoded, each as one segment; an empty segment is the empty name.
Members are only ever added to an answer: ignore those that you do not know. A HEAD is
answered wherever a GET changes nothing."""


@cache
def document() -> dict[str, Any]:
    return build(ROUTES)


def build(routes: Iterable[Route]) -> dict[str, Any]:
    described, tags, components = gathered()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        told = described.get(route.handler)
        operation = _operation(route, told or UNDESCRIBED, tags.get(route.handler))
        paths.setdefault(path_of(route), {})[route.method.lower()] = operation
    used = sorted({tag for path in paths.values() for one in path.values() for tag in one["tags"]})
    return {
        "openapi": OPENAPI,
        "info": {"title": "Queen on PostgreSQL", "version": VERSION, "description": ABOUT},
        "tags": [{"name": tag} for tag in used],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                str(status): {"description": about, "content": _json(ref("Error"))}
                for status, about in ERRORS.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


@cache
def gathered() -> tuple[dict[str, Operation], dict[str, str], dict[str, Schema]]:
    """What all areas say: operations and tags by handler, and components by name."""
    operations: dict[str, Operation] = {}
    tags: dict[str, str] = {}
    components = dict(COMPONENTS)
    for found in iter_modules(areas.__path__):
        area = import_module(f"{areas.__name__}.{found.name}")
        shared: Mapping[str, Schema] = getattr(area, "COMPONENTS", {})
        twice = operations.keys() & area.OPERATIONS.keys() or components.keys() & shared.keys()
        assert not twice, f"described twice: {sorted(twice)}"
        operations |= area.OPERATIONS
        tags |= dict.fromkeys(area.OPERATIONS, area.TAG)
        components |= shared
    return operations, tags, components


def path_of(route: Route) -> str:
    """The template as OpenAPI writes it."""
    return PARAMETER.sub(r"{\1}", route.template)


def _operation(route: Route, told: Operation, tag: str | None) -> dict[str, Any]:
    summary = told.summary or route.handler.replace("_", " ").capitalize()
    operation: dict[str, Any] = {
        "operationId": route.handler,
        "summary": summary,
        "description": " ".join(
            filter(None, [told.about.strip(), SHARED * route.shared, LEVELS[route.level]])
        ),
        "tags": [tag or route.template.removeprefix("/api/v1").split("/")[1]],
        "parameters": [*_path_parameters(route), *_query_parameters(told), *_headers(route)],
        "responses": _responses(told),
        "security": [] if route.level is Level.PUBLIC else [{}, {"token": []}],
        "x-level": str(route.level),
    }
    if told.body is not None and route.method in ("POST", "PUT", "PATCH", "DELETE"):
        operation["requestBody"] = {
            "required": told.body_required,
            "content": _json(told.body),
        }
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    found = []
    for match in PARAMETER.finditer(route.template):
        schema = text(maxLength=PARAMETER_BYTES_MAX.get(match[1], NAME_BYTES_MAX))
        one = {"name": match[1], "in": "path", "required": True, "schema": schema}
        if match[0].startswith("*"):
            one["description"] = "May hold slashes: it is all that is left of the path."
        found.append(one)
    return found


def _query_parameters(told: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": query.name,
            "in": "query",
            "required": query.required,
            "schema": query.schema,
            **({"description": query.about} if query.about else {}),
        }
        for query in told.query
    ]


def _headers(route: Route) -> list[dict[str, Any]]:
    if not route.tenant:
        return []
    about = "Where tenancy is on: set by a trusted proxy, the default tenant when absent."
    return [
        {
            "name": TENANT_HEADER.decode("ascii"),
            "in": "header",
            "required": False,
            "description": about,
            "schema": text(format="uuid"),
        }
    ]


def _responses(told: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in told.answers.items():
        one: dict[str, Any] = {"description": "Nothing" if answer is None else "Done"}
        if isinstance(answer, str):
            one["content"] = {answer: {"schema": {}}}
        elif answer is not None:
            one["content"] = _json(answer) | {other: {"schema": {}} for other in told.also}
        responses[str(status)] = one
    for status in ERRORS:
        own = told.known_errors.get(status)
        if own is None:
            responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
        else:
            responses[str(status)] = {"description": ERRORS[status], "content": _json(own)}
    return responses


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
