"""HTTP below JSON: sizes, chunks, gzip, Expect, and the 204 that keeps its connection.

Method: bytes on raw sockets, because an HTTP library would mend or refuse what is tested
here. The server may answer before it has read all of a request, so sending goes on only
as long as it listens.
"""

import gzip
import json
import select
import socket
import zlib
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.wire_client import expect

CAP = 64 * 1024 * 1024
MIB = b"x" * (1024 * 1024)


class RawAnswer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def error(self) -> str:
        body = json.loads(self.body.decode("utf-8"))
        assert isinstance(body["error"], str)
        return body["error"]


class RawConnection:
    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.input = connection.makefile("rb")

    def send(self, *parts: bytes) -> None:
        """Send until done or until the server has answered or hung up."""
        for part in parts:
            view = memoryview(part)
            while view:
                readable, writable, _ = select.select([self.socket], [self.socket], [], 30)
                if readable:
                    return
                assert writable, "the server neither reads nor answers"
                try:
                    view = view[self.socket.send(view[: 256 * 1024]) :]
                except (BrokenPipeError, ConnectionResetError):
                    return

    def answer(self) -> RawAnswer:
        status_line = self.input.readline()
        assert status_line.startswith(b"HTTP/1.1 "), status_line
        headers = {}
        while (line := self.input.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            headers[name.decode().lower()] = value.strip().decode()
        status = int(status_line.split()[1])
        return RawAnswer(status, headers, self._body(status, headers))

    def _body(self, status: int, headers: dict[str, str]) -> bytes:
        if status in (100, 204):
            return b""
        if "content-length" in headers:
            return self.input.read(int(headers["content-length"]))
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.input.readline(), 16):
                body += self.input.read(size)
                self.input.readline()
            self.input.readline()
            return body
        return self.input.read()


@pytest.fixture
def connect(broker):
    @contextmanager
    def connect():
        address = urlsplit(broker.url)
        with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
            yield RawConnection(connection)

    return connect


def head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: broker", *headers, "", ""]).encode()


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def push_body(queue: str, payload: str = "1") -> bytes:
    return b'{"items":[{"queue":"%s","payload":%s}]}' % (queue.encode(), payload.encode())


def over_the_cap(queue: str) -> tuple[bytes, bytes]:
    """What stands before and behind the filling of a JSON body."""
    return b'{"items":[{"queue":"%s","payload":"' % queue.encode(), b'"}]}'


# --- 204 ----------------------------------------------------------------------------------------


def test_a_204_has_no_body_and_no_length_and_keeps_its_connection(connect, wire, fresh_queue):
    with connect() as raw:
        for _ in range(3):
            raw.send(head("GET", f"/api/v1/pop/queue/{fresh_queue}"))
            answer = raw.answer()
            assert answer.status == 204
            assert "content-length" not in answer.headers
            assert "transfer-encoding" not in answer.headers
            assert answer.headers.get("connection", "keep-alive").lower() != "close"
        wire.push(fresh_queue, "next on the same connection")
        raw.send(head("GET", f"/api/v1/pop/queue/{fresh_queue}"))
        answer = raw.answer()
        assert answer.status == 200
        assert json.loads(answer.body)["messages"][0]["data"] == "next on the same connection"


def test_an_error_keeps_its_connection(connect, fresh_queue):
    with connect() as raw:
        for body in (b"{", b"[]", push_body(fresh_queue)):
            raw.send(head("POST", "/api/v1/push", f"Content-Length: {len(body)}"), body)
            answer = raw.answer()
        assert answer.status == 201


