"""The other workers of this broker, and what they count.

Each worker listens on a Unix socket in the run directory. Whoever connects says in one byte
what it wants to know, the metrics and the state of the spool or the short pulse (pulse.py), and
is told at once. The worker that a client reached asks all others at the same time, bounded in
time and bytes. One that is dead or does not answer is left out and said to be missing. Nobody
asks in between: a scrape costs what it always did, once a worker.

Imports domain, merged_metrics, pulse. Used by runtime.py, services/workers.py and live/.
"""

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY
from prometheus_client.core import Metric

from brokers import merged_metrics
from brokers.domain import SpoolStatus
from brokers.flow import pulse
from brokers.flow.pulse import Pulse

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

ASK_S = 1.0
REPORT_BYTES_MAX = 16_777_216
# What one wants to know.
METRICS, PULSE = b"m", b"p"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What one worker tells of itself."""

    worker: int
    families: list[Metric]
    spool: SpoolStatus


class Siblings:
    def __init__(self, broker: "Broker", run_dir: Path) -> None:
        server = broker.config.server
        self._broker = broker
        self._run_dir = run_dir
        self._worker = server.worker
        self._others = [number for number in range(server.workers) if number != server.worker]

    async def run(self) -> None:
        """Answer the others until cancelled.

        The socket is left lying, as by a worker that was killed: it may be that of the next
        worker of this number already, of a new parent that did not wait for us to be gone.
        """
        path = _socket(self._run_dir, self._worker)
        path.unlink(missing_ok=True)
        try:
            server = await asyncio.start_unix_server(self._tell, path)
        except OSError as error:
            log.error("the other workers cannot ask this one: %s", error)
            return
        async with server:
            await server.serve_forever()

    async def ask(self) -> tuple[list[WorkerReport], list[int]]:
        """The reports of all workers that answer, ours first, and the numbers of the others."""
        asked = await asyncio.gather(*(self._ask(number) for number in self._others))
        answers = [report for report in asked if report is not None]
        missing = [n for n, report in zip(self._others, asked, strict=True) if report is None]
        return [self._report(), *answers], missing

    async def pulses(self) -> tuple[list[Pulse], list[int]]:
        """The pulses of all workers that answer, ours first, and the numbers of the others."""
        asked = await asyncio.gather(*(self._pulse(number) for number in self._others))
        answers = [one for one in asked if one is not None]
        missing = [n for n, one in zip(self._others, asked, strict=True) if one is None]
        return [pulse.take(self._broker), *answers], missing

    def _report(self) -> WorkerReport:
        broker = self._broker
        spool = SpoolStatus(healthy=broker.ready) if broker.spool is None else broker.spool.status()
        return WorkerReport(worker=self._worker, families=list(REGISTRY.collect()), spool=spool)

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                wanted = await reader.read(1)
                writer.write(self._document(wanted))
                await writer.drain()
        except (OSError, TimeoutError) as error:
            log.debug("a worker did not wait for its answer: %s", error)
        finally:
            writer.close()

    def _document(self, wanted: bytes) -> bytes:
        document: Any
        if wanted == PULSE:
            document = pulse.take(self._broker)
        else:
            report = self._report()
            document = [report.worker, merged_metrics.packed(report.families), report.spool]
        return json.dumps(document, separators=(",", ":")).encode("ascii")

    async def _ask(self, number: int) -> WorkerReport | None:
        try:
            worker, families, spool = await self._answer(number, METRICS)
            return WorkerReport(
                worker=worker,
                families=merged_metrics.unpacked(families),
                spool=SpoolStatus(*spool),
            )
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            log.warning("worker %d does not tell what it counts: %s", number, error or "no answer")
            return None

    async def _pulse(self, number: int) -> Pulse | None:
        try:
            return pulse.read(await self._answer(number, PULSE))
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            log.debug("worker %d does not tell its pulse: %s", number, error or "no answer")
            return None

    async def _answer(self, number: int, wanted: bytes) -> Any:
        async with asyncio.timeout(ASK_S):
            reader, writer = await asyncio.open_unix_connection(_socket(self._run_dir, number))
            with contextlib.closing(writer):
                writer.write(wanted)
                return json.loads(await _read(reader))


async def _read(reader: asyncio.StreamReader) -> bytes:
    """To the end, which must come within the bound."""
    text = bytearray()
    while chunk := await reader.read(65_536):
        text += chunk
        if len(text) > REPORT_BYTES_MAX:
            raise ValueError("it tells too much")
    return bytes(text)


def _socket(run_dir: Path, number: int) -> Path:
    return run_dir / f"worker-{number}"
