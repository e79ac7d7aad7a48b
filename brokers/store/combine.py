"""The push combiner: one call in flight carries whatever has arrived since the last one.

Batch size is emergent: alone, a push goes at once in one round trip; under load a flush
carries many partitions and many requests. Per partition at most one flush is in flight,
what arrives meanwhile is the next one: that is its gate, and it is why messages of one
partition are stored in the order they came.

Where a flush goes, to the store or to the spool, is chosen when it takes its parcels,
under the gate. What the store could not take follows into the spool before the gate opens
again, so what waits behind it goes there too, in order.

A partition whose row is held by somebody else (`busy`) keeps its gate and goes alone over
one of two more connections, so that it holds up nobody. `stale` ids are reloaded and
repeated. A permanent error splits the call until only the guilty item fails.

Imports encryption, parcels, sealing, calls, directory, pool. Used by services/ and runtime.py.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from uuid import UUID

from brokers.config import PushConfig
from brokers.encryption import KeyRing
from brokers.errors import QUOTA_CODES, Permanent, StoreError
from brokers.store import calls, sealing
from brokers.store.directory import Directory, PartitionKey
from brokers.store.parcels import (
    NO_KEY,
    OUTCOME_UNKNOWN,
    Gate,
    Load,
    Parcel,
    Path,
    Piece,
    failure_text,
    parcel_of,
)
from brokers.store.pool import Lane

log = logging.getLogger(__name__)

STALE_ROUNDS_MAX = 3
BUSY_LANES = 2
DURATIONS_KEPT = 512
CHANGED_MEANWHILE = "the queue was changed meanwhile: retry"
QUEUE_FULL = "the queue is full (maxSize)"

# For a call that carries so many requests as yet.
Slot = Callable[[int], AbstractAsyncContextManager[Any]]
Announce = Callable[[Sequence[tuple[UUID, str, str, int, int, int]]], None]
Room = OrderedDict[PartitionKey, Gate]


class Aside(Protocol):
    """Where parcels go that the store cannot have now."""

    handover_s: float

    def path(self, key: PartitionKey) -> Path:
        """Where the next flush of this partition goes, as things stand."""

    def failed(self, error: StoreError) -> None:
        """A push call failed: it may be that the database is away."""

    async def write(self, loads: Sequence[Load], error: StoreError | None) -> None:
        """Settle every load: `buffered` once it is safe on disk, else `failed`."""


class Nowhere:
    """No spool: what the store cannot have fails."""

    handover_s = 0.0

    def path(self, key: PartitionKey) -> Path:
        return Path.STORE

    def failed(self, error: StoreError) -> None:
        pass

    async def write(self, loads: Sequence[Load], error: StoreError | None) -> None:
        text = OUTCOME_UNKNOWN if error is None else failure_text(error)
        for load in loads:
            load.fail(text)


class PushCombiner:
    """`put` a parcel; its waiter is called when it is settled."""

    def __init__(
        self,
        *,
        config: PushConfig,
        keys: KeyRing,
        directory: Directory,
        lane: Lane,
        busy_lanes: Sequence[Lane],
        slot: Slot,
        announce: Announce,
        aside: Aside | None = None,
    ) -> None:
        self._config = config
        self._keys = keys
        self._directory = directory
        self._lane = lane
        self._busy_lanes: asyncio.Queue[Lane] = asyncio.Queue()
        for one in busy_lanes:
            self._busy_lanes.put_nowait(one)
        self._slot = slot
        self._announce = announce
        self.aside: Aside = aside or Nowhere()
        self._gates: dict[PartitionKey, Gate] = {}
        self._rooms: dict[Path, Room] = {path: OrderedDict() for path in Path}
        self._arrived = {path: asyncio.Event() for path in Path}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.waiting_bytes = 0
        self.flushes = 0
        self.flushed_items = 0
        # Of the latest calls, in seconds.
        self.durations: deque[float] = deque(maxlen=DURATIONS_KEPT)

    def put(self, key: PartitionKey, parcel: Parcel) -> None:
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = Gate(key)
        gate.parcels.append(parcel)
        self.waiting_bytes += parcel.size_bytes
        if not gate.shut and gate.room is None:
            self._offer(gate)
        self._idle.clear()

    def reconsider(self, key: PartitionKey | None = None) -> None:
        """Paths may have changed: of one partition, or of all."""
        gates = list(self._gates.values()) if key is None else [self._gates.get(key)]
        for gate in gates:
            if gate is not None and gate.room is not None:
                self._offer(gate)

    async def run(self) -> None:
        """Flush for ever; cancelled at the end by whoever started it."""
        spooling = asyncio.create_task(self._run_spool(), name="push combiner: spool")
        try:
            await self._run_store()
        finally:
            spooling.cancel()
            await asyncio.gather(spooling, return_exceptions=True)

    async def _run_store(self) -> None:
        arrived = self._arrived[Path.STORE]
        while True:
            await arrived.wait()
            loads = self._take(Path.STORE)
            if not loads:
                arrived.clear()
                continue
            try:
                async with self._slot(sum(len(load.parcels) for load in loads)):
                    # What arrived while we waited for the slot rides along.
                    loads += self._take(Path.STORE, loads)
                    await self._flush(loads, self._lane, wait_ms=0)
            except asyncio.CancelledError:
                for load in loads:
                    if not load.done:
                        load.fail(OUTCOME_UNKNOWN)
                raise
            except Exception:
                log.exception("push combiner: flush")
                await self._put_aside(loads, StoreError("internal error", outcome_unknown=True))

    async def _run_spool(self) -> None:
        arrived = self._arrived[Path.SPOOL]
        while True:
            await arrived.wait()
            loads = self._take(Path.SPOOL)
            if loads:
                await self._put_aside(loads, None)
            else:
                arrived.clear()

    async def drained(self) -> None:
        """Wait until nothing is waiting or under way."""
        await self._idle.wait()

    def _path(self, gate: Gate) -> Path:
        path = self.aside.path(gate.key)
        return Path.SPOOL if path is Path.WAIT and gate.late else path

    def _offer(self, gate: Gate) -> None:
        """Let an open gate with parcels stand where its next flush will look for it."""
        path = self._path(gate)
        room = self._rooms[path]
        if gate.room is not room:
            gate.leave_room()
            gate.room = room
            room[gate.key] = gate
        if path is Path.WAIT and gate.alarm is None:
            loop = asyncio.get_running_loop()
            gate.alarm = loop.call_later(self.aside.handover_s, self._waited_in_vain, gate)
        self._arrived[path].set()

    def _waited_in_vain(self, gate: Gate) -> None:
        gate.alarm, gate.late = None, True
        if gate.room is not None:
            self._offer(gate)

    def _take(self, path: Path, already: Sequence[Load] = ()) -> list[Load]:
        """Shut the next open gates and take what waits behind them, within the call's bounds."""
        items = sum(load.count() for load in already)
        size = sum(parcel.size_bytes for load in already for parcel in load.parcels)
        loads: list[Load] = []
        room = self._rooms[path]
        while room:
            # Every fourth is the last to have come: behind one request of very many partitions
            # the others would wait for many calls.
            last = len(loads) % 4 == 3
            gate = next(reversed(room.values()) if last else iter(room.values()))
            if self._path(gate) is not path:
                self._offer(gate)
                continue
            taken: list[Parcel] = []
            while gate.parcels:
                parcel = gate.parcels[0]
                full = items + len(parcel.ids) > self._config.call_items_max
                if (full or size + parcel.size_bytes > self._config.call_bytes_max) and items:
                    break
                items += len(parcel.ids)
                size += parcel.size_bytes
                taken.append(gate.parcels.popleft())
            if not taken:
                break
            gate.leave_room()
            gate.calm()
            gate.shut = True
            loads.append(Load(gate, taken))
        return loads

    async def _flush(self, loads: list[Load], lane: Lane, *, wait_ms: int) -> None:
        try:
            loads = await self._resolve(loads, lane)
            if not loads:
                return
            groups = [load.group(self._keys) for load in loads]
            began = time.monotonic()
            verdicts = await calls.message_push(lane.fetch, groups, wait_ms=wait_ms)
            self.durations.append(time.monotonic() - began)
        except Permanent as error:
            await self._split(loads, lane, error, wait_ms=wait_ms)
            return
        except StoreError as error:
            self.aside.failed(error)
            await self._put_aside(loads, error)
            return
        self.flushes += 1
        news = []
        for load, verdict in zip(loads, verdicts, strict=True):
            if verdict.verdict == "stored":
                assert load.row is not None
                load.gate.stale_rounds = 0
                written = load.settle(verdict)
                self.flushed_items += load.count()
                if written:
                    tenant, queue, name = load.gate.key
                    news.append((tenant, queue, name, load.row.queue_id, load.row.id, written))
                self._reopen(load)
            elif verdict.verdict == "stale":
                self._repeat(load)
            elif verdict.verdict == "full" and not verdict.divisible:
                self._finish([load], lambda one: one.fail(QUEUE_FULL))
            elif verdict.verdict == "full" and lane is not self._lane:
                await self._store_singly(load, lane, wait_ms=wait_ms)
            else:
                self._set_aside(load)
        if news:
            self._announce(news)

    async def _resolve(self, loads: list[Load], lane: Lane) -> list[Load]:
        """Give each load its ids, asking the database for those that are not known."""
        unknown: dict[UUID, list[Load]] = {}
        for load in loads:
            load.row = self._directory.partitions.get(load.gate.key)
            if load.row is None:
                unknown.setdefault(load.gate.key[0], []).append(load)
        refused: set[int] = set()
        for strangers in unknown.values():
            refused.update(map(id, await self._ensure(strangers, lane)))
        allowed, secret = [], []
        for load in loads:
            if id(load) in refused:
                continue
            if load.row is None:
                self._repeat(load)
            elif not load.row.encryption_enabled or sealing.is_sealed(load.parcels):
                allowed.append(load)
            elif self._keys.can_seal:
                allowed.append(load)
                secret += load.parcels
            else:
                # The flag may be an old one: have it looked at again next time.
                self._directory.partitions.forget(load.gate.key)
                self._finish([load], lambda one: one.fail(NO_KEY))
        if secret:
            await sealing.seal_bounded(self._keys, secret)
        return allowed

    async def _ensure(self, strangers: list[Load], lane: Lane) -> list[Load]:
        """Give the loads of one tenant their ids; those that its quota refused are done. They
        are found here and not by splitting the call, which would be at others' expense."""
        names = [(load.gate.key[1], load.gate.key[2]) for load in strangers]
        try:
            rows = await calls.partition_ensure(lane.fetch, strangers[0].gate.key[0], names)
        except Permanent as error:
            if error.sqlstate not in QUOTA_CODES:
                raise
            if len(strangers) > 1:
                return [one for load in strangers for one in await self._ensure([load], lane)]
            text = error.text.split("\n")[0]
            self._finish(strangers, lambda one: one.fail(text))
            return strangers
        for load, row in zip(strangers, rows, strict=True):
            load.row = row
            if row is not None:
                self._directory.partitions.put(load.gate.key, row)
        return []

    async def _split(
        self, loads: list[Load], lane: Lane, error: Permanent, *, wait_ms: int
    ) -> None:
        """Halve the call until only the item that cannot be stored fails."""
        loads = [load for load in loads if not load.done]
        if not loads:
            return
        if len(loads) > 1:
            middle = len(loads) // 2
            await self._flush(loads[:middle], lane, wait_ms=wait_ms)
            await self._flush(loads[middle:], lane, wait_ms=wait_ms)
            return
        [load] = loads
        if load.count() == 1 or load.row is None:
            log.warning("push refused by the database: %s", error.text)
            self._finish(loads, lambda one: one.fail(error.text))
            return
        if lane is self._lane:
            # Item by item takes a while: not at the expense of the other partitions.
            self._set_aside(load)
            return
        await self._store_singly(load, lane, wait_ms=wait_ms)

    async def _store_singly(self, load: Load, lane: Lane, *, wait_ms: int) -> None:
        """Find out which items of a load can be stored, and which not."""
        pieces = [
            Piece(parcel, position)
            for parcel in load.parcels
            for position in range(len(parcel.ids))
        ]
        try:
            await self._store_pieces(load, pieces, lane, wait_ms=wait_ms)
        except StoreError as broken:
            # In order: what comes behind the one that failed is not stored before it.
            self.aside.failed(broken)
            await self._put_pieces_aside(load, pieces, broken)
        for parcel in load.parcels:
            own = [piece.outcome for piece in pieces if piece.parcel is parcel]
            assert all(own)
            parcel.settle([one for one in own if one is not None])
        self._reopen(load)

    async def _store_pieces(
        self, load: Load, pieces: list[Piece], lane: Lane, *, wait_ms: int
    ) -> None:
        """Store single items of one gate in order, halving on permanent errors."""
        part = Load(load.gate, [parcel_of(pieces)])
        part.row = load.row
        [parcel] = part.parcels
        try:
            [verdict] = await calls.message_push(
                lane.fetch, [part.group(self._keys)], wait_ms=wait_ms or self._config.busy_ms
            )
        except Permanent as error:
            if len(pieces) == 1:
                log.warning("push refused by the database: %s", error.text)
                pieces[0].outcome = ("failed", parcel.ids[0], error.text)
                return
            middle = len(pieces) // 2
            await self._store_pieces(load, pieces[:middle], lane, wait_ms=wait_ms)
            await self._store_pieces(load, pieces[middle:], lane, wait_ms=wait_ms)
            return
        if verdict.verdict == "full" and verdict.divisible:
            middle = len(pieces) // 2
            await self._store_pieces(load, pieces[:middle], lane, wait_ms=wait_ms)
            await self._store_pieces(load, pieces[middle:], lane, wait_ms=wait_ms)
            return
        if verdict.verdict != "stored":
            part.fail(QUEUE_FULL if verdict.verdict == "full" else CHANGED_MEANWHILE)
            written = 0
        else:
            written = part.settle(verdict)
        assert parcel.outcomes is not None
        for piece, outcome in zip(pieces, parcel.outcomes, strict=True):
            piece.outcome = outcome
        if written and load.row is not None:
            tenant, queue, name = load.gate.key
            self._announce([(tenant, queue, name, load.row.queue_id, load.row.id, written)])

    async def _put_pieces_aside(
        self, load: Load, pieces: Sequence[Piece], error: StoreError
    ) -> None:
        left = [piece for piece in pieces if piece.outcome is None]
        part = Load(load.gate, [parcel_of(left)])
        await self._write_aside([part], error)
        [parcel] = part.parcels
        assert parcel.outcomes is not None
        for piece, outcome in zip(left, parcel.outcomes, strict=True):
            piece.outcome = outcome

    def _repeat(self, load: Load) -> None:
        """Ids or options are out of date: forget them; the gate tries again, from its front."""
        gate = load.gate
        self._directory.forget_partition(*gate.key)
        gate.stale_rounds += 1
        if gate.stale_rounds > STALE_ROUNDS_MAX:
            gate.stale_rounds = 0
            self._finish([load], lambda one: one.fail("the queue keeps changing: retry"))
            return
        load.done = True
        gate.parcels.extendleft(reversed(load.parcels))
        gate.shut = False
        self._offer(gate)

    def _set_aside(self, load: Load) -> None:
        """Somebody holds the partition: it keeps its gate shut and goes alone."""
        load.done = True
        alone = Load(load.gate, load.parcels)
        task = asyncio.create_task(self._flush_alone(alone), name="push busy partition")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush_alone(self, load: Load) -> None:
        lane = await self._busy_lanes.get()
        try:
            async with self._slot(0):
                await self._flush([load], lane, wait_ms=self._config.busy_ms)
        except asyncio.CancelledError:
            load.fail(OUTCOME_UNKNOWN)
            raise
        except Exception:
            log.exception("push combiner: busy partition")
            await self._put_aside([load], StoreError("internal error", outcome_unknown=True))
        finally:
            self._busy_lanes.put_nowait(lane)

    async def _put_aside(self, loads: Sequence[Load], error: StoreError | None) -> None:
        """To the spool, before their gates open again: what waits behind them follows."""
        left = [load for load in loads if not load.done]
        await self._write_aside(left, error)
        self._finish(left, lambda load: None)

    async def _write_aside(self, loads: Sequence[Load], error: StoreError | None) -> None:
        try:
            await self.aside.write(loads, error)
        except asyncio.CancelledError:
            for load in loads:
                load.fail(OUTCOME_UNKNOWN)
            raise
        except Exception:
            log.exception("push combiner: spool")
            for load in loads:
                load.fail(OUTCOME_UNKNOWN)

    def _finish(self, loads: Sequence[Load], settle: Callable[[Load], None]) -> None:
        for load in loads:
            if not load.done:
                settle(load)
                self._reopen(load)

    def _reopen(self, load: Load) -> None:
        gate = load.gate
        load.done = True
        for parcel in load.parcels:
            self.waiting_bytes -= parcel.size_bytes
        gate.shut = False
        if gate.parcels:
            self._offer(gate)
        else:
            self._gates.pop(gate.key, None)
            if not self._gates:
                self._idle.set()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
