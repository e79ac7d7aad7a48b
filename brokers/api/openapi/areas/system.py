"""Health, metrics, and what an operator does to the whole."""

from brokers.api.openapi.words import Operation, loose, name, record, text, truth, whole

TAG = "system"

_SWITCH = record(enabled=truth())
_HEALTH = record(status=text(), database=text(), engine=text(), version=text())
_ALIVE = {200: record(status=text())}

OPERATIONS = {
    "switches_get": Operation("Whether key/value state and timers are paused"),
    "switches_set": Operation(
        "Pause key/value state or timers everywhere", body=loose(kv=truth(), timers=truth())
    ),
    "maintenance_get": Operation(
        "Whether pushes go to disk", answers={200: loose("", ("maintenanceMode",))}
    ),
    "maintenance_set": Operation(
        "Send pushes to disk, or to the database again",
        body=_SWITCH,
        answers={200: loose("", ("maintenanceMode",))},
    ),
    "pop_maintenance_get": Operation("Whether pops are paused everywhere"),
    "pop_maintenance_set": Operation("Pause pops everywhere", body=_SWITCH),
    "shared_state": Operation("What brokers share", answers={200: loose()}),
    "shared_state_stats": Operation("The mesh, as this broker sees it", answers={200: loose()}),
    "inter_instance_stats": Operation("The mesh, by its other name", answers={200: loose()}),
    "buffers_status": Operation(
        "What lies in this broker's disk spool",
        answers={
            200: loose(
                "",
                ("pending", "failed", "dbHealthy"),
                pending=whole(),
                failed=whole(),
                dbHealthy=truth(),
                spool=loose(),
            )
        },
    ),
    "stats_refresh": Operation("Count every queue now", answers={200: loose()}),
    "notify": Operation(
        "Wake the pops that wait at a queue",
        body=loose("", ("queue",), queue=name()),
        answers={200: record(status=text())},
    ),
    "health": Operation(
        "A real database round trip",
        answers={200: _HEALTH},
        known_errors={503: _HEALTH},
    ),
    "status": Operation("That it answers", answers={200: record(status=text(), engine=text())}),
    "livez": Operation("Liveness", answers=_ALIVE),
    "readyz": Operation("Readiness", answers=_ALIVE, known_errors={503: record(status=text())}),
    "prometheus": Operation("Metrics", answers={200: "text/plain"}),
}
