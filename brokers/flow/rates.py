"""The regulator's clock, and the `rates` line: what went through each lane, and what waits.

The line comes every QUEEN_LOG_RATES_MS, and not when nothing happened meanwhile.

Imports config, flow/admission, flow/giving_way, flow/regulation. Used by runtime.py.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from brokers.config import AdmissionConfig
from brokers.flow.admission import KINDS, Admission, Kind
from brokers.flow.giving_way import GivingWay
from brokers.flow.regulation import Regulation

log = logging.getLogger(__name__)


class Rates:
    """`items`: what each lane has carried since the start."""

    def __init__(
        self,
        admission: Admission,
        regulation: Regulation,
        giving_way: GivingWay,
        config: AdmissionConfig,
        *,
        items: Callable[[], Mapping[Kind, int]],
    ) -> None:
        self._admission = admission
        self._regulation = regulation
        self._giving_way = giving_way
        self._config = config
        self._items = items
        self._told_at = admission.clock()
        self._granted = dict.fromkeys(KINDS, 0)
        self._carried: Mapping[Kind, int] = dict.fromkeys(KINDS, 0)
        self._held = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._config.tick_ms / 1000)
            self._regulation.tick()
            if self._admission.clock() - self._told_at >= self._config.log_rates_ms / 1000:
                line = self.line()
                if line is not None:
                    log.info("%s", line)

    def line(self) -> str | None:
        """What happened since this was last asked; None when that was nothing."""
        admission = self._admission
        now = admission.clock()
        passed_s = max(now - self._told_at, 1e-9)
        self._told_at = now
        granted = {kind: line.granted for kind, line in admission.lines.items()}
        carried = dict(self._items())
        calls = {kind: granted[kind] - self._granted[kind] for kind in KINDS}
        items = {kind: carried[kind] - self._carried[kind] for kind in KINDS}
        held = self._giving_way.held - self._held
        self._granted, self._carried, self._held = granted, carried, self._giving_way.held
        if not any(calls.values()) and not any(line.waiters for line in admission.lines.values()):
            return None
        parts = [
            f"{kind} {calls[kind] / passed_s:.1f} calls/s {items[kind] / passed_s:.1f} items/s"
            f" {line.in_flight} in flight {len(line.waiters)} waiting"
            f" oldest {1000 * line.oldest_wait_s(now):.0f} ms cap {line.cap}"
            for kind, line in admission.lines.items()
        ]
        cycle_s = self._regulation.cycle_s
        cycle = "unknown" if cycle_s is None else f"{1000 * cycle_s:.2f} ms"
        pinned = " (pinned)" if self._regulation.pinned else ""
        return (
            f"rates: {'; '.join(parts)}; budget {admission.budget}{pinned}, flush cycle {cycle},"
            f" {held} pushes gave way"
        )
