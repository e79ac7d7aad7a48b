"""Connections: a pool for calls that come singly, and lanes for the combiners.

A lane is one connection with one call in flight. Every call has a time limit; a call that
passes it is cancelled on the server and its connection thrown away. Connections are in
autocommit: a procedure call is a transaction of its own, and nothing is ever idle in one.

A server that is told to stop waiting for its synchronous standby answers success with
warning 01000: such a call's outcome is unknown, whatever it returned.

Calls need READ COMMITTED, whatever a role or database has as its default. A connection
says so once for its session. Behind a transaction-pooling proxy a session belongs to
nobody: what is set there is lost to us and found by others, so there each call is a
transaction that says so itself, in the same round trip.

Imports config, errors, failures. Used by calls.py, combine.py and runtime.py.
"""

import asyncio
import contextlib
import logging
import os
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.errors import Diagnostic
from psycopg.pq import Format, TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from brokers.config import PostgresConfig
from brokers.errors import NoConnection, StoreError
from brokers.store.failures import store_error

log = logging.getLogger(__name__)
RECONNECT_MIN_S = 0.05
RECONNECT_MAX_S = 1.0
# Of a connection: more than a lane has statements.
CURSORS_MAX = 32
CANCEL_S = 2.0
CANCELLED_S = 0.5
AWAY_WAIT_S = 1.0
SESSION_READ_COMMITTED = "SET default_transaction_isolation TO 'read committed'"
BEGIN_READ_COMMITTED = "BEGIN ISOLATION LEVEL READ COMMITTED"


class Cursor(AsyncCursor):
    """A cursor that is asked one statement again and again: psycopg then keeps in mind how its
    parameters are sent and its rows are read, which is half of what a call costs in Python.
    """

    def let_go(self) -> None:
        """The rows were fetched: they and the parameters may be large, and the next call far."""
        self._reset()
        self._tx.set_pgresult(None)


class Watched:
    """The present call of a connection: whether its time is up, and whether the server warned,
    during it, that it did not wait for a standby. `keeps_session`: no proxy lends it to others.
    """

    __slots__ = (
        "_connection",
        "_cursors",
        "_ending",
        "expired",
        "keeps_session",
        "running",
        "warned",
    )

    def __init__(self, connection: AsyncConnection, *, keeps_session: bool) -> None:
        self._connection = connection
        self._cursors: dict[str, Cursor] = {}
        self._ending: asyncio.Task[None] | None = None
        self.keeps_session = keeps_session
        self.running = False
        self.expired = False
        self.warned = False
        connection.add_notice_handler(self._notice)

    def _notice(self, diagnostic: Diagnostic) -> None:
        if diagnostic.sqlstate == "01000" and "wait" in (diagnostic.message_primary or ""):
            self.warned = True

    def cursor(self, statement: str) -> Cursor:
        """That of the statement; after an error it is nobody's any more."""
        cursor = self._cursors.get(statement)
        if cursor is None:
            cursor = Cursor(self._connection)
            cursor.format = Format.BINARY
            if self.keeps_session:
                if len(self._cursors) >= CURSORS_MAX:
                    self._cursors.clear()
                self._cursors[statement] = cursor
        return cursor

    def forget_cursor(self, statement: str) -> None:
        self._cursors.pop(statement, None)

    def begin(self) -> None:
        self.running, self.expired, self.warned = True, False, False

    def expire(self) -> None:
        """Time is up: ask the server to stop the statement, and do not wait for long."""
        self._ending = asyncio.create_task(self._end(), name="end a statement")

    async def _end(self) -> None:
        self.expired = True
        try:
            await self._connection.cancel_safe(timeout=CANCEL_S)
        except psycopg.Error as error:
            log.info("cancel not delivered: %s", error)
        await asyncio.sleep(CANCELLED_S)
        self.cut()

    def cut(self) -> None:
        """End the call now: its socket has no other end any more, so psycopg sees it closed.

        Not a cancellation of the task: psycopg would ask a server for ten seconds that does
        not answer.
        """
        if not self.running or self._connection.closed:
            return
        self.expired = True
        with (
            contextlib.suppress(OSError),
            socket.socket(fileno=os.dup(self._connection.fileno())) as ours,
        ):
            ours.shutdown(socket.SHUT_RDWR)


