"""What the push combiner carries: parcels of requests, gates of partitions, loads of calls.

A parcel is what one request pushes to one partition. Parcels wait at the partition's gate;
those that go together in one call are a load.

Imports frames, encryption, errors, calls, sealing, directory. Used by combine.py and
services/{push,spool}.py.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from enum import Enum

from brokers import frames
from brokers.encryption import KeyRing
from brokers.errors import NoConnection, StatementCancelled, StoreError
from brokers.store import sealing
from brokers.store.calls import PartitionRow, PushGroup, PushVerdict
from brokers.store.directory import PartitionKey

OUTCOME_UNKNOWN = "outcome unknown: retry with the same transactionId"
DATABASE_AWAY = "the database is away: retry with the same transactionId"
NO_KEY = "the queue has encryptionEnabled but this broker has no encryption key"

# (status, message id, error)
Outcome = tuple[str, str, str | None]


class Path(Enum):
    """Where the next flush of a gate goes."""

    STORE = "store"
    SPOOL = "spool"
    WAIT = "wait"  # the spool is about to hand the partition back


class Parcel:
    """What one request pushes to one partition, in order. `outcomes` fills up as it is stored.

    `stored`: all of it was, and nothing of it had been before. `sealed` are the flags of the
    messages, where some are encrypted already: see sealing.py.
    """

    __slots__ = (
        "_outcomes",
        "frames",
        "ids",
        "literals",
        "sealed",
        "size_bytes",
        "stored",
        "waiter",
    )

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
        self.stored = False
        self._outcomes: list[Outcome] | None = None
        self.waiter: Callable[[], None] | None = None

    @property
    def outcomes(self) -> list[Outcome] | None:
        """One an item; None while it is not settled."""
        if self.stored and self._outcomes is None:
            self._outcomes = [("queued", one, None) for one in self.ids]
        return self._outcomes

    def settle(self, outcomes: list[Outcome]) -> None:
        self._outcomes = outcomes
        if self.waiter is not None:
            self.waiter()

    def settle_stored(self) -> None:
        """The usual end, which most are told as a whole: no outcome is made for each item."""
        self.stored = True
        if self.waiter is not None:
            self.waiter()


class Gate:
    """A partition's gate: parcels that wait, and whether one flush is under way.

    While it is open and has parcels it stands in one `room`, by where its next flush goes.
    `late`: it waited for the spool to hand over, in vain; its next flush goes there.
    """

    __slots__ = ("alarm", "key", "late", "parcels", "room", "shut", "stale_rounds")

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.parcels: deque[Parcel] = deque()
        self.shut = False
        self.stale_rounds = 0
        self.room: OrderedDict[PartitionKey, Gate] | None = None
        self.late = False
        self.alarm: asyncio.TimerHandle | None = None

    def leave_room(self) -> None:
        if self.room is not None:
            del self.room[self.key]
            self.room = None

    def calm(self) -> None:
        self.late = False
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None


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
                parcel.settle_stored()
            return self.count()
        duplicates = dict(zip(positions, originals, strict=True))
        position = 0
        for parcel in self.parcels:
            outcomes: list[Outcome] = []
            for one in parcel.ids:
                original = duplicates.get(position)
                position += 1
                outcomes.append(
                    ("queued", one, None) if original is None else ("duplicate", original, None)
                )
            parcel.settle(outcomes)
        return position - len(positions)

    def buffered(self) -> None:
        """All of it lies in the spool."""
        for parcel in self.parcels:
            parcel.settle([("buffered", one, None) for one in parcel.ids])

    def fail(self, error: str) -> None:
        for parcel in self.parcels:
            parcel.settle([("failed", one, error) for one in parcel.ids])


class Piece:
    """One item of a parcel while a call is being split."""

    __slots__ = ("outcome", "parcel", "position")

    def __init__(self, parcel: Parcel, position: int) -> None:
        self.parcel = parcel
        self.position = position
        self.outcome: Outcome | None = None


def parcel_of(pieces: list[Piece]) -> Parcel:
    """The pieces as a parcel of their own, in their order."""
    return Parcel(
        [piece.parcel.ids[piece.position] for piece in pieces],
        [piece.parcel.literals[piece.position] for piece in pieces],
        [piece.parcel.frames[piece.position] for piece in pieces],
        sealing.flags_of([(piece.parcel, piece.position) for piece in pieces]),
    )


def failure_text(error: StoreError) -> str:
    """What a producer is told about an item that is not known to be stored."""
    if isinstance(error, NoConnection):
        return DATABASE_AWAY
    if isinstance(error, StatementCancelled):
        return "the statement was cancelled: retry with the same transactionId"
    return OUTCOME_UNKNOWN if error.outcome_unknown else f"not stored: {error.text}"
