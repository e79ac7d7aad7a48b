"""What the lists of queues and groups tell beside the rows: counts, rates, lags.

Counts are those that the statistics task last found, with their age; a queue that was not
counted yet has none, which is said and is no zero. Rates are of the latest minute that was
kept. Each function asks once for all rows of a page, by an index that begins with what it asks
for.

Imports models. Used by queue_pages.py and group_pages.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Max, Min, Sum

from brokers.models import GroupStatistics, QueueCounter, QueueStatistics

MINUTES_BACK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Of one minute, which began at `at`."""

    at: datetime
    pushed: int
    popped: int
    acked: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Of the group that lags most, and of the one whose oldest message is oldest."""

    most: int
    oldest_at: datetime | None


def counts(queue_ids: Iterable[int]) -> dict[int, QueueStatistics]:
    return QueueStatistics.objects.in_bulk(list(queue_ids))


def rates(queue_ids: Iterable[int]) -> dict[int, Rate]:
    """A queue that did nothing in the last minutes has none."""
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    minutes = [minute - timedelta(minutes=back) for back in range(MINUTES_BACK + 1)]
    rows = (
        QueueCounter.objects.filter(span=1, bucket__in=minutes, queue_id__in=list(queue_ids))
        .exclude(server_id="")
        .values("queue_id", "bucket")
        .annotate(
            pushed=Sum("push_messages"),
            popped=Sum("pop_messages"),
            acked=Sum("ack_success"),
            failed=Sum("ack_failed"),
        )
    )
    found: dict[int, Rate] = {}
    for row in rows:
        queue_id, at = row.pop("queue_id"), row.pop("bucket")
        if queue_id not in found or found[queue_id].at < at:
            found[queue_id] = Rate(at=at, **row)
    return found


def lags(queue_ids: Iterable[int]) -> dict[int, Lag]:
    rows = (
        GroupStatistics.objects.filter(queue_id__in=list(queue_ids))
        .values("queue_id")
        .annotate(most=Max("lag"), oldest_at=Min("oldest_at"))
    )
    return {row["queue_id"]: Lag(most=row["most"], oldest_at=row["oldest_at"]) for row in rows}


def group_figures(places: Iterable[tuple[int, str]]) -> dict[tuple[int, str], Any]:
    """Of groups at queues, by the queue's id and the group's name."""
    wanted = set(places)
    rows = GroupStatistics.objects.filter(
        queue_id__in={queue_id for queue_id, _ in wanted},
        consumer_group__in={group for _, group in wanted},
    )
    return {(row.queue_id, row.consumer_group): row for row in rows}
