"""A stop ends every task of the broker, also one that a first cancel did not reach."""

import asyncio
import subprocess
import sys
from pathlib import Path

from brokers.flow import ending
from brokers.flow.coalesce import SingleFlight

PROJECT = Path(__file__).resolve().parents[2]
HANGS = """
import time
from queen_project.serving import go_in_any_case
go_in_any_case(0.2)
time.sleep(60)
"""


async def test_a_task_that_a_cancel_did_not_reach_is_cancelled_again(monkeypatch):
    monkeypatch.setattr(ending, "CANCEL_AGAIN_S", 0.01)
    heard = []

    async def deaf_once():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                heard.append(1)
                if len(heard) > 1:
                    raise

    task = asyncio.create_task(deaf_once())
    await asyncio.sleep(0)
    await ending.ended([task])
    assert task.cancelled() and len(heard) == 2


async def test_a_lookup_that_nobody_waits_for_any_more_ends_with_the_others():
    flights: SingleFlight[str, None] = SingleFlight()
    flying = []

    async def look() -> None:
        flying.append(asyncio.current_task())
        await asyncio.sleep(60)

    asking = asyncio.create_task(flights.run("key", look))
    for _ in range(3):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert not flying[0].done()
    await flights.stop()
    assert flying[0].cancelled()


def test_a_stop_that_hangs_says_where_and_ends_the_process():
    ended = subprocess.run(
        [sys.executable, "-c", HANGS], cwd=PROJECT, capture_output=True, text=True, timeout=30
    )
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr and "line 5" in ended.stderr
