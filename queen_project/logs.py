"""Logging: one line a record on stderr, in UTC, as text or as JSON.

Imports brokers.config. Used by settings.py and the broker command.
"""

import json
import logging
import time
from typing import Any

from brokers.config import LoggingConfig

# All that ends a line for somebody who reads it, and the escape of terminals.
LINE_BREAKS = {ord(one): repr(one)[1:-1] for one in "\n\r\v\f\x1b\x1c\x1d\x1e\x85\u2028\u2029"}


class TextFormatter(logging.Formatter):
    """A line break in a message is shown as two characters: what somebody sent us must not
    look like a line of ours. A traceback keeps its lines."""

    converter = staticmethod(time.gmtime)  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(LINE_BREAKS)


class JsonFormatter(TextFormatter):
    """ASCII only, so that no text that somebody sent us can break a line or an encoder."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if worker := getattr(record, "worker", ""):
            line["worker"] = worker.strip()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def settings_for(config: LoggingConfig) -> dict[str, Any]:
    """Django's LOGGING setting."""
    levels = {"": "INFO", **dict(config.levels)}
    formatter = JsonFormatter if config.json else TextFormatter
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": f"{formatter.__module__}.{formatter.__qualname__}",
                "fmt": "%(asctime)s %(levelname)s %(worker)s%(name)s: %(message)s",
                "defaults": {"worker": ""},
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": levels.pop("")},
        "loggers": {
            "django": {"handlers": [], "propagate": True},
            # A 4xx is the caller's business; Django would warn about each of them.
            "django.request": {"level": "ERROR"},
            "asyncio": {"level": "WARNING"},
            # While the database is away it would say so at every attempt of every connection.
            "psycopg.pool": {"level": "ERROR"},
            "uvicorn": {"level": "ERROR"},
            "daphne": {"level": "WARNING"},
            **{name: {"level": level} for name, level in levels.items()},
        },
    }


def name_worker(number: int) -> None:
    """From now on every line tells which of several workers wrote it."""
    make = logging.getLogRecordFactory()

    def with_worker(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        record.worker = f"worker {number} "
        return record

    logging.setLogRecordFactory(with_worker)
