"""The list of queues and the page of one, as an operator looks into them."""

import uuid
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser.chromium import PHONE

SPACED = '{"amount" : 12345678901234567890.10,  "note":"<b>\\u00fc</b>"}'


@pytest.fixture
def orders(console) -> str:
    """A queue with thirty partitions, forty messages and a group that lags."""
    name = f"shop.orders/{uuid.uuid4().hex[:8]} ü"
    items = [
        {"queue": name, "partition": f"customer-{n % 30:02}", "payload": {"order": n}}
        for n in range(40)
    ]
    console.api("POST", "/api/v1/push", json={"items": items})
    body = (
        '{"items":[{"queue":"%s","partition":"customer-00","transactionId":"spaced","payload":%s}]}'
    )
    console.api("POST", "/api/v1/push", content=(body % (name, SPACED)).encode())
    asked = {"batch": 3, "consumerGroup": "billing", "subscriptionMode": "all", "autoAck": "true"}
    path = f"/api/v1/pop/queue/{quoted(name)}"
    console.api("GET", path, params=asked)
    return name


def quoted(name: str) -> str:
    return quote(name, safe="")


def open_queue(console: Any, name: str) -> None:
    console.open("/queues/")
    console.browser.one("#by-queue").send_keys(name)
    console.browser.press("form[role=search] button")
    console.browser.press(name, "link text")
    console.browser.until(lambda page: page.text("h1") == name)


def test_a_queue_is_found_and_shows_what_it_holds(console, orders):
    open_queue(console, orders)
    page = console.browser
    page.until(lambda page: page.text("#held-pending") not in ("", "0", "unknown"))
    page.until(lambda page: "billing" in page.text("#figures"))
    assert "customer-00" in page.text("#partitions")
    assert "25 shown" in page.text("#partitions")
    page.press("#partitions-next")
    page.until(lambda page: "customer-29" in page.text("#partitions"))
    assert "customer-00" not in page.text("#partitions tbody")
    assert "leaseTime" in page.text(".options")
    assert not page.complaints()


def test_a_payload_is_shown_as_it_was_sent_and_looking_consumes_nothing(console, orders):
    open_queue(console, orders)
    page = console.browser
    page.one("#by-partition").send_keys("customer-00")
    page.press("#messages-show")
    page.until(lambda page: "customer-01" not in page.text("#messages"))
    raw = page.execute_script("return document.querySelector('#messages .payload').textContent")
    assert raw == SPACED
    page.press("Whole message", "partial link text")
    page.until(lambda page: page.text("h1") == "spaced")
    whole = page.execute_script("return document.querySelector('.payload.whole').textContent")
    assert whole == SPACED
    asked = {"batch": 100, "consumerGroup": "audit", "subscriptionMode": "all", "partitions": 100}
    path = f"/api/v1/pop/queue/{quoted(orders)}"
    popped = console.api("GET", path, params=asked).json()["messages"]
    assert len(popped) == 41


def test_the_pages_of_a_queue_are_accessible_and_fit_a_phone(console, orders):
    open_queue(console, orders)
    console.check()
    console.browser.size(*PHONE)
    console.check("light")
    console.browser.press("Whole message", "partial link text")
    console.browser.until(lambda page: page.one(".payload.whole"))
    console.check()


@pytest.mark.parametrize("name", ["", ".", "..", "a//b", "../admin", "x?y=1#z", "%2F"])
def test_any_name_has_a_page(console, name):
    console.push(name, [{"name": name}])
    console.open("/queues/")
    link = f"//main//tbody//a[.={xpath(name or '(empty name)')}]"
    console.browser.press(link, "xpath")
    console.browser.until(lambda page: page.text("h1") == (name or "(empty name)"))


def xpath(text: str) -> str:
    return f'"{text}"'


def test_what_is_no_queue_is_told_so(console):
    console.open("/queues/nosuchqueue")
    assert "There is no such page" in console.browser.text("h1")


def test_whoever_may_not_see_messages_sees_the_queue_without_them(visitor):
    queue = f"secret-{uuid.uuid4().hex[:8]}"
    visitor.push(queue, [{"password": "xyzzy-4711"}])
    operator = visitor.sign_in(superuser=False)
    visitor.db.execute(
        "INSERT INTO auth_user_user_permissions (user_id, permission_id)"
        " SELECT %s, id FROM auth_permission WHERE codename = 'view_queue'",
        [operator.id],
    )
    visitor.open(f"/queues/{queue}")
    visitor.browser.until(lambda page: page.text("h1") == queue)
    assert "You may not look at messages" in visitor.browser.text("#messages")
    assert "xyzzy-4711" not in visitor.browser.page_source
