"""The door on both real servers: what a server does with our answers is part of the wire.

Method: our front, uvicorn and daphne as processes on a free port, the door with stand-in handlers,
and a client that writes and reads bytes, because libraries hide what is judged here.
"""

import asyncio
import gzip
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

APPLICATION = """
import asyncio, json
from types import SimpleNamespace
from brokers.api import hot, wire
from brokers.api.door import Door
from brokers.config import Config, ServerConfig
from brokers.flow.recent import Recent

config = Config(server=ServerConfig(body_bytes_max=100_000))
broker = SimpleNamespace(
    config=config,
    ready=True,
    access=SimpleNamespace(required=False),
    recent=Recent(0.0),
    announce=SimpleNamespace(tell=lambda hint: None),
)
seen = {"cancelled": 0, "handed_back": 0}

async def echo(call):
    said = {"route": call.route.handler, "params": call.params, "body": len(call.body)}
    return wire.Reply(200, json.dumps(said).encode())

async def nothing(call):
    return wire.NO_CONTENT

async def tell(call):
    return wire.Reply(200, json.dumps(seen).encode())

async def wait(call):
    async def work():
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen["cancelled"] += 1
            raise
    await wire.unless_gone(call.client, work())
    return wire.NO_CONTENT

async def django(scope, receive, send):
    body = (await receive())["body"]
    said = {"path": scope["path"], "params": scope["queen"]["params"], "body": body.decode()}
    await wire.send_json(send, 200, json.dumps(said).encode())

handlers = dict.fromkeys(hot.HANDLERS, echo)
handlers |= {"pop_queue": nothing, "pop_discovery": wait, "status": tell}
application = Door(django, lambda: broker, handlers=handlers, soon={})
"""

FRONT = """
import asyncio, socket, sys
from door_application import application, broker
from queen_project.serving_uvicorn import UvicornFront

async def main():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    listener.setblocking(False)
    front = UvicornFront(application, application, listener, broker.config)
    await front.open()
    await front.wait_closed()

asyncio.run(main())
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module", params=["ours", "uvicorn", "daphne"])
def port(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("door")
    (directory / "door_application.py").write_text(APPLICATION)
    (directory / "door_front.py").write_text(FRONT)
    root = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join([str(directory), str(root), os.environ.get("PYTHONPATH", "")])
    number = free_port()
    command = {
        "ours": ["door_front", str(number)],
        "uvicorn": ["uvicorn", "--host", "127.0.0.1", "--port", str(number), "--lifespan", "off"],
        "daphne": ["daphne", "-b", "127.0.0.1", "-p", str(number)],
    }[request.param]
    process = subprocess.Popen(
        [sys.executable, "-m", *command, "door_application:application"],
        env=os.environ | {"PYTHONPATH": paths},
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=(directory / "log").open("wb"),
    )
    try:
        wait_for_listener(number, process, directory / "log")
        yield number
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def wait_for_listener(number: int, process: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            probe.settimeout(0.05)
            if probe.connect_ex(("127.0.0.1", number)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the server does not listen")


class Wire:
    """One connection, kept alive, in bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: bytes, *, head: bool = False) -> tuple[int, dict, bytes]:
        self.writer.write(request)
        async with asyncio.timeout(10):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            headers = {}
            for line in lines[1:-2]:
                name, _, value = line.partition(b":")
                headers[name.strip().lower()] = value.strip()
            length = 0 if head else int(headers.get(b"content-length", 0))
            return int(lines[0].split()[1]), headers, await self.reader.readexactly(length)

    async def get(self, path: bytes, method: bytes = b"GET") -> tuple[int, dict, bytes]:
        return await self.ask(
            method + b" " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n", head=method == b"HEAD"
        )


