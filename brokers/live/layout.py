"""What every live page has around its content: the navigation, and who is signed in.

Imports admin/visitors, sessions. Used by views.py and queue_pages.py.
"""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse

from brokers.admin.visitors import LoopbackVisitor
from brokers.live.sessions import PERMISSION

# (title, name of the address, what the address of a page below it begins with, permission)
PAGES = (
    ("Dashboard", "live:dashboard", "", PERMISSION),
    ("Queues", "live:queues", "/queues", PERMISSION),
    ("Dead letters", "admin:letters", "", "brokers.view_deadletter"),
    ("Admin", "admin:index", "", PERMISSION),
)


def address(name: str, *arguments: Any) -> str | None:
    """None for a page that this console does not have."""
    try:
        return reverse(name, args=arguments)
    except NoReverseMatch:
        return None


def page(
    request: HttpRequest, template: str, context: dict[str, Any], status: int = 200
) -> HttpResponse:
    whole = {
        **context,
        "navigation": _navigation(request),
        "no_operator_yet": isinstance(request.user, LoopbackVisitor),
    }
    return render(request, template, whole, status=status)


def demand(request: HttpRequest, permission: str = PERMISSION) -> None:
    if not request.user.has_perm(permission):
        raise PermissionDenied


def _navigation(request: HttpRequest) -> list[dict[str, Any]]:
    shown = []
    for title, name, prefix, permission in PAGES:
        href = address(name)
        if href is None or not request.user.has_perm(permission):
            continue
        here = request.path == href or (bool(prefix) and request.path.startswith(prefix))
        shown.append({"title": title, "href": href, "here": here})
    return shown
