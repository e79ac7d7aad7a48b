"""The listener: TLS under both servers and with workers, and the bounds of what it bears.

Method: real brokers on a free port, certificates made here, and a client that writes bytes,
because libraries would not send what is judged.
"""

import contextlib
import datetime
import ipaddress
import os
import socket
import ssl
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.x509.oid import NameOID

from tests.wire_client import WireClient, expect


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate of its own for 127.0.0.1, and its key."""
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = directory / "cert.pem", directory / "key.pem"
    pem = serialization.Encoding.PEM
    key_path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    cert_path.write_bytes(certificate.public_bytes(pem))
    return cert_path, key_path


def serial_of(port: int) -> int:
    """The serial number of the certificate that a new connection is shown."""
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def say(port: int, *parts: bytes, timeout_s: float = 30.0) -> bytes:
    """What comes back until the other side ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        for part in parts:
            connection.sendall(part)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(65_536):
                answer += chunk
        return answer


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_port_speaks_tls_and_nothing_else(
    start_broker, each_server, tmp_path, fresh_queue, eventually, workers
):
    cert, key = write_certificate(tmp_path)
    broker = start_broker(
        server=each_server,
        ready=False,
        QUEEN_TLS_CERT=str(cert),
        QUEEN_TLS_KEY=str(key),
        QUEEN_WORKERS=workers,
    )
    assert "listening on https://" in broker.log
    trust = ssl.create_default_context(cafile=str(cert))
    with httpx.Client(base_url=f"https://127.0.0.1:{broker.port}", verify=trust) as client:
        eventually(lambda: client.get("/readyz").status_code == 200, timeout_s=60)
        wire = WireClient(client)
        wire.push(fresh_queue, "x" * 200_000)
        assert len(wire.payloads(fresh_queue)[0]) == 200_000
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            socket.create_connection(("127.0.0.1", broker.port)) as plain,
        ):
            old.wrap_socket(plain)
        assert b"HTTP/1.1 200" not in say(broker.port, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        if workers == "1":
            before = serial_of(broker.port)
            write_certificate(tmp_path)
            eventually(lambda: serial_of(broker.port) != before, timeout_s=20)
        broker.stop()
        assert "exceeded" not in broker.log, "our client's missing goodbye held up the stop"


def test_a_certificate_that_cannot_be_used_stops_the_start(start_broker, tmp_path):
    cert, key = write_certificate(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    _, strange = write_certificate(other)
    for given in (
        {"QUEEN_TLS_CERT": str(cert), "QUEEN_TLS_KEY": str(strange)},
        {"QUEEN_TLS_CERT": str(cert), "QUEEN_TLS_KEY": str(tmp_path / "nowhere")},
        {"QUEEN_TLS_CERT": str(cert)},
        {"QUEEN_TLS_KEY": str(key)},
    ):
        with pytest.raises(AssertionError, match="QUEEN_TLS_CERT and QUEEN_TLS_KEY"):
            start_broker(ready=False, **given)


def test_what_takes_too_long_or_is_too_large_is_ended(start_broker, fresh_queue):
    broker = start_broker(QUEEN_REQUEST_S="5", QUEEN_MAX_HEADER_BYTES="4096")
    port = broker.port
    started = b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\n"
    head = started + b"Content-Length: 100\r\n\r\n"
    with WireClient.at(broker.url) as wire, ThreadPoolExecutor(5) as pool:
        expect(wire.get("/livez"), 200)
        # What waits for an answer is no slow request, and neither is who is between two.
        waiting = pool.submit(WaitingPop(broker.url, fresh_queue))
        # Nothing at all, half a head, half a body.
        slow = [pool.submit(say, port, *parts) for parts in ([], [started], [head], [head, b"{"])]
        for answer in (one.result() for one in slow):
            assert answer.startswith(b"HTTP/1.1 408"), answer
            assert b'{"error":"the request took too long to come"}' in answer
        assert waiting.result() == []
        expect(wire.get("/livez"), 200)
    # A head that is too large: in one piece, without an end, in many headers, in its address.
    for parts in (
        [started + b"X: " + b"x" * 5000 + b"\r\n\r\n"],
        [started + b"X: ", *[b"x" * 1000] * 6],
        [started + b"".join(b"X%d: y\r\n" % n for n in range(1000)) + b"\r\n"],
        [b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"],
    ):
        assert say(port, *parts).startswith(b"HTTP/1.1 431"), parts[0][:40]
    with WireClient.at(broker.url) as wire:
        wire.push(fresh_queue, "x" * 1_000_000)
        assert len(wire.payloads(fresh_queue)[0]) == 1_000_000


class WaitingPop:
    """A pop that waits longer than a request may take to come."""

    def __init__(self, url: str, queue: str) -> None:
        self._url, self._queue = url, queue

    def __call__(self) -> list[object]:
        with WireClient.at(self._url) as wire:
            return wire.payloads(self._queue, wait=True, timeout=7000)


def test_of_too_many_connections_the_newest_is_closed(start_broker, each_server):
    broker = start_broker(server=each_server, QUEEN_MAX_CONNECTIONS="5")
    ask = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    with contextlib.ExitStack() as kept:

        def connect() -> socket.socket:
            made = socket.create_connection(("127.0.0.1", broker.port), timeout=10)
            return kept.enter_context(made)

        def answered(connection: socket.socket) -> bool:
            try:
                connection.sendall(ask)
                return connection.recv(4096).startswith(b"HTTP/1.1 200")
            except ConnectionError:
                return False

        held: list[socket.socket] = []
        deadline = time.monotonic() + 10
        while len(held) < 5:  # those of the start may still be going
            assert time.monotonic() < deadline
            one = connect()
            if answered(one):
                held.append(one)
        assert not answered(connect())
        assert all(answered(one) for one in held)
        held.pop().close()
        deadline = time.monotonic() + 10
        while not answered(connect()):
            assert time.monotonic() < deadline


def test_to_listen_beyond_loopback_for_everybody_is_said_aloud(start_broker):
    beyond = {"QUEEN_BIND_ADDR": "0.0.0.0"}
    assert "without authentication" in start_broker(ready=False, **beyond).log
    assert os.environ["QUEEN_BIND_ADDR"] == "127.0.0.1"
    quiet = start_broker(ready=False, QUEEN_API_KEYS="true", **beyond).log
    assert "without authentication" not in quiet
    assert "authentication without TLS" in quiet
