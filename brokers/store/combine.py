"""The push combiner: one call in flight carries whatever has arrived since the last one.

Batch size is emergent: alone, a push goes at once in one round trip; under load a flush
carries many partitions and many requests. Per partition at most one flush is in flight,
what arrives meanwhile is the next one: that is its gate, and it is why messages of one
partition are stored in the order they came.

A partition whose row is held by somebody else (`busy`) keeps its gate and goes alone over
one of two more connections, so that it holds up nobody. `stale` ids are reloaded and
repeated. A permanent error splits the call until only the guilty item fails.

Imports frames, encryption, calls, sealing, directory, pool. Used by services/push.py and
runtime.py.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from uuid import UUID

from brokers import frames
from brokers.config import PushConfig
from brokers.encryption import KeyRing
from brokers.errors import NoConnection, Permanent, StatementCancelled, StoreError
from brokers.store import calls, sealing
from brokers.store.calls import PartitionRow, PushGroup, PushVerdict
from brokers.store.directory import Directory, PartitionKey
from brokers.store.pool import Lane

log = logging.getLogger(__name__)

STALE_ROUNDS_MAX = 3
BUSY_LANES = 2
OUTCOME_UNKNOWN = "outcome unknown: retry with the same transactionId"
DATABASE_AWAY = "the database is away: retry with the same transactionId"
NO_KEY = "the queue has encryptionEnabled but this broker has no encryption key"

Slot = Callable[[], AbstractAsyncContextManager[Any]]
Announce = Callable[[Sequence[tuple[UUID, str, str, int, int, int]]], None]


class Parcel:
    """What one request pushes to one partition, in order. `outcomes` fills up as it is stored.

    `sealed` are the flags of the messages, where some are encrypted already: see sealing.py.
    """

    __slots__ = ("frames", "ids", "literals", "outcomes", "sealed", "size_bytes", "waiter")

    def __init__(
        self,
        ids: list[str],
        literals: list[str],
        frames_: list[bytes],
        sealed: bytes | None = None,
    ) -> None:
        self.ids = ids
        self.literals = literals
        self.frames = frames_
        self.sealed = sealed
        self.size_bytes = sum(map(len, frames_))
        # One (status, message id, error) an item; None while it is not settled.
        self.outcomes: list[tuple[str, str, str | None]] | None = None
        self.waiter: Callable[[], None] | None = None

    def settle(self, outcomes: list[tuple[str, str, str | None]]) -> None:
        self.outcomes = outcomes
        if self.waiter is not None:
            self.waiter()


class Gate:
    """A partition's gate: parcels that wait, and whether one flush is under way."""

    __slots__ = ("key", "parcels", "shut", "stale_rounds")

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.parcels: deque[Parcel] = deque()
        self.shut = False
        self.stale_rounds = 0


