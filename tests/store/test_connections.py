"""A connection's calls are READ COMMITTED, with a session of its own and without one.

Method: a lane and a pool on a database whose default is another isolation level. Without a
session of its own (`QUEEN_PREPARE_STATEMENTS=false`, for transaction-pooling proxies) nothing
may be kept in it, nor left there.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from psycopg import sql

from brokers.config import PostgresConfig
from brokers.errors import Permanent, StoreError
from brokers.store.pool import Lane, Pool
from tests.harness import Database

LEVEL = "SELECT current_setting('transaction_isolation')"
SESSION = """
SELECT current_setting('default_transaction_isolation'),
       (SELECT count(*) FROM pg_prepared_statements)::int, pg_backend_pid()
"""


@pytest.fixture
def strict(fresh_database: Callable[..., Database]) -> Database:
    database = fresh_database(schema=False)
    with database.connect() as db:
        db.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'").format(
                sql.Identifier(database.name)
            )
        )
    return database


def config(database: Database, **more: Any) -> PostgresConfig:
    return PostgresConfig(
        hosts=(database.host,), ports=(database.port,), database=database.name, **more
    )


@pytest.mark.parametrize("prepare", [True, False])
async def test_calls_are_read_committed_whatever_the_database_has_as_its_default(
    strict: Database, prepare: bool
):
    lane = Lane(config(strict, prepare=prepare), name="test")
    pool = Pool(config(strict, prepare=prepare), size=2, name="test")
    await pool.open()
    try:
        for fetch in (lane.fetch, pool.fetch):
            assert await fetch(LEVEL, None) == [("read committed",)]
    finally:
        await lane.close()
        await pool.close()


async def test_without_a_session_of_its_own_a_call_leaves_nothing_in_it(strict: Database):
    lane = Lane(config(strict, prepare=False), name="test")
    try:
        [(_, _, pid)] = await lane.fetch(SESSION, None)
        for n in range(10):
            assert await lane.fetch("SELECT %s::int", [n]) == [(n,)]
            with pytest.raises(Permanent):
                await lane.fetch("SELECT 1 / %s::int", [0])
            assert await lane.fetch(SESSION, None) == [("serializable", 0, pid)]
        with strict.connect() as db:
            idle = "SELECT state FROM pg_stat_activity WHERE pid = %s"
            assert db.execute(idle, [pid]).fetchone() == ("idle",)
    finally:
        await lane.close()


async def test_without_a_session_of_its_own_what_a_call_wrote_is_committed_or_undone(
    strict: Database,
):
    lane = Lane(config(strict, prepare=False), name="test")
    try:
        await lane.fetch("CREATE TABLE written (n int)", None)
        write = "WITH w AS (INSERT INTO written VALUES (%s::int) RETURNING n) SELECT 1 / n FROM w"
        await lane.fetch(write, [1])
        with pytest.raises(Permanent):
            await lane.fetch(write, [0])
        await lane.fetch("INSERT INTO written VALUES (2)", None)
        with strict.connect() as db:
            assert db.execute("SELECT n FROM written ORDER BY n").fetchall() == [(1,), (2,)]
    finally:
        await lane.close()


@pytest.mark.parametrize("prepare", [True, False])
async def test_a_call_that_runs_into_its_time_limit_is_undone_and_the_next_one_works(
    strict: Database, prepare: bool
):
    lane = Lane(config(strict, prepare=prepare), name="test")
    try:
        await lane.fetch("CREATE TABLE written (n int)", None)
        slow = "WITH w AS (INSERT INTO written VALUES (1)) SELECT pg_sleep(60)"
        with pytest.raises(StoreError) as late:
            await lane.fetch(slow, None, timeout_s=0.3)
        assert late.value.outcome_unknown
        async with asyncio.timeout(20):
            assert await lane.fetch("SELECT count(*) FROM written", None) == [(0,)]
    finally:
        await lane.close()
