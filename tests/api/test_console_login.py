"""Who may look at the console, and what its pages are sent with.

Method: a real broker, whose peer is always this machine; where the peer must be another, Django's
test client in this process, over the same database. Users are of one test.
"""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from brokers.admin.attempts import BY_NAME_MAX
from tests.console_parts import (
    PASSWORD,
    TOKEN,
    ConsoleClient,
    deed_of,
    make_user,
    queue_page,
)

PAGES = (
    "/",
    "/admin/",
    "/admin/brokers/queue/",
    "/admin/brokers/partition/",
    "/admin/brokers/group/",
    "/admin/brokers/apikey/",
    "/admin/brokers/auditentry/",
    "/admin/brokers/quota/",
    "/admin/switches/",
    "/admin/brokers-seen/",
)
INLINE = re.compile(r"<style|<script(?![^>]* src=)|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE)


@pytest.fixture(autouse=True)
def _no_users():
    User.objects.all().delete()
    yield
    User.objects.all().delete()


def test_without_a_user_the_console_shows_itself_on_this_machine_and_says_what_to_do(console):
    page = console().page("/admin/")
    assert "There is no operator yet" in page
    assert "manage.py createsuperuser" in page


@pytest.mark.parametrize("path", PAGES[1:])
def test_without_a_user_every_page_is_there_to_be_looked_at(console, path):
    assert "Log out" not in console().page(path)


def test_without_a_user_nothing_can_be_done(console, wire, fresh_queue):
    wire.push(fresh_queue, 1)
    queue = queue_page(console(), fresh_queue)
    page = console().page(queue)
    assert "/do/" not in page, "no button"
    assert console().get(deed_of(queue, "pause")).status_code == 403
    token = TOKEN.search(console().page("/admin/brokers/queue/"))
    assert token is not None
    browser = console()
    browser.page("/admin/brokers/queue/")
    fields = {"csrfmiddlewaretoken": browser.http.cookies["csrftoken"], "confirmed": "yes"}
    assert browser.http.post(deed_of(queue, "pause"), data=fields).status_code == 403
    assert wire.messages(fresh_queue)


@pytest.mark.parametrize(
    "about",
    [
        {"x-forwarded-for": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
        {"host": "evil.example"},
        {"host": "localhost.evil.example"},
    ],
)
def test_without_a_user_whoever_comes_through_a_proxy_or_by_another_name_sees_nothing(
    console, about
):
    answer = console().http.get("/admin/", headers=about)
    assert answer.status_code == 403
    assert "createsuperuser" in answer.text


@pytest.mark.parametrize("address", ["192.0.2.7", "10.0.0.1", "2001:db8::7", "", "nonsense"])
def test_without_a_user_nobody_beyond_this_machine_sees_anything(database, address):
    for path in (*PAGES, "/admin/login/", "/console/anything"):
        answer = Client().get(path, REMOTE_ADDR=address, headers={"host": "localhost"})
        assert answer.status_code == 403, path


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback_has_several_addresses(database, address):
    answer = Client().get("/admin/brokers/queue/", REMOTE_ADDR=address, headers={"host": "[::1]"})
    assert answer.status_code == 200


def test_a_broker_that_asks_callers_who_they_are_shows_nothing_to_anybody(start_broker):
    broker = start_broker(QUEEN_API_KEYS="true")
    with ConsoleClient.at(broker.url) as browser:
        assert browser.get("/admin/").status_code == 403
        user = make_user("Viewer")
        assert browser.sign_in(user.get_username()).status_code == 302
        assert "Queues" in browser.page("/admin/")


@pytest.mark.parametrize("path", PAGES)
def test_once_there_is_a_user_every_page_asks_for_a_login(console, path):
    make_user("Viewer", password=None)
    answer = console().get(path)
    assert answer.status_code == 302
    assert answer.headers["location"].startswith("/admin/login/?next=")


def test_signing_in_leads_back_to_the_page_that_was_asked_for_and_signing_out_ends_it(console):
    user = make_user("Viewer")
    browser = console()
    wrong = browser.sign_in(user.get_username(), "not it")
    assert wrong.status_code == 200
    assert "Please enter the correct" in wrong.text
    assert browser.get("/admin/").status_code == 302
    answer = browser.submit(
        "/admin/login/?next=/admin/switches/", username=user.get_username(), password=PASSWORD
    )
    assert answer.headers["location"] == "/admin/switches/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    browser.page("/admin/switches/")
    token = TOKEN.search(browser.page("/admin/"))
    assert token is not None
    browser.http.post("/admin/logout/", data={"csrfmiddlewaretoken": token[1]})
    assert browser.get("/admin/").status_code == 302


def test_whoever_is_signed_in_guesses_no_more_passwords_of_others_than_anybody(console, broker):
    chief = make_user(superuser=True, password=None).get_username()
    with ConsoleClient.of(broker.url, make_user("Viewer", password=None)) as browser:
        browser.page("/admin/password_change/")
        fields = {"csrfmiddlewaretoken": browser.http.cookies["csrftoken"], "password": "a guess"}
        answers = [
            browser.http.post("/admin/login/", data={**fields, "username": name}).status_code
            for name in [chief, f"{chief} "] * (BY_NAME_MAX // 2) + [chief]
        ]
    assert answers == [200] * BY_NAME_MAX + [429]


def test_signing_in_leads_to_no_other_site(console):
    user = make_user("Viewer")
    answer = console().submit(
        "/admin/login/?next=//evil.example/", username=user.get_username(), password=PASSWORD
    )
    assert answer.headers["location"] == "/"


def test_a_user_who_is_no_operator_sees_nothing(console, broker):
    user = make_user("Administrator", staff=False, password=None)
    with ConsoleClient.of(broker.url, user) as browser:
        assert browser.get("/admin/").status_code == 403
        assert browser.get("/").status_code == 403


def test_a_form_without_its_token_does_nothing(console, wire, fresh_queue):
    wire.push(fresh_queue, 1)
    browser = console("Administrator")
    deed = deed_of(queue_page(browser, fresh_queue), "pause")
    assert browser.http.post(deed, data={"confirmed": "yes"}).status_code == 403
    assert wire.messages(fresh_queue)


def test_a_form_that_was_not_confirmed_does_nothing(console, wire, fresh_queue):
    wire.push(fresh_queue, 1)
    browser = console("Administrator")
    answer = browser.submit(deed_of(queue_page(browser, fresh_queue), "pause"))
    assert answer.status_code == 400
    assert wire.messages(fresh_queue)


@pytest.mark.parametrize("path", [*PAGES[1:], "/admin/auth/user/", "/admin/auth/user/add/"])
def test_no_page_needs_more_than_the_strict_policy_allows(console, path):
    answer = console(superuser=True).get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'self'" in policy
    assert "no-store" in answer.headers["cache-control"]
    assert not INLINE.search(answer.text), INLINE.search(answer.text)


def test_a_file_of_a_page_is_kept_by_the_browser_and_may_be_asked_for_again(console):
    found = re.search(r'href="(/static/admin/css/base\.css\?v=\w+)"', console().page("/admin/"))
    assert found is not None
    answer = console().get(found[1])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    again = console().http.get(
        "/static/admin/css/base.css", headers={"if-none-match": answer.headers["etag"]}
    )
    assert again.status_code == 304
    assert again.content == b""
    assert console().get("/favicon.ico").headers["content-type"] == "image/svg+xml"


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/nothing.css",
        "/static/../manage.py",
        "/static/%2e%2e/manage.py",
        "/static/admin/css/",
        "/static//etc/passwd",
    ],
)
def test_what_is_no_file_of_a_page_is_not_found(console, path):
    answer = console().http.request("GET", path)
    assert answer.status_code == 404


def test_a_page_that_is_not_there_is_told_as_a_page_to_a_browser_only(console):
    answer = console("Viewer").get("/admin/nothing/")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    answer = console("Viewer").http.get("/admin/nothing/", headers={"accept": "*/*"})
    assert answer.status_code == 404
    assert answer.json() == {"error": "not found"}


def test_while_the_database_is_away_the_console_lets_nobody_in(start_broker):
    broker = start_broker(ready=False, PG_HOST="/nowhere")
    with ConsoleClient.at(broker.url) as browser:
        answer = browser.get("/admin/")
        assert answer.status_code == 503
        assert "database is away" in answer.text
