"""The console in a browser: how a test opens a page of it, and what it asks of every page.

Imports chromium, operators, tests.harness. Used by conftest.py and the tests.
"""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import httpx
import psycopg

from tests import harness
from tests.browser.chromium import DESKTOP, PHONE, Browser
from tests.browser.operators import Operator, make_operator, make_session

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
AXE_RUN = """
const [rules, done] = arguments;
const asked = {resultTypes: ["violations"]};
if (rules.length) asked.runOnly = {type: "rule", values: rules};
axe.run(document, asked).then(
  (found) => done(found.violations.map((one) => ({
    rule: one.id, impact: one.impact, help: one.help,
    where: one.nodes.slice(0, 5).map((node) => node.target.join(" ") + ": " + node.failureSummary),
  }))),
  (error) => done([{rule: "axe itself", help: String(error)}]));
"""
# What may differ from one colour scheme to the other, where the page is the same.
OF_COLOURS = ("color-contrast", "link-in-text-block")
SESSION_COOKIE = "sessionid"
# What a page of another status than 200 is told of by the browser.
STATUS = "the server responded with a status of"


class Console:
    """A browser at one broker's console."""

    def __init__(
        self,
        browser: Browser,
        broker: harness.BrokerProcess,
        db: psycopg.Connection[Any],
        shots: Path,
        *,
        documented: bool = False,
    ) -> None:
        """`shots`: where pictures go; `documented`: they are for the documentation."""
        self.browser = browser
        self.broker = broker
        self.db = db
        self.documented = documented
        self._shots = shots

    @property
    def url(self) -> str:
        return self.broker.url

    def sign_in(self, operator: Operator | None = None, **as_operator: Any) -> Operator:
        """With the session of that user, or of a new one (operators.make_operator)."""
        if operator is None:
            operator = make_operator(self.db, **(as_operator or {"superuser": True}))
        self.browser.cookie(self.url, SESSION_COOKIE, make_session(self.db, operator))
        return operator

    def open(self, path: str = "/") -> None:
        self.browser.get(self.url + path)

    def api(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The broker's HTTP interface, as any client uses it."""
        answer = httpx.request(method, self.url + path, timeout=60, **options)
        assert answer.status_code < 300, f"{answer.status_code}: {answer.text}"
        return answer

    def push(self, queue: str, payloads: list[Any], partition: str = "Default") -> None:
        items = [{"queue": queue, "partition": partition, "payload": one} for one in payloads]
        self.api("POST", "/api/v1/push", json={"items": items})

    def check(self, *schemes: str) -> None:
        """Accessible by axe in each colour scheme; nothing complained of; no sideways scroll."""
        found = self.problems(*schemes)
        assert not found, "\n".join(found)

    def problems(
        self, *schemes: str, excepted: Collection[str] = (), status: bool = False
    ) -> list[str]:
        """What `check` finds; but for rules of axe that are excepted, and where the page has
        another `status` than 200, for what the browser says of that."""
        here = self.browser.current_url
        found = [f"{here}: {one}" for one in self.browser.complaints()]
        if status:
            found = [one for one in found if STATUS not in one]
        # By the driver, not by the page: the policy of the page has no say in it.
        self.browser.execute_script(AXE.read_text())
        rules: tuple[str, ...] = ()
        for scheme in schemes or ("light", "dark"):
            # A colour that is on its way to another is neither scheme's.
            self.browser.media(scheme=scheme, motion="reduce")
            violated = self.browser.execute_async_script(AXE_RUN, rules)
            found += [
                f"{here}, {scheme}: {json.dumps(one, indent=1)}"
                for one in violated
                if one["rule"] not in excepted
            ]
            rules = OF_COLOURS
        # What axe itself does is forbidden by some policy, too, and no complaint of the page's.
        self.browser.complaints()
        if self.scrolls_sideways():
            found.append(f"{here} is too wide")
        return found

    def scrolls_sideways(self) -> bool:
        return bool(
            self.browser.execute_script(
                "const page = document.documentElement;"
                " return page.scrollWidth > page.clientWidth + 1;"
            )
        )

    def shoot(self, name: str, ready: Callable[[], None] = lambda: None) -> None:
        """Pictures as the documentation has them (`--screenshots DIRECTORY`; else they go where
        the test's other files go): <name>-light, <name>-dark at desktop width, <name>-phone.
        """
        for kind, scheme, size in (
            ("light", "light", DESKTOP),
            ("dark", "dark", DESKTOP),
            ("phone", "light", PHONE),
        ):
            self.browser.media(scheme=scheme, motion="reduce")
            self.browser.size(*size)
            ready()
            path = self._shots / f"{name}-{kind}.webp"
            self.browser.picture(path)
            assert path.read_bytes()[8:12] == b"WEBP", path
        self.browser.media(scheme="light")
        self.browser.size(*DESKTOP)
