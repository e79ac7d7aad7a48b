"""The operator's switches for key/value state and timers: what they are, and throwing them.

Imports flow/switches. Called by api/hot_kv.py.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from brokers.flow.switches import KV, TIMERS_FIRE, TIMERS_SCHEDULE

if TYPE_CHECKING:
    from brokers.runtime import Broker

NAMES = (KV, TIMERS_SCHEDULE, TIMERS_FIRE)


class SwitchState(NamedTuple):
    kv_enabled: bool
    timers_schedule_enabled: bool
    timers_fire_enabled: bool


def state(broker: "Broker") -> SwitchState:
    known = broker.switches
    return SwitchState(known.kv_enabled, known.timers_schedule_enabled, known.timers_fire_enabled)


async def throw(broker: "Broker", patch: Mapping[str, bool]) -> bool:
    """Whether every other broker will know; here it is in force either way."""
    return await broker.switches.throw(patch)
