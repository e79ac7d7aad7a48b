#!/usr/bin/env python3
"""The command line of the project: `python manage.py broker` starts a broker."""

import os
import sys

from queen_project.config import ConfigError


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "queen_project.settings")
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ConfigError as error:
        for problem in error.problems:
            print(f"FATAL: {problem}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
