"""The caller: who it is, what its role allows, which tenant and queues it is confined to.

A level is what a route asks for, a role is what a caller has; which role satisfies which
level is the table below, a set and not a ladder. What the table does not name is refused.

Imports nothing of ours. Used by tokens.py, flow/access.py, api/auth.py and services/api_keys.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

PUBLIC = "public"
READ_ONLY, WRITE_ONLY, READ_WRITE, ADMIN = "read-only", "write-only", "read-write", "admin"
ROLES = (ADMIN, READ_WRITE, READ_ONLY, WRITE_ONLY)

SATISFIED_BY: Mapping[str, frozenset[str]] = {
    READ_ONLY: frozenset({READ_ONLY, READ_WRITE, ADMIN}),
    WRITE_ONLY: frozenset({WRITE_ONLY, READ_WRITE, ADMIN}),
    READ_WRITE: frozenset({READ_WRITE, ADMIN}),
    ADMIN: frozenset({ADMIN}),
}


def levels_of(roles: Iterable[str]) -> frozenset[str]:
    """The levels that somebody with these roles satisfies; an unknown role satisfies none."""
    held = frozenset(roles)
    return frozenset(level for level, by in SATISFIED_BY.items() if held & by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The authenticated caller. The subject is stamped on what it pushes.

    `tenant` is the one that it belongs to; None where the header says it. A caller with a
    `queue_prefix` is confined to the queues whose names begin with it.
    """

    subject: str | None = None
    levels: frozenset[str] = frozenset()
    tenant: UUID | None = None
    queue_prefix: str = ""


EVERYTHING = frozenset(SATISFIED_BY)
ANYBODY = Principal(levels=EVERYTHING)
NOBODY = Principal()
