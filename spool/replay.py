"""The replay: what the drain asks of a store, and how it takes the answers.

A store may fail in any way. What it does not classify is transient: the records are kept,
and tried again. That is also why a store's own OSError is never taken for the disk's.

Imports records, errors. Used by drain.py, and by who is a store.
"""

import logging
from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from spool.errors import MarkMoved, ReplayPermanent, ReplayTransient
from spool.records import Record

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class ReplayStore(Protocol):
    """Where the records go. Everything but the errors named is taken for transient."""

    async def marks(self, spool_id: UUID) -> dict[str, int]:
        """How many records of which file are done."""

    async def replay(
        self, spool_id: UUID, file: str, start: int, records: Sequence[Record], *, oldest_us: int
    ) -> None:
        """Commit all of them and the mark `start + len(records)`, or nothing.

        `oldest_us`: no record that still waits in the spool was accepted before, as far as
        is known. Raises ReplayTransient, ReplayPermanent, MarkMoved.
        """

    async def pass_over(self, spool_id: UUID, file: str, start: int, count: int) -> None:
        """Move the mark from `start` past `count` records, and do nothing else."""

    async def forget(self, spool_id: UUID, files: Sequence[str]) -> None:
        """Delete the marks of files that are gone."""


class Replay:
    """One spool's side of a store. Raises ReplayTransient, and only where it says so others."""

    def __init__(self, store: ReplayStore, spool_id: UUID) -> None:
        self._store = store
        self._spool_id = spool_id

    async def marks(self) -> dict[str, int]:
        return await classified(self._store.marks(self._spool_id))

    async def replay(
        self, file: str, start: int, records: Sequence[Record], *, oldest_us: int
    ) -> None:
        """Raises ReplayPermanent and MarkMoved too."""
        call = self._store.replay(self._spool_id, file, start, records, oldest_us=oldest_us)
        await classified(call, ReplayPermanent, MarkMoved)

    async def pass_over(self, file: str, start: int, count: int) -> None:
        """Raises MarkMoved too. That a mark cannot be moved is no record's fault."""
        await classified(self._store.pass_over(self._spool_id, file, start, count), MarkMoved)

    async def forget(self, files: Sequence[str]) -> None:
        await classified(self._store.forget(self._spool_id, files))


async def classified(call: Awaitable[Answer], *known: type[Exception]) -> Answer:
    try:
        return await call
    except Exception as error:
        if isinstance(error, (ReplayTransient, *known)):
            raise
        log.warning("a failure that nobody has classified", exc_info=error)
        raise ReplayTransient(f"{type(error).__name__}: {error}") from error