# --- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/configure"])
def test_a_sized_body_over_64_mib_is_a_413(connect, wire, fresh_queue, path):
    before, behind = over_the_cap(fresh_queue)
    fill = CAP + 1 - len(before) - len(behind)
    with connect() as raw:
        raw.send(
            head("POST", path, f"Content-Length: {CAP + 1}"),
            before,
            *[MIB] * (fill // len(MIB)),
            MIB[: fill % len(MIB)],
            behind,
        )
        assert raw.answer().status == 413
    assert wire.payloads(fresh_queue) == []
    assert expect(wire.get("/livez"), 200)


@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/configure"])
def test_a_chunked_body_over_64_mib_is_a_413(connect, wire, fresh_queue, path):
    before, behind = over_the_cap(fresh_queue)
    chunk = b"%x\r\n%s\r\n" % (len(MIB), MIB)
    with connect() as raw:
        raw.send(
            head("POST", path, "Transfer-Encoding: chunked"),
            b"%x\r\n%s\r\n" % (len(before), before),
            *[chunk] * 64,
            chunked(behind),
        )
        assert raw.answer().status == 413
    assert wire.payloads(fresh_queue) == []


@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/configure"])
def test_a_gzip_body_over_64_mib_decoded_is_a_413(connect, wire, fresh_queue, path):
    before, behind = over_the_cap(fresh_queue)
    packer = zlib.compressobj(9, wbits=31)
    bomb = packer.compress(before)
    for _ in range(65):
        bomb += packer.compress(MIB)
    bomb += packer.compress(behind) + packer.flush()
    assert len(bomb) < len(MIB)
    with connect() as raw:
        raw.send(head("POST", path, f"Content-Length: {len(bomb)}", "Content-Encoding: gzip"), bomb)
        assert raw.answer().status == 413
    assert wire.payloads(fresh_queue) == []


def test_a_body_of_some_megabytes_is_welcome_on_every_route(wire, fresh_queue):
    """Django's own limit of 2.5 MB must not undercut ours."""
    large = "x" * 5_000_000
    wire.push(fresh_queue, large)
    [message] = wire.messages(fresh_queue)
    assert message["data"] == large
    body = {"queue": fresh_queue, "options": {"leaseTime": 5}, "ignored": large}
    assert expect(wire.post("/api/v1/configure", body), 200).json()["options"]["leaseTime"] == 5


# --- chunks, lengths ----------------------------------------------------------------------------


def test_a_chunked_body_is_a_body(connect, wire, fresh_queue):
    body = push_body(fresh_queue, '"in pieces"')
    with connect() as raw:
        raw.send(
            head("POST", "/api/v1/push", "Transfer-Encoding: chunked"),
            chunked(body[:1], body[1:20], body[20:]),
        )
        assert raw.answer().status == 201
    assert wire.payloads(fresh_queue) == ["in pieces"]


def test_a_length_and_chunks_at_once_are_refused(connect, wire, fresh_queue):
    body = push_body(fresh_queue)
    with connect() as raw:
        raw.send(
            head(
                "POST",
                "/api/v1/push",
                f"Content-Length: {len(body)}",
                "Transfer-Encoding: chunked",
            ),
            chunked(body),
        )
        assert raw.answer().status == 400
        assert raw.input.read() == b"", "and the connection is closed"
    assert wire.payloads(fresh_queue) == []


def test_a_body_longer_than_its_length_is_not_read_into_the_request(connect, wire, fresh_queue):
    body = push_body(fresh_queue)
    with connect() as raw:
        raw.send(head("POST", "/api/v1/push", "Content-Length: 10") + body)
        assert raw.answer().status == 400
    assert wire.payloads(fresh_queue) == []


def test_a_client_that_hangs_up_inside_its_body_stores_nothing(connect, wire, fresh_queue):
    body = push_body(fresh_queue)
    with connect() as raw:
        raw.send(head("POST", "/api/v1/push", f"Content-Length: {len(body) + 1}"), body)
    assert wire.payloads(fresh_queue, wait=True, timeout=300) == []


def test_a_client_may_ask_before_it_sends(connect, wire, fresh_queue):
    body = push_body(fresh_queue, '"asked"')
    with connect() as raw:
        raw.send(
            head("POST", "/api/v1/push", f"Content-Length: {len(body)}", "Expect: 100-continue")
        )
        assert raw.answer().status == 100
        raw.send(body)
        assert raw.answer().status == 201
    assert wire.payloads(fresh_queue) == ["asked"]


def test_a_slow_body_is_waited_for(connect, wire, fresh_queue):
    body = push_body(fresh_queue)
    with connect() as raw:
        raw.send(head("POST", "/api/v1/push", f"Content-Length: {len(body)}"))
        for byte in body:
            raw.send(bytes([byte]))
        assert raw.answer().status == 201
    assert wire.payloads(fresh_queue) == [1]


def test_header_names_have_no_case(connect, wire, fresh_queue):
    body = gzip.compress(push_body(fresh_queue))
    with connect() as raw:
        raw.send(
            head("POST", "/api/v1/push", f"cOnTeNt-LeNgTh: {len(body)}", "CONTENT-ENCODING: GZIP"),
            body,
        )
        assert raw.answer().status == 201
    assert wire.payloads(fresh_queue) == [1]


# --- gzip ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["sized", "chunked"])
def test_a_gzip_body_is_unpacked(connect, wire, fresh_queue, framing):
    body = gzip.compress(push_body(fresh_queue, '"packed"'))
    with connect() as raw:
        if framing == "sized":
            raw.send(
                head(
                    "POST",
                    "/api/v1/push",
                    f"Content-Length: {len(body)}",
                    "Content-Encoding: gzip",
                ),
                body,
            )
        else:
            raw.send(
                head(
                    "POST", "/api/v1/push", "Transfer-Encoding: chunked", "Content-Encoding: gzip"
                ),
                chunked(body[:15], body[15:]),
            )
        assert raw.answer().status == 201
    assert wire.payloads(fresh_queue) == ["packed"]


def test_a_gzip_body_is_unpacked_on_management_routes_too(wire, fresh_queue):
    body = gzip.compress(json.dumps({"queue": fresh_queue, "leaseTime": 8}).encode())
    answer = wire.post("/api/v1/configure", body, headers={"content-encoding": "gzip"})
    assert expect(answer, 200).json()["options"]["leaseTime"] == 8


@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/configure", "/api/v1/ack"])
@pytest.mark.parametrize("flaw", ["truncated", "corrupt", "not gzip"])
def test_a_broken_gzip_body_is_a_400(wire, fresh_queue, path, flaw):
    whole = gzip.compress(push_body(fresh_queue, '"' + "broken" * 50 + '"'))
    body = {
        "truncated": whole[:-12],
        "corrupt": whole[:-8] + bytes(8),
        "not gzip": push_body(fresh_queue),
    }[flaw]
    answer = expect(wire.post(path, body, headers={"content-encoding": "gzip"}), 400)
    assert isinstance(answer.json()["error"], str)
    assert wire.payloads(fresh_queue) == []


@pytest.mark.parametrize("encoding", ["br", "deflate, gzip", "zip"])
def test_an_unknown_encoding_is_refused(wire, fresh_queue, encoding):
    answer = wire.post(
        "/api/v1/push", push_body(fresh_queue), headers={"content-encoding": encoding}
    )
    assert isinstance(expect(answer, 400, 415).json()["error"], str)
    assert wire.payloads(fresh_queue) == []


# --- another protocol, asked for and not given --------------------------------------------------

# What clients that speak HTTP/2 say with the first request on a plain connection.
H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAA")


@pytest.mark.parametrize("apart", [False, True])
def test_a_request_that_would_rather_speak_http_2_is_read_with_its_body(
    connect, wire, fresh_queue, apart
):
    body = push_body(fresh_queue, '"old words"')
    asked = head("POST", "/api/v1/push", f"Content-Length: {len(body)}", *H2C)
    with connect() as raw:
        for parts in [[asked + body], [asked, body[:7], body[7:]]][apart:]:
            for part in parts:
                raw.socket.sendall(part)
            assert raw.answer().status == 201
        raw.send(head("GET", "/livez"))
        assert raw.answer().status == 200
    assert set(wire.payloads(fresh_queue, batch=10)) == {"old words"}


def test_a_chunked_body_behind_an_upgrade_that_is_not_given_is_a_body(connect, wire, fresh_queue):
    body = push_body(fresh_queue)
    with connect() as raw:
        raw.send(
            head("POST", "/api/v1/push", "Transfer-Encoding: chunked", *H2C),
            chunked(body[:9], body[9:]),
        )
        assert raw.answer().status == 201
    assert wire.payloads(fresh_queue) == [1]


def test_what_comes_right_behind_an_upgrade_that_is_not_given_is_answered_too(connect):
    with connect() as raw:
        raw.send(head("GET", "/health", *H2C) * 2 + head("GET", "/livez"))
        assert [raw.answer().status for _ in range(3)] == [200, 200, 200]
