"""All scenarios by name, and which of them a run is to do.

Imports throughput, volume, parked. Used by the bench command.
"""

from collections.abc import Callable, Sequence
from functools import partial

from brokers.bench import parked, throughput, volume
from brokers.bench.crew import BenchError
from brokers.bench.instrument import Instrument
from brokers.bench.rows import Row

Scenario = Callable[[Instrument, str], "Row | list[Row]"]

SCENARIOS: dict[str, Scenario] = {
    "push_b1_1": partial(throughput.push, batch=1, producers=1),
    "push_b1_8": partial(throughput.push, batch=1, producers=8),
    "push_b1_64": partial(throughput.push, batch=1, producers=64),
    "push_b10": partial(throughput.push, batch=10, producers=8),
    "push_b100": partial(throughput.push, batch=100, producers=8),
    "pop_b1": partial(throughput.pop, batch=1, consumers=8),
    "pop_b100": partial(throughput.pop, batch=100, consumers=8),
    "e2e_b1": throughput.end_to_end_singles,
    "e2e_b100": throughput.end_to_end_batches,
    "latency": throughput.latency,
    "partitions_1": partial(volume.partitions, count=1),
    "partitions_100": partial(volume.partitions, count=100),
    "partitions_10000": partial(volume.partitions, count=10_000),
    "partitions_100000": partial(volume.partitions, count=100_000),
    "backlog": volume.backlog,
    "dedup": volume.dedup,
    "parked": parked.parked,
}
QUICK = ("push_b1_64", "push_b100", "pop_b1", "pop_b100", "e2e_b100", "latency")


def chosen(only: Sequence[str], *, quick: bool) -> dict[str, Scenario]:
    """The scenarios to run, in their order. `push_b1` names all that are `push_b1_...`."""
    if not only:
        return {name: one for name, one in SCENARIOS.items() if not quick or name in QUICK}
    found = {
        name: one
        for name, one in SCENARIOS.items()
        if any(name == wanted or name.startswith(wanted + "_") for wanted in only)
    }
    for wanted in only:
        if not any(name == wanted or name.startswith(wanted + "_") for name in SCENARIOS):
            raise BenchError(f"no scenario {wanted!r}; there are: {', '.join(SCENARIOS)}")
    return found
