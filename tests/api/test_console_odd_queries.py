"""Addresses of the console that ask for what nothing can be: told as that, and never a failure.

Method: a superuser's browser at a real broker. Every name that a page of the admin reads from its
query, each with a NUL, with numbers that no column holds, and with text that is none.
"""

import base64
import json
from urllib.parse import quote, urlencode

import pytest

ODD = ("\x00", "a\x00b", "1\x00", "9" * 30, "-" + "9" * 30, "1e999", "\ufffd", "x" * 5000)
FORMS = {
    "timers/": ("queue", "prefix", "tenant", "at", "key", "back"),
    "timers/timer/": ("queue", "key", "tenant"),
    "timers/timer/cancel/": ("queue", "key", "tenant"),
    "dead-letters/": ("queue", "group", "error", "payload", "since", "until", "tenant", "at", "id"),
    "dead-letters/chosen/replay/": ("letter", "queue"),
    "dead-letters/redrive/": ("queue", "group", "error", "since", "tenant"),
    "dead-letters/purge/": ("queue", "group", "error", "until", "tenant"),
    "redrives/": ("state", "tenant", "at", "before"),
    "kv/": ("tenant", "after"),
    "kv/entries/": ("ns", "prefix", "tenant", "after"),
    "kv/entry/": ("ns", "key", "tenant"),
    "kv/entry/change/": ("ns", "key", "tenant"),
}
KEYSETS = {"queue": 2, "partition": 2, "group": 2, "apikey": 1, "auditentry": 1}
LISTS = {
    "brokers/queue/": ("name", "tenant", "namespace", "id", "paused"),
    "brokers/partition/": ("name", "tenant", "queue", "queue_id"),
    "brokers/group/": ("group", "tenant", "queue", "queue_id"),
    "brokers/apikey/": ("tenant", "key_id", "name", "role", "expires_at"),
    "brokers/auditentry/": ("user_name", "tenant", "id", "hits", "at"),
    "auth/user/": ("q", "username", "groups__id__exact", "id", "p", "o", "is_staff__exact"),
    "auth/group/": ("q", "name", "id"),
}
# What a page has to be told before it asks for anything.
NEEDED = frozenset({"queue", "key", "ns", "letter"})


def asked(console, path: str, query: str) -> int:
    answer = console.http.get(f"/admin/{path}?{query}")
    assert answer.status_code in (200, 302, 400, 404), (path, query, answer.status_code)
    return answer.status_code


@pytest.mark.parametrize("path", [*FORMS, *LISTS])
def test_a_value_that_nothing_can_have_is_no_failure_of_a_page(console, path):
    browser, names = console(superuser=True), (FORMS | LISTS)[path]
    for name in names:
        others = {} if path in LISTS else dict.fromkeys(NEEDED.intersection(names) - {name}, "x")
        for value in ODD:
            asked(browser, path, urlencode(others | {name: value}))
        asked(browser, path, urlencode(others) + f"&{name}=%ED%A0%80")


@pytest.mark.parametrize("model", KEYSETS)
def test_a_place_in_a_list_that_no_row_can_have_is_no_failure(console, model):
    browser = console(superuser=True)
    for part in (*ODD, "\ud800", "9999-12-31T23:59:59-23:59"):
        # The other parts of the key are such as a row has.
        for key in ([part, "1"], ["1", part]) if KEYSETS[model] == 2 else ([part],):
            place = base64.urlsafe_b64encode(json.dumps(key).encode()).decode()
            for name in ("after", "before"):
                asked(browser, f"brokers/{model}/", urlencode({name: place}))


@pytest.mark.parametrize("filtered", ["queue/?name", "partition/?queue", "group/?group"])
def test_a_filter_by_a_name_that_none_can_have_finds_nothing(console, wire, fresh_queue, filtered):
    wire.push(fresh_queue, 1)
    wire.messages(fresh_queue)
    model = filtered.partition("/")[0]
    page = console(superuser=True).page(f"/admin/brokers/{filtered}=%00")
    assert f"/admin/brokers/{model}/" in page
    assert "/change/" not in page


@pytest.mark.parametrize("odd", ["\x00", "9" * 30, "-1", "x\x00"])
def test_a_row_that_nothing_can_be_is_not_there(console, odd):
    browser = console(superuser=True)
    for model in (*(f"brokers/{one}" for one in KEYSETS), "auth/user", "auth/group"):
        for rest in ("change/", "history/", "do/pause/"):
            asked(browser, f"{model}/{quote(odd)}/{rest}", "")


def test_a_session_that_nobody_can_have_is_none(console):
    browser = console()
    browser.http.headers["cookie"] = 'sessionid="aaaaaaaa\\000"'
    assert browser.get("/admin/brokers/queue/").status_code == 400
