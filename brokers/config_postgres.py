"""Settings of the connections to PostgreSQL.

Imports config_values. Used by config.py.
"""

from dataclasses import dataclass
from typing import Any

from brokers.config_values import hosts, ports, setting

INT_MAX = 2_147_483_647


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    """Where PostgreSQL is. No host means the embedded one; config.py fills in its socket.

    `parameters` is what psycopg connects with. Several hosts mean that the one which
    accepts writes is looked for, so that a promoted standby is found.
    """

    hosts: tuple[str, ...] = setting("PG_HOST", default=(), parse=hosts)
    ports: tuple[int, ...] = setting("PG_PORT", default=(5432,), parse=ports)
    user: str = setting("PG_USER", default="postgres")
    password: str = setting("PG_PASSWORD", default="postgres", secret=True)
    database: str = setting("PG_DATABASE", "PG_DB", default="postgres")
    use_ssl: bool = setting("PG_USE_SSL", default=False)
    ssl_reject_unauthorized: bool = setting("PG_SSL_REJECT_UNAUTHORIZED", default=True)
    ssl_root_cert: str = setting("PG_SSL_ROOT_CERT", default="", secret=True)
    pool_size: int = setting("DB_POOL_SIZE", default=24, low=2, high=10_000)
    stmt_timeout_ms: int = setting("QUEEN_STMT_TIMEOUT_MS", default=30_000, floor=1, high=INT_MAX)
    read_pool_size: int = setting("QUEEN_READ_POOL_SIZE", default=4, low=1, high=1000)
    read_timeout_ms: int = setting("QUEEN_READ_TIMEOUT_MS", default=10_000, floor=1, high=INT_MAX)
    connect_timeout_s: int = setting("QUEEN_CONNECT_TIMEOUT_S", default=5, low=2, high=300)
    prepare: bool = setting("QUEEN_PREPARE_STATEMENTS", default=True)

    embedded: bool = False
    ssl_trust_file: str = ""

    @property
    def ssl_trust(self) -> str:
        """What a certificate is checked against, in the words that tooling reads."""
        if not self.use_ssl:
            return "plaintext"
        if self.ssl_root_cert:
            return "supplied-ca"
        return "webpki-roots" if self.ssl_reject_unauthorized else "accept-any"

    def parameters(self, *, application_name: str = "", database: str = "") -> dict[str, Any]:
        """libpq connection parameters, for psycopg.connect(**...) and for the pools."""
        parameters: dict[str, Any] = {
            "host": ",".join(self.hosts),
            "port": ",".join(str(port) for port in self.ports),
            "user": self.user,
            "password": self.password,
            "dbname": database or self.database,
            "connect_timeout": self.connect_timeout_s,
            "client_encoding": "UTF8",
            "sslmode": "disable",
            # A peer that vanished without a word must not hold a call for minutes.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        }
        if application_name:
            parameters["application_name"] = application_name
        if len(self.hosts) > 1:
            parameters["target_session_attrs"] = "read-write"
        if self.ssl_trust == "accept-any":
            parameters["sslmode"] = "require"
        elif self.ssl_trust != "plaintext":
            parameters["sslmode"] = "verify-full"
            parameters["sslrootcert"] = self.ssl_trust_file
        return parameters
