"""The files for containers say what is true of the broker, and brokers started by their word work.

Method: no container engine. docker-compose.ha.yml, the Dockerfile, the load balancer's settings and
the Kubernetes manifests are read and held against brokers/config.py and against each other; then
the brokers of the compose file are started as plain processes with the same variables.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from queen_project import config as environment
from queen_project import serving
from tests.harness import PROJECT_DIR, eventually
from tests.process import topology
from tests.process.parked import Parked
from tests.process.site import Site, buffers, log_of, push, until_drained, until_storing
from tests.process.topology import Topology
from tests.wire_client import WireClient, expect

DATA_DIR = "/var/lib/queen"
# The sum of the limits in queen_project/serving.py.
LONGEST_STOP_S = 2 * environment.load({}).server.drain_s + 6 + serving.STOP_TIMEOUT_S
KUBERNETES = PROJECT_DIR / "deploy" / "kubernetes"
HAPROXY = PROJECT_DIR / "deploy" / "haproxy.cfg"


# --- docker-compose.ha.yml ----------------------------------------------------------------------


def test_every_variable_of_the_compose_file_is_one_that_a_broker_knows():
    for service in topology.brokers().values():
        assert set(service.environment) <= topology.known_variables()
        environment.load(service.environment)  # raises when a value is none


def test_each_broker_of_the_compose_file_has_a_name_and_a_volume_for_its_spool_of_its_own():
    brokers = topology.brokers()
    assert len({one.environment["QUEEN_SERVER_ID"] for one in brokers.values()}) == len(brokers)
    mounted = [volume for one in brokers.values() for volume in one.volumes]
    assert len(set(mounted)) == len(brokers) and set(mounted) <= topology.named_volumes()
    for one in brokers.values():
        [mount] = one.volumes.values()
        spool = environment.load(one.environment).spool_directory
        assert mount == DATA_DIR and spool.is_relative_to(mount)


def test_the_brokers_of_the_compose_file_know_each_other_and_have_one_secret():
    brokers = topology.brokers()
    where = {f"{one.name}:{one.environment['QUEEN_MESH_PORT']}" for one in brokers.values()}
    for one in brokers.values():
        itself = {f"{one.name}:{one.environment['QUEEN_MESH_PORT']}"}
        assert set(one.environment["QUEEN_MESH_PEERS"].split(",")) == where - itself
    for shared in ("QUEEN_SYNC_SECRET", "QUEEN_SECRET_KEY", "PG_HOST", "PG_DATABASE"):
        assert len({one.environment[shared] for one in brokers.values()}) == 1


def test_the_connections_of_all_brokers_fit_the_database_of_the_compose_file():
    command = yaml.safe_load(topology.COMPOSE.read_text())["services"]["postgres"]["command"]
    [allowed] = [int(one.split("=")[1]) for one in command if one.startswith("max_connections=")]
    # A broker's lanes, its key/value pool and what it opens for a moment are a score more at most.
    wanted = sum(int(one.environment["DB_POOL_SIZE"]) + 20 for one in topology.brokers().values())
    assert wanted < allowed


def test_a_broker_of_the_compose_file_is_given_the_time_that_a_stop_may_take():
    document = yaml.safe_load(topology.COMPOSE.read_text())
    for name in topology.brokers():
        grace = document["services"][name]["stop_grace_period"]
        assert int(grace.removesuffix("s")) > LONGEST_STOP_S


def test_the_load_balancer_names_every_broker_and_its_port():
    brokers = topology.brokers()
    wanted = {(name, f"{name}:{one.environment['PORT']}") for name, one in brokers.items()}
    backends = re.split(r"^backend ", HAPROXY.read_text(), flags=re.MULTILINE)[1:]
    assert len(backends) == 2
    for backend in backends:
        assert set(re.findall(r"^ +server (\S+) (\S+)", backend, re.MULTILINE)) == wanted
    assert "./deploy/haproxy.cfg" in topology.services()["load-balancer"].volumes


def test_the_load_balancer_waits_longer_than_any_pop_does_by_default():
    text = HAPROXY.read_text()
    for side in ("client", "server"):
        [minutes] = re.findall(rf"timeout {side} (\d+)m", text)
        assert int(minutes) * 60_000 > environment.load({}).pop.timeout_ms


# --- Dockerfile ---------------------------------------------------------------------------------


def test_the_image_keeps_its_data_in_a_volume_and_runs_as_nobody_special():
    lines = (PROJECT_DIR / "Dockerfile").read_text()
    final = lines[lines.rindex("\nFROM") :]
    assert re.search(rf"^VOLUME {DATA_DIR}$", final, re.MULTILINE)
    assert re.search(rf"QUEEN_DATA_DIR={DATA_DIR}\b", final)
    [user] = re.findall(r"^USER (\S+)$", final, re.MULTILINE)
    assert user not in ("root", "0")
    assert "/livez" in final[final.index("HEALTHCHECK") :]


def test_the_image_has_everything_that_a_broker_runs_from():
    copied = re.findall(r"^COPY (?!--from)(\S+) ", (PROJECT_DIR / "Dockerfile").read_text(), re.M)
    let_in = (PROJECT_DIR / ".dockerignore").read_text().splitlines()
    for name in copied:
        assert (PROJECT_DIR / name).exists() and f"!{name}" in let_in
    packages = {path.parent.name for path in PROJECT_DIR.glob("*/__init__.py")} - {"tests"}
    assert packages <= set(copied)


# --- Kubernetes ---------------------------------------------------------------------------------


def manifests() -> list[dict[str, Any]]:
    [listed] = yaml.safe_load_all((KUBERNETES / "kustomization.yaml").read_text())
    names = [*listed["resources"], "secret.example.yaml"]
    assert {*names, "kustomization.yaml"} == {path.name for path in KUBERNETES.iterdir()}
    return [one for name in names for one in yaml.safe_load_all((KUBERNETES / name).read_text())]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [one for one in manifests() if one["kind"] == kind]


def test_the_stateful_set_says_only_what_a_broker_knows():
    [stateful], [secret] = of_kind("StatefulSet"), of_kind("Secret")
    [container] = stateful["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one.get("value", "queen-0") for one in container["env"]}
    assert set(given) | set(secret["stringData"]) <= topology.known_variables()
    config = environment.load({**given, **secret["stringData"]})
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    [claim] = stateful["spec"]["volumeClaimTemplates"]
    assert config.spool_directory.is_relative_to(mounts[claim["metadata"]["name"]])
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"http": config.server.port, "mesh": config.mesh.port}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    service = stateful["spec"]["serviceName"]
    pods = [f"queen-{n}.{service}" for n in range(stateful["spec"]["replicas"])]
    assert list(config.mesh.peers) == pods
    grace_s = stateful["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    pause_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert grace_s > pause_s + LONGEST_STOP_S
    # Else a service named queen-mesh would make a QUEEN_MESH_PORT=tcp://... of its own.
    assert stateful["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_services_and_budgets_find_the_pods_of_the_stateful_set():
    [stateful] = of_kind("StatefulSet")
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert stateful["spec"]["selector"]["matchLabels"] == labels
    services = {one["metadata"]["name"]: one["spec"] for one in of_kind("Service")}
    assert all(one["selector"] == labels for one in services.values())
    mesh = services[stateful["spec"]["serviceName"]]
    assert mesh["clusterIP"] == "None" and mesh["publishNotReadyAddresses"] is True
    # A broker without its database is not ready, and takes pushes.
    assert services["queen-push"]["publishNotReadyAddresses"] is True
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        [one] = of_kind(kind)
        selector = one["spec"].get("selector") or one["spec"]["podSelector"]
        assert selector["matchLabels"] == labels


# --- the brokers of the compose file, running ---------------------------------------------------


@pytest.fixture
def running(site: Site, tmp_path: Path) -> Iterator[Topology]:
    brokers = Topology(site.gateway.database, tmp_path)
    for name in brokers.services:
        brokers.start(name)
    yield brokers
    brokers.close()


def hears_the_others(wire: WireClient, running: Topology) -> bool:
    status = expect(wire.get("/internal/api/shared-state/stats"), 200).json()
    return bool(status["servers_alive"] == len(running.services) - 1)


def test_what_is_pushed_through_one_broker_is_popped_through_the_other(
    running: Topology, fresh_queue: str
):
    (a, b) = running.processes.values()
    with WireClient.at(a.url) as here, WireClient.at(b.url) as there:
        for wire in (here, there):
            until_storing(wire)
            eventually(lambda wire=wire: hears_the_others(wire, running))
        for writer, reader, process in ((here, there, b), (there, here, a)):
            parked = Parked(process.url, [fresh_queue])
            woken, later = f"wakes {process.port}", f"later at {process.port}"
            assert push(writer, fresh_queue, woken) == ["queued"]
            assert parked.answers() == {fresh_queue: [woken]}
            assert push(writer, fresh_queue, later) == ["queued"]
            assert reader.payloads(fresh_queue, autoAck=True) == [later]


def test_a_broker_that_is_made_anew_finds_in_its_volume_what_it_buffered(
    running: Topology, site: Site, fresh_queue: str
):
    name, process = next(iter(running.processes.items()))
    with WireClient.at(process.url) as wire:
        until_storing(wire)
        site.gateway.close()
        assert push(wire, fresh_queue, 1, 2) == ["buffered"] * 2
        eventually(lambda: wire.get("/readyz").status_code == 503)
        expect(wire.get("/livez"), 200)
    process.kill()
    site.gateway.open()
    with WireClient.at(running.start(name).url) as wire:
        until_drained(wire)
        assert buffers(wire)["pending"] == 0
        assert log_of(wire, fresh_queue) == {"p": [1, 2]}
    [volume] = running.services[name].volumes
    assert list((running.volumes / volume).rglob("spool/*"))
