"""The collector: makes the picture that everybody is shown, once an interval.

What this broker does is taken from memory at every tick. What the database knows is read beside
the ticks, each part at its own pace and none twice at a time, so that a database which does not
answer holds up no tick; a part that could not be read is told as failed, with the reason and for
how long, until it can be read again.

A picture carries what is new since the last one; the whole picture, for whoever begins to watch
or has missed one, carries everything, with the points of the last minutes. Either is written down
once, whatever the number of viewers.

Imports errors, parts, traffic. Used by live.py.
"""

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from brokers.errors import StoreError
from brokers.live.parts import PARTS, Part
from brokers.live.traffic import Traffic

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

POINTS_MAX = 180
# A part that does not come within this has failed.
PATIENCE_S = 8.0
# The first picture waits so long for its parts, and is shown with what is there then.
FIRST_S = 1.0
AWAY = "the database does not answer"


class Collector:
    def __init__(self, broker: "Broker", parts: tuple[Part, ...] = PARTS) -> None:
        self._broker = broker
        self._traffic = Traffic(broker)
        self._parts = parts
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._due: dict[str, float] = {}
        self._told: dict[str, dict[str, Any]] = {}
        self._new: set[str] = set()
        self._points: deque[list[float | None]] = deque(maxlen=POINTS_MAX)
        self._number = 0
        self._head: dict[str, Any] = {}
        self._whole: bytes | None = None

    async def tick(self, interval_s: float) -> bytes:
        """The next picture."""
        self._begin_reading()
        if not self._told and self._reading:
            await asyncio.wait(self._reading.values(), timeout=FIRST_S)
        await self._look_at_traffic()
        self._number += 1
        self._head = {
            "no": self._number,
            "at": _now_ms(),
            "every_ms": round(interval_s * 1000),
            "broker": self._broker.config.server.server_id,
            "switches": self._switches(),
        }
        new, self._new = self._new, set()
        self._points.append(self._point())
        self._whole = None
        document = self._head | {
            "parts": {name: self._told[name] for name in sorted(new)},
            "point": self._points[-1],
        }
        return msgspec.json.encode(document)

    def whole(self) -> bytes:
        """The latest picture, with everything; there must have been one."""
        assert self._number, "no picture was made yet"
        if self._whole is None:
            document = self._head | {"parts": self._told, "points": list(self._points)}
            self._whole = msgspec.json.encode(document)
        return self._whole

    @property
    def has_picture(self) -> bool:
        return bool(self._number)

    async def rest(self) -> None:
        """Nobody watches: nothing is read any more, and what was read is not shown later."""
        reading = list(self._reading.values())
        for task in reading:
            task.cancel()
        if reading:
            await asyncio.wait(reading)
        self._reading.clear()
        self._due.clear()
        self._told.clear()
        self._new.clear()
        self._points.clear()
        self._traffic.forget()
        self._number, self._whole = 0, None

    def _begin_reading(self) -> None:
        now = time.monotonic()
        for part in self._parts:
            if part.name not in self._reading and now >= self._due.get(part.name, 0.0):
                self._due[part.name] = now + part.every_s
                self._reading[part.name] = asyncio.create_task(
                    self._read(part), name=f"live {part.name}"
                )

    async def _read(self, part: Part) -> None:
        try:
            if not self._broker.ready:
                self._failed(part.name, AWAY)
                return
            async with asyncio.timeout(PATIENCE_S):
                self._tell(part.name, await part.read(self._broker))
        except TimeoutError:
            self._failed(part.name, f"no answer within {PATIENCE_S:.0f} s")
        except StoreError as error:
            self._failed(part.name, error.text)
        except Exception as error:
            log.exception("the %s of the dashboard cannot be read", part.name)
            self._failed(part.name, f"{type(error).__name__}, see the log of the broker")
        finally:
            self._reading.pop(part.name, None)

    async def _look_at_traffic(self) -> None:
        try:
            self._tell("traffic", await self._traffic.look())
        except Exception as error:
            log.exception("the traffic of the dashboard cannot be read")
            self._failed("traffic", f"{type(error).__name__}, see the log of the broker")

    def _tell(self, name: str, value: Any) -> None:
        self._told[name] = {"ok": True, "at": _now_ms(), "value": value}
        self._new.add(name)

    def _failed(self, name: str, error: str) -> None:
        """Without a value: what was true before is not passed off as true now."""
        before = self._told.get(name, {})
        since = before.get("since", _now_ms()) if not before.get("ok", True) else _now_ms()
        self._told[name] = {"ok": False, "at": _now_ms(), "since": since, "error": error}
        self._new.add(name)

    def _switches(self) -> dict[str, Any]:
        switches = self._broker.switches
        return {
            "known": switches.known,
            "push_maintenance": switches.push_maintenance,
            "pop_maintenance": switches.pop_maintenance,
            "kv": switches.kv_enabled,
            "timers_schedule": switches.timers_schedule_enabled,
            "timers_fire": switches.timers_fire_enabled,
        }

    def _point(self) -> list[float | None]:
        """[ms, pushed, delivered, acknowledged, failed, dead-lettered, parked, pending]; null where
        it is not known."""
        traffic = self._value("traffic")
        rates = traffic.get("rates") or {}
        names = ("pushed", "popped", "acked", "failed", "dead")
        parked, pending = traffic.get("parked"), self._value("totals").get("pending")
        return [
            _now_ms(),
            *(rates.get(name) for name in names),
            None if parked is None else int(parked),
            None if pending is None else int(pending),
        ]

    def _value(self, name: str) -> dict[str, Any]:
        value: dict[str, Any] = self._told.get(name, {}).get("value", {})
        return value


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
