"""Consumer groups at their queues: the list with their lag, and the page of one.

Imports filters, group_deeds, models, partition_pages, queue_figures, things. Registered by
registered.py.
"""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from brokers.admin import queue_figures
from brokers.admin.filters import TextFilter
from brokers.admin.group_deeds import GROUP_DEEDS
from brokers.admin.partition_pages import QueueNameFilter, QueueTenantFilter
from brokers.admin.things import UNKNOWN, Fact, Section, ThingAdmin, address_of, ago, link
from brokers.models import Cursor, Group, Partition


class GroupNameFilter(TextFilter):
    title = "group"
    parameter_name = "group"
    lookup = "consumer_group"


@admin.register(Group)
class ConsumerGroupAdmin(ThingAdmin):
    keyset = ("queue_id", "consumer_group")
    list_display = (
        "consumer_group", "queue_name", "tenant", "subscription_mode", "group_lag", "lagging",
        "oldest", "counted",
    )  # fmt: skip
    list_display_links = ("consumer_group",)
    list_filter = (QueueNameFilter, GroupNameFilter, QueueTenantFilter)
    actions = None
    deeds = GROUP_DEEDS

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("queue")

    def lookup_allowed(self, lookup: str, value: str, request: Any = None) -> bool:
        return lookup in ("queue_id", "queue", "group", "tenant")

    def tenant_of(self, group: Any) -> Any:
        return group.queue.tenant_id

    def label(self, group: Any) -> str:
        return f"{group.consumer_group} at {group.queue.name}"

    def complete(self, request: HttpRequest, rows: list[Any]) -> None:
        places = [(row.queue_id, row.consumer_group) for row in rows]
        figures = queue_figures.group_figures(places)
        for row, place in zip(rows, places, strict=True):
            row.figures = figures.get(place)

    @admin.display(description="Queue")
    def queue_name(self, group: Any) -> Any:
        return link(address_of(group.queue), group.queue.name)

    @admin.display(description="Tenant")
    def tenant(self, group: Any) -> Any:
        return group.queue.tenant_id

    @admin.display(description="Lag")
    def group_lag(self, group: Any) -> Any:
        return UNKNOWN if group.figures is None else group.figures.lag

    @admin.display(description="Partitions lagging")
    def lagging(self, group: Any) -> Any:
        return UNKNOWN if group.figures is None else group.figures.partitions_lagging

    @admin.display(description="Oldest unconsumed")
    def oldest(self, group: Any) -> str:
        return UNKNOWN if group.figures is None else ago(group.figures.oldest_at)

    @admin.display(description="Counted")
    def counted(self, group: Any) -> str:
        return UNKNOWN if group.figures is None else f"{ago(group.figures.computed_at)} ago"

    def facts(self, request: HttpRequest, group: Any) -> list[Fact]:
        self.complete(request, [group])
        return [
            ("Group", group.consumer_group),
            ("Queue", self.queue_name(group)),
            ("Tenant", group.queue.tenant_id),
            ("Subscription mode", group.subscription_mode),
            ("Subscribed from", group.subscription_timestamp or "-"),
            ("New partitions are read from", group.start_at or "their beginning"),
            ("Conflation", "yes" if group.conflation else "no"),
            ("Created", group.created_at),
            ("Lag", self.group_lag(group)),
            ("Partitions lagging", self.lagging(group)),
            ("Oldest unconsumed", self.oldest(group)),
            ("Counted", self.counted(group)),
        ]

    def sections(self, request: HttpRequest, group: Any) -> list[Section]:
        figures = group.figures
        ids = [] if figures is None else list(figures.oldest)
        lanes = Partition.objects.in_bulk(ids)
        places = Cursor.objects.filter(partition_id__in=ids, consumer_group=group.consumer_group)
        committed = {one.partition_id: one.committed for one in places}
        rows = []
        for lane in (lanes[one] for one in ids if one in lanes):
            done = max(committed.get(lane.pk, -1), lane.log_start - 1)
            name = link(address_of(lane), lane.name)
            rows.append((name, max(lane.last_offset - done, 0), done, ago(lane.last_write_at)))
        return [
            Section(
                title="Where it lags",
                columns=("Partition", "Lag", "Committed", "Last write"),
                rows=rows,
                note="The partitions whose first unconsumed message was oldest when they were"
                " counted, at most a hundred.",
                empty="Nowhere, or it was not counted yet.",
            )
        ]
