"""What the database knows of the whole cell, read for a scrape.

Imports store. Called by api/hot.py.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from brokers.errors import StoreError
from brokers.store import status_calls as calls

if TYPE_CHECKING:
    from brokers.runtime import Broker

log = logging.getLogger(__name__)

# Scrapers that come together, and several of them, share what was read.
EVERY_S = 5.0
# A scrape is answered without the database rather than late.
PATIENCE_S = 2.0
NAMES_MAX = 2000


async def refresh(broker: "Broker") -> None:
    """Read it anew unless it is new. Best effort: without it a scrape tells of the process."""
    if broker.cell_metrics.age_s < EVERY_S or not broker.ready:
        return
    try:
        async with asyncio.timeout(PATIENCE_S):
            await broker.lookups.run("cell figures", lambda: _read(broker))
    except TimeoutError:
        log.info("the scrape does not wait for the figures of the cell")
    except StoreError as error:
        log.info("figures of the cell: %s", error.text)


async def _read(broker: "Broker") -> None:
    totals = await calls.cell_figures(broker.reads.fetch)
    rates = await calls.queue_rates(broker.reads.fetch, names_max=NAMES_MAX)
    broker.cell_metrics.learn(totals, rates)
