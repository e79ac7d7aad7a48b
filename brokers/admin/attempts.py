"""Attempts to sign in that failed, lately and here: whoever has too many waits.

A password costs whoever guesses as much of this machine's time as it costs the one who knows
it. So a peer that failed too often with one name, or very often with any, is refused before
its password is looked at. Each process remembers for itself, and not much.

Imports nothing of ours. Used by site.py.
"""

import time
from collections import OrderedDict
from collections.abc import Callable

WINDOW_S = 300.0
BY_NAME_MAX = 10
BY_PEER_MAX = 100
REMEMBERED_MAX = 10_000

Key = tuple[str, str]


class Attempts:
    """Threads share it: a count that two of them move at once may lose one, which does no harm."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        # When the window began, and how many failed since.
        self._failed: OrderedDict[Key, tuple[float, int]] = OrderedDict()

    def wait_s(self, peer: str, name: str) -> float:
        """How long this peer has to wait before it may try that name; 0 for not at all."""
        return max(self._wait_s((peer, name), BY_NAME_MAX), self._wait_s((peer, ""), BY_PEER_MAX))

    def failed(self, peer: str, name: str) -> None:
        for key in {(peer, name), (peer, "")}:
            began, count = self._failed.pop(key, (self._now(), 0))
            if self._now() - began > WINDOW_S:
                began, count = self._now(), 0
            self._failed[key] = began, count + 1
        while len(self._failed) > REMEMBERED_MAX:
            self._failed.popitem(last=False)

    def succeeded(self, peer: str, name: str) -> None:
        self._failed.pop((peer, name), None)

    def _wait_s(self, key: Key, most: int) -> float:
        began, count = self._failed.get(key, (0.0, 0))
        if count < most:
            return 0.0
        return max(began + WINDOW_S - self._now(), 0.0)
