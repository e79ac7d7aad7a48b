"""Brokers in the test's own loop.

start_client   a factory: `await start_client(SETTING="value")`, a broker and a client of it
here           a broker whose floor is so slow that only a bell can have woken a pop
there          another one on the same database
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.harness import Database
from tests.services.in_process import NO_FLOOR, Client, running

StartClient = Callable[..., Awaitable[Client]]


@pytest.fixture
async def start_client(database: Database) -> AsyncIterator[StartClient]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(**settings: str) -> Client:
            return await stack.enter_async_context(running(database, **settings))

        yield start


@pytest.fixture
async def here(start_client: StartClient) -> Client:
    return await start_client(**NO_FLOOR)


@pytest.fixture
async def there(start_client: StartClient) -> Client:
    return await start_client(**NO_FLOOR)
