"""A session: one channel in use, until it breaks or its peer falls silent.

Three loops: one writes what the outbox holds, one reads, one watches the clock. A peer is
alive while whole frames come; one that sends nothing, or a byte a second, for the dead
threshold is given up, and so is one that takes nothing. That is how a half-open connection
is noticed, whatever TCP believes.

Imports frames, hints, channel, outbox, handshake. Used by link.py, node.py, local.py.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from mesh import hints
from mesh.channel import Channel, ForgedFrame
from mesh.frames import HEARTBEAT, MARK, FrameError
from mesh.handshake import Introduction
from mesh.hints import Hint
from mesh.outbox import Outbox

log = logging.getLogger(__name__)

WRITE_BYTES = 65_536
# Between two writes: what a busy broker has to say meanwhile goes together.
COOLDOWN_S = 0.001
# How long a flood of frames is read before everybody else has a turn.
READ_SLICE_S = 0.001
# A slower peer may say how rarely it speaks, within reason.
HEARTBEAT_MS_MAX = 60_000


@dataclass(slots=True)
class Counters:
    """Of a node, since it started. Hints and not frames: heartbeats are not counted."""

    sent: int = 0
    received: int = 0
    # What outboxes that are gone had dropped.
    dropped: int = 0
    skipped: int = 0
    forged: int = 0
    handshake_failures: int = 0


class SessionEnded(Exception):
    """Why the session is over; the text is for the log."""


# The session that a hint came over, the hint, and whether a hub had marked it.
Received = Callable[["Session", Hint, bool], None]


class Session:
    def __init__(
        self,
        channel: Channel,
        peer: Introduction,
        outbox: Outbox,
        *,
        received: Received,
        counters: Counters,
        heartbeat_s: float,
        dead_after_s: float,
        address: str = "",
    ) -> None:
        self.peer = peer
        self.outbox = outbox
        self.address = address
        self.heard_at = time.monotonic()
        self._channel = channel
        self._received = received
        self._counters = counters
        self._heartbeat_s = heartbeat_s
        theirs_s = min(max(peer.heartbeat_ms, 0), HEARTBEAT_MS_MAX) / 1000
        self.dead_after_s = max(dead_after_s, 2.5 * theirs_s)

    @property
    def alive(self) -> bool:
        return time.monotonic() - self.heard_at <= self.dead_after_s

    def close(self) -> None:
        """Without having run."""
        self._channel.close()

    async def run(self) -> None:
        """Until it is over; the channel is closed then. Raises SessionEnded with the reason."""
        loops = [
            asyncio.create_task(loop, name=f"mesh {name} {self.peer.server_id}")
            for name, loop in (
                ("read", self._read()),
                ("write", self._write()),
                ("watch", self._watch()),
            )
        ]
        try:
            done, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for loop in loops:
                loop.cancel()
            self._channel.close()
            await asyncio.gather(*loops, return_exceptions=True)
        raise SessionEnded(_reason(done)) from None

    async def _read(self) -> None:
        began = time.monotonic()
        while True:
            try:
                kind, body = await self._channel.read()
            except ForgedFrame:
                self._counters.forged += 1
                raise
            self.heard_at = now = time.monotonic()
            self._take_in(kind, body)
            if now - began > READ_SLICE_S:
                await asyncio.sleep(0)
                began = time.monotonic()

    def _take_in(self, kind: int, body: bytes) -> None:
        if kind == HEARTBEAT:
            return
        hint = hints.decode(kind & ~MARK, body)
        if hint is None:
            self._counters.skipped += 1
            return
        self._counters.received += 1
        try:
            self._received(self, hint, bool(kind & MARK))
        except Exception:
            log.exception("a hint could not be applied")

    async def _write(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_s):
                    await self.outbox.wait()
            except TimeoutError:
                data = self._channel.seal(HEARTBEAT, b"")
            else:
                data = self._gather()
            async with asyncio.timeout(self.dead_after_s):
                await self._channel.write(data)
            await asyncio.sleep(COOLDOWN_S)

    def _gather(self) -> bytes:
        """Frames of what waits, as much as one write should hold."""
        frames: list[bytes] = []
        size = 0
        while size < WRITE_BYTES and (item := self.outbox.take()) is not None:
            hint, marked = item
            try:
                kind, body = hints.encode(hint)
            except (UnicodeEncodeError, OverflowError, TypeError):
                # Names come from outside: one that cannot be told is not told.
                self._counters.dropped += 1
                continue
            frames.append(self._channel.seal(kind | MARK if marked else kind, body))
            size += len(frames[-1])
            self._counters.sent += 1
        return b"".join(frames)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if not self.alive:
                raise SessionEnded(f"nothing heard for {self.dead_after_s:.1f} s")


def _reason(done: set[asyncio.Task[None]]) -> str:
    error = next(iter(done)).exception()
    if isinstance(error, asyncio.IncompleteReadError):
        return "closed by the other end"
    if isinstance(error, TimeoutError):
        return "the other end takes nothing"
    if isinstance(error, SessionEnded | FrameError | OSError):
        return str(error)
    log.error("a session broke", exc_info=error)
    return repr(error)
