"""Debian's Chromium, driven by selenium: started once a worker, clean before every test.

What a page complains of is a failure of the test that looked at it: an error in a script, a
thing that the security policy forbade, a file that was not there.

Imports nothing of ours. Used by conftest.py and console.py.
"""

import base64
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
    WebDriverException,
)
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

T = TypeVar("T")

PROGRAMS = ("chromium", "chromedriver")
MISSING = (
    "{} is not installed. `make test` installs it as root; else, on Debian:"
    " apt-get install chromium chromium-driver"
)
DESKTOP, PHONE = (1280, 900), (390, 844)
WAIT_S = 60.0
STALE_MAX = 20
WEBP_QUALITY = 82
PICTURE_HEIGHT_MAX = 2000
# What the driver says where an element went while it was being looked at.
EXCHANGED = "does not belong to the document"
FORGIVING = (NoSuchElementException, StaleElementReferenceException)


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.fail(MISSING.format(name), pytrace=False)
    return path


class Browser(webdriver.Chrome):
    """selenium's driver, and what our tests ask of every page."""

    def __init__(self, profile: str) -> None:
        options = Options()
        options.binary_location = program("chromium")
        for argument in (
            "--headless=new",
            "--no-sandbox",  # the tests may be root's
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            f"--user-data-dir={profile}",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        super().__init__(options=options, service=Service(program("chromedriver")))
        self.set_page_load_timeout(120)
        self.set_script_timeout(120)

    def begin(self) -> None:
        """As a browser that nobody has used: a window of desktop size, light, no cookies."""
        self.get("about:blank")
        self.execute_cdp_cmd("Network.enable", {})
        self.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.offline(False)
        self.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
        self.media(scheme="light")
        self.size(*DESKTOP)
        self.get_log("browser")

    def size(self, width: int, height: int) -> None:
        """The page's own size, whatever the window has around it."""
        self.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def media(self, *, scheme: str = "light", motion: str = "no-preference") -> None:
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        self.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def offline(self, off: bool) -> None:
        """Without any network; sockets that are open stay open."""
        self.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": off, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
        )

    def until(self, condition: Callable[["Browser"], T], timeout_s: float = WAIT_S) -> T:
        """The first true value of the condition; an element that is not there yet is none."""
        wait = WebDriverWait(self, timeout_s, poll_frequency=0.05, ignored_exceptions=FORGIVING)
        try:
            return wait.until(condition)  # type: ignore[arg-type, return-value]
        except TimeoutException:
            raise AssertionError(
                f"not true within {timeout_s} s at {self.current_url}:\n{self.text()[:3000]}\n"
                + "\n".join(self.complaints())
            ) from None

    def one(self, selector: str) -> Any:
        return self.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return self.find_elements("css selector", selector)

    def text(self, selector: str = "body") -> str:
        """What is written there, as a person sees it."""
        return str(self.steady(lambda: self.one(selector).text))

    def press(self, what: str, by: str = "css selector") -> None:
        """As soon as it is there, also where the page replaces it now and then."""
        self.until(lambda page: self.steady(lambda: page.find_element(by, what).click()) is None)

    def steady(self, look: Callable[[], T]) -> T:
        """What a look sees that no exchange of its element came between."""
        for _ in range(STALE_MAX):
            try:
                return look()
            except StaleElementReferenceException:
                continue
            except WebDriverException as error:
                if EXCHANGED not in str(error.msg):
                    raise
        return look()

    def cookie(self, url: str, name: str, value: str) -> None:
        self.execute_cdp_cmd("Network.setCookie", {"url": url, "name": name, "value": value})

    def complaints(self) -> list[str]:
        """What the page has complained of since the last look."""
        return [
            f"{one['level']}: {one['message']}"
            for one in self.get_log("browser")
            if one["level"] in ("SEVERE", "WARNING")
        ]

    def picture(self, path: Path) -> None:
        """The page as an image of the kind that the path ends in (.png or .webp), as far down as
        anybody wants to see of it."""
        kind = path.suffix.removeprefix(".")
        size = self.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        height = min(size["height"], PICTURE_HEIGHT_MAX)
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1}
        asked: dict[str, Any] = {"format": kind, "captureBeyondViewport": True, "clip": clip}
        if kind != "png":
            asked["quality"] = WEBP_QUALITY
        shot = self.execute_cdp_cmd("Page.captureScreenshot", asked)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))


def opened() -> tuple[Browser, Callable[[], None]]:
    """A running browser, and what ends it and removes its profile."""
    profile = tempfile.mkdtemp(prefix="queen-chromium-")
    try:
        browser = Browser(profile)
    except BaseException:
        shutil.rmtree(profile, ignore_errors=True)
        raise

    def close() -> None:
        browser.quit()
        shutil.rmtree(profile, ignore_errors=True)

    return browser, close
