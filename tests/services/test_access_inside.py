"""API keys inside a broker: when it looks, what it remembers, and what it does alone.

Method: brokers in the test's own loop on the real database; keys are changed over a connection
of the test's own.
"""

import asyncio
import os
import sys
import time

import pytest

from brokers import runtime
from brokers.api.door import Door
from brokers.api_key import NewKey, new_key
from brokers.errors import BrokerError, Refusal, StoreError
from brokers.runtime import Broker
from brokers.services import mesh as mesh_service
from mesh.hints import KeysChanged
from tests import harness
from tests.mesh_parts import free_port
from tests.services.in_process import until, within
from tests.services.test_mesh_hints import meshed
from tests.unit.test_door import Client as DoorClient

KEYS = {"QUEEN_API_KEYS": "true"}


@pytest.fixture
def make_key(db):
    def make(role: str = "admin", **options: object) -> NewKey:
        key = new_key()
        db.execute(
            "SELECT queen_api_key_create_v1(%s, %s, 'inside', %s, NULL, '', NULL, %s)",
            [key.id, key.digest, role, options.get("keys_max", 10_000)],
        )
        return key

    return make


def header(key: NewKey) -> bytes:
    return b"Bearer " + key.text.encode()


async def ask(broker: Broker, key: NewKey) -> int:
    """The status of a request with that key."""
    client = DoorClient(Door(None, lambda: broker))
    answer = await client.request("GET", "/status", headers=[(b"authorization", header(key))])
    return answer.status


async def test_a_key_costs_one_look_and_then_none(start_client, make_key):
    broker = (await start_client(**KEYS)).broker
    key = make_key()
    principal = await broker.access.identify(header(key))
    assert principal.subject == "key:inside"
    assert broker.access.remembered(header(key)) is principal


async def test_strangers_share_looks_however_many_they_are(start_client):
    broker = (await start_client(**KEYS)).broker
    keys = broker.access.keys
    await until(lambda: keys.trusted)

    async def stranger() -> None:
        with pytest.raises(BrokerError, match="Unknown API key"):
            await broker.access.identify(header(new_key()))

    before, began = keys.looks, time.monotonic()
    await asyncio.gather(*(stranger() for _ in range(500)))
    # Ours, and those of the watch, which come once a second.
    assert keys.looks - before <= 3 + (time.monotonic() - began) * 6


async def test_a_hint_makes_a_broker_look_before_its_second_is_over(start_client, make_key, db):
    broker = (await start_client(**KEYS)).broker
    key = make_key()
    await broker.access.identify(header(key))
    hearer = mesh_service.Hearer(broker)
    db.execute("SELECT queen_api_key_revoke_v1(%s)", [key.id])
    hearer.receive(KeysChanged(key.id))
    await until(lambda: broker.access.remembered(header(key)) is None)
    with pytest.raises(BrokerError, match="Unknown API key"):
        await broker.access.identify(header(key))


