"""Times that a caller sends: ISO-8601, without a zone UTC.

Imports errors, services/subscriptions (how one is read). Used by the views.
"""

from datetime import datetime, timedelta
from typing import Any

from rest_framework import serializers

from brokers.errors import RequestError
from brokers.services.subscriptions import read_instant

NOT_AN_INSTANT = "must be an ISO-8601 instant, like 2026-07-30T11:02:44Z"
# What a caller may add to or take from a time without falling out of the calendar.
YEAR_MIN, YEAR_MAX = 1900, 9000


class InstantField(serializers.Field):
    def to_internal_value(self, data: Any) -> datetime:
        instant = usable(data) if isinstance(data, str) else None
        if instant is None:
            raise serializers.ValidationError(NOT_AN_INSTANT)
        return instant

    def to_representation(self, value: datetime) -> datetime:
        return value


def usable(text: str) -> datetime | None:
    instant = read_instant(text)
    return instant if instant is not None and YEAR_MIN <= instant.year <= YEAR_MAX else None


def query_instant(query: dict[str, str], name: str) -> datetime | None:
    """An empty one counts as absent."""
    text = query.get(name)
    if not text:
        return None
    instant = usable(text)
    if instant is None:
        raise RequestError(f"{name} {NOT_AN_INSTANT}")
    return instant


def end_of_minute(instant: datetime) -> datetime:
    """The end of the minute that an instant names: the minute itself is included."""
    return instant.replace(second=0, microsecond=0) + timedelta(minutes=1)
