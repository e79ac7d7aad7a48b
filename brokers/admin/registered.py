"""What the console shows: importing this module registers all of it.

A new area of the console adds its module here and nothing elsewhere.

Imports the areas. Used by queen_project/urls.py.
"""

from brokers.admin import (
    api_key_pages,
    audit_pages,
    broker_pages,
    group_pages,
    partition_pages,
    queue_pages,
    switch_pages,
    user_pages,
)

# Named, so that importing them is no accident.
AREAS = (
    api_key_pages,
    audit_pages,
    broker_pages,
    group_pages,
    partition_pages,
    queue_pages,
    switch_pages,
    user_pages,
)
