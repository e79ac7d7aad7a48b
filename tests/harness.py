"""What tests stand on: one PostgreSQL a run, one database a worker, real broker processes.

Method: PostgreSQL is the embedded one, in a directory of its own that is removed at the
end. The workers of a parallel run share it; whoever leaves last stops it. Each worker's
database is a copy of a template that has the schema. A broker is `manage.py broker` as a
user starts it, on a free port.

Used by conftest.py. Imports queen_project.embedded.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
from psycopg import sql

from queen_project import embedded, embedded_paths

T = TypeVar("T")

PROJECT_DIR = Path(__file__).resolve().parent.parent
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid.uuid4().hex)[:12]
DATA_DIR = Path("/tmp") / f"queen-test-{RUN}"
TEMPLATE = "queen_template"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
# The operating system outlives every test, and only its crash would need a sync.
FAST = {"fsync": "off", "shared_buffers": "128MB", "max_connections": "300"}
# Where brokers find PostgreSQL when it is not where tests find it: `--pgbouncer`.
POOLER_PORT: int | None = None
LISTENING = re.compile(r"listening on https?://\S+:(\d+)")

APPLY_SCHEMA = """
import django; django.setup()
from django.conf import settings
from brokers.store import install
install.apply_schema(settings.QUEEN_CONFIG)
"""


def prepare_environment() -> None:
    """What this process and every broker that it starts see, before Django is set up."""
    os.environ.update(
        DJANGO_SETTINGS_MODULE="queen_project.settings",
        QUEEN_DATA_DIR=str(DATA_DIR),
        QUEEN_SECRET_KEY="only-for-tests-" + "x" * 50,
        QUEEN_BIND_ADDR="127.0.0.1",
        PG_HOST=str(embedded_paths.socket_dir(DATA_DIR)),
        PG_PORT=str(embedded_paths.PORT),
        PG_USER="postgres",
        PG_DATABASE=f"queen_{WORKER}",
        # Tests write history and look at it at once.
        QUEEN_ANALYTICS_FRESH_MS="0",
    )
    unset = ["PORT", "QUEEN_SERVER_ID", "PG_DB", "PG_USE_SSL", "RUST_LOG", "LOG_LEVEL"]
    for name in [*unset, "QUEEN_ENCRYPTION_KEY", "QUEEN_ENCRYPTION_KEYS_OLD"]:
        os.environ.pop(name, None)


def eventually(condition: Callable[[], T], timeout_s: float = 10.0) -> T:
    """The first true value of the condition; fails when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout_s} s: {condition}")
        time.sleep(0.01)
    return value


@contextlib.contextmanager
def shared_postgres() -> Iterator[Path]:
    """The server of this run; yields its data directory."""
    DATA_DIR.mkdir(mode=0o711, exist_ok=True)
    users = os.open(DATA_DIR / "test-workers", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(users, fcntl.LOCK_SH)
        embedded.ensure_running(DATA_DIR, settings=FAST)
        yield DATA_DIR
    finally:
        fcntl.flock(users, fcntl.LOCK_UN)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            embedded.stop(DATA_DIR, force=True)
            shutil.rmtree(DATA_DIR, ignore_errors=True)
        os.close(users)


@contextlib.contextmanager
def own_postgres(data_dir: Path) -> Iterator[Path]:
    """A durable server that a test may kill; its path must be short, open and free."""
    try:
        embedded.ensure_running(data_dir)
        yield data_dir
    finally:
        embedded.stop(data_dir, force=True)
        shutil.rmtree(data_dir, ignore_errors=True)


class KillablePostgres:
    """A durable server that its owner kills, stops and starts again."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.settings = settings
        self.start()

    @property
    def database(self) -> "Database":
        return Database(name="postgres", host=str(embedded_paths.socket_dir(self.data_dir)))

    def start(self) -> None:
        embedded.ensure_running(self.data_dir, settings=self.settings)

    def kill(self, signum: int = signal.SIGKILL) -> None:
        """As a crash; returns once none of its processes lives any more."""
        pid = embedded.status(self.data_dir).pid
        assert pid is not None
        os.kill(pid, signum)
        eventually(lambda: not embedded.is_alive(self.data_dir), timeout_s=30)

    def stop(self) -> None:
        """After a checkpoint, as a planned restart does."""
        embedded.stop(self.data_dir, force=True)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.data_dir, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database with the schema; `environment` leads a broker to it."""

    name: str
    host: str
    port: int = embedded_paths.PORT

    @property
    def parameters(self) -> dict[str, Any]:
        return {"host": self.host, "port": self.port, "user": "postgres", "dbname": self.name}

    @property
    def environment(self) -> dict[str, str]:
        if POOLER_PORT is not None:
            return {
                "PG_HOST": "127.0.0.1",
                "PG_PORT": str(POOLER_PORT),
                "PG_DATABASE": self.name,
                "QUEEN_PREPARE_STATEMENTS": "false",
            }
        return self.direct_environment

    @property
    def direct_environment(self) -> dict[str, str]:
        return {"PG_HOST": self.host, "PG_PORT": str(self.port), "PG_DATABASE": self.name}

    def connect(self, **arguments: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(**self.parameters, **{"autocommit": True, **arguments})


def make_database(data_dir: Path, name: str) -> Database:
    """A copy of the template, which the first that needs it makes."""
    host = str(embedded_paths.socket_dir(data_dir))
    with _locked(data_dir / "test-template"), _administration(host) as connection:
        if not _exists(connection, TEMPLATE):
            _make_template(connection, Database(name=TEMPLATE, host=host))
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(TEMPLATE)
            )
        )
    return Database(name=name, host=host)


