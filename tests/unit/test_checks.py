"""Settings under which the broker would misbehave are refused by `manage.py check`."""

import pytest
from django.conf import settings
from django.core.checks import run_checks


def errors() -> list[str]:
    return [str(message.id) for message in run_checks()]


def test_the_settings_as_they_are_pass():
    assert errors() == []


@pytest.mark.parametrize("age", [1, 60, None])
def test_connections_that_are_kept_are_refused(age: int | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(settings.DATABASES["default"], "CONN_MAX_AGE", age)
    assert errors() == ["brokers.E001"]


def test_implicit_transactions_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(settings.DATABASES["default"], "ATOMIC_REQUESTS", True)
    assert errors() == ["brokers.E002"]
