"""Directories that brokers of one host leave to each other: their order, and whose they are."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brokers.config import Config
from brokers.runtime import Broker
from brokers.services.spool import Spooling
from brokers.services.spool_directories import open_directories
from queen_project import config as environment
from spool.directory import SpoolDirectory
from spool.errors import SpoolLocked
from tests.harness import Database
from tests.services.in_process import Client, until
from tests.services.test_spool import away, emptied, status, stored


@pytest.fixture
def own_database(fresh_database) -> Database:
    return fresh_database()


def config_of(database: Database, **settings: str) -> Config:
    return environment.load({**os.environ, **database.environment, **settings})


@contextlib.asynccontextmanager
async def on_this_host(database: Database, data_dir: Path, name: str) -> AsyncIterator[Client]:
    config = config_of(database, QUEEN_DATA_DIR=str(data_dir), QUEEN_SERVER_ID=name)
    broker = Broker(config)
    spool = Spooling(broker, *open_directories(config))
    broker.use_spool(spool)
    broker.run_also("spool", spool.run)
    await broker.start()
    try:
        yield Client(broker)
    finally:
        await broker.stop()


async def test_a_broker_that_changed_its_name_stores_what_it_left_before_what_it_buffers(
    own_database, tmp_path, fresh_queue
):
    async with away(own_database):
        for no, name in enumerate(("one", "two", "three")):
            async with on_this_host(own_database, tmp_path, name) as client:
                batch = [[no, filler] for filler in range(4000)]
                assert set(await status(client, fresh_queue, *batch)) == {"buffered"}
    # Back under the first name: what is its own is the oldest now, not the youngest.
    async with on_this_host(own_database, tmp_path, "one") as client:
        assert set(await status(client, fresh_queue, [3, 0])) <= {"buffered", "queued"}
        await until(lambda: client.broker.ready, timeout_s=30)
        await emptied(client)
        log = await stored(client, fresh_queue)
    assert len(log) == 12_001
    assert log == sorted(log)


async def test_a_broker_whose_directory_another_one_drains_starts_and_buffers_beside_it(
    own_database, tmp_path, fresh_queue
):
    async with away(own_database):
        async with on_this_host(own_database, tmp_path, "one") as one:
            assert await status(one, fresh_queue, 1) == ["buffered"]
        async with (
            on_this_host(own_database, tmp_path, "two"),
            on_this_host(own_database, tmp_path, "one") as one,
        ):
            assert await status(one, fresh_queue, 2) == ["buffered"]
            assert list((tmp_path / "spool" / "one~1").glob("*.tmp"))
    async with on_this_host(own_database, tmp_path, "one") as one:
        await until(lambda: one.broker.ready, timeout_s=30)
        await emptied(one)
        assert await stored(one, fresh_queue) == [1, 2]


def test_a_second_broker_of_one_name_is_refused(own_database, tmp_path):
    config = config_of(own_database, QUEEN_DATA_DIR=str(tmp_path), QUEEN_SERVER_ID="one")
    own, _ = open_directories(config)
    with contextlib.closing(own), pytest.raises(SpoolLocked):
        open_directories(config)


def test_fewer_workers_adopt_what_the_others_left_beside_a_directory_they_were_told(
    own_database, tmp_path
):
    config = config_of(own_database, FILE_BUFFER_DIR=str(tmp_path / "told"))
    for name in ("told~1", "told of something else"):
        SpoolDirectory.open(tmp_path / name).close()
        (tmp_path / name / "1000000000000-00000000.buf").write_bytes(b"something")
    own, adopted = open_directories(config, shared_id=True)
    assert [one.path.name for one in adopted] == ["told~1"]
    for one in (own, *adopted):
        one.close()
