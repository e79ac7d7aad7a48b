"""Message ids: UUIDv7 that rise along everything one process mints.

Ids fix the order of messages stored in one millisecond, so two ids of this process never
compare against the order in which they were asked for, even when the clock steps back.

Imports nothing of ours. Used by services/ and runtime.py.
"""

import time
from random import Random

VERSION = 7 << 12
VARIANT = 0b10 << 62
LOW_MASK = (1 << 61) - 1
TAIL_BITS = 48  # of the last group
TAIL = (1 << TAIL_BITS) - 1


class Minter:
    """Mints rising UUIDv7 texts. Not for several threads."""

    def __init__(self) -> None:
        # Ids need to differ, not to be secret: a generator seeded by the system once saves
        # two system calls a request.
        self._randbits = Random().getrandbits
        self._high = 0
        self._low = 0

    def mint(self) -> str:
        return self.mint_many(1)[0]

    def mint_many(self, count: int) -> list[str]:
        """`count` ids in rising order."""
        ms = time.time_ns() // 1_000_000
        if ms > self._high >> 16:
            self._high = ms << 16 | VERSION | self._randbits(12)
            self._low = self._randbits(60)
        elif self._low + count > LOW_MASK:
            self._high = ((self._high >> 16) + 1) << 16 | VERSION
            self._low = self._randbits(60)
        first = self._low + 1
        self._low += count
        high = f"{self._high:016x}"
        head = f"{high[:8]}-{high[8:12]}-{high[12:]}-"
        top, last = VARIANT | first, VARIANT | self._low
        if top >> TAIL_BITS == last >> TAIL_BITS:
            head += f"{top >> TAIL_BITS:04x}-"
            return [f"{head}{low:012x}" for low in range(top & TAIL, (last & TAIL) + 1)]
        lows = (f"{low:016x}" for low in range(top, last + 1))
        return [f"{head}{low[:4]}-{low[4:]}" for low in lows]
