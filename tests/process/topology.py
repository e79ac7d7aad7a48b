"""docker-compose.ha.yml as plain processes: what it says, and brokers started by its word.

Every variable of a broker is passed on as the file has it; only what containers bring with them is
replaced: addresses, ports, and the directory under which a volume lies.

Used by test_topology.py. Imports harness.
"""

import re
import socket
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from brokers.config import Config
from tests.harness import PROJECT_DIR, BrokerProcess, Database

COMPOSE = PROJECT_DIR / "docker-compose.ha.yml"
# What an operator exports before `docker compose up`.
EXPORTED = {
    "PG_PASSWORD": "a password",
    "QUEEN_SYNC_SECRET": "a secret of more than thirty-two characters",
    "QUEEN_SECRET_KEY": "another secret that is long enough for all that it signs",
}
REFERENCE = re.compile(r"\$\{(\w+)(?::[?-]([^}]*))?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """`volumes`: where each of its volumes is mounted, by the volume's name or path."""

    name: str
    image: str
    built: bool
    environment: dict[str, str]
    volumes: dict[str, str]


def services() -> dict[str, Service]:
    document = yaml.safe_load(COMPOSE.read_text())
    return {name: _service(name, given) for name, given in document["services"].items()}


def named_volumes() -> set[str]:
    return set(yaml.safe_load(COMPOSE.read_text())["volumes"])


def brokers() -> dict[str, Service]:
    return {name: one for name, one in services().items() if one.built}


def known_variables() -> set[str]:
    """Every environment variable that brokers/config.py knows."""
    config = Config()
    return {
        name
        for part in fields(config)
        for one in fields(getattr(config, part.name))
        for name in one.metadata.get("env", ())
    }


def _service(name: str, given: dict[str, Any]) -> Service:
    environment = given.get("environment", {})
    mounts = (volume.split(":") for volume in given.get("volumes", ()))
    return Service(
        name=name,
        image=given["image"],
        built="build" in given,
        environment={key: _expanded(value) for key, value in environment.items()},
        volumes={mount[0]: mount[1] for mount in mounts},
    )


def _expanded(value: str) -> str:
    assert isinstance(value, str), f"{value!r} would be another text in another YAML: quote it"
    return REFERENCE.sub(lambda found: EXPORTED[found[1]], value)


class Topology:
    """The brokers of the file on one database; `volumes` is where their volumes lie."""

    def __init__(self, database: Database, directory: Path) -> None:
        self.services = brokers()
        self.volumes = directory / "volumes"
        self.processes: dict[str, BrokerProcess] = {}
        self._database = database
        self._directory = directory
        self._mesh_ports = {name: _free_port() for name in self.services}

    def start(self, name: str) -> BrokerProcess:
        log = self._directory / f"{name}.log"
        self.processes[name] = BrokerProcess(log, self._environment(self.services[name]))
        return self.processes[name]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()

    def _environment(self, service: Service) -> dict[str, str]:
        given = service.environment
        [volume] = service.volumes
        return {
            **given,
            **self._database.environment,
            "PG_USER": "postgres",
            "PORT": "0",
            "QUEEN_BIND_ADDR": "127.0.0.1",
            "QUEEN_DATA_DIR": str(self.volumes / volume),
            "QUEEN_MESH_PORT": str(self._mesh_ports[service.name]),
            "QUEEN_MESH_PEERS": ",".join(self._peers(given)),
        }

    def _peers(self, environment: dict[str, str]) -> list[str]:
        """The same brokers, on this host."""
        peers = [one.partition(":")[0] for one in environment["QUEEN_MESH_PEERS"].split(",")]
        return [f"127.0.0.1:{self._mesh_ports[name]}" for name in peers]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
