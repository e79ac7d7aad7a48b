"""The redrive routes: start a job, watch it, cancel it, let it run again.

Method: HTTP against a real broker, which leads the task itself; messages die by a `dlq` ack.
"""

from datetime import UTC, datetime, timedelta

import pytest

from tests.wire_client import UNKNOWN_UUID, ack_of, error_of, expect

REDRIVE = "/api/v1/dlq/redrive"
GROUP_A = {"consumerGroup": "a", "subscriptionMode": "all"}
BIG = 123456789012345678901234567890


def bury(wire, queue: str, *payloads, error: str = "why not", partition=None, **params) -> None:
    """Push messages and let each die, in their order."""
    wire.push(queue, *payloads, partition=partition)
    for _ in payloads:
        [message] = wire.messages(queue, partition, batch=1, **params)
        [result] = wire.ack_batch(
            ack_of(message, "dlq", error=error), group=params.get("consumerGroup")
        )
        assert result["dlq"] is True


def start(wire, queue: str, **body):
    return expect(wire.post(REDRIVE, {"queue": queue, "rate": 100_000} | body), 201).json()


def state(wire, job) -> dict:
    return expect(wire.get(f"{REDRIVE}/{job['id']}"), 200).json()


def finished(wire, eventually, job) -> dict:
    eventually(lambda: state(wire, job)["state"] != "running", timeout_s=60)
    return state(wire, job)


# --- what a job does ----------------------------------------------------------------------------


def test_a_job_moves_the_dead_letters_of_a_queue_back(wire, fresh_queue, eventually):
    bury(wire, fresh_queue, {"n": 1}, {"n": BIG}, partition="p")
    job = start(wire, fresh_queue)
    assert job["state"] in ("running", "done")
    assert (job["queue"], job["total"], job["rate"]) == (fresh_queue, 2, 100_000)
    assert job["destination"] == {"queue": None, "partition": None}
    assert job["waitingFor"] is None
    done = finished(wire, eventually, job)
    assert (done["state"], done["moved"], done["skipped"]) == ("done", 2, 0)
    assert done["scanned"] == 2
    assert done["problem"] is None
    assert done["finishedAt"] >= done["createdAt"]
    assert wire.dead_letters(fresh_queue) == []
    again = wire.messages(fresh_queue, "p")
    assert [one["data"] for one in again] == [{"n": 1}, {"n": BIG}]
    assert all(one["transactionId"].startswith("dlq:") for one in again)
    assert len({one["id"] for one in again}) == 2


def test_a_job_may_be_filtered_and_have_a_destination(wire, fresh_queue, eventually):
    bury(wire, fresh_queue, 1, error="timeout at db", **GROUP_A)
    bury(wire, fresh_queue, 2, error="refused", **GROUP_A)
    bury(wire, fresh_queue, 1, error="timeout")
    target = f"{fresh_queue}-target"
    job = start(
        wire,
        fresh_queue,
        consumerGroup="a",
        error="timeout",
        destination={"queue": target, "partition": " q "},
        to=(datetime.now(UTC) + timedelta(hours=1)).isoformat(),
        **{"from": "2020-01-01T00:00:00Z"},
    )
    assert (job["consumerGroup"], job["error"], job["total"]) == ("a", "timeout", 1)
    assert job["destination"] == {"queue": target, "partition": "q"}
    assert job["from"] == "2020-01-01T00:00:00.000000Z"
    assert job["to"] < datetime.now(UTC).isoformat()
    assert finished(wire, eventually, job)["moved"] == 1
    assert wire.payloads(target, "q") == [1]
    left = wire.dead_letters(fresh_queue)
    assert sorted(row["errorMessage"] for row in left) == ["refused", "timeout"]


def test_a_waiting_pop_hears_of_what_is_moved(wire, fresh_queue):
    bury(wire, fresh_queue, "again")
    start(wire, fresh_queue)
    assert wire.payloads(fresh_queue, wait=True, timeout=30_000) == ["again"]


def test_a_job_that_is_cancelled_moves_nothing_more_until_it_is_resumed(
    wire, fresh_queue, eventually
):
    bury(wire, fresh_queue, 1, 2, 3)
    job = start(wire, fresh_queue, rate=1)
    cancelled = expect(wire.post(f"{REDRIVE}/{job['id']}/cancel"), 200).json()
    assert cancelled["state"] == "cancelled"
    assert cancelled["finishedAt"] is not None
    left = len(wire.dead_letters(fresh_queue))
    assert left == 3 - cancelled["moved"] > 0
    assert expect(wire.post(f"{REDRIVE}/{job['id']}/cancel"), 200).json()["state"] == "cancelled"
    resumed = expect(wire.post(f"{REDRIVE}/{job['id']}/resume"), 200).json()
    assert resumed["state"] in ("running", "done")
    assert finished(wire, eventually, job)["moved"] == 3
    assert wire.dead_letters(fresh_queue) == []


