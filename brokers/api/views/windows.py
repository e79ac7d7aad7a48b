"""What every route that looks back in time takes: `from`, `to`, and the names that it asks for.

Imports errors, services/{analytics,subscriptions}, wire, base. Used by the views.
"""

from datetime import UTC, datetime, timedelta

from brokers.api import wire
from brokers.api.views.base import timestamp
from brokers.errors import RequestError
from brokers.services import analytics
from brokers.services.subscriptions import read_instant
from brokers.store.history_calls import Filters, Window

INSTANT_CHARACTERS_MAX = 64
HOUR = timedelta(hours=1)
GROUPINGS = ("namespace", "task", "queue")


def window_of(query: dict[str, str], *, back: timedelta = HOUR) -> Window:
    """From `back` ago to now, unless said otherwise."""
    until = instant_of(query, "to") or datetime.now(UTC)
    since = instant_of(query, "from") or until - back
    if since > until:
        raise RequestError("from must not be later than to")
    return analytics.window(since, until)


def instant_of(query: dict[str, str], name: str) -> datetime | None:
    text = query.get(name)
    if not text:
        return None
    at = read_instant(text) if len(text) <= INSTANT_CHARACTERS_MAX else None
    # What PostgreSQL can reckon with, and the arithmetic of windows.
    if at is None or not 1970 <= at.year <= 9000:
        raise RequestError(f"{name} must be an instant such as 2026-01-31T12:00:00Z")
    return at


def filters_of(query: dict[str, str]) -> Filters:
    return Filters(
        queue=wire.query_name(query, "queue"),
        namespace=wire.query_name(query, "namespace"),
        task=wire.query_name(query, "task"),
    )


def grouping_of(query: dict[str, str], default: str) -> str:
    """What to group by; empty where that is the default and nothing is asked for."""
    by = query.get("groupBy") or default
    if by and by not in GROUPINGS:
        raise RequestError("bad groupBy")
    return by


def told(window: Window) -> dict[str, object]:
    """How an answer says what it looked at."""
    return {
        "timeRange": {"from": timestamp(window.since), "to": timestamp(window.until)},
        "bucketMinutes": window.minutes,
    }


def axis(window: Window) -> list[datetime]:
    """The beginnings of all buckets of a window, as the database reckons them."""
    width = timedelta(minutes=window.minutes)
    origin = datetime(2000, 1, 1, tzinfo=UTC)
    first = origin + (window.since - origin) // width * width
    return [first + number * width for number in range(-(-(window.until - first) // width))]
