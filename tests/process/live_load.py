"""What a thousand viewers of the dashboard cost a push, in rate and in latency.

    python -m tests.process.live_load [--viewers 1000] [--rounds 6] [--seconds 10] [--server daphne]

starts a durable PostgreSQL and a broker of its own and pushes single messages in a closed loop
from a few connections. By turns nobody watches and --viewers sockets are open, each with a session
of its own; the connecting is not measured. Viewers are a process of their own, which does nothing
with a picture but count and confirm it, but takes its part of this machine too: on one with few
processors the cost that is told is that of both ends.

PASS when the median over the rounds of the rate falls, and of the median latency rises, by less
than 5 %, by turns compared with the round before.
"""

import argparse
import asyncio
import base64
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django

from queen_project import embedded
from tests.harness import PROJECT_DIR, BrokerProcess, KillablePostgres, prepare_environment

COST_MAX = 0.05
CONFIRM_EVERY = 8
CONNECT_TOGETHER = 20
SETTLE_S = 3.0
START_S = 300.0


class Viewer(asyncio.Protocol):
    """One open socket: reads frames, says now and then how many."""

    def __init__(self, address: str, session: str) -> None:
        self._hello = (
            f"GET /console/live HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n"
            f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n"
            f"Cookie: sessionid={session}\r\n\r\n"
        ).encode()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pictures = self.bytes = 0
        self._buffer = bytearray()
        self._left = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._hello)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(bytes(self._buffer[:200])))

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        if self._left >= len(data):
            self._left -= len(data)
            return
        self._buffer += memoryview(data)[self._left :]
        self._left = 0
        if not self.opened.done() and not self._open():
            return
        while self._frame():
            pass

    def _open(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        if not self._buffer.startswith(b"HTTP/1.1 101"):
            self.opened.set_exception(ConnectionError(bytes(self._buffer[:200])))
            return False
        del self._buffer[: end + 4]
        self.opened.set_result(None)
        return True

    def _frame(self) -> bool:
        """Whether there was the head of a frame; its payload is skipped, come or to come."""
        have = len(self._buffer)
        if have < 2:
            return False
        kind, length, head = self._buffer[0] & 15, self._buffer[1] & 127, 2
        if length == 126:
            head, length = 4, int.from_bytes(self._buffer[2:4], "big")
        elif length == 127:
            head, length = 10, int.from_bytes(self._buffer[2:10], "big")
        if have < head:
            return False
        whole = head + length
        self._left = max(whole - have, 0)
        del self._buffer[:whole]
        if kind == 2:
            self.pictures += 1
            if self.pictures % CONFIRM_EVERY == 0:
                self._confirm()
        return True

    def _confirm(self) -> None:
        told = str(self.pictures).encode()
        self._transport.write(bytes([0x81, 0x80 | len(told), 0, 0, 0, 0]) + told)

    def close(self) -> None:
        self._transport.close()


async def watch(port: int, sessions: list[str]) -> None:
    """The viewers' process: told `open` and `close` on its input, says what it has done."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    viewers: list[Viewer] = []
    while order := (await reader.readline()).strip():
        if order == b"open":
            for first in range(0, len(sessions), CONNECT_TOGETHER):
                some = sessions[first : first + CONNECT_TOGETHER]
                made = await asyncio.gather(*(_viewer(port, one) for one in some))
                viewers += made
        elif order == b"close":
            for one in viewers:
                one.close()
            viewers = []
        pictures = sum(one.pictures for one in viewers)
        size = sum(one.bytes for one in viewers)
        cpu = time.process_time()
        print(json.dumps([len(viewers), pictures, size, cpu]), flush=True)


async def _viewer(port: int, session: str) -> Viewer:
    loop = asyncio.get_running_loop()
    _, viewer = await loop.create_connection(
        lambda: Viewer(f"127.0.0.1:{port}", session), "127.0.0.1", port
    )
    await asyncio.wait_for(viewer.opened, 60)
    return viewer


@dataclass(slots=True)
class Round:
    viewers: int
    rate: float
    p50_ms: float
    p99_ms: float
    broker_cpu_s: float
    seconds: float

    @property
    def cpu_a_push(self) -> float:
        """What other users of the machine change least."""
        return self.broker_cpu_s / (self.rate * self.seconds)


async def push_for(port: int, seconds: float, connections: int) -> list[float]:
    """Single messages, one after the other on each connection; how long each took."""
    took: list[float] = []
    until = time.perf_counter() + seconds

    async def producer(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        item = {"queue": "load", "partition": str(number), "payload": {"n": number}}
        body = json.dumps({"items": [item]}).encode()
        head = f"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        while (began := time.perf_counter()) < until:
            writer.write(head.encode() + body)
            told = await reader.readuntil(b"\r\n\r\n")
            assert told.startswith(b"HTTP/1.1 201"), told
            size = int(told.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(size)
            took.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(producer(number) for number in range(connections)))
    return took


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(broker: BrokerProcess, viewers: int, seconds: float, connections: int) -> Round:
    before, began = cpu_s(broker.pid), time.perf_counter()
    took = sorted(asyncio.run(push_for(broker.port, seconds, connections)))
    passed_s = time.perf_counter() - began
    return Round(
        viewers=viewers,
        rate=len(took) / passed_s,
        p50_ms=1000 * took[len(took) // 2],
        p99_ms=1000 * took[int(0.99 * len(took))],
        broker_cpu_s=cpu_s(broker.pid) - before,
        seconds=passed_s,
    )


class Crowd:
    """The viewers' process."""

    def __init__(self, port: int, sessions: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.process.live_load", "--watch", str(port)],
            cwd=PROJECT_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(json.dumps(sessions))

    def tell(self, order: str) -> list[float]:
        self._say(order)
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def run(options: argparse.Namespace, postgres: KillablePostgres, directory: Path) -> bool:
    prepare_environment()
    django.setup()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # which the setup has raised
    from tests.browser.operators import make_operator, make_session  # which needs the models

    broker = BrokerProcess(
        directory / "broker.log",
        {**postgres.database.direct_environment, "QUEEN_BIND_ADDR": "127.0.0.1"},
        server=options.server,
        start_timeout_s=START_S,
    )
    try:
        with postgres.database.connect() as db:
            operator = make_operator(db, superuser=True)
            sessions = [make_session(db, operator) for _ in range(options.viewers)]
        crowd = Crowd(broker.port, sessions)
        measure(broker, 0, 5, options.connections)  # what is new is slow
        rounds = [turn(broker, crowd, options) for _ in range(options.rounds)]
        crowd.end()
    finally:
        broker.stop()
    return told(rounds)


def turn(
    broker: BrokerProcess, crowd: Crowd, options: argparse.Namespace
) -> tuple[Round, Round, float]:
    """Without viewers and with them; and how many pictures a second they got."""
    alone = measure(broker, 0, options.seconds, options.connections)
    began = time.perf_counter()
    opened, *_ = crowd.tell("open")
    print(f"  {opened} viewers connected in {time.perf_counter() - began:.1f} s")
    time.sleep(SETTLE_S)
    _, before, before_bytes, before_cpu = crowd.tell("look")
    watched = measure(broker, options.viewers, options.seconds, options.connections)
    _, after, after_bytes, after_cpu = crowd.tell("look")
    crowd.tell("close")
    time.sleep(SETTLE_S)
    pictures = after - before
    for one in (alone, watched):
        print(
            f"  {one.viewers:5d} viewers: {one.rate:8.0f} pushes/s, p50 {one.p50_ms:.2f} ms,"
            f" p99 {one.p99_ms:.2f} ms, broker {one.broker_cpu_s:.2f} s of processor time"
        )
    print(
        f"        pictures: {pictures / options.seconds:.0f}/s,"
        f" {(after_bytes - before_bytes) / max(pictures, 1):.0f} bytes each,"
        f" the viewers' own process {after_cpu - before_cpu:.2f} s"
    )
    return alone, watched, pictures / options.seconds


def told(rounds: list[tuple[Round, Round, float]]) -> bool:
    rate = statistics.median(1 - b.rate / a.rate for a, b, _ in rounds)
    p50 = statistics.median(b.p50_ms / a.p50_ms - 1 for a, b, _ in rounds)
    p99 = statistics.median(b.p99_ms / a.p99_ms - 1 for a, b, _ in rounds)
    shown = statistics.median(shown for *_, shown in rounds)
    cpu = statistics.median(b.cpu_a_push / a.cpu_a_push - 1 for a, b, _ in rounds)
    passed = rate < COST_MAX and p50 < COST_MAX and shown > 0
    print(
        f"processor time of the broker for a push {100 * cpu:+.1f} %,"
        f" rate {-100 * rate:+.1f} %, median latency {100 * p50:+.1f} %, p99 {100 * p99:+.1f} %,"
        f" {shown:.0f} pictures/s: {'PASS' if passed else 'FAIL'}"
    )
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--viewers", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--server", choices=["uvicorn", "daphne"], default="uvicorn")
    parser.add_argument("--watch", type=int, help=argparse.SUPPRESS)  # as the viewers' process
    options = parser.parse_args()
    if options.watch is not None:
        asyncio.run(watch(options.watch, json.loads(sys.stdin.readline())))
        return 0
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the broker inherits it
    directory = Path(tempfile.mkdtemp(prefix="queen-live-", dir="/tmp"))
    directory.chmod(0o711)
    postgres = KillablePostgres(directory)
    try:
        return 0 if run(options, postgres, directory) else 1
    finally:
        postgres.remove()
        assert not embedded.is_alive(directory)


if __name__ == "__main__":
    sys.exit(main())
