"""How long a page's statement may take: beyond that it is cancelled, and told as a failure.

The message plane's connections have limits of their own; Django's has none. The limit is kept
on this side, by a cancel, because a proxy that pools transactions keeps no setting of a session.

Imports Django only. Used by gate.py.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection

log = logging.getLogger(__name__)

CANCEL_S = 2.0


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """For all statements of this thread meanwhile, each by itself."""

    def watched(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        timer = threading.Timer(seconds, _cancel, [context["connection"].connection])
        timer.daemon = True
        timer.start()
        try:
            return execute(sql, params, many, context)
        finally:
            timer.cancel()

    with connection.execute_wrapper(watched):
        yield


def _cancel(running: psycopg.Connection[Any]) -> None:
    try:
        running.cancel_safe(timeout=CANCEL_S)
    except psycopg.Error as error:
        log.info("a page's statement was not cancelled: %s", error)