def posted(path: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: x", *headers]
    if not any(b"ransfer-" in header for header in headers):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.fixture
async def connection(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield Wire(reader, writer)
    writer.close()


async def test_a_204_has_no_body_and_no_length_and_keeps_the_connection_usable(connection):
    for _ in range(3):
        status, headers, _ = await connection.get(b"/api/v1/pop/queue/q")
        assert status == 204
        assert b"content-length" not in headers
        assert b"transfer-encoding" not in headers
        assert headers.get(b"connection", b"").lower() != b"close"
        # A stray byte of a body would spoil the next answer on this connection.
        status, _, body = await connection.get(b"/health")
        assert (status, json.loads(body)["route"]) == (200, "health")


async def test_names_in_paths_arrive_as_they_were_meant(connection):
    _, _, body = await connection.get(b"/api/v1/pop/queue/a%2Fb/partition/..%252F?wait=true")
    assert json.loads(body)["params"] == {"queue": "a/b", "partition": "..%2F"}
    _, _, body = await connection.get(b"/api/v1/resources/queues/x%2Fdepth")
    assert json.loads(body) == {
        "path": "/_queen/queue_detail",
        "params": {"queue": "x/depth"},
        "body": "",
    }
    _, _, body = await connection.get(b"/api/v1/pop/queue//partition/")
    assert json.loads(body)["params"] == {"queue": "", "partition": ""}


async def test_an_unknown_or_internal_path_is_404_and_a_wrong_method_405(connection):
    for path in (b"/api/nope", b"/_queen/configure", b"/%5Fqueen/configure"):
        status, _, body = await connection.get(path)
        assert (status, json.loads(body)["code"]) == (404, "no_such_route")
    status, headers, _ = await connection.get(b"/api/v1/push")
    assert (status, headers[b"allow"]) == (405, b"POST")
    status, _, body = await connection.get(b"/health", b"HEAD")
    assert (status, body) == (200, b"")
    assert (await connection.get(b"/livez"))[0] == 200


async def test_sized_chunked_and_compressed_bodies_arrive(connection):
    body = b"x" * 50_000
    status, _, answer = await connection.ask(posted(b"/api/v1/push", body))
    assert (status, json.loads(answer)["body"]) == (200, 50_000)
    chunked = b"".join(b"%x\r\n%s\r\n" % (5000, body[:5000]) for _ in range(10)) + b"0\r\n\r\n"
    request = posted(b"/api/v1/push", chunked, b"Transfer-Encoding: chunked")
    status, _, answer = await connection.ask(request)
    assert (status, json.loads(answer)["body"]) == (200, 50_000)
    request = posted(b"/api/v1/push", gzip.compress(body), b"Content-Encoding: gzip")
    status, _, answer = await connection.ask(request)
    assert (status, json.loads(answer)["body"]) == (200, 50_000)
    request = posted(b"/api/v1/configure", gzip.compress(b"{}"), b"Content-Encoding: gzip")
    status, _, answer = await connection.ask(request)
    assert (status, json.loads(answer)["body"]) == (200, "{}")


@pytest.mark.parametrize("path", [b"/api/v1/push", b"/api/v1/configure"])
async def test_a_body_over_the_limit_is_413_however_it_comes(port, path):
    body = b"x" * 100_001
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for request in (
        posted(path, body),
        posted(path, chunked, b"Transfer-Encoding: chunked"),
        posted(path, gzip.compress(body), b"Content-Encoding: gzip"),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        status, _, answer = await Wire(reader, writer).ask(request)
        assert status == 413
        assert "error" in json.loads(answer)
        writer.close()


async def test_a_client_that_hangs_up_cancels_what_waits_for_it(port, connection):
    before = json.loads((await connection.get(b"/status"))[2])["cancelled"]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /api/v1/pop?wait=true HTTP/1.1\r\nHost: x\r\n\r\n")
    await writer.drain()
    assert json.loads((await connection.get(b"/status"))[2])["cancelled"] == before
    writer.close()
    async with asyncio.timeout(5):
        cancelled = before
        while cancelled == before:
            await asyncio.sleep(0.02)
            cancelled = json.loads((await connection.get(b"/status"))[2])["cancelled"]
