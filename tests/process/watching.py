"""A viewer of the dashboard without a browser: opens the socket, lays the pictures together.

Imports tests.browser.operators. Used by test_live.py and live_load.py.
"""

import contextlib
import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any

from websockets.sync.client import ClientConnection, connect

CONFIRM_EVERY = 8
PATIENCE_S = 60.0


class Watcher:
    """`picture` has the parts as the page would have them; `came` counts what was received."""

    def __init__(self, socket: ClientConnection, *, confirms: bool = True) -> None:
        self.socket = socket
        self.picture: dict[str, Any] = {}
        self.came = 0
        self.wholes = 0
        self._confirms = confirms

    def next(self, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The picture after the next message. Raises TimeoutError, or ConnectionClosed."""
        told = json.loads(self.socket.recv(timeout=timeout_s))
        self.came += 1
        if "points" in told:
            self.wholes += 1
            self.picture = told
        else:
            parts = {**self.picture["parts"], **told["parts"]}
            points = [*self.picture["points"], told["point"]]
            self.picture = {**told, "parts": parts, "points": points}
        if self._confirms and self.came % CONFIRM_EVERY == 0:
            self.confirm()
        return self.picture

    def confirm(self) -> None:
        self.socket.send(str(self.came))

    def until(self, condition: Callable[[dict[str, Any]], Any], most: int = 120) -> dict[str, Any]:
        """The first picture of which it is true."""
        for _ in range(most):
            picture = self.next()
            with contextlib.suppress(KeyError, TypeError):
                if condition(picture):
                    return picture
        raise AssertionError(f"not true in {most} pictures, the last: {self.picture}")

    def value(self, part: str) -> Any:
        return self.picture["parts"][part]["value"]


@contextlib.contextmanager
def watching(
    url: str,
    session: str | None = None,
    *,
    origin: str | None = None,
    path: str = "/console/live",
    confirms: bool = True,
    trust: ssl.SSLContext | None = None,
) -> Iterator[Watcher]:
    """At the broker of that address, with that session. Raises InvalidStatus when refused."""
    headers = {} if session is None else {"Cookie": f"sessionid={session}"}
    with connect(
        url.replace("http", "ws", 1) + path,
        origin=origin or url,  # type: ignore[arg-type]
        additional_headers=headers,
        compression=None,
        proxy=None,
        ssl=trust,
        open_timeout=60,
        close_timeout=2,
    ) as socket:
        yield Watcher(socket, confirms=confirms)
