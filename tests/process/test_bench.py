"""The bench measures what it says, finds out a server that lies, and leaves nothing behind.

Method: short runs against the worker's own broker; for wrong answers, a server of a few
lines that says what no broker should.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from brokers.bench import payloads, report, wire
from brokers.bench.load import Load
from brokers.bench.roles import Lead, Producer
from brokers.bench.rows import Row
from brokers.bench.tally import Tally
from tests import harness

RUN_TIMEOUT_S = 120
QUEUED = b'[{"status":"queued"}]'


def bench(broker: harness.BrokerProcess, *arguments: str) -> "subprocess.Popen[str]":
    to = ["--url", broker.url, "--pid", str(broker.pid)]
    return subprocess.Popen(
        [sys.executable, "manage.py", "bench", *to, *arguments],
        cwd=harness.PROJECT_DIR,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_bench_starts_a_broker_of_several_workers_and_loads_them_all(
    database: harness.Database, tmp_path: Path
):
    file = tmp_path / "bench.json"
    only = ("--only", "push_b1_8", "--seconds", "0.4", "--no-direct", "--json", str(file))
    done = subprocess.run(
        [sys.executable, "manage.py", "bench", "--workers", "2", *only],
        cwd=harness.PROJECT_DIR,
        env=os.environ | database.environment | {"DB_POOL_SIZE": "8"},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = json.loads(file.read_text())["rows"]
    assert row["rate"] > 0 and row["broker_us"] > 0 and not row["errors"]


def queues_of_bench(broker: harness.BrokerProcess) -> list[str]:
    text = httpx.get(f"{broker.url}/api/v1/resources/queues").text
    return re.findall(r"bench-[0-9a-f]{8}-[\w-]+", text)


def test_a_short_run_has_figures_their_twins_and_no_errors(
    broker: harness.BrokerProcess, tmp_path: Path
):
    file = tmp_path / "bench.json"
    only = ("--only", "push_b10,pop_b1,e2e_b100", "--seconds", "0.4", "--json", str(file))
    process = bench(broker, *only)
    table, said = process.communicate(timeout=RUN_TIMEOUT_S)
    assert process.returncode == 0, table + said

    found = json.loads(file.read_text())
    assert found["facts"]["fsync"] == "off"
    assert found["facts"]["full_page_writes"] in ("on", "off")
    assert found["facts"]["synchronous_commit"] in ("on", "off")
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == ["push_b10", "pop_b1", "e2e_b100"]
    assert all(row["rate"] > 0 and not row["errors"] for row in rows.values())
    assert all(rows[name]["ratio"] > 0 for name in ("push_b10", "pop_b1"))
    assert all(rows[name]["combined_ratio"] > 0 for name in ("push_b10", "pop_b1"))
    assert all(row["broker_us"] > 0 for row in rows.values())
    assert "fsync=off" in table
    assert "push batch 10, 8 producers" in table
    assert not queues_of_bench(broker)


def test_a_bench_that_is_told_to_stop_stops_its_processes_and_deletes_its_queues(
    broker: harness.BrokerProcess, eventually: Callable[..., Any]
):
    process = bench(broker, "--only", "push_b1_8", "--seconds", "100")
    try:
        workers = eventually(lambda: children_of(process.pid), 60)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=RUN_TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 143, said
    # One that was just being born when the signal came ends with its parent's pipe.
    eventually(lambda: not [pid for pid in workers if Path(f"/proc/{pid}").exists()])
    assert not queues_of_bench(broker)


def children_of(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


@pytest.mark.parametrize("arguments", [["--url", "http://192.0.2.1:6632"], ["--only", "nonsense"]])
def test_a_bench_refuses_what_is_not_on_this_machine_or_not_there(arguments: list[str]):
    done = subprocess.run(
        [sys.executable, "manage.py", "bench", *arguments],
        cwd=harness.PROJECT_DIR,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "loopback" in done.stderr or "no scenario" in done.stderr


class Server:
    """Answers every request on its one connection with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._answer = answer
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            while connection.recv(65536):
                # In two pieces: an answer is not one read.
                connection.sendall(self._answer[:20])
                time.sleep(0.002)
                connection.sendall(self._answer[20:])

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def tally_of() -> Iterator[Callable[[bytes], Tally]]:
    """What a producer makes of a server that always answers this."""
    servers: list[Server] = []

    def run(answer: bytes) -> Tally:
        servers.append(Server(answer))
        tally = Tally()
        request = wire.post("/api/v1/push", payloads.push_body([b"{}"]))
        load = Load("127.0.0.1", servers[-1].port, [Producer([request], 1, tally, Lead())])
        now = time.monotonic()
        try:
            load.run(now, now + 0.2, on_window=lambda: None)
        finally:
            load.close()
        return tally

    yield run
    for server in servers:
        server.close()


def answer(status: str, body: bytes, *heads: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *heads, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def test_what_is_queued_is_counted(tally_of: Callable[[bytes], Tally]):
    tally = tally_of(answer("201 Created", QUEUED, "x-first: yes"))
    assert tally.messages > 1
    assert not tally.errors


@pytest.mark.parametrize(
    "wrong",
    [
        answer("201 Created", b'[{"status":"failed","error":"..."}]'),
        answer("201 Created", b'[{"status":"buffered"}]'),
        answer("500 Internal Server Error", QUEUED),
    ],
    ids=["failed", "buffered", "500"],
)
def test_what_is_not_queued_is_an_error_and_not_a_rate(
    tally_of: Callable[[bytes], Tally], wrong: bytes
):
    tally = tally_of(wrong)
    assert tally.errors == 1
    assert tally.messages_in_all == 0


@pytest.mark.parametrize(
    "wrong",
    [
        answer("204 No Content", b""),
        answer("201 Created", QUEUED) + b"[",
        b"HTTP/1.1 201 Created\r\n\r\n" + QUEUED,
        b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"<html>" + b" " * 40 + b"\r\n\r\n",
    ],
    ids=["204 with a length", "too long", "no length", "chunked", "not HTTP"],
)
def test_an_answer_that_is_framed_wrongly_ends_the_run(
    tally_of: Callable[[bytes], Tally], wrong: bytes
):
    with pytest.raises(wire.Misframed):
        tally_of(wrong)


def test_an_answer_is_not_taken_before_it_is_whole():
    whole = answer("201 Created", QUEUED)
    assert wire.split(whole) == (b"201", QUEUED)
    assert not any(wire.split(whole[:end]) for end in range(len(whole)))
    assert wire.split(b"HTTP/1.1 204 No Content\r\n\r\n") == (b"204", b"")


@pytest.mark.parametrize("size", [64, 256, 5000])
def test_payloads_are_json_of_the_size_that_is_said(size: int):
    assert len(payloads.payload(size)) == size
    assert json.loads(payloads.payload(size))["kind"] == "bench"


def test_a_stamped_payload_tells_when_it_was_sent():
    data = payloads.stamped(123456789)
    assert len(data) == payloads.PAYLOAD_BYTES
    json.loads(data)
    assert payloads.stamp_of(b'{"messages":[{"data":' + data + b"}]}") == 123456789


def test_an_error_is_in_the_table_below_its_row():
    rows = [Row(name="one", what="first", rate=1234.5), Row(name="two", what="x", errors=["oops"])]
    lines = report.table(rows).splitlines()
    assert [line.split()[0] for line in lines] == ["scenario", "one", "two", "ERROR"]
    assert "1,234" in lines[1]
