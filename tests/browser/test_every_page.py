"""Every page of the admin, as axe and a phone see it: its lists, things, forms, and refusals.

Method: one queue that has everything, with names and texts as long as they come; then address
after address. All that is found is told at the end, so that one run is enough to mend it.
"""

import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import httpx
import pytest

from tests import harness
from tests.browser.chromium import DESKTOP, PHONE
from tests.browser.console import Console
from tests.browser.forms import fill, press
from tests.store.calling import Lane

LONG = "warehouse.stock.movements-of-the-day.every-site.every-article.every-hour.and-then-some"
BOUND = "return [...document.querySelectorAll('#content a')].map((one) => one.pathname)"
# Rules that pages of Django's own break, by what their addresses begin with, and why they stay.
EXCEPTED: dict[str, tuple[str, ...]] = {
    # Its script for choosing among many (SelectFilter2.js) names the icon of a search field by an
    # aria-label on a span without a role; the field has a label of its own, so nothing is lost.
    "/admin/auth/user/": ("aria-prohibited-attr",),
    "/admin/auth/group/": ("aria-prohibited-attr",),
}
LISTS = (
    "/admin/",
    "/admin/brokers/",
    "/admin/brokers/queue/",
    "/admin/brokers/partition/",
    "/admin/brokers/group/",
    "/admin/brokers/apikey/",
    "/admin/brokers/auditentry/",
    "/admin/brokers/quota/",
    "/admin/brokers-seen/",
    "/admin/dead-letters/",
    "/admin/kv/",
    "/admin/redrives/",
    "/admin/switches/",
    "/admin/timers/",
    "/admin/auth/",
    "/admin/auth/user/",
    "/admin/auth/group/",
)
THINGS = (
    "/admin/brokers/queue/add/",
    "/admin/brokers/queue/{queue}/change/",
    "/admin/brokers/queue/{queue}/do/configure/",
    "/admin/brokers/queue/{queue}/do/pause/",
    "/admin/brokers/queue/{queue}/do/purge/",
    "/admin/brokers/queue/{queue}/do/delete/",
    "/admin/brokers/partition/{partition}/change/",
    "/admin/brokers/partition/{partition}/do/purge/",
    "/admin/brokers/group/{group}/change/",
    "/admin/brokers/group/{group}/do/seek/",
    "/admin/brokers/group/{group}/do/reset/",
    "/admin/brokers/group/{group}/do/delete/",
    "/admin/brokers/auditentry/{entry}/change/",
    "/admin/brokers/quota/{tenant}/change/",
    "/admin/switches/pop-maintenance/on/",
)
LETTERS = (
    "/admin/dead-letters/?queue={name}",
    "/admin/dead-letters/{letter}/",
    "/admin/dead-letters/{letter}/replay/",
    "/admin/dead-letters/{letter}/resend/",
    "/admin/dead-letters/{letter}/delete/",
    "/admin/dead-letters/chosen/replay/?letter={letter}",
    "/admin/dead-letters/chosen/delete/?letter={letter}",
    "/admin/dead-letters/redrive/?queue={name}",
    "/admin/dead-letters/purge/?queue={name}",
    "/admin/redrives/{redrive}/",
    "/admin/timers/?queue={name}",
    "/admin/timers/timer/?queue={name}&key=remind",
    "/admin/timers/timer/cancel/?queue={name}&key=remind",
    "/admin/kv/entries/?ns={name}",
    "/admin/kv/entry/?ns={name}&key=k",
    "/admin/kv/entry/change/?ns={name}&key=k",
    "/admin/kv/entry/delete/?ns={name}&key=k",
)
PEOPLE = (
    "/admin/auth/user/add/",
    "/admin/auth/user/{user}/change/",
    "/admin/auth/user/{user}/password/",
    "/admin/auth/user/{user}/history/",
    "/admin/auth/user/{user}/delete/",
    "/admin/auth/group/add/",
    "/admin/auth/group/{role}/change/",
    "/admin/auth/group/{role}/delete/",
    "/admin/password_change/",
    "/admin/password_change/done/",
)
# What is not there, or cannot be understood: pages too.
REFUSED = (
    "/admin/nothing-of-that-name/",
    "/queues/nothing-of-that-name",
    "/admin/dead-letters/00000000-0000-0000-0000-000000000000/",
    "/admin/timers/?tenant=nonsense",
    "/admin/timers/timer/?queue=nowhere&key=none",
    "/admin/kv/entry/?ns=nowhere&key=none",
)


class Furnished(NamedTuple):
    """Where the things of the queue that has everything are."""

    name: str
    queue: int
    partition: int
    group: int
    letter: str
    redrive: str
    entry: int
    role: int
    tenant: uuid.UUID


