"""`manage.py broker` as an operator meets it: start, signals, crash, and a database that is away.

Method: real processes on free ports, signals as a supervisor sends them, and an embedded
PostgreSQL of the test's own where it is stopped or killed.
"""

import concurrent.futures
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from queen_project import embedded, embedded_paths
from tests.harness import PROJECT_DIR, BrokerProcess, Database, eventually

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Where a broker of this test keeps a PostgreSQL of its own."""
    path = Path(tempfile.mkdtemp(prefix="queen-b-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    embedded.stop(path, force=True)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start_broker(data_dir: Path, start_broker: StartBroker) -> StartBroker:
    """After the data directory, so that brokers go first: they would start PostgreSQL again."""
    return start_broker


def embedded_environment(data_dir: Path) -> dict[str, str | None]:
    names = ("PG_HOST", "PG_PORT", "PG_USER", "PG_DATABASE")
    return {**dict.fromkeys(names), "QUEEN_DATA_DIR": str(data_dir)}


def refused(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A start that is expected to end by itself, without a traceback."""
    done = subprocess.run(
        [sys.executable, "manage.py", "broker", *arguments],
        cwd=PROJECT_DIR,
        env={**os.environ, "PORT": "0", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done


def push(broker: BrokerProcess, queue: str, transaction_id: str) -> str:
    item = {"queue": queue, "payload": {"n": 1}, "transactionId": transaction_id}
    answer = httpx.post(f"{broker.url}/api/v1/push", json={"items": [item]}, timeout=30)
    return str(answer.json()[0]["status"])


def pop(broker: BrokerProcess, queue: str, **params: str) -> httpx.Response:
    return httpx.get(f"{broker.url}/api/v1/pop/queue/{queue}", params=params, timeout=60)


def status_of(broker: BrokerProcess, path: str) -> int:
    return httpx.get(f"{broker.url}{path}", timeout=30).status_code


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- a start ----------------------------------------------------------------------------------


def test_one_command_starts_everything_and_keeps_what_it_stored(
    start_broker: StartBroker, data_dir: Path, fresh_queue: str
):
    environment = embedded_environment(data_dir)
    first = start_broker(**environment)
    assert push(first, fresh_queue, "one") == "queued"
    assert first.stop() == 0
    assert embedded.is_alive(data_dir), "PostgreSQL stays, for the next command"
    second = start_broker(**environment)
    assert [m["transactionId"] for m in pop(second, fresh_queue).json()["messages"]] == ["one"]


def test_a_fresh_broker_says_how_to_create_the_first_operator_and_once_there_is_one_no_more(
    start_broker: StartBroker, data_dir: Path
):
    environment = embedded_environment(data_dir)
    first = start_broker(**environment)
    assert f"console: http://localhost:{first.port}/ has no operator yet" in first.log
    assert "python manage.py createsuperuser" in first.log
    named = {**os.environ, **environment, "DJANGO_SUPERUSER_PASSWORD": "a long passphrase"}
    subprocess.run(
        [
            *(sys.executable, "manage.py", "createsuperuser", "--noinput"),
            *("--username", "ann", "--email", "ann@example.com"),
        ],
        cwd=PROJECT_DIR,
        env={name: value for name, value in named.items() if value is not None},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert httpx.get(f"{first.url}/admin/").status_code == 302, "it asks for a login at once"
    second = start_broker(**environment)
    assert "has no operator yet" not in second.log


def test_two_brokers_share_the_embedded_postgresql(
    start_broker: StartBroker, data_dir: Path, fresh_queue: str
):
    environment = embedded_environment(data_dir)
    first = start_broker(**environment)
    pid = embedded.status(data_dir).pid
    second = start_broker(**environment)
    assert embedded.status(data_dir).pid == pid
    assert push(first, fresh_queue, "one") == "queued"
    assert pop(second, fresh_queue).json()["messages"][0]["transactionId"] == "one"


def test_brokers_that_start_at_once_apply_the_schema_together(
    start_broker: StartBroker, fresh_database: Callable[..., Database], fresh_queue: str
):
    empty = fresh_database(schema=False)
    brokers = [start_broker(on=empty, ready=False) for _ in range(3)]
    for broker in brokers:
        eventually(broker.is_ready, timeout_s=60)
        assert push(broker, fresh_queue, f"from {broker.port}") == "queued"


@pytest.mark.parametrize(
    "command",
    [
        ["uvicorn", "--lifespan", "off", "--port", "{port}", "queen_project.asgi:application"],
        ["daphne", "-p", "{port}", "queen_project.asgi:application"],
        ["python", "manage.py", "runserver", "127.0.0.1:{port}", "--noreload"],
    ],
    ids=["uvicorn", "daphne", "runserver"],
)
def test_the_application_runs_under_any_asgi_server(
    database: Database, command: list[str], fresh_queue: str
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program, *arguments = [part.format(port=port) for part in command]
    process = subprocess.Popen(
        [Path(sys.executable).with_name(program), *arguments],
        cwd=PROJECT_DIR,
        env={**os.environ, **database.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: is_open(port), timeout_s=60)
        eventually(lambda: httpx.get(f"{url}/readyz").status_code == 200, timeout_s=60)
        body = {"items": [{"queue": fresh_queue, "payload": 1}]}
        assert httpx.post(f"{url}/api/v1/push", json=body).json()[0]["status"] == "queued"
    finally:
        process.kill()
        process.wait(30)


def test_no_process_has_twisted_in_it_that_does_not_serve_with_daphne():
    asked = "import sys, django; django.setup(); print('twisted' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=PROJECT_DIR,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "queen_project.settings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert answer.stdout == "False\n"


def test_the_configuration_is_printed_without_secrets(start_broker: StartBroker):
    broker = start_broker(PG_PASSWORD="open sesame", QUEEN_SERVER_ID="blue")
    assert "QUEEN_SERVER_ID=blue" in broker.log
    assert "PG_PASSWORD=<set:11 chars>" in broker.log
    assert "sesame" not in broker.log
    assert "of max_connections" in broker.log


def test_a_listener_beyond_loopback_is_warned_about(start_broker: StartBroker):
    assert "without authentication" in start_broker(QUEEN_BIND_ADDR="0.0.0.0").log
    assert "without authentication" not in start_broker(QUEEN_BIND_ADDR="127.0.0.1").log


# --- a start that is refused ------------------------------------------------------------------


def test_every_unusable_variable_is_named_at_once():
    said = refused(QUEEN_APPLY_SCHEMA="perhaps", DB_POOL_SIZE="many", PORT="http").stderr
    for name in ("QUEEN_APPLY_SCHEMA", "DB_POOL_SIZE", "PORT"):
        assert f"FATAL: {name}=" in said


def test_a_taken_port_is_said_plainly():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refused("--port", port, "--bind", "127.0.0.1").stderr
    assert f"cannot listen on 127.0.0.1 port {port}" in said


@pytest.mark.parametrize("name", ["PORT", "QUEEN_BIND_ADDR"])
def test_an_argument_is_checked_as_its_variable_is(name: str):
    flag = {"PORT": "--port", "QUEEN_BIND_ADDR": "--bind"}[name]
    assert f"FATAL: {name}=" in refused(flag, "localhost:99").stderr


def test_a_pool_that_the_server_cannot_hold_is_refused_with_the_arithmetic(database: Database):
    said = refused(DB_POOL_SIZE="5000", **database.environment).stderr
    assert "DB_POOL_SIZE 5000" in said
    assert "of max_connections 300 - 3 reserved = 297" in said


# --- a stop -----------------------------------------------------------------------------------


def test_a_stop_answers_parked_pops_and_exits_cleanly(
    start_broker: StartBroker, each_server: str, fresh_queue: str
):
    broker = start_broker(server=each_server)
    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        parked = [
            threads.submit(pop, broker, f"{fresh_queue}-{n}", wait="true", timeout="50000")
            for n in range(20)
        ]
        eventually(lambda: parked_pops(broker) == 20)
        began = time.monotonic()
        assert broker.stop() == 0
        assert [answer.result(30).status_code for answer in parked] == [204] * 20
    assert time.monotonic() - began < 10
    assert not is_open(broker.port)


def parked_pops(broker: BrokerProcess) -> int:
    """How many pops sit and wait, as the broker counts them."""
    text = httpx.get(f"{broker.url}/metrics/prometheus", timeout=30).text
    lines = [line for line in text.splitlines() if line.startswith("queen_parked")]
    return round(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


def test_a_stop_lets_pushes_in_flight_finish(
    start_broker: StartBroker, each_server: str, fresh_queue: str
):
    """Every push that was begun gets an answer that is the truth, or was never stored."""
    broker = start_broker(server=each_server)
    answers: dict[str, str] = {}
    unanswered: set[str] = set()

    def keep_pushing(name: str) -> None:
        for n in range(10_000):
            try:
                answers[f"{name}-{n}"] = push(broker, fresh_queue, f"{name}-{n}")
            except httpx.HTTPError:
                unanswered.add(f"{name}-{n}")
                return

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        pushing = [threads.submit(keep_pushing, str(n)) for n in range(4)]
        eventually(lambda: len(answers) > 40)
        assert broker.stop() == 0
        for one in pushing:
            one.result(60)
    assert set(answers.values()) == {"queued"}
    successor = start_broker()
    popped = pop(successor, fresh_queue, batch="10000").json()["messages"]
    stored = {message["transactionId"] for message in popped}
    assert stored >= set(answers)
    assert not stored & unanswered


def test_ctrl_c_stops_the_broker_and_not_its_postgresql(start_broker: StartBroker, data_dir: Path):
    broker = start_broker(**embedded_environment(data_dir))
    os.killpg(broker.pid, signal.SIGINT)
    assert broker.wait() == 0
    assert embedded.status(data_dir).answers


def test_a_second_signal_goes_at_once(start_broker: StartBroker, database: Database, fresh_queue):
    broker = start_broker(QUEEN_DRAIN_S="60", QUEEN_STMT_TIMEOUT_MS="60000")
    assert push(broker, fresh_queue, "first") == "queued"
    with (
        database.connect(autocommit=False) as holder,
        concurrent.futures.ThreadPoolExecutor(1) as threads,
    ):
        # A pop that hangs at a lock is what keeps the first signal waiting.
        holder.execute("LOCK TABLE queen_partition IN ACCESS EXCLUSIVE MODE")
        hanging = threads.submit(pop, broker, fresh_queue)
        eventually(lambda: waits_for_a_lock(database))
        broker.terminate()
        eventually(lambda: "stopping" in broker.log)
        assert broker.process.poll() is None

        def told_again() -> bool:
            broker.terminate()
            return broker.process.poll() is not None

        eventually(told_again)
        assert broker.wait() != 0
        assert isinstance(hanging.exception(30), httpx.HTTPError)


def waits_for_a_lock(database: Database) -> bool:
    with database.connect() as looker:
        waiting = looker.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s",
            [database.name],
        )
        return waiting.fetchone() is not None


def test_a_killed_broker_has_lost_nothing_that_it_answered(
    start_broker: StartBroker, fresh_queue: str
):
    broker = start_broker()
    answered = [f"t{n}" for n in range(50) if push(broker, fresh_queue, f"t{n}") == "queued"]
    broker.kill()
    successor = start_broker(PORT=str(broker.port))
    assert successor.port == broker.port
    popped = pop(successor, fresh_queue, batch="100").json()["messages"]
    assert [message["transactionId"] for message in popped] == answered


def test_an_idle_connection_is_kept_as_long_as_configured(
    start_broker: StartBroker, each_server: str
):
    broker = start_broker(server=each_server, QUEEN_KEEP_ALIVE_S="1")
    with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        while connection.recv(65536):
            pass
        assert 0.5 < time.monotonic() - began < 8


# --- a database that is away ------------------------------------------------------------------


def test_a_broker_without_a_database_is_alive_and_becomes_ready(
    start_broker: StartBroker, data_dir: Path, fresh_queue: str
):
    away = Database(name="postgres", host=str(embedded_paths.socket_dir(data_dir)))
    broker = start_broker(on=away, ready=False)
    assert status_of(broker, "/livez") == 200
    assert status_of(broker, "/readyz") == 503
    assert status_of(broker, "/health") == 503
    assert push(broker, fresh_queue, "too early") in ("failed", "buffered")
    embedded.ensure_running(data_dir)
    eventually(broker.is_ready, timeout_s=60)
    assert push(broker, fresh_queue, "now") == "queued"
    assert status_of(broker, "/health") == 200


def test_a_stop_before_the_database_came_is_clean(start_broker: StartBroker, data_dir: Path):
    away = Database(name="postgres", host=str(embedded_paths.socket_dir(data_dir)))
    broker = start_broker(on=away, ready=False)
    began = time.monotonic()
    assert broker.stop() == 0
    assert time.monotonic() - began < 10


def test_a_killed_postgresql_is_started_again_and_the_broker_goes_on(
    start_broker: StartBroker, data_dir: Path, fresh_queue: str
):
    broker = start_broker(**embedded_environment(data_dir))
    assert push(broker, fresh_queue, "before") == "queued"
    killed = embedded.status(data_dir).pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: push(broker, fresh_queue, "after") in ("queued", "duplicate"), timeout_s=60)
    assert embedded.status(data_dir).pid != killed
    popped = pop(broker, fresh_queue).json()["messages"]
    assert [message["transactionId"] for message in popped] == ["before", "after"]
