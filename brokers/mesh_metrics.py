"""What a broker shows of the mesh. Of a worker it is the node of its parent process.

Imports nothing of ours. Used by metrics.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def families(status: Mapping[str, Any] | None) -> Iterator[Metric]:
    """`status` as of Node.status; everything is zero where there is no mesh."""
    known = status or {}
    for name, key, text in (
        ("peers", "peer_count", "Peers that this broker was told of"),
        ("servers_alive", "servers_alive", "Brokers and hubs that were heard a moment ago"),
        ("servers_dead", "servers_dead", "Peers that were not"),
        ("queued", "messages_queued", "Hints that wait for their peers"),
    ):
        yield GaugeMetricFamily(f"queen_mesh_{name}", text, value=float(known.get(key, 0)))
    for name, key, text in (
        ("messages_sent", "messages_sent", "Hints sent to peers"),
        ("messages_received", "messages_received", "Hints that came from peers"),
        ("messages_dropped", "messages_dropped", "Hints that a slow or dead peer will not get"),
        ("handshake_failures", "handshake_failures", "Peers or frames that proved nothing"),
    ):
        yield CounterMetricFamily(f"queen_mesh_{name}", text, value=float(known.get(key, 0)))
