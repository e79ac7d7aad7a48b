"""What every test of the HTTP contract stands on: a wire client of the shared broker."""

import httpx
import pytest

from tests.wire_client import WireClient


@pytest.fixture
def wire(client: httpx.Client) -> WireClient:
    return WireClient(client)
