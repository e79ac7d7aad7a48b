"""A redrive while traffic runs, and its broker killed in the middle of it.

Method: a broker process is killed with SIGKILL while it moves letters; another one on the same
database goes on by itself. What lies in the queues at the end is counted.
"""

from collections import Counter

from tests.harness import eventually
from tests.store.calling import Lane
from tests.store.redriving import payloads_of
from tests.wire_client import WireClient, expect

LETTERS = 1500
RATE = 600
# A dead leader is followed after its lease.
SETTINGS = {"QUEEN_LEADER_LEASE_MS": "3000", "DB_POOL_SIZE": "8"}


def test_a_broker_killed_in_the_middle_of_a_redrive_moves_each_letter_once(
    start_broker, db, fresh_queue
):
    lane = Lane(db, fresh_queue)
    lane.bury(*range(LETTERS))
    doomed = start_broker(**SETTINGS)
    with WireClient.at(doomed.url) as wire:
        body = {"queue": fresh_queue, "rate": RATE}
        job = expect(wire.post("/api/v1/dlq/redrive", body), 201).json()
        path = f"/api/v1/dlq/redrive/{job['id']}"
        assert job["total"] == LETTERS
        live = 0

        def half_way() -> bool:
            nonlocal live
            wire.push(fresh_queue, f"live {live}")
            live += 1
            return wire.get(path).json()["moved"] > LETTERS // 4

        eventually(half_way, timeout_s=60)
        doomed.kill()
    left = lane.count("queen_dead_letter")
    assert 0 < left < LETTERS

    heir = start_broker(**SETTINGS)
    with WireClient.at(heir.url) as wire:
        eventually(lambda: wire.get(path).json()["state"] == "done", timeout_s=120)
        done = wire.get(path).json()
    assert (done["moved"], done["skipped"]) == (LETTERS, 0)
    assert lane.count("queen_dead_letter") == 0
    again = Counter(payloads_of(lane)[LETTERS:])
    expected = [str(number) for number in range(LETTERS)]
    assert again == Counter([*expected, *(f'"live {number}"' for number in range(live))])
