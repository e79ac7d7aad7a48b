"""A waiting pop: what wakes it, what does not, and what it leaves behind.

Method: HTTP against a real broker; waiters sit in threads or on raw sockets. Before a
test does what must wake them, the gauge of parked pops says that they sit.
"""

import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.wire_client import ack_of

PATIENCE = {"wait": True, "timeout": 10_000}
AT_ONCE_S = 1.0  # a local wake must beat the floor of one probe a second
BY_THE_FLOOR_S = 3.0


@pytest.fixture
def threads():
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture
def wait_until_parked(wire, eventually):
    """Wait until as many pops are parked in this broker, however they are addressed."""

    def wait(count: int) -> None:
        eventually(lambda: metric(wire, "queen_parked_long_polls") >= count)

    return wait


@pytest.fixture
def wait_until_asked(wire, eventually):
    """Wait until a pop since the test began has reached the broker, wherever it sits."""
    before = metric(wire, "queen_process_pop_requests_total")

    def wait() -> None:
        eventually(lambda: metric(wire, "queen_process_pop_requests_total") > before)

    return wait


def metric(wire, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in wire.get("/metrics/prometheus").text.splitlines()
        if line.startswith(name)
    )


def timed(call, *arguments, **options):
    began = time.monotonic()
    return call(*arguments, **options), time.monotonic() - began


def test_a_push_wakes_a_parked_pop_at_once(wire, fresh_queue, threads, wait_until_parked):
    waiting = threads.submit(wire.payloads, fresh_queue, **PATIENCE)
    wait_until_parked(1)
    wire.push(fresh_queue, "hello")
    payloads, took_s = timed(waiting.result, timeout=10)
    assert payloads == ["hello"]
    assert took_s < AT_ONCE_S


def test_a_wait_ends_with_a_204_at_its_own_timeout(wire, fresh_queue):
    payloads, took_s = timed(wire.payloads, fresh_queue, wait=True, timeout=600)
    assert payloads == []
    assert 0.55 < took_s < 2.5


def test_timeout_without_wait_means_nothing(wire, fresh_queue):
    payloads, took_s = timed(wire.payloads, fresh_queue, timeout=5000)
    assert payloads == []
    assert took_s < AT_ONCE_S


