"""PgBouncer in transaction mode in front of the run's PostgreSQL: `pytest --pgbouncer PROGRAM`.

Brokers then reach their databases through it, tests look at them directly. With fewer server
connections than the brokers have, so that sessions really are shared.

Used by harness.py and conftest.py. Imports nothing of ours.
"""

import contextlib
import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

SETTINGS = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 8
max_client_conn = 2000
logfile = {log}
"""


@contextlib.contextmanager
def running(program: str, host: str, port: int, directory: Path) -> Iterator[int]:
    """Yields the port that it listens on; `directory` keeps its settings and its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = probe.getsockname()[1]
    directory.mkdir(exist_ok=True)
    users, settings = directory / "users", directory / "pgbouncer.ini"
    users.write_text('"postgres" ""\n')
    settings.write_text(
        SETTINGS.format(
            host=host, port=port, listen=listen, users=users, log=directory / "pgbouncer.log"
        )
    )
    # It refuses to run as root, and the socket is its owner's alone.
    owner = Path(host).stat().st_uid
    for path in (directory, users, settings):
        os.chown(path, owner, -1)
    switch = {"user": owner} if os.geteuid() == 0 else {}
    process = subprocess.Popen(
        [program, "--quiet", str(settings)],
        env={"PATH": "/usr/bin:/bin", "USER": pwd.getpwuid(owner).pw_name},
        cwd="/",
        **switch,
    )
    try:
        yield listen
    finally:
        process.terminate()
        process.wait(30)
