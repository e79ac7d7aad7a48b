"""Draining one directory, without a broker that writes into it: of a host that is gone, say.

Imports spool, services/replay. Used by the drain command.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brokers.services.replay import Replay
from spool.directory import SpoolDirectory
from spool.drain import Drain, DrainConfig

if TYPE_CHECKING:
    from brokers.runtime import Broker

TELL_EVERY_S = 2.0
NO_PROGRESS_S = 60.0
LOOK_S = 0.05


class NotDrained(Exception):
    """Something is left, and nothing has moved for a while; the text says why."""


@dataclass(slots=True)
class Progress:
    """What a drain did since it began; `left` messages wait in the directory."""

    stored: int = 0
    left: int = 0
    poison: int = 0
    damaged: int = 0
    rate: float = 0.0
    error: str | None = None

    def __str__(self) -> str:
        text = f"drained {self.stored} messages, {self.left} left, {self.rate:.0f}/s"
        if self.poison or self.damaged:
            text += f", set aside in failed/: {self.poison} poison, {self.damaged} damaged"
        return f"{text} ({self.error})" if self.error else text


async def drain(
    broker: "Broker",
    directory: SpoolDirectory,
    *,
    once: bool,
    tell: Callable[[Progress], None],
    stopped: asyncio.Event,
) -> Progress:
    """Replay until it is empty (`once`) or until `stopped`. Raises NotDrained."""
    config = broker.config.file_buffer
    draining = Drain(
        directory,
        writer=None,
        store=Replay(broker),
        config=DrainConfig(
            flush_ms=config.flush_ms,
            max_batch=config.batch_max,
            delete_unmovable=config.delete_unmovable,
        ),
        settled=lambda records: None,
        paused=lambda: stopped.is_set() or not broker.ready or broker.switches.push_maintenance,
    )
    progress = Progress()
    told_at = moved_at = time.monotonic()
    while not stopped.is_set() and (directory.finished() or not once):
        before = draining.events_replayed + draining.events_poison + draining.files_drained
        cycle = await draining.cycle()
        progress.stored = draining.events_replayed
        progress.poison, progress.damaged = draining.events_poison, draining.pieces_damaged
        progress.left, progress.rate = directory.stats().events, draining.rate
        progress.error = cycle.error
        now = time.monotonic()
        if draining.events_replayed + draining.events_poison + draining.files_drained != before:
            moved_at = now
        elif once and directory.finished() and now - moved_at > NO_PROGRESS_S:
            raise NotDrained(f"nothing has moved for {NO_PROGRESS_S:.0f} s: {progress}")
        if now - told_at >= TELL_EVERY_S and (directory.finished() or cycle.events):
            told_at = now
            tell(progress)
        if not cycle.events:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await stopped.wait()
    return progress
