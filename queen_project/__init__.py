"""The Django project around the broker: configuration, settings, entry points, local PostgreSQL."""
