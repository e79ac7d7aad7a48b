"""Workers ask each other over sockets that are found by a worker's number, whoever has it now."""

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from brokers.flow.siblings import Siblings
from tests.mesh_parts import until


def siblings(run_dir: Path, worker: int) -> Siblings:
    server = SimpleNamespace(worker=worker, workers=2)
    broker: Any = SimpleNamespace(config=SimpleNamespace(server=server), spool=None, ready=True)
    return Siblings(broker, run_dir)


async def test_a_worker_that_stops_late_leaves_its_successor_where_the_others_find_it(
    tmp_path: Path,
):
    place = tmp_path / "worker-1"
    late = asyncio.create_task(siblings(tmp_path, 1).run())
    await until(place.exists)
    first = place.stat().st_ino
    successor = asyncio.create_task(siblings(tmp_path, 1).run())
    await until(lambda: place.exists() and place.stat().st_ino != first)
    try:
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        reports, missing = await siblings(tmp_path, 0).ask()
        assert (len(reports), missing) == (2, [])
    finally:
        successor.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await successor
