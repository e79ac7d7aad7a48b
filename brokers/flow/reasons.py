"""Why something is not there: each reason is logged once, until it is back.

Whoever looks four times a second must not fill the log, and whoever reads the log must find what
to mend: a wrong password, an unknown authority, a server that starts.

Imports nothing of ours. Used by runtime.py.
"""

import logging

log = logging.getLogger(__name__)

REASONS_MAX = 20


class Reasons:
    def __init__(self, what: str) -> None:
        self._what = what
        self._told: set[str] = set()

    def tell(self, why: str) -> None:
        if why in self._told or len(self._told) >= REASONS_MAX:
            return
        self._told.add(why)
        log.warning("%s: %s", self._what, why)

    def forget(self) -> None:
        """It is back: what is wrong with it next time is news."""
        self._told.clear()
