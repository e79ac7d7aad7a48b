"""Ending tasks: whoever started one stops it, and is sure that it has ended.

Imports nothing of ours. Used by runtime.py, floor.py, claims.py and coalesce.py.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger(__name__)

CANCEL_AGAIN_S = 4.0


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel them all, and once more who is still there after a while: a cancel that comes in
    the moment of an answer can be lost on its way through a library. (The pool of psycopg does
    so: whom it has just given a connection it does not tell, and neither does `asyncio.wait_for`
    before 3.12.)"""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
        for task in left:
            log.warning("%s is asked once more to end", task.get_name())
