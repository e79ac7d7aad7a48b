"""Names never alias: every path leads to one route, with its parameters as they were meant.

Method: the router alone, fed raw paths as the servers give them.
"""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.api.route import Kind, Level, Route
from brokers.api.routes import ROUTES, Router
from brokers.errors import MethodNotAllowed, NoSuchRoute, RequestError

router = Router()


def parameters_of(template: str) -> list[str]:
    return [part[1:] for part in template.split("/") if part[:1] in (":", "*")]


def address(template: str, value: str = "x") -> bytes:
    parts = [value if part[:1] in (":", "*") else part for part in template.split("/")]
    return "/".join(parts).encode()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_of_the_table_is_found_at_its_address(route):
    found = router.find(route.method, address(route.template))
    assert found.route is route
    assert found.params == dict.fromkeys(parameters_of(route.template), "x")


@pytest.mark.parametrize("template", sorted({route.template for route in ROUTES}))
@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "X"]
)
def test_every_other_method_is_405_with_the_allowed_ones(method, template):
    allowed = {route.method for route in ROUTES if route.template == template}
    allowed |= {"HEAD" for route in ROUTES if route.template == template and route.head}
    if method in allowed:
        assert router.find(method, address(template)).route.template == template
        return
    with pytest.raises(MethodNotAllowed) as caught:
        router.find(method, address(template))
    assert set(caught.value.allowed) == allowed
    assert caught.value.headers == (("allow", ", ".join(sorted(allowed))),)


def test_a_head_is_never_a_pop():
    for route in ROUTES:
        if route.template.startswith("/api/v1/pop") or route.method != "GET":
            assert not route.head


def test_every_route_has_a_level_and_only_health_is_public():
    public = {route.template for route in ROUTES if route.level is Level.PUBLIC}
    assert public == {
        "/health",
        "/livez",
        "/readyz",
        "/metrics/prometheus",
        "/api/docs",
        "/api/docs/assets/:asset",
    }
    admin = {route.name for route in ROUTES if route.level is Level.ADMIN}
    system = {name for name in admin if " /api/v1/system/" in name}
    assert admin - system == {
        "POST /api/v1/stats/refresh",
        "DELETE /api/v1/resources/queues/:queue",
        "POST /api/v1/resources/queues/:queue/purge",
        "POST /api/v1/resources/queues/:queue/partitions/:partition/purge",
        "DELETE /api/v1/dlq",
        "POST /internal/api/notify",
        "GET /internal/api/shared-state/stats",
        "GET /internal/api/inter-instance/stats",
    }
    cell_wide = {r.name for r in ROUTES if r.template.startswith("/api/") and not r.tenant}
    assert cell_wide == system | {
        "POST /api/v1/stats/refresh",
        "GET /api/v1/status/buffers",
        "GET /api/schema",
        "GET /api/docs",
        "GET /api/docs/assets/:asset",
    }


