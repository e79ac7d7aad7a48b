"""The Django application `brokers`: models, migrations, commands, admin.

Imports nothing of ours. Used by queen_project/settings.py.
"""

from django.apps import AppConfig


class BrokersConfig(AppConfig):
    name = "brokers"
    label = "brokers"
    verbose_name = "Brokers"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from brokers import checks

        assert checks.database_settings  # importing it has registered it
