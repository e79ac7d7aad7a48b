"""How many messages from how many partitions one pop takes.

What the caller sent counts. What it left out has the contract's defaults, or, if it asked
for the autopilot, is chosen from what the ring knows: an honest and simple chooser.

Imports domain, config, flow. Used by services/pop.py.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from brokers.config import PopConfig
from brokers.domain import QUEUE_MODE, PopRequest
from brokers.flow.ready import Ring

BATCH_DEFAULT = 200
CONFLATED_LANES_MAX = 64
AUTOPILOT_LANES_MAX = 16
LANES_MAX = 1000
# A consumer that found nothing and does not wait may come back after so long.
IDLE_WAIT_MS = 100
BUSY_WAIT_MS = 10


class Knobs(NamedTuple):
    """`chosen` is what the answer tells of it: set only where the autopilot decided."""

    batch: int
    lanes: int
    chosen: dict[str, Any] | None


def choose(
    request: PopRequest, conflation: bool, rings: Sequence[Ring], config: PopConfig
) -> Knobs:
    steers = (
        request.autopilot
        and config.autopilot == "on"
        and request.group != QUEUE_MODE
        and request.queue is not None
        and request.partition is None
        and (request.batch is None or request.partitions is None)
    )
    batch = request.batch
    if batch is None:
        batch = config.autopilot_batch if steers else BATCH_DEFAULT
    if request.partition is not None:
        return Knobs(batch, 1, None)
    lanes = request.partitions
    ready = sum(ring.ready_count for ring in rings)
    if lanes is None:
        if conflation:
            lanes = min(batch, CONFLATED_LANES_MAX)
        elif steers:
            # Many thin partitions are worth one call; a single deep one fills it alone.
            lanes = max(1, min(ready, batch, AUTOPILOT_LANES_MAX))
        else:
            lanes = 1
    elif lanes <= 0:
        lanes = batch
    lanes = min(lanes, LANES_MAX)
    if not steers:
        return Knobs(batch, lanes, None)
    wait_ms = BUSY_WAIT_MS if ready else IDLE_WAIT_MS
    return Knobs(batch, lanes, {"partitions": lanes, "batch": batch, "waitMs": wait_ms})