class Load:
    """The parcels of one gate that go together in one call."""

    __slots__ = ("done", "gate", "parcels", "row")

    def __init__(self, gate: Gate, parcels: list[Parcel]) -> None:
        self.gate = gate
        self.parcels = parcels
        self.row: PartitionRow | None = None
        self.done = False

    def group(self, keys: KeyRing) -> PushGroup:
        """What the procedure takes. Nothing plain goes to a queue that encrypts, whatever
        was or was not done before: what is not sealed yet is sealed here."""
        assert self.row is not None
        if self.row.encryption_enabled and not sealing.is_sealed(self.parcels):
            sealing.seal(keys, self.parcels)
        if len(self.parcels) == 1:
            [parcel] = self.parcels
            all_frames, literals, ids = parcel.frames, parcel.literals, parcel.ids
        else:
            all_frames = [frame for parcel in self.parcels for frame in parcel.frames]
            literals = [literal for parcel in self.parcels for literal in parcel.literals]
            ids = [one for parcel in self.parcels for one in parcel.ids]
        joined, ends = frames.join(all_frames)
        return PushGroup(
            partition_id=self.row.id,
            queue_id=self.row.queue_id,
            version=self.row.version,
            frames=joined,
            ends=ends,
            transactions=frames.TEXT_SEPARATOR.join(literals),
            flags=sealing.flags(self.parcels),
            first_id=ids[0],
            last_id=ids[-1],
        )

    def count(self) -> int:
        return sum(len(parcel.ids) for parcel in self.parcels)

    def settle(self, verdict: PushVerdict) -> int:
        """Tell every parcel what became of it; returns how many messages were written."""
        positions, originals = verdict.duplicate_positions, verdict.duplicate_ids
        if not positions or not originals:
            for parcel in self.parcels:
                parcel.settle([("queued", one, None) for one in parcel.ids])
            return self.count()
        duplicates = dict(zip(positions, originals, strict=True))
        position = 0
        for parcel in self.parcels:
            outcomes: list[tuple[str, str, str | None]] = []
            for one in parcel.ids:
                original = duplicates.get(position)
                position += 1
                outcomes.append(
                    ("queued", one, None) if original is None else ("duplicate", original, None)
                )
            parcel.settle(outcomes)
        return position - len(positions)

    def fail(self, error: str) -> None:
        for parcel in self.parcels:
            parcel.settle([("failed", one, error) for one in parcel.ids])


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
        self._gates: dict[PartitionKey, Gate] = {}
        self._open: OrderedDict[PartitionKey, Gate] = OrderedDict()
        self._arrived = asyncio.Event()
        self._aside: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.waiting_bytes = 0
        self.flushes = 0
        self.flushed_items = 0

    def put(self, key: PartitionKey, parcel: Parcel) -> None:
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = Gate(key)
        gate.parcels.append(parcel)
        self.waiting_bytes += parcel.size_bytes
        if not gate.shut:
            self._open[key] = gate
            self._arrived.set()
        self._idle.clear()

    async def run(self) -> None:
        """Flush for ever; cancelled at the end by whoever started it."""
        while True:
            await self._arrived.wait()
            loads = self._take()
            if not loads:
                self._arrived.clear()
                continue
            try:
                async with self._slot():
                    # What arrived while we waited for the slot rides along.
                    loads += self._take(loads)
                    await self._flush(loads, self._lane, wait_ms=0)
            except asyncio.CancelledError:
                for load in loads:
                    load.fail(OUTCOME_UNKNOWN)
                raise
            except Exception:
                log.exception("push combiner: flush")
                self._finish(loads, lambda load: load.fail(OUTCOME_UNKNOWN))

    async def drained(self) -> None:
        """Wait until nothing is waiting or under way."""
        await self._idle.wait()

    def _take(self, already: Sequence[Load] = ()) -> list[Load]:
        """Shut the next open gates and take what waits behind them, within the call's bounds."""
        items = sum(load.count() for load in already)
        size = sum(parcel.size_bytes for load in already for parcel in load.parcels)
        loads: list[Load] = []
        while self._open:
            key, gate = next(iter(self._open.items()))
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
            del self._open[key]
            gate.shut = True
            loads.append(Load(gate, taken))
        return loads

    async def _flush(self, loads: list[Load], lane: Lane, *, wait_ms: int) -> None:
        try:
            loads = await self._resolve(loads, lane)
            if not loads:
                return
            groups = [load.group(self._keys) for load in loads]
            verdicts = await calls.message_push(lane.fetch, groups, wait_ms=wait_ms)
        except Permanent as error:
            await self._split(loads, lane, error, wait_ms=wait_ms)
            return
        except StoreError as error:
            self._fail(loads, error)
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
        for tenant, strangers in unknown.items():
            names = [(load.gate.key[1], load.gate.key[2]) for load in strangers]
            rows = await calls.partition_ensure(lane.fetch, tenant, names)
            for load, row in zip(strangers, rows, strict=True):
                load.row = row
                if row is not None:
                    self._directory.partitions.put(load.gate.key, row)
        allowed, secret = [], []
        for load in loads:
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

    async def _split(
        self, loads: list[Load], lane: Lane, error: Permanent, *, wait_ms: int
    ) -> None:
        """Halve the call until only the item that cannot be stored fails."""
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
        pieces = [
            Piece(parcel, position)
            for parcel in load.parcels
            for position in range(len(parcel.ids))
        ]
        await self._store_pieces(load, pieces, lane, wait_ms=wait_ms)
        for parcel in load.parcels:
            own = [piece.outcome for piece in pieces if piece.parcel is parcel]
            parcel.settle([one or ("failed", NIL, OUTCOME_UNKNOWN) for one in own])
        self._reopen(load)

    async def _store_pieces(
        self, load: Load, pieces: list["Piece"], lane: Lane, *, wait_ms: int
    ) -> None:
        """Store single items of one gate in order, halving on permanent errors."""
        parcel = Parcel(
            [piece.parcel.ids[piece.position] for piece in pieces],
            [piece.parcel.literals[piece.position] for piece in pieces],
            [piece.parcel.frames[piece.position] for piece in pieces],
            sealing.flags_of([(piece.parcel, piece.position) for piece in pieces]),
        )
        part = Load(load.gate, [parcel])
        part.row = load.row
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
        except StoreError as error:
            for piece, one in zip(pieces, parcel.ids, strict=True):
                piece.outcome = ("failed", one, failure_text(error))
            return
        if verdict.verdict != "stored":
            for piece, one in zip(pieces, parcel.ids, strict=True):
                piece.outcome = ("failed", one, "the queue was changed meanwhile: retry")
            return
        written = part.settle(verdict)
        assert parcel.outcomes is not None
        for piece, outcome in zip(pieces, parcel.outcomes, strict=True):
            piece.outcome = outcome
        if written and load.row is not None:
            tenant, queue, name = load.gate.key
            self._announce([(tenant, queue, name, load.row.queue_id, load.row.id, written)])

    def _repeat(self, load: Load) -> None:
        """Ids or options are out of date: forget them; the gate tries again, from its front."""
        gate = load.gate
        self._directory.forget_partition(*gate.key)
        gate.stale_rounds += 1
        if gate.stale_rounds > STALE_ROUNDS_MAX:
            gate.stale_rounds = 0
            self._finish([load], lambda one: one.fail("the queue keeps changing: retry"))
            return
        gate.parcels.extendleft(reversed(load.parcels))
        gate.shut = False
        self._open[gate.key] = gate
        self._arrived.set()

    def _set_aside(self, load: Load) -> None:
        """Somebody holds the partition: it keeps its gate shut and goes alone."""
        task = asyncio.create_task(self._flush_alone(load), name="push busy partition")
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    async def _flush_alone(self, load: Load) -> None:
        lane = await self._busy_lanes.get()
        try:
            async with self._slot():
                await self._flush([load], lane, wait_ms=self._config.busy_ms)
        except asyncio.CancelledError:
            load.fail(OUTCOME_UNKNOWN)
            raise
        except Exception:
            log.exception("push combiner: busy partition")
            self._finish([load], lambda one: one.fail(OUTCOME_UNKNOWN))
        finally:
            self._busy_lanes.put_nowait(lane)

    def _fail(self, loads: list[Load], error: StoreError) -> None:
        log.warning("push failed: %s", error.text)
        text = failure_text(error)
        self._finish(loads, lambda load: load.fail(text))

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
            self._open[gate.key] = gate
            self._arrived.set()
        else:
            self._gates.pop(gate.key, None)
            if not self._gates:
                self._idle.set()

    async def stop(self) -> None:
        for task in list(self._aside):
            task.cancel()
        await asyncio.gather(*self._aside, return_exceptions=True)


class Piece:
    """One item of a parcel while a call is being split."""

    __slots__ = ("outcome", "parcel", "position")

    def __init__(self, parcel: Parcel, position: int) -> None:
        self.parcel = parcel
        self.position = position
        self.outcome: tuple[str, str, str | None] | None = None


NIL = "00000000-0000-0000-0000-000000000000"


def failure_text(error: StoreError) -> str:
    """What a producer is told about an item that is not known to be stored."""
    if isinstance(error, NoConnection):
        return DATABASE_AWAY
    if isinstance(error, StatementCancelled):
        return "the statement was cancelled: retry with the same transactionId"
    return OUTCOME_UNKNOWN if error.outcome_unknown else f"not stored: {error.text}"
