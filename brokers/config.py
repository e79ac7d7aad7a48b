"""Settings of the broker: what can be tuned, its unit, its default, its bounds.

Each dataclass belongs to one part and is the only thing that part sees of the
configuration. queen_project/config.py fills them from the environment, once, at
start; nothing here reads the environment.

`low` and `high` are bounds whose breach stops the start; `floor` is where a smaller
number is silently raised to, as operators of Queen MQ expect it.

Imports config_access, config_live, config_postgres, config_status, config_values. Used by
everything that can be tuned.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from brokers.config_access import AuthConfig, ListenerConfig, QuotaConfig, TenancyConfig
from brokers.config_live import LiveConfig
from brokers.config_postgres import PostgresConfig
from brokers.config_status import StatusConfig
from brokers.config_values import (
    directory_name,
    encryption_key,
    encryption_keys,
    host_and_port,
    log_levels,
    mesh_peers,
    setting,
    subscription_mode,
)

INT_MAX = 2_147_483_647
MESH_PORT = 6633
BODY_BYTES_CEILING = 1_073_741_824
WORKERS_MAX = 64


class ConfigError(Exception):
    """Every problem found, so that one restart is enough to fix them all."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The HTTP listener. The drain grace bounds how long a stop waits for requests in flight.

    `workers` processes share the listener. In one of several, `worker` tells which, the
    server id ends in it, and `run_dir` is where they find each other.
    """

    port: int = setting("PORT", default=6632, low=0, high=65535)
    bind_addr: str = setting("QUEEN_BIND_ADDR", default="0.0.0.0")
    server_id: str = setting("QUEEN_SERVER_ID", default="")
    body_bytes_max: int = setting(
        "QUEEN_MAX_BODY_BYTES", default=67_108_864, floor=1, high=BODY_BYTES_CEILING
    )
    apply_schema: bool = setting("QUEEN_APPLY_SCHEMA", default=True)
    keep_alive_s: int = setting("QUEEN_KEEP_ALIVE_S", default=75, low=1, high=3600)
    drain_s: float = setting("QUEEN_DRAIN_S", default=20.0, low=0.0, high=600.0)
    workers: int = setting("QUEEN_WORKERS", default=1, low=1, high=WORKERS_MAX)

    worker: int = 0
    run_dir: Path | None = None

    @property
    def is_worker(self) -> bool:
        """Whether this process is one of several that a parent has started."""
        return self.run_dir is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """The combiner. A call is bounded, so that one huge request delays its neighbours by one
    bounded call and not more."""

    busy_ms: int = setting("QUEEN_PUSH_BUSY_MS", default=5000, floor=1, high=600_000)
    call_items_max: int = setting("QUEEN_PUSH_CALL_ITEMS_MAX", default=5000, low=1, high=100_000)
    call_bytes_max: int = setting(
        "QUEEN_PUSH_CALL_BYTES_MAX", default=8_388_608, low=1024, high=268_435_456
    )
    waiting_bytes_max: int = setting(
        "QUEEN_PUSH_WAITING_BYTES_MAX", default=536_870_912, low=1_048_576, high=2**40
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolConfig:
    """The disk spool and its drain. No directory means one below the data directory, named
    after the server id.

    max_bytes bounds what the spool may occupy, min_free_bytes is what it leaves free on its
    disk; 0 is no bound. handover_ms is how long a push waits at most for its partition to
    come back from the spool.
    """

    directory: str = setting("FILE_BUFFER_DIR", default="")
    fsync: bool = setting("FILE_BUFFER_FSYNC", default=True)
    flush_ms: int = setting("FILE_BUFFER_FLUSH_MS", default=100, floor=1, high=INT_MAX)
    batch_max: int = setting("FILE_BUFFER_MAX_BATCH", default=1000, floor=1, high=100_000)
    events_per_file: int = setting(
        "FILE_BUFFER_EVENTS_PER_FILE", default=10_000, floor=1, high=INT_MAX
    )
    max_bytes: int = setting("FILE_BUFFER_MAX_BYTES", default=0, floor=0, high=2**62)
    min_free_bytes: int = setting("FILE_BUFFER_MIN_FREE_BYTES", default=0, floor=0, high=2**62)
    delete_unmovable: bool = setting("FILE_BUFFER_DELETE_UNMOVABLE", default=False)
    handover_ms: int = setting("QUEEN_SPOOL_HANDOVER_MS", default=1000, floor=1, high=600_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopConfig:
    """Long polling. A longer poll_ms trades idle queries for the delay after a lost hint."""

    subscription_mode: str = setting(
        "DEFAULT_SUBSCRIPTION_MODE", default="new", parse=subscription_mode
    )
    timeout_ms: int = setting(
        "DEFAULT_TIMEOUT", "POP_DEFAULT_TIMEOUT_MS", default=30_000, floor=1, high=INT_MAX
    )
    poll_ms: int = setting("POP_WAIT_MAX_INTERVAL_MS", default=1000, floor=1, high=60_000)
    seats_max: int = setting("QUEEN_POP_SEATS_MAX", default=20_000, low=1, high=1_000_000)
    autopilot: str = setting("QUEEN_POP_AUTOPILOT", default="on", choices=("on", "shadow", "off"))
    autopilot_batch: int = setting("QUEEN_POP_AUTOPILOT_BATCH", default=100, low=1, high=10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConfig:
    """Hints between brokers. Without peers nothing is bound and nothing is sent.

    Without a secret only loopback is listened on, unless `insecure` allows it. A peer that was
    not heard of for dead_threshold_ms is given up, and dialled again.
    """

    peers: tuple[str, ...] = setting(
        "QUEEN_MESH_PEERS", "QUEEN_UDP_PEERS", default=(), parse=mesh_peers
    )
    port: int = setting("QUEEN_MESH_PORT", "QUEEN_UDP_NOTIFY_PORT", default=6633, low=0, high=65535)
    bind_addr: str = setting("QUEEN_MESH_BIND_ADDR", default="")
    enabled: bool = setting("QUEEN_SYNC_ENABLED", default=True)
    secret: str = setting("QUEEN_SYNC_SECRET", default="", secret=True)
    insecure: bool = setting("QUEEN_SYNC_INSECURE", default=False)
    heartbeat_ms: int = setting("QUEEN_SYNC_HEARTBEAT_MS", default=1000, floor=50, high=60_000)
    dead_threshold_ms: int = setting(
        "QUEEN_SYNC_DEAD_THRESHOLD_MS", default=5000, floor=100, high=600_000
    )

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Where to dial; a peer without a port listens where we do."""
        return tuple(host_and_port(peer, self.port or MESH_PORT) for peer in self.peers)


