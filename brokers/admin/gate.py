"""The gate before every page of the console: who may look (visitors.py), told as a page.

The API has its own door (api/auth.py) and never comes here. Nobody is let in while the
database, which knows the users, is away.

Imports answers, errors, time_limit, visitors. Named by settings.py as a middleware, behind
Django's own.
"""

import logging
from collections.abc import Callable
from urllib.parse import urlencode

from django.conf import settings
from django.db import DataError, Error, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from brokers.admin import answers, visitors
from brokers.admin.time_limit import limited
from brokers.admin.visitors import LoopbackVisitor, Peer
from brokers.errors import BrokerError, error_text

log = logging.getLogger(__name__)

PAGES = ("/admin/", "/console/", "/queues/")
LOGIN_PATH = "/admin/login/"
OPEN = (LOGIN_PATH, "/admin/logout/", "/admin/jsi18n/")
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

NOBODY_KNOWN = "The database is away, and with it who may sign in."
AWAY = "PostgreSQL did not answer, or not in time. Nothing is known, and nothing was shown."
NO_VALUE = "What was asked for holds a value that nothing here can have."
READ_ONLY = "There is no operator yet, so the console only shows and changes nothing."


def is_console(path: str) -> bool:
    return path in ("/", "/admin", "/queues") or path.startswith(PAGES)


def gate(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable:
    def middleware(request: HttpRequest) -> HttpResponse:
        if not is_console(request.path_info):
            return get_response(request)
        with limited(settings.QUEEN_CONFIG.postgres.read_timeout_ms / 1000):
            try:
                refusal = _refusal(request)
            except DataError:  # a session that nobody can have
                return answers.page(request, 400, NO_VALUE)
            except Error:
                return answers.page(request, 503, NOBODY_KNOWN)
            return get_response(request) if refusal is None else refusal

    middleware.process_exception = _told  # type: ignore[attr-defined]
    return middleware


def _told(request: HttpRequest, exception: Exception) -> HttpResponse | None:
    """What a page could not find out is told as that: never as nothing, or as zero."""
    if not is_console(request.path_info):
        return None
    if isinstance(exception, BrokerError):
        return answers.page(request, exception.status, error_text(exception))
    if isinstance(exception, InterfaceError | OperationalError):
        log.warning("console: %s", exception)
        return answers.page(request, 503, AWAY)
    if isinstance(exception, DataError):
        # A number that is too large, a character that no text holds: by an address or a form.
        log.warning("console: %s", exception)
        return answers.page(request, 400, NO_VALUE)
    return None


def _refusal(request: HttpRequest) -> HttpResponse | None:
    """What to answer in place of the page; None, with the user set, for whoever may see it."""
    verdict = visitors.judge(request.user, Peer.of_request(request))
    if verdict.why == visitors.CLOSED:
        return answers.page(request, 403, "", template="console/closed.html")
    if verdict.why == visitors.NOT_STAFF and request.path_info not in OPEN:
        return answers.page(request, 403, "This user may not use the console.")
    if verdict.why == visitors.LOGIN and request.path_info not in OPEN:
        if request.method not in SAFE:
            return answers.page(request, 403, "You are not signed in, so nothing was done.")
        query = urlencode({"next": request.get_full_path()})
        return HttpResponseRedirect(f"{LOGIN_PATH}?{query}")
    if verdict.user is not None:
        request.user = verdict.user
    if isinstance(verdict.user, LoopbackVisitor):
        if request.path_info == LOGIN_PATH:
            return HttpResponseRedirect("/admin/")
        if request.method not in SAFE or request.path_info.startswith("/admin/password_change/"):
            return answers.page(request, 403, READ_ONLY)
    return None
