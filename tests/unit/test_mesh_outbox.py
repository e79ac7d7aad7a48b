"""The outbox: what is merged, what is dropped, and what waits no longer than it is of use."""

import asyncio

import pytest

from mesh import hints
from mesh.hints import PARTITIONS_MAX, Freed, Look, QueueChanged, Ready, Switched
from mesh.outbox import LISTED_MAX, Outbox
from tests.mesh_parts import pushed


def taken(outbox: Outbox) -> list:
    found = []
    while (item := outbox.take()) is not None:
        found.append(item)
    return found


def test_hints_of_one_key_become_one():
    outbox = Outbox()
    for partition in range(5):
        outbox.offer(pushed(1, partition))
        outbox.offer(Ready(1, "g", {partition}))
        outbox.offer(Freed(1, "g", {partition}))
    outbox.offer(QueueChanged("t", "q", False, 7))
    outbox.offer(QueueChanged("t", "q", True))
    outbox.offer(Switched("maintenance", True))
    outbox.offer(Switched("maintenance", False))
    outbox.offer(Look("t", "q"))
    outbox.offer(Look("t", "q"))
    assert taken(outbox) == [
        (pushed(1, *range(5)), False),
        (Ready(1, "g", set(range(5))), False),
        (Freed(1, "g", set(range(5))), False),
        (QueueChanged("t", "q", True, 7), False),
        (Switched("maintenance", False), False),
        (Look("t", "q"), False),
    ]
    assert outbox.dropped == 0


def test_other_tenants_groups_queues_and_marks_are_other_keys():
    outbox = Outbox()
    offered = [
        (pushed(1, 1), False),
        (pushed(2, 1), False),
        (pushed(1, 1), True),
        (Ready(1, "g", {1}), False),
        (Ready(1, "h", {1}), False),
        (Ready(1, None, {1}), False),
        (QueueChanged("t", "q"), False),
        (QueueChanged("u", "q"), False),
    ]
    for hint, marked in offered:
        outbox.offer(hint, marked=marked)
    assert taken(outbox) == offered


def test_a_hint_that_was_offered_is_never_changed():
    """Several outboxes are offered the same one."""
    first, second = Outbox(), Outbox()
    hint = pushed(1, 1)
    for outbox in (first, second):
        outbox.offer(hint)
    first.offer(pushed(1, 2))
    assert taken(second) == [(pushed(1, 1), False)]
    assert taken(first) == [(pushed(1, 1, 2), False)]
    assert hint == pushed(1, 1)


def test_what_does_not_fit_is_dropped_and_counted():
    outbox = Outbox()
    for queue_id in range(1500):
        outbox.offer(pushed(queue_id, 1))
    assert len(outbox) == 1024
    assert outbox.dropped == 1500 - 1024
    outbox.offer(pushed(3, 2))
    assert outbox.dropped == 1500 - 1024, "one that waits can still take it in"


def test_a_list_that_grows_too_long_becomes_look_at_all_of_it():
    outbox = Outbox()
    for partition in range(PARTITIONS_MAX + 1):
        outbox.offer(pushed(1, partition))
    outbox.offer(pushed(1, 99_999))
    [(hint, _)] = taken(outbox)
    assert hint.whole and not hint.partitions


def test_all_lists_together_are_bounded():
    outbox = Outbox()
    for queue_id in range(200):
        for partition in range(0, 1000, 10):
            outbox.offer(pushed(queue_id, *range(partition, partition + 10)))
    found = [hint for hint, _ in taken(outbox)]
    assert sum(hint.size for hint in found) <= LISTED_MAX
    assert any(hint.whole for hint in found)


async def test_waiting_ends_when_something_is_offered_and_not_before():
    outbox = Outbox()
    waiting = asyncio.create_task(outbox.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.offer(pushed(1, 1))
    await asyncio.wait_for(waiting, 5)
    assert taken(outbox)
    again = asyncio.create_task(outbox.wait())
    await asyncio.sleep(0)
    assert not again.done()
    again.cancel()


def test_a_list_that_came_too_long_is_not_walked():
    kind, body = hints.encode(pushed(1, *range(PARTITIONS_MAX + 1)))
    hint = hints.decode(kind, body)
    assert hint.whole and not hint.partitions


@pytest.mark.parametrize("body", [b"", b"\xff", b"\x80", b"\x91" * 100_000, b"\xa3abc"])
def test_what_cannot_be_read_is_no_hint(body: bytes):
    for kind in hints.TYPES:
        if kind != 32:  # all its fields are optional
            assert hints.decode(kind, body) is None
