"""Skeleton: see the commits that follow."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple, Self
from uuid import UUID

from spool.records import Whereabouts


class DirectoryStats(NamedTuple):
    files: int  # finished files that wait for the drain
    bytes: int  # in them
    total_bytes: int  # and with the unfinished file
    events: int  # records not yet replayed, the unfinished file's too
    oldest_us: int | None  # accept time of the oldest of them
    failed_files: int
    failed_events: int
    failed_bytes: int
    free_bytes: int


class SpoolDirectory:
    path: Path
    spool_id: UUID

    @classmethod
    def open(cls, path: Path, *, fsync: bool = True) -> Self:
        """Blocks (up to about a second): call it in a thread once the loop runs."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def finished(self) -> list[str]:
        """Names of the finished files (`*.buf`), oldest first."""
        raise NotImplementedError

    def stats(self) -> DirectoryStats:
        """From memory."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Look at the disk again: failed/, free space. In a thread; the drain does it once a second."""
        raise NotImplementedError

    def survey(self, name: str) -> Counter[Whereabouts]:
        """How many records of which partition a finished file holds. In a thread."""
        raise NotImplementedError

    def requeue_failed(self) -> tuple[int, int]:
        """Back from failed/ into the spool: (files, records)."""
        raise NotImplementedError
