"""Settings of who may come in, how far, and how much they may have.

Imports config_values. Used by config.py.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from brokers.config_values import setting

INT_MAX = 2_147_483_647
ALGORITHMS = ("HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "EdDSA", "auto")


def algorithm(text: str) -> str:
    """The case of the names is the standard's, and theirs alone."""
    name = text.strip()
    if name not in ALGORITHMS:
        raise ValueError(f"is none of {', '.join(ALGORITHMS)}")
    return name


def jwks_url(text: str) -> str:
    url = text.strip()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("is not an http or https URL")
    return url


def paths(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def pem(text: str) -> str:
    """Orchestrators often pass line ends as the two characters \\n."""
    return text.strip().replace("\\n", "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """Who a caller is: JSON web tokens, API keys, or both; with neither everybody may do all.

    A broker that cannot read the API keys trusts those that it knows for `keys_away_s`. The
    secret_key signs what Django signs; unset means one that is kept in the data directory.
    """

    jwt_enabled: bool = setting("JWT_ENABLED", default=False)
    jwt_algorithm: str = setting("JWT_ALGORITHM", default="HS256", parse=algorithm)
    jwt_secret: str = setting("JWT_SECRET", default="", secret=True)
    jwt_public_key: str = setting("JWT_PUBLIC_KEY", default="", parse=pem, secret=True)
    jwt_jwks_url: str = setting("JWT_JWKS_URL", default="", parse=jwks_url, secret=True)
    jwt_jwks_refresh_s: int = setting(
        "JWT_JWKS_REFRESH_INTERVAL", default=3600, floor=1, high=INT_MAX
    )
    jwt_jwks_timeout_ms: int = setting("JWT_JWKS_TIMEOUT_MS", default=5000, floor=1, high=600_000)
    jwt_issuer: str = setting("JWT_ISSUER", default="")
    jwt_audience: str = setting("JWT_AUDIENCE", default="")
    jwt_clock_skew_s: int = setting("JWT_CLOCK_SKEW", default=30, floor=0, high=86_400)
    jwt_roles_claim: str = setting("JWT_ROLES_CLAIM", default="role")
    jwt_roles_array_claim: str = setting("JWT_ROLES_ARRAY_CLAIM", default="roles")
    jwt_role_admin: str = setting("JWT_ROLE_ADMIN", default="admin")
    jwt_role_read_write: str = setting("JWT_ROLE_READ_WRITE", default="read-write")
    jwt_role_read_only: str = setting("JWT_ROLE_READ_ONLY", default="read-only")
    jwt_role_write_only: str = setting("JWT_ROLE_WRITE_ONLY", default="write-only")
    jwt_skip_paths: tuple[str, ...] = setting(
        "JWT_SKIP_PATHS",
        default=("/health", "/metrics/prometheus", "/metrics", "/"),
        parse=paths,
        empty_counts=True,
    )
    api_keys: bool = setting("QUEEN_API_KEYS", default=False)
    api_keys_away_s: int = setting("QUEEN_API_KEYS_AWAY_S", default=3600, floor=0, high=INT_MAX)
    metrics_public: bool = setting("QUEEN_METRICS_PUBLIC", default=True)
    secret_key: str = setting("QUEEN_SECRET_KEY", default="", secret=True)

    @property
    def required(self) -> bool:
        """Whether a caller has to say who it is."""
        return self.jwt_enabled or self.api_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class TenancyConfig:
    """Whether `x-queen-tenant` is read. Only a trusted proxy may set that header."""

    header: bool = setting("QUEEN_TENANCY_HEADER", default=False)
    trusted_proxy: bool = setting("QUEEN_KV_TRUSTED_PROXY", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """What the listener bears. TLS needs a certificate and its key, as files of PEM.

    A connection has request_s from the first byte of a request to the last of its body; of
    more connections than connections_max the newest is closed at once. 0 is no bound.
    """

    tls_cert: str = setting("QUEEN_TLS_CERT", default="")
    tls_key: str = setting("QUEEN_TLS_KEY", default="")
    header_bytes_max: int = setting(
        "QUEEN_MAX_HEADER_BYTES", default=65_536, low=1024, high=1_048_576
    )
    request_s: float = setting("QUEEN_REQUEST_S", default=60.0, low=0.0, high=86_400.0)
    connections_max: int = setting("QUEEN_MAX_CONNECTIONS", default=0, floor=0, high=10_000_000)
    allowed_hosts: tuple[str, ...] = setting("QUEEN_ALLOWED_HOSTS", default=("*",), parse=paths)
    trusted_origins: tuple[str, ...] = setting("QUEEN_TRUSTED_ORIGINS", default=(), parse=paths)

    @property
    def tls(self) -> bool:
        return bool(self.tls_cert and self.tls_key)

    @property
    def seen_by_tls(self) -> bool:
        """Whether browsers come by TLS: ours, or that of a proxy whose origin is trusted."""
        return self.tls or any(one.lower().startswith("https:") for one in self.trusted_origins)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaConfig:
    """What metered tenants may have; the default tenant is unmetered.

    In grant mode (None: where the tenancy header is read) a tenant without an enabled quota row
    has neither key/value state nor timers. A broker reads the rows anew every refresh_ms.
    """

    require_grant: bool | None = setting("QUEEN_KV_REQUIRE_GRANT", default=None, boolean=True)
    refresh_ms: int = setting("QUEEN_KV_QUOTA_REFRESH_MS", default=30_000, floor=100, high=INT_MAX)
    hot_percent: int = setting("QUEEN_KV_QUOTA_HOT_PERCENT", default=80, low=1, high=100)
    release_percent: int = setting("QUEEN_KV_QUOTA_RELEASE_PERCENT", default=90, low=1, high=100)
    usage_every_ms: int = setting(
        "QUEEN_KV_USAGE_EVERY_MS", default=300_000, floor=1000, high=INT_MAX
    )
