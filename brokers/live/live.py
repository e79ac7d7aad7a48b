"""Live: the viewers of this process, and the loop that shows them the picture.

The loop runs while somebody watches and not longer. Everybody is sent the same bytes; the sends
are spread over the interval in small groups, so that no push waits for more than one group. The
interval grows until all that is done for viewers takes at most LOAD_MAX of the loop's time.

A viewer says which pictures it has seen. Who is WINDOW behind is left out, and gets the whole
picture once it has caught up: nothing piles up for it, whatever lies between. One that says
nothing for GONE_S is gone.

Imports collector, sessions. Used by consumer.py, views.py and queen_project/serving.py.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from brokers.live import sessions
from brokers.live.collector import Collector
from brokers.live.sessions import Pass

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

# Of one loop's time, for making pictures and showing them.
LOAD_MAX = 0.01
INTERVAL_S_MAX = 15.0
# Sends between two looks of the loop at everything else, and over how much of the interval.
TOGETHER = 8
SPREAD = 0.6
WINDOW = 16
GONE_S = 60.0
# What a transport does not take within this is not taken.
SEND_S = 1.0
# Who asks for pictures instead of being sent them counts as a viewer for so long.
POLLER_S = 20.0
FIRST_PICTURE_S = 5.0
CLOSE_S = 2.0

# Close codes: the stop of the broker, and our own.
GOING_AWAY, NOT_SENT, SIGNED_OUT, TOO_SLOW = 1001, 1011, 4401, 4408


@dataclass(eq=False, slots=True, kw_only=True)
class Viewer:
    """One open socket. `needs_whole`: the next picture it is sent is one with everything."""

    send: Callable[[dict[str, Any]], Awaitable[None]]
    may_watch: Pass
    sent: int = 0
    seen: int = 0
    needs_whole: bool = True
    heard_at: float = field(default_factory=time.monotonic)

    def saw(self, number: int) -> None:
        self.seen = max(self.seen, min(number, self.sent))
        self.heard_at = time.monotonic()

    @property
    def keeps_up(self) -> bool:
        return self.sent - self.seen < WINDOW


class Live:
    def __init__(self, broker: "Broker") -> None:
        self._config = broker.config.live
        self._collector = Collector(broker)
        self._viewers: dict[Viewer, None] = {}
        self._polled_at = float("-inf")
        self._pictured = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._rechecking: asyncio.Task[None] | None = None
        self._rechecked_at = 0.0
        self.interval_s = self._config.interval_ms / 1000
        self.closed = False

    def __len__(self) -> int:
        return len(self._viewers)

    @property
    def has_room(self) -> bool:
        return not self.closed and len(self._viewers) < self._config.viewers_max

    async def join(self, viewer: Viewer) -> None:
        """From now on it is shown the pictures, at once the one that there is."""
        self._viewers[viewer] = None
        self._watch()
        if self._collector.has_picture:
            await self._show_group([viewer], b"")

    def leave(self, viewer: Viewer) -> None:
        self._viewers.pop(viewer, None)

    async def picture(self) -> bytes:
        """For whoever asks for it. Raises TimeoutError when none can be made."""
        if self.closed:
            raise TimeoutError
        self._polled_at = time.monotonic()
        self._watch()
        async with asyncio.timeout(FIRST_PICTURE_S):
            await self._pictured.wait()
        return self._collector.whole()

    async def close(self) -> None:
        """The broker stops: every socket is told so, and nothing is shown any more."""
        self.closed = True
        running = [task for task in (self._running, self._rechecking) if task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for viewer in list(self._viewers):
            await self._end(viewer, GOING_AWAY)

    def _watch(self) -> None:
        if self._running is None and not self.closed:
            self._running = asyncio.create_task(self._run(), name="live pictures")

    def _watched(self) -> bool:
        return bool(self._viewers) or time.monotonic() - self._polled_at < POLLER_S

    async def _run(self) -> None:
        try:
            while self._watched():
                began = time.monotonic()
                worked_s = await self._round()
                floor_s = self._config.interval_ms / 1000
                self.interval_s = min(max(floor_s, worked_s / LOAD_MAX), INTERVAL_S_MAX)
                await asyncio.sleep(max(began + self.interval_s - time.monotonic(), 0.0))
        except Exception:
            log.exception("no more pictures are made until somebody comes anew")
            for viewer in list(self._viewers):
                await self._end(viewer, GOING_AWAY)
        finally:
            self._pictured.clear()
            await self._collector.rest()
            self._running = None
        if self._watched():  # somebody came while it was tidied up
            self._watch()

    async def _round(self) -> float:
        """One picture, for everybody; how long the loop could do nothing else for it."""
        before = time.thread_time()
        picture = await self._collector.tick(self.interval_s)
        self._pictured.set()
        # Of what else ran meanwhile some is counted, too: a busy loop makes fewer pictures.
        worked_s = min(time.thread_time() - before, 0.01)
        viewers = list(self._viewers)
        groups = [viewers[at : at + TOGETHER] for at in range(0, len(viewers), TOGETHER)]
        pause_s = SPREAD * self.interval_s / max(len(groups), 1)
        for group in groups:
            began = time.perf_counter()
            await self._show_group(group, picture)
            worked_s += time.perf_counter() - began
            await asyncio.sleep(pause_s if len(groups) > 1 else 0)
        self._begin_recheck()
        return worked_s

    async def _show_group(self, group: Sequence[Viewer], picture: bytes) -> None:
        """One after the other, with one timer for all of them. Whoever is waited for when it
        ends is given up."""
        left = [viewer for viewer in group if viewer in self._viewers]
        while left:
            try:
                async with asyncio.timeout(SEND_S):
                    while left:
                        await self._offer(left[0], picture)
                        left.pop(0)
            except TimeoutError:
                await self._end(left.pop(0), TOO_SLOW)

    async def _offer(self, viewer: Viewer, picture: bytes) -> None:
        if viewer.keeps_up:
            await self._show(viewer, picture)
            return
        viewer.needs_whole = True
        if time.monotonic() - viewer.heard_at > GONE_S:
            await self._end(viewer, TOO_SLOW)

    async def _show(self, viewer: Viewer, picture: bytes) -> None:
        if viewer.needs_whole:
            picture, viewer.needs_whole = self._collector.whole(), False
        viewer.sent += 1
        try:
            await viewer.send({"type": "websocket.send", "bytes": picture})
        except Exception as error:  # mostly a server's own way to say that nobody is there any more
            log.info("a viewer cannot be shown a picture: %r", error)
            await self._end(viewer, NOT_SENT)

    async def _end(self, viewer: Viewer, code: int) -> None:
        self.leave(viewer)
        try:
            async with asyncio.timeout(CLOSE_S):
                await viewer.send({"type": "websocket.close", "code": code})
        except Exception as error:
            log.debug("a viewer was gone before it was told: %r", error)

    def _begin_recheck(self) -> None:
        """Beside the pictures: a database that does not answer holds up none of them."""
        due = time.monotonic() - self._rechecked_at >= self._config.recheck_s
        if due and self._viewers and self._rechecking is None:
            self._rechecked_at = time.monotonic()
            self._rechecking = asyncio.create_task(self._recheck(), name="live recheck")

    async def _recheck(self) -> None:
        """Whoever signed out, was deactivated, may not watch any more or has another password is
        shown nothing more."""
        try:
            ended = await sessions.ended({viewer.may_watch for viewer in self._viewers})
            for viewer in [one for one in self._viewers if one.may_watch in ended]:
                await self._end(viewer, SIGNED_OUT)
        except Exception:
            log.exception("whether viewers may still watch could not be asked")
        finally:
            self._rechecking = None


_of: "WeakKeyDictionary[Broker, Live]" = WeakKeyDictionary()


def of(broker: "Broker") -> Live:
    """The one of this broker."""
    live = _of.get(broker)
    if live is None:
        live = _of[broker] = Live(broker)
    return live


async def close(broker: "Broker") -> None:
    """If there is one; for a broker that stops."""
    if broker in _of:
        await _of[broker].close()
