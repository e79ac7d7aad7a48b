"""Segment files: their names, and reading one whatever has happened to it.

A file is records one behind another. Reading never raises on what it finds (only on what
the disk refuses), never hangs and holds about one record in memory: what is no intact
record is skipped up to the next marker whose record checks out, and its place is kept.

A body that holds the marker's first byte is damaged, so no byte is looked at by more than
a few candidates: damage costs time in proportion to the file, whatever lengths it claims.

Imports records, errors. Used by directory, quarantine, drain.
"""

import os
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from spool.errors import DamagedRecord
from spool.records import (
    BODY_BYTES_MAX,
    HEAD,
    HEAD_BYTES,
    MARKER,
    SEPARATOR,
    Record,
    Whereabouts,
    decode,
)

UNFINISHED = ".tmp"
FINISHED = ".buf"
NAME = re.compile(r"(\d{13})-(\d{8})(\.tmp|\.buf)", re.ASCII)
SEQUENCE_END = 10**8
CHUNK_BYTES = 256 * 1024


class Position(NamedTuple):
    """Where a file stands among the others: it sorts as its name does."""

    ms: int
    sequence: int

    @property
    def stem(self) -> str:
        return f"{self.ms:013d}-{self.sequence:08d}"

    def after(self) -> "Position":
        if self.sequence + 1 < SEQUENCE_END:
            return Position(self.ms, self.sequence + 1)
        return Position(self.ms + 1, 0)


def position_of(name: str) -> Position | None:
    """None when the name is not one of ours."""
    match = NAME.fullmatch(name)
    return Position(int(match[1]), int(match[2])) if match else None


class Survey(NamedTuple):
    """What a file holds."""

    events: int
    oldest_us: int | None
    partitions: Counter[Whereabouts]


