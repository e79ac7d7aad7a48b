"""The operator's switches: what they are, and throwing them.

Imports flow/switches. Called by api/hot_kv.py and api/hot_system.py.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from brokers.flow.switches import (
    KV,
    POP_MAINTENANCE,
    PUSH_MAINTENANCE,
    TIMERS_FIRE,
    TIMERS_SCHEDULE,
)

if TYPE_CHECKING:
    from brokers.runtime import Broker

__all__ = ["NAMES", "POP_MAINTENANCE", "PUSH_MAINTENANCE", "SwitchState", "state", "throw"]

# Those of /api/v1/system/kv-timers.
NAMES = (KV, TIMERS_SCHEDULE, TIMERS_FIRE)


class SwitchState(NamedTuple):
    kv_enabled: bool
    timers_schedule_enabled: bool
    timers_fire_enabled: bool
    push_maintenance: bool
    pop_maintenance: bool


def state(broker: "Broker") -> SwitchState:
    """As they are in force here."""
    known = broker.switches
    return SwitchState(
        known.kv_enabled,
        known.timers_schedule_enabled,
        known.timers_fire_enabled,
        known.push_maintenance,
        known.pop_maintenance,
    )


async def state_now(broker: "Broker") -> SwitchState:
    """As they are everywhere; as they are here, while the database does not answer."""
    await broker.switches.look()
    return state(broker)


async def throw(broker: "Broker", patch: Mapping[str, bool]) -> bool:
    """Whether every other broker will know; here it is in force either way."""
    return await broker.switches.throw(patch)
