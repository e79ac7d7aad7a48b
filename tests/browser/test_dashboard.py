"""The dashboard, as somebody sees it who looks after a broker."""

import contextlib
import json
import time
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser.chromium import PHONE
from tests.browser.console import Console
from tests.browser.demo import at_work
from tests.browser.operators import make_operator, make_session
from tests.process.gateway import Gateway

AWAY = ("silent", "beside")
BEYOND_FLOATS = 9_007_199_254_740_993
# Sockets that a test can end, and forbid.
SOCKETS_IN_HAND = """
const Real = window.WebSocket;
window.sockets = [];
window.WebSocket = class extends Real {
  constructor(address) {
    if (window.socketsForbidden) throw new Error("no sockets here");
    super(address);
    window.sockets.push(this);
  }
};
"""
TILES = ("pushed", "popped", "acked", "pending", "oldest", "dead", "parked", "timers", "spool")


def shown(console: Console) -> None:
    """Wait until the first picture with everything in it is on the page."""
    console.browser.until(lambda page: "Live" in page.text("#mode"))
    console.browser.until(lambda page: page.text("#tile-pending") != "unknown")
    console.browser.until(lambda page: page.text("#pg-wal") not in ("unknown", "measuring"))


def tile(console: Console, name: str) -> str:
    return console.browser.text(f"#tile-{name}")


def in_mode(console: Console, mode: str) -> None:
    console.browser.until(lambda page: page.one("#dashboard").get_attribute("data-mode") == mode)


def test_an_operator_signs_in_and_sees_the_dashboard(visitor):
    operator = make_operator(visitor.db, superuser=True)
    visitor.open("/")
    assert "/admin/login/" in visitor.browser.current_url
    visitor.browser.one("#id_username").send_keys(operator.name)
    visitor.browser.one("#id_password").send_keys(operator.password, Keys.ENTER)
    visitor.browser.until(lambda page: page.one("#dashboard"))
    shown(visitor)
    assert operator.name in visitor.browser.text("header")
    assert not visitor.browser.complaints()


def test_the_dashboard_changes_when_messages_are_pushed_and_consumed(console, fresh_queue):
    console.open("/")
    shown(console)
    console.push(fresh_queue, [{"order": n} for n in range(12)])
    row = f"//tbody[@id='queues']/tr[.//a='{fresh_queue}']"

    def cells(page: Any) -> list[str]:
        found = page.find_element("xpath", row)
        return [cell.text for cell in found.find_elements("css selector", "td")]

    console.browser.until(lambda page: cells(page)[0] == "12")
    console.browser.until(lambda page: "over a websocket" in page.text("#mode"))
    popped = {"batch": 5, "consumerGroup": "billing", "subscriptionMode": "all", "autoAck": "true"}
    console.api("GET", f"/api/v1/pop/queue/{fresh_queue}", params=popped)
    console.browser.until(lambda page: cells(page)[0] == "7")
    console.browser.until(lambda page: "billing" in page.text("#groups"))
    assert not console.browser.complaints()


def test_counts_are_written_digit_for_digit(console, fresh_queue):
    console.push(fresh_queue, [1])
    console.open("/")
    shown(console)
    console.browser.until(lambda page: fresh_queue in page.text("#queues"))
    console.db.execute(
        "UPDATE queen_queue_statistics SET pending = %s, next_at = now() + interval '1 hour'"
        " WHERE queue_id = (SELECT id FROM queen_queue WHERE name = %s)",
        [BEYOND_FLOATS, fresh_queue],
    )
    try:
        console.browser.until(lambda page: f"{BEYOND_FLOATS:,}" in page.text("#queues"))
    finally:
        console.db.execute(
            "UPDATE queen_queue_statistics SET next_at = now() WHERE pending = %s", [BEYOND_FLOATS]
        )


def test_without_a_socket_the_page_asks_and_says_so_until_it_has_one_again(console):
    page = console.browser
    script = page.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": SOCKETS_IN_HAND}
    )
    try:
        console.open("/")
        shown(console)
        page.execute_script("socketsForbidden = true; sockets.forEach((one) => one.close());")
        in_mode(console, "polling")
        assert "Polling" in page.text("#mode") and "for want of a websocket" in page.text("#mode")
        before = int(page.one("#dashboard").get_attribute("data-picture"))
        page.until(lambda page: int(page.one("#dashboard").get_attribute("data-picture")) > before)
        page.execute_script("socketsForbidden = false;")
        in_mode(console, "socket")
        assert "Live" in page.text("#mode")
    finally:
        page.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_what_cannot_be_read_is_shown_as_unknown_and_a_dead_broker_as_that(
    browser, console_at, start_broker, fresh_database
):
    database = fresh_database()
    gateway = Gateway(database)
    try:
        broker = start_broker(
            on=gateway.database, QUEEN_LIVE_INTERVAL_MS="500", STATS_INTERVAL_MS="500"
        )
        with database.connect() as db:
            console = console_at(broker, db)
            console.sign_in()
        console.push("orders", [1, 2, 3])
        console.open("/")
        shown(console)
        gateway.close()
        browser.until(lambda page: tile(console, "pending") == "unknown")
        for name in ("oldest", "dead", "timers"):
            browser.until(lambda page, name=name: tile(console, name) == "unknown")
        failed = browser.until(lambda page: page.all(".panel.failed .reason"))
        assert all(one.text.startswith("Unknown: ") for one in failed)
        browser.until(lambda page: "has no database" in page.text("#concerns"))
        assert browser.text("#pg-connections") == "" or "unknown" in browser.text("#pg-connections")
        in_mode(console, "socket")
        gateway.open()
        browser.until(lambda page: tile(console, "pending") == "3", timeout_s=60)
        browser.until(lambda page: not page.all(".failed"))
        broker.kill()
        in_mode(console, "none")
        assert "cannot be reached" in browser.text("#mode")
        browser.until(lambda page: page.one("#dashboard.old"))
    finally:
        gateway.close()


