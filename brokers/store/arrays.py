"""Arrays of texts and of bytes as PostgreSQL takes them, made in one pass.

psycopg asks of every element what it is and how it wants to be sent, because a list may hold
anything. Ours hold one kind, and a push sends three of them.

The binary form: dimensions, whether there are nulls, the type of the elements, their number, the
first index; then each element behind its size, a null being a size of -1.

Imports nothing of ours. Used by calls.py.
"""

from collections.abc import Sequence
from struct import Struct

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

BYTEA, BYTEA_ARRAY = 17, 1001
TEXT, TEXT_ARRAY = 25, 1009
NULL = b"\xff\xff\xff\xff"

# Most elements are smaller than so many bytes.
SIZES = 2048

_head = Struct(">iiI").pack
_bounds = Struct(">ii").pack
_size = Struct(">i").pack
_sizes = [_size(size) for size in range(SIZES)]


class ByteaArray:
    """The values of a `bytea[]` parameter."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[bytes | None]) -> None:
        self.values = values


class TextArray:
    """The values of a `text[]` parameter."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[str]) -> None:
        self.values = values


def _array(kind: int, values: Sequence[bytes | None]) -> bytes:
    if not values:
        return _head(0, 0, kind)
    nulls = None in values
    parts = [_head(1, nulls, kind), _bounds(len(values), 1)]
    add = parts.append
    for value in values:
        if value is None:
            add(NULL)
        else:
            size = len(value)
            add(_sizes[size] if size < SIZES else _size(size))
            add(value)
    return b"".join(parts)


class _ByteaArrayDumper(Dumper):
    format = Format.BINARY
    oid = BYTEA_ARRAY

    def dump(self, obj: ByteaArray) -> Buffer:
        return _array(BYTEA, obj.values)


class _TextArrayDumper(Dumper):
    format = Format.BINARY
    oid = TEXT_ARRAY

    def dump(self, obj: TextArray) -> Buffer:
        return _array(TEXT, [value.encode() for value in obj.values])


psycopg.adapters.register_dumper(ByteaArray, _ByteaArrayDumper)
psycopg.adapters.register_dumper(TextArray, _TextArrayDumper)
