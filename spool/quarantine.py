"""The quarantine, `failed/`: what could not be replayed, kept until a person has looked.

    <file>.damaged  the bytes of a file that were no record, one piece behind another
    <file>.poison   records that the store refuses, in the format of a spool file
    <file>.buf      a whole file that could not be read; it keeps its name and its mark

Everything is on the disk before the original goes, and doing it again after a crash
changes nothing: pieces are replaced as a whole, a poison record is added only once.

Imports segment, records, disk. Used by directory.py, drain.py.
"""

import os
import threading
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from spool import disk, segment
from spool.records import MARKER, Record, encode, encode_many

DAMAGED = ".damaged"
POISON = ".poison"


class FailedStats(NamedTuple):
    files: int = 0
    events: int = 0
    bytes: int = 0


class Seen(NamedTuple):
    """A file as it was when its events were counted."""

    bytes: int
    modified_ns: int
    events: int


class Quarantine:
    """Blocks throughout, but for `stats`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stats = FailedStats()
        self._seen: dict[str, Seen] = {}
        self._kept: tuple[str, set[bytes]] | None = None
        self._looking = threading.Lock()

    def keep_damage(self, source: Path, ranges: list[tuple[int, int]]) -> None:
        self._make()
        target = self.path / (source.stem + DAMAGED)
        if ranges == [(0, source.stat().st_size)]:
            # Nothing else is in it: moving needs no space on a disk that may be full.
            os.rename(source, target)
            disk.sync_directory(source.parent)
        else:
            disk.copy_ranges(source, target, ranges)
        disk.sync_directory(self.path)
        self._note(target)

    def keep_poison(self, name: str, records: Sequence[Record]) -> None:
        self._make()
        path = self.path / (Path(name).stem + POISON)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            kept, end = self._kept_poison(path)
            missing = [record for record in records if fingerprint(record) not in kept]
            try:
                disk.write_at(fd, encode_many(missing), end)
                os.fsync(fd)
            except OSError:
                self._kept = None
                os.ftruncate(fd, end)
                raise
            kept.update(map(fingerprint, missing))
        finally:
            os.close(fd)
        disk.sync_directory(self.path)
        self._note(path, len(kept))

    def _kept_poison(self, path: Path) -> tuple[set[bytes], int]:
        """What a poison file holds already, and where its last whole record ends."""
        reader = segment.Reader(path)
        if self._kept is not None and self._kept[0] == path.name:
            return self._kept[1], reader.size
        kept: set[bytes] = set()
        while records := reader.read(1000, disk.COPY_BYTES):
            kept.update(map(fingerprint, records))
        self._kept = (path.name, kept)
        return kept, reader.size if reader.torn is None else reader.torn

    def keep_whole(self, source: Path) -> None:
        self._make()
        os.rename(source, self.path / source.name)
        disk.sync_directory(self.path)
        disk.sync_directory(source.parent)
        self._note(self.path / source.name)

    def _make(self) -> None:
        if not self.path.is_dir():
            self.path.mkdir(mode=0o700)
            disk.sync_directory(self.path.parent)

    def names(self) -> list[str]:
        """Oldest first; none when somebody has taken all of it away."""
        suffixes = (DAMAGED, POISON, segment.FINISHED)
        try:
            return sorted(name for name in os.listdir(self.path) if name.endswith(suffixes))
        except FileNotFoundError:
            return []

    def refresh(self) -> FailedStats:
        """Look again: a person may have taken files away."""
        with self._looking:
            before, self._seen = self._seen, {}
            for name in self.names():
                try:
                    status = (self.path / name).stat()
                except FileNotFoundError:
                    continue
                known = before.get(name)
                if known is None or known[:2] != (status.st_size, status.st_mtime_ns):
                    events = count_events(self.path / name)
                    known = Seen(status.st_size, status.st_mtime_ns, events)
                self._seen[name] = known
            return self._sum_up()

    def _note(self, path: Path, events: int | None = None) -> None:
        """One file has changed; to look at all of them again would cost too much each time."""
        status = path.stat()
        known = count_events(path) if events is None else events
        with self._looking:
            self._seen[path.name] = Seen(status.st_size, status.st_mtime_ns, known)
            self._sum_up()

    def _sum_up(self) -> FailedStats:
        seen = self._seen.values()
        events, total = sum(one.events for one in seen), sum(one.bytes for one in seen)
        self.stats = FailedStats(len(seen), events, total)
        return self.stats


def fingerprint(record: Record) -> bytes:
    return blake2b(encode(record), digest_size=16).digest()


def count_events(path: Path) -> int:
    """Of damage: how many records seem to begin in it, at least one."""
    try:
        if path.suffix != DAMAGED:
            return segment.count(path).events
        events, rest = 0, b""
        with path.open("rb") as file:
            while chunk := file.read(disk.COPY_BYTES):
                events += (rest + chunk).count(MARKER)
                rest = chunk[-len(MARKER) + 1 :]
        return max(events, 1)
    except OSError:
        return 0
