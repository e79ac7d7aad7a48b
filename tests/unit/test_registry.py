"""The ack registry: whether an ack completes exactly what a lease handed out."""

import pytest

from brokers.domain import DEFAULT_TENANT
from brokers.flow.registry import HandedOut, Registry

BYTES_MAX = 20_000


def handed_out(partition: int, *ids: str, group: str = "g") -> HandedOut:
    literals = [f'"{one}"'.encode() for one in ids]
    return HandedOut(1, partition, f"uid-{partition}", group, 99, literals, DEFAULT_TENANT)


@pytest.fixture
def registry() -> Registry:
    return Registry(bytes_max=BYTES_MAX)


@pytest.mark.parametrize(
    ("mentioned", "whole"),
    [
        ("a b c", True),
        ("c a b", True),
        ("a b", False),
        ("a b c d", False),
        ("a b b", False),
        ("a b d", False),
        ("", False),
    ],
)
def test_a_batch_is_whole_when_its_ids_are_mentioned_in_any_order(mentioned: str, whole: bool):
    batch = handed_out(1, "a", "b", "c")
    assert batch.is_all([f'"{one}"'.encode() for one in mentioned.split()]) is whole


@pytest.mark.parametrize(
    ("mentioned", "whole"), [("a a b", True), ("b a a", True), ("a b", False), ("a b b", False)]
)
def test_an_id_that_was_handed_out_twice_must_be_mentioned_twice(mentioned: str, whole: bool):
    batch = handed_out(1, "a", "a", "b")
    assert batch.is_all([f'"{one}"'.encode() for one in mentioned.split()]) is whole


def test_each_partition_of_a_lease_is_a_batch_of_its_own(registry: Registry):
    first, second = handed_out(1, "a"), handed_out(2, "b")
    registry.remember("lease", [first, second])
    assert registry.batch("lease", "uid-1") is first
    assert registry.batch("lease", "uid-2") is second
    assert registry.batch("lease", "uid-3") is None
    assert registry.batch("other", "uid-1") is None


def test_a_batch_that_was_acknowledged_in_part_is_no_longer_known_but_its_lease_is(registry):
    registry.remember("lease", [handed_out(1, "a", "b"), handed_out(2, "c")])
    registry.touch("lease", "uid-1")
    assert registry.batch("lease", "uid-1") is None
    assert registry.batch("lease", "uid-2") is not None
    assert sorted(registry.partitions("lease")) == [1, 2]


def test_a_lease_that_ended_in_a_partition_lies_there_no_more(registry: Registry):
    registry.remember("lease", [handed_out(1, "a"), handed_out(2, "c")])
    registry.ended("lease", "uid-1")
    assert registry.partitions("lease") == [2]
    registry.ended("lease", "uid-2")
    assert registry.partitions("lease") is None


def test_what_is_not_known_can_be_touched_and_ended(registry: Registry):
    registry.touch("lease", "uid-1")
    registry.ended("lease", "uid-1")
    registry.remember("lease", [handed_out(1, "a")])
    registry.ended("lease", "uid-9")
    assert registry.partitions("lease") == [1]


def test_nothing_is_counted_for_leases_that_ended(registry: Registry):
    for number in range(1000):
        lease = f"lease-{number}"
        registry.remember(lease, [handed_out(1, "a", "b"), handed_out(2, "c")])
        if number % 2:
            registry.touch(lease, "uid-1")
        registry.ended(lease, "uid-2")
        registry.ended(lease, "uid-1")
    assert registry.size_bytes == 0


def test_the_oldest_leases_make_room_for_new_ones(registry: Registry):
    leases = [f"lease-{number}" for number in range(200)]
    for lease in leases:
        registry.remember(lease, [handed_out(1, *map(str, range(10)))])
        assert registry.size_bytes <= BYTES_MAX
    known = [lease for lease in leases if registry.batch(lease, "uid-1")]
    assert known == leases[-len(known) :]
    assert 5 < len(known) < 20


def test_leases_that_were_only_touched_and_ran_out_are_bounded_too(registry: Registry):
    """A consumer that acknowledges a part and dies leaves its lease here for good."""
    leases = [f"lease-{number}" for number in range(2000)]
    for lease in leases:
        registry.remember(lease, [handed_out(1, "a")])
        registry.touch(lease, "uid-1")
    known = [lease for lease in leases if registry.partitions(lease)]
    assert len(known) < 200
    assert known == leases[-len(known) :]


def test_one_lease_larger_than_the_whole_registry_is_kept_alone(registry: Registry):
    registry.remember("small", [handed_out(1, "a")])
    registry.remember("huge", [handed_out(1, *map(str, range(1000)))])
    assert registry.batch("small", "uid-1") is None
    assert registry.batch("huge", "uid-1") is not None
    registry.remember("next", [handed_out(1, "a")])
    assert registry.batch("huge", "uid-1") is None
    assert registry.batch("next", "uid-1") is not None