class Reader:
    """Reads one file from its start. Blocks: belongs into a thread, one at a time.

    `index`    of the next intact record, that is, how many were read
    `damaged`  pieces that were no record, so far
    `ranges`   where they lie: (start, end), neighbours joined
    `torn`     once the end is reached: where a tail begins that is no more than a record
               cut short, or zeros. Not among `ranges`.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.size = os.fstat(self._fd).st_size
        self.index = 0
        self.damaged = 0
        self.ranges: list[tuple[int, int]] = []
        self.torn: int | None = None
        self._buffer = b""
        self._base = 0  # where the buffer begins in the file
        self._at = 0  # the next record, from the buffer's start

    def __del__(self) -> None:
        # Nobody closes it by hand: a cancelled drain must not close the file under the
        # thread that still reads it, where its number might already be another file's.
        if fd := getattr(self, "_fd", None):
            os.close(fd)

    @property
    def offset(self) -> int:
        return self._base + self._at

    def read(self, records_max: int, bytes_max: int) -> list[Record]:
        """The next intact records, at least one; none at the end. Raises OSError."""
        found: list[Record] = []
        room = bytes_max
        while len(found) < records_max and room > 0:
            start = self.offset
            if (record := self._next()) is None:
                break
            if found and self.offset - start > room:
                self._step_back(start)
                break
            room -= self.offset - start
            found.append(record)
        self.index += len(found)
        return found

    def survey(self) -> Survey:
        """Everything that is left, counted."""
        partitions: Counter[Whereabouts] = Counter()
        oldest_us = None
        before = self.index
        while records := self.read(1000, CHUNK_BYTES):
            partitions.update(record.whereabouts for record in records)
            oldest = min(record.accepted_us for record in records)
            oldest_us = oldest if oldest_us is None else min(oldest, oldest_us)
        return Survey(self.index - before, oldest_us, partitions)

    def _step_back(self, offset: int) -> None:
        """To the record just read, which must still lie in the buffer."""
        self._at = offset - self._base
        if self._at < 0:
            self._buffer, self._base, self._at = b"", offset, 0

    def _next(self) -> Record | None:
        while True:
            if self._at + HEAD_BYTES > len(self._buffer):
                self._fill(HEAD_BYTES)
                if self._at == len(self._buffer):
                    return None
            if (body := self._body()) is not None:
                try:
                    record = decode(body)
                except DamagedRecord:
                    pass
                else:
                    self._at += HEAD_BYTES + len(body)
                    return record
            if not self._skip_damage():
                return None

    def _body(self) -> bytes | None:
        """The body of the record that begins here, if it is whole."""
        at = self._at
        if at + HEAD_BYTES > len(self._buffer):
            return None
        marker, length, checksum = HEAD.unpack_from(self._buffer, at)
        if marker != MARKER or length > BODY_BYTES_MAX:
            return None
        if self._base + at + HEAD_BYTES + length > self.size:
            return None
        scanned = HEAD_BYTES
        # A length that lies is found out by the next record's marker, before all that it
        # claims has been read.
        while True:
            have = min(len(self._buffer) - self._at, HEAD_BYTES + length)
            if self._buffer.find(SEPARATOR, self._at + scanned, self._at + have) >= 0:
                return None
            if have == HEAD_BYTES + length:
                break
            scanned = have
            if not self._fill(min(HEAD_BYTES + length, 2 * have + CHUNK_BYTES)):
                return None
        at = self._at
        body = self._buffer[at + HEAD_BYTES : at + have]
        if crc32(body, crc32(self._buffer[at + 4 : at + 8])) != checksum:
            return None
        return body

    def _skip_damage(self) -> bool:
        """Go to the next marker; False when there is none, and the file ends here."""
        start = self.offset
        cut_short = self._is_cut_short()
        zeros = True
        self._at += 1
        while (found := self._buffer.find(MARKER, self._at)) < 0:
            zeros = zeros and not self._buffer[self._at - 1 :].strip(b"\0")
            # A marker may lie across the buffer's end.
            self._at = max(self._at, len(self._buffer) - len(MARKER) + 1)
            if not self._fill(CHUNK_BYTES):
                self._at = len(self._buffer)
                if cut_short or zeros:
                    self.torn = start
                else:
                    self._damage(start)
                return False
        self._at = found
        self._damage(start)
        return True

    def _is_cut_short(self) -> bool:
        """Whether what lies here could be the beginning of a record that the end cuts off.

        That no marker follows, only the search that comes next can tell.
        """
        head = self._buffer[self._at : self._at + HEAD_BYTES]
        if len(head) < HEAD_BYTES:
            return head[:4] == MARKER[: len(head)]
        marker, length, _ = HEAD.unpack(head)
        over_the_end = self.offset + HEAD_BYTES + length > self.size
        return marker == MARKER and length <= BODY_BYTES_MAX and over_the_end

    def _damage(self, start: int) -> None:
        self.damaged += 1
        if self.ranges and self.ranges[-1][1] == start:
            start = self.ranges.pop()[0]
        self.ranges.append((start, self.offset))

    def _fill(self, count: int) -> bool:
        """Have `count` bytes from here on, or all there are; False when none came."""
        missing = self._at + count - len(self._buffer)
        if missing <= 0:
            return True
        end = self._base + len(self._buffer)
        more = os.pread(self._fd, min(max(missing, CHUNK_BYTES), self.size - end), end)
        if not more and end < self.size:
            self.size = end  # somebody has cut it since: that is its end now
        self._buffer = self._buffer[self._at :] + more
        self._base += self._at
        self._at = 0
        return bool(more)


def survey(path: Path) -> Survey:
    return Reader(path).survey()


def count(path: Path) -> Survey:
    """A quick survey: hops from head to head, checks nothing, names no partition."""
    reader = Reader(path)
    first = reader.read(1, 1)
    oldest_us = first[0].accepted_us if first else None
    events, at = len(first), reader.offset
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunk, base = b"", at
        while at + HEAD_BYTES <= reader.size:
            if not 0 <= at - base <= len(chunk) - HEAD_BYTES:
                chunk, base = os.pread(fd, CHUNK_BYTES, at), at
                if len(chunk) < HEAD_BYTES:
                    break
            marker, length, _ = HEAD.unpack_from(chunk, at - base)
            if marker != MARKER:
                break
            events += 1
            at += HEAD_BYTES + length
    finally:
        os.close(fd)
    return Survey(events, oldest_us, Counter())
