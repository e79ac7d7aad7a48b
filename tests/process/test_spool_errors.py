"""PostgreSQL answers, but not what was hoped for: which pushes are buffered, and which fail.

Method: a real server is brought to each of the errors: by locks and time limits, by ending
the backend, by a role that may not connect, by triggers that raise, by a read-only default.
"""

import contextlib
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.harness import BrokerProcess, Database, eventually, refusing_segments
from tests.process import site as sites
from tests.process.site import (
    Site,
    buffers,
    log_of,
    push,
    set_aside,
    statuses,
    until_drained,
    until_storing,
)
from tests.wire_client import WireClient

NOTHING = {"files": 0, "events": 0, "bytes": 0}


@pytest.fixture(scope="module")
def shared_site(postgres: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with sites.made(postgres, tmp_path_factory.mktemp("errors")) as site:
        yield site


@pytest.fixture(scope="module")
def process(shared_site: Site) -> BrokerProcess:
    return shared_site.start(QUEEN_STMT_TIMEOUT_MS="1000")


@pytest.fixture
def wire(shared_site: Site, process: BrokerProcess) -> Iterator[WireClient]:
    with WireClient.at(process.url) as wire:
        until_storing(wire)
        yield wire
        until_drained(wire)
        assert set_aside(wire) == NOTHING, "the server's state is not the bytes' fault"


@pytest.fixture
def db(shared_site: Site) -> Iterator[psycopg.Connection[Any]]:
    with shared_site.database.connect() as connection:
        yield connection


@contextlib.contextmanager
def locked_log(database: Database) -> Iterator[None]:
    """Nobody can write a segment."""
    with database.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE queen_segment IN EXCLUSIVE MODE")
        yield
        holder.rollback()


@contextlib.contextmanager
def database_default(
    database: Database, db: psycopg.Connection[Any], name: str, value: str
) -> Iterator[None]:
    """For connections that are made meanwhile."""
    alter = sql.SQL("ALTER DATABASE {} ").format(sql.Identifier(database.name))
    setting = sql.Identifier(name)
    db.execute(alter + sql.SQL("SET {} = {}").format(setting, sql.Literal(value)))
    try:
        yield
    finally:
        db.execute(alter + sql.SQL("RESET {}").format(setting))


def waiting_backend(db: psycopg.Connection[Any]) -> int | None:
    """The backend that waits with a push for a lock."""
    row = db.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND query LIKE '%%queen_message_push%%'"
    ).fetchone()
    return None if row is None else int(row[0])


# --- the state of the server: buffered, and stored later ----------------------------------------


def test_a_push_that_runs_into_the_brokers_time_limit_is_buffered(
    shared_site: Site, wire: WireClient, fresh_queue: str
):
    assert push(wire, fresh_queue, "a1") == ["queued"]
    with locked_log(shared_site.database):
        assert push(wire, fresh_queue, "a2", "a3") == ["buffered"] * 2
        assert push(wire, fresh_queue, "a4") == ["buffered"]
    until_drained(wire)
    assert push(wire, fresh_queue, "a5") == ["queued"]
    assert log_of(wire, fresh_queue) == {"p": ["a1", "a2", "a3", "a4", "a5"]}


def test_a_push_that_runs_into_the_servers_time_limit_is_buffered(
    shared_site: Site, wire: WireClient, db: psycopg.Connection[Any], fresh_queue: str
):
    assert push(wire, fresh_queue, "a1") == ["queued"]
    with database_default(shared_site.database, db, "statement_timeout", "200ms"):
        shared_site.gateway.sever()
        until_storing(wire)
        with locked_log(shared_site.database):
            assert push(wire, fresh_queue, "a2") == ["buffered"]
    shared_site.gateway.sever()
    until_drained(wire)
    assert push(wire, fresh_queue, "a3") == ["queued"]
    assert log_of(wire, fresh_queue) == {"p": ["a1", "a2", "a3"]}


def test_a_push_whose_backend_is_terminated_is_buffered(
    shared_site: Site, wire: WireClient, db: psycopg.Connection[Any], fresh_queue: str
):
    assert push(wire, fresh_queue, "a1") == ["queued"]
    with ThreadPoolExecutor(1) as producer, locked_log(shared_site.database):
        told = producer.submit(push, wire, fresh_queue, "a2")
        pid = eventually(lambda: waiting_backend(db))
        db.execute("SELECT pg_terminate_backend(%s)", [pid])
        assert told.result(30) == ["buffered"]
    until_drained(wire)
    assert push(wire, fresh_queue, "a3") == ["queued"]
    assert log_of(wire, fresh_queue) == {"p": ["a1", "a2", "a3"]}


