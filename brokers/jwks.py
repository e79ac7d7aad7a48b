"""The public keys behind a JWKS URL: fetched, kept, fetched again.

One plain GET, no redirects, a bounded document, in a thread beside the loop. A key ID that
is not known has the document fetched once more, at most every five seconds whoever asks; a
fetch that fails leaves the keys that there were.

Imports nothing of ours. Used by tokens.py and flow/access.py.
"""

import asyncio
import base64
import binascii
import http.client
import json
import logging
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

log = logging.getLogger(__name__)

DOCUMENT_BYTES_MAX = 1_048_576
CHUNK_BYTES = 65_536
KEYS_MAX = 1000
REFETCH_EVERY_S = 5.0
RSA_BITS = range(2048, 16_385)

PublicKey = RSAPublicKey | Ed25519PublicKey


class NoDocument(Exception):
    """The URL gave nothing that could be read; the text says why, without the URL."""


class KeyEntry(NamedTuple):
    kid: str
    key: PublicKey


class KeySet:
    """`changed` is called when other keys are in force than before."""

    def __init__(
        self, url: str, *, timeout_s: float, refresh_s: float, changed: Callable[[], None]
    ) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._refresh_s = refresh_s
        self._changed = changed
        self._entries: list[KeyEntry] = []
        self._document: Any = None
        self._fetching = asyncio.Lock()
        self._tried_at = float("-inf")
        self.fetches = 0

    async def find(self, kid: str, kind: type) -> PublicKey | None:
        """The key of that ID; for an empty one the first of its kind."""
        key = self._look(kid, kind)
        if key is None:
            await self._fetch_again()
            key = self._look(kid, kind)
        return key

    def _look(self, kid: str, kind: type) -> PublicKey | None:
        for entry in self._entries:
            if isinstance(entry.key, kind) and (not kid or entry.kid == kid):
                return entry.key
        return None

    async def run(self) -> None:
        """Fetch now and at every interval, until cancelled."""
        if await self._fetch():
            log.info("JWKS pre-fetch OK: %d keys", len(self._entries))
        else:
            log.warning("JWKS pre-fetch failed (will retry on demand)")
        while True:
            await asyncio.sleep(self._refresh_s)
            await self._fetch()

    async def _fetch_again(self) -> None:
        async with self._fetching:
            if time.monotonic() - self._tried_at < REFETCH_EVERY_S:
                return
            await self._fetch_once()

    async def _fetch(self) -> bool:
        async with self._fetching:
            return await self._fetch_once()

    async def _fetch_once(self) -> bool:
        self._tried_at = time.monotonic()
        self.fetches += 1
        try:
            document = await asyncio.to_thread(_get, self._url, self._timeout_s)
            entries = read_document(document)
        except NoDocument as error:
            log.warning("JWKS: %s", error)
            return False
        if document != self._document:
            self._document, self._entries = document, entries
            self._changed()
        return True


def _get(url: str, timeout_s: float) -> bytes:
    """Bounded in time as a whole, not only between two bytes."""
    parts = urlsplit(url)
    assert parts.hostname
    deadline = time.monotonic() + timeout_s
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise NoDocument(f"answered {response.status}")
        body = b""
        while chunk := response.read1(CHUNK_BYTES):
            body += chunk
            if len(body) > DOCUMENT_BYTES_MAX:
                raise NoDocument(f"the document is larger than {DOCUMENT_BYTES_MAX} bytes")
            if time.monotonic() > deadline:
                raise NoDocument("took too long")
        return body
    except (OSError, http.client.HTTPException) as error:
        raise NoDocument(type(error).__name__) from None
    finally:
        connection.close()


def read_document(document: bytes) -> list[KeyEntry]:
    """The keys that can be used; others are passed over. Raises NoDocument."""
    try:
        keys = json.loads(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NoDocument("the document is no JWK set") from None
    if not isinstance(keys, list) or len(keys) > KEYS_MAX:
        raise NoDocument("the document is no JWK set")
    entries = []
    for one in keys:
        key = _public_key(one) if isinstance(one, dict) and one.get("use") != "enc" else None
        if key is not None:
            kid = one.get("kid", "")
            entries.append(KeyEntry(kid if isinstance(kid, str) else "", key))
    return entries


def _public_key(jwk: dict[str, Any]) -> PublicKey | None:
    try:
        if jwk.get("kty") == "RSA":
            modulus, exponent = (int.from_bytes(_bytes(jwk[name])) for name in ("n", "e"))
            if modulus.bit_length() not in RSA_BITS:
                return None
            return RSAPublicNumbers(exponent, modulus).public_key()
        if jwk.get("kty") == "OKP" and jwk.get("crv") == "Ed25519":
            return Ed25519PublicKey.from_public_bytes(_bytes(jwk["x"]))
    except (KeyError, ValueError, TypeError):
        return None
    return None


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError("not text")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
