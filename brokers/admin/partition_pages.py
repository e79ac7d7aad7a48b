"""Partitions: the list, and the page of one with the cursors of its groups.

Imports filters, models, queue_deeds, things. Registered by registered.py.
"""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from brokers.admin.filters import TenantFilter, TextFilter
from brokers.admin.queue_deeds import PURGE_PARTITION
from brokers.admin.things import Fact, Section, ThingAdmin, address_of, ago, link
from brokers.models import Cursor, Partition, Queue

QUEUES_MAX = 1000
CURSORS_SHOWN = 200


class QueueNameFilter(TextFilter):
    """All queues of that name, whichever tenant's. They are looked up first: a join would have
    the list read in its own order, past whatever belongs to others."""

    title = "queue"
    parameter_name = "queue"

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        ids = list(Queue.objects.filter(name=value).values_list("pk", flat=True)[:QUEUES_MAX])
        return queryset.filter(queue_id__in=ids)


class QueueTenantFilter(TenantFilter):
    lookup = "queue__tenant_id"


class PartitionNameFilter(TextFilter):
    title = "name, from its beginning (with a queue)"
    parameter_name = "name"

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(name__startswith=value)


@admin.register(Partition)
class PartitionAdmin(ThingAdmin):
    keyset = ("queue_id", "name")
    list_select_related = ("queue",)
    list_display = (
        "name", "queue_name", "tenant", "held", "last_offset", "log_start", "written", "oldest",
    )  # fmt: skip
    list_display_links = ("name",)
    list_filter = (QueueNameFilter, PartitionNameFilter, QueueTenantFilter)
    actions = None
    deeds = (PURGE_PARTITION,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("queue")

    def lookup_allowed(self, lookup: str, value: str, request: Any = None) -> bool:
        return lookup in ("queue_id", "queue", "name", "tenant")

    def tenant_of(self, partition: Any) -> Any:
        return partition.queue.tenant_id

    def label(self, partition: Any) -> str:
        return f"{partition.queue.name}/{partition.name}"

    @admin.display(description="Queue")
    def queue_name(self, partition: Any) -> Any:
        return link(address_of(partition.queue), partition.queue.name)

    @admin.display(description="Tenant")
    def tenant(self, partition: Any) -> Any:
        return partition.queue.tenant_id

    @admin.display(description="Messages")
    def held(self, partition: Any) -> int:
        return int(partition.last_offset - partition.log_start + 1)

    @admin.display(description="Last write")
    def written(self, partition: Any) -> str:
        return ago(partition.last_write_at)

    @admin.display(description="Oldest message")
    def oldest(self, partition: Any) -> str:
        return ago(partition.oldest_live_at)

    def facts(self, request: HttpRequest, partition: Any) -> list[Fact]:
        return [
            ("Name", partition.name),
            ("Queue", self.queue_name(partition)),
            ("Tenant", partition.queue.tenant_id),
            ("Id", partition.uid),
            ("Messages retained", self.held(partition)),
            ("Offsets", f"{partition.log_start} to {partition.last_offset}"),
            ("Created", partition.created_at),
            ("Last write", partition.last_write_at or "-"),
            ("Oldest message stored", partition.oldest_live_at or "-"),
        ]

    def sections(self, request: HttpRequest, partition: Any) -> list[Section]:
        found = list(
            Cursor.objects.filter(partition_id=partition.pk).order_by("consumer_group")[
                : CURSORS_SHOWN + 1
            ]
        )
        rows = [
            (
                one.consumer_group,
                one.committed,
                max(partition.last_offset - max(one.committed, partition.log_start - 1), 0),
                one.total_consumed,
                _lease(one),
                one.retry_count,
            )
            for one in found[:CURSORS_SHOWN]
        ]
        more = len(found) > CURSORS_SHOWN
        return [
            Section(
                title="Cursors",
                columns=("Group", "Committed", "Lag", "Consumed", "Lease", "Retries"),
                rows=rows,
                note=f"The first {CURSORS_SHOWN}." if more else "",
                empty="No group has read anything here.",
            )
        ]


def _lease(cursor: Cursor) -> str:
    if cursor.lease_id is None or cursor.lease_expires_at is None:
        return "-"
    until = cursor.lease_expires_at
    return f"offsets {cursor.batch_start} to {cursor.batch_end}, until {until:%H:%M:%S} UTC"
