"""Pages of a listing: `limit` and `offset` of a query, within bounds.

Answers whose shape has no room for it tell in a header that there is more.

Imports wire. Used by the views.
"""

from typing import NamedTuple

from brokers.api import wire

OFFSET_MAX = 1_000_000_000
NEXT = "x-queen-next-offset"


class Page(NamedTuple):
    limit: int
    offset: int

    def told(self) -> dict[str, int]:
        return {"limit": self.limit, "offset": self.offset}

    def headers_of(self, total: int) -> dict[str, str]:
        """Where it is known how many there are in all."""
        reached = self.offset + self.limit
        return {NEXT: str(reached)} if reached < total else {}

    def headers(self, rows: int) -> dict[str, str]:
        """A full page may have a next one."""
        return {NEXT: str(self.offset + rows)} if rows >= self.limit else {}


def page_of(query: dict[str, str], *, default: int, most: int) -> Page:
    """Out of bounds is clamped; what is no number is a 400."""
    limit = wire.query_integer(query, "limit", default)
    offset = wire.query_integer(query, "offset", 0)
    assert limit is not None and offset is not None
    return Page(min(max(limit, 1), most), min(max(offset, 0), OFFSET_MAX))
