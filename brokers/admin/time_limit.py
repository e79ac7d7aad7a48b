"""A page's time: what it asks of the database beyond that is cancelled, and told as a failure.

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
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections

log = logging.getLogger(__name__)

CANCEL_S = 2.0
TOO_LONG = "the page took too long to find out"


class _Page:
    """One page that is being made, in one thread."""

    def __init__(self) -> None:
        self.over = False
        # Of that thread: another one that asks for the default connection gets its own.
        self._connection = connections[DEFAULT_DB_ALIAS]

    def end(self) -> None:
        self.over = True
        raw = self._connection.connection
        if raw is None:
            return
        try:
            raw.cancel_safe(timeout=CANCEL_S)
        except psycopg.Error as error:
            log.info("a page's statement was not cancelled: %s", error)

    def watch(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if self.over:
            raise OperationalError(TOO_LONG)
        return execute(sql, params, many, context)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    page = _Page()
    timer = threading.Timer(seconds, page.end)
    timer.daemon = True
    timer.start()
    try:
        with connection.execute_wrapper(page.watch):
            yield
    finally:
        timer.cancel()
