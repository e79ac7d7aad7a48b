"""Procedures are tested on a database that no broker serves: no sweeper takes a due timer.

Imports harness. Its `database` stands in for the one of tests/conftest.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import harness


@pytest.fixture(scope="session")
def database(postgres: Path) -> Iterator[harness.Database]:
    database = harness.make_database(postgres, f"queen_{harness.WORKER}_store")
    yield database
    harness.drop_database(database)