async def _run(
    connection: AsyncConnection, watched: Watched, statement: str, parameters: Any, timeout_s: float
) -> list[Any]:
    """One statement; on any doubt the connection is closed, so that nobody reuses it."""
    watched.begin()
    limit = asyncio.get_running_loop().call_later(timeout_s, watched.expire)
    try:
        cursor = watched.cursor(statement)
        if watched.keeps_session:
            await cursor.execute(statement, parameters)
        else:
            await _execute_alone(connection, cursor, statement, parameters)
        # Not `description`: it describes every column anew, at each call.
        answered = cursor.pgresult is not None and cursor.pgresult.nfields > 0
        rows = await cursor.fetchall() if answered else []
        cursor.let_go()
    except asyncio.CancelledError:
        watched.forget_cursor(statement)
        await _cancel(connection)
        raise
    except psycopg.Error as error:
        watched.forget_cursor(statement)
        if watched.expired:
            await connection.close()
            text = "the statement ran into its time limit"
            raise StoreError(text, outcome_unknown=True) from None
        raise store_error(error, sent=True) from error
    finally:
        limit.cancel()
        watched.running = False
    if watched.expired:
        # It answered at the last moment; the cancel may yet meet the next statement.
        await connection.close()
    if watched.warned:
        raise StoreError("committed here, but not known to be on the standby", outcome_unknown=True)
    return rows


async def _execute_alone(
    connection: AsyncConnection, cursor: AsyncCursor, statement: str, parameters: Any
) -> None:
    """The statement as a transaction that needs nothing of its session and leaves nothing there."""
    try:
        async with connection.pipeline():
            await connection.execute(BEGIN_READ_COMMITTED)
            await cursor.execute(statement, parameters)
            await connection.execute("COMMIT")
    except psycopg.Error:
        # The proxy keeps a failed transaction's server for us until it is over.
        if connection.info.transaction_status == TransactionStatus.INERROR:
            await connection.rollback()
        raise


async def _prepare(connection: AsyncConnection, *, keeps_session: bool) -> Watched:
    """What a new connection needs before its first call."""
    connection.prepare_threshold = 1 if keeps_session else None
    if keeps_session:
        await connection.execute(SESSION_READ_COMMITTED, prepare=False)
    return Watched(connection, keeps_session=keeps_session)


def _is_dead(connection: AsyncConnection) -> bool:
    """Whether an idle connection was closed by the server; nothing was sent, so nothing is lost.

    An idle connection that can be read from holds the server's last words. (Or a notice, as
    after a reload of its settings: a new connection costs little.)
    """
    if connection.closed:
        return True
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return bool(poller.poll(0))


async def _cancel(connection: AsyncConnection) -> None:
    try:
        await connection.cancel_safe(timeout=CANCEL_S)
    except psycopg.Error as error:
        log.info("cancel not delivered: %s", error)
    finally:
        await connection.close()


