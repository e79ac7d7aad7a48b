"""When a stored message may be seen: delayedProcessing, windowBuffer, minPopWaitTime.

Method: HTTP against a real broker, delays of a second. Times are judged from before the
push to after the pop, so that a slow machine can only make a test more patient.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

# --- delayedProcessing --------------------------------------------------------------------------


def test_a_delayed_message_is_delivered_when_it_is_old_enough_and_not_before(
    wire, fresh_queue, eventually
):
    wire.configure(fresh_queue, delayedProcessing=1)
    wire.push(fresh_queue, "late")
    pushed = time.monotonic()
    assert wire.payloads(fresh_queue) == []
    eventually(lambda: wire.payloads(fresh_queue) == ["late"])
    assert time.monotonic() - pushed > 0.9


def test_a_delay_holds_back_only_what_is_too_young(wire, fresh_queue, eventually):
    wire.push(fresh_queue, "old")
    time.sleep(1.1)  # the age of a message is the input of this test
    wire.configure(fresh_queue, delayedProcessing=1)
    wire.push(fresh_queue, "young")
    assert wire.payloads(fresh_queue, autoAck=True) == ["old"]
    assert wire.payloads(fresh_queue) == []
    eventually(lambda: wire.payloads(fresh_queue) == ["young"])


def test_a_delay_configured_later_holds_back_messages_that_are_there(wire, fresh_queue):
    wire.push(fresh_queue, 1)
    wire.configure(fresh_queue, delayedProcessing=60)
    assert wire.payloads(fresh_queue) == []
    wire.configure(fresh_queue, delayedProcessing=0)
    assert wire.payloads(fresh_queue) == [1]


def test_a_parked_pop_is_woken_when_a_delayed_message_falls_due(wire, fresh_queue):
    wire.configure(fresh_queue, delayedProcessing=1)
    began = time.monotonic()
    wire.push(fresh_queue, "due")
    assert wire.payloads(fresh_queue, wait=True, timeout=10_000) == ["due"]
    assert 0.9 < time.monotonic() - began < 3.5


def test_a_delay_beyond_the_lease_does_not_end_the_lease_early(wire, fresh_queue, eventually):
    wire.configure(fresh_queue, delayedProcessing=1, leaseTime=60)
    wire.push(fresh_queue, 1)
    [message] = eventually(lambda: wire.messages(fresh_queue))
    assert wire.payloads(fresh_queue) == []
    assert wire.ack(message)["leaseReleased"] is True


# --- windowBuffer -------------------------------------------------------------------------------


def test_a_window_holds_a_partition_from_its_first_undelivered_message(
    wire, fresh_queue, eventually
):
    wire.configure(fresh_queue, windowBuffer=1)
    wire.push(fresh_queue, 1)
    opened = time.monotonic()
    assert wire.payloads(fresh_queue) == []
    wire.push(fresh_queue, 2)
    assert wire.payloads(fresh_queue) == []
    eventually(lambda: wire.payloads(fresh_queue) == [1, 2])
    assert time.monotonic() - opened > 0.9


def test_a_hundred_messages_end_a_window_at_once(wire, fresh_queue):
    wire.configure(fresh_queue, windowBuffer=3600)
    wire.push(fresh_queue, *range(99))
    assert wire.payloads(fresh_queue) == []
    wire.push(fresh_queue, 99)
    assert wire.payloads(fresh_queue) == list(range(100))


def test_a_window_is_each_partitions_own(wire, fresh_queue):
    wire.configure(fresh_queue, windowBuffer=3600)
    wire.push(fresh_queue, *range(100), partition="full")
    wire.push(fresh_queue, "lonely", partition="thin")
    assert wire.payloads(fresh_queue, partitions=0) == list(range(100))
    assert wire.payloads(fresh_queue, "thin") == []


def test_a_parked_pop_is_woken_when_a_window_ends(wire, fresh_queue):
    wire.configure(fresh_queue, windowBuffer=1)
    began = time.monotonic()
    wire.push(fresh_queue, 1)
    assert wire.payloads(fresh_queue, wait=True, timeout=10_000) == [1]
    assert 0.9 < time.monotonic() - began < 3.5


# --- minPopWaitTime -----------------------------------------------------------------------------


def test_an_under_full_batch_is_held_so_that_it_fills(wire, fresh_queue):
    wire.configure(fresh_queue, minPopWaitTime=8000)
    wire.push(fresh_queue, 1)
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        waiting = pool.submit(wire.payloads, fresh_queue, batch=3, wait=True, timeout=20_000)
        wire.push(fresh_queue, 2)
        wire.push(fresh_queue, 3)
        assert waiting.result(timeout=20) == [1, 2, 3]
    assert time.monotonic() - began < 6, "a batch that is full is not held any longer"


def test_a_held_batch_takes_no_lease_while_it_fills(wire, fresh_queue):
    wire.configure(fresh_queue, minPopWaitTime=1500)
    wire.push(fresh_queue, 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wire.payloads, fresh_queue, batch=50, wait=True, timeout=2500)
        time.sleep(0.3)  # well inside the hold; a late start of the waiter only makes it easier
        assert wire.payloads(fresh_queue, batch=1) == [1]
        assert waiting.result(timeout=10) == []


@pytest.mark.parametrize("timeout", [300, 600])
def test_a_hold_never_outlasts_the_callers_timeout(wire, fresh_queue, timeout):
    wire.configure(fresh_queue, minPopWaitTime=60_000)
    wire.push(fresh_queue, 1)
    began = time.monotonic()
    assert wire.payloads(fresh_queue, batch=3, wait=True, timeout=timeout) == [1]
    assert time.monotonic() - began < timeout / 1000 + 1.5


def test_a_hold_never_applies_without_wait_nor_to_a_full_batch(wire, fresh_queue):
    wire.configure(fresh_queue, minPopWaitTime=60_000)
    wire.push(fresh_queue, 1, 2)
    began = time.monotonic()
    assert wire.payloads(fresh_queue, batch=1, wait=True, timeout=20_000, autoAck=True) == [1]
    assert wire.payloads(fresh_queue, batch=50, autoAck=True) == [2]
    assert time.monotonic() - began < 2
