"""Who is at the door: tokens and API keys, and a bounded memory of those that were good.

A credential that was judged is remembered as it stood in its header, so that the next request
with it costs one look into a dict. The memory is emptied whenever what it rests on changes:
other public keys, or any change of the API keys.

API keys are rows. Every broker has a copy of all that are in force, and asks once a second,
over the connection that watches the database, whether the one version number has moved that
every change moves in its own transaction (a trigger's doing, whoever made the change). So a
revoked key is refused here at most that second and a round trip later; a hint from another
broker or from the command makes it ask at once. A key that the copy does not have makes it ask
too, so that a new one is good at once.

Imports api_key, config_access, errors, jwks, principal, store, tokens. Used by runtime.py and
api/auth.py.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any

from brokers import api_key
from brokers.config import Config
from brokers.errors import Refusal, StoreError
from brokers.jwks import KeySet
from brokers.principal import Principal, levels_of
from brokers.store import api_key_calls
from brokers.store.api_key_calls import ApiKeyRow
from brokers.store.calls import Fetch
from brokers.tokens import Tokens, unauthorized

log = logging.getLogger(__name__)

REMEMBERED_MAX = 10_000
LOOK_S = 5.0
# A caller with a key that is not known has us look, but no more often than this.
LOOK_AGAIN_S = 0.2
USED_EVERY_S = 60.0
RETRY_AFTER_S = 1
BEARER = b"bearer "


class Access:
    """`required` is false where nobody has to say who it is."""

    def __init__(self, config: Config, fetch: Fetch) -> None:
        auth = config.auth
        self.required = auth.required
        paths = [path.encode("utf-8", "surrogateescape") for path in auth.jwt_skip_paths]
        self._open = frozenset(paths)
        self._open_below = tuple(one for one in paths if len(one) > 1 and one.endswith(b"/"))
        self.keys = ApiKeys(fetch, self.forget, auth.api_keys_away_s) if auth.api_keys else None
        self.key_set: KeySet | None = None
        if auth.jwt_enabled and auth.jwt_jwks_url and not auth.jwt_public_key:
            self.key_set = KeySet(
                auth.jwt_jwks_url,
                timeout_s=auth.jwt_jwks_timeout_ms / 1000,
                refresh_s=auth.jwt_jwks_refresh_s,
                changed=self.forget,
            )
        self._tokens = Tokens(auth, self.key_set) if auth.jwt_enabled else None
        self._remembered: dict[bytes, tuple[float, Principal]] = {}
        self._epoch = 0

    def remembered(self, credential: bytes) -> Principal | None:
        """The caller behind an Authorization header, where it was found good before."""
        entry = self._remembered.get(credential)
        if entry is None or entry[0] < time.time():
            return None
        return entry[1]

    async def identify(self, credential: bytes) -> Principal:
        """The caller behind an Authorization header. Raises a RequestError, or a Refusal."""
        known = self.remembered(credential)
        if known is not None:
            return known
        epoch = self._epoch
        token = credential.strip()
        if token[: len(BEARER)].lower() == BEARER:
            token = token[len(BEARER) :].strip()
        if not token:
            raise unauthorized("Authentication required")
        if self.keys is not None and api_key.is_key(token):
            principal, until = await self.keys.find(token)
            epoch = self._epoch  # it may have read them all anew, and found this one there
        elif self._tokens is not None:
            principal, until = await self._tokens.judge(token)
        else:
            raise unauthorized("Unknown API key")
        # What was found by what is no longer in force is good for this request only, and so
        # is a token with blanks around it: there would be no end of ways to write one.
        if epoch == self._epoch and len(credential) - len(token) <= len(BEARER):
            self._remember(credential, until, principal)
        return principal

    def _remember(self, credential: bytes, until: float, principal: Principal) -> None:
        self._remembered.pop(credential, None)
        self._remembered[credential] = until, principal
        if len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]

    def forget(self) -> None:
        self._epoch += 1
        self._remembered.clear()

    def background(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        """What runs beside the requests, from the broker's start to its stop."""
        if self._tokens is not None:
            log.info("JWT auth ENABLED")
        work: list[tuple[str, Coroutine[Any, Any, None]]] = []
        if self.key_set is not None:
            work.append(("JWKS", self.key_set.run()))
        if self.keys is not None:
            work.append(("API keys", self.keys.run()))
        return work

    async def look(self, fetch: Fetch) -> None:
        """Whether any API key was changed. That it cannot be read says nothing of the database."""
        if self.keys is None:
            return
        try:
            await self.keys.look(fetch)
        except StoreError as error:
            log.info("API keys: %s", error.text)

    def skips(self, raw_path: bytes) -> bool:
        """Whether nobody is asked at this path: an entry exactly, or below one that ends in a
        slash. `/` alone is only the root."""
        if raw_path in self._open:
            return True
        return self._open_below != () and raw_path.startswith(self._open_below)

    def doubt(self) -> None:
        """It may be another database: its versions say nothing about what we know."""
        if self.keys is not None:
            self.keys.doubt()


