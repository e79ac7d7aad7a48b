"""The environment, read once, as the typed dataclasses of brokers/config.py.

The only module that looks at os.environ. Every unusable value is collected, so that the
start names all of them at once. An empty value counts as not set.

Imports brokers.config, config_checks and embedded_paths. Used by settings.py, manage.py and
the commands.
"""

import ipaddress
import math
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from brokers.config import (
    AdmissionConfig,
    Config,
    ConfigError,
    KvConfig,
    MeshConfig,
    PathsConfig,
    PostgresConfig,
    QuotaConfig,
    ServerConfig,
    worker_id,
)
from brokers.config_client import ClientConfig
from brokers.config_values import without_password
from queen_project import config_checks, embedded_paths
from queen_project.config_checks import is_loopback, warnings

__all__ = [
    "PROJECT_DIR",
    "Config",
    "ConfigError",
    "client_from_environment",
    "for_listener",
    "for_worker",
    "from_environment",
    "load",
    "warnings",
]

PROJECT_DIR = Path(__file__).resolve().parent.parent
TRUE = ("true", "1", "yes", "on")
FALSE = ("false", "0", "no", "off")
INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
FLOAT = re.compile(r"[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")
SERVER_ID_BYTES_MAX = 255

T = TypeVar("T")


def from_environment(overrides: Mapping[str, str] | None = None) -> Config:
    """The configuration of this process; overrides come from the command line."""
    return load({**os.environ, **(overrides or {})})


def client_from_environment() -> ClientConfig:
    """What the operator's command line goes by where its arguments say nothing."""
    return _read_part(ClientConfig, os.environ, [])


def load(env: Mapping[str, str]) -> Config:
    """Build the whole configuration, or tell all that is wrong with it."""
    problems: list[str] = []
    default = Config()
    parts: dict[str, Any] = {
        part.name: _read_part(type(getattr(default, part.name)), env, problems)
        for part in fields(Config)
    }
    config = Config(**parts)
    paths = _resolve_paths(config.paths, env)
    server = _resolve_server(config.server, problems)
    config = replace(
        config,
        paths=paths,
        server=server,
        mesh=_resolve_mesh(config.mesh, server, problems),
        postgres=_resolve_postgres(config.postgres, paths, problems),
        admission=_resolve_admission(config.admission, config.postgres.pool_size, problems),
        kv=_resolve_kv(config.kv, config.postgres.pool_size),
        quota=_resolve_quota(config),
    )
    config_checks.check(config, problems)
    if problems:
        raise ConfigError(problems)
    return config


def for_listener(config: Config, *, port: int) -> Config:
    """The same configuration once the listener knows its port (PORT=0 takes a free one)."""
    server = config.server
    named_by_default = server.server_id == _default_server_id(server.port)
    server_id = _default_server_id(port) if named_by_default else server.server_id
    return replace(config, server=replace(server, port=port, server_id=server_id))


def for_worker(config: Config, number: int, *, run_dir: Path) -> Config:
    """What one of several workers goes by: a replica with a name of its own."""
    server = config.server
    assert number < server.workers
    own = worker_id(server.server_id, number)
    return replace(config, server=replace(server, server_id=own, worker=number, run_dir=run_dir))


def _read_part(part: type[T], env: Mapping[str, str], problems: list[str]) -> T:
    """One dataclass; a field with a problem keeps its default so that the rest is checked too."""
    values: dict[str, Any] = {}
    for one in fields(part):  # type: ignore[arg-type]
        names = one.metadata.get("env", ())
        empty_counts = one.metadata.get("empty_counts", False)
        name = next(
            (n for n in names if env.get(n, "").strip() or (empty_counts and n in env)), None
        )
        if name is None:
            continue
        try:
            values[one.name] = _parse(env[name], one.default, one.metadata)
        except ValueError as error:
            shown = "<secret>" if one.metadata["secret"] else repr(without_password(env[name]))
            problems.append(f"{name}={shown} {error}")
    return part(**values)


def _parse(text: str, default: Any, metadata: Mapping[str, Any]) -> Any:
    if metadata["parse"]:
        return metadata["parse"](text)
    if isinstance(default, bool) or metadata["boolean"]:
        return _parse_boolean(text)
    if isinstance(default, int | float):
        return _parse_number(text, default, metadata)
    if metadata["choices"]:
        choice = text.strip().lower()
        if choice not in metadata["choices"]:
            raise ValueError(f"is none of {', '.join(metadata['choices'])}")
        return choice
    return text if metadata["secret"] else text.strip()


def _parse_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in TRUE + FALSE:
        raise ValueError("is not a boolean (expected true/false, 1/0, yes/no, on/off)")
    return word in TRUE


def _parse_number(text: str, default: float, metadata: Mapping[str, Any]) -> float:
    """Plain ASCII digits only: int() alone would also take `1_000` and digits of other scripts."""
    text = text.strip()
    value: float
    if isinstance(default, int):
        if not INTEGER.fullmatch(text):
            raise ValueError("is not an integer")
        value = int(text)
    else:
        if not FLOAT.fullmatch(text) or not math.isfinite(float(text)):
            raise ValueError("is not a number")
        value = float(text)
    low, high, floor = metadata["low"], metadata["high"], metadata["floor"]
    if floor is not None:
        value = max(value, floor)
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"is outside {low if low is not None else floor}..{high}")
    return value


