"""A PostgreSQL and its streaming standby, both ours, for a test that kills the first of them.

Both listen on TCP port 5432 of loopback addresses of their own, as two hosts would. Commits wait
until the standby has applied them (`synchronous_commit = remote_apply`).

Used by test_failover.py. Imports harness and the embedded PostgreSQL.
"""

import os
import random
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from queen_project import embedded_cluster, embedded_paths
from tests.harness import KillablePostgres, eventually

BACKUP_TIMEOUT_S = 60.0
SETTINGS = {"shared_buffers": "32MB", "max_connections": "100", "hot_standby_feedback": "on"}


def new_data_dir() -> Path:
    """Not pytest's own directory: the account that PostgreSQL runs as could not reach it."""
    data_dir = Path(tempfile.mkdtemp(prefix="queen-ha-", dir="/tmp"))
    data_dir.chmod(0o711)
    return data_dir


class Pair:
    def __init__(self) -> None:
        net = random.SystemRandom()
        prefix = f"127.{net.randint(1, 254)}.{net.randint(0, 254)}"
        self.addresses = [f"{prefix}.1", f"{prefix}.2"]
        self.primary = KillablePostgres(new_data_dir(), self._settings(self.addresses[0]))
        self.standby_dir = new_data_dir()
        self._copy_to_standby()
        self.standby = KillablePostgres(self.standby_dir, self._settings(self.addresses[1]))
        with self.primary.database.connect() as db:
            db.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            db.execute("ALTER SYSTEM SET synchronous_commit = 'remote_apply'")
            db.execute("SELECT pg_reload_conf()")
            eventually(lambda: self._synchronous(db))

    @property
    def environment(self) -> dict[str, str]:
        """What leads a broker to whichever of the two accepts writes."""
        return {
            "PG_HOST": ",".join(self.addresses),
            "PG_PORT": str(embedded_paths.PORT),
            "PG_DATABASE": "postgres",
        }

    def kill_primary(self) -> None:
        """With everything that belongs to it, at once, as a machine that loses its power."""
        cluster = embedded_cluster.locate(self.primary.data_dir)
        for entry in Path("/proc").glob("[0-9]*"):
            if embedded_cluster.works_in_cluster(int(entry.name), cluster):
                os.kill(int(entry.name), signal.SIGKILL)
        eventually(lambda: not self._primary_lives())

    def promote(self) -> None:
        with self.standby.database.connect() as db:
            assert db.execute("SELECT pg_promote(wait => true)").fetchone() == (True,)

    def remove(self) -> None:
        self.primary.remove()
        self.standby.remove()

    def _primary_lives(self) -> bool:
        cluster = embedded_cluster.locate(self.primary.data_dir)
        pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
        return any(embedded_cluster.works_in_cluster(pid, cluster) for pid in pids)

    def _settings(self, address: str) -> dict[str, str]:
        return {**SETTINGS, "listen_addresses": address}

    def _copy_to_standby(self) -> None:
        cluster = embedded_cluster.locate(self.standby_dir)
        embedded_cluster.prepare_directories(cluster)
        cluster.path.mkdir(mode=0o700)
        if cluster.account.switch:
            shutil.chown(cluster.path, cluster.account.uid, cluster.account.gid)
        embedded_cluster._run(
            cluster,
            "pg_basebackup",
            [
                *("--host", str(embedded_paths.socket_dir(self.primary.data_dir))),
                *("--username", "postgres", "--pgdata", str(cluster.path)),
                *("--write-recovery-conf", "--checkpoint", "fast", "--no-sync"),
            ],
            timeout_s=BACKUP_TIMEOUT_S,
        )

    @staticmethod
    def _synchronous(db: psycopg.Connection[Any]) -> bool:
        states = db.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
        in_force = db.execute("SHOW synchronous_commit").fetchone()
        return states == [("sync",)] and in_force == ("remote_apply",)