@pytest.fixture(scope="module")
def furnished(
    console_broker: harness.BrokerProcess, console_database: harness.Database
) -> Iterator[Furnished]:
    name = f"{LONG}-{uuid.uuid4().hex[:8]}"
    with console_database.connect() as db, httpx.Client(base_url=console_broker.url) as http:
        lane = Lane(db, name)
        letters = lane.bury({"text": "x" * 400}, {"n": 2}, group="billing")
        db.execute(
            "UPDATE queen_dead_letter SET error = %s WHERE queue_id = %s",
            ["connection refused " * 30, lane.row.queue_id],
        )
        items = [{"queue": name, "payload": {"order": n}} for n in range(3)]
        told(http.post("/api/v1/push", json={"items": items}))
        popped = {"batch": 1, "consumerGroup": "billing", "subscriptionMode": "all"}
        told(http.get(f"/api/v1/pop/queue/{name}", params=popped))
        timer = {"op": "schedule", "queue": name, "timerKey": "remind", "delayMs": 3_600_000}
        timer |= {"txn": "t", "payload": "eyJuIjoxfQ=="}
        told(http.post("/api/v1/timers", json={"operations": [timer]}))
        entry = {"op": "put", "ns": name, "key": "k", "value": {"text": "y" * 400}}
        told(http.post("/api/v1/kv", json={"operations": [entry | {"forever": True}]}))
        asked = {"queue": name, "error": "of this no letter died"}
        redrive = told(http.post("/api/v1/dlq/redrive", json=asked)).json()
        found = db.execute(
            "INSERT INTO queen_audit (user_name, peer, action, target, detail)"
            " VALUES ('ann', '192.0.2.7', 'purge', %s, %s) RETURNING id",
            [name, "z" * 300],
        ).fetchone()
        assert found is not None
        tenant = uuid.uuid4()
        db.execute(
            "INSERT INTO queen_quota (tenant_id, max_queues) VALUES (%s, 9007199254740993)",
            [tenant],
        )
        yield Furnished(
            name=name,
            queue=lane.row.queue_id,
            partition=lane.id,
            group=lane.scalar("SELECT id FROM queen_group WHERE queue_id = %s", lane.row.queue_id),
            letter=letters[0],
            redrive=redrive["id"],
            entry=found[0],
            role=lane.scalar("SELECT id FROM auth_group WHERE name = 'Operator'"),
            tenant=tenant,
        )


def told(answer: httpx.Response) -> httpx.Response:
    assert answer.status_code < 300, f"{answer.status_code}: {answer.text}"
    return answer


def look(console: Console, path: str, **options: Any) -> list[str]:
    console.open(path)
    return looked_at(console, **options)


def looked_at(
    console: Console, *, excepted: Collection[str] = (), status: bool = False
) -> list[str]:
    """What is wrong with the page that is open: light, dark, and as wide as a phone."""
    browser = console.browser
    found = console.problems(excepted=excepted, status=status)
    browser.size(*PHONE)
    browser.until(lambda page: page.execute_script("return innerWidth") == PHONE[0])
    if console.scrolls_sideways():
        found.append(f"{browser.current_url} is wider than a phone")
    browser.size(*DESKTOP)
    return found


def excepted_at(path: str) -> Sequence[str]:
    return [rule for begin, rules in EXCEPTED.items() if path.startswith(begin) for rule in rules]


def look_at_all(console: Console, paths: Sequence[str], **options: Any) -> None:
    found: list[str] = []
    for path in paths:
        found += look(console, path, excepted=excepted_at(path), **options)
    assert not found, "\n".join(found)


def test_lists_and_the_first_page_which_has_no_other(console, furnished):
    console.open("/admin/")
    linked = {path for path in console.browser.execute_script(BOUND) if path.count("/") < 5}
    assert {path for path in linked if path.startswith("/admin/")} <= set(LISTS)
    look_at_all(console, LISTS)


def test_things_and_what_is_done_to_them(console, furnished):
    look_at_all(console, [path.format(**furnished._asdict()) for path in THINGS])


def test_letters_redrives_timers_and_state(console, furnished):
    look_at_all(console, [path.format(**furnished._asdict()) for path in LETTERS])


def test_users_and_roles(visitor, furnished):
    operator = visitor.sign_in(superuser=True)
    look_at_all(visitor, [path.format(user=operator.id, **furnished._asdict()) for path in PEOPLE])


def test_a_key_is_made_shown_once_and_revoked(console):
    browser = console.browser
    found = look(console, "/admin/brokers/apikey/add/")
    name = f"key-{uuid.uuid4().hex[:8]}"
    fill(browser, "name", name)
    press(browser, "input[type=submit]")
    assert browser.text("#secret")
    found += looked_at(console)
    [key] = console.db.execute("SELECT id FROM queen_api_key WHERE name = %s", [name]).fetchone()
    found += look(console, f"/admin/brokers/apikey/{key}/change/")
    found += look(console, f"/admin/brokers/apikey/{key}/do/revoke/")
    assert not found, "\n".join(found)


def test_what_is_refused_or_not_there(console):
    look_at_all(console, REFUSED, status=True)


def test_what_a_role_may_not_see(visitor, furnished):
    visitor.sign_in(groups=["Viewer"])
    path = f"/admin/brokers/queue/{furnished.queue}/do/purge/"
    look_at_all(visitor, ["/admin/", path, "/admin/auth/user/"], status=True)


def test_the_login_and_a_failed_one(visitor):
    visitor.sign_in()
    visitor.browser.begin()
    found = look(visitor, "/admin/login/")
    fill(visitor.browser, "username", "nobody-of-that-name")
    fill(visitor.browser, "password", "wrong")
    press(visitor.browser, "[type=submit]")
    assert visitor.browser.text(".errornote")
    found += looked_at(visitor)
    assert not found, "\n".join(found)


def test_a_console_that_has_no_operator_yet(console_at, start_broker, fresh_database):
    database = fresh_database()
    broker = start_broker(on=database)
    with database.connect() as db:
        console = console_at(broker, db)
        found = look(console, "/admin/") + look(console, "/")
        assert "createsuperuser" in console.browser.text()
        # By another name than that of the own machine.
        console.browser.get(broker.url.replace("127.0.0.1", "elsewhere.localhost") + "/admin/")
        assert "answers only on the machine" in console.browser.text()
        found += looked_at(console, status=True)
    assert not found, "\n".join(found)
