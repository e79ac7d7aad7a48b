"""JSON web tokens: which are good, and who is meant by one.

The header's `alg` is held against what the operator allows before any key is looked for, and
the kind of key comes from us and never from the token: a public key is no HMAC secret, and
`none` is no algorithm. Signatures are PyJWT's; the claims are judged here, because clients
know the texts of the refusals.

Imports config_access, errors, jwks, principal. Used by flow/access.py.
"""

import json
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from brokers.config_access import AuthConfig
from brokers.errors import RequestError
from brokers.jwks import KeySet
from brokers.principal import (
    ADMIN,
    READ_ONLY,
    READ_WRITE,
    WRITE_ONLY,
    Principal,
    levels_of,
)

# A longer one is refused unread.
TOKEN_BYTES_MAX = 8192
SUBJECT_BYTES_MAX = 1024
HS = ("HS256", "HS384", "HS512")
RS = ("RS256", "RS384", "RS512")
ALLOWED: Mapping[str, Sequence[str]] = {
    "auto": (*HS, *RS, "EdDSA"),
    "RS256": RS,
}

BAD_HEADER = "Bad token header"

# That a secret is short is said once, at the start.
warnings.filterwarnings("ignore", category=jwt.InsecureKeyLengthWarning)


class Tokens:
    """Judges tokens by the settings; `keys` are those of a JWKS URL, where one is set."""

    def __init__(self, config: AuthConfig, keys: KeySet | None) -> None:
        self._config = config
        self._keys = keys
        self._allowed = ALLOWED.get(config.jwt_algorithm, (config.jwt_algorithm,))
        self._jws = jwt.PyJWS(algorithms=list(self._allowed))
        self._roles = {
            config.jwt_role_admin: ADMIN,
            config.jwt_role_read_write: READ_WRITE,
            config.jwt_role_read_only: READ_ONLY,
            config.jwt_role_write_only: WRITE_ONLY,
        }
        self._public_key = _read_public_key(config.jwt_public_key)

    async def judge(self, token: bytes) -> tuple[Principal, float]:
        """The caller, and until when (epoch seconds) that holds. Raises a RequestError."""
        algorithm, kid = self._header(token)
        key = await self._key(algorithm, kid)
        claims = self._claims(token, key, algorithm)
        return self._principal(claims), self._check_times(claims)

    def _header(self, token: bytes) -> tuple[str, str]:
        if len(token) > TOKEN_BYTES_MAX or token.count(b".") != 2:
            raise unauthorized(BAD_HEADER)
        try:
            header = self._jws.get_unverified_header(token)
        except (jwt.PyJWTError, RecursionError, ValueError):
            raise unauthorized(BAD_HEADER) from None
        # Extensions that must be understood: we understand none.
        if "crit" in header or "b64" in header:
            raise unauthorized(BAD_HEADER)
        algorithm, kid = header.get("alg"), header.get("kid", "")
        if not isinstance(algorithm, str) or algorithm not in self._allowed:
            raise unauthorized("Unsupported token algorithm")
        if not isinstance(kid, str):
            raise unauthorized(BAD_HEADER)
        return algorithm, kid

    async def _key(self, algorithm: str, kid: str) -> Any:
        if algorithm in HS:
            if not self._config.jwt_secret:
                raise _key_material("HS secret not configured")
            return self._config.jwt_secret.encode("utf-8", "surrogateescape")
        wanted = RSAPublicKey if algorithm in RS else Ed25519PublicKey
        if self._config.jwt_public_key:
            if not isinstance(self._public_key, wanted):
                kind = "RSA" if algorithm in RS else "Ed"
                raise _key_material(f"invalid {kind} public key PEM")
            return self._public_key
        key = None if self._keys is None else await self._keys.find(kid, wanted)
        if key is None:
            raise unauthorized("Unknown key ID")
        return key

    def _claims(self, token: bytes, key: Any, algorithm: str) -> dict[str, Any]:
        try:
            decoded = self._jws.decode_complete(token, key, algorithms=[algorithm])
        except jwt.InvalidKeyError:
            raise _key_material("HS secret not configured") from None
        except (jwt.PyJWTError, ValueError):
            raise unauthorized("Invalid token signature") from None
        try:
            claims = json.loads(decoded["payload"])
        except (ValueError, RecursionError):
            raise unauthorized(BAD_HEADER) from None
        if not isinstance(claims, dict):
            raise unauthorized(BAD_HEADER)
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        """All three against one clock; a time that is no number holds at no time."""
        now, skew = time.time(), self._config.jwt_clock_skew_s
        until = float("inf")
        if claims.get("exp") is not None:
            expires = _instant(claims["exp"])
            until = -1.0 if expires is None else expires + skew
            if now > until:
                raise unauthorized("Token has expired")
        if claims.get("nbf") is not None:
            begins = _instant(claims["nbf"])
            if begins is None or now + skew < begins:
                raise unauthorized("Token not yet valid")
        if claims.get("iat") is not None:
            issued = _instant(claims["iat"])
            if issued is None or issued > now + skew:
                raise unauthorized("Token issued in the future")
        return until

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        config = self._config
        if config.jwt_issuer and claims.get("iss") != config.jwt_issuer:
            raise unauthorized("Invalid token issuer")
        if config.jwt_audience:
            audience = claims.get("aud")
            given = audience if isinstance(audience, list) else [audience]
            if config.jwt_audience not in given:
                raise unauthorized("Invalid token audience")
        one, several = claims.get(config.jwt_roles_claim), claims.get(config.jwt_roles_array_claim)
        named = [one, *several] if isinstance(several, list) else [one]
        known = self._roles
        held = [known[name] for name in named if isinstance(name, str) and name in known]
        return Principal(subject=_subject(claims.get("sub")), levels=levels_of(held))


def unauthorized(text: str) -> RequestError:
    return RequestError(text, code="auth_required", headers=(("www-authenticate", "Bearer"),))


def _key_material(text: str) -> RequestError:
    """Not the caller's fault, and nothing that the caller can mend: the operator has to."""
    return RequestError(text, code="key_material")


def _read_public_key(pem: str) -> Any:
    """None for what is none: that is told to each caller who needs it, as clients expect."""
    try:
        return load_pem_public_key(pem.encode("utf-8", "surrogateescape")) if pem else None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _instant(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if -1e15 < seconds < 1e15 else None


def _subject(value: Any) -> str | None:
    """It is stored with every message: what PostgreSQL cannot hold must not get that far."""
    if not isinstance(value, str) or not value:
        return None
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise unauthorized(BAD_HEADER) from None
    if size > SUBJECT_BYTES_MAX or "\x00" in value:
        raise unauthorized(BAD_HEADER)
    return value