def make_empty_database(data_dir: Path, name: str) -> Database:
    """Without any schema, for tests of its installation."""
    host = str(embedded_paths.socket_dir(data_dir))
    with _administration(host) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return Database(name=name, host=host)


def drop_database(database: Database) -> None:
    with _administration(database.host) as connection:
        connection.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database.name))
        )


def _make_template(connection: psycopg.Connection[Any], template: Database) -> None:
    draft = Database(name=f"{TEMPLATE}_draft", host=template.host)
    drop_database(draft)
    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(draft.name)))
    done = subprocess.run(
        [sys.executable, "-c", APPLY_SCHEMA],
        cwd=PROJECT_DIR,
        env={**os.environ, **draft.direct_environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"the schema cannot be applied:\n{done.stdout}\n{done.stderr}")
    connection.execute(
        sql.SQL("ALTER DATABASE {} RENAME TO {}").format(
            sql.Identifier(draft.name), sql.Identifier(template.name)
        )
    )


def _exists(connection: psycopg.Connection[Any], name: str) -> bool:
    found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
    return found.fetchone() is not None


def _administration(host: str) -> psycopg.Connection[Any]:
    return Database(name="postgres", host=host).connect()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class BrokerProcess:
    """One `manage.py broker`. `url` is known once it listens; `log` is all it has said."""

    def __init__(
        self,
        log_path: Path,
        environment: Mapping[str, str | None],
        *,
        server: str = "uvicorn",
        ready: bool = True,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.log_path = log_path
        self.server = server
        self._start_timeout_s = start_timeout_s
        merged = {"PORT": "0", **os.environ, **environment}
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "manage.py", "broker", "--server", server],
                cwd=PROJECT_DIR,
                env={name: value for name, value in merged.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.port = int(self._wait_for(self._listening).group(1))
            self.url = f"http://127.0.0.1:{self.port}"
            if ready:
                self._wait_for(self.is_ready)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        return self.process.wait(timeout_s)

    def stop(self) -> int:
        """Stop it as a deploy does; returns the exit code."""
        if self.process.poll() is None:
            self.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not stop:\n{self.log[-5000:]}") from None

    def kill(self) -> None:
        """As a crash: no handler runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def _listening(self) -> re.Match[str] | None:
        return LISTENING.search(self.log)

    def _wait_for(self, condition: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + self._start_timeout_s
        while not (value := condition()):
            if self.process.poll() is not None:
                raise AssertionError(f"the broker ended ({self.process.returncode}):\n{self.log}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the broker did not start:\n{self.log[-5000:]}")
            time.sleep(0.02)
        return value


@contextlib.contextmanager
def refusing_segments(
    db: psycopg.Connection[Any], marker: bytes, message: str, *, state: str = "P0001"
) -> Iterator[None]:
    """No segment whose frames hold the marker can be written: as if those bytes were poison."""
    name = f"refuse_{uuid.uuid4().hex[:8]}"
    parts = {"name": sql.Identifier(name), "marker": sql.Literal(marker)}
    parts |= {"message": sql.Literal(message), "state": sql.Literal(state)}
    db.execute(
        sql.SQL(
            "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF position({marker}::bytea IN new.frames) > 0 THEN"
            " RAISE EXCEPTION USING MESSAGE = {message}, ERRCODE = {state}; END IF;"
            " RETURN new; END $$"
        ).format(**parts)
    )
    db.execute(
        sql.SQL(
            "CREATE TRIGGER {name} BEFORE INSERT ON queen_segment"
            " FOR EACH ROW EXECUTE FUNCTION {name}()"
        ).format(**parts)
    )
    try:
        yield
    finally:
        db.execute(sql.SQL("DROP TRIGGER {name} ON queen_segment").format(**parts))
        db.execute(sql.SQL("DROP FUNCTION {name}()").format(**parts))
