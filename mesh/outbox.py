"""The outbox: what one peer is still to be told, bounded and merged by key.

A slow or dead peer costs a fixed amount of memory and nothing else: what does not fit is
dropped and counted, because every hint may be lost.

Imports hints. Used by session.py, link.py, node.py, local.py.
"""

import asyncio

from mesh.hints import SHORT_LIVED, Hint

HINTS_MAX = 1024
# Of all hints that wait together: longer lists are left out, and say "look at all of it".
LISTED_MAX = 65_536

Item = tuple[Hint, bool]


class Outbox:
    def __init__(self, hints_max: int = HINTS_MAX) -> None:
        self._hints_max = hints_max
        # Whether the hint is a copy of our own that may be merged into.
        self._waiting: dict[object, tuple[Hint, bool, bool]] = {}
        self._listed = 0
        self._bell = asyncio.Event()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, hint: Hint, *, marked: bool = False) -> None:
        """Queue it, or merge it into one of its key that waits. Never waits itself."""
        key = (marked, hint.kind, hint.key)
        entry = self._waiting.get(key)
        if entry is None:
            if len(self._waiting) >= self._hints_max:
                self.dropped += 1
                return
            self._bell.set()
            if hint.too_long or self._listed + hint.size > LISTED_MAX:
                hint = hint.copy()
                hint.shorten()
            self._waiting[key] = (hint, marked, False)
            self._listed += hint.size
            return
        waiting, _, ours = entry
        before = waiting.size
        if not ours:
            waiting = waiting.copy()
            self._waiting[key] = (waiting, marked, True)
        waiting.merge(hint)
        listed = self._listed + waiting.size - before
        if waiting.too_long or listed > LISTED_MAX:
            waiting.shorten()
        self._listed += waiting.size - before

    def take(self) -> Item | None:
        """The hint that waits longest, and whether it is marked."""
        if not self._waiting:
            return None
        key = next(iter(self._waiting))
        hint, marked, _ = self._waiting.pop(key)
        self._listed -= hint.size
        if not self._waiting:
            self._bell.clear()
        return hint, marked

    async def wait(self) -> None:
        """Until something waits to be taken."""
        await self._bell.wait()

    def drop_told(self) -> None:
        """Its peer has heard what is short-lived in another way. What is not may be from before
        that way was there, and may be told twice."""
        self._keep_lasting()

    def drop_stale(self) -> None:
        """The peer was away so long that its floor has found what is short-lived."""
        before = len(self._waiting)
        self._keep_lasting()
        self.dropped += before - len(self._waiting)

    def _keep_lasting(self) -> None:
        self._waiting = {
            key: entry
            for key, entry in self._waiting.items()
            if not isinstance(entry[0], SHORT_LIVED)
        }
        self._listed = sum(hint.size for hint, _, _ in self._waiting.values())
        if not self._waiting:
            self._bell.clear()
