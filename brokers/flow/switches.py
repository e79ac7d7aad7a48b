"""The operator's switches, as this broker knows them.

They are one row of the database, read once a second, so that a switch thrown at one broker
holds at every other about a second later, or at once by a hint; here it holds at once. While
the database is away the last known ones are in force. One that could not be written is in
force here only, and is written when the database is back.

Imports errors, store. Used by runtime.py and services/.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from brokers.errors import StoreError
from brokers.store import kv_calls
from brokers.store.calls import Fetch

log = logging.getLogger(__name__)
READ_EVERY_S = 1.0
# How long whoever throws a switch, or asks for it, waits for a database that does not answer.
ASK_S = 2.0

KV, TIMERS_SCHEDULE, TIMERS_FIRE = "kv", "timersSchedule", "timersFire"
PUSH_MAINTENANCE, POP_MAINTENANCE = "maintenance", "popMaintenance"
# What each one is when nobody has ever thrown it.
DEFAULTS: Mapping[str, bool] = {
    KV: True,
    TIMERS_SCHEDULE: True,
    TIMERS_FIRE: True,
    PUSH_MAINTENANCE: False,
    POP_MAINTENANCE: False,
}

# Told which switches are not what they were.
Listener = Callable[[frozenset[str]], None]


class Switches:
    """Until they are read for the first time all are off: so a pause of key/value state or of
    timers outlives a restart without a gap, and nobody is in maintenance by mistake.
    """

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._stored: dict[str, bool] | None = None
        self._unwritten: dict[str, bool] = {}
        # One at a time: an older answer must not come in after a newer one.
        self._reading = asyncio.Lock()
        self._told = self._all()
        # Called in the loop, after the change is in force; must not wait and must not fail.
        self.listeners: list[Listener] = []
        # Called when what was thrown here has been written, for the others to read.
        self.written_listeners: list[Callable[[Mapping[str, bool]], None]] = []

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

    @property
    def push_maintenance(self) -> bool:
        """Every push goes to the spool, and the spool is not drained."""
        return self._on(PUSH_MAINTENANCE)

    @property
    def pop_maintenance(self) -> bool:
        """Every pop is answered at once, with nothing."""
        return self._on(POP_MAINTENANCE)

    def _on(self, name: str) -> bool:
        if name in self._unwritten:
            return self._unwritten[name]
        return self._stored is not None and self._stored.get(name, DEFAULTS[name])

    async def throw(self, patch: Mapping[str, bool]) -> bool:
        """In force here at once; false when it could not be written for the others."""
        self._unwritten |= patch
        self._tell()
        return await self.look()

    async def look(self) -> bool:
        """Read them now, and write what is to be written; false when the database does not
        answer, and what was known stays in force.
        """
        try:
            async with asyncio.timeout(ASK_S):
                await self.refresh()
        except (StoreError, TimeoutError) as error:
            log.warning("the switches are those of this broker only: %s", error)
            return False
        return True

    async def refresh(self) -> None:
        async with self._reading:
            writing = dict(self._unwritten)
            stored = await kv_calls.switch_set(self._fetch, writing)
            self._stored = {
                name: value for name, value in stored.items() if isinstance(value, bool)
            }
            for name, value in writing.items():
                if self._unwritten.get(name) is value:
                    self._unwritten.pop(name)
            self._tell()
            if writing:
                for listener in self.written_listeners:
                    listener(writing)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(READ_EVERY_S)
            try:
                await self.refresh()
            except StoreError as error:
                log.debug("switches: %s", error.text)

    def _all(self) -> dict[str, bool]:
        return {name: self._on(name) for name in DEFAULTS}

    def _tell(self) -> None:
        now = self._all()
        changed = frozenset(name for name, value in now.items() if value is not self._told[name])
        self._told = now
        if changed:
            for listener in self.listeners:
                listener(changed)
