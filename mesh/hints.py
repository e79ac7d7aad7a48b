"""Hints: what one broker tells the others, as values.

A hint says "look" or "forget", never "here is a message": it carries names and ids, and
neither a message nor an offset, an ack, a lease or a transaction id. Hints of one key are
merged into one while they wait, so a burst becomes a line; a list that grows too long is
left out, and `whole` says "look at all of it".

A queue is told by its id, which no two tenants share, or by its tenant and name. Fields are
only ever added, with a default: an older peer does not see them.

Imports nothing of ours. Used by everything in mesh/, and by whoever offers or applies hints.
"""

from collections.abc import Hashable
from typing import ClassVar, TypeVar

import msgspec

PARTITIONS_MAX = 1024

H = TypeVar("H", bound="Hint")


class Hint(msgspec.Struct, omit_defaults=True):
    """What every hint can do. Two of one key and kind may be merged, in the order they came."""

    kind: ClassVar[str] = ""

    @property
    def key(self) -> Hashable:
        """What it is about."""
        raise NotImplementedError

    def copy(self: H) -> H:
        """One that may be merged into: a hint that was offered belongs to nobody."""
        raise NotImplementedError

    def merge(self: H, later: H) -> None:
        """Take in a later one of the same key."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """How many partitions it lists."""
        return 0

    @property
    def too_long(self) -> bool:
        """Whether its list is to be left out."""
        return False

    def shorten(self) -> None:
        """Leave its list out, where it has one."""


class Pushed(Hint, omit_defaults=True):
    """Messages were stored in these partitions of a queue: id -> name."""

    kind: ClassVar[str] = "pushed"

    tenant: str
    queue: str
    queue_id: int
    partitions: dict[int, str] = {}
    whole: bool = False

    @property
    def key(self) -> Hashable:
        return (self.tenant, self.queue_id)

    def copy(self) -> "Pushed":
        return Pushed(self.tenant, self.queue, self.queue_id, dict(self.partitions), self.whole)

    def merge(self, later: "Pushed") -> None:
        self.partitions.update(later.partitions)
        self.whole = self.whole or later.whole

    @property
    def size(self) -> int:
        return len(self.partitions)

    @property
    def too_long(self) -> bool:
        return self.whole or len(self.partitions) > PARTITIONS_MAX

    def shorten(self) -> None:
        self.partitions.clear()
        self.whole = True


class Ready(Hint, omit_defaults=True):
    """These partitions may have work again for a group (a lease ended), or for every group.

    `whole`: the group's cursors were moved back (seek, group delete); look at all of them.
    """

    kind: ClassVar[str] = "ready"

    queue_id: int
    group: str | None = None
    partition_ids: set[int] = set()
    whole: bool = False

    @property
    def key(self) -> Hashable:
        return (self.queue_id, self.group)

    def copy(self) -> "Ready":
        return Ready(self.queue_id, self.group, set(self.partition_ids), self.whole)

    def merge(self, later: "Ready") -> None:
        self.partition_ids.update(later.partition_ids)
        self.whole = self.whole or later.whole

    @property
    def size(self) -> int:
        return len(self.partition_ids)

    @property
    def too_long(self) -> bool:
        return self.whole or len(self.partition_ids) > PARTITIONS_MAX

    def shorten(self) -> None:
        self.partition_ids.clear()
        self.whole = True


class Freed(Ready, omit_defaults=True):
    """A lease on these partitions ended, and left nothing: whoever waits for that may look."""

    kind: ClassVar[str] = "freed"

    def copy(self) -> "Freed":
        return Freed(self.queue_id, self.group, set(self.partition_ids), self.whole)


class QueueChanged(Hint, omit_defaults=True):
    """A queue was configured or deleted: what is cached of it is old. `queue_id` 0: not known."""

    kind: ClassVar[str] = "queue changed"

    tenant: str
    queue: str
    deleted: bool = False
    queue_id: int = 0

    @property
    def key(self) -> Hashable:
        return (self.tenant, self.queue)

    def copy(self) -> "QueueChanged":
        return QueueChanged(self.tenant, self.queue, self.deleted, self.queue_id)

    def merge(self, later: "QueueChanged") -> None:
        self.deleted = later.deleted
        self.queue_id = later.queue_id or self.queue_id


class Switched(Hint, omit_defaults=True):
    """An operator's switch (`maintenance`, `popMaintenance`, ...) was thrown, and is stored."""

    kind: ClassVar[str] = "switched"

    name: str
    on: bool = False

    @property
    def key(self) -> Hashable:
        return self.name

    def copy(self) -> "Switched":
        return Switched(self.name, self.on)

    def merge(self, later: "Switched") -> None:
        self.on = later.on


