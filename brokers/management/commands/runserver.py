"""`manage.py runserver`: the application on daphne, for those who develop it.

Not daphne's app in the settings, which would do the same: it brings Twisted into every process,
also into those that serve with uvicorn, which costs each a third of a second and 18 MiB.
"""

from daphne.management.commands.runserver import Command

__all__ = ["Command"]
