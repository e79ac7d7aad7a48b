"""The command line as a whole: arguments in, an exit code out.

Exit codes: 0 done; 1 the caller's mistake; 2 the broker's, or it cannot be reached; 3 not
allowed; 4 nothing there.

Imports client, printing, the verbs, config_client. Used by commands/queen.py.
"""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn, TextIO

from brokers.config_client import ClientConfig
from brokers.management.queen import groups, letters, messages, queues, state, system
from brokers.management.queen.client import USER_ERROR, Client, Failed
from brokers.management.queen.printing import Printer

Verb = Callable[[Client, Printer, argparse.Namespace], int | None]
NOUNS = (queues, messages, groups, letters, state, system)


class Misused(Exception):
    """The arguments mean nothing; `text` tells why."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Misused(f"{self.format_usage()}{self.prog}: {message}")


def parser() -> Parser:
    """Options that every verb has may stand before it or behind it."""
    top = Parser(prog="manage.py queen", description=__doc__.split("\n\n")[1])
    _shared(top, default=None)
    shared = Parser(add_help=False)
    _shared(shared, default=argparse.SUPPRESS)
    verbs = top.add_subparsers(dest="noun", metavar="COMMAND", required=True)
    for noun in NOUNS:
        noun.add_to(verbs, shared)
    return top


def _shared(target: argparse.ArgumentParser, default: object) -> None:
    target.add_argument("--url", default=default, help="of a broker (QUEEN_URL)")
    target.add_argument("--token", default=default, help="(QUEEN_TOKEN)")
    target.add_argument(
        "-o", "--output", choices=("table", "json"), default=default, help="table, or json"
    )


def main(
    arguments: list[str],
    config: ClientConfig,
    out: TextIO | None = None,
    errors: TextIO | None = None,
) -> int:
    out, errors = out or sys.stdout, errors or sys.stderr
    try:
        options = parser().parse_args(arguments)
    except Misused as misused:
        errors.write(f"{misused}\n")
        return USER_ERROR
    except SystemExit as told:  # --help
        return int(told.code or 0)
    colours = out.isatty() and not config.no_color and config.terminal != "dumb"
    printer = Printer(out, errors, as_json=options.output == "json", colours=colours)
    client: Client | None = None
    try:
        client = Client(options.url or config.url, options.token or config.token)
        verb: Verb = options.verb
        return verb(client, printer, options) or 0
    except Failed as failed:
        printer.complain(failed.text)
        return failed.code
    except BrokenPipeError:
        # Whoever read this has seen enough; Python must not complain at its end either.
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 0
    finally:
        if client is not None:
            client.close()