class Written(Hint, omit_defaults=True):
    """Something of a tenant's was changed: what was read of it lately is old. Without a tenant it
    is the whole cell's. With a topic (`traces`, `kv`) nothing else was changed."""

    kind: ClassVar[str] = "written"

    tenant: str
    topic: str = ""

    @property
    def key(self) -> Hashable:
        return (self.tenant, self.topic)

    def copy(self) -> "Written":
        return self

    def merge(self, later: "Written") -> None:
        pass


class KeysChanged(Hint, omit_defaults=True):
    """An API key was made, changed or revoked: whoever has copies compares them now."""

    kind: ClassVar[str] = "keys changed"

    key_id: str

    @property
    def key(self) -> Hashable:
        return self.key_id

    def copy(self) -> "KeysChanged":
        return self

    def merge(self, later: "KeysChanged") -> None:
        pass


class Look(Hint, omit_defaults=True):
    """Somebody outside knows that a queue has news (POST /internal/api/notify)."""

    kind: ClassVar[str] = "look"

    tenant: str
    queue: str

    @property
    def key(self) -> Hashable:
        return (self.tenant, self.queue)

    def copy(self) -> "Look":
        return self

    def merge(self, later: "Look") -> None:
        pass


class Told(Hint, omit_defaults=True):
    """What a node tells of itself, as JSON: to a worker, and to whoever watches."""

    kind: ClassVar[str] = "told"

    document: bytes = b"{}"

    @property
    def key(self) -> Hashable:
        return None

    def copy(self) -> "Told":
        return Told(self.document)

    def merge(self, later: "Told") -> None:
        self.document = later.document


class Passed(Hint, omit_defaults=True):
    """To whoever watches: a hint that passed. `origin` offered it, or brought it."""

    kind: ClassVar[str] = "passed"

    origin: str
    marked: bool = False
    type: int = 0
    body: bytes = b""
    number: int = 0

    @property
    def key(self) -> Hashable:
        return self.number

    def copy(self) -> "Passed":
        return self

    def merge(self, later: "Passed") -> None:
        pass


TYPES: dict[int, type[Hint]] = {
    16: Pushed,
    17: Ready,
    18: Freed,
    19: QueueChanged,
    20: Switched,
    21: Look,
    22: KeysChanged,
    23: Written,
    32: Told,
    33: Passed,
}
# Those that are old news a few seconds later, when the floor has read the database.
SHORT_LIVED = (Pushed, Ready, Look, KeysChanged, Written)

_numbers = {kind: number for number, kind in TYPES.items()}
_decoders = {number: msgspec.msgpack.Decoder(kind) for number, kind in TYPES.items()}
_encoder = msgspec.msgpack.Encoder()


def encode(hint: Hint) -> tuple[int, bytes]:
    """Type and body of the frame that carries it."""
    return _numbers[type(hint)], _encoder.encode(hint)


def decode(number: int, body: bytes) -> Hint | None:
    """The hint of a frame; None for a type that we do not know, or cannot read."""
    decoder = _decoders.get(number)
    if decoder is None:
        return None
    try:
        hint: Hint = decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if hint.too_long:
        hint.shorten()
    return hint
