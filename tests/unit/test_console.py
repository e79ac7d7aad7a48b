"""What browsers are told with the pages that are Django's, and which Host they may ask for.

Method: Django's own test client, at an address that has no page: its 404 is a page all the same.
"""

import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.test import Client, override_settings

from brokers.admin.things import link
from queen_project.console import HEADERS
from tests import harness

COOKIES = """
from django.conf import settings
print(settings.SESSION_COOKIE_SECURE, settings.CSRF_COOKIE_SECURE)
"""


def test_every_page_says_what_it_may_load_and_is_framed_and_cached_by_nobody():
    answer = Client().get("/nope")
    assert answer.status_code == 404
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Strict-Transport-Security" not in answer.headers
    assert "Strict-Transport-Security" in Client().get("/nope", secure=True).headers


@pytest.mark.parametrize(
    ("host", "status"), [("console.example", 404), ("evil.example", 400), ("console.example.", 404)]
)
def test_pages_may_be_asked_for_by_their_hosts_only(host, status):
    with override_settings(ALLOWED_HOSTS=["console.example"]):
        assert Client().get("/nope", headers={"host": host}).status_code == status


def test_the_api_takes_no_cookie_for_a_credential():
    assert settings.REST_FRAMEWORK["DEFAULT_AUTHENTICATION_CLASSES"] == []
    assert settings.SESSION_COOKIE_HTTPONLY and settings.SESSION_COOKIE_SAMESITE == "Lax"
    assert settings.CSRF_COOKIE_SAMESITE == "Lax"


@pytest.mark.parametrize(
    ("origins", "secure"),
    [
        ("", False),
        ("http://console.example", False),
        ("http://console.example, HTTPS://console.example", True),
    ],
)
def test_cookies_are_secure_where_browsers_come_by_tls_to_a_proxy(origins, secure):
    done = subprocess.run(
        [sys.executable, "-c", COOKIES],
        cwd=harness.PROJECT_DIR,
        env={**os.environ, "QUEEN_TRUSTED_ORIGINS": origins},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == [str(secure)] * 2


@pytest.mark.parametrize(
    ("name", "told"), [("", "(empty name)"), (" ", "&#x27; &#x27;"), ("orders", "orders")]
)
def test_a_link_to_a_name_that_is_blank_has_a_text(name, told):
    assert link("/there", name) == f'<a href="/there">{told}</a>'
