"""The broker under test: started here or running already, and its control routes.

Imports wire-free standard HTTP only: nothing here is measured. Used by instrument.py.
"""

import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from brokers.bench.crew import PROJECT_DIR, BenchError

LISTENING = re.compile(r"listening on https?://\S+:(\d+)")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 40.0
CALL_TIMEOUT_S = 120.0


class Target:
    """Where the broker listens, and what one may ask it beside the load."""

    def __init__(self, url: str, pid: int | None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname not in LOOPBACK:
            raise BenchError(f"{url}: the bench loads brokers on the loopback interface only")
        self.host, self.port = parts.hostname, parts.port or 80
        self.url = url
        self.pid = pid

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=CALL_TIMEOUT_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        until = time.monotonic() + timeout_s
        while True:
            try:
                if self._all_workers_ready():
                    return
            except OSError as error:
                if time.monotonic() > until:
                    raise BenchError(f"no broker at {self.url}: {error}") from error
            if time.monotonic() > until:
                raise BenchError(f"the broker at {self.url} does not become ready")
            time.sleep(0.1)

    def _all_workers_ready(self) -> bool:
        """Whichever of them is asked: one that has no database yet would buffer its pushes."""
        if self.call("GET", "/readyz")[0] != 200:
            return False
        status, body = self.call("GET", "/api/v1/status/buffers")
        return status == 200 and json.loads(body)["dbHealthy"] is True

    def configure(self, queue: str, **options: Any) -> None:
        status, body = self.call("POST", "/api/v1/configure", {"queue": queue, "options": options})
        if status != 200:
            raise BenchError(f"configure: {status} {body[:200]!r}")

    def push_one(self, queue: str, partition: str, payload: Any) -> None:
        item = {"queue": queue, "partition": partition, "payload": payload}
        status, body = self.call("POST", "/api/v1/push", {"items": [item]})
        if status != 201 or b'"queued"' not in body:
            raise BenchError(f"push: {status} {body[:200]!r}")

    def delete(self, queue: str) -> bool:
        path = f"/api/v1/resources/queues/{quote(queue, safe='')}"
        return self.call("DELETE", path)[0] == 200

    def metrics(self) -> dict[str, float]:
        """Every sample of the exposition, labels summed away."""
        status, body = self.call("GET", "/metrics/prometheus")
        if status != 200:
            raise BenchError(f"metrics: {status}")
        found: dict[str, float] = {}
        for line in body.decode().split("\n"):
            name, _, value = line.rpartition(" ")
            if name and not line.startswith("#"):
                bare = name.partition("{")[0]
                found[bare] = found.get(bare, 0.0) + float(value)
        return found


@contextmanager
def started_broker(workers: int | None = None) -> Iterator[Target]:
    """`manage.py broker` on a free port of the loopback interface; stopped at the end."""
    command = [sys.executable, "-u", "manage.py", "broker", "--port", "0", "--bind", "127.0.0.1"]
    if workers is not None:
        command += ["--workers", str(workers)]
    with tempfile.NamedTemporaryFile(prefix="queen-bench-", suffix=".log") as log:
        process = subprocess.Popen(
            command,
            cwd=PROJECT_DIR,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A Ctrl-C is the bench's: the broker stays until its queues are deleted.
            start_new_session=True,
        )
        try:
            port = _await_port(process, Path(log.name))
            target = Target(f"http://127.0.0.1:{port}", process.pid)
            try:
                target.wait_ready()
            except BenchError as error:
                raise BenchError(f"{error}:\n{Path(log.name).read_text()[-3000:]}") from error
            yield target
        finally:
            _stop(process)


def _await_port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    until = time.monotonic() + START_TIMEOUT_S
    while True:
        text = log.read_text(errors="replace")
        found = LISTENING.search(text)
        if found:
            return int(found[1])
        if process.poll() is not None or time.monotonic() > until:
            raise BenchError(f"the broker did not start:\n{text[-3000:]}")
        time.sleep(0.05)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
