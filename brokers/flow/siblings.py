"""The other workers of this broker, and what they count.

Each worker listens on a Unix socket in the run directory and tells whoever connects, at once,
its metrics and the state of its spool. The worker that a client reached asks all others at
the same time, bounded in time and bytes. One that is dead or does not answer is left out and
said to be missing. Nobody asks in between: a scrape costs what it always did, once a worker.

Imports domain, merged_metrics. Used by runtime.py, services/workers.py.
"""

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.core import Metric

from brokers import merged_metrics
from brokers.domain import SpoolStatus

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

ASK_S = 1.0
REPORT_BYTES_MAX = 16_777_216


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

    def _report(self) -> WorkerReport:
        broker = self._broker
        spool = SpoolStatus(healthy=broker.ready) if broker.spool is None else broker.spool.status()
        return WorkerReport(worker=self._worker, families=list(REGISTRY.collect()), spool=spool)

    async def _tell(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        report = self._report()
        document = [report.worker, merged_metrics.packed(report.families), report.spool]
        try:
            writer.write(json.dumps(document, separators=(",", ":")).encode("ascii"))
            async with asyncio.timeout(ASK_S):
                await writer.drain()
        except (OSError, TimeoutError) as error:
            log.debug("a worker did not wait for its answer: %s", error)
        finally:
            writer.close()

    async def _ask(self, number: int) -> WorkerReport | None:
        try:
            async with asyncio.timeout(ASK_S):
                path = _socket(self._run_dir, number)
                reader, writer = await asyncio.open_unix_connection(path)
                with contextlib.closing(writer):
                    text = await _read(reader)
            worker, families, spool = json.loads(text)
            return WorkerReport(
                worker=worker,
                families=merged_metrics.unpacked(families),
                spool=SpoolStatus(*spool),
            )
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            log.warning("worker %d does not tell what it counts: %s", number, error or "no answer")
            return None


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
