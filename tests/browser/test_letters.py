"""Dead letters in a browser: found by their error, looked at, edited and sent again, redriven.

Method: a real browser at a real broker; letters are written as the broker writes them, what
became of them is read from the log.
"""

import json
import uuid
from collections.abc import Iterator

import pytest

from tests.browser.chromium import DESKTOP, PHONE
from tests.browser.console import Console
from tests.browser.forms import fill, follow, press, sign_in
from tests.browser.operators import make_operator
from tests.store.calling import Lane
from tests.store.redriving import payloads_of

BIG = '{"order": 123456789012345678901234567890, "amount": 1.0}'
MENDED = '{"order": 123456789012345678901234567891}'
SHOP, CUSTOMER = "shop.orders", "customer-07"
TIMEOUT = "timeout at step 7: no answer from warehouse-3 within 30 s"
FAILED = (
    ("the bank refused the card", '{"order": 4711, "amount": 18.50, "currency": "EUR"}'),
    ("the address is not known", '{"order": 4712, "street": "Nowhere 1", "city": "Kraków"}'),
    (TIMEOUT, BIG),
    ("no such article: 88-1203", '{"order": 4714, "lines": [{"article": "88-1203", "n": 2}]}'),
    ("the bank refused the card", '{"order": 4715, "amount": 240.00, "currency": "PLN"}'),
)


@pytest.fixture
def queue() -> str:
    return f"letters-{uuid.uuid4().hex[:8]}"


def bury(db, queue: str, *payloads, error: str) -> list[str]:
    letters = Lane(db, queue).bury(*payloads)
    db.execute(
        "UPDATE queen_dead_letter SET error = %s WHERE id = ANY (%s::uuid[])", [error, letters]
    )
    return letters


@pytest.fixture
def shop(console_at, start_broker, fresh_database) -> Iterator[Console]:
    """A console of its own, so that its dashboard counts nothing else: a queue of which a group
    has taken all messages, and given up on each."""
    database = fresh_database()
    quick = {"METRICS_FLUSH_MS": "1000", "STATS_INTERVAL_MS": "500"}
    broker = start_broker(on=database, QUEEN_LIVE_INTERVAL_MS="500", **quick)
    with database.connect() as db:
        console = console_at(broker, db)
        items = ",".join(
            f'{{"queue":"{SHOP}","partition":"{CUSTOMER}","payload":{one}}}' for _, one in FAILED
        )
        console.api("POST", "/api/v1/push", content=f'{{"items":[{items}]}}'.encode())
        asked = {"batch": 1, "consumerGroup": "fulfilment", "subscriptionMode": "all"}
        for error, _ in FAILED:
            path = f"/api/v1/pop/queue/{SHOP}"
            [message] = console.api("GET", path, params=asked).json()["messages"]
            ack = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
            ack |= {"consumerGroup": "fulfilment", "status": "dlq", "error": error}
            assert console.api("POST", "/api/v1/ack", json=ack).json()[0]["dlq"]
        yield console


def counted(browser, *, pending: int, dead: int) -> None:
    """Wait until the dashboard that is open shows these, as two tiles."""
    browser.until(
        lambda page: (
            (page.text("#tile-pending"), page.text("#tile-dead")) == (str(pending), str(dead))
        )
    )


def test_an_operator_signs_in_finds_a_letter_by_its_error_edits_it_sends_it_again_and_sees_it_count(
    shop,
):
    db, browser = shop.db, shop.browser
    [letter] = db.execute("SELECT id FROM queen_dead_letter WHERE error = %s", [TIMEOUT]).fetchone()

    operator = make_operator(db, "ann", groups=["Operator"])
    shop.open("/")
    sign_in(browser, operator)
    counted(browser, pending=0, dead=len(FAILED))

    follow(browser, "Dead letters")
    assert len(browser.all("table.letters tbody tr")) == len(FAILED)
    shop.shoot("dead-letters")
    fill(browser, "queue", SHOP)
    fill(browser, "error", "timeout at")
    press(browser, ".finder button")
    [row] = browser.all("table.letters tbody tr")
    assert "123456789012345678901234567890" in row.text
    shop.check()

    press(browser, "table.letters th[scope=row] a")
    verbatim = [one.text for one in browser.all("pre.verbatim")]
    assert verbatim[:2] == [TIMEOUT, BIG]
    assert '  "order": 123456789012345678901234567890,' in verbatim[2]
    shop.shoot("dead-letter")
    shop.check()
    browser.size(*PHONE)
    shop.check("light")
    browser.size(*DESKTOP)

    follow(browser, "Edit and resend")
    assert browser.one("[name=payload]").get_property("value") == BIG
    fill(browser, "payload", MENDED)
    shop.check("light")
    press(browser, "input[type=submit]")
    assert f"dlq:{letter}" in browser.text(".messagelist")
    assert len(browser.all("table.letters tbody tr")) == len(FAILED) - 1, "the others"
    assert payloads_of(Lane(db, SHOP, CUSTOMER))[-1] == MENDED

    press(browser, "#user-tools a[href='/']")
    counted(browser, pending=1, dead=len(FAILED) - 1)
    assert not browser.complaints()


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
    bury(console.db, queue, BIG.encode(), "x" * 400, error="timeout " * 40)
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