async def test_a_key_that_is_revoked_at_one_broker_is_refused_by_the_others_at_once(
    start_client, make_key, database, monkeypatch
):
    """Over the mesh, by the command that knows one of them. No broker looks by itself."""
    monkeypatch.setattr("brokers.runtime.WATCH_EVERY_S", 3600.0)
    ports = free_port(), free_port()
    first = meshed(*ports) | KEYS
    brokers = [
        (await start_client(**settings)).broker
        for settings in (first, meshed(*reversed(ports)) | KEYS)
    ]
    await until(lambda: all(one.mesh.status()["servers_alive"] == 1 for one in brokers))
    key = make_key("read-only")
    for broker in brokers:
        assert await ask(broker, key) == 200

    command = await asyncio.create_subprocess_exec(
        sys.executable,
        *("manage.py", "apikey", "revoke", key.text),
        cwd=harness.PROJECT_DIR,
        env=os.environ | database.direct_environment | first,
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await within(command.communicate(), 60)
    assert command.returncode == 0 and b"2 hosts were told" in told
    for broker in brokers:
        await until(lambda broker=broker: broker.access.remembered(header(key)) is None)
        assert await ask(broker, key) == 401


async def test_without_a_mesh_a_revoked_key_is_refused_after_the_next_look_of_each_second(
    start_client, make_key, db
):
    assert runtime.WATCH_EVERY_S == 1.0, "docs/security.md promises it"
    brokers = [(await start_client(**KEYS)).broker for _ in range(2)]
    key = make_key()
    for broker in brokers:
        assert await ask(broker, key) == 200
    db.execute("SELECT queen_api_key_revoke_v1(%s)", [key.id])
    before = [broker.access.keys.looks for broker in brokers]
    for broker, looks in zip(brokers, before, strict=True):
        await until(lambda broker=broker: broker.access.remembered(header(key)) is None)
        # One may have been under way when the key was revoked.
        assert broker.access.keys.looks - looks <= 2
        assert await ask(broker, key) == 401


async def test_a_revocation_is_seen_without_a_hint(start_client, make_key, db):
    broker = (await start_client(**KEYS)).broker
    key = make_key()
    await broker.access.identify(header(key))
    db.execute("UPDATE queen_api_key SET revoked_at = now() WHERE key_id = %s", [key.id])
    await until(lambda: broker.access.remembered(header(key)) is None)


async def test_known_keys_outlive_the_database_for_as_long_as_they_may(start_client, make_key):
    broker = (await start_client(**KEYS, QUEEN_API_KEYS_AWAY_S="100")).broker
    keys, key = broker.access.keys, make_key()
    await broker.access.identify(header(key))
    broker.access.forget()

    async def away(*_: object, **__: object) -> None:
        raise StoreError("away")

    keys._fetch = broker._watch_lane.fetch = away
    assert (await broker.access.identify(header(key))).subject == "key:inside"
    with pytest.raises(BrokerError, match="Unknown API key"):
        await broker.access.identify(header(new_key()))
    broker.access.forget()
    keys._looked_at -= 101
    with pytest.raises(Refusal) as told:
        await broker.access.identify(header(key))
    assert (told.value.status, told.value.retry_after_s) == (503, 1)


async def test_a_use_is_written_down_without_moving_the_version(start_client, make_key, db):
    broker = (await start_client(**KEYS)).broker
    keys, key = broker.access.keys, make_key()
    await broker.access.identify(header(key))

    def last_used() -> object:
        query = "SELECT last_used_at FROM queen_api_key WHERE key_id = %s"
        return db.execute(query, [key.id]).fetchone()[0]

    assert last_used() is None, "not at each use"
    version = keys._version
    await keys.write_used()
    assert last_used() is not None
    await keys.look()
    assert keys._version == version
    await keys.write_used()  # nothing was used since


async def test_another_database_is_not_believed_to_have_the_same_keys(start_client, make_key):
    broker = (await start_client(**KEYS)).broker
    keys, key = broker.access.keys, make_key()
    await broker.access.identify(header(key))
    keys._rows = {}  # as a restored backup with the same version might have it
    broker.access.doubt()
    await keys.look()
    assert key.digest in keys._rows


def test_there_are_not_more_keys_than_every_broker_can_hold(make_key, db):
    [[in_force]] = db.execute(
        "SELECT count(*) FROM queen_api_key WHERE revoked_at IS NULL"
        " AND (expires_at IS NULL OR expires_at > now())"
    ).fetchall()
    make_key(keys_max=in_force + 1)
    with pytest.raises(Exception, match="revoke some"):
        make_key(keys_max=in_force + 1)


def test_versions_commit_in_their_order(make_key, db, second_connection):
    """A change that is not committed holds up the next one, so that no broker sees the later
    number and misses the earlier change."""
    first = second_connection()
    first.execute("UPDATE queen_api_key SET name = 'held' WHERE id = (SELECT 0)")
    db.execute("SET lock_timeout = '100ms'")
    try:
        with pytest.raises(Exception, match="lock timeout"):
            make_key()
    finally:
        db.execute("RESET lock_timeout")
    first.rollback()
    make_key()
