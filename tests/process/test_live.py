"""The dashboard's socket, under both servers: who is let in, what is shown, how it ends.

Method: real brokers, with PostgreSQL behind a gateway that the test closes. Pictures come four
times a second, and every second it is asked whether viewers may still watch.
"""

import concurrent.futures
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import psycopg
import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.frames import CloseCode

from tests import harness
from tests.browser.operators import Operator, make_operator, make_session
from tests.process import crew
from tests.process.gateway import Gateway
from tests.process.test_listener import write_certificate
from tests.process.watching import watching

QUICK = {
    "QUEEN_LIVE_INTERVAL_MS": "250",
    "QUEEN_LIVE_RECHECK_S": "1",
    "STATS_INTERVAL_MS": "500",
    "METRICS_FLUSH_MS": "1000",
}
SIGNED_OUT = 4401
WINDOW = 16


class Place(NamedTuple):
    """A broker, the gateway that it reaches its database by, and an operator of its console."""

    broker: harness.BrokerProcess
    gateway: Gateway
    db: psycopg.Connection[Any]
    operator: Operator

    @property
    def url(self) -> str:
        return self.broker.url

    def session(self) -> str:
        return make_session(self.db, self.operator)


@pytest.fixture(scope="module", params=["uvicorn", "daphne"])
def place(
    request: pytest.FixtureRequest, postgres: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    name = f"queen_{harness.WORKER}_live_{request.param}"
    database = harness.make_database(postgres, name)
    gateway = Gateway(database)
    log = tmp_path_factory.mktemp("live") / "log"
    broker = harness.BrokerProcess(
        log, {**gateway.database.environment, **QUICK}, server=request.param
    )
    try:
        with database.connect() as db:
            yield Place(broker, gateway, db, make_operator(db, superuser=True))
    finally:
        broker.kill()
        gateway.close()
        harness.drop_database(database)


def push(url: str, queue: str, count: int) -> None:
    items = [{"queue": queue, "payload": {"n": n}} for n in range(count)]
    httpx.post(f"{url}/api/v1/push", json={"items": items}, timeout=60).raise_for_status()


def closed_with(watcher: Any) -> int:
    """The code that the socket is closed with, whatever is shown before."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            watcher.next()
        except ConnectionClosed as ended:
            return 0 if ended.rcvd is None else int(ended.rcvd.code)  # 0: it was cut
    raise AssertionError("it was not closed")


def test_a_viewer_is_shown_everything_at_once_and_then_what_is_new(place, fresh_queue):
    with watching(place.url, place.session()) as watcher:
        first = watcher.next()
        assert first["parts"]["traffic"]["ok"]
        watcher.next()
        assert watcher.wholes == 1
        push(place.url, fresh_queue, 7)
        picture = watcher.until(
            lambda one: any(
                row["name"] == fresh_queue and row["pending"] == "7"
                for row in one["parts"]["queues"]["value"]
            )
        )
        assert picture["no"] > first["no"]
        assert picture["parts"]["postgres"]["value"]["wal_bytes"].isdigit()
        assert picture["parts"]["timers"]["value"]["due"] == "0"
        watcher.until(lambda one: any(point[1] for point in one["points"]), most=8)


def test_whoever_has_no_session_or_comes_from_another_page_is_refused(place):
    for session, origin, path in (
        (None, None, "/console/live"),
        ("nosuchsession", None, "/console/live"),
        (place.session(), "http://elsewhere.example", "/console/live"),
        (place.session(), "http://127.0.0.1:1", "/console/live"),
        (place.session(), None, "/console/other"),
        (place.session(), None, "/api/v1/push"),
    ):
        with (
            pytest.raises(InvalidHandshake),
            watching(place.url, session, origin=origin, path=path),
        ):
            pass
    assert httpx.get(f"{place.url}/livez").status_code == 200


def test_a_user_without_a_role_is_refused(place):
    nobody = make_operator(place.db)
    with pytest.raises(InvalidHandshake), watching(place.url, make_session(place.db, nobody)):
        pass


def test_signing_out_ends_the_socket(place):
    session = place.session()
    with watching(place.url, session) as watcher:
        watcher.next()
        place.db.execute("DELETE FROM django_session WHERE session_key = %s", [session])
        assert closed_with(watcher) == SIGNED_OUT


def test_a_user_who_is_deactivated_watches_no_longer(place):
    leaver = make_operator(place.db, superuser=True)
    with watching(place.url, make_session(place.db, leaver)) as watcher:
        watcher.next()
        place.db.execute("UPDATE auth_user SET is_active = false WHERE id = %s", [leaver.id])
        assert closed_with(watcher) == SIGNED_OUT


def test_a_user_whose_role_is_taken_away_watches_no_longer(place):
    leaver = make_operator(place.db, groups=["Viewer"])
    with watching(place.url, make_session(place.db, leaver)) as watcher:
        watcher.next()
        place.db.execute("DELETE FROM auth_user_groups WHERE user_id = %s", [leaver.id])
        assert closed_with(watcher) == SIGNED_OUT


def test_nothing_piles_up_for_a_viewer_that_does_not_say_what_it_has_seen(place):
    with watching(place.url, place.session(), confirms=False) as watcher:
        for _ in range(WINDOW):
            watcher.next()
        assert watcher.wholes == 1
        with pytest.raises(TimeoutError):
            watcher.next(timeout_s=2)
        watcher.confirm()
        watcher.next()
        assert watcher.wholes == 2, "it has missed some, so it is shown everything"


def test_a_viewer_that_says_anything_else_is_sent_away(place):
    with watching(place.url, place.session()) as watcher:
        watcher.next()
        watcher.socket.send("hello")
        assert closed_with(watcher) == CloseCode.POLICY_VIOLATION


def test_what_cannot_be_read_is_told_as_failed_and_not_as_zero(place):
    with watching(place.url, place.session()) as watcher:
        watcher.until(lambda one: all(part["ok"] for part in one["parts"].values()))
        place.gateway.close()
        try:
            picture = watcher.until(
                lambda one: not any(one["parts"][name]["ok"] for name in ("totals", "postgres"))
            )
            assert "value" not in picture["parts"]["totals"]
            assert picture["parts"]["totals"]["error"]
            assert picture["parts"]["traffic"]["ok"], "what the process knows is still known"
            assert picture["points"][-1][7] is None
        finally:
            place.gateway.open()
        watcher.until(lambda one: all(part["ok"] for part in one["parts"].values()))


def test_whoever_asks_is_given_the_whole_picture(place):
    cookies = {"sessionid": place.session()}
    answer = httpx.get(f"{place.url}/console/snapshot", cookies=cookies, timeout=30)
    assert answer.status_code == 200
    told = json.loads(answer.content)
    assert {"no", "at", "every_ms", "parts", "points"} <= told.keys()
    refused = httpx.get(f"{place.url}/console/snapshot", timeout=30)
    assert refused.status_code == 302
    assert refused.headers["location"].startswith("/admin/login/")


def test_a_stop_closes_the_sockets_and_says_so(each_server, start_broker, fresh_database):
    database = fresh_database()
    broker = start_broker(server=each_server, on=database, **QUICK)
    with database.connect() as db:
        session = make_session(db, make_operator(db, superuser=True))
    with watching(broker.url, session) as watcher:
        watcher.next()
        broker.terminate()
        assert closed_with(watcher) == CloseCode.GOING_AWAY
    assert broker.wait(20) == 0
    assert "Traceback" not in broker.log


def test_the_socket_speaks_tls_where_the_listener_does(
    each_server, start_broker, fresh_database, tmp_path
):
    cert, key = write_certificate(tmp_path)
    database = fresh_database()
    broker = start_broker(
        server=each_server,
        on=database,
        ready=False,
        QUEEN_TLS_CERT=str(cert),
        QUEEN_TLS_KEY=str(key),
        **QUICK,
    )
    url = broker.url.replace("http", "https", 1)
    trust = ssl.create_default_context(cafile=str(cert))
    with database.connect() as db:
        session = make_session(db, make_operator(db, superuser=True))
    with watching(url, session, trust=trust) as watcher:
        watcher.until(lambda one: one["parts"]["totals"]["ok"])


def test_of_several_workers_the_picture_has_what_all_do(start_broker, fresh_database, fresh_queue):
    database = fresh_database()
    broker = start_broker(on=database, **QUICK, **crew.of(2))
    crew.until_all_ready(broker)
    with database.connect() as db:
        session = make_session(db, make_operator(db, superuser=True))
    with watching(broker.url, session) as watcher:
        watcher.next()
        with concurrent.futures.ThreadPoolExecutor() as threads:
            list(threads.map(lambda _: push(broker.url, fresh_queue, 5), range(8)))
        traffic = watcher.until(
            lambda one: one["parts"]["traffic"]["value"]["totals"]["pushed"] == "40"
        )["parts"]["traffic"]["value"]
    assert (traffic["workers"], traffic["missing"]) == (2, [])
    assert len({one["id"] for one in traffic["processes"]}) == 2
