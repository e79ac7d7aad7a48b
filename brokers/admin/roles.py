"""The three roles: Django groups that the schema makes, and what each may do.

A Viewer sees. An Operator also acts: configures, pauses, moves groups, replays. An
Administrator also deletes and purges, and has the API keys and the switches of the whole cell.
Only a superuser makes users. The groups are an operator's to change afterwards; nobody sets
them back.

Imports nothing of ours. Used by migrations/0012_console.py and by the tests.
"""

VIEWER, OPERATOR, ADMINISTRATOR = "Viewer", "Operator", "Administrator"

SEEN = (
    "apikey",
    "auditentry",
    "brokerhistory",
    "cursor",
    "deadletter",
    "group",
    "keyvalue",
    "lease",
    "partition",
    "queue",
    "queuestatistics",
    "quota",
    "redrive",
    "segment",
    "spoolfile",
    "streamquery",
    "system",
    "timer",
    "trace",
)
VIEWS = tuple(f"view_{model}" for model in SEEN)
ACTS = (
    "add_queue",
    "change_queue",
    "pause_queue",
    "change_group",
    "change_deadletter",
    "add_redrive",
    "change_redrive",
    "change_timer",
)
RULES = (
    "delete_queue",
    "purge_queue",
    "delete_group",
    "delete_deadletter",
    "delete_timer",
    "change_keyvalue",
    "delete_keyvalue",
    "add_apikey",
    "change_apikey",
    "change_system",
)
ROLES = {
    VIEWER: VIEWS,
    OPERATOR: VIEWS + ACTS,
    ADMINISTRATOR: VIEWS + ACTS + RULES,
}
