"""SIGTERM: whoever waits is answered, what is in flight is stored, and then the process goes.

Method: the real process. A push is kept in flight for as long as a test needs by holding its
partition's row lock from a second connection; a boot is kept from becoming ready by a database that
is away or by a lock on the table of migrations. Requests are plain sockets, so that an answer, a
silence and a reset can be told apart.
"""

import http.client
import json
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from queen_project import embedded_paths
from tests import harness
from tests.wire_client import WireClient

PARKED = 50
PUSHES = 20
GRACE_S = 15


class Call:
    """One request on a connection of its own, whose answer is read later."""

    def __init__(self, base_url: str, method: str, path: str, body: Any = None) -> None:
        url = urlsplit(base_url)
        self.connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
        self.connection.request(method, path, None if body is None else json.dumps(body))

    def answer(self) -> tuple[int, Any]:
        answer = self.connection.getresponse()
        text = answer.read()
        self.connection.close()
        return answer.status, json.loads(text) if text else None


def refuses_connections(base_url: str) -> bool:
    url = urlsplit(base_url)
    try:
        socket.create_connection((url.hostname or "", url.port or 0), timeout=2).close()
    except OSError:
        return True
    return False


def parked(client: httpx.Client) -> int:
    text = client.get("/metrics/prometheus").text
    lines = [one for one in text.splitlines() if one.startswith("queen_parked_long_polls{")]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines)


def waiting_for_a_lock(db: psycopg.Connection) -> int:
    [count] = db.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'"
    ).fetchone()
    return count


@pytest.mark.parametrize("signals", [1, 2])
def test_a_stop_answers_parked_pops_at_once_and_stores_the_pushes_in_flight(
    start_broker: Any,
    client: httpx.Client,
    db: psycopg.Connection,
    second_connection: Callable[[], psycopg.Connection],
    fresh_queue: str,
    eventually: Callable[..., Any],
    signals: int,
):
    broker = start_broker()
    base_url = broker.url
    wire = WireClient(client)
    wire.push(fresh_queue, "first", partition="held")
    path = f"/api/v1/pop/queue/{fresh_queue}-quiet?wait=true&timeout=25000"
    pops = [Call(base_url, "GET", path) for _ in range(PARKED)]
    with httpx.Client(base_url=base_url) as asking:
        eventually(lambda: parked(asking) == PARKED)

    with second_connection() as holder:
        holder.execute(
            "SELECT 1 FROM queen_partition p JOIN queen_queue q ON q.id = p.queue_id"
            " WHERE q.name = %s FOR UPDATE OF p",
            [fresh_queue],
        )
        pushes = []
        for n in range(PUSHES):
            item = {"queue": fresh_queue, "partition": "held", "payload": n}
            pushes.append(Call(base_url, "POST", "/api/v1/push", {"items": [item]}))
        eventually(lambda: waiting_for_a_lock(db) > 0)

        began = time.monotonic()
        for _ in range(signals):
            broker.terminate()
        assert [pop.answer() for pop in pops] == [(204, None)] * PARKED
        assert time.monotonic() - began < 2, "parked pops were answered late"
        eventually(lambda: refuses_connections(base_url))
        assert broker.process.poll() is None, "gone with pushes in flight"

    for push in pushes:
        status, rows = push.answer()
        assert status == 201 and [row["status"] for row in rows] == ["queued"], rows
    assert broker.wait(GRACE_S) == 0
    stored = wire.payloads(fresh_queue, "held", autoAck=True)
    assert stored[0] == "first" and sorted(stored[1:]) == list(range(PUSHES))


def test_a_stop_gives_no_new_lease(
    start_broker: Any, client: httpx.Client, fresh_queue: str, eventually: Callable[..., Any]
):
    broker = start_broker()
    base_url = broker.url
    path = f"/api/v1/pop/queue/{fresh_queue}?wait=true&timeout=25000"
    pops = [Call(base_url, "GET", path) for _ in range(5)]
    with httpx.Client(base_url=base_url) as asking:
        eventually(lambda: parked(asking) == len(pops))

    broker.terminate()
    wire = WireClient(client)
    wire.push(fresh_queue, 1, 2, 3)

    answers = [pop.answer() for pop in pops]
    assert broker.wait(GRACE_S) == 0
    leased = [body for status, body in answers if status == 200]
    # One that was rung before the signal may have been served; then it was answered whole.
    rest = [] if leased else [1, 2, 3]
    assert wire.payloads(fresh_queue) == rest
    assert len(leased) <= 1 and {status for status, _ in answers} <= {200, 204}


def status(broker: Any, path: str) -> int:
    return httpx.get(broker.url + path, timeout=10).status_code


def test_a_broker_whose_postgresql_is_away_is_alive_but_not_ready_until_it_comes(
    start_broker: Any, eventually: Callable[..., Any]
):
    # Not pytest's directory: the account that PostgreSQL runs as could not reach it.
    data_dir = Path(tempfile.mkdtemp(prefix="stop-", dir="/tmp"))
    data_dir.chmod(0o711)
    host = str(embedded_paths.socket_dir(data_dir))
    broker = start_broker(ready=False, PG_HOST=host, PG_DATABASE="postgres")
    eventually(lambda: status(broker, "/livez") == 200)
    assert status(broker, "/readyz") == 503
    assert status(broker, "/health") == 503
    with httpx.Client(base_url=broker.url, timeout=30) as client:
        wire = WireClient(client)
        item = {"queue": "early", "payload": 1, "transactionId": "t"}
        [early] = wire.push_items(item)
        assert early["status"] in ("failed", "buffered"), early

        with harness.own_postgres(data_dir):
            eventually(broker.is_ready, timeout_s=30)
            assert status(broker, "/health") == 200
            [late] = wire.push_items(item)
            assert late["status"] in ("queued", "duplicate")
            assert wire.payloads("early") == [1]
            assert broker.stop() == 0


def test_a_stop_before_the_database_ever_came_is_prompt_and_clean(
    start_broker: Any, tmp_path: Path, eventually: Callable[..., Any]
):
    broker = start_broker(ready=False, PG_HOST=str(tmp_path))
    eventually(lambda: status(broker, "/livez") == 200)
    assert status(broker, "/readyz") == 503

    broker.terminate()

    assert broker.wait(GRACE_S) == 0, broker.log


def test_a_stop_in_the_middle_of_the_boot_leaves_a_schema_that_the_next_boot_finishes(
    start_broker: Any, fresh_database: Any, eventually: Callable[..., Any]
):
    database = fresh_database(schema=False)
    with database.connect() as db, database.connect(autocommit=False) as holder:
        # The first thing a migration of a new database does is to make this table.
        holder.execute("CREATE TABLE django_migrations (held int)")
        first = start_broker(on=database, ready=False)
        eventually(lambda: waiting_for_a_lock(db) > 0)
        assert status(first, "/readyz") == 503
        first.terminate()
        holder.rollback()
        assert first.wait(GRACE_S) == 0, first.log

    second = start_broker(on=database)
    assert second.stop() == 0