def _resolve_paths(paths: PathsConfig, env: Mapping[str, str]) -> PathsConfig:
    if env.get("QUEEN_DATA_DIR", "").strip():
        data_dir = Path(os.path.abspath(paths.data_dir.expanduser()))
    elif env.get("PG_HOST", "").strip():
        data_dir = PROJECT_DIR / ".queen"
    else:
        data_dir = embedded_paths.default_data_dir(PROJECT_DIR)
    return replace(paths, data_dir=data_dir)


def _resolve_server(server: ServerConfig, problems: list[str]) -> ServerConfig:
    bind_addr = server.bind_addr
    if bind_addr.startswith("[") and bind_addr.endswith("]"):
        bind_addr = bind_addr[1:-1]
    try:
        ipaddress.ip_address(bind_addr)
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", bind_addr):
            problems.append(
                f"QUEEN_BIND_ADDR={server.bind_addr!r} must be a host or an IP address alone;"
                " the port goes into PORT"
            )
    server_id = server.server_id or _default_server_id(server.port)
    longest = server_id if server.workers == 1 else worker_id(server_id, server.workers - 1)
    if len(longest.encode("utf-8", "replace")) > SERVER_ID_BYTES_MAX or not server_id.isprintable():
        problems.append(
            f"QUEEN_SERVER_ID must be printable and at most {SERVER_ID_BYTES_MAX} bytes long"
        )
    return replace(server, bind_addr=bind_addr, server_id=server_id)


def _resolve_mesh(mesh: MeshConfig, server: ServerConfig, problems: list[str]) -> MeshConfig:
    """A peer is not dead before it has missed a second heartbeat."""
    bind_addr = mesh.bind_addr.strip("[]") or server.bind_addr
    open_to_all = not (mesh.secret or mesh.insecure or is_loopback(bind_addr))
    if mesh.enabled and mesh.peers and open_to_all:
        problems.append(
            "QUEEN_MESH_PEERS is set without QUEEN_SYNC_SECRET, and the mesh would listen on"
            f" {bind_addr} for anybody: set one secret for all brokers, or set"
            " QUEEN_MESH_BIND_ADDR to a loopback address, or allow it with"
            " QUEEN_SYNC_INSECURE=true behind a firewall"
        )
    dead_ms = max(mesh.dead_threshold_ms, 2 * mesh.heartbeat_ms)
    return replace(mesh, bind_addr=bind_addr, dead_threshold_ms=dead_ms)


def _default_server_id(port: int) -> str:
    """Host and port, so that two brokers on one host differ and a restart keeps its name."""
    return f"{socket.gethostname()}:{port}"


def _resolve_postgres(
    postgres: PostgresConfig, paths: PathsConfig, problems: list[str]
) -> PostgresConfig:
    if not postgres.hosts:
        return replace(
            postgres,
            hosts=(str(embedded_paths.socket_dir(paths.data_dir)),),
            ports=(embedded_paths.PORT,),
            user="postgres",
            password="",
            use_ssl=False,
            embedded=True,
        )
    if len(postgres.ports) not in (1, len(postgres.hosts)):
        problems.append("PG_PORT must hold one port, or as many as PG_HOST has hosts")
    if not postgres.use_ssl:
        return postgres
    if not postgres.ssl_root_cert:
        return replace(postgres, ssl_trust_file=_system_roots())
    # Orchestrators often pass line ends in a secret as the two characters \n.
    pem = postgres.ssl_root_cert.replace("\\n", "\n").strip() + "\n"
    try:
        ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, ValueError):
        problems.append("PG_SSL_ROOT_CERT holds no readable PEM certificate")
        return postgres
    return replace(postgres, ssl_trust_file=str(_keep_root_certificate(pem, paths.data_dir)))


def _system_roots() -> str:
    """The bundle that Python trusts: the one compiled into psycopg's OpenSSL may not exist here."""
    return ssl.get_default_verify_paths().cafile or "system"


def _keep_root_certificate(pem: str, data_dir: Path) -> Path:
    """libpq reads certificates from files only. Written aside and renamed, never half there."""
    path = data_dir / "postgres-root-cert.pem"
    try:
        if path.read_text() == pem:
            return path
    except OSError:
        pass
    data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=data_dir, prefix=path.name)  # mode 0600
    with os.fdopen(descriptor, "w") as file:
        file.write(pem)
    os.replace(draft, path)
    return path


def _resolve_admission(
    admission: AdmissionConfig, pool_size: int, problems: list[str]
) -> AdmissionConfig:
    """With a pool of 24: reserve 6, minimum 4, maximum and no-sync budget 18, start at 12."""
    reserve = admission.pool_reserve or max(1, pool_size // 4)
    if reserve >= pool_size:
        problems.append(
            f"QUEEN_ADMISSION_POOL_RESERVE={reserve} leaves nothing of DB_POOL_SIZE={pool_size}"
        )
        return admission
    ceiling = min(admission.max or pool_size - reserve, pool_size - reserve)
    lowest = min(admission.min, ceiling)
    start = admission.init or max(lowest, 2 * ceiling // 3)
    return replace(
        admission,
        pool_reserve=reserve,
        max=ceiling,
        min=lowest,
        init=min(max(start, lowest), ceiling),
        nosync_budget=min(admission.nosync_budget or ceiling, ceiling),
    )


def _resolve_kv(kv: KvConfig, pool_size: int) -> KvConfig:
    return replace(kv, pool_size=kv.pool_size or min(max(pool_size // 10, 4), 32))


def _resolve_quota(config: Config) -> QuotaConfig:
    grants = config.quota.require_grant
    return replace(config.quota, require_grant=config.tenancy.header if grants is None else grants)