def test_a_job_that_is_done_stays_done(wire, fresh_queue, eventually):
    wire.configure(fresh_queue)
    job = start(wire, fresh_queue)
    assert finished(wire, eventually, job)["state"] == "done"
    assert expect(wire.post(f"{REDRIVE}/{job['id']}/cancel"), 200).json()["state"] == "done"
    assert "done" in error_of(wire.post(f"{REDRIVE}/{job['id']}/resume"), 409)


def test_a_deleted_queue_ends_its_job(wire, fresh_queue, eventually):
    bury(wire, fresh_queue, *range(6))
    job = start(wire, fresh_queue, rate=1, destination={"queue": f"{fresh_queue}-target"})
    wire.delete(fresh_queue)
    ended = finished(wire, eventually, job)
    assert (ended["state"], ended["problem"]) == ("failed", "the queue was deleted")
    target = wire.payloads(f"{fresh_queue}-target", batch=10)
    assert target == list(range(ended["moved"]))


# --- the list -----------------------------------------------------------------------------------


def test_jobs_are_listed_newest_first_and_paged(wire, fresh_queue):
    wire.configure(fresh_queue)
    jobs = [start(wire, fresh_queue, error=str(number))["id"] for number in range(3)]
    answer = expect(wire.get(REDRIVE, limit=2), 200).json()
    assert [one["id"] for one in answer["redrives"]] == jobs[:0:-1]
    assert answer["pagination"] == {"limit": 2, "offset": 0}
    assert answer["total"] == 2
    rest = wire.get(REDRIVE, limit=1, offset=2).json()
    assert [one["id"] for one in rest["redrives"]] == jobs[:1]
    assert wire.get(REDRIVE, offset=10**9).json()["redrives"] == []
    assert {one["state"] for one in wire.get(REDRIVE, state="done").json()["redrives"]} <= {"done"}


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"queue": None},
        {"queue": 5},
        {"queue": "q", "rate": 0},
        {"queue": "q", "rate": "10"},
        {"queue": "q", "rate": 100_001},
        {"queue": "q", "error": ""},
        {"queue": "q", "error": 5},
        {"queue": "q", "error": "x" * 1001},
        {"queue": "q", "from": "yesterday"},
        {"queue": "q", "to": 5},
        {"queue": "q", "from": "2026-01-02", "to": "2026-01-01"},
        {"queue": "q", "destination": "there"},
        {"queue": "q", "destination": {"queue": " "}},
        {"queue": "q", "destination": {"partition": 5}},
        {"queue": "q", "consumerGroup": "__timer__"},
        [],
    ],
)
def test_a_job_that_is_wrong_is_a_400(wire, body):
    error_of(wire.post(REDRIVE, body), 400)


def test_a_job_of_an_unknown_queue_is_a_404(wire, fresh_queue):
    assert error_of(wire.post(REDRIVE, {"queue": fresh_queue}), 404) == "Queue not found"


@pytest.mark.parametrize("job_id", [UNKNOWN_UUID, "not-a-uuid", "é", "1"])
@pytest.mark.parametrize(
    ("method", "verb"), [("GET", ""), ("POST", "/cancel"), ("POST", "/resume")]
)
def test_an_unknown_or_malformed_job_is_a_404(wire, job_id, method, verb):
    answer = wire.http.request(method, f"{REDRIVE}/{job_id}{verb}")
    assert error_of(answer, 404) == "Redrive not found"


@pytest.mark.parametrize("params", [{"limit": "x"}, {"offset": "1.5"}, {"state": "odd"}])
def test_a_list_that_is_asked_for_wrongly_is_a_400(wire, params):
    error_of(wire.get(REDRIVE, **params), 400)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (REDRIVE, {"GET", "HEAD", "POST"}),
        (f"{REDRIVE}/{UNKNOWN_UUID}", {"GET", "HEAD"}),
        (f"{REDRIVE}/{UNKNOWN_UUID}/cancel", {"POST"}),
        (f"{REDRIVE}/{UNKNOWN_UUID}/resume", {"POST"}),
    ],
)
def test_another_method_is_a_405(wire, path, allowed):
    answer = wire.http.request("PATCH", path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
