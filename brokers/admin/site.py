"""The console's own admin site: its name, what its first page lists, and its audit.

Areas of pages that stand on no table (a composite key is none that Django admin takes, and
what only services know has none at all) are Pages: registered here, listed on the first page
beside the tables.

Imports answers, attempts, calling, models, visitors. Used by apps.py; `site` by every module
of pages.
"""

import logging
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path, reverse

from brokers.admin import answers, calling
from brokers.admin.attempts import Attempts
from brokers.admin.visitors import LoopbackVisitor
from brokers.models import AuditEntry

log = logging.getLogger(__name__)

RECENT = 10

View = Callable[..., HttpResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`permission` (brokers.view_timer) decides who sees it, in the list and at its address."""

    name: str
    title: str
    route: str
    permission: str
    view: View
    listed: bool = True


class ConsoleSite(admin.AdminSite):
    site_header = "Queen on PostgreSQL"
    site_title = "Queen on PostgreSQL"
    index_title = "Console"
    site_url = "/"
    enable_nav_sidebar = True

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        self.pages: list[Page] = []
        self.attempts = Attempts()

    def add_page(self, page: Page) -> None:
        """Its address is admin/<route>, its name `admin:<name>`."""
        self.pages.append(page)

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "POST":
            return super().login(request, extra_context)
        peer = str(request.META.get("REMOTE_ADDR", ""))
        # As the form will read it: one name written in many ways is one name.
        name = unicodedata.normalize("NFKC", request.POST.get("username", "")).strip()
        wait_s = self.attempts.wait_s(peer, name)
        if wait_s > 0:
            answer = answers.page(request, 429, f"Try again in {wait_s / 60:.0f} minutes.")
            answer["Retry-After"] = str(int(wait_s) + 1)
            return answer
        answer = super().login(request, extra_context)
        # Whoever is signed in already may fail as somebody else: the answer tells, and no user.
        if answer.status_code == HTTPStatus.FOUND:
            self.attempts.succeeded(peer, name)
            log.info("console: %s signed in from %s", request.user.get_username(), peer)
        else:
            self.attempts.failed(peer, name)
            log.warning("console: a sign-in as %r from %s failed", name[:150], peer)
        return answer

    def password_change(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        answer = super().password_change(request, extra_context)
        if request.method == "POST" and answer.status_code == 302:
            calling.note(request, action="change password", target=request.user.get_username())
        return answer

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        recent: list[AuditEntry] = []
        if request.user.has_perm("brokers.view_auditentry"):
            recent = list(AuditEntry.objects.order_by("-id")[:RECENT])
        return super().index(request, {**(extra_context or {}), "recent": recent})

    def get_urls(self) -> list[URLPattern | URLResolver]:
        pages = [
            path(page.route, self.admin_view(_guarded(page)), name=page.name) for page in self.pages
        ]
        return [*pages, *super().get_urls()]

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        unowned = isinstance(request.user, LoopbackVisitor)
        return {**super().each_context(request), "no_operator_yet": unowned}

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Tables and pages of the broker in one list, in the order of their titles."""
        apps = super().get_app_list(request, app_label)
        if app_label not in (None, "brokers"):
            return apps
        entries = [_entry(page) for page in self.pages if _shown(page, request)]
        ours = next((app for app in apps if app["app_label"] == "brokers"), None)
        if ours is None:
            if not entries:
                return apps
            ours = {
                "name": "Broker",
                "app_label": "brokers",
                "app_url": reverse("admin:index"),
                "has_module_perms": True,
                "models": [],
            }
            apps = [ours, *apps]
        ours["name"] = "Broker"
        ours["models"] = sorted([*ours["models"], *entries], key=lambda one: one["name"].lower())
        return sorted(apps, key=lambda app: app is not ours)

    def render(
        self, request: HttpRequest, template: str, title: str, /, **context: Any
    ) -> TemplateResponse:
        """A page of this site: the template with what every page of the site needs."""
        request.current_app = self.name  # type: ignore[attr-defined]
        whole = {**self.each_context(request), "title": title, **context}
        return TemplateResponse(request, template, whole)


def _shown(page: Page, request: HttpRequest) -> bool:
    return page.listed and request.user.has_perm(page.permission)


def _guarded(page: Page) -> View:
    def view(request: HttpRequest, **arguments: Any) -> HttpResponse:
        if not request.user.has_perm(page.permission):
            raise PermissionDenied
        return page.view(request, **arguments)

    return view


def _entry(page: Page) -> dict[str, Any]:
    return {
        "name": page.title,
        "object_name": page.name,
        "admin_url": reverse(f"admin:{page.name}"),
        "add_url": None,
        "view_only": True,
        "perms": {"view": True},
    }


def site() -> ConsoleSite:
    """The one site there is."""
    return cast(ConsoleSite, admin.site)
