"""Who may watch, asked when a socket is opened and again while it is open.

A socket outlives the request that opened it, so signing out, being deactivated, a permission
that was taken away and a changed password are found by asking again: for all viewers of a process
together, two queries, whatever their number. While the database does not answer nobody is sent
away: that is when one watches.

Imports admin/visitors. Used by consumer.py and live.py.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.db import DatabaseError
from django.http.cookie import parse_cookie
from django.utils import timezone

from brokers.admin import visitors

log = logging.getLogger(__name__)

PERMISSION = "brokers.view_queue"


@dataclass(frozen=True, slots=True)
class Pass:
    """What somebody was let in by; without a user it is the visitor of a console that has none."""

    session_key: str | None = None
    user_id: int | None = None
    word: str = ""


@database_sync_to_async
def admit(scope: Mapping[str, Any]) -> Pass | None:
    """None for whoever may not watch. Raises DatabaseError when nobody can tell."""
    user = visitors.judge_scope(scope).user
    if user is None or not user.has_perm(PERMISSION):
        return None
    if not user.is_authenticated:
        return Pass()
    cookies = parse_cookie(visitors.header(scope, b"cookie"))
    key = cookies.get(settings.SESSION_COOKIE_NAME)
    return Pass(key, user.pk, user.get_session_auth_hash())


async def ended(passes: Collection[Pass]) -> frozenset[Pass]:
    """Those that hold no longer; none while nobody can tell."""
    try:
        return await _ended(passes)
    except DatabaseError as error:
        log.info("whether viewers may still watch is not known: %s", error)
        return frozenset()


@database_sync_to_async
def _ended(passes: Collection[Pass]) -> frozenset[Pass]:
    keys = {one.session_key for one in passes if one.session_key is not None}
    ids = {one.user_id for one in passes if one.user_id is not None}
    open_keys = set(
        Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now()).values_list(
            "session_key", flat=True
        )
    )
    users = get_user_model().objects.with_perm(PERMISSION).filter(pk__in=ids, is_staff=True)
    words = {user.pk: user.get_session_auth_hash() for user in users}
    owned = bool(words) or visitors.users_exist()

    def holds(one: Pass) -> bool:
        if one.user_id is None:
            return not owned
        return one.session_key in open_keys and words.get(one.user_id) == one.word

    return frozenset(one for one in passes if not holds(one))
