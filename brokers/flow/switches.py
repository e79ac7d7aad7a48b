"""The operator's switches for key/value state and timers, as this broker knows them.

They are one row of the database, read once a second, so that a switch thrown at one broker
holds at every other about a second later; here it holds at once. While the database is
away the last known ones are in force. One that could not be written is in force here
only, and is written when the database is back.

Imports errors, store. Used by runtime.py and services/.
"""

import asyncio
import logging
from collections.abc import Mapping

from brokers.errors import StoreError
from brokers.store import kv_calls
from brokers.store.calls import Fetch

log = logging.getLogger(__name__)
READ_EVERY_S = 1.0
KV, TIMERS_SCHEDULE, TIMERS_FIRE = "kv", "timersSchedule", "timersFire"


class Switches:
    """Every switch is on unless it was turned off; until they are read for the first time all
    are off, so that a pause outlives a restart without a gap.
    """

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._stored: dict[str, bool] | None = None
        self._unwritten: dict[str, bool] = {}
        # One at a time: an older answer must not come in after a newer one.
        self._reading = asyncio.Lock()

    @property
    def known(self) -> bool:
        """Whether they have been read since the start."""
        return self._stored is not None

    @property
    def kv_enabled(self) -> bool:
        return self._on(KV)

    @property
    def timers_schedule_enabled(self) -> bool:
        return self._on(TIMERS_SCHEDULE)

    @property
    def timers_fire_enabled(self) -> bool:
        return self._on(TIMERS_FIRE)

    def _on(self, name: str) -> bool:
        if self._stored is None:
            return self._unwritten.get(name, False)
        return self._unwritten.get(name, self._stored.get(name, True))

    async def throw(self, patch: Mapping[str, bool]) -> bool:
        """In force here at once; false when it could not be written for the others."""
        self._unwritten |= patch
        try:
            await self.refresh()
        except StoreError as error:
            log.warning("a switch is in force here only: %s", error.text)
            return False
        return True

    async def refresh(self) -> None:
        async with self._reading:
            writing = dict(self._unwritten)
            stored = await kv_calls.switch_set(self._fetch, writing)
            self._stored = {name: value is not False for name, value in stored.items()}
            for name, value in writing.items():
                if self._unwritten.get(name) is value:
                    self._unwritten.pop(name)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(READ_EVERY_S)
            try:
                await self.refresh()
            except StoreError as error:
                log.debug("switches: %s", error.text)
