"""The tolerant decoder: msgspec's part for the texts that msgspec refuses.

Fills the same structs from the extents that scanner.py finds, so that payloads.py sees no
difference. Slow, and used only for bodies that hold a lone surrogate escape: such a
payload is legal and is kept byte for byte; such an identifier reaches the check that
refuses it by name.

Imports errors, scanner. Used by payloads.py.
"""

import types
import typing
from functools import cache
from typing import Any, TypeVar

import msgspec

from brokers.api import scanner
from brokers.errors import RequestError

T = TypeVar("T")


def decode(body: bytes, shape: type[T]) -> T:
    """The body as `shape`. Raises a RequestError that says where it does not fit."""
    try:
        start, end = scanner.document(body)
        value: T = _Reader(body).value(shape, start, end, "$")
    except scanner.Malformed as error:
        raise RequestError(f"bad body: JSON is malformed: {error}", code="bad_body") from None
    return value


class _Reader:
    """Reads the few shapes of payloads.py: structs, tagged unions, lists, text, raw."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def value(self, shape: Any, start: int, end: int, path: str) -> Any:
        if shape is msgspec.Raw:
            return msgspec.Raw(self._body[start:end])
        found = scanner.kind(self._body, start)
        choices = typing.get_args(shape) if _is_union(shape) else (shape,)
        if found == "null" and types.NoneType in choices:
            return None
        choices = tuple(choice for choice in choices if choice is not types.NoneType)
        if all(_is_struct(choice) for choice in choices):
            self._expect("object", found, path)
            return self._struct(choices, start, path)
        [choice] = choices
        if choice is str:
            self._expect("string", found, path)
            return scanner.string(self._body, start, end)
        if choice is int:
            self._expect("number", found, path)
            number = scanner.integer(self._body, start, end)
            if number is None:
                raise _misfit("an integer", "another number", path)
            return number
        assert typing.get_origin(choice) is list, f"a shape that nobody reads: {choice}"
        self._expect("array", found, path)
        [inner] = typing.get_args(choice)
        return [
            self.value(inner, *extent, f"{path}[{index}]")
            for index, extent in enumerate(scanner.elements(self._body, start))
        ]

    def _struct(self, choices: tuple[Any, ...], start: int, path: str) -> Any:
        struct = choices[0] if len(choices) == 1 else self._tagged(choices, start, path)
        fields = _fields(struct)
        extents = scanner.members(self._body, start, fields)
        values: dict[str, Any] = {}
        for name, one in fields.items():
            if name in extents:
                values[one.name] = self.value(one.type, *extents[name], f"{path}.{name}")
            elif one.required:
                raise RequestError(
                    f"bad body: Object missing required field `{name}` - at `{path}`",
                    code="bad_body",
                )
        return struct(**values)

    def _tagged(self, choices: tuple[Any, ...], start: int, path: str) -> Any:
        field = choices[0].__struct_config__.tag_field
        extents = scanner.members(self._body, start, (field,))
        if field in extents:
            tag = self.value(str, *extents[field], f"{path}.{field}")
            for choice in choices:
                if choice.__struct_config__.tag == tag:
                    return choice
            raise RequestError(f"bad body: Invalid value - at `{path}.{field}`", code="bad_body")
        raise RequestError(
            f"bad body: Object missing required field `{field}` - at `{path}`", code="bad_body"
        )

    def _expect(self, wanted: str, found: str, path: str) -> None:
        if wanted != found:
            raise _misfit(wanted, found, path)


def _misfit(wanted: str, found: str, path: str) -> RequestError:
    return RequestError(
        f"bad body: Expected `{wanted}`, got `{found}` - at `{path}`", code="bad_body"
    )


@cache
def _fields(struct: Any) -> dict[str, Any]:
    return {one.encode_name: one for one in msgspec.structs.fields(struct)}


def _is_union(shape: Any) -> bool:
    return typing.get_origin(shape) in (types.UnionType, typing.Union)


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)
