"""Skeleton: see the commits that follow."""

from collections.abc import Sequence

from spool.directory import SpoolDirectory
from spool.records import Record


class SpoolWriter:
    records: int
    bytes: int
    fsyncs: int
    write_failures: int  # appends that failed
    records_failed: int
    current_events: int

    def __init__(
        self,
        directory: SpoolDirectory,
        *,
        fsync: bool = True,
        events_per_file: int = 10_000,
        file_bytes_max: int = 64 * 1024 * 1024,
        max_bytes: int = 0,
        min_free_bytes: int = 0,
    ) -> None:
        raise NotImplementedError

    async def append(self, records: Sequence[Record]) -> None:
        raise NotImplementedError

    async def finalise(self) -> str | None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
