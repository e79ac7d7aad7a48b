"""Skeleton: see the commits that follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from spool.directory import SpoolDirectory
from spool.records import Record
from spool.writer import SpoolWriter


class ReplayStore(Protocol):
    async def marks(self, spool_id: UUID) -> dict[str, int]: ...

    async def replay(
        self, spool_id: UUID, file: str, start: int, records: Sequence[Record], *, oldest_us: int
    ) -> None: ...

    async def pass_over(self, spool_id: UUID, file: str, start: int, count: int) -> None: ...

    async def forget(self, spool_id: UUID, files: Sequence[str]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainConfig:
    flush_ms: int = 100
    max_batch: int = 100
    batch_bytes_max: int = 8 * 1024 * 1024
    delete_unmovable: bool = False
    cooldown_s: float = 5.0
    skip_s: float = 60.0


@dataclass(slots=True)
class DrainCycle:
    files: int = 0
    events: int = 0
    poison: int = 0
    damaged: int = 0
    error: str | None = None


class Drain:
    healthy: bool
    rate: float  # records a second while it drains

    def __init__(
        self,
        directory: SpoolDirectory,
        *,
        writer: SpoolWriter | None,
        store: ReplayStore,
        config: DrainConfig,
        settled: Callable[[Sequence[Record]], None],
        paused: Callable[[], bool] = lambda: False,
        moved: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`moved(name)`: a whole file left for failed/ unread, its records are not settled."""
        raise NotImplementedError

    async def cycle(self) -> DrainCycle:
        raise NotImplementedError

    async def run(self) -> None:
        raise NotImplementedError

    def poke(self) -> None:
        raise NotImplementedError