def test_a_waiting_pop_that_finds_work_answers_at_once(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    payloads, took_s = timed(wire.payloads, fresh_queue, batch=10, **PATIENCE)
    assert payloads == [1]
    assert took_s < AT_ONCE_S


def test_a_message_pushed_a_moment_ago_is_found_without_waiting(wire, fresh_queue):
    for number in range(30):
        wire.push(fresh_queue, number)
        assert wire.payloads(fresh_queue, autoAck=True) == [number]


def test_a_committed_transaction_wakes_a_parked_pop_at_once(
    wire, fresh_queue, threads, wait_until_parked
):
    waiting = threads.submit(wire.payloads, fresh_queue, **PATIENCE)
    wait_until_parked(1)
    wire.transaction({"type": "push", "queue": fresh_queue, "payload": "from a bundle"})
    payloads, took_s = timed(waiting.result, timeout=10)
    assert payloads == ["from a bundle"]
    assert took_s < AT_ONCE_S


@pytest.mark.parametrize("status", ["completed", "retry", "failed"])
def test_an_ack_that_frees_a_partition_wakes_a_parked_pop_at_once(
    wire, fresh_queue, threads, wait_until_parked, status
):
    wire.push(fresh_queue, 1, 2)
    [first] = wire.messages(fresh_queue, batch=1)
    waiting = threads.submit(wire.payloads, fresh_queue, batch=1, **PATIENCE)
    wait_until_parked(1)
    wire.ack(first, status)
    payloads, took_s = timed(waiting.result, timeout=10)
    assert payloads == ([2] if status == "completed" else [1])
    assert took_s < AT_ONCE_S


def test_a_lease_that_runs_out_wakes_a_parked_pop(wire, fresh_queue, threads):
    wire.push(fresh_queue, 1)
    wire.pop(fresh_queue, leaseSeconds=1)
    payloads, took_s = timed(wire.payloads, fresh_queue, **PATIENCE)
    assert payloads == [1]
    assert took_s < 1 + BY_THE_FLOOR_S


def test_a_partition_pop_is_woken_by_its_own_partition_alone(
    wire, fresh_queue, threads, wait_until_parked
):
    wire.push(fresh_queue, "old", partition="mine")
    wire.pop(fresh_queue, autoAck=True)
    waiting = threads.submit(wire.payloads, fresh_queue, "mine", **PATIENCE)
    wait_until_parked(1)
    wire.push(fresh_queue, "not yours", partition="other")
    wire.push(fresh_queue, "yours", partition="mine")
    assert waiting.result(timeout=10) == ["yours"]
    assert wire.payloads(fresh_queue, "other") == ["not yours"]


def test_a_partition_pop_is_woken_by_the_birth_of_its_partition(
    wire, fresh_queue, threads, wait_until_asked
):
    waiting = threads.submit(wire.payloads, fresh_queue, "unborn", **PATIENCE)
    wait_until_asked()
    wire.push(fresh_queue, "born", partition="unborn")
    payloads, took_s = timed(waiting.result, timeout=10)
    assert payloads == ["born"]
    assert took_s < BY_THE_FLOOR_S


@pytest.mark.parametrize("partition", [None, "born", "unborn"])
def test_the_gauge_counts_a_parked_pop_under_its_queue(
    wire, fresh_queue, threads, eventually, partition
):
    wire.push(fresh_queue, 1, partition="born")
    wire.pop(fresh_queue, autoAck=True)
    waiting = threads.submit(wire.payloads, fresh_queue, partition, wait=True, timeout=3000)
    eventually(lambda: parked_lines(wire, fresh_queue) or waiting.done())
    assert not waiting.done(), "it was parked for three seconds and never counted"
    wire.push(fresh_queue, 2, partition=partition)
    assert waiting.result(timeout=10) == [2]


def test_a_discovery_pop_is_woken_by_a_queue_born_after_it_sat_down(
    wire, fresh_queue, threads, wait_until_asked
):
    waiting = threads.submit(wire.payloads, None, namespace=fresh_queue, **PATIENCE)
    wait_until_asked()
    wire.push(f"{fresh_queue}.newborn", "found")
    payloads, took_s = timed(waiting.result, timeout=10)
    assert payloads == ["found"]
    assert took_s < BY_THE_FLOOR_S


def test_a_group_that_first_comes_to_wait_gets_what_is_pushed_then(
    wire, fresh_queue, threads, wait_until_parked
):
    wire.push(fresh_queue, "before")
    waiting = threads.submit(wire.payloads, fresh_queue, consumerGroup="g", **PATIENCE)
    wait_until_parked(1)
    wire.push(fresh_queue, "after")
    assert waiting.result(timeout=10) == ["after"]


def test_every_group_that_waits_gets_its_own_copy(wire, fresh_queue, threads, wait_until_parked):
    waiting = [
        threads.submit(wire.payloads, fresh_queue, consumerGroup=f"g{number}", **PATIENCE)
        for number in range(4)
    ]
    wait_until_parked(4)
    wire.push(fresh_queue, "news")
    assert [each.result(timeout=10) for each in waiting] == [["news"]] * 4


def test_waiters_share_partitions_and_nobody_gets_a_message_twice(
    wire, fresh_queue, threads, wait_until_parked
):
    waiting = [threads.submit(wire.payloads, fresh_queue, **PATIENCE) for _ in range(6)]
    wait_until_parked(6)
    wire.push_items(*({"queue": fresh_queue, "partition": str(n), "payload": n} for n in range(6)))
    results, took_s = timed(lambda: [each.result(timeout=10) for each in waiting])
    assert sorted(payload for payloads in results for payload in payloads) == list(range(6))
    assert took_s < BY_THE_FLOOR_S


def test_one_message_releases_one_waiter_and_the_others_go_on_waiting(
    wire, fresh_queue, threads, wait_until_parked
):
    patience = {"wait": True, "timeout": 2500}
    waiting: list[Future] = [
        threads.submit(timed, wire.payloads, fresh_queue, **patience) for _ in range(5)
    ]
    wait_until_parked(5)
    wire.push(fresh_queue, "one")
    results = [each.result(timeout=10) for each in waiting]
    assert sorted(payloads for payloads, _ in results) == [[], [], [], [], ["one"]]
    assert all(took_s > 2.4 for payloads, took_s in results if not payloads)


# --- clients that go away -----------------------------------------------------------------------


def send_pop(client, queue: str, **params) -> socket.socket:
    query = "&".join(f"{name}={value}" for name, value in params.items())
    url = client.base_url
    connection = socket.create_connection((url.host, url.port), timeout=10)
    request = f"GET /api/v1/pop/queue/{queue}?{query} HTTP/1.1\r\nHost: {url.host}\r\n\r\n"
    connection.sendall(request.encode())
    return connection


@pytest.mark.parametrize("auto_ack", ["false", "true"])
def test_a_client_that_hung_up_while_waiting_claims_nothing(
    wire, client, fresh_queue, wait_until_parked, eventually, auto_ack
):
    with send_pop(client, fresh_queue, wait="true", timeout=30_000, autoAck=auto_ack):
        wait_until_parked(1)
    eventually(lambda: not parked_lines(wire, fresh_queue))
    wire.push(fresh_queue, "still here")
    [message] = wire.messages(fresh_queue)
    assert message["data"] == "still here"
    assert message["deliveryAttempt"] == 1


def parked_lines(wire, queue: str) -> str:
    """The gauge's lines of a queue that still counts somebody."""
    return "".join(
        line + "\n"
        for line in wire.get("/metrics/prometheus").text.splitlines()
        if line.startswith("queen_parked_long_polls")
        and f'"{queue}"' in line
        and float(line.rsplit(" ", 1)[1]) > 0
    )


def test_a_client_that_hangs_up_around_the_push_loses_no_message(wire, client, fresh_queue):
    """The claim may have been made: then it is handed back, or its lease runs out."""
    for number in range(15):
        with send_pop(client, fresh_queue, wait="true", timeout=30_000, leaseSeconds=1):
            wire.push(fresh_queue, number)
            time.sleep(number * 0.001)  # the race itself: hang up 0..14 ms after the push
    seen: list[int] = []
    while len(seen) < 15:
        batch = wire.messages(fresh_queue, **PATIENCE)
        assert batch, f"lost after {seen}"
        seen += [message["data"] for message in batch]
        wire.ack_batch(*(ack_of(message) for message in batch))
    assert seen == list(range(15))


def test_parked_pops_hold_no_database_connection(wire, client, fresh_queue, wait_until_parked):
    """More waiters than the pool has connections, and work goes on beside them."""
    with ExitStack() as crowd:
        for _ in range(60):
            crowd.enter_context(send_pop(client, fresh_queue, wait="true", timeout=30_000))
        wait_until_parked(60)
        busy = f"{fresh_queue}-busy"
        _, took_s = timed(wire.push, busy, 1)
        assert wire.payloads(busy) == [1]
        assert took_s < AT_ONCE_S
