"""A TCP port in front of PostgreSQL that speaks TLS as PostgreSQL does, or that speaks none.

The embedded server is built without TLS, so its side is played here: the request for it is
answered and the handshake made; what is inside goes on to the server's socket. A plain connection
is passed on as gladly, and `met` tells of each whether it was one.

Used by test_postgres_tls.py. Imports harness.
"""

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
import struct
import threading
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.x509.oid import NameOID

from tests.harness import Database

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
PEM = serialization.Encoding.PEM
CHUNK = 1 << 16


class Authority:
    """A certificate authority; whoever has its `pem` trusts what it issues."""

    def __init__(self, name: str) -> None:
        self._name = _named(name)
        self._key = generate_private_key(SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.pem = self._certify(self._name, self._key.public_key(), constraints).decode()

    def context(self, directory: Path, host: str, address: str) -> ssl.SSLContext:
        """What a server of that name and address needs."""
        key = generate_private_key(SECP256R1())
        names = [x509.DNSName(host), x509.IPAddress(ipaddress.ip_address(address))]
        extension = x509.SubjectAlternativeName(names)
        private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        both = directory / "server.pem"
        both.write_bytes(
            key.private_bytes(PEM, *private)
            + self._certify(_named(host), key.public_key(), extension)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(both)
        return context

    def _certify(self, subject: x509.Name, key: Any, extension: x509.ExtensionType) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        signed = builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())
        return signed.public_bytes(PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Front:
    """`met`: the application_name of each connection, and whether it was encrypted."""

    def __init__(self, behind: Database, context: ssl.SSLContext | None) -> None:
        self._path = f"{behind.host}/.s.PGSQL.{behind.port}"
        self._context = context
        self.met: set[tuple[str, bool]] = set()
        self.refused = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        opening = asyncio.start_server(self._meet, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(opening, self._loop).result(10)
        port = self._server.sockets[0].getsockname()[1]
        self.database = Database(name=behind.name, host="localhost", port=port)

    def __enter__(self) -> "Front":
        return self

    def __exit__(self, *about: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            startup, encrypted = await self._greet(reader, writer)
            self.met.add((_application_name(startup), encrypted))
            upstream_reader, upstream = await asyncio.open_unix_connection(self._path)
            upstream.write(startup)
            ways = [_pass_on(reader, upstream), _pass_on(upstream_reader, writer)]
            await asyncio.gather(*ways)
        except (OSError, EOFError):
            self.refused += 1
        finally:
            writer.close()

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[bytes, bool]:
        """The first message that is no question for encryption, and whether it came encrypted."""
        encrypted = False
        while True:
            head = await reader.readexactly(8)
            length, code = struct.unpack("!ii", head)
            if code not in (SSL_REQUEST, GSS_REQUEST):
                return head + await reader.readexactly(length - 8), encrypted
            encrypted = code == SSL_REQUEST and self._context is not None
            writer.write(b"S" if encrypted else b"N")
            await writer.drain()
            if encrypted:
                assert self._context is not None
                await writer.start_tls(self._context)


def _application_name(startup: bytes) -> str:
    if struct.unpack("!i", startup[4:8])[0] == CANCEL_REQUEST:
        return "a cancel"
    said = startup[8:].split(b"\0")
    return dict(zip(said[::2], said[1::2], strict=False)).get(b"application_name", b"").decode()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
    sink.close()
