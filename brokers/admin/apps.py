"""The console as a Django application: Django's own admin with our site and our pages.

Imports site. Named by settings.py in place of django.contrib.admin.
"""

from importlib import import_module

from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    default_site = "brokers.admin.site.ConsoleSite"

    def ready(self) -> None:
        super().ready()
        import_module("brokers.admin.registered")  # models can be imported only now
