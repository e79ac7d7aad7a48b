"""A stop ends every task of the broker, also one that a first cancel did not reach."""

import asyncio

from brokers import runtime


async def test_a_task_that_a_cancel_did_not_reach_is_cancelled_again(monkeypatch):
    monkeypatch.setattr(runtime, "CANCEL_AGAIN_S", 0.01)
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
    await runtime._ended([task])
    assert task.cancelled() and len(heard) == 2
