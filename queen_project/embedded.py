"""The embedded PostgreSQL: started by whichever command needs it first, shared by all.

Two advisory file locks in the data directory carry everything:

- `postgres.starting` is held by whoever starts or stops the server, so that two
  starters at once are one after the other.
- `postgres.alive` is locked before the server starts and *inherited by its processes*.
  It is free exactly when none of them lives any more, after a kill -9 too. So a stale
  postmaster.pid is known for stale without looking at its number, which may belong to
  something else by now.

The server has its own session: Ctrl-C on the command that started it does not reach it,
and it stays when that command ends (`manage.py postgres --stop` stops it).

Imports embedded_paths, embedded_cluster, embedded_locks. Used by the commands, the
supervisor and database/base.py.
"""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from queen_project import embedded_cluster, embedded_paths
from queen_project.embedded_cluster import Cluster, EmbeddedPostgresError
from queen_project.embedded_locks import exclusive, is_free, open_lock

__all__ = [
    "EmbeddedPostgresError",
    "PostgresAddress",
    "Status",
    "ensure_running",
    "is_alive",
    "status",
    "stop",
    "supervisor_seat",
]

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
LOOK_AGAIN_S = 0.02
CONNECT_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """What a client connects to; user postgres, no password, reachable by the owner alone."""

    socket_dir: Path
    port: int
    user: str = "postgres"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """`answers` means that a connection was made just now."""

    cluster: Path
    socket_dir: Path
    initialised: bool
    alive: bool
    answers: bool
    pid: int | None
    supervised: bool


def ensure_running(
    data_dir: Path,
    *,
    database: str = "postgres",
    settings: Mapping[str, str] | None = None,
    create: bool = True,
) -> PostgresAddress:
    """Join the server of this data directory, or start it; return once it takes connections.

    `settings` go into the server's configuration when it is this call that starts it. With
    `create` off a cluster that is not there is an error and not the wish for an empty one.
    """
    address = PostgresAddress(
        socket_dir=embedded_paths.socket_dir(data_dir), port=embedded_paths.PORT
    )
    cluster = embedded_cluster.locate(data_dir)
    embedded_cluster.refuse_other_major(cluster)
    if not create and not cluster.path.exists():
        raise EmbeddedPostgresError(f"{cluster.path} has disappeared")
    if not _answers(address):
        embedded_cluster.prepare_directories(cluster)
        with exclusive(cluster.data_dir / "postgres.starting", timeout_s=START_TIMEOUT_S):
            _start(cluster, address, settings or {})
    _ensure_database(address, database)
    return address


def stop(data_dir: Path, *, force: bool = False) -> bool:
    """Stop the server after a checkpoint; False when there was none.

    A broker that supervises the server would start it again, so that is refused unless
    forced.
    """
    cluster = embedded_cluster.locate(data_dir)
    if not cluster.path.exists():
        return False
    if not force and _is_supervised(data_dir):
        raise EmbeddedPostgresError(
            "a broker is using this PostgreSQL and would start it again: stop the broker first"
        )
    with exclusive(data_dir / "postgres.starting", timeout_s=START_TIMEOUT_S):
        if not is_alive(data_dir):
            return False
        pid = embedded_cluster.postmaster_pid(cluster)
        if pid is not None and embedded_cluster.works_in_cluster(pid, cluster):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)  # a fast shutdown
        _wait_until_dead(data_dir, timeout_s=STOP_TIMEOUT_S)
    return True


def status(data_dir: Path) -> Status:
    cluster = embedded_cluster.locate(data_dir)
    address = PostgresAddress(
        socket_dir=embedded_paths.socket_dir(data_dir), port=embedded_paths.PORT
    )
    alive = is_alive(data_dir)
    return Status(
        cluster=cluster.path,
        socket_dir=address.socket_dir,
        initialised=cluster.path.exists(),
        alive=alive,
        answers=_answers(address),
        pid=embedded_cluster.postmaster_pid(cluster) if alive else None,
        supervised=_is_supervised(data_dir),
    )


def is_alive(data_dir: Path) -> bool:
    """Whether any process of the server lives, answering or not. Costs a few microseconds."""
    return not is_free(data_dir / "postgres.alive", of=fcntl.LOCK_EX)


@contextlib.contextmanager
def supervisor_seat(data_dir: Path) -> Iterator[None]:
    """Tell other commands that somebody keeps this server running."""
    data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    descriptor = open_lock(data_dir / "postgres.supervised")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _start(cluster: Cluster, address: PostgresAddress, settings: Mapping[str, str]) -> None:
    """Under the starters' lock: whoever waited for it finds the server that the other started."""
    if _answers(address):
        return
    alive = open_lock(cluster.data_dir / "postgres.alive")
    try:
        if not _take_over(alive, address):
            return
        embedded_cluster.refuse_foreign_server(cluster)
        embedded_cluster.clear_stale_locks(cluster)
        if not cluster.path.exists():
            embedded_cluster.initialise(cluster)
        embedded_cluster.write_settings(cluster, settings)
        embedded_cluster.launch(cluster, inherit=alive, timeout_s=START_TIMEOUT_S)
    finally:
        os.close(alive)
    if not _answers(address):
        raise EmbeddedPostgresError(
            f"PostgreSQL started but does not answer at {address.socket_dir};"
            f" see {cluster.start_log}"
        )


def _take_over(alive: int, address: PostgresAddress) -> bool:
    """Get the lock of the living; False when a server that was only slow answers after all.

    Someone else's server may still be starting, recovering from a crash or shutting down.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if _answers(address):
                return False
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(
                f"a PostgreSQL process of this data directory lives, but has not answered at"
                f" {address.socket_dir} for {START_TIMEOUT_S:.0f} s"
            )
        time.sleep(LOOK_AGAIN_S)


def _answers(address: PostgresAddress) -> bool:
    if not (address.socket_dir / f".s.PGSQL.{address.port}").exists():
        return False
    try:
        _connect(address, "postgres").close()
    except psycopg.OperationalError:
        return False
    return True


def _ensure_database(address: PostgresAddress, name: str) -> None:
    if name == "postgres":
        return
    with _connect(address, "postgres") as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if found.fetchone():
            return
        # Two commands may both see it missing.
        with contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
            connection.execute(
                psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name))
            )


def _connect(address: PostgresAddress, database: str) -> psycopg.Connection:
    return psycopg.connect(
        host=str(address.socket_dir),
        port=address.port,
        user=address.user,
        dbname=database,
        connect_timeout=CONNECT_TIMEOUT_S,
        sslmode="disable",
        autocommit=True,
    )


def _wait_until_dead(data_dir: Path, *, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while is_alive(data_dir):
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(f"PostgreSQL did not stop within {timeout_s:.0f} s")
        time.sleep(LOOK_AGAIN_S)


def _is_supervised(data_dir: Path) -> bool:
    return not is_free(data_dir / "postgres.supervised", of=fcntl.LOCK_SH)
