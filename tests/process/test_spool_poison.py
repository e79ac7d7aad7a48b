"""What can never be stored is set aside by itself; everything else gets into the log, in order.

Method: messages are spooled in push maintenance, a trigger refuses those with a marker, then
the spool is drained. What was set aside is put back with `manage.py drain --requeue-failed`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.harness import PROJECT_DIR, BrokerProcess, eventually, refusing_segments
from tests.process import site as sites
from tests.process.site import (
    Site,
    buffers,
    log_of,
    maintenance,
    push,
    set_aside,
    statuses,
    until_drained,
    until_storing,
)
from tests.wire_client import WireClient

EVENTS_PER_FILE = 10
CONSTRAINT = "23514"


@pytest.fixture(scope="module")
def shared_site(postgres: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with sites.made(postgres, tmp_path_factory.mktemp("poison")) as site:
        yield site


@pytest.fixture(scope="module")
def process(shared_site: Site) -> BrokerProcess:
    return shared_site.start(FILE_BUFFER_EVENTS_PER_FILE=str(EVENTS_PER_FILE))


@pytest.fixture
def wire(process: BrokerProcess) -> Iterator[WireClient]:
    with WireClient.at(process.url) as wire:
        until_storing(wire)
        yield wire
        maintenance(wire, False)


@pytest.fixture
def db(shared_site: Site) -> Iterator[psycopg.Connection[Any]]:
    with shared_site.database.connect() as connection:
        yield connection


def until_drained_of_all_but(wire: WireClient, before: dict[str, int], poison: int) -> None:
    until_drained(wire)
    assert set_aside(wire)["events"] - before["events"] == poison
    assert buffers(wire)["dbHealthy"] is True


def test_poison_in_the_midst_of_a_file_holds_up_nothing_not_even_its_own_partition(
    wire: WireClient, db: psycopg.Connection[Any], fresh_queue: str
):
    poison = [f"poison-{n}-{fresh_queue}" for n in range(3)]
    before = set_aside(wire)
    maintenance(wire, True)
    told = push(wire, fresh_queue, "a1", poison[0], "a2")
    told += push(wire, fresh_queue, "b1", partition="q")
    told += push(wire, fresh_queue, poison[1], "a3", poison[2], "a4")
    assert told == ["buffered"] * 8
    with refusing_segments(db, b"poison-", "never", state=CONSTRAINT):
        maintenance(wire, False)
        until_drained_of_all_but(wire, before, poison=3)
        assert push(wire, fresh_queue, "a5") == ["queued"], "the partition is open again"
    assert log_of(wire, fresh_queue) == {"p": ["a1", "a2", "a3", "a4", "a5"], "q": ["b1"]}


def test_a_poisoned_file_at_the_head_holds_up_none_of_the_fifty_good_files_behind_it(
    wire: WireClient, db: psycopg.Connection[Any], fresh_queue: str
):
    files = 50
    poison = [f"poison-{n}-{fresh_queue}" for n in range(EVENTS_PER_FILE)]
    before = set_aside(wire)
    maintenance(wire, True)
    assert set(push(wire, fresh_queue, *poison, partition="p0")) == {"buffered"}
    numbers = range(files * EVENTS_PER_FILE)
    for start in range(0, len(numbers), EVENTS_PER_FILE):
        part = numbers[start : start + EVENTS_PER_FILE]
        partition = f"p{start // EVENTS_PER_FILE % 5}"
        assert set(push(wire, fresh_queue, *part, partition=partition)) == {"buffered"}
    # The last one may still be open.
    assert buffers(wire)["spool"]["files"] >= files
    with refusing_segments(db, b"poison-", "never", state=CONSTRAINT):
        maintenance(wire, False)
        until_drained_of_all_but(wire, before, poison=EVENTS_PER_FILE)
    log = log_of(wire, fresh_queue)
    assert all(items == sorted(items) for items in log.values())
    assert sorted(n for items in log.values() for n in items) == list(numbers)


def test_while_poison_waits_for_its_verdict_pushes_to_other_partitions_are_stored(
    wire: WireClient, db: psycopg.Connection[Any], fresh_queue: str
):
    before = set_aside(wire)
    maintenance(wire, True)
    push(wire, fresh_queue, f"poison-{fresh_queue}", partition="bad")
    with refusing_segments(db, b"poison-", "never", state=CONSTRAINT):
        maintenance(wire, False)
        assert push(wire, fresh_queue, "good", partition="good") == ["queued"]
        until_drained_of_all_but(wire, before, poison=1)
    assert log_of(wire, fresh_queue) == {"good": ["good"]}


def test_what_was_set_aside_is_stored_once_when_it_is_put_back(
    site: Site, fresh_queue: str, tmp_path: Path
):
    process = site.start()
    poison = [f"poison-{n}" for n in range(3)]
    with WireClient.at(process.url) as wire:
        maintenance(wire, True)
        assert push(wire, fresh_queue, *poison, "good") == ["buffered"] * 4
        with (
            site.database.connect() as db,
            refusing_segments(db, b"poison-", "never", state=CONSTRAINT),
        ):
            maintenance(wire, False)
            until_drained_of_all_but(wire, {"events": 0}, poison=3)
        told = statuses(wire.push(fresh_queue, "again", partition="p", ids=[poison[1]]))
        assert told == ["queued"], "set aside is not stored"
    assert process.stop() == 0
    directory = site.spools / "one"
    for _ in range(2):
        done = drain(site, directory, "--once", "--requeue-failed")
        assert done.returncode == 0, done.stdout + done.stderr
    process = site.start()
    with WireClient.at(process.url) as wire:
        assert set_aside(wire)["events"] == 0
        assert log_of(wire, fresh_queue) == {"p": ["good", "again", "poison-0", "poison-2"]}


def drain(site: Site, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "drain", str(directory), *options],
        cwd=PROJECT_DIR,
        env={
            **os.environ,
            **site.database.environment,
            "QUEEN_DATA_DIR": str(site.directory / "data"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_drain_of_a_directory_that_a_broker_uses_is_refused_and_a_foreign_one_is_emptied(
    site: Site, fresh_queue: str
):
    process = site.start("gone")
    with WireClient.at(process.url) as wire:
        site.gateway.close()
        assert push(wire, fresh_queue, 1, 2, 3) == ["buffered"] * 3
        directory = site.spools / "gone"
        done = drain(site, directory, "--once")
        assert done.returncode != 0
        assert str(directory) in done.stderr and "Traceback" not in done.stderr
    process.kill()
    # The host that wrote it is gone; its directory was carried to another one.
    elsewhere = directory.rename(site.directory / "carried")
    done = drain(site, elsewhere, "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    with WireClient.at(site.start("other", directly=True).url) as wire:
        assert log_of(wire, fresh_queue) == {"p": [1, 2, 3]}
        eventually(lambda: buffers(wire)["pending"] == 0)
