"""The spool's directory: one that cannot be used, one that others use, one that others left.

Method: real brokers whose database goes away, are killed, and find at their start what lies
there.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import PROJECT_DIR, eventually
from tests.process.site import Site, buffers, log_of, push, set_aside, until_drained
from tests.process.test_spool_disk import mount, unmount
from tests.wire_client import WireClient

# --- a start that is refused ----------------------------------------------------------------------


def refusal(site: Site, **environment: str) -> str:
    """What a broker says that does not start."""
    done = subprocess.run(
        [sys.executable, "manage.py", "broker"],
        cwd=PROJECT_DIR,
        env={
            **os.environ,
            **site.database.environment,
            "PORT": "0",
            "QUEEN_SERVER_ID": "refused",
            "QUEEN_DATA_DIR": str(site.directory / "data"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert "listening on" not in done.stdout
    return done.stderr


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory in which this account can make nothing."""
    directory = tmp_path / "read-only"
    if os.geteuid() != 0:
        directory.mkdir(mode=0o500)
        yield directory
    elif mount(directory, "size=1m", "ro"):
        yield directory
        unmount(directory)
    else:
        yield Path("/proc/sys/kernel")


def test_a_directory_that_cannot_be_written_stops_the_start(site: Site, read_only: Path):
    for directory in (read_only, read_only / "below"):
        said = refusal(site, FILE_BUFFER_DIR=str(directory))
        assert "FATAL: the spool directory" in said and str(directory) in said


def test_a_file_where_the_directory_should_be_stops_the_start(site: Site, tmp_path: Path):
    there = tmp_path / "a file"
    there.write_text("not a directory")
    for directory in (there, there / "below"):
        said = refusal(site, FILE_BUFFER_DIR=str(directory))
        assert "FATAL: the spool directory" in said and str(directory) in said
    assert there.read_text() == "not a directory"


def test_a_second_broker_on_the_same_directory_is_refused_and_the_first_goes_on(
    site: Site, tmp_path: Path, fresh_queue: str
):
    directory = str(tmp_path / "shared")
    first = site.start(FILE_BUFFER_DIR=directory)
    said = refusal(site, FILE_BUFFER_DIR=directory)
    assert "FATAL" in said and directory in said
    with WireClient.at(first.url) as wire:
        site.gateway.close()
        assert push(wire, fresh_queue, 1) == ["buffered"]
        first.kill()
    site.gateway.open()
    # A crash leaves no lock behind.
    with WireClient.at(site.start("two", FILE_BUFFER_DIR=directory).url) as wire:
        until_drained(wire)
        assert log_of(wire, fresh_queue) == {"p": [1]}


# --- what lies there at the start -----------------------------------------------------------------


def spooled(site: Site, name: str, queue: str, *payloads: int) -> Path:
    """A broker of that name spools them and is killed; its directory."""
    process = site.start(name)
    with WireClient.at(process.url) as wire:
        site.gateway.close()
        assert set(push(wire, queue, *payloads)) == {"buffered"}
    process.kill()
    site.gateway.open()
    return site.spools / name


def test_a_broker_drains_what_one_of_another_name_left_on_this_host(site: Site, fresh_queue: str):
    left = spooled(site, "before", fresh_queue, 1, 2, 3)
    with WireClient.at(site.start("after").url) as wire:
        until_drained(wire)
        assert log_of(wire, fresh_queue) == {"p": [1, 2, 3]}
        eventually(lambda: not list(left.glob("*.buf")) and not list(left.glob("*.tmp")))
        assert push(wire, fresh_queue, 4) == ["queued"]


def test_files_are_drained_in_order_although_the_clock_went_back_between_them(
    site: Site, fresh_queue: str
):
    directory = spooled(site, "one", fresh_queue, 1, 2)
    site.gateway.close()
    process = site.start(ready=False)
    process.kill()
    # As if the clock had been thirty years ahead when that was written.
    [finished] = directory.glob("*.buf")
    ahead = f"{int(finished.name[:13]) + 30 * 365 * 86_400_000:013d}{finished.name[13:]}"
    finished.rename(directory / ahead)
    process = site.start(ready=False)
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, 3, 4) == ["buffered"] * 2
        process.kill()
    process = site.start(ready=False)
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, 5) == ["buffered"]
        names = sorted(path.name for path in directory.glob("*.???") if path.name[:1].isdigit())
        assert names[0] == ahead and len(names) >= 3
        site.gateway.open()
        until_drained(wire)
        assert log_of(wire, fresh_queue) == {"p": [1, 2, 3, 4, 5]}


def test_damage_in_a_file_costs_the_message_it_hit_and_is_set_aside_and_counted(
    site: Site, fresh_queue: str
):
    directory = spooled(site, "one", fresh_queue, *range(10))
    [path] = [*directory.glob("*.tmp"), *directory.glob("*.buf")]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x01
    path.write_bytes(content)
    with WireClient.at(site.start().url) as wire:
        until_drained(wire)
        log = log_of(wire, fresh_queue)["p"]
        assert log == sorted(log) and len(log) == 9
        assert set_aside(wire)["files"] == 1
        assert push(wire, fresh_queue, 10) == ["queued"]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_an_unfinished_file_is_finished_and_drained_by_the_next_start(
    site: Site, fresh_queue: str, signum: int
):
    process = site.start()
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, 1) == ["queued"]
        site.gateway.close()
        assert push(wire, fresh_queue, 2, 3) == ["buffered"] * 2
    process.process.send_signal(signum)
    assert process.wait() in (0, -signal.SIGKILL)
    process = site.start(ready=False)
    with WireClient.at(process.url) as wire:
        assert push(wire, fresh_queue, 4) == ["buffered"]
        assert buffers(wire)["pending"] == 3
        site.gateway.open()
        until_drained(wire)
        assert push(wire, fresh_queue, 5) == ["queued"]
        assert log_of(wire, fresh_queue) == {"p": [1, 2, 3, 4, 5]}
