"""Admission: who may start a write transaction now.

Whoever writes takes a slot of its kind first and a connection second, always in that
order. A slot is a context manager and cannot leak. There is no limit yet: the arbiter
that shares a budget between the kinds comes behind this interface.

Imports nothing of ours. Used by store/combine.py, services/ and runtime.py.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

Kind = Literal["push", "pop", "ack", "maint"]
KINDS: tuple[Kind, ...] = ("push", "pop", "ack", "maint")


class Admission:
    def __init__(self) -> None:
        self.in_flight: dict[Kind, int] = dict.fromkeys(KINDS, 0)

    @asynccontextmanager
    async def slot(self, kind: Kind) -> AsyncIterator[None]:
        self.in_flight[kind] += 1
        try:
            yield
        finally:
            self.in_flight[kind] -= 1
