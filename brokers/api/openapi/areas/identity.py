"""Who one is, as a dashboard asks a broker that stands alone."""

from brokers.api.openapi.words import Operation, loose, record, text, truth

TAG = "system"

OPERATIONS = {
    "auth_me": Operation(
        "The local operator, where no tokens are asked for",
        answers={200: loose("", ("authenticated", "role"), authenticated=truth(), role=text())},
    ),
    "auth_login": Operation("A page that says how to come in", answers={200: "text/html"}),
    "auth_logout": Operation("Nobody was logged in", answers={200: record(success=truth())}),
}
