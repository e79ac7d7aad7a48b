"""A form that acts is good once: sent again, by a second click or a reload, it does nothing.

Each form that is shown carries a token of its own, and the session remembers which were spent. Of
two requests that come at once the second waits for the first one's row of the session.

Imports Django only. Used by deeds.py.
"""

import secrets
from importlib import import_module

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import transaction
from django.http import HttpRequest

FIELD = "once"
SPENT, SPENT_MAX = "spent", 100
TOKEN_CHARACTERS_MAX = 64


def token() -> str:
    return secrets.token_urlsafe(12)


def spend(request: HttpRequest) -> bool:
    """Whether the form that was sent is good, which it is not any more from now on.

    One without a token is: it is for people who press twice, and keeps nobody from asking anew.
    """
    sent = request.POST.get(FIELD, "")[:TOKEN_CHARACTERS_MAX]
    key = request.session.session_key
    if not sent or key is None:
        return True
    with transaction.atomic():
        list(Session.objects.select_for_update().filter(session_key=key))
        kept = import_module(settings.SESSION_ENGINE).SessionStore(key)
        spent = kept.get(SPENT, [])
        if sent in spent:
            return False
        spent = [*spent, sent][-SPENT_MAX:]
        kept[SPENT] = spent
        kept.save()
    # What this request saves at its end shall know of it too.
    request.session[SPENT] = spent
    return True
