"""Queues that are acted upon in a browser: what it leads to, and who may."""

import uuid
from typing import Any

import pytest

from tests.browser.forms import follow, press, sign_in
from tests.browser.operators import make_operator

STATUS = "return performance.getEntriesByType('navigation')[0].responseStatus"


@pytest.fixture
def orders(visitor) -> str:
    """A queue with a message in it."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    visitor.push(name, [{"order": 1}])
    return name


def popped(visitor: Any, queue: str) -> tuple[int, list[Any]]:
    """The status of a pop, and what it took for good."""
    asked = {"batch": 10, "autoAck": "true"}
    answer = visitor.api("GET", f"/api/v1/pop/queue/{queue}", params=asked)
    messages = answer.json()["messages"] if answer.status_code == 200 else []
    return answer.status_code, [one["data"] for one in messages]


def row_of(visitor: Any, queue: str) -> int:
    [row] = visitor.db.execute("SELECT id FROM queen_queue WHERE name = %s", [queue]).fetchone()
    return int(row)


def test_an_operator_pauses_a_queue_and_pops_stop_until_it_is_resumed(visitor, orders):
    browser = visitor.browser
    operator = make_operator(visitor.db, groups=["Operator"])
    visitor.open(f"/queues/{orders}")
    sign_in(browser, operator)
    browser.until(lambda page: page.text("h1") == orders)
    follow(browser, "Act on this queue")
    follow(browser, "Pause")
    assert popped(visitor, orders) == (200, [{"order": 1}]), "looking at the form pauses nothing"
    visitor.push(orders, [{"order": 2}])
    press(browser, "input[type=submit]")
    assert browser.text(".messagelist")
    assert popped(visitor, orders) == (204, [])

    visitor.open(f"/queues/{orders}")
    browser.until(lambda page: page.text(".badge") == "paused")
    follow(browser, "Act on this queue")
    follow(browser, "Resume")
    press(browser, "input[type=submit]")
    assert popped(visitor, orders) == (200, [{"order": 2}])
    assert not browser.complaints()


@pytest.mark.parametrize(
    ("role", "has", "has_not", "purge"),
    [
        ("Viewer", set(), {"Configure", "Pause", "Purge", "Delete"}, 403),
        ("Operator", {"Configure", "Pause"}, {"Purge", "Delete"}, 403),
        ("Administrator", {"Configure", "Pause", "Purge", "Delete"}, set(), 200),
    ],
)
def test_a_role_sees_the_deeds_that_it_may_do_and_no_others(
    visitor, orders, role, has, has_not, purge
):
    browser, number = visitor.browser, row_of(visitor, orders)
    visitor.sign_in(groups=[role])
    visitor.open(f"/admin/brokers/queue/{number}/change/")
    assert orders in browser.text("#content")
    shown = {one.text for one in browser.all("#content a.button")}
    assert shown >= has and not shown & has_not
    assert not browser.complaints()
    visitor.open(f"/admin/brokers/queue/{number}/do/purge/")
    assert browser.execute_script(STATUS) == purge
    browser.complaints()  # of the 403