@pytest.mark.parametrize("state", ["40001", "40P01", "53100", "53200", "57P03", "XX000", "42501"])
def test_an_error_that_is_not_the_messages_own_is_waited_out(
    wire: WireClient, db: psycopg.Connection[Any], fresh_queue: str, state: str
):
    marker = f"unlucky-{fresh_queue}"
    assert push(wire, fresh_queue, "a1") == ["queued"]
    with refusing_segments(db, marker.encode(), "not now", state=state):
        assert push(wire, fresh_queue, marker) == ["buffered"]
        assert push(wire, fresh_queue, "a3") == ["buffered"]
        # The drain has met it too.
        eventually(lambda: not healthy(wire))
        assert buffers(wire)["pending"] == 2
    until_drained(wire)
    assert push(wire, fresh_queue, "a4") == ["queued"]
    assert log_of(wire, fresh_queue) == {"p": ["a1", marker, "a3", "a4"]}


def healthy(wire: WireClient) -> bool:
    text = wire.get("/metrics/prometheus").text
    [line] = [one for one in text.splitlines() if one.startswith("queen_file_buffer_db_healthy ")]
    return float(line.rsplit(" ", 1)[1]) == 1


def test_pushes_to_a_demoted_primary_are_buffered_until_it_takes_writes_again(
    shared_site: Site, wire: WireClient, db: psycopg.Connection[Any], fresh_queue: str
):
    assert push(wire, fresh_queue, "a1") == ["queued"]
    with database_default(shared_site.database, db, "default_transaction_read_only", "on"):
        shared_site.gateway.sever()
        assert push(wire, fresh_queue, "a2") == ["buffered"]
        assert push(wire, fresh_queue, "a3") == ["buffered"]
    shared_site.gateway.sever()
    until_drained(wire)
    assert push(wire, fresh_queue, "a4") == ["queued"]
    assert log_of(wire, fresh_queue) == {"p": ["a1", "a2", "a3", "a4"]}


@pytest.fixture
def role(postgres: Path, site: Site) -> Iterator[str]:
    """An ordinary role that owns the database: limits do not hold for a superuser."""
    name = f"role_{uuid.uuid4().hex[:8]}"
    with site.database.connect() as db:
        db.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        for grant in (
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO {}",
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {}",
        ):
            db.execute(sql.SQL(grant).format(sql.Identifier(name)))
    yield name
    site.close()
    with site.database.connect() as db:
        db.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
        db.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_pushes_are_buffered_while_the_server_takes_no_more_connections(
    site: Site, role: str, fresh_queue: str
):
    process = site.start(PG_USER=role, QUEEN_APPLY_SCHEMA="false")

    def limit(connections: int) -> None:
        alter = sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}")
        with site.database.connect() as db:
            db.execute(alter.format(sql.Identifier(role), sql.Literal(connections)))

    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, "a1") == ["queued"]
        limit(0)
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            psycopg.connect(**site.database.parameters | {"user": role})
        site.gateway.sever()
        assert push(wire, fresh_queue, "a2") == ["buffered"]
        limit(-1)
        until_drained(wire)
        assert push(wire, fresh_queue, "a3") == ["queued"]
        assert log_of(wire, fresh_queue) == {"p": ["a1", "a2", "a3"]}


# --- the message's own fault: failed ------------------------------------------------------------


def test_a_message_that_a_constraint_refuses_fails_alone_and_is_not_spooled(
    wire: WireClient, db: psycopg.Connection[Any], fresh_queue: str
):
    poison = f"poison-{fresh_queue}"
    with refusing_segments(db, poison.encode(), "no such message here", state="23514"):
        rows = wire.push(fresh_queue, "a1", poison, "a3", partition="p", ids=["a1", poison, "a3"])
        assert statuses(rows) == ["queued", "failed", "queued"]
        assert "no such message here" in rows[1]["error"]
        assert push(wire, fresh_queue, "b1", partition="other") == ["queued"]
        assert buffers(wire)["pending"] == 0
    assert push(wire, fresh_queue, poison) == ["queued"], "it exists nowhere: it is no duplicate"
    assert log_of(wire, fresh_queue) == {"p": ["a1", "a3", poison], "other": ["b1"]}


def test_many_producers_in_one_call_with_a_poisonous_message_all_get_their_own_answer(
    wire: WireClient, process: BrokerProcess, db: psycopg.Connection[Any], fresh_queue: str
):
    poison = f"poison-{fresh_queue}"

    def produce(number: int) -> list[str]:
        with WireClient.at(process.url) as producer:
            told = []
            for n in range(5):
                what = poison if (number, n) == (3, 2) else f"{number}-{n}"
                told += push(producer, fresh_queue, what, partition=f"p{number % 3}")
            return told

    with (
        refusing_segments(db, poison.encode(), "no", state="23514"),
        ThreadPoolExecutor(6) as producers,
    ):
        told = list(producers.map(produce, range(6)))
    expected = [["queued"] * 5 for _ in range(6)]
    expected[3][2] = "failed"
    assert told == expected
    log = log_of(wire, fresh_queue)
    assert sum(map(len, log.values())) == 29
    for number in range(6):
        mine = [one for one in log[f"p{number % 3}"] if one.startswith(f"{number}-")]
        assert mine == sorted(mine)
