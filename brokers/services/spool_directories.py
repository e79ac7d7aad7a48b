"""The spool directories of a broker: its own, and those that it adopts.

An adopted directory was left behind by a broker of this host (another server id, fewer
workers). Its lock says that it is adopted: its owner, should it come back meanwhile, takes
another one beside it and starts all the same.

Imports config, spool. Used by services/background.py and the broker command.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from brokers.config import Config
from spool import disk
from spool.directory import LOCK, SpoolDirectory
from spool.errors import SpoolError, SpoolLocked

log = logging.getLogger(__name__)

SHARED_ID_MAX = 64
TARGET = "database"

Directories = tuple[SpoolDirectory, list[SpoolDirectory]]


def open_directories(config: Config, *, shared_id: bool = False) -> Directories:
    """This broker's own directory, and those that brokers of this host left behind.

    Raises SpoolUnusable, with a text for the operator, when our own cannot be had.
    `shared_id`: other processes may have our server id; each takes a directory of its own.
    """
    own = _open_own(config, shared_id=shared_id)
    target = _target(config)
    _say_target(own.path, target)
    return own, adopt(_siblings(config), own, target, fsync=config.file_buffer.fsync)


def _open_own(config: Config, *, shared_id: bool) -> SpoolDirectory:
    path = config.spool_directory
    for number in range(1, SHARED_ID_MAX):
        try:
            return SpoolDirectory.open(path, fsync=config.file_buffer.fsync)
        except SpoolLocked as error:
            if not (shared_id or error.adopted):
                raise
            log.warning("%s; another one is taken meanwhile", error)
            path = config.spool_directory.with_name(f"{config.spool_directory.name}~{number}")
    return SpoolDirectory.open(path, fsync=config.file_buffer.fsync)


def _siblings(config: Config) -> list[Path]:
    """Where the spool of a broker may lie that went by another id, or had more workers or fewer.

    A directory that was given may hold, and have beside it, what is none of ours: in it a spool
    is known by its lock, beside it by its name. Those of our other workers are theirs, though
    one may be on its way up at the moment.
    """
    root = config.spool_root
    try:
        found = sorted(root.iterdir())
        if config.file_buffer.directory:
            kind = re.compile(re.escape(root.name) + r"(~\d+)?", re.ASCII)
            beside = [path for path in root.parent.iterdir() if kind.fullmatch(path.name)]
            found = sorted(path for path in [*beside, *found] if (path / LOCK).exists())
    except OSError as error:
        log.warning("nobody knows what lies in and beside %s: %s", root, error)
        return []
    return [path for path in found if path not in config.worker_spool_directories]


def _target(config: Config) -> str:
    """The database that messages are accepted for, as this broker is told to find it."""
    postgres = config.postgres
    ports = ",".join(str(port) for port in postgres.ports)
    return f"{','.join(postgres.hosts)} {ports} {postgres.database}\n"


def _target_of(path: Path) -> str | None:
    try:
        return (path / TARGET).read_text()
    except OSError:
        return None


def _say_target(path: Path, target: str) -> None:
    known = _target_of(path)
    if known == target:
        return
    if known is not None:
        log.warning("%s was filled for another database, and is drained into this one", path)
    try:
        disk.replace_file(path / TARGET, target.encode())
    except OSError as error:
        # A full disk, say: without it the directory passes for one of any database.
        log.warning("%s does not say for which database it is: %s", path, error)


def adopt(
    paths: Iterable[Path], own: SpoolDirectory, target: str, *, fsync: bool
) -> list[SpoolDirectory]:
    """Directories beside ours that nobody uses and that hold something for our database."""
    adopted = []
    for path in paths:
        if path == own.path or not path.is_dir():
            continue
        try:
            directory = SpoolDirectory.open(path, fsync=fsync, adopting=True)
        except SpoolLocked:
            continue
        except SpoolError as error:
            log.warning("%s is left alone: %s", path, error)
            continue
        if not directory.finished():
            directory.close()
        elif _target_of(path) not in (None, target):
            log.warning("%s holds messages for another database: left alone", path)
            directory.close()
        else:
            log.info("draining %s, left behind by another broker of this host", path)
            adopted.append(directory)
    return adopted
