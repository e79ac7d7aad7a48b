"""Push maintenance and pop maintenance: the operator's routes, and what the modes do.

Method: HTTP against brokers with a database of their own, for a mode holds for all brokers
of a database. Where pushes go in push maintenance is told by the tests of the spool.
"""

from collections.abc import Iterator

import pytest

from queen_project import embedded, embedded_paths
from tests import harness
from tests.api.test_dead_letter_routes import kill
from tests.api.test_timers import op
from tests.harness import Database, eventually
from tests.wire_client import WireClient, error_of, expect

PUSH = "/api/v1/system/maintenance"
POP = "/api/v1/system/maintenance/pop"
SHARED = "/api/v1/system/shared-state"
BUFFERS = "/api/v1/status/buffers"
# Longer than any client here has patience for: who is answered was answered at once.
FOR_EVER = {"wait": True, "timeout": 600_000}


@pytest.fixture(scope="module")
def quiet(request, postgres, tmp_path_factory) -> Iterator[WireClient]:
    """A broker that is alone on its database; each test leaves it in no maintenance."""
    database = harness.make_database(postgres, f"queen_{harness.WORKER}_maintenance")
    log = tmp_path_factory.mktemp("maintenance") / "broker.log"
    process = harness.BrokerProcess(
        log, database.environment, server=request.config.getoption("--server")
    )
    with WireClient.at(process.url) as client:
        yield client
    process.stop()
    harness.drop_database(database)


@pytest.fixture
def wire(quiet: WireClient) -> Iterator[WireClient]:
    yield quiet
    for path in (PUSH, POP):
        switch(quiet, path, False)


def switch(wire: WireClient, path: str, enabled: bool) -> dict:
    return expect(wire.post(path, {"enabled": enabled}), 200).json()


def state(wire: WireClient, path: str = PUSH) -> dict:
    return expect(wire.get(path), 200).json()


# --- the routes ---------------------------------------------------------------------------------


def test_a_broker_begins_in_no_maintenance_and_with_an_empty_buffer(wire):
    assert state(wire) == {
        "maintenanceMode": False,
        "popMaintenanceMode": False,
        "bufferedMessages": 0,
        "bufferHealthy": True,
        "bufferStats": {
            "pendingCount": 0,
            "failedCount": 0,
            "dbHealthy": True,
            "failedFiles": {
                "count": 0, "totalBytes": 0, "totalMB": 0, "failoverCount": 0, "qos0Count": 0,
            },
        },
    }  # fmt: skip
    assert state(wire, POP) == {
        "popMaintenanceMode": False,
        "message": "Pop maintenance mode is OFF. Normal operation.",
    }
    assert state(wire, SHARED) == {
        "enabled": False,
        "reason": "single_node_segments_broker",
        "maintenance_mode": False,
        "pop_maintenance_mode": False,
    }


def test_push_maintenance_is_told_in_the_contracts_words(wire):
    said = {"bufferedMessages": 0, "bufferHealthy": True}
    on = "Maintenance mode ENABLED. All PUSHes routing to file buffer."
    off = "Maintenance mode DISABLED. Background processor will drain buffer to DB."
    assert switch(wire, PUSH, True) == said | {"maintenanceMode": True, "message": on}
    now = state(wire)
    assert (now["maintenanceMode"], now["popMaintenanceMode"]) == (True, False)
    assert state(wire, SHARED)["maintenance_mode"] is True
    assert switch(wire, PUSH, False) == said | {"maintenanceMode": False, "message": off}
    assert state(wire)["maintenanceMode"] is False


def test_pop_maintenance_is_told_in_the_contracts_words(wire):
    on = "Pop maintenance mode ENABLED. All POP operations will return empty arrays."
    assert switch(wire, POP, True) == {"popMaintenanceMode": True, "message": on}
    assert state(wire, POP)["popMaintenanceMode"] is True
    assert state(wire, POP)["message"].startswith("Pop maintenance mode is ON.")
    now = state(wire)
    assert (now["maintenanceMode"], now["popMaintenanceMode"]) == (False, True)
    assert state(wire, SHARED)["pop_maintenance_mode"] is True
    answer = switch(wire, POP, False)
    assert answer["popMaintenanceMode"] is False
    assert answer["message"].startswith("Pop maintenance mode DISABLED.")


@pytest.mark.parametrize("path", [PUSH, POP])
@pytest.mark.parametrize(
    "body", [{}, {"enabled": None}, {"enabled": 1}, {"enabled": "true"}, {"on": True}]
)
def test_what_is_not_a_boolean_is_refused_and_changes_nothing(wire, path, body):
    assert error_of(wire.post(path, body), 400) == "enabled (boolean) is required"
    assert (state(wire)["maintenanceMode"], state(wire)["popMaintenanceMode"]) == (False, False)