def test_handler_names_are_unique():
    assert len({route.handler for route in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("raw", [b"%", b"%zz", b"a%2", b"%%41"])
def test_a_broken_escape_is_refused_and_is_nobodys_name(raw):
    with pytest.raises(RequestError, match="percent"):
        Router().find("GET", b"/api/v1/pop/queue/" + raw)


@pytest.mark.parametrize(
    ("raw", "queue"),
    [
        (b"a%2Fb", "a/b"), (b"a%2fb", "a/b"), (b"a%252Fb", "a%2Fb"), (b"..", ".."), (b".", "."),
        (b"%2E%2E", ".."), (b"%25", "%"), (b"%25zz", "%zz"), (b"a+b", "a+b"),
        (b"a%20b", "a b"), (b"a%3Fx=1%23y", "a?x=1#y"), (b"q%0A", "q\n"), (b"", ""), (b"%20", " "),
        (b"Z%C3%BCrich%2F%E6%9D%B1%E4%BA%AC", "Zürich/東京"), ("é".encode(), "é"),
        (b"partition", "partition"), (b"queue", "queue"), (b"x%2Fpartition%2Fy", "x/partition/y"),
    ],
)  # fmt: skip
def test_a_name_is_decoded_once(raw, queue):
    found = router.find("GET", b"/api/v1/pop/queue/" + raw)
    assert (found.route.handler, found.params) == ("pop_queue", {"queue": queue})


def test_empty_segments_are_empty_names():
    found = router.find("GET", b"/api/v1/pop/queue//partition/")
    assert found.params == {"queue": "", "partition": ""}
    assert router.find("DELETE", b"/api/v1/resources/queues/").params == {"queue": ""}
    assert router.find("GET", b"/api/v1/resources/queues").route.handler == "queue_list"
    assert router.find("GET", b"/api/v1/resources/queues//depth").params == {"queue": ""}


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00")), st.text("ab/%.", max_size=6)
)
def test_any_two_names_come_back_as_they_were(queue, partition):
    path = f"/api/v1/pop/queue/{quote(queue, safe='')}/partition/{quote(partition, safe='')}"
    found = router.find("GET", path.encode())
    assert found.params == {"queue": queue, "partition": partition}


@pytest.mark.parametrize("raw", [b"%FF", b"%ED%A0%80", b"\xff", b"a%00b", b"\x00", b"%C3"])
def test_a_name_that_is_not_utf8_or_holds_nul_is_400(raw):
    with pytest.raises(RequestError) as caught:
        router.find("GET", b"/api/v1/pop/queue/" + raw)
    assert caught.value.status == 400


def test_a_name_over_its_limit_is_400_and_a_transaction_id_has_its_own():
    path = "/api/v1/messages/{}/{}/retry"
    assert router.find("POST", path.format("p" * 255, "t" * 65_535).encode()).params
    for partition, transaction in (("é" * 128, "t"), ("p", "t" * 65_536)):
        with pytest.raises(RequestError):
            router.find("POST", path.format(quote(partition), transaction).encode())


@pytest.mark.parametrize(
    "raw",
    [
        b"/api/v1/push/", b"/api/v1/Push", b"//api/v1/push", b"/api/v1/pop/queue", b"/api/v1",
        b"/api/v1/pop/", b"/", b"", b"/api/v1/%70ush", b"/api/v1/pop/queue/a/b", b"*",
        b"/api/v1/pop/queue/a/partition/b/c", b"/health/", b"/api/v1/../v1/push", b"/" * 1000,
    ],
)  # fmt: skip
def test_an_unknown_path_is_no_route(raw):
    for method in ("GET", "POST", "DELETE"):
        with pytest.raises(NoSuchRoute):
            router.find(method, raw)


def test_a_query_in_the_raw_path_is_not_part_of_it():
    assert router.find("POST", b"/api/v1/push?x=/y").route.handler == "push"


def test_a_static_segment_wins_unless_it_lacks_the_method_and_a_rest_takes_slashes():
    def route(method: str, template: str, handler: str) -> Route:
        return Route(method, template, Level.READ_ONLY, Kind.HOT, handler)

    small = Router(
        [
            route("GET", "/g/lagging", "lagging"),
            route("GET", "/g/:group", "get"),
            route("DELETE", "/g/:group", "delete"),
            route("GET", "/t/:queue", "list"),
            route("GET", "/t/:queue/*key", "peek"),
        ]
    )
    assert small.find("GET", b"/g/lagging").route.handler == "lagging"
    assert small.find("DELETE", b"/g/lagging").params == {"group": "lagging"}
    assert small.find("GET", b"/t/q").route.handler == "list"
    assert small.find("GET", b"/t/q/a/b%2Fc/").params == {"queue": "q", "key": "a/b/c/"}
    assert small.find("GET", b"/t/q/").params == {"queue": "q", "key": ""}
    with pytest.raises(MethodNotAllowed) as caught:
        small.find("PUT", b"/g/lagging")
    assert caught.value.allowed == ("DELETE", "GET")
