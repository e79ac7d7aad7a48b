"""What can go wrong with a spool.

Imports nothing of ours. Used by everything here, and by whoever appends or replays.
"""


class SpoolError(Exception):
    """Anything that a spool raises on purpose."""


class SpoolUnusable(SpoolError):
    """The directory cannot serve as a spool; the text says why. Nothing was changed."""


class SpoolLocked(SpoolUnusable):
    """Another process writes or drains this directory. `adopted`: it is not that one's own."""

    def __init__(self, text: str, *, adopted: bool = False) -> None:
        super().__init__(text)
        self.adopted = adopted


class SpoolClosed(SpoolError):
    """The writer is closed. Nothing of the append is on the disk."""


class SpoolFull(SpoolError):
    """A limit of ours is reached: `max_bytes`, or the floor of free space. Not written."""


class SpoolWriteFailed(SpoolError):
    """The disk refused (full, no inode left, read-only, broken). Nothing stays of the append.

    The next append tries again: nothing has to be restarted once the cause is gone.
    """


class DamagedRecord(SpoolError):
    """These bytes are no record."""


class ReplayError(SpoolError):
    """A batch was not replayed, as far as the store knows."""


class ReplayTransient(ReplayError):
    """The database's state, not the bytes: they may be stored later, or even are already."""


class ReplayPermanent(ReplayError):
    """The same bytes would fail every time. Nothing of the batch was stored."""


class MarkMoved(ReplayError):
    """The mark is not where the batch begins: read the marks again and go on from there."""