@pytest.mark.parametrize("path", [PUSH, POP])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"true", b"\xff", b'{"enabled":tru}'])
def test_a_body_that_is_no_object_is_a_bad_body(wire, path, body):
    assert error_of(wire.post(path, body), 400).startswith("bad body")
    assert (state(wire)["maintenanceMode"], state(wire)["popMaintenanceMode"]) == (False, False)


def test_the_buffers_status_has_the_contracts_fields_and_what_was_set_aside(wire):
    answer = state(wire, BUFFERS)
    spool = answer.pop("spool")
    assert answer == {"pending": 0, "failed": 0, "dbHealthy": True, "worker": 0}
    assert spool["setAside"] == {"files": 0, "events": 0, "bytes": 0}
    assert set(spool) == {"files", "bytes", "freeBytes", "oldestSeconds", "setAside"}


def test_metrics_tell_the_modes_and_the_buffer(wire):
    def metric(name: str) -> float:
        [line] = [
            line
            for line in wire.get("/metrics/prometheus").text.splitlines()
            if line.startswith(f"queen_{name} ")
        ]
        return float(line.rsplit(" ", 1)[1])

    assert metric("file_buffer_db_healthy") == 1
    for name in ("pending", "failed", "failed_files", "failed_events", "oldest_age_seconds"):
        assert metric(f"file_buffer_{name}") == 0
    assert metric("maintenance_mode_enabled") == metric("pop_maintenance_mode_enabled") == 0
    switch(wire, PUSH, True)
    assert (metric("maintenance_mode_enabled"), metric("pop_maintenance_mode_enabled")) == (1, 0)
    switch(wire, POP, True)
    assert metric("pop_maintenance_mode_enabled") == 1


# --- one flag for all brokers -------------------------------------------------------------------


def test_a_mode_holds_at_every_broker_a_moment_later_and_after_a_restart(
    start_broker, fresh_database
):
    database = fresh_database()
    first, second = start_broker(on=database), start_broker(on=database)
    with WireClient.at(first.url) as one, WireClient.at(second.url) as two:
        switch(one, PUSH, True)
        assert state(two)["maintenanceMode"] is True, "read anew for whoever asks"
        switch(one, POP, True)
        eventually(lambda: state(two, POP)["popMaintenanceMode"])
        second.kill()
        third = start_broker(on=database)
        with WireClient.at(third.url) as three:
            assert state(three, POP)["popMaintenanceMode"] is True
            assert state(three)["maintenanceMode"] is True
            switch(three, POP, False)
            switch(three, PUSH, False)
        eventually(lambda: not state(one, POP)["popMaintenanceMode"])
        assert state(one)["maintenanceMode"] is False


def test_while_the_database_is_away_the_modes_are_this_brokers_and_are_written_when_it_comes(
    own_postgres, start_broker
):
    data_dir = own_postgres()
    database = Database(name="postgres", host=str(embedded_paths.socket_dir(data_dir)))
    embedded.stop(data_dir, force=True)
    broker = start_broker(on=database, ready=False)
    with WireClient.at(broker.url) as wire:
        now = state(wire)
        assert (now["maintenanceMode"], now["bufferHealthy"]) == (False, False)
        assert now["bufferStats"]["dbHealthy"] is False
        assert state(wire, BUFFERS)["dbHealthy"] is False
        assert state(wire, SHARED)["maintenance_mode"] is False
        assert switch(wire, PUSH, True)["mirrored"] is False
        assert switch(wire, POP, True)["mirrored"] is False
        now = state(wire)
        assert (now["maintenanceMode"], now["popMaintenanceMode"]) == (True, True)
        assert wire.get_pop("q", **FOR_EVER).status_code == 204
        assert wire.retry("0190a7c0-0000-7000-8000-00000000dead", "t").status_code == 503
        expect(wire.post("/internal/api/notify", {"queue": "q"}), 200)
        embedded.ensure_running(data_dir)
        eventually(broker.is_ready, timeout_s=60)
        now = state(wire)
        assert (now["maintenanceMode"], now["bufferHealthy"]) == (True, True)
    other = start_broker(on=database)
    with WireClient.at(other.url) as wire:
        now = state(wire)
        assert (now["maintenanceMode"], now["popMaintenanceMode"]) == (True, True)
        assert "mirrored" not in switch(wire, PUSH, False)


# --- pop maintenance ----------------------------------------------------------------------------


