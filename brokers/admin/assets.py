"""The console's files (scripts, styles, pictures), served from memory by the broker itself.

Each is read once and kept, with its compressed form and the digest of its content. A page names
a file with that digest (`?v=`), so a browser keeps it for a year and asks for another as soon
as it is another. Without the digest (a picture that a style sheet names) it asks again with
If-None-Match. There is no step that collects files, and nothing to configure.

Imports api/wire. Used by application.py, and by settings.py as the storage of static files.
"""

import asyncio
import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs

from django.contrib.staticfiles.finders import get_finders
from django.contrib.staticfiles.storage import StaticFilesStorage

from brokers.api import wire
from brokers.api.wire import Scope, Send

PREFIX = "/static/"
FAVICON = "brokers/favicon.svg"
COMPRESS_BYTES_MIN = 1024
KEPT_BYTES_MAX = 33_554_432
YEAR_S = 31_536_000
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".woff2": "font/woff2"}
COMPRESSED_TYPES = ("text/", "image/svg", "application/json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    body: bytes
    compressed: bytes | None
    content_type: str
    digest: str

    @property
    def size(self) -> int:
        return len(self.body) + len(self.compressed or b"")


_kept: dict[str, Asset] = {}


class VersionedStorage(StaticFilesStorage):
    """What `{% static %}` asks for addresses: each with the digest of the file behind it."""

    def url(self, name: str | None) -> str:
        address = super().url(name)
        asset = load(name or "")
        return address if asset is None else f"{address}?v={asset.digest}"


def name_of(path: str) -> str | None:
    """The name of the file at this path of the server; None where there are none."""
    if path.startswith(PREFIX):
        return path.removeprefix(PREFIX)
    return FAVICON if path == "/favicon.ico" else None


async def answer(name: str, scope: Scope, send: Send) -> None:
    asset = _kept.get(name)
    if asset is None:  # the disk is not for the loop
        asset = await asyncio.to_thread(load, name)
    if asset is None:
        await wire.send_reply(send, wire.Reply(404, b'{"error":"not found"}'))
        return
    headers = dict(scope["headers"])
    etag = f'"{asset.digest}"'.encode("ascii")
    about = [
        (b"etag", etag),
        (b"vary", b"accept-encoding"),
        (b"x-content-type-options", b"nosniff"),
    ]
    versioned = parse_qs(scope["query_string"].decode("latin-1")).get("v") == [asset.digest]
    age = b"public, max-age=%d, immutable" % YEAR_S if versioned else b"no-cache"
    about.append((b"cache-control", age))
    if etag in headers.get(b"if-none-match", b""):
        await wire.send_reply(send, wire.Reply(304, b"", b"", tuple(about)), head=True)
        return
    body = asset.body
    if asset.compressed is not None and b"gzip" in headers.get(b"accept-encoding", b""):
        body = asset.compressed
        about.append((b"content-encoding", b"gzip"))
    reply = wire.Reply(200, body, asset.content_type.encode("ascii"), tuple(about))
    await wire.send_reply(send, reply, head=scope["method"] == "HEAD")


def load(name: str) -> Asset | None:
    """The file of that name, read once; None when there is none."""
    asset = _kept.get(name)
    if asset is not None:
        return asset
    path = _paths().get(name)
    if path is None:
        return None
    asset = _read(path)
    if asset.size + sum(one.size for one in _kept.values()) <= KEPT_BYTES_MAX:
        _kept[name] = asset
    return asset


@cache
def _paths() -> dict[str, Path]:
    """Every file there is: a name that is none of these leads nowhere, whatever it holds."""
    found: dict[str, Path] = {}
    for finder in get_finders():
        for name, storage in finder.list([]):
            found.setdefault(name, Path(storage.path(name)))
    return found


def _read(path: Path) -> Asset:
    body = path.read_bytes()
    content_type = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    content_type = content_type or "application/octet-stream"
    compressed = None
    if content_type.startswith((*COMPRESSED_TYPES,)) and len(body) >= COMPRESS_BYTES_MIN:
        compressed = gzip.compress(body, mtime=0)
    if content_type.startswith("text/"):
        content_type += "; charset=utf-8"
    digest = hashlib.sha256(body).hexdigest()[:20]
    return Asset(body=body, compressed=compressed, content_type=content_type, digest=digest)