class Pool:
    """Calls that come singly. `fetch` takes a connection for one statement and no longer."""

    def __init__(
        self,
        config: PostgresConfig,
        *,
        size: int,
        name: str,
        wait_s: float | None = None,
        statement_ms: int | None = None,
    ) -> None:
        self._timeout_s = (statement_ms or config.stmt_timeout_ms) / 1000
        self._keeps_session = config.prepare
        self._wait_s = wait_s or min(self._timeout_s, config.connect_timeout_s + 1.0)
        # While the database is known to be away, callers are told soon.
        self.away = True
        self._watched: dict[AsyncConnection, Watched] = {}
        self._pool = AsyncConnectionPool(
            kwargs={**config.parameters(application_name=name), "autocommit": True},
            min_size=min(2, size),
            max_size=size,
            open=False,
            timeout=self._wait_s,
            max_idle=300,
            reconnect_timeout=RECONNECT_MAX_S,
            configure=self._configure,
            name=name,
        )

    async def _configure(self, connection: AsyncConnection) -> None:
        watched = await _prepare(connection, keeps_session=self._keeps_session)
        for gone in [one for one in self._watched if one.closed]:
            del self._watched[gone]
        self._watched[connection] = watched

    async def open(self) -> None:
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close(timeout=5.0)

    async def fetch(
        self, statement: str, parameters: Any = None, *, timeout_s: float | None = None
    ) -> list[Any]:
        connection = await self._living()
        try:
            return await _run(
                connection,
                self._watched[connection],
                statement,
                parameters,
                min(timeout_s or self._timeout_s, self._timeout_s),
            )
        finally:
            await self._pool.putconn(connection)

    async def _living(self) -> AsyncConnection:
        """A connection whose server is still there; those that died idle are thrown away."""
        while True:
            try:
                connection = await self._pool.getconn(AWAY_WAIT_S if self.away else self._wait_s)
            except (PoolTimeout, psycopg.Error) as error:
                raise NoConnection() from error
            if not _is_dead(connection):
                return connection
            await connection.close()
            await self._pool.putconn(connection)

    def stats(self) -> dict[str, int]:
        """size, idle and waiting, for the gauges."""
        stats = self._pool.get_stats()
        return {
            "size": stats.get("pool_size", 0),
            "idle": stats.get("pool_available", 0),
            "waiting": stats.get("requests_waiting", 0),
        }


class Lane:
    """One connection, one call at a time; it reconnects by itself when next asked."""

    def __init__(self, config: PostgresConfig, *, name: str) -> None:
        self._parameters = {**config.parameters(application_name=name), "autocommit": True}
        self._timeout_s = config.stmt_timeout_ms / 1000
        # Each host that does not answer takes its time-out before the next one is tried.
        self._connect_s = config.connect_timeout_s * max(1, len(config.hosts)) + 1.0
        self._keeps_session = config.prepare
        # Why there is no connection, for the log: it names hosts, which is nothing for callers.
        self.failure = ""
        self._connection: AsyncConnection | None = None
        self._watched: Watched | None = None
        self._retry_at = 0.0
        self._backoff_s = RECONNECT_MIN_S
        self._busy = asyncio.Lock()

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.closed

    async def fetch(
        self, statement: str, parameters: Sequence[Any], *, timeout_s: float | None = None
    ) -> list[Any]:
        async with self._busy:
            connection = self._connection
            if connection is None or _is_dead(connection):
                await self.close()
                connection = await self._connect()
            assert self._watched is not None
            try:
                return await _run(
                    connection, self._watched, statement, parameters, timeout_s or self._timeout_s
                )
            except StoreError as error:
                if error.outcome_unknown:
                    await self.close()
                raise

    def abort(self) -> None:
        """End the call in flight: its answer is not coming."""
        if self._watched is not None:
            self._watched.cut()

    async def _connect(self) -> AsyncConnection:
        if time.monotonic() < self._retry_at:
            raise NoConnection("the database is away")
        try:
            async with asyncio.timeout(self._connect_s):
                connection = await AsyncConnection.connect(**self._parameters)
                watched = await _prepare(connection, keeps_session=self._keeps_session)
        except (TimeoutError, psycopg.Error) as error:
            # While it is away, callers are told at once instead of queueing at its door.
            self._retry_at = time.monotonic() + self._backoff_s
            self._backoff_s = min(self._backoff_s * 2, RECONNECT_MAX_S)
            self.failure = str(error).strip() or type(error).__name__
            raise NoConnection(f"the database is away: {error}".strip()) from error
        self._backoff_s = RECONNECT_MIN_S
        self.failure = ""
        self._connection, self._watched = connection, watched
        return connection

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