def test_in_pop_maintenance_every_pop_is_a_bare_204_at_once_and_leases_nothing(wire, fresh_queue):
    wire.configure(fresh_queue, namespace=fresh_queue)
    wire.push(fresh_queue, 1, partition="p")
    switch(wire, POP, True)
    for answer in (
        wire.get_pop(fresh_queue),
        wire.get_pop(fresh_queue, **FOR_EVER),
        wire.get_pop(fresh_queue, "p", autoAck=True, **FOR_EVER),
        wire.get_pop(fresh_queue, "unborn", **FOR_EVER),
        wire.get_pop(fresh_queue, consumerGroup="g", subscriptionMode="all", **FOR_EVER),
        wire.get_pop(None, namespace=fresh_queue, **FOR_EVER),
    ):
        assert expect(answer, 204).content == b""
        assert "content-length" not in answer.headers
    assert wire.queue(fresh_queue)["totals"]["processing"] == 0
    switch(wire, POP, False)
    [message] = wire.messages(fresh_queue)
    assert (message["data"], message["deliveryAttempt"]) == (1, 1)
    assert wire.payloads(fresh_queue, consumerGroup="g", subscriptionMode="all") == [1]


def test_a_conflating_pop_is_told_that_it_is_paused(wire, fresh_queue):
    params = {"consumerGroup": "g", "conflation": True, "subscriptionMode": "all"}
    wire.push(fresh_queue, 1)
    switch(wire, POP, True)
    answer = expect(wire.get_pop(fresh_queue, **params, **FOR_EVER), 200).json()
    assert (answer["messages"], answer["paused"], answer["conflation"]) == ([], True, True)
    switch(wire, POP, False)
    answer = wire.pop(fresh_queue, **params)
    assert "paused" not in answer
    assert [message["data"] for message in answer["messages"]] == [1]


def test_a_pop_that_asks_for_nonsense_is_refused_in_pop_maintenance_too(wire, fresh_queue):
    switch(wire, POP, True)
    expect(wire.get_pop(None), 400)
    expect(wire.get_pop(fresh_queue, batch="abc"), 400)


def test_pushes_acks_and_transactions_go_on_in_pop_maintenance(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    [message] = wire.messages(fresh_queue)
    switch(wire, POP, True)
    assert wire.push(fresh_queue, 2)[0]["status"] == "queued"
    assert wire.ack(message)["success"] is True
    pushed = {"type": "push", "items": [{"queue": fresh_queue, "payload": 3}]}
    assert wire.transaction(pushed)["success"] is True
    switch(wire, POP, False)
    assert wire.payloads(fresh_queue, batch=10) == [2, 3]


# --- push maintenance ---------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["address", "row"])
def test_in_push_maintenance_no_dead_letter_is_replayed(wire, fresh_queue, by):
    message = kill(wire, fresh_queue, "dead", "t1")
    [row] = wire.dead_letters(fresh_queue)

    def replay():
        if by == "address":
            return wire.retry(message["partitionId"], "t1")
        return wire.replay(row["id"])

    switch(wire, PUSH, True)
    answer = expect(replay(), 503)
    assert int(answer.headers["retry-after"]) >= 1
    told = answer.json()
    assert (told["success"], told["result"]) == (False, "maintenance")
    assert told["dlqRowRemoved"] is False
    assert told["error"]
    assert [each["id"] for each in wire.dead_letters(fresh_queue)] == [row["id"]]
    assert wire.payloads(fresh_queue) == []
    switch(wire, PUSH, False)
    assert expect(replay(), 200).json()["result"] == "moved"
    assert wire.payloads(fresh_queue) == ["dead"]


def test_pops_acks_transactions_and_timers_go_on_in_push_maintenance(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    switch(wire, PUSH, True)
    [message] = wire.messages(fresh_queue)
    assert wire.ack(message)["success"] is True
    pushed = {"type": "push", "items": [{"queue": fresh_queue, "payload": 2}]}
    assert wire.transaction(pushed)["success"] is True
    assert wire.payloads(fresh_queue, autoAck=True) == [2], "it was not diverted"
    timer = {"operations": [op(fresh_queue, "k", 0)]}
    assert expect(wire.post("/api/v1/timers", timer), 200).json()["results"][0]["ok"]
    assert wire.payloads(fresh_queue, wait=True, timeout=20_000) == [{"key": "k"}]


# --- hints --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [{}, {"queue": ""}, {"queue": None}, {"queue": 5}, {"queue": "a\0"}]
)
def test_a_notification_needs_a_queue(wire, body):
    error_of(wire.post("/internal/api/notify", body), 400)


def test_a_notification_of_a_queue_that_nobody_knows_is_no_error(wire, fresh_queue):
    answer = wire.post("/internal/api/notify", {"queue": fresh_queue, "partition": "p"})
    assert expect(answer, 200).json() == {"status": "ok"}
