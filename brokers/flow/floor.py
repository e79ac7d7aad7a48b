"""The floor: finds what no hint told, with one cheap call a second for the whole process.

Three occasions ask the database which partitions have work, all with one query and all in
one call at a time: the first look of a pop whose ring knew nothing (a message pushed
through another broker a moment ago must be found), the floor once an interval for every
gate that has seats, and the reseeds of rings in use. What it finds is marked in the rings,
and the rings wake the seats.

Imports flow, store. Used by runtime.py and services/pop.py.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from brokers.errors import StoreError
from brokers.flow.coalesce import Coalescer
from brokers.flow.ending import ended
from brokers.flow.gates import Key
from brokers.flow.ready import Ring, Rings
from brokers.store import calls
from brokers.store.calls import ProbeRow

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

# Stamps move once a second and become visible at commit: a look goes back so far behind
# the last one, and every tenth time behind the longest statement.
OVERLAP = timedelta(seconds=3)
LONG_OVERLAP = timedelta(seconds=35)
LONG_EVERY = 10
ROWS_MAX = 10_000
RINGS_PER_CALL = 500
NAMES_MAX = 5000
# Consumers that keep up find their ring empty at every pop: they share looks.
PROBE_EVERY_S = 0.02
RESEED_WINDOW_MIN_S = 120.0


class Floor:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._later: set[asyncio.Task[None]] = set()
        self.prober: Coalescer[tuple[Ring, datetime | None], bool] = Coalescer(
            "probe", self._probe, weight_max=RINGS_PER_CALL
        )

    async def look(self, ring: Ring, *, full: bool = False) -> bool:
        """Mark what has work; False when the ring's queue does not exist any more.

        Whoever asks shares a call that starts after it asked, never one under way.
        """
        full = full or (ring.cut_short and not ring.ready_count)
        return await self.prober.ask((ring, None if full else self._since(ring)))

    async def look_soon(self, ring: Ring) -> bool:
        """As `look`, for a pop that can wait: a ring that was looked at a moment ago is looked
        at again a moment later, for everyone who asked meanwhile, and what is found then rings.
        """
        now = time.monotonic()
        wait_s = ring.probed_at + PROBE_EVERY_S - now
        if wait_s <= 0:
            ring.probed_at = now
            return await self.look(ring)
        self.nudge(ring, wait_s)
        return True

    def nudge(self, ring: Ring, wait_s: float = PROBE_EVERY_S) -> None:
        """Have it looked at a moment later, once for all who ask meanwhile."""
        if not ring.probe_due:
            ring.probe_due = True
            asyncio.get_running_loop().call_later(wait_s, self._look_later, ring)

    def _look_later(self, ring: Ring) -> None:
        ring.probe_due = False
        ring.probed_at = time.monotonic()
        task = asyncio.create_task(self._look_quietly(ring), name="probe soon")
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _look_quietly(self, ring: Ring) -> None:
        try:
            await self.look(ring)
        except StoreError as error:
            log.debug("probe: %s", error.text)

    async def stop(self) -> None:
        await ended(self._later)
        await self.prober.stop()

    async def run(self) -> None:
        """The floor of all gates, for ever."""
        interval_s = self._broker.config.pop.poll_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.step()
            except StoreError as error:
                log.debug("floor: %s", error.text)
            except Exception:
                log.exception("floor")

    async def step(self) -> None:
        """One round: all gates with seats, and the rings whose reseed is due."""
        asked: list[tuple[Ring, datetime | None]] = []
        now = time.monotonic()
        hotlist = self._broker.config.hotlist
        rings = self._broker.announce.rings
        gates = self._broker.gates
        for queue_id, group in gates.occupied():
            ring = rings.ring(queue_id, group)
            ring.used_at = now
        expecting = {queue_id for queue_id, _ in gates.unborn()}
        for ring in rings.all():
            # Those who wait for a partition to be born learn here that its queue is gone.
            seated = gates.seated((ring.queue_id, ring.group)) > 0 or ring.queue_id in expecting
            if seated and ring.ready_count:
                # Bells that were lost on the way: their pop was cancelled in mid-claim, or
                # took another partition.
                gates.ring_ready((ring.queue_id, ring.group), ring.is_ready)
            if now >= ring.full_at or (ring.cut_short and not ring.ready_count):
                asked.append((ring, None))
            elif now >= ring.windowed_at and isinstance(ring.looked_at, datetime):
                window_s = max(4 * hotlist.reseed_ms / 1000, RESEED_WINDOW_MIN_S)
                asked.append((ring, ring.looked_at - timedelta(seconds=window_s)))
            elif seated:
                asked.append((ring, self._since(ring)))
        await asyncio.gather(self._look_for_births(), *(self.prober.ask(one) for one in asked))
        rings.sweep(
            hotlist.idle_sweep_ms / 1000,
            lambda ring: gates.seated((ring.queue_id, ring.group)) > 0,
        )

    async def _look_for_births(self) -> None:
        """One call for all partitions that pops wait for to exist."""
        names = self._broker.gates.unborn()[:NAMES_MAX]
        if names:
            self._broker.counters.probe_calls += 1
            for queue_id, name in await calls.partition_find(self._broker.store.fetch, names):
                self._broker.gates.ring_unborn(queue_id, name)

    def _since(self, ring: Ring) -> datetime | None:
        """From when on written partitions are compared; None, all of them, the first time."""
        if not isinstance(ring.looked_at, datetime):
            return None
        overlap = LONG_OVERLAP if ring.looks % LONG_EVERY == LONG_EVERY - 1 else OVERLAP
        return ring.looked_at - overlap

    async def _probe(self, asked: Sequence[tuple[Ring, datetime | None]]) -> list[bool]:
        """One call for all; a ring that is asked for twice is looked at once, from its earliest."""
        since: dict[Ring, datetime | None] = {}
        for ring, start in asked:
            if ring not in since:
                since[ring] = start
            elif start is None or since[ring] is None:
                since[ring] = None
            else:
                since[ring] = min(since[ring], start)  # type: ignore[type-var]
        self._broker.counters.probe_calls += 1
        rings = list(since)
        rows = await calls.ready_probe(
            self._broker.store.fetch,
            [(ring.queue_id, ring.group, since[ring]) for ring in rings],
            window_batch=self._broker.config.hotlist.window_batch,
            limit=ROWS_MAX,
        )
        again: list[Ring] = []
        exists: dict[Ring, bool] = dict.fromkeys(rings, True)
        for row in rows:
            ring = rings[row.ring - 1]
            if row.partition_id is not None:
                ring.seed(row.partition_id, row.due_us / 1e6 if row.due_us else None)
            elif row.truncated:
                ring.cut_short = True
            elif row.wake_version is None:
                exists[ring] = False
            elif self._begin(ring, row, full=since[ring] is None):
                again.append(ring)
        for ring, found in exists.items():
            if not found:
                self._queue_gone(ring)
        if again:
            # A cursor moved back or was released elsewhere: only a full look finds it.
            await self._probe([(ring, None) for ring in again])
        return [exists[ring] for ring, _ in asked]

    def _begin(self, ring: Ring, row: ProbeRow, *, full: bool) -> bool:
        """Note what the look saw of the ring itself; True when it must be read whole."""
        assert row.wake_version is not None
        hotlist = self._broker.config.hotlist
        now = time.monotonic()
        moved = ring.woken(row.wake_version)
        if moved:
            # It moves with a configuration too: believe no old option.
            self._broker.directory.forget_queue_id(ring.queue_id)
        ring.looked_at = row.looked_at
        ring.looks += 1
        if full:
            ring.cut_short = False
            ring.full_at = now + ring_interval(hotlist.reseed_full_ms)
            ring.windowed_at = now + ring_interval(hotlist.reseed_ms)
        elif now >= ring.windowed_at:
            ring.windowed_at = now + ring_interval(hotlist.reseed_ms)
        return moved and not full

    def _queue_gone(self, ring: Ring) -> None:
        """The queue was deleted elsewhere: its waiters look again, and find the new one."""
        self._broker.announce.rings.drop(ring.queue_id)
        self._broker.directory.forget_queue_id(ring.queue_id)
        queue_id = ring.queue_id

        def concerned(key: Key) -> bool:
            return key[0] == queue_id

        self._broker.gates.ring_all(concerned)


def ring_interval(interval_ms: int) -> float:
    """Seconds to a ring's next reseed, spread so that rings do not reseed together."""
    return Rings.dephased(interval_ms / 1000)
