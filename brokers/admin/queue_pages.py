"""Queues: the list with what each holds and does, and the page of one.

Imports deeds, filters, models, queue_deeds, queue_figures, things. Registered by registered.py.
"""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from brokers.admin import deeds, queue_figures
from brokers.admin.deeds import Target
from brokers.admin.filters import TenantFilter, TextFilter
from brokers.admin.queue_deeds import CREATE, QUEUE_DEEDS
from brokers.admin.things import (
    UNKNOWN,
    Fact,
    Section,
    ThingAdmin,
    address_of,
    ago,
    link,
    list_address,
)
from brokers.models import DeadLetter, Group, Partition, Queue
from brokers.services.queues import OPTIONS

GROUPS_SHOWN = 100


class NameFilter(TextFilter):
    """Names that begin so: what an index finds."""

    title = "name, from its beginning"
    parameter_name = "name"

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(name__startswith=value)


@admin.register(Queue)
class QueueAdmin(ThingAdmin):
    keyset = ("name", "tenant_id")
    list_display = (
        "name", "tenant_id", "state", "pending", "lag", "oldest", "pushed", "popped", "messages",
        "partitions", "dead_letters", "counted",
    )  # fmt: skip
    list_display_links = ("name",)
    list_filter = (NameFilter, TenantFilter)
    actions = None
    deeds = QUEUE_DEEDS

    def complete(self, request: HttpRequest, rows: list[Queue]) -> None:
        ids = [row.pk for row in rows]
        counts, rates = queue_figures.counts(ids), queue_figures.rates(ids)
        lags = queue_figures.lags(ids)
        for row in rows:
            row.counts = counts.get(row.pk)  # type: ignore[attr-defined]
            row.rate = rates.get(row.pk)  # type: ignore[attr-defined]
            row.lag = lags.get(row.pk)  # type: ignore[attr-defined]

    @admin.display(description="State")
    def state(self, queue: Any) -> str:
        return "paused" if queue.paused else "open"

    @admin.display(description="Pending")
    def pending(self, queue: Any) -> Any:
        return _counted(queue, "pending")

    @admin.display(description="Lag of the slowest group")
    def lag(self, queue: Any) -> Any:
        return "-" if queue.lag is None else queue.lag.most

    @admin.display(description="Oldest unconsumed")
    def oldest(self, queue: Any) -> str:
        return "-" if queue.lag is None else ago(queue.lag.oldest_at)

    @admin.display(description="Pushed a minute")
    def pushed(self, queue: Any) -> Any:
        return "-" if queue.rate is None else queue.rate.pushed

    @admin.display(description="Popped a minute")
    def popped(self, queue: Any) -> Any:
        return "-" if queue.rate is None else queue.rate.popped

    @admin.display(description="Messages")
    def messages(self, queue: Any) -> Any:
        return _counted(queue, "total")

    @admin.display(description="Partitions")
    def partitions(self, queue: Any) -> Any:
        return _counted(queue, "partitions")

    @admin.display(description="Dead letters")
    def dead_letters(self, queue: Any) -> Any:
        return _counted(queue, "dead_letters")

    @admin.display(description="Counted")
    def counted(self, queue: Any) -> str:
        return UNKNOWN if queue.counts is None else f"{ago(queue.counts.computed_at)} ago"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(CREATE.permission))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        here = self.list_address()
        return deeds.perform(
            request, CREATE, Target(thing=None, label="new queue", tenant=None, back=here)
        )

    def links(self, queue: Queue) -> list[tuple[str, str]]:
        return [
            ("Partitions", list_address(Partition, queue_id=queue.pk)),
            ("Groups", list_address(Group, queue_id=queue.pk)),
            *_letters_link(queue),
        ]

    def facts(self, request: HttpRequest, queue: Any) -> list[Fact]:
        self.complete(request, [queue])
        counted = [
            (title, _counted(queue, name))
            for title, name in (
                ("Messages retained", "total"),
                ("Pending", "pending"),
                ("Processing", "processing"),
                ("Dead letters", "dead_letters"),
                ("Partitions", "partitions"),
                ("Bytes retained", "bytes"),
            )
        ]
        rate = queue.rate
        minute = "nothing in the last minutes"
        if rate is not None:
            minute = (
                f"{rate.pushed} pushed, {rate.popped} popped, {rate.acked} acked,"
                f" {rate.failed} acked as failed, in the minute of {rate.at:%H:%M} UTC"
            )
        return [
            ("Name", queue.name),
            ("Tenant", queue.tenant_id),
            ("State", self.state(queue)),
            ("Namespace", queue.namespace or "-"),
            ("Task", queue.task or "-"),
            ("Created", queue.created_at),
            *counted,
            ("Counted", self.counted(queue)),
            ("Latest minute", minute),
        ]

    def sections(self, request: HttpRequest, queue: Any) -> list[Section]:
        return [_groups(queue), _options(queue)]


def _counted(queue: Any, name: str) -> Any:
    """A figure as last counted; what was not counted is not zero."""
    value = None if queue.counts is None else getattr(queue.counts, name)
    return UNKNOWN if value is None else value


def _letters_link(queue: Queue) -> list[tuple[str, str]]:
    if not admin.site.is_registered(DeadLetter):
        return []
    return [("Dead letters", list_address(DeadLetter, queue=queue.name))]


def _groups(queue: Queue) -> Section:
    found = list(
        Group.objects.filter(queue_id=queue.pk).order_by("consumer_group")[: GROUPS_SHOWN + 1]
    )
    more = len(found) > GROUPS_SHOWN
    found = found[:GROUPS_SHOWN]
    figures = queue_figures.group_figures((queue.pk, one.consumer_group) for one in found)
    rows = []
    for one in found:
        known = figures.get((queue.pk, one.consumer_group))
        name = link(address_of(one), one.consumer_group)
        if known is None:
            rows.append((name, one.subscription_mode, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN))
        else:
            lagging, age = known.partitions_lagging, ago(known.oldest_at)
            counted = f"{ago(known.computed_at)} ago"
            rows.append((name, one.subscription_mode, known.lag, lagging, age, counted))
    return Section(
        title="Groups",
        columns=("Group", "Mode", "Lag", "Partitions lagging", "Oldest unconsumed", "Counted"),
        rows=rows,
        note=f"The first {GROUPS_SHOWN}; the list of groups has all." if more else "",
    )


def _options(queue: Queue) -> Section:
    rows = []
    for option in OPTIONS:
        value = getattr(queue, option.column)
        shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        rows.append((option.name, shown, "" if value == option.default else "changed"))
    return Section(title="Options", columns=("Option", "Value", "Default"), rows=rows)