@dataclass(frozen=True, slots=True, kw_only=True)
class AckConfig:
    """The ack registry: a bounded memory of what a pop handed out."""

    registry_mb: int = setting("QUEEN_ACK_REGISTRY_MB", default=64, floor=1, high=65_536)


@dataclass(frozen=True, slots=True, kw_only=True)
class HotlistConfig:
    """The ready ring: which partitions probably have work, and how often that is re-read."""

    window_batch: int = setting("QUEEN_HOTLIST_WINDOW_BATCH", default=100, floor=1, high=INT_MAX)
    reseed_ms: int = setting("QUEEN_HOTLIST_RESEED_MS", default=30_000, floor=1, high=INT_MAX)
    reseed_full_ms: int = setting(
        "QUEEN_HOTLIST_RESEED_FULL_MS", default=300_000, floor=1, high=INT_MAX
    )
    idle_sweep_ms: int = setting(
        "QUEEN_HOTLIST_IDLE_SWEEP_MS", default=300_000, floor=1, high=INT_MAX
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfig:
    """Write transactions in flight. Zero means: derived from the pool (see config.py)."""

    init: int = setting("QUEEN_ADMISSION_INIT", default=0, floor=0, high=10_000)
    min: int = setting("QUEEN_ADMISSION_MIN", default=4, floor=1, high=10_000)
    max: int = setting("QUEEN_ADMISSION_MAX", default=0, floor=0, high=10_000)
    pool_reserve: int = setting("QUEEN_ADMISSION_POOL_RESERVE", default=0, floor=0, high=10_000)
    nosync_budget: int = setting("QUEEN_ADMISSION_NOSYNC_BUDGET", default=0, floor=0, high=10_000)
    share_push: float = setting("QUEEN_ADMISSION_SHARE_PUSH", default=0.25, low=0.0, high=1.0)
    share_pop: float = setting("QUEEN_ADMISSION_SHARE_POP", default=0.40, low=0.0, high=1.0)
    share_ack: float = setting("QUEEN_ADMISSION_SHARE_ACK", default=0.30, low=0.0, high=1.0)
    share_maint: float = setting("QUEEN_ADMISSION_SHARE_MAINT", default=0.05, low=0.0, high=1.0)
    tick_ms: int = setting("QUEEN_ADMISSION_TICK_MS", default=500, floor=1, high=600_000)
    train_gap_us: int = setting(
        "QUEEN_ADMISSION_TRAIN_GAP_US", default=300, floor=1, high=1_000_000
    )
    trace: bool = setting("QUEEN_ADMISSION_TRACE", default=False)
    give_way: bool = setting("QUEEN_ADMISSION_GIVE_WAY", default=True)
    log_rates_ms: int = setting("QUEEN_LOG_RATES_MS", default=10_000, floor=100, high=INT_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvConfig:
    """Key/value state. Its pool is what bounds it: zero means a tenth of DB_POOL_SIZE, 4..32.

    The rates are those of a metered tenant, per second; the default tenant is unmetered.
    """

    pool_size: int = setting("QUEEN_KV_POOL_SIZE", default=0, floor=0, high=1000)
    ops_max: int = setting("QUEEN_KV_MAX_OPS_PER_CALL", default=256, floor=1, high=10_000)
    keys_max: int = setting("QUEEN_KV_MAX_KEYS_PER_CALL", default=1024, floor=1, high=100_000)
    # Beyond 2000 a key would not fit the index together with its namespace.
    key_bytes_max: int = setting("QUEEN_KV_MAX_KEY_BYTES", default=512, floor=1, high=2000)
    value_bytes_max: int = setting(
        "QUEEN_KV_MAX_VALUE_BYTES", default=65_536, floor=1, high=67_108_864
    )
    read_bytes_max: int = setting(
        "QUEEN_KV_MAX_READ_BYTES", default=4_194_304, floor=1, high=BODY_BYTES_CEILING
    )
    prefix_limit: int = setting("QUEEN_KV_PREFIX_LIMIT", default=1000, floor=1, high=100_000)
    read_rate: int = setting("QUEEN_KV_READ_RATE", default=200, floor=1, high=INT_MAX)
    read_burst: int = setting("QUEEN_KV_READ_BURST", default=400, floor=1, high=INT_MAX)
    write_rate: int = setting("QUEEN_KV_WRITE_RATE", default=100, floor=1, high=INT_MAX)
    write_burst: int = setting("QUEEN_KV_WRITE_BURST", default=200, floor=1, high=INT_MAX)
    cell_rate: int = setting("QUEEN_KV_CELL_RATE", default=2000, floor=1, high=INT_MAX)
    tenants_max: int = setting("QUEEN_KV_MAX_TENANTS", default=10_000, floor=1, high=INT_MAX)
    shed_after: int = setting("QUEEN_KV_STANDALONE_SHED_AFTER", default=5, floor=1, high=INT_MAX)
    expire_every_ms: int = setting("QUEEN_KV_EXPIRE_EVERY_MS", default=1000, floor=1, high=INT_MAX)
    expire_batch: int = setting("QUEEN_KV_EXPIRE_BATCH", default=1000, floor=1, high=100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimersConfig:
    """What one call may schedule, and how far ahead."""

    horizon_s: int = setting(
        "QUEEN_TIMERS_MAX_HORIZON_S", default=7_776_000, floor=1, high=3_153_600_000
    )
    ops_max: int = setting("QUEEN_TIMERS_MAX_OPS_PER_CALL", default=256, floor=1, high=10_000)
    payload_bytes_max: int = setting(
        "QUEEN_TIMERS_MAX_PAYLOAD_BYTES", default=1_048_576, floor=1, high=67_108_864
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweeperConfig:
    """The sweeper: how much it takes at once, for how long, and how long it may sleep.

    A timer that another broker scheduled is seen within max_sleep_ms of its time.
    """

    enabled: bool = setting("QUEEN_SWEEPER", default=True)
    lease_ms: int = setting("QUEEN_SWEEPER_LEASE_MS", default=30_000, floor=100, high=INT_MAX)
    attempts_max: int = setting("QUEEN_SWEEPER_MAX_ATTEMPTS", default=5, floor=1, high=1000)
    backoff_min_ms: int = setting(
        "QUEEN_SWEEPER_BACKOFF_MIN_MS", default=1000, floor=1, high=INT_MAX
    )
    backoff_max_ms: int = setting(
        "QUEEN_SWEEPER_BACKOFF_MAX_MS", default=60_000, floor=1, high=INT_MAX
    )
    min_sleep_ms: int = setting("QUEEN_SWEEPER_MIN_SLEEP_MS", default=5, floor=1, high=60_000)
    max_sleep_ms: int = setting("QUEEN_SWEEPER_MAX_SLEEP_MS", default=1000, floor=1, high=600_000)
    idle_max_sleep_ms: int = setting(
        "QUEEN_SWEEPER_IDLE_MAX_SLEEP_MS", default=1000, floor=1, high=600_000
    )
    idle_after_cycles: int = setting(
        "QUEEN_SWEEPER_IDLE_AFTER_CYCLES", default=60, floor=1, high=INT_MAX
    )
    claim_batch: int = setting("QUEEN_SWEEPER_CLAIM_BATCH", default=200, floor=1, high=10_000)
    cycle_rows_max: int = setting(
        "QUEEN_SWEEPER_CYCLE_MAX_ROWS", default=5000, floor=1, high=1_000_000
    )
    due_cap: int = setting("QUEEN_SWEEPER_DUE_CAP", default=2000, floor=1, high=1_000_000)
    fire_bytes_max: int = setting(
        "QUEEN_SWEEPER_MAX_FIRE_BYTES", default=8_388_608, floor=1, high=268_435_456
    )
    isolate_on_permanent: bool = setting("QUEEN_SWEEPER_ISOLATE_ON_PERMANENT", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsConfig:
    """Chores that no request asks for, and how long transaction ids are remembered at least."""

    txn_floor_s: int = setting("QUEEN_TXN_FLOOR_S", default=900, floor=1, high=INT_MAX)
    cache_refresh_ms: int = setting(
        "QUEEN_CACHE_REFRESH_INTERVAL_MS", default=60_000, floor=1, high=INT_MAX
    )
    metrics_flush_ms: int = setting("METRICS_FLUSH_MS", default=60_000, floor=1000, high=INT_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadersConfig:
    """Tasks that one broker at a time does for all: retention and the figures of queues.

    A leader that dies keeps its task from the others for at most lease_ms. A step of
    retention deletes at most retention_batch_size segments of one partition.
    """

    lease_ms: int = setting("QUEEN_LEADER_LEASE_MS", default=30_000, floor=100, high=INT_MAX)
    retention_interval_ms: int = setting("RETENTION_INTERVAL", default=5000, floor=1, high=INT_MAX)
    retention_batch_size: int = setting(
        "RETENTION_BATCH_SIZE", default=1000, floor=1, high=1_000_000
    )
    retention_parallelism: int = setting("RETENTION_PARALLELISM", default=1, floor=1, high=16)
    cleanup_enabled: bool = setting("QUEEN_PARTITION_CLEANUP_ENABLED", default=True)
    cleanup_days: int = setting("PARTITION_CLEANUP_DAYS", default=30, floor=0, high=36_500)
    metrics_days: int = setting("METRICS_RETENTION_DAYS", default=90, floor=1, high=36_500)
    statistics_interval_ms: int = setting(
        "STATS_INTERVAL_MS", default=10_000, floor=1, high=INT_MAX
    )
    retained_bytes_interval_ms: int = setting(
        "RETAINED_BYTES_INTERVAL_MS", default=600_000, floor=1, high=INT_MAX
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionConfig:
    """The key ring of payloads at rest: `key` seals and opens, the old ones only open."""

    key: str = setting("QUEEN_ENCRYPTION_KEY", default="", parse=encryption_key, secret=True)
    keys_old: tuple[str, ...] = setting(
        "QUEEN_ENCRYPTION_KEYS_OLD", default=(), parse=encryption_keys, secret=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsConfig:
    """Everything that is written on this host lies under the data directory."""

    data_dir: Path = setting("QUEEN_DATA_DIR", default=Path(".queen"), parse=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingConfig:
    """`levels` comes from a filter such as `info,queen::pop=debug`: (logger, level) each."""

    levels: tuple[tuple[str, str], ...] = setting(
        "RUST_LOG", "LOG_LEVEL", default=(("", "INFO"),), parse=log_levels, shown="LOG_LEVEL"
    )
    json: bool = setting("QUEEN_LOG_JSON", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration, one attribute a part."""

    server: ServerConfig = ServerConfig()
    listener: ListenerConfig = ListenerConfig()
    postgres: PostgresConfig = PostgresConfig()
    push: PushConfig = PushConfig()
    file_buffer: SpoolConfig = SpoolConfig()
    mesh: MeshConfig = MeshConfig()
    pop: PopConfig = PopConfig()
    ack: AckConfig = AckConfig()
    hotlist: HotlistConfig = HotlistConfig()
    admission: AdmissionConfig = AdmissionConfig()
    kv: KvConfig = KvConfig()
    timers: TimersConfig = TimersConfig()
    sweeper: SweeperConfig = SweeperConfig()
    jobs: JobsConfig = JobsConfig()
    status: StatusConfig = StatusConfig()
    live: LiveConfig = LiveConfig()
    leaders: LeadersConfig = LeadersConfig()
    auth: AuthConfig = AuthConfig()
    encryption: EncryptionConfig = EncryptionConfig()
    tenancy: TenancyConfig = TenancyConfig()
    quota: QuotaConfig = QuotaConfig()
    paths: PathsConfig = PathsConfig()
    logging: LoggingConfig = LoggingConfig()

    @property
    def tenants(self) -> bool:
        """Whether there may be others than the default one: the header names them, or API keys."""
        return self.tenancy.header or self.auth.api_keys

    @property
    def spool_root(self) -> Path:
        """Where the spools of this host's brokers lie: what was given, else below our data."""
        given = self.file_buffer.directory
        if given:
            return Path(os.path.abspath(Path(given).expanduser()))
        return self.paths.data_dir / "spool"

    @property
    def spool_directory(self) -> Path:
        """Our own. A directory that was given is it, unless several workers have to share it."""
        if self.file_buffer.directory and not self.server.is_worker:
            return self.spool_root
        return self.spool_root / directory_name(self.server.server_id)

    @property
    def worker_spool_directories(self) -> frozenset[Path]:
        """Those of all workers, ours too: none is left behind, even if its owner is not there."""
        if not self.server.is_worker:
            return frozenset()
        base, _, _ = self.server.server_id.rpartition("/")
        names = (worker_id(base, number) for number in range(self.server.workers))
        return frozenset(self.spool_root / directory_name(name) for name in names)

    def describe(self) -> dict[str, dict[str, str]]:
        """Every resolved value by part and environment name, secrets only by their length."""
        return {
            part.name: {
                one.metadata["shown"]: _shown(one.metadata, getattr(values, one.name))
                for one in fields(values)
                if one.metadata
            }
            for part in fields(self)
            for values in [getattr(self, part.name)]
        }


def worker_id(server_id: str, number: int) -> str:
    """The server id of one of several workers."""
    return f"{server_id}/{number}"


def _shown(metadata: Mapping[str, Any], value: Any) -> str:
    if metadata["secret"]:
        value = ",".join(value) if isinstance(value, tuple) else value
        return f"<set:{len(value)} chars>" if value else "<unset>"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        items = ("=".join(filter(None, i)) if isinstance(i, tuple) else str(i) for i in value)
        value = ",".join(items)
    return str(value) if value != "" else "<unset>"
