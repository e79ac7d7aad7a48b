"""The sweeper as processes: on time, never early, shared by brokers that may be killed.

Method: broker processes and `manage.py sweeper` on databases of the test's own, so that no
other broker's sweeper fires what a test watches. Lateness is read from the database's clock;
bounds of time are wide, because the machine is not the test's alone.
"""

import base64
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from brokers import frames
from tests import harness
from tests.wire_client import WireClient, expect

TIMERS = "/api/v1/timers"
SHIFTED_CLOCK = """
import time
real, real_ns = time.time, time.time_ns
time.time = lambda: real() + {shift_s}
time.time_ns = lambda: real_ns() + {shift_s} * 10**9
"""


def schedule(wire: WireClient, queue: str, delays_ms: dict[str, int], lanes: int = 1) -> list[dict]:
    """One timer a key, in batches; the results."""
    payload = base64.b64encode(b"1").decode()
    ops = [
        {
            "op": "schedule",
            "queue": queue,
            "timerKey": key,
            "txn": key,
            "delayMs": delay_ms,
            "payload": payload,
            "partition": f"p{no % lanes}",
        }
        for no, (key, delay_ms) in enumerate(delays_ms.items())
    ]
    results = []
    for first in range(0, len(ops), 256):
        body = {"operations": ops[first : first + 256]}
        results += expect(wire.post(TIMERS, body), 200).json()["results"]
    assert all(one["ok"] for one in results)
    return results


def wait_for(wire: WireClient, queue: str, timeout_ms: int = 20_000) -> dict:
    [message] = wire.messages(queue, batch=1, wait="true", timeout=timeout_ms, autoAck="true")
    return message


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def delivered(db: Any) -> list[str]:
    """The transactionIds of the whole log."""
    rows = db.execute("SELECT frames FROM queen_segment").fetchall()
    return [
        json.loads(frames.transaction_of(frame))
        for (joined,) in rows
        for frame in bytes(joined).split(frames.SEPARATOR)
    ]


def pending(db: Any) -> int:
    return int(db.execute("SELECT count(*) FROM queen_timer").fetchone()[0])


@pytest.fixture
def own(fresh_database: Any) -> Iterator[tuple[harness.Database, Any]]:
    """A database of the test's own, and a connection to it."""
    database = fresh_database()
    with contextlib.closing(database.connect()) as connection:
        yield database, connection


def test_a_parked_consumer_gets_a_timer_on_time_and_never_early(start_broker, own, fresh_queue):
    broker = start_broker(on=own[0])
    lags = []
    with WireClient.at(broker.url) as wire:
        schedule(wire, fresh_queue, {"warm": 0})
        wait_for(wire, fresh_queue)
        for no in range(20):
            [result] = schedule(wire, fresh_queue, {f"k{no}": 40 + 17 * no})
            message = wait_for(wire, fresh_queue)
            arrived = time.time()
            assert message["id"] == result["messageId"]
            assert message["createdAt"] >= result["deliverAt"]
            lags.append(arrived - at(result["deliverAt"]))
    assert min(lags) >= 0
    assert statistics.median(lags) < 0.15, lags


def test_what_one_broker_scheduled_another_fires(start_broker, own, fresh_queue):
    """A has no sweeper. B is not told of the timer: only its own look finds it."""
    a = start_broker(on=own[0], QUEEN_SWEEPER="false")
    b = start_broker(on=own[0])
    with WireClient.at(a.url) as at_a, WireClient.at(b.url) as at_b:
        for no in range(3):
            [result] = schedule(at_a, fresh_queue, {f"k{no}": 100})
            message = wait_for(at_b, fresh_queue)
            assert message["id"] == result["messageId"]
            assert 0 <= at(message["createdAt"]) - at(result["deliverAt"]) < 5


def test_a_broker_without_a_sweeper_fires_nothing(start_broker, own, fresh_queue):
    broker = start_broker(on=own[0], QUEEN_SWEEPER="false")
    with WireClient.at(broker.url) as wire:
        schedule(wire, fresh_queue, {"a": 0})
        assert wire.messages(fresh_queue, wait="true", timeout=1500) == []
        assert wire.get(f"{TIMERS}/{fresh_queue}/a").json()["found"]


