"""Dead letters in a browser: found by their error, looked at, edited and sent again, redriven.

Method: a real browser at a real broker; letters are written as the broker writes them, what
became of them is read from the log.
"""

import json
import uuid

import pytest
from selenium.webdriver.common.by import By

from tests.browser.chromium import PHONE
from tests.browser.operators import PASSWORD, make_operator
from tests.store.calling import Lane
from tests.store.redriving import payloads_of

BIG = b'{"order": 123456789012345678901234567890, "amount": 1.0}'


@pytest.fixture
def queue() -> str:
    return f"letters-{uuid.uuid4().hex[:8]}"


def bury(db, queue: str, *payloads, error: str) -> list[str]:
    letters = Lane(db, queue).bury(*payloads)
    db.execute(
        "UPDATE queen_dead_letter SET error = %s WHERE id = ANY (%s::uuid[])", [error, letters]
    )
    return letters


def fill(browser, name: str, text: str) -> None:
    field = browser.one(f"[name={name}]")
    field.clear()
    field.send_keys(text)


def press(browser, selector: str) -> None:
    """Press it, and wait until another page is there."""
    before = browser.one("html")
    browser.one(selector).click()
    browser.until(lambda now: now.one("html") != before and now.one("#footer, #content"))


def follow(browser, text: str) -> None:
    before = browser.one("html")
    browser.find_element(By.LINK_TEXT, text).click()
    browser.until(lambda now: now.one("html") != before and now.one("#footer, #content"))


def test_an_operator_signs_in_finds_a_letter_by_its_error_edits_it_and_sends_it_again(
    visitor, queue
):
    db, browser = visitor.db, visitor.browser
    operator = make_operator(db, groups=["Operator"])
    bury(db, queue, {"order": 1}, error="the bank refused")
    [letter] = bury(db, queue, BIG, error="timeout at step 7")

    visitor.open("/admin/dead-letters/")
    fill(browser, "username", operator.name)
    fill(browser, "password", PASSWORD)
    press(browser, "[type=submit]")
    fill(browser, "queue", queue)
    fill(browser, "error", "timeout at")
    press(browser, ".finder button")
    [row] = browser.all("table.letters tbody tr")
    assert "123456789012345678901234567890" in row.text
    visitor.check()
    visitor.shoot("dead-letters")

    press(browser, "table.letters th[scope=row] a")
    verbatim = [one.text for one in browser.all("pre.verbatim")]
    assert verbatim[:2] == ["timeout at step 7", BIG.decode()]
    assert '  "order": 123456789012345678901234567890,' in verbatim[2]
    visitor.check()
    visitor.shoot("dead-letter")
    browser.size(*PHONE)
    visitor.check("light")

    follow(browser, "Edit and resend")
    assert browser.one("[name=payload]").get_property("value") == BIG.decode()
    fill(browser, "payload", '{"order": 123456789012345678901234567891}')
    visitor.check("light")
    press(browser, "input[type=submit]")
    assert f"dlq:{letter}" in browser.text(".messagelist")
    assert len(browser.all("table.letters tbody tr")) == 1, "the other one"
    assert payloads_of(Lane(db, queue))[-1] == '{"order": 123456789012345678901234567891}'


def test_what_is_no_json_is_told_beside_the_field_and_can_be_mended(console, queue):
    browser = console.browser
    [letter] = bury(console.db, queue, {"n": 1}, error="why")
    console.open(f"/admin/dead-letters/{letter}/resend/")
    fill(browser, "payload", '{"n": ')
    press(browser, "input[type=submit]")
    assert "not JSON" in browser.text(".errorlist")
    browser.get_log("browser")  # that the answer was a 400
    console.check()
    fill(browser, "payload", '{"n": 2}')
    press(browser, "input[type=submit]")
    assert json.loads(payloads_of(Lane(console.db, queue))[-1]) == {"n": 2}


def test_a_redrive_of_a_thousand_shows_how_far_it_is_until_it_is_done(console, queue):
    browser = console.browser
    lane = Lane(console.db, queue)
    lane.bury_many(1000)
    console.open(f"/admin/dead-letters/?queue={queue}")
    follow(browser, "Redrive all that match")
    assert "1,000 dead letters will be moved" in browser.text("#content")
    fill(browser, "rate", "100")
    press(browser, "input[type=submit]")
    seen = set()

    def watched(now) -> bool:
        """Whether it is done; what was shown on the way is kept."""
        told = now.text("#content [role=status]")
        seen.add(told)
        return told.startswith("done")

    browser.until(watched, timeout_s=60)
    assert "1000 moved of 1000" in browser.text("#content [role=status]")
    assert any(told.startswith("running") for told in seen)
    assert len(seen) > 2, "the page never showed anything between the beginning and the end"
    assert lane.count("queen_dead_letter") == 0
    console.check()
    console.shoot("redrive")


@pytest.mark.parametrize(
    "path",
    [
        "/admin/dead-letters/",
        "/admin/dead-letters/?queue={queue}&payload=nowhere",
        "/admin/dead-letters/?since=nonsense",
        "/admin/dead-letters/purge/?queue={queue}",
        "/admin/redrives/",
        "/admin/timers/",
        "/admin/timers/?queue={queue}",
        "/admin/timers/timer/?queue={queue}&key=remind",
        "/admin/kv/",
        "/admin/kv/entries/?ns={queue}",
        "/admin/kv/entry/?ns={queue}&key=k",
        "/admin/kv/entry/change/?ns={queue}&key=k",
    ],
)
def test_a_page_is_accessible_in_light_and_dark_and_fits_a_phone(console, queue, path):
    bury(console.db, queue, BIG, "x" * 400, error="timeout " * 40)
    operation = {"op": "put", "ns": queue, "key": "k", "value": {"n": 1}, "forever": True}
    console.api("POST", "/api/v1/kv", json={"operations": [operation]})
    timer = {
        "op": "schedule",
        "queue": queue,
        "timerKey": "remind",
        "delayMs": 600_000,
        "txn": "t",
        "payload": "eyJuIjoxfQ==",
    }
    console.api("POST", "/api/v1/timers", json={"operations": [timer]})
    console.open(path.format(queue=queue))
    console.browser.get_log("browser")  # a page that says 400 is told as an error too
    console.check()
    console.browser.size(*PHONE)
    console.check("light")
