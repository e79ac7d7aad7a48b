"""The console as a Django application: Django's own admin with our site.

The pages are registered with the addresses (queen_project/urls.py), which commands that serve
nothing never load.

Imports site. Named by settings.py in place of django.contrib.admin.
"""

from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    default_site = "brokers.admin.site.ConsoleSite"
