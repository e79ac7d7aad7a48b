"""The fixtures of the browser's tests. What they do is in chromium.py, console.py, operators.py.

console_database  a database of their own: a console that has users is closed to who has none
console_broker    a broker at it, shared by the tests of a worker
console_db        psycopg at it, autocommit
browser           Chromium, clean
console           the browser signed in at `console_broker` as a superuser
visitor           the same, not signed in
console_at        a factory: the browser at the console of another broker, not signed in
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import harness
from tests.browser import chromium
from tests.browser.console import Console


@pytest.fixture(scope="session")
def console_database(postgres: Path) -> Iterator[harness.Database]:
    database = harness.make_database(postgres, f"queen_{harness.WORKER}_console")
    yield database
    harness.drop_database(database)


@pytest.fixture(scope="session")
def console_broker(
    console_database: harness.Database,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Iterator[harness.BrokerProcess]:
    process = harness.BrokerProcess(
        tmp_path_factory.mktemp("console") / "log",
        # What is counted shows at once.
        {
            **console_database.environment,
            "METRICS_FLUSH_MS": "1000",
            "STATS_INTERVAL_MS": "1000",
            "QUEEN_LIVE_INTERVAL_MS": "500",
        },
        server=pytestconfig.getoption("--server"),
    )
    yield process
    process.stop()


@pytest.fixture
def console_db(console_database: harness.Database) -> Iterator[psycopg.Connection[Any]]:
    with console_database.connect() as connection:
        yield connection


@pytest.fixture(scope="session")
def _chromium() -> Iterator[chromium.Browser]:
    browser, close = chromium.opened()
    yield browser
    close()


@pytest.fixture
def browser(_chromium: chromium.Browser) -> chromium.Browser:
    _chromium.begin()
    return _chromium


@pytest.fixture
def console_at(
    browser: chromium.Browser, tmp_path: Path, pytestconfig: pytest.Config
) -> Callable[[harness.BrokerProcess, psycopg.Connection[Any]], Console]:
    shots = pytestconfig.getoption("--screenshots")

    def at(broker: harness.BrokerProcess, db: psycopg.Connection[Any]) -> Console:
        return Console(
            browser, broker, db, Path(shots) if shots else tmp_path, documented=bool(shots)
        )

    return at


@pytest.fixture
def visitor(
    console_at: Callable[[harness.BrokerProcess, psycopg.Connection[Any]], Console],
    console_broker: harness.BrokerProcess,
    console_db: psycopg.Connection[Any],
) -> Console:
    return console_at(console_broker, console_db)


@pytest.fixture
def console(visitor: Console) -> Console:
    visitor.sign_in()
    return visitor