@pytest.mark.parametrize("shift_s", [600, -600])
def test_a_broker_whose_clock_is_off_fires_nothing_early(
    start_broker, own, fresh_queue, tmp_path, shift_s
):
    (tmp_path / "sitecustomize.py").write_text(SHIFTED_CLOCK.format(shift_s=shift_s))
    broker = start_broker(on=own[0], PYTHONPATH=str(tmp_path))
    with WireClient.at(broker.url) as wire:
        results = schedule(wire, fresh_queue, {f"k{no}": 300 + 100 * no for no in range(5)})
        for result in results:
            assert 0 < at(result["deliverAt"]) - time.time() < 60, "the database's clock counts"
        schedule(wire, fresh_queue, {"far": 300_000})
        for result in results:
            message = wait_for(wire, fresh_queue)
            assert message["id"] == result["messageId"]
            lag_s = at(message["createdAt"]) - at(result["deliverAt"])
            assert 0 <= lag_s < 10
        assert wire.get(f"{TIMERS}/{fresh_queue}/far").json()["found"]
        shown = subprocess.run(
            [sys.executable, "-c", "import time; print(time.time())"],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
        assert abs(float(shown) - time.time() - shift_s) < 60, "the clock of the test is off"


def test_brokers_that_are_killed_while_they_fire_lose_and_double_nothing(
    start_broker, own, fresh_queue, eventually
):
    """Three brokers fire; two are killed as soon as the first timers are gone."""
    database, db = own
    total, lanes = 4000, 40
    settings = {"QUEEN_SWEEPER_LEASE_MS": "1500", "QUEEN_SWEEPER_CLAIM_BATCH": "25"}
    brokers = [start_broker(on=database, **settings) for _ in range(3)]
    with WireClient.at(brokers[0].url) as wire:
        schedule(wire, fresh_queue, {f"k{no}": 1500 + no % 500 for no in range(total)}, lanes)
    eventually(lambda: 0 < pending(db) < total - 50, 30)
    for broker in brokers[:2]:
        broker.kill()
    left = pending(db)
    eventually(lambda: pending(db) == 0, 60)
    counted = Counter(delivered(db))
    assert set(counted) == {f"k{no}" for no in range(total)}
    assert set(counted.values()) == {1}
    assert left > 0, "they were killed too late to tell"
    rows = db.execute(
        "SELECT partition_id, date_trunc('milliseconds', created_at),"
        " substr(convert_from(frames, 'UTF8'), 8, 36)"
        " FROM queen_segment ORDER BY partition_id, base_offset"
    ).fetchall()
    assert rows == sorted(rows), "(createdAt in ms, id) never decreases along a partition"


def test_timers_that_fell_due_while_no_broker_ran_are_fired_by_the_next(
    start_broker, own, fresh_queue, eventually
):
    first = start_broker(on=own[0])
    with WireClient.at(first.url) as wire:
        schedule(wire, fresh_queue, {"a": 1500})
    first.kill()
    time.sleep(1.5)  # the clock itself is the input: the timer falls due now
    second = start_broker(on=own[0])
    with WireClient.at(second.url) as wire:
        assert wait_for(wire, fresh_queue)["transactionId"] == "a"


def sweeper(database: harness.Database, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-u", "manage.py", "sweeper", *arguments],
            cwd=harness.PROJECT_DIR,
            env=os.environ | database.environment,
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def test_the_command_fires_once_and_says_what_it_did(start_broker, own, fresh_queue, tmp_path):
    database, db = own
    broker = start_broker(on=database, QUEEN_SWEEPER="false")
    with WireClient.at(broker.url) as wire:
        schedule(wire, fresh_queue, {f"k{no}": 0 for no in range(7)} | {"far": 600_000}, 3)
    process = sweeper(database, "--once", log=tmp_path / "log")
    assert process.wait(60) == 0
    assert "due 7, " in (tmp_path / "log").read_text()
    assert "fired 7, " in (tmp_path / "log").read_text()
    assert sorted(delivered(db)) == [f"k{no}" for no in range(7)]
    assert pending(db) == 1


def test_the_command_alone_sweeps_until_it_is_stopped(
    start_broker, own, fresh_queue, tmp_path, eventually
):
    """Pops that wait at a broker hear of it at the broker's next floor."""
    database, _ = own
    broker = start_broker(on=database, QUEEN_SWEEPER="false")
    process = sweeper(database, log=tmp_path / "log")
    try:
        with WireClient.at(broker.url) as wire:
            for no in range(2):
                schedule(wire, fresh_queue, {f"k{no}": 300})
                assert wait_for(wire, fresh_queue)["transactionId"] == f"k{no}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert "fired 1, " in (tmp_path / "log").read_text()
