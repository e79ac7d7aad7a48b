"""Giving way: the next push call lets consumers catch up, while both press.

A message costs one request to push and two to consume. Where the event loop is the limit,
each client gets one request a round, so as many consumers as producers would get half of what is
pushed, for ever. So a push call that already carries many requests may wait a little longer,
and carry more, while messages are delivered more slowly than they are pushed and claims or
acks are under way.

It waits at most as long again as since the last push call, and at most the part of that
which consumers have of the requests: a few slow consumers slow nobody down, and pushes lose
at most half of their rate. A push that comes alone never waits.

Imports flow/admission. Used by flow/traffic.py; the slots go to store/combine.py.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from brokers.flow.admission import Admission, Slot

# Below this, pushes are not pressing: nobody waits for the sake of somebody else.
REQUESTS_MIN = 8
LOOK_EVERY_S = 0.002
# Consumers that were idle at so many looks are not pressing.
QUIET_LOOKS = 2
HOLD_MAX_S = 0.5
# How much of the new is in a smoothed figure.
FRESH = 0.25


class Totals(NamedTuple):
    """What this process has done since its start."""

    pushed: int
    delivered: int
    push_requests: int
    consumer_requests: int


class GivingWay:
    """`totals` is asked once a push call, and while one waits."""

    def __init__(
        self, admission: Admission, totals: Callable[[], Totals], *, enabled: bool
    ) -> None:
        self._admission = admission
        self._totals = totals
        self._enabled = enabled
        self._seen = self._looked = Totals(0, 0, 0, 0)
        # Messages pushed and not yet delivered, as far as that matters.
        self._ahead = 0
        # The consumers' requests, as a part of the pushes'.
        self._share = 0.0
        self._went_at = 0.0
        self.held = 0
        self.held_s = 0.0

    def slot(self, requests: int) -> Slot:
        """A push slot for a call that carries so many requests as yet."""
        if requests < REQUESTS_MIN or not self._enabled:
            return self._admission.slot("push")
        return PatientSlot(self._admission, self, requests)

    async def wait(self, requests: int) -> None:
        """Until consumers have caught up, or do not press, or have had their time."""
        clock = self._admission.clock
        began = clock()
        self._look(requests)
        hold_s = min((began - self._went_at) * min(self._share, 1.0), HOLD_MAX_S)
        if hold_s < LOOK_EVERY_S:
            hold_s = 0.0  # not worth a timer
        quiet, slack = 0, requests // 2
        while self._ahead > slack and clock() < began + hold_s and quiet < QUIET_LOOKS:
            await asyncio.sleep(LOOK_EVERY_S)
            quiet = 0 if self._consumers_press() else quiet + 1
            self._count()
        self._went_at = clock()
        if self._went_at > began:
            self.held += 1
            self.held_s += self._went_at - began

    def _look(self, requests: int) -> None:
        before = self._looked
        self._count()
        self._looked = self._seen
        # An old debt is not paid off, and neither is an old credit used up: what counts is
        # who is faster now.
        self._ahead = max(min(self._ahead, 3 * requests), -requests)
        pushes = self._seen.push_requests - before.push_requests
        consumers = self._seen.consumer_requests - before.consumer_requests
        self._share += FRESH * (consumers / max(pushes, 1) - self._share)

    def _count(self) -> None:
        now = self._totals()
        self._ahead += now.pushed - self._seen.pushed - now.delivered + self._seen.delivered
        self._seen = now

    def _consumers_press(self) -> bool:
        lines = self._admission.lines
        return any(lines[kind].in_flight or lines[kind].waiters for kind in ("pop", "ack"))


class PatientSlot(Slot):
    """A push slot that lets consumers go first, before it stands in line."""

    __slots__ = ("_giving_way", "_requests")

    def __init__(self, admission: Admission, giving_way: GivingWay, requests: int) -> None:
        super().__init__(admission, admission.lines["push"], None)
        self._giving_way = giving_way
        self._requests = requests

    async def __aenter__(self) -> None:
        await self._giving_way.wait(self._requests)
        await super().__aenter__()
