"""The page of one thing: its facts, what belongs to it, and a button for each deed.

Django's own page of an object is a form over its row; no row of the broker's is written like
that. So a ThingAdmin shows, and what may be done stands above as buttons, each the page of a
Deed.

Imports deeds, paging, site. Used by the pages of queues, partitions, groups, keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from brokers.admin import deeds
from brokers.admin.deeds import Deed, Target
from brokers.admin.paging import KeysetAdmin
from brokers.admin.site import site

Fact = tuple[str, Any]
UNKNOWN = "not counted yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table under the facts. `note` says how old or how complete it is."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    empty: str = "None."


class ThingAdmin(KeysetAdmin):
    deeds: tuple[Deed, ...] = ()

    def facts(self, request: HttpRequest, thing: Any) -> list[Fact]:
        raise NotImplementedError

    def sections(self, request: HttpRequest, thing: Any) -> list[Section]:
        return []

    def links(self, thing: Any) -> list[tuple[str, str]]:
        """Other pages about it: a title and an address each."""
        return []

    def tenant_of(self, thing: Any) -> Any:
        return thing.tenant_id

    def label(self, thing: Any) -> str:
        return str(thing)

    def target(self, thing: Any) -> Target:
        return Target(
            thing=thing,
            label=self.label(thing),
            tenant=self.tenant_of(thing),
            back=address_of(thing),
            listing=self.list_address(),
        )

    def list_address(self, **filters: Any) -> str:
        return list_address(self.model, **filters)

    def get_urls(self) -> list[URLPattern]:
        route = "<path:object_id>/do/<slug:name>/"
        view = self.admin_site.admin_view(self.deed_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_deed"
        return [path(route, view, name=name), *super().get_urls()]

    def deed_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        deed = next((one for one in self.deeds if one.name == name), None)
        thing = self.get_object(request, unquote(object_id))
        if deed is None or thing is None:
            raise Http404
        if not self.has_view_permission(request, thing):
            raise PermissionDenied
        return deeds.perform(request, deed, self.target(thing))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        thing = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, thing):
            raise PermissionDenied
        if thing is None:
            raise Http404
        mine = [one for one in self.deeds if deeds.may(request, one) and one.fits(thing)]
        return site().render(
            request,
            "console/thing.html",
            f"{str(self.opts.verbose_name).capitalize()} {self.label(thing)}",
            opts=self.opts,
            thing=thing,
            list_address=self.list_address(),
            facts=self.facts(request, thing),
            sections=self.sections(request, thing),
            links=self.links(thing),
            deeds=[(one, deed_address(thing, one.name)) for one in mine],
        )


def address_of(thing: Any) -> str:
    """The page of a row."""
    meta = thing._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[quote(thing.pk)])


def deed_address(thing: Any, name: str) -> str:
    meta = thing._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_deed", args=[quote(thing.pk), name])


def list_address(model: Any, **filters: Any) -> str:
    meta = model._meta
    address = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
    return f"{address}?{urlencode(filters)}" if filters else address


def link(address: str, text: Any) -> SafeString:
    """A name may be empty or blank; its link has to be seen and heard all the same."""
    if not str(text).strip():
        text = repr(text) if text else "(empty name)"
    return format_html('<a href="{}">{}</a>', address, text)


def ago(moment: datetime | None) -> str:
    """How long ago, in the largest unit that says something; a dash for never."""
    if moment is None:
        return "-"
    return duration(datetime.now(UTC) - moment)


def duration(span: timedelta) -> str:
    seconds = max(int(span.total_seconds()), 0)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
