"""A browser of the console for tests, without a browser: cookies, forms, their tokens.

What it needs of the console's insides is the name of a session's cookie. Users are made in
the database that the broker of the test uses.

Used by tests/api and tests/browser.
"""

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import httpx
from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.db import SessionStore

PASSWORD = "a long enough passphrase"
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


def make_user(
    role: str | None = None,
    *,
    superuser: bool = False,
    staff: bool = True,
    password: str | None = PASSWORD,
) -> User:
    """A user with that role (a group's name). Without a password, whose hashing takes its time,
    it comes in by `ConsoleClient.of`."""
    name = f"{(role or 'nobody').lower()}-{uuid.uuid4().hex[:8]}"
    user = User.objects.create_user(name, password=password, is_staff=staff, is_superuser=superuser)
    if role is not None:
        user.groups.add(Group.objects.get(name=role))
    return user


class ConsoleClient:
    user: User

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    @classmethod
    @contextmanager
    def at(cls, url: str, user: User | None = None) -> Iterator["ConsoleClient"]:
        with httpx.Client(base_url=url, timeout=60.0, headers={"accept": "text/html"}) as http:
            client = cls(http)
            if user is not None:
                client.sign_in(user.get_username())
            yield client

    @classmethod
    @contextmanager
    def of(cls, url: str, user: User) -> Iterator["ConsoleClient"]:
        """Signed in already: with a session such as the login would have made."""
        session = SessionStore()
        session[auth.SESSION_KEY] = str(user.pk)
        session[auth.BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        session[auth.HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.save()
        with cls.at(url) as client:
            client.http.cookies.set(settings.SESSION_COOKIE_NAME, session.session_key)
            yield client

    def sign_in(self, name: str, password: str = PASSWORD) -> httpx.Response:
        return self.submit("/admin/login/", username=name, password=password)

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.http.get(path, params=params or None)

    def page(self, path: str, **params: Any) -> str:
        """The text of a page that is there."""
        answer = self.get(path, **params)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.text

    def submit(self, path: str, **fields: Any) -> httpx.Response:
        """Fill in the form that is at this address, and send it; redirects not followed."""
        token = TOKEN.search(self.page(path))
        assert token is not None, f"{path} has no form"
        return self.http.post(path, data={"csrfmiddlewaretoken": token[1], **fields})

    def deed(self, path: str, **fields: Any) -> httpx.Response:
        """Do a deed at its address, confirmed."""
        return self.submit(path, confirmed="yes", **fields)


def messages_of(page: str) -> list[str]:
    """What the console told at the top of a page."""
    told = re.search(r'<ul class="messagelist">(.*?)</ul>', page, re.DOTALL)
    return [] if told is None else [unescape(one) for one in re.findall(r">([^<]+)</li>", told[1])]


def queue_page(browser: ConsoleClient, queue: str) -> str:
    """The address of the page of the one queue of that name."""
    return row_page(browser, "queue", name=queue)


def row_page(browser: ConsoleClient, model: str, **filters: Any) -> str:
    """The address of the page of the first row of a list."""
    listed = browser.page(f"/admin/brokers/{model}/", **filters)
    found = re.search(rf'href="(/admin/brokers/{model}/[^/"]+/change/)"', listed)
    assert found is not None, f"no {model} of {filters}"
    return found[1]


def deed_of(page: str, name: str) -> str:
    """The address of a deed of the thing whose page that is."""
    return page.replace("/change/", f"/do/{name}/")
