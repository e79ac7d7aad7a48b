"""Log lines: one a record, whatever somebody sent us stands in it.

Method: the formatters alone, with records made by hand.
"""

import json
import logging
import sys

import pytest

from queen_project.logs import JsonFormatter, TextFormatter

FORGED = "q\n2026-01-01T00:00:00.000Z CRITICAL brokers: all is lost\r\x1b[31m\u2028\x85end"


def record(text: str, *arguments: str, **more: object) -> logging.LogRecord:
    given = {"name": "brokers", "levelno": logging.INFO, "levelname": "INFO", **more}
    made = logging.LogRecord("brokers", logging.INFO, __file__, 1, text, arguments, None)
    for name, value in given.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("formatter", [TextFormatter("%(levelname)s %(message)s"), JsonFormatter()])
def test_no_text_that_is_logged_makes_a_line_of_its_own(formatter):
    line = formatter.format(record("ignored: %s", FORGED))
    assert line.splitlines() == [line]
    assert line.isprintable() and "\\n2026" in line


def test_what_is_logged_can_be_read_back_from_json():
    assert json.loads(JsonFormatter().format(record("%s", FORGED)))["message"] == FORGED


def test_a_traceback_keeps_its_lines():
    try:
        raise ValueError("wrong")
    except ValueError:
        line = TextFormatter("%(message)s").format(record("it failed", exc_info=sys.exc_info()))
    first, *rest = line.splitlines()
    assert first == "it failed" and rest[0].startswith("Traceback") and "wrong" in rest[-1]
