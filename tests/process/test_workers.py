"""A broker of several workers is one broker: whichever of them has a client's connection.

Method: real processes. Each worker has a connection of its own (crew.py), so that what one
did can be asked of another; workers are killed, stopped and told to go by their pids.
"""

import fcntl
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.harness import PROJECT_DIR, BrokerProcess, Database, eventually
from tests.process import crew
from tests.process.site import log_of
from tests.wire_client import WireClient, expect

WORKERS = 3
MESH = "/internal/api/shared-state/stats"
StartBroker = Callable[..., BrokerProcess]


@pytest.fixture(scope="module")
def broker_of_three(
    database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    log = tmp_path_factory.mktemp("workers") / "log"
    broker = BrokerProcess(log, {**database.environment, **crew.of(WORKERS)})
    crew.until_all_ready(broker)
    yield broker
    assert broker.stop() == 0, broker.log[-5000:]


@pytest.fixture
def wires(broker_of_three: BrokerProcess) -> Iterator[list[WireClient]]:
    with crew.each_worker(broker_of_three, WORKERS) as wires:
        yield wires


def samples(wire: WireClient) -> dict[str, float]:
    """The exposition by sample, labels included."""
    lines = expect(wire.get("/metrics/prometheus"), 200).text.split("\n")
    pairs = (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
    return {name: float(value) for name, value in pairs}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def refuses_connections(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# --- one broker -------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["uvicorn", "daphne"])
def test_sixty_four_connections_are_shared_out(
    start_broker: StartBroker, fresh_queue: str, server: str
):
    broker = start_broker(server=server, **crew.of(2))
    crew.until_all_ready(broker)
    seen = []

    def are_shared_out() -> bool:
        """Whoever is awake first takes one: a worker that others keep from the processor for a
        while has few of those that come just then."""
        with crew.connections(broker, 64) as connections:
            seen.append(Counter(worker for worker, _ in connections))
        assert sorted(seen[-1]) == [0, 1], seen
        return min(seen[-1].values()) >= 16

    assert any(are_shared_out() for _ in range(5)), seen
    with crew.connections(broker, 64) as connections:
        for number, (_, client) in enumerate(connections):
            [row] = WireClient(client).push(fresh_queue, number)
            assert row["status"] == "queued"
        wire = WireClient(connections[0][1])
        assert sorted(log_of(wire, fresh_queue)["Default"]) == list(range(64))
    assert broker.stop() == 0, broker.log[-5000:]


def test_what_is_pushed_on_one_connection_is_popped_and_acknowledged_on_the_others(
    wires: list[WireClient], fresh_queue: str
):
    for number in range(12):
        here, there, beyond = (wires[(number + turn) % WORKERS] for turn in range(WORKERS))
        here.push(fresh_queue, number)
        [message] = there.messages(fresh_queue)
        assert message["data"] == number
        assert beyond.ack(message)["success"] is True


def test_a_parked_pop_hears_of_what_another_worker_or_another_host_stores(
    start_broker: StartBroker, fresh_queue: str
):
    """Nothing else wakes it: the floor looks once a minute."""
    mesh_port = str(free_port())
    deaf = {"POP_WAIT_MAX_INTERVAL_MS": "60000", "QUEEN_MESH_BIND_ADDR": "127.0.0.1"}
    far = start_broker(
        **crew.of(1, **deaf, QUEEN_MESH_PORT=mesh_port, QUEEN_MESH_PEERS="localhost:1")
    )
    broker = start_broker(
        **crew.of(2, **deaf, QUEEN_MESH_PORT="0", QUEEN_MESH_PEERS=f"127.0.0.1:{mesh_port}")
    )
    crew.until_all_ready(broker)
    with (
        WireClient.at(far.url) as over_there,
        crew.each_worker(broker, 2) as wires,
        WireClient.at(broker.url) as asking,
        ThreadPoolExecutor(1) as pool,
    ):
        for wire in wires:
            eventually(lambda wire=wire: wire.get(MESH).json().get("servers_alive") == 1)
        parked = f'queen_parked_long_polls{{queue="{fresh_queue}"}}'
        for reader, writer in (wires, wires[::-1], (wires[0], over_there), (wires[1], over_there)):
            waiting = pool.submit(
                reader.payloads, fresh_queue, wait=True, timeout=30_000, autoAck=True
            )
            eventually(lambda: samples(asking).get(parked) == 1)
            writer.push(fresh_queue, "news")
            assert waiting.result(timeout=15) == ["news"]
        waiting = pool.submit(over_there.payloads, fresh_queue, wait=True, timeout=30_000)
        eventually(lambda: samples(over_there).get(parked) == 1)
        wires[1].push(fresh_queue, "and back")
        assert waiting.result(timeout=15) == ["and back"]


def test_the_same_ids_pushed_to_all_workers_at_once_are_stored_once(
    wires: list[WireClient], fresh_queue: str
):
    ids = [f"t-{number}" for number in range(1000)]

    def push_all(wire: WireClient) -> list[tuple[str, str]]:
        rows: list[tuple[str, str]] = []
        for at in range(0, len(ids), 50):
            batch = ids[at : at + 50]
            told = wire.push(fresh_queue, *batch, ids=batch)
            rows += [(row["transaction_id"], row["status"]) for row in told]
        return rows

    with ThreadPoolExecutor(WORKERS) as pool:
        rows = [row for told in pool.map(push_all, wires) for row in told]
    assert Counter(status for _, status in rows) == {
        "queued": len(ids),
        "duplicate": (WORKERS - 1) * len(ids),
    }
    assert sorted(log_of(wires[0], fresh_queue)["Default"]) == sorted(ids)


def test_any_worker_tells_the_metrics_of_all(wires: list[WireClient], fresh_queue: str):
    before = samples(wires[0])
    for number, wire in enumerate(wires):
        wire.push(fresh_queue, *range(number + 1))
    pushed = "queen_process_push_messages_total"
    for wire in wires:
        after = samples(wire)
        assert after[pushed] - before[pushed] == 1 + 2 + 3
        assert after['queen_workers{state="answering"}'] == WORKERS
        assert after['queen_workers{state="missing"}'] == 0
        uptimes = [name for name in after if name.startswith("queen_uptime_seconds{")]
        assert len(uptimes) == WORKERS and "queen_uptime_seconds" not in after
        assert after["queen_maintenance_mode_enabled"] == 0
        assert after["queen_db_pool_size"] <= WORKERS * 8


def test_parked_pops_are_counted_over_all_workers(wires: list[WireClient], fresh_queue: str):
    def parked() -> float:
        # Asked of a worker whose own connection waits for nothing.
        return samples(wires[0]).get(f'queen_parked_long_polls{{queue="{fresh_queue}"}}', 0.0)

    with ThreadPoolExecutor(WORKERS) as pool:
        waiting = [
            pool.submit(wire.payloads, fresh_queue, wait=True, timeout=20_000) for wire in wires[1:]
        ]
        eventually(lambda: parked() == WORKERS - 1)
        wires[0].push(fresh_queue, 1, partition="a")
        wires[0].push(fresh_queue, 2, partition="b")
        assert sorted(one for pop in waiting for one in pop.result(30)) == [1, 2]


def test_a_worker_that_does_not_answer_is_left_out_and_counted(
    broker_of_three: BrokerProcess, wires: list[WireClient]
):
    [_, _, last] = (crew.pids(broker_of_three)[number] for number in range(WORKERS))
    os.kill(last, signal.SIGSTOP)
    try:
        told = samples(wires[0])
        assert told['queen_workers{state="answering"}'] == WORKERS - 1
        assert told['queen_workers{state="missing"}'] == 1
        assert 'queen_uptime_seconds{worker="2"}' not in told
        state = crew.buffers(wires[1].http)
        assert [one["answers"] for one in state["workers"]] == [True, True, False]
        assert state["dbHealthy"] is False, "what waits on its disk is not known"
        # Whoever it leaves waiting is taken by the others.
        with crew.connections(broker_of_three, 8) as connections:
            assert {worker for worker, _ in connections} == {0, 1}
    finally:
        os.kill(last, signal.SIGCONT)
    eventually(lambda: crew.buffers(wires[0].http)["dbHealthy"])


def test_one_worker_is_the_broker_as_it_always_was(start_broker: StartBroker):
    broker = start_broker(**crew.of(1))
    with WireClient.at(broker.url) as wire:
        told = samples(wire)
        assert "queen_uptime_seconds" in told
        assert not [name for name in told if "worker" in name]
        assert "workers" not in crew.buffers(wire.http)
    assert not crew.pids(broker)
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    assert not children


# --- starts that fail -------------------------------------------------------------------------


def refused(**environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "manage.py", "broker", "--workers", "2"],
        cwd=PROJECT_DIR,
        env={**os.environ, **crew.FEW, "PORT": "0", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done


def test_a_taken_port_is_told_before_any_worker_starts(database: Database):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = refused(**database.environment, PORT=port)
    assert f"FATAL: cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert "is process" not in done.stderr


def test_connections_that_all_workers_need_together_must_fit(database: Database):
    done = refused(**database.environment, DB_POOL_SIZE="150")
    assert "x 2 workers" in done.stderr
    assert "is process" not in done.stderr


def test_a_spool_that_cannot_be_used_ends_the_start_at_once(database: Database, tmp_path: Path):
    (tmp_path / "file").touch()
    done = refused(**database.environment, FILE_BUFFER_DIR=str(tmp_path / "file"))
    assert "cannot be used" in done.stderr
    assert re.search(r"FATAL: worker \d ended \(exit code 3\)", done.stderr), done.stderr
    assert "starting it again" not in done.stderr


@pytest.mark.parametrize("depth", ["d", "d" * 120], ids=["short path", "long path"])
def test_a_second_broker_of_the_same_id_is_refused_and_does_no_harm(
    database: Database, start_broker: StartBroker, tmp_path: Path, depth: str
):
    same = {"QUEEN_SERVER_ID": "one", "QUEEN_DATA_DIR": str(tmp_path / depth)}
    broker = start_broker(**crew.of(2, **same))
    crew.until_all_ready(broker)
    done = refused(**database.environment, **same)
    assert "FATAL: a broker 'one' runs already" in done.stderr
    assert "is process" not in done.stderr
    with WireClient.at(broker.url) as wire:
        assert samples(wire)['queen_workers{state="missing"}'] == 0


@pytest.mark.slow
def test_a_worker_that_fails_again_and_again_at_the_start_ends_the_broker(
    database: Database, tmp_path: Path
):
    directory = tmp_path / "spools" / "one%2F1"
    directory.mkdir(parents=True)
    with (directory / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = refused(
            **database.environment,
            QUEEN_SERVER_ID="one",
            FILE_BUFFER_DIR=str(tmp_path / "spools"),
        )
    assert done.stderr.count("worker 1 is process") == 5
    assert done.stderr.count("worker 0 is process") == 1, "the other was left alone"
    assert re.search(r"FATAL: worker 1 ended .*5th time", done.stderr), done.stderr


# --- deaths and stops -------------------------------------------------------------------------


class Load:
    """Producers that push one message after the other, each into a partition of its own.

    A push that gets no answer is pushed again with the same id, as a client does, until
    `over`; a refused connection ends a producer.
    """

    def __init__(self, broker: BrokerProcess, queue: str, producers: int = 8) -> None:
        self.queue = queue
        self.told: dict[str, str] = {}
        self.unanswered = 0
        self._url = broker.url
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, args=[f"p{number}"])
            for number in range(producers)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self, partition: str) -> None:
        number = 0
        with WireClient.at(self._url) as wire:
            while not self._over.is_set():
                name = f"{partition}-{number}"
                try:
                    [row] = wire.push(self.queue, number, partition=partition, ids=[name])
                except httpx.ConnectError:
                    return
                except httpx.TransportError:
                    self.unanswered += 1
                    continue
                self.told[name] = row["status"]
                number += 1

    def check(self, wire: WireClient) -> None:
        """Whatever was answered is stored, once and in order."""
        log = log_of(wire, self.queue)
        for partition, numbers in log.items():
            assert numbers == list(range(len(numbers))), partition
        stored = {f"{partition}-{one}" for partition, numbers in log.items() for one in numbers}
        assert set(self.told.values()) <= {"queued", "buffered", "duplicate"}, self.told
        assert self.told.keys() <= stored


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_ends_under_load_loses_nothing_and_comes_back(
    start_broker: StartBroker, client: httpx.Client, fresh_queue: str, signum: int
):
    broker = start_broker(**crew.of(2))
    crew.until_all_ready(broker)
    load = Load(broker, fresh_queue)
    try:
        eventually(lambda: len(load.told) > 100)
        victim = crew.pids(broker)[0]
        os.kill(victim, signum)
        eventually(lambda: crew.starts(broker, 0) == 2, timeout_s=60)
        crew.until_all_ready(broker)
        before = len(load.told)
        eventually(lambda: len(load.told) > before + 100)
    finally:
        load.end()
    assert crew.pids(broker)[0] != victim
    assert crew.starts(broker, 1) == 1, "the other was left alone"
    with crew.each_worker(broker, 2) as wires:
        load.check(wires[0])
    assert broker.stop() == 0, broker.log[-5000:]


@pytest.mark.parametrize("server", ["uvicorn", "daphne"])
def test_a_stop_under_load_is_clean(
    start_broker: StartBroker, client: httpx.Client, fresh_queue: str, server: str
):
    broker = start_broker(server=server, **crew.of(2))
    crew.until_all_ready(broker)
    load = Load(broker, fresh_queue)
    try:
        eventually(lambda: len(load.told) > 100)
        broker.terminate()
        assert broker.wait() == 0, broker.log[-5000:]
        assert refuses_connections(broker.port)
    finally:
        load.end()
    assert not [pid for pid in crew.pids(broker).values() if is_alive(pid)]
    assert set(load.told.values()) <= {"queued", "duplicate"}
    load.check(WireClient(client))


def test_a_stop_answers_parked_pops_of_every_worker(start_broker: StartBroker, fresh_queue: str):
    broker = start_broker(**crew.of(2))
    crew.until_all_ready(broker)
    with crew.each_worker(broker, 2) as wires, ThreadPoolExecutor(2) as pool:
        waiting = [
            pool.submit(wire.get_pop, fresh_queue, wait=True, timeout=25_000) for wire in wires
        ]
        parked = f'queen_parked_long_polls{{queue="{fresh_queue}"}}'
        with WireClient.at(broker.url) as asking:
            eventually(lambda: samples(asking).get(parked) == 2)
        broker.terminate()
        assert [pop.result(30).status_code for pop in waiting] == [204, 204]
    assert broker.wait() == 0


def test_a_second_signal_goes_at_once(
    start_broker: StartBroker,
    second_connection: Callable[[], "psycopg.Connection[Any]"],
    client: httpx.Client,
    fresh_queue: str,
):
    WireClient(client).push(fresh_queue, "first", partition="held")
    broker = start_broker(**crew.of(2))
    crew.until_all_ready(broker)
    with second_connection() as holder, WireClient.at(broker.url) as wire:
        holder.execute(
            "SELECT 1 FROM queen_partition p JOIN queen_queue q ON q.id = p.queue_id"
            " WHERE q.name = %s FOR UPDATE OF p",
            [fresh_queue],
        )
        with ThreadPoolExecutor(1) as pool:
            pushing = pool.submit(wire.push, fresh_queue, 1, partition="held")
            inflight = 'queen_admission_inflight{lane="push"}'
            with WireClient.at(broker.url) as asking:
                eventually(lambda: samples(asking)[inflight] > 0)
            workers = crew.pids(broker).values()
            broker.terminate()
            eventually(lambda: refuses_connections(broker.port))
            assert broker.process.poll() is None, "gone with a push in flight"

            def gone() -> bool:
                broker.terminate()  # within two seconds it is the same wish
                return broker.process.poll() is not None

            eventually(gone, timeout_s=4.5)
            with pytest.raises(httpx.TransportError):
                pushing.result(30)
    eventually(lambda: not any(map(is_alive, workers)))
    assert broker.wait() == 1


def test_a_worker_that_cannot_be_started_for_a_while_costs_the_others_nothing(
    start_broker: StartBroker, fresh_queue: str
):
    broker = start_broker(**crew.of(2))
    crew.until_all_ready(broker)
    limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    victim = crew.pids(broker)[0]
    # None of its file numbers is free any more.
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: "worker 0 could not be started" in broker.log)
    with WireClient.at(broker.url) as wire:
        wire.push(fresh_queue, "taken")
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
    eventually(lambda: crew.pids(broker)[0] != victim)
    crew.until_all_ready(broker)
    assert broker.stop() == 0


def test_workers_do_not_outlive_a_parent_that_is_killed(
    start_broker: StartBroker, fresh_queue: str
):
    broker = start_broker(**crew.of(2))
    crew.until_all_ready(broker)
    workers = crew.pids(broker).values()
    with WireClient.at(broker.url) as wire:
        wire.push(fresh_queue, "kept")
    broker.kill()
    eventually(lambda: not any(map(is_alive, workers)), timeout_s=30)
    assert refuses_connections(broker.port)
    again = start_broker(**crew.of(2, PORT=str(broker.port)))
    with WireClient.at(again.url) as wire:
        assert wire.payloads(fresh_queue) == ["kept"]
