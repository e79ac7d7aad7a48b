"""Forms and links of pages that are loaded anew, as a person uses them.

Used by the tests of the admin's pages.
"""

from typing import Any

from selenium.webdriver.common.by import By

from tests.browser.chromium import Browser
from tests.browser.operators import Operator


def fill(browser: Browser, name: str, text: str) -> None:
    field = browser.one(f"[name={name}]")
    field.clear()
    field.send_keys(text)


def press(browser: Browser, selector: str) -> None:
    """Press it, and wait until another page is there."""
    _go(browser, By.CSS_SELECTOR, selector)


def follow(browser: Browser, text: str) -> None:
    """The link of that text, to another page."""
    _go(browser, By.LINK_TEXT, text)


def sign_in(browser: Browser, operator: Operator) -> None:
    """At the page of the login, which is open."""
    fill(browser, "username", operator.name)
    fill(browser, "password", operator.password)
    press(browser, "[type=submit]")


def _go(browser: Browser, by: str, what: str) -> None:
    before = browser.one("html")
    browser.press(what, by)
    browser.until(lambda now: now.one("html") != before and _is_there(now))


def _is_there(browser: Browser) -> Any:
    """A page of the admin, or of the live half."""
    return browser.one("#footer, #content, #main")
