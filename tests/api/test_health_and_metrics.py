"""What operators ask: /health, /status, /livez, /readyz, /metrics/prometheus.

Method: HTTP against a real broker that is well. What they say while the database is away
is a matter of the process tests.
"""

from prometheus_client.parser import text_string_to_metric_families

from tests.wire_client import ack_of, expect


def samples(wire) -> dict[str, float]:
    """Every sample, summed over its labels."""
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(wire.get("/metrics/prometheus").text):
        for sample in family.samples:
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals


def test_health_says_that_the_database_answers(wire):
    body = expect(wire.get("/health"), 200).json()
    assert body.pop("version")
    assert body == {"status": "healthy", "database": "connected", "engine": "segments-rust"}


def test_status_says_that_the_process_lives(wire):
    assert expect(wire.get("/status"), 200).json() == {"status": "ok", "engine": "segments-rust"}


def test_liveness_and_readiness_are_200_when_all_is_well(wire):
    expect(wire.get("/livez"), 200)
    expect(wire.get("/readyz"), 200)


def test_a_wrong_method_on_a_health_route_is_a_405(wire):
    for path in ("/health", "/status", "/metrics/prometheus"):
        answer = expect(wire.post(path, {}), 405)
        assert "GET" in answer.headers["allow"]
        assert isinstance(answer.json()["error"], str)


def test_metrics_are_prometheus_text_that_nobody_may_cache(wire):
    answer = expect(wire.get("/metrics/prometheus"), 200)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    ours = [family for name, family in families.items() if name.startswith("queen_")]
    assert ours
    assert all(family.documentation for family in ours)
    assert all(family.type in ("counter", "gauge", "histogram", "summary") for family in ours)


def test_metrics_count_requests_and_messages(wire, fresh_queue):
    before = samples(wire)
    wire.push(fresh_queue, 1, 2, 3)
    wire.ack_batch(*(ack_of(message) for message in wire.messages(fresh_queue, batch=2)))
    wire.pop(fresh_queue, autoAck=True)
    after = samples(wire)

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert grown("queen_process_push_requests_total") >= 1
    assert grown("queen_process_push_messages_total") >= 3
    assert grown("queen_process_pop_requests_total") >= 2
    assert grown("queen_process_pop_messages_total") >= 3
    assert grown("queen_process_ack_requests_total") >= 1
    assert grown("queen_process_ack_messages_total") >= 2
    assert after["queen_uptime_seconds"] > 0
    assert after["queen_process_resident_memory_bytes"] > 1_000_000
