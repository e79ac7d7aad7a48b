"""The route table: every route as data, and the router that finds one by raw path.

Routing goes by the path as it stood on the wire. It is split at its slashes first and
each parameter is percent-decoded once afterwards, so `a%2Fb` is one name and never two
segments, and two different names never meet at one address. An empty segment is a legal
parameter: the empty string is a legal queue name. Static segments win over parameters.

Imports errors, route, the routes of the areas, wire. Used by door.py, auth.py, urls.py.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from brokers.api import routes_letters, routes_streams
from brokers.api.route import Kind, Level, Route
from brokers.api.routes_docs import DOCS_ROUTES
from brokers.api.routes_groups import GROUP_ROUTES
from brokers.api.routes_queues import QUEUE_ROUTES
from brokers.api.routes_status import STATUS_ROUTES
from brokers.api.wire import (
    NAME_BYTES_MAX,
    TIMER_KEY_BYTES_MAX,
    TRANSACTION_ID_BYTES_MAX,
    identifier_problem,
)
from brokers.errors import MethodNotAllowed, NoSuchRoute, RequestError

BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

SEGMENTS_MAX = 64
# What may be longer in a path than a name.
PARAMETER_BYTES_MAX = {
    "transactionId": TRANSACTION_ID_BYTES_MAX,
    "timerKey": TIMER_KEY_BYTES_MAX,
    # Their handlers know the limits, which are configured.
    "ns": TRANSACTION_ID_BYTES_MAX,
    "key": TRANSACTION_ID_BYTES_MAX,
}
# What a parameter that is no identifier is called, where that is not a plain bad request.
PARAMETER_CODES = {
    "ns": "kv_bad_request",
    "key": "kv_bad_request",
    "timerKey": "timers_bad_request",
}


class Match(NamedTuple):
    route: Route
    params: dict[str, str]


HOT, DRF = Kind.HOT, Kind.DRF
PUBLIC, READ, WRITE = Level.PUBLIC, Level.READ_ONLY, Level.WRITE_ONLY
READ_WRITE, ADMIN = Level.READ_WRITE, Level.ADMIN

_POP = "/api/v1/pop"
_QUEUES = "/api/v1/resources/queues"
_KV = "/api/v1/kv"
_INTERNAL = "/internal/api"
_SYSTEM = "/api/v1/system"
_POP_MAINTENANCE = f"{_SYSTEM}/maintenance/pop"
_TIMERS = "/api/v1/timers"

# A HEAD is a GET without its body where a GET changes nothing (`head`). It is never a pop:
# that would claim messages and throw them away.
ROUTES: tuple[Route, ...] = (
    Route("POST", "/api/v1/push", WRITE, HOT, "push", confined=True),
    Route("GET", _POP, READ_WRITE, HOT, "pop_discovery"),
    Route("GET", f"{_POP}/queue/:queue", READ_WRITE, HOT, "pop_queue"),
    Route("GET", f"{_POP}/queue/:queue/partition/:partition", READ_WRITE, HOT, "pop_partition"),
    Route("POST", "/api/v1/ack", READ_WRITE, HOT, "ack", confined=True),
    Route("POST", "/api/v1/ack/batch", READ_WRITE, HOT, "ack_batch", confined=True),
    Route("POST", "/api/v1/transaction", READ_WRITE, HOT, "transaction", confined=True),
    Route("POST", "/api/v1/lease/:leaseId/extend", READ_WRITE, HOT, "lease_extend", confined=True),
    Route("POST", "/api/v1/configure", READ_WRITE, DRF, "configure", confined=True),
    Route("GET", _QUEUES, READ, DRF, "queue_list", head=True, shared=True),
    Route("GET", f"{_QUEUES}/:queue", READ, DRF, "queue_detail", head=True),
    Route("GET", f"{_QUEUES}/:queue/depth", READ, DRF, "queue_depth", head=True),
    Route("DELETE", f"{_QUEUES}/:queue", ADMIN, DRF, "queue_delete"),
    *routes_letters.ROUTES,
    Route("POST", _KV, READ_WRITE, HOT, "kv_batch"),
    Route("GET", f"{_KV}/:ns/*key", READ, HOT, "kv_get", head=True),
    Route("PUT", f"{_KV}/:ns/*key", READ_WRITE, HOT, "kv_put"),
    Route("DELETE", f"{_KV}/:ns/*key", READ_WRITE, HOT, "kv_delete"),
    Route("GET", "/api/v1/resources/kv/namespaces", READ, HOT, "kv_namespaces", head=True),
    Route("POST", "/api/v1/resources/kv/list", READ, HOT, "kv_list"),
    Route("GET", f"{_SYSTEM}/kv-timers", ADMIN, HOT, "switches_get", False, head=True),
    Route("POST", f"{_SYSTEM}/kv-timers", ADMIN, HOT, "switches_set", False),
    Route("GET", f"{_SYSTEM}/maintenance", ADMIN, HOT, "maintenance_get", False, head=True),
    Route("POST", f"{_SYSTEM}/maintenance", ADMIN, HOT, "maintenance_set", False),
    Route("GET", _POP_MAINTENANCE, ADMIN, HOT, "pop_maintenance_get", False, head=True),
    Route("POST", _POP_MAINTENANCE, ADMIN, HOT, "pop_maintenance_set", False),
    Route("GET", f"{_SYSTEM}/shared-state", ADMIN, HOT, "shared_state", False, head=True),
    Route("GET", "/api/v1/status/buffers", READ, HOT, "buffers_status", False, head=True),
    Route("POST", "/api/v1/stats/refresh", ADMIN, HOT, "stats_refresh", False),
    Route("POST", f"{_INTERNAL}/notify", ADMIN, HOT, "notify"),
    Route(
        "GET", f"{_INTERNAL}/shared-state/stats", ADMIN, HOT, "shared_state_stats", False, head=True
    ),
    Route(
        "GET",
        f"{_INTERNAL}/inter-instance/stats",
        ADMIN,
        HOT,
        "inter_instance_stats",
        False,
        head=True,
    ),
    Route("POST", _TIMERS, WRITE, HOT, "timers_apply", confined=True),
    Route("GET", f"{_TIMERS}/:queue", READ, HOT, "timers_read", head=True),
    Route("GET", f"{_TIMERS}/:queue/*timerKey", READ, HOT, "timer_peek", head=True),
    Route("DELETE", f"{_TIMERS}/:queue/*timerKey", READ_WRITE, HOT, "timer_cancel"),
    Route("GET", "/health", PUBLIC, HOT, "health", False, head=True),
    Route("GET", "/status", READ, HOT, "status", False, head=True),
    Route("GET", "/livez", PUBLIC, HOT, "livez", False, head=True),
    Route("GET", "/readyz", PUBLIC, HOT, "readyz", False, head=True),
    Route("GET", "/metrics/prometheus", PUBLIC, HOT, "prometheus", False, head=True),
    *routes_streams.ROUTES,
    *GROUP_ROUTES,
    *STATUS_ROUTES,
    *QUEUE_ROUTES,
    *DOCS_ROUTES,
)


class _Node:
    """One position in the tree of templates."""

    __slots__ = ("children", "parameter", "rest", "routes")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.parameter: _Node | None = None
        self.rest: _Node | None = None
        self.routes: dict[str, tuple[Route, tuple[str, ...]]] = {}


class Router:
    """Finds the route of a (method, raw path); built once from the table."""

    def __init__(self, routes: Iterable[Route] = ROUTES) -> None:
        self._root = _Node()
        self._static: dict[tuple[str, bytes], Match] = {}
        for route in routes:
            self._add(route)

    def find(self, method: str, raw_path: bytes) -> Match:
        """The route, its parameters decoded and checked. Raises what a wrong address deserves."""
        # The one dict serves every request without parameters; its Match is shared, so
        # its params stay empty.
        match = self._static.get((method, raw_path))
        if match is not None:
            return match
        raw_path = raw_path.partition(b"?")[0]
        segments = raw_path.split(b"/", SEGMENTS_MAX)
        allowed: dict[str, None] = {}
        found = _descend(self._root, segments, 1, (), method, allowed)
        if found is None:
            if allowed:
                raise MethodNotAllowed(tuple(sorted(allowed)))
            raise NoSuchRoute
        route, names, values = found
        pairs = zip(names, values, strict=True)
        return Match(route, {name: _decoded(name, raw) for name, raw in pairs})

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        for segment in route.template.split("/")[1:]:
            if segment.startswith(":"):
                names.append(segment[1:])
                node.parameter = node.parameter or _Node()
                node = node.parameter
            elif segment.startswith("*"):
                names.append(segment[1:])
                node.rest = node.rest or _Node()
                node = node.rest
            else:
                node = node.children.setdefault(segment.encode(), _Node())
        for method in (route.method, "HEAD") if route.head else (route.method,):
            assert method not in node.routes, f"two routes at one address: {route.name}"
            node.routes[method] = (route, tuple(names))
            if not names:
                self._static[method, route.template.encode()] = Match(route, {})


def _descend(
    node: _Node,
    segments: list[bytes],
    position: int,
    values: tuple[bytes, ...],
    method: str,
    allowed: dict[str, None],
) -> tuple[Route, tuple[str, ...], tuple[bytes, ...]] | None:
    """Static first, then one parameter, then the rest; a branch without the method is left.

    So `DELETE /groups/lagging` reaches the group of that name although `GET` there is a
    route of its own. The depth is bounded by the templates, not by the path.
    """
    if position == len(segments):
        here = node.routes.get(method)
        if here is not None:
            return *here, values
        allowed.update(dict.fromkeys(node.routes))
        return None
    segment = segments[position]
    child = node.children.get(segment)
    if child is not None:
        found = _descend(child, segments, position + 1, values, method, allowed)
        if found is not None:
            return found
    if node.parameter is not None:
        found = _descend(
            node.parameter, segments, position + 1, (*values, segment), method, allowed
        )
        if found is not None:
            return found
    if node.rest is not None:
        rest = b"/".join(segments[position:])
        return _descend(node.rest, [], 0, (*values, rest), method, allowed)
    return None


def _decoded(name: str, raw: bytes) -> str:
    code = PARAMETER_CODES.get(name)
    try:
        if b"%" in raw and BROKEN_ESCAPE.search(raw):
            text = f"{name}: a percent sign must be followed by two hex digits"
            raise RequestError(text, code=code)
        text = unquote_to_bytes(raw).decode("utf-8") if b"%" in raw else raw.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(f"{name} in the path is not UTF-8", code=code) from None
    problem = identifier_problem(text, PARAMETER_BYTES_MAX.get(name, NAME_BYTES_MAX))
    if problem is not None:
        raise RequestError(f"{name} {problem}", code=code)
    return text
