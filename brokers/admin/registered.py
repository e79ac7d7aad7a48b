"""What the console shows: importing this module registers all of it.

A new area of the console adds its module here and nothing elsewhere.

Imports the areas. Used by queen_project/urls.py.
"""

from brokers.admin import (
    api_key_pages,
    audit_pages,
    broker_pages,
    dead_letters,
    group_pages,
    kv,
    partition_pages,
    queue_pages,
    quota_pages,
    redrives,
    switch_pages,
    timers,
    user_pages,
)

# Named, so that importing them is no accident.
AREAS = (
    api_key_pages,
    audit_pages,
    broker_pages,
    dead_letters,
    group_pages,
    kv,
    partition_pages,
    queue_pages,
    quota_pages,
    redrives,
    switch_pages,
    timers,
    user_pages,
)
