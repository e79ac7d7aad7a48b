"""The mesh between real processes: brokers, hubs, and peers that are stopped or cut off.

Method: brokers with a floor of a minute, so that only a hint can wake in time; where there
is no mesh the floor is the usual second. A peer is stopped with SIGSTOP.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness import PROJECT_DIR, eventually
from tests.mesh_parts import at, free_port, knows, pushed, running, until
from tests.wire_client import WireClient

SECRET = "what the processes of these tests have in common"
STATS = "/internal/api/shared-state/stats"
NO_FLOOR = {"POP_WAIT_MAX_INTERVAL_MS": "60000"}
NO_MESH = {"enabled": False, "reason": "no_peers"}
FLAGS = {"maintenance_mode": False, "pop_maintenance_mode": False}


def meshed(port: int, *peers: int) -> dict[str, str]:
    return {
        "QUEEN_SERVER_ID": f"broker-{port}",
        "QUEEN_MESH_PORT": str(port),
        "QUEEN_MESH_PEERS": ",".join(f"127.0.0.1:{peer}" for peer in peers),
        "QUEEN_SYNC_SECRET": SECRET,
        "QUEEN_SYNC_HEARTBEAT_MS": "200",
        "QUEEN_SYNC_DEAD_THRESHOLD_MS": "1000",
    }


def stats_of(broker) -> dict:
    with WireClient.at(broker.url) as wire:
        return wire.http.get(STATS).json()


def all_meet(*brokers, alive: int = 1) -> None:
    for broker in brokers:
        eventually(lambda broker=broker: stats_of(broker)["servers_alive"] == alive)


@contextlib.contextmanager
def hub(log: Path, port: int):
    """`manage.py mesh` on that port."""
    environment = {**os.environ, "QUEEN_SYNC_SECRET": SECRET, "QUEEN_SERVER_ID": "the-hub"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-u", "manage.py", "mesh", "--port", str(port), "--bind", "127.0.0.1"],
            cwd=PROJECT_DIR,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        eventually(lambda: "hub listening" in log.read_text(), timeout_s=60)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(30) == 0, log.read_text()


def mesh_command(*arguments: str, secret: str = SECRET) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "mesh", *arguments],
        cwd=PROJECT_DIR,
        env={**os.environ, "QUEEN_SYNC_SECRET": secret},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def listening_ports(pid: int) -> set[int]:
    """TCP ports that a process listens on, of either family."""
    links = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(entry.path))
    inodes = {match.group(1) for link in links if (match := re.match(r"socket:\[(\d+)\]", link))}
    ports = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            columns = row.split()
            if columns[3] == "0A" and columns[9] in inodes:
                ports.add(int(columns[1].rpartition(":")[2], 16))
    return ports


def parked(wire: WireClient, pool: ThreadPoolExecutor, queue: str):
    """A pop that sits and waits at that broker, in a thread."""
    waiting = pool.submit(wire.payloads, queue, wait=True, timeout=50_000, autoAck=True)
    sits = f'queen_parked_long_polls{{queue="{queue}"}} 1.0'
    with WireClient.at(str(wire.http.base_url)) as other:
        eventually(lambda: sits in other.http.get("/metrics/prometheus").text)
    return waiting


@pytest.fixture
def pair(start_broker):
    ports = free_port(), free_port()
    first = start_broker(**meshed(*ports), **NO_FLOOR)
    second = start_broker(**meshed(*reversed(ports)), **NO_FLOOR)
    all_meet(first, second)
    return first, second


def test_a_push_on_one_broker_wakes_a_consumer_that_is_parked_at_another(pair, fresh_queue):
    first, second = pair
    clients = WireClient.at(first.url), WireClient.at(second.url)
    with clients[0] as here, clients[1] as there, ThreadPoolExecutor(1) as pool:
        for number in range(5):
            waiting = parked(there, pool, fresh_queue)
            here.push(fresh_queue, number)
            assert waiting.result(timeout=20) == [number]


def test_without_the_mesh_a_parked_consumer_has_it_from_the_floor(start_broker, fresh_queue):
    brokers = [start_broker(**meshed(free_port(), free_port()), QUEEN_SYNC_ENABLED="false")]
    brokers.append(start_broker())
    assert stats_of(brokers[0]) == {"enabled": False, "reason": "disabled", **FLAGS}
    clients = [WireClient.at(broker.url) for broker in brokers]
    with clients[0] as here, clients[1] as there, ThreadPoolExecutor(1) as pool:
        waiting = parked(there, pool, fresh_queue)
        here.push(fresh_queue, 1)
        assert waiting.result(timeout=20) == [1]


def test_a_peer_that_stands_still_costs_a_push_nothing_and_is_heard_again_later(pair, fresh_queue):
    first, second = pair
    with WireClient.at(first.url) as here:
        second.process.send_signal(signal.SIGSTOP)
        try:
            for number in range(300):
                [row] = here.push(fresh_queue, number, partition=str(number % 50))
                assert row["status"] == "queued"
            eventually(lambda: stats_of(first)["servers_alive"] == 0)
            assert stats_of(first)["servers_dead"] == 1
            for number in range(300):
                [row] = here.push(fresh_queue, number, partition=str(number % 50))
                assert row["status"] == "queued"
            assert stats_of(first)["messages_queued"] <= 1024
        finally:
            second.process.send_signal(signal.SIGCONT)
        all_meet(first, second)
        with WireClient.at(second.url) as there, ThreadPoolExecutor(1) as pool:
            assert len(there.payloads(fresh_queue, batch=1000, partitions=100)) == 600
            waiting = parked(there, pool, f"{fresh_queue}-2")
            here.push(f"{fresh_queue}-2", "again")
            assert waiting.result(timeout=20) == ["again"]


async def test_the_outbox_of_a_stopped_process_is_bounded_and_what_is_dropped_is_counted(tmp_path):
    port = free_port()
    with hub(tmp_path / "hub.log", port) as process:
        async with running("a", listen=False, peers=at(port), secret=SECRET.encode()) as a:
            await until(lambda: knows(a, "the-hub"), timeout_s=30)
            process.send_signal(signal.SIGSTOP)
            long_name = "q" * 400
            for number in range(30_000):
                a.offer(pushed(number, 1, queue=long_name))
                if number % 500 == 0:
                    await asyncio.sleep(0)
            status = a.status()
            assert status["messages_queued"] <= 1024 and status["messages_dropped"] > 0
            await until(lambda: knows(a), timeout_s=30)
            process.send_signal(signal.SIGCONT)
            await until(lambda: knows(a, "the-hub"), timeout_s=30)


def test_three_brokers_that_know_only_the_hub_wake_each_other(start_broker, fresh_queue, tmp_path):
    port = free_port()
    with hub(tmp_path / "hub.log", port):
        brokers = [start_broker(**meshed(free_port(), port), **NO_FLOOR) for _ in range(3)]
        all_meet(*brokers)
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(WireClient.at(broker.url)) for broker in brokers]
            with ThreadPoolExecutor(1) as pool:
                for pusher in range(3):
                    waiting = parked(wires[pusher - 1], pool, fresh_queue)
                    wires[pusher].push(fresh_queue, pusher)
                    assert waiting.result(timeout=20) == [pusher]
        told = mesh_command("--status", "--json", "--at", f"127.0.0.1:{port}")
        status = json.loads(told.stdout)
        assert status["servers_alive"] == 3 and status["role"] == "hub", told
        assert status["messages_received"] > 0 and status["messages_sent"] > 0


def test_the_commands_status_and_watch_show_a_running_broker(pair, fresh_queue):
    first, _ = pair
    at_first = f"127.0.0.1:{stats_of(first)['port']}"
    shown = mesh_command("--status", "--at", at_first)
    assert shown.returncode == 0 and "heard: broker-" in shown.stdout
    refused = mesh_command("--status", "--at", at_first, secret="another one")
    assert refused.returncode != 0 and "secret" in refused.stderr
    nobody = mesh_command("--status", "--at", f"127.0.0.1:{free_port()}")
    assert nobody.returncode != 0 and "FATAL" in nobody.stderr

    watching = subprocess.Popen(
        [sys.executable, "-u", "manage.py", "mesh", "--watch", "--at", at_first],
        cwd=PROJECT_DIR,
        env={**os.environ, "QUEEN_SYNC_SECRET": SECRET},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        lines = iter(watching.stdout.readline, "")
        assert any("handshake failures" in one for one in lines)
        with WireClient.at(first.url) as here:
            here.push(fresh_queue, 1)
        [line] = [next(one for one in lines if "pushed" in one)]
        assert f"queue='{fresh_queue}'" in line and line.startswith("broker-")
    finally:
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0


def test_the_routes_tell_what_the_contract_says(pair, broker):
    first, second = pair
    for path in (STATS, "/internal/api/inter-instance/stats"):
        with WireClient.at(first.url) as wire:
            told = wire.http.get(path).json()
        assert told["enabled"] is told["running"] is True
        assert told["transport"] == "tcp-mesh" and told["server_id"].startswith("broker-")
        assert told["peer_count"] == told["servers_alive"] == 1
        assert told["servers_dead"] == told["sequence_rejections"] == 0
        [peer] = told["peers"]
        assert peer["host"] == peer["resolved_ip"] == "127.0.0.1" and peer["resolved"] is True
        assert {"port", "connected"} <= set(peer)
        assert told["signature_failures"] == told["handshake_failures"] == 0
        for name in ("eph_members", "messages_sent", "messages_received", "messages_dropped"):
            assert isinstance(told[name], int)
        assert {name: told[name] for name in FLAGS} == FLAGS
    assert stats_of(broker) == {**NO_MESH, **FLAGS}
    with WireClient.at(second.url) as wire:
        assert "queen_mesh_servers_alive 1.0" in wire.http.get("/metrics/prometheus").text


def test_without_peers_nothing_is_bound(start_broker):
    alone = start_broker(QUEEN_MESH_PORT=str(free_port()), QUEEN_SYNC_SECRET=SECRET)
    assert listening_ports(alone.pid) == {alone.port}


def test_a_broker_whose_mesh_port_is_taken_serves_all_the_same(start_broker, fresh_queue):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = start_broker(**meshed(port, free_port()))
        with WireClient.at(broker.url) as wire:
            assert wire.push(fresh_queue, 1)[0]["status"] == "queued"
            assert stats_of(broker)["listening"] is False
            eventually(lambda: "cannot listen" in broker.log)
    eventually(lambda: stats_of(broker)["listening"], timeout_s=15)
