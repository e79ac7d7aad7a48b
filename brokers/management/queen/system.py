"""Verbs of the whole: status, maintenance.

Imports client, printing. Used by main.py.
"""

import json
from argparse import ArgumentParser, Namespace
from typing import Any

from brokers.management.queen.client import SERVER_ERROR, Client, Failed
from brokers.management.queen.printing import Printer

MAINTENANCE = "/api/v1/system/maintenance"


def add_to(verbs: Any, shared: ArgumentParser) -> None:
    told = verbs.add_parser("status", parents=[shared], help="health, maintenance, disk spool")
    told.set_defaults(verb=status)
    thrown = verbs.add_parser(
        "maintenance", parents=[shared], help="pushes go to disk, or (--pop) pops are paused"
    )
    thrown.add_argument("state", choices=("get", "on", "off"))
    thrown.add_argument("--pop", action="store_true", help="of pops, not of pushes")
    thrown.set_defaults(verb=maintenance)


def status(client: Client, printer: Printer, options: Namespace) -> int:
    """Healthy or not decides the exit code; what may not be read is left out."""
    told: dict[str, Any] = {}
    for name, path in (
        ("health", "/health"),
        ("buffers", "/api/v1/status/buffers"),
        ("maintenance", MAINTENANCE),
    ):
        try:
            told[name] = client.get(path).document
        except Failed as failed:
            if name == "health" and not failed.text.startswith("503"):
                raise
            told[name] = {"status": "unhealthy"} if name == "health" else {"error": failed.text}
    if printer.as_json:
        printer.line(json.dumps(told, ensure_ascii=False))
    else:
        printer.members(told)
    return 0 if told["health"].get("status") == "healthy" else SERVER_ERROR


def maintenance(client: Client, printer: Printer, options: Namespace) -> None:
    path = f"{MAINTENANCE}/pop" if options.pop else MAINTENANCE
    if options.state == "get":
        answer = client.get(path)
    else:
        answer = client.post(path, body={"enabled": options.state == "on"})
    if printer.as_json:
        printer.answer(answer)
    else:
        printer.members(answer.document)
