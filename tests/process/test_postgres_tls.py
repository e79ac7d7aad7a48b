"""TLS to PostgreSQL: all connections of a broker are encrypted and verified, or there are none.

Method: a front of the test that takes plain connections as gladly as encrypted ones, so that one
that fell back would work, and be seen. Where nothing may get through, a broker in this process:
whatever it is that looks for the database, it connects with the same parameters.
"""

import logging
from pathlib import Path

import pytest

from tests.harness import Database, eventually
from tests.process.tls_front import Authority, Front
from tests.services.in_process import running, until
from tests.wire_client import WireClient, expect

# Whatever connects: the pools of messages, of reads and of key/value state, the lanes, Django.
CONNECTIONS = {
    "queen tls", "queen tls reads", "queen tls kv", "queen tls push", "queen tls pop",
    "queen tls ack", "queen tls sweeper", "queen tls watch", "queen-capacity", "queen-schema",
    "queen-django",
}  # fmt: skip


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("the authority of the tests")


@pytest.fixture
def start(start_broker, tmp_path: Path):
    """A broker that speaks TLS to the front."""

    def start(front: Front, **environment: str):
        return start_broker(
            **front.database.direct_environment,
            PG_USE_SSL="true",
            QUEEN_SERVER_ID="tls",
            QUEEN_DATA_DIR=str(tmp_path / "data"),
            **environment,
        )

    return start


def test_every_connection_of_a_broker_is_encrypted_and_messages_go_through(
    database: Database, start, authority: Authority, tmp_path: Path, fresh_queue: str
):
    with Front(database, authority.context(tmp_path, "localhost", "127.0.0.1")) as front:
        broker = start(front, PG_SSL_ROOT_CERT=authority.pem)
        with WireClient.at(broker.url) as wire:
            wire.configure(fresh_queue, leaseTime=30)
            wire.push(fresh_queue, "x" * 1_000_000)
            [message] = wire.messages(fresh_queue)
            assert len(message["data"]) == 1_000_000
            assert wire.ack(message)["success"] is True
            assert wire.dead_letters(fresh_queue) == []
            expect(wire.post("/api/v1/resources/kv/list", {"namespace": fresh_queue}), 200)
            put = {"op": "put", "ns": fresh_queue, "key": "k", "value": 1, "forever": True}
            expect(wire.post("/api/v1/kv", {"operations": [put]}), 200)
            expect(wire.get("/admin/login/"), 200, 302)
        eventually(lambda: front.met >= {(one, True) for one in CONNECTIONS}, timeout_s=20)
        broker.stop()
        assert {one for one, encrypted in front.met if not encrypted} == set()


def test_who_rejects_nobody_is_warned_and_encrypted_all_the_same(
    database: Database, start, tmp_path: Path, fresh_queue: str
):
    unknown = Authority("another").context(tmp_path, "another.example", "192.0.2.1")
    with Front(database, unknown) as front:
        broker = start(front, PG_SSL_REJECT_UNAUTHORIZED="false")
        assert "encrypted, but to whom is not verified" in broker.log
        with WireClient.at(broker.url) as wire:
            wire.push(fresh_queue, "hello")
            assert wire.payloads(fresh_queue) == ["hello"]
        broker.stop()
        assert {encrypted for _, encrypted in front.met} == {True}


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("of another authority", "certificate verify failed"),
        ("of no authority that the system knows", "certificate verify failed"),
        ("of another name", "does not match host name"),
        ("without TLS", "server does not support SSL"),
    ],
)
async def test_a_server_that_is_not_the_right_one_gets_no_connection_and_the_log_says_why(
    database: Database, authority: Authority, tmp_path: Path, caplog, server: str, said: str
):
    named = ("other.example", "192.0.2.1") if "name" in server else ("localhost", "127.0.0.1")
    issuer = Authority("another") if server == "of another authority" else authority
    context = None if server == "without TLS" else issuer.context(tmp_path, *named)
    settings = {"PG_USE_SSL": "true", "QUEEN_DATA_DIR": str(tmp_path)}
    if "system" not in server:
        settings["PG_SSL_ROOT_CERT"] = authority.pem
    with Front(database, context) as front, caplog.at_level(logging.WARNING):
        settings |= front.database.direct_environment
        async with running(database, ready=False, **settings) as client:
            await until(lambda: said in caplog.text)
            assert not client.broker.ready
        assert front.met == set()
    assert caplog.text.count("the database is not ready") <= 3, "a reason is told once"
