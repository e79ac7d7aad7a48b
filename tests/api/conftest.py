"""What every test of the HTTP contract stands on: a wire client of the shared broker."""

import contextlib
from collections.abc import Callable, Iterator

import httpx
import pytest
from django.contrib.auth.models import User

from tests import harness
from tests.console_parts import ConsoleClient, make_user
from tests.wire_client import WireClient


@pytest.fixture(scope="session")
def client(broker: harness.BrokerProcess) -> Iterator[httpx.Client]:
    """One for all: each new one reads the system's trust store, which takes 30 ms."""
    with httpx.Client(base_url=broker.url, timeout=60.0) as client:
        yield client


@pytest.fixture
def wire(client: httpx.Client) -> WireClient:
    return WireClient(client)


@pytest.fixture
def console(broker: harness.BrokerProcess) -> Iterator[Callable[..., ConsoleClient]]:
    """`console("Operator")`: a browser that is signed in with that role; without one, an
    anonymous one. The users go with the test, so that the next one begins without any."""
    with contextlib.ExitStack() as opened:

        def sign_in(role: str | None = None, *, superuser: bool = False) -> ConsoleClient:
            if role is None and not superuser:
                return opened.enter_context(ConsoleClient.at(broker.url))
            user = make_user(role, superuser=superuser, password=None)
            client = opened.enter_context(ConsoleClient.of(broker.url, user))
            client.user = user
            return client

        yield sign_in
    User.objects.all().delete()
