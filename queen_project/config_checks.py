"""The configuration as a whole: what must not be, and what should not go unsaid.

Imports brokers.config. Used by config.py, and by the broker command.
"""

import ipaddress
import ssl

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from brokers.config import Config

SECRET_CHARS_MIN = 16
JWT_SECRET_CHARS_MIN = 32


def check(config: Config, problems: list[str]) -> None:
    """Add what stops the start."""
    if config.tenancy.header and not config.tenancy.trusted_proxy:
        problems.append(
            "QUEEN_TENANCY_HEADER is on without QUEEN_KV_TRUSTED_PROXY: anyone who reaches the"
            " port could name any tenant; set both, behind a proxy that sets the header"
        )
    _check_tokens(config, problems)
    _check_tls(config, problems)


def _check_tokens(config: Config, problems: list[str]) -> None:
    auth = config.auth
    if not auth.jwt_enabled:
        return
    if auth.jwt_algorithm == "auto" or auth.jwt_algorithm.startswith("HS"):
        if not (auth.jwt_secret or auth.jwt_public_key or auth.jwt_jwks_url):
            problems.append(
                f"JWT_ENABLED with JWT_ALGORITHM={auth.jwt_algorithm} needs one of JWT_SECRET,"
                " JWT_PUBLIC_KEY and JWT_JWKS_URL"
            )
    elif not (auth.jwt_public_key or auth.jwt_jwks_url):
        problems.append(
            f"JWT_ENABLED with JWT_ALGORITHM={auth.jwt_algorithm} needs JWT_PUBLIC_KEY or"
            " JWT_JWKS_URL"
        )


def _check_tls(config: Config, problems: list[str]) -> None:
    """Read the files once at the start: what is wrong is said then, and not to a client."""
    listener = config.listener
    if bool(listener.tls_cert) != bool(listener.tls_key):
        problems.append("QUEEN_TLS_CERT and QUEEN_TLS_KEY: one without the other is no TLS")
    elif listener.tls:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                listener.tls_cert, listener.tls_key, password=no_password
            )
        except (OSError, ssl.SSLError, ValueError) as error:
            problems.append(
                "QUEEN_TLS_CERT and QUEEN_TLS_KEY are no certificate and its key:"
                f" {getattr(error, 'reason', None) or getattr(error, 'strerror', None) or error}"
            )


def no_password() -> str:
    """A key that wants one is refused: OpenSSL would ask at the terminal, and wait."""
    raise ValueError("the key is encrypted, and nobody is there to say its password")


def warnings(config: Config) -> list[str]:
    """What is allowed but should not go unsaid."""
    said: list[str] = []
    server, postgres = config.server, config.postgres
    if not config.auth.required and not is_loopback(server.bind_addr):
        said.append(
            f"bound to {server.bind_addr} without authentication: whoever reaches port"
            f" {server.port} can read, write and delete; bind 127.0.0.1 or firewall it"
        )
    if postgres.ssl_trust == "accept-any":
        said.append("PG_SSL_REJECT_UNAUTHORIZED is off: encrypted, but to whom is not verified")
    if postgres.ssl_trust == "supplied-ca" and not postgres.ssl_reject_unauthorized:
        said.append("PG_SSL_ROOT_CERT is set, so PG_SSL_REJECT_UNAUTHORIZED=false has no effect")
    mesh = config.mesh
    if mesh.enabled and mesh.peers and not (mesh.secret or is_loopback(mesh.bind_addr)):
        said.append(
            f"QUEEN_SYNC_INSECURE: whoever reaches port {mesh.port} can send this broker hints"
        )
    if 0 < len(mesh.secret) < SECRET_CHARS_MIN:
        said.append("QUEEN_SYNC_SECRET is short enough to be guessed: take 32 random characters")
    if config.encryption.keys_old and not config.encryption.key:
        said.append(
            "QUEEN_ENCRYPTION_KEYS_OLD without QUEEN_ENCRYPTION_KEY: old messages can be read,"
            " and queues with encryptionEnabled refuse pushes"
        )
    if config.tenancy.header:
        said.append("QUEEN_TENANCY_HEADER on, native tenant scoping ENABLED")
    return said + _auth_warnings(config)


def _auth_warnings(config: Config) -> list[str]:
    auth, said = config.auth, []
    if auth.required and not config.listener.tls and not is_loopback(config.server.bind_addr):
        said.append(
            "authentication without TLS: whoever sees the traffic has the tokens; set"
            " QUEEN_TLS_CERT and QUEEN_TLS_KEY, or end TLS in a proxy in front"
        )
    if not auth.jwt_enabled:
        return said
    if auth.jwt_jwks_url.startswith("http://"):
        said.append("JWT_JWKS_URL is plain http: whoever is on the way can hand out keys")
    if 0 < len(auth.jwt_secret) < JWT_SECRET_CHARS_MIN:
        said.append("JWT_SECRET is short enough to be guessed: take 32 random characters or more")
    if auth.jwt_public_key and not _is_public_key(auth.jwt_public_key):
        said.append("JWT_PUBLIC_KEY holds no PEM public key: its tokens are answered 500")
    return said


def _is_public_key(pem: str) -> bool:
    try:
        load_pem_public_key(pem.encode("utf-8", "surrogateescape"))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
