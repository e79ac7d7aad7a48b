"""What every test of the HTTP contract stands on: a wire client of the shared broker."""

from collections.abc import Iterator

import httpx
import pytest

from tests import harness
from tests.wire_client import WireClient


@pytest.fixture(scope="session")
def client(broker: harness.BrokerProcess) -> Iterator[httpx.Client]:
    """One for all: each new one reads the system's trust store, which takes 30 ms."""
    with httpx.Client(base_url=broker.url, timeout=60.0) as client:
        yield client


@pytest.fixture
def wire(client: httpx.Client) -> WireClient:
    return WireClient(client)