class ApiKeys:
    """The copy of all keys in force. `changed` is called after it became another."""

    def __init__(self, fetch: Fetch, changed: Callable[[], None], away_s: float) -> None:
        self._fetch = fetch
        self._changed = changed
        self._away_s = away_s
        self._version: int | None = None
        self._rows: Mapping[bytes, ApiKeyRow] = {}
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")
        self._begun_at = float("-inf")
        self._used: dict[int, float] = {}
        self.looks = 0

    @property
    def trusted(self) -> bool:
        """Whether the copy may still be believed: it was compared not too long ago."""
        return time.monotonic() - self._looked_at <= max(self._away_s, LOOK_S)

    async def find(self, token: bytes) -> tuple[Principal, float]:
        digest = api_key.digest(token)
        row = self._rows.get(digest)
        if row is None or not self.trusted:
            await self._look_for_a_caller()
            row = self._rows.get(digest)
        if not self.trusted:
            text = "the API keys cannot be read at the moment"
            raise Refusal(text, retry_after_s=RETRY_AFTER_S)
        if row is None:
            raise unauthorized("Unknown API key")
        until = float("inf") if row.expires_at is None else row.expires_at.timestamp()
        if until < time.time():
            raise unauthorized("API key has expired")
        self._used[row.id] = time.time()
        # So that "last used" moves also while the key is remembered.
        return principal_of(row), min(until, time.time() + USED_EVERY_S)

    async def look(self, fetch: Fetch | None = None) -> None:
        """Compare the version; read them all where it has moved. Raises StoreError."""
        async with self._looking:
            try:
                await self._look(fetch or self._fetch)
            except TimeoutError:
                raise StoreError("the API keys were not read in time") from None

    async def _look(self, fetch: Fetch) -> None:
        began = time.monotonic()
        self.looks += 1
        async with asyncio.timeout(LOOK_S):
            found = await api_key_calls.api_key_changes(fetch, self._version)
        self._looked_at = self._begun_at = began
        if found is None:
            return
        self._version, rows = found
        self._rows = {row.digest: row for row in rows}
        self._changed()
        log.info("API keys: %d in force", len(rows))

    async def _look_for_a_caller(self) -> None:
        """One look serves everybody who came before it began."""
        arrived = time.monotonic()
        async with self._looking:
            if self._begun_at >= arrived:
                return
            await asyncio.sleep(max(self._begun_at + LOOK_AGAIN_S - time.monotonic(), 0))
            try:
                await self._look(self._fetch)
            except (StoreError, TimeoutError) as error:
                self._begun_at = time.monotonic()
                log.debug("API keys: %s", error)

    def doubt(self) -> None:
        self._version = None

    async def run(self) -> None:
        """Write down which keys were used, at most once a minute each."""
        while True:
            await asyncio.sleep(USED_EVERY_S)
            try:
                await self.write_used()
            except StoreError as error:
                log.info("API keys: %s", error.text)

    async def write_used(self) -> None:
        used, self._used = self._used, {}
        if used:
            moments = [(one, datetime.fromtimestamp(at, UTC)) for one, at in sorted(used.items())]
            await api_key_calls.api_key_used(self._fetch, moments)


def principal_of(row: ApiKeyRow) -> Principal:
    return Principal(
        subject=f"key:{row.name}",
        levels=levels_of((row.role,)),
        tenant=row.tenant_id,
        queue_prefix=row.queue_prefix,
    )
