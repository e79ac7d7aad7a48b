"""The disk under the spool is full: what is refused, what is held, and that it heals by itself.

Method: real brokers whose database is away. The small disk is a tmpfs where this process may
mount one; elsewhere it is a limit on how long a file of the broker may grow, which its writes
meet the same way. Both are lifted while the broker runs.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import BrokerProcess, eventually
from tests.process.site import (
    Site,
    buffers,
    log_of,
    maintenance,
    push,
    set_aside,
    statuses,
    until_drained,
)
from tests.wire_client import WireClient, expect

SMALL = 1 << 20
LARGE_TEXT = "x" * 40_000


def mount(directory: Path, *options: str) -> bool:
    """A tmpfs there; False where that is not allowed."""
    directory.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(directory)],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def unmount(directory: Path) -> None:
    if os.path.ismount(directory):
        subprocess.run(["umount", "-l", str(directory)], check=True)


@contextmanager
def limited_files(process: BrokerProcess, length: int) -> Iterator[None]:
    """No file of the process can grow beyond that length meanwhile."""
    unlimited = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (length, unlimited[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)


class SmallDisk:
    """Somewhere for a spool that is soon full. `free` makes room while the broker runs."""

    def __init__(self, path: Path, *, small: bool) -> None:
        self.path = path
        self.mounted = small and mount(path, f"size={2 * SMALL}")
        if self.mounted:
            (path / "ballast").write_bytes(b"x" * SMALL)
        self.spool = path / "spool"

    def fill(self, process: BrokerProcess) -> None:
        """With what the broker can still write, it is full soon."""
        if not self.mounted:
            # Less than a message: another file would do for a file that is too long.
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))

    def free(self, process: BrokerProcess) -> None:
        if self.mounted:
            (self.path / "ballast").unlink()
        else:
            limits = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)


@pytest.fixture(params=["a small disk", "a limit on files"])
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk", small=request.param == "a small disk")
    yield disk
    unmount(disk.path)


def push_until_refused(wire: WireClient, queue: str, *, begin: int = 0) -> tuple[list[int], str]:
    """Large messages until one fails: the numbers of those that were buffered, and its error."""
    held: list[int] = []
    for n in range(begin, 200):
        [row] = wire.push(queue, [n, LARGE_TEXT], partition="p", ids=[str(n)])
        if row["status"] == "failed":
            return held, row["error"]
        assert row["status"] == "buffered"
        held.append(n)
    raise AssertionError("the disk is never full")


def test_a_full_disk_fails_pushes_and_holds_the_rest_and_takes_more_when_there_is_room(
    site: Site, small_disk: SmallDisk, fresh_queue: str
):
    process = site.start(FILE_BUFFER_DIR=str(small_disk.spool))
    with WireClient.at(process.url) as wire:
        site.gateway.close()
        assert push(wire, fresh_queue, [0, LARGE_TEXT]) == ["buffered"]
        small_disk.fill(process)
        held, error = push_until_refused(wire, fresh_queue, begin=1)
        assert "spool" in error
        # Two that are too large, and a small one that may still fit: none is the others' victim.
        told = statuses(wire.push(fresh_queue, *[[n, LARGE_TEXT] for n in (300, 301)]))
        assert told == ["failed", "failed"]
        assert wire.get("/livez").status_code == 200
        assert buffers(wire)["failed"] >= 3
        small_disk.free(process)
        eventually(lambda: push(wire, fresh_queue, "room", partition="q") == ["buffered"])
        assert push(wire, fresh_queue, [1000, LARGE_TEXT]) == ["buffered"]
        site.gateway.open()
        until_drained(wire)
        log = log_of(wire, fresh_queue)
        assert [n for n, _ in log["p"]] == [0, *held, 1000]
        assert log["q"] == ["room"]
        assert set_aside(wire)["files"] == 0
        assert push(wire, fresh_queue, "after") == ["queued"]


def test_what_a_full_disk_holds_is_delivered_after_a_crash(
    site: Site, small_disk: SmallDisk, fresh_queue: str
):
    environment = {"FILE_BUFFER_DIR": str(small_disk.spool)}
    process = site.start(**environment)
    with WireClient.at(process.url) as wire:
        site.gateway.close()
        assert push(wire, fresh_queue, [0, LARGE_TEXT]) == ["buffered"]
        small_disk.fill(process)
        held, _ = push_until_refused(wire, fresh_queue, begin=1)
    process.kill()
    site.gateway.open()
    with WireClient.at(site.start(**environment).url) as wire:
        until_drained(wire)
        assert [n for n, _ in log_of(wire, fresh_queue)["p"]] == [0, *held]


def test_a_bound_of_ours_fails_pushes_before_the_disk_is_full(site: Site, fresh_queue: str):
    process = site.start(FILE_BUFFER_MAX_BYTES=str(SMALL))
    with WireClient.at(process.url) as wire:
        site.gateway.close()
        held, error = push_until_refused(wire, fresh_queue)
        assert "full" in error
        size = sum(path.stat().st_size for path in (site.spools / "one").glob("*.*"))
        assert SMALL // 2 < size <= SMALL
        site.gateway.open()
        until_drained(wire)
        assert push(wire, fresh_queue, "after") == ["queued"]
        assert [one[0] for one in log_of(wire, fresh_queue)["p"][:-1]] == held


def test_a_floor_of_free_space_fails_pushes_while_it_is_not_there(site: Site, fresh_queue: str):
    free = shutil.disk_usage(site.directory).free
    process = site.start(FILE_BUFFER_MIN_FREE_BYTES=str(2 * free))
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, "stored") == ["queued"], "the floor is the spool's alone"
        site.gateway.close()
        assert push(wire, fresh_queue, "refused") == ["failed"]
        site.gateway.open()
        eventually(lambda: push(wire, fresh_queue, "stored later") == ["queued"], 30.0)


def test_in_push_maintenance_a_spool_write_that_fails_is_a_500_that_tells_each_item(
    site: Site, fresh_queue: str
):
    process = site.start()
    with WireClient.at(process.url) as wire:
        maintenance(wire, True)
        assert push(wire, fresh_queue, "held") == ["buffered"]
        with limited_files(process, 1):
            answer = expect(wire.post_items({"queue": fresh_queue, "payload": 1}), 500)
            assert statuses(answer.json()) == ["failed"]
        told = eventually(lambda: statuses(wire.push(fresh_queue, "held too", partition="p")))
        assert told == ["buffered"]
        maintenance(wire, False)
        until_drained(wire)
        assert log_of(wire, fresh_queue) == {"p": ["held", "held too"]}
