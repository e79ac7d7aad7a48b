"""What a route is: its address, who may call it, and which side of the door answers.

A route states its access level and whether it belongs to a tenant; one without them
cannot be written down. `confined` says that the queues it reaches are named in its query or its
body, and no others are reached: only then, or with a `:queue` in its address, is it open to
callers who are confined to some queues (confine.py).

`shared` says that its answer may be told again for some seconds, until something is written
through this broker (shared.py): where it tells history, or figures as they were last counted. What
tells how things are now is never shared. With a `topic` (flow/recent.py) it is ended by what is
written of that too, which ends nothing else.

Imports nothing of ours. Used by routes.py and by whoever reads the table.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Level(StrEnum):
    """Who may call. A set of roles and not a ladder: write-only may not read."""

    PUBLIC = "public"
    READ_ONLY = "read-only"
    WRITE_ONLY = "write-only"
    READ_WRITE = "read-write"
    ADMIN = "admin"


class Kind(StrEnum):
    """Which side of the door answers: a raw handler in hot.py, or a DRF view."""

    HOT = "hot"
    DRF = "drf"


@dataclass(frozen=True, slots=True)
class Route:
    """`:name` in a template is one segment, `*name` is all that is left, slashes included."""

    method: str
    template: str
    level: Level
    kind: Kind
    handler: str
    tenant: bool = True
    head: bool = field(default=False, kw_only=True)
    confined: bool = field(default=False, kw_only=True)
    shared: bool = field(default=False, kw_only=True)
    topic: str = field(default="", kw_only=True)

    @property
    def names_queues(self) -> bool:
        return self.tenant and (self.confined or ":queue" in self.template.split("/"))

    @property
    def writes(self) -> bool:
        return self.method != "GET" and self.level is not Level.READ_ONLY

    @property
    def asks_by_query(self) -> bool:
        """Whether its queue stands in the query alone: without one it reaches them all."""
        return self.confined and self.method in ("GET", "DELETE") and ":" not in self.template

    @property
    def name(self) -> str:
        return f"{self.method} {self.template}"