def test_what_lies_in_the_spool_of_a_silent_broker_is_unknown_and_of_another_told(console):
    console.db.execute(
        "INSERT INTO queen_broker_history"
        " (bucket, server_id, spool_pending, spool_bytes, spool_failed)"
        " VALUES (queen_bucket_v1(now() - interval '5 minutes', 1), 'silent', 0, 0, 0),"
        " (queen_bucket_v1(now(), 1), 'beside', 7, 2048, 3)"
    )
    read = (
        "return [...document.querySelectorAll('#brokers tr')].map((row) => "
        "[row.querySelector('th .text')?.textContent, row.lastElementChild.textContent])"
    )

    def spools(page: Any) -> dict[str, str]:
        return dict(page.execute_script(read))

    try:
        console.open("/")
        shown(console)
        console.browser.until(lambda page: spools(page).get("silent") == "unknown0 when last heard")
        assert spools(console.browser)["beside"] == "72.0 KiB, 3 set aside"
        told = {one for name, one in spools(console.browser).items() if name not in AWAY}
        assert told == {"0"}, "of the broker that answers"
    finally:
        console.db.execute(
            "DELETE FROM queen_broker_history WHERE server_id = ANY (%s)", [list(AWAY)]
        )


def test_the_dashboard_is_used_with_the_keyboard_alone(console):
    page = console.browser
    console.open("/")
    shown(console)

    def focused() -> Any:
        return page.switch_to.active_element

    focused().send_keys(Keys.TAB)
    # It slides in; before, the driver sees no text of it.
    page.until(lambda page: focused().text == "Skip to the content")
    page.until(lambda page: focused().rect["y"] >= 0)
    focused().send_keys(Keys.ENTER)
    assert focused().get_attribute("id") == "main"
    page.one("#span-live").send_keys(Keys.ARROW_RIGHT)
    assert page.one("#span-hour").is_selected()
    summary = page.one("#chart-throughput summary")
    summary.send_keys(Keys.ENTER)
    page.until(lambda page: page.one("#chart-throughput details[open] thead th"))
    style = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.execute_script(style) == "solid", "where the focus is can be seen"


def test_a_chart_has_its_figures_as_a_table(console, fresh_queue):
    page = console.browser
    console.open("/")
    shown(console)
    page.press("#chart-throughput summary")
    console.push(fresh_queue, list(range(50)))
    # Read at once: the rows are made anew with every picture.
    read = (
        "return [...document.querySelectorAll('#chart-throughput ' + arguments[0])]"
        ".map((one) => one.textContent)"
    )
    heads = page.until(lambda page: page.execute_script(read, "thead th"))
    assert heads == ["Time", "pushed", "delivered", "acknowledged"]
    # The figures of the tick in which they were pushed are above zero.
    page.until(lambda page: set(page.execute_script(read, "tbody td")) - {"0/s", "unknown"})
    label = page.one("#chart-throughput .plot").get_attribute("aria-label")
    assert label.startswith("Throughput: pushed ")


def test_light_and_dark_are_chosen_by_the_system_or_on_the_page(console):
    page = console.browser
    colour = "return getComputedStyle(document.body).backgroundColor"
    console.open("/")
    light = page.execute_script(colour)
    page.media(scheme="dark")
    page.until(lambda page: page.execute_script(colour) != light)
    Select(page.one("#theme")).select_by_visible_text("Light")
    page.until(lambda page: page.execute_script(colour) == light)
    console.open("/queues/")
    assert page.execute_script(colour) == light, "it is kept"
    Select(page.one("#theme")).select_by_visible_text("System")


@pytest.mark.parametrize("path", ["/", "/queues/"])
def test_pages_are_accessible_in_light_and_dark_and_fit_a_phone(console, fresh_queue, path):
    console.push(fresh_queue, [{"n": n} for n in range(3)])
    console.open(path)
    if path == "/":
        shown(console)
    console.check()
    console.browser.size(*PHONE)
    console.check("light")


def test_a_page_that_was_signed_out_asks_for_a_login(console):
    operator = make_operator(console.db, superuser=True)
    session = make_session(console.db, operator)
    console.browser.cookie(console.url, "sessionid", session)
    console.open("/")
    shown(console)
    console.db.execute("DELETE FROM django_session WHERE session_key = %s", [session])
    console.browser.until(lambda page: "/admin/login/" in page.current_url, timeout_s=60)


def test_pictures_for_the_documentation(console):
    """Of a broker at work when they are asked for; else that they can be made."""
    console.push("shop.orders", [{"order": n} for n in range(3)])
    with at_work(console.url) if console.documented else contextlib.nullcontext():
        console.open("/")
        shown(console)
        if console.documented:
            time.sleep(40)  # of charts with something in them
        console.shoot("dashboard")
        console.open("/queues/")
        console.shoot("queues")
        console.open("/queues/shop.orders")
        console.browser.until(lambda page: page.text("#held-pending") != "unknown")
        console.browser.until(
            lambda page: "unknown" not in page.text("#queue-chart .legend"), timeout_s=60
        )
        console.shoot("queue")


def test_nothing_of_the_page_comes_from_elsewhere(console):
    console.open("/")
    shown(console)
    names = console.browser.execute_script(
        "return performance.getEntriesByType('resource').map((one) => one.name)"
    )
    assert names
    assert all(name.startswith(console.url) for name in names), json.dumps(names)
