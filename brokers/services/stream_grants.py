"""Grants of streams: whether a tenant may register a new query, and how many in all.

Asked for new names of other tenants than the default one, while tenancy is on. No grants are
kept yet, so everybody has one without a limit; whoever keeps them answers here.

Imports nothing of ours. Used by services/streams.py.
"""

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from brokers.runtime import Broker


class Grant(NamedTuple):
    """`queries_max` None: no limit."""

    queries_max: int | None


async def grant_of(broker: "Broker", tenant: UUID) -> Grant | None:
    """None: this tenant may not register any."""
    return Grant(None)
