"""What the console shows: importing this module registers all of it.

A new area of the console adds its module here and nothing elsewhere.

Imports the areas. Used by apps.py.
"""

from brokers.admin import audit_pages, dead_letters, kv, redrives, timers, user_pages

AREAS = (audit_pages, dead_letters, kv, redrives, timers, user_pages)
