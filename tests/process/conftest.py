"""site   a database behind a gateway, for a test that starts brokers of its own on it"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import site as sites


@pytest.fixture
def site(postgres: Path, tmp_path: Path) -> Iterator[sites.Site]:
    with sites.made(postgres, tmp_path) as site:
        yield site
