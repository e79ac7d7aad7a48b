"""The fixtures of every test. What they do is in harness.py.

postgres         the run's PostgreSQL (its data directory)
own_postgres     a durable PostgreSQL of the test's own, which it may kill
database         this worker's database, with the schema
fresh_database   a factory: another one with the schema, or without it
broker           this worker's broker process, shared by its tests
start_broker     a factory: a broker of the test's own; arguments are its environment
each_server      uvicorn, then daphne: for start_broker(server=each_server)
client           httpx, at `broker`
db               psycopg at `database`, autocommit
second_connection  a factory: further connections, in transactions, to hold locks with
fresh_queue      a queue name that nobody has used
eventually       waits for a condition, bounded
"""

import contextlib
import itertools
import logging
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import django
import httpx
import psycopg
import pytest
from hypothesis import HealthCheck, settings

from queen_project import embedded_paths
from tests import harness, pooler

harness.prepare_environment()
django.setup()
logging.getLogger("httpx").setLevel(logging.WARNING)

CLIENT_TIMEOUT_S = 60.0
# How long an example takes says something of the machine and nothing of the code.
settings.register_profile(
    "tests", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=["uvicorn", "daphne"],
        default="uvicorn",
        help="the HTTP server under `broker` and, unless told otherwise, `start_broker`",
    )
    parser.addoption(
        "--pgbouncer",
        metavar="PROGRAM",
        help="brokers reach PostgreSQL through this PgBouncer, in transaction mode",
    )
    parser.addoption(
        "--screenshots",
        metavar="DIRECTORY",
        help="tests of the console write pictures of its pages there: docs/screenshots",
    )


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator[Path]:
    with harness.shared_postgres() as data_dir:
        program = pytestconfig.getoption("--pgbouncer")
        if program is None:
            yield data_dir
            return
        host = str(embedded_paths.socket_dir(data_dir))
        directory = data_dir / f"pgbouncer-{harness.WORKER}"
        with pooler.running(program, host, embedded_paths.PORT, directory) as port:
            harness.POOLER_PORT = port
            yield data_dir


@pytest.fixture
def own_postgres() -> Iterator[Callable[[], Path]]:
    """A factory of data directories with a running, durable server in each."""
    with contextlib.ExitStack() as running:

        def start() -> Path:
            data_dir = Path(tempfile.mkdtemp(prefix="queen-own-", dir="/tmp"))
            data_dir.chmod(0o711)
            return running.enter_context(harness.own_postgres(data_dir))

        yield start


@pytest.fixture(scope="session")
def database(postgres: Path) -> Iterator[harness.Database]:
    database = harness.make_database(postgres, f"queen_{harness.WORKER}")
    yield database
    harness.drop_database(database)


@pytest.fixture
def fresh_database(
    postgres: Path, database: harness.Database
) -> Iterator[Callable[..., harness.Database]]:
    # A broker in the test's process looks at the schema through Django, which knows `database`.
    made: list[harness.Database] = []

    def make(*, schema: bool = True) -> harness.Database:
        name = f"queen_{harness.WORKER}_{uuid.uuid4().hex[:8]}"
        maker = harness.make_database if schema else harness.make_empty_database
        made.append(maker(postgres, name))
        return made[-1]

    yield make
    for database in made:
        harness.drop_database(database)


@pytest.fixture(scope="session")
def broker(
    database: harness.Database,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Iterator[harness.BrokerProcess]:
    log = tmp_path_factory.mktemp("broker") / "log"
    process = harness.BrokerProcess(
        log, database.environment, server=pytestconfig.getoption("--server")
    )
    yield process
    process.stop()


@pytest.fixture
def start_broker(
    database: harness.Database, tmp_path: Path, pytestconfig: pytest.Config
) -> Iterator[Callable[..., harness.BrokerProcess]]:
    """`start_broker(server=..., ready=..., QUEEN_X="1", PG_HOST=None)`; None unsets a variable.

    `on=` another Database than the worker's own. All that still live are killed at the end.
    """
    started: list[harness.BrokerProcess] = []
    numbers = itertools.count()

    def start(
        *,
        server: str | None = None,
        ready: bool = True,
        on: harness.Database | None = None,
        **environment: str | None,
    ) -> harness.BrokerProcess:
        process = harness.BrokerProcess(
            tmp_path / f"broker-{next(numbers)}.log",
            {**(on or database).environment, **environment},
            server=server or pytestconfig.getoption("--server"),
            ready=ready,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture(params=["uvicorn", "daphne"])
def each_server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(broker: harness.BrokerProcess) -> Iterator[httpx.Client]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
    with httpx.Client(base_url=broker.url, timeout=CLIENT_TIMEOUT_S, limits=limits) as client:
        yield client


@pytest.fixture
def db(database: harness.Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect() as connection:
        yield connection


@pytest.fixture
def second_connection(
    database: harness.Database,
) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    """A connection that opens a transaction with its first statement, to hold locks with."""
    opened: list[psycopg.Connection[Any]] = []

    def connect() -> psycopg.Connection[Any]:
        opened.append(database.connect(autocommit=False))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def fresh_queue() -> str:
    return f"queue-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    return harness.eventually
