"""Users of the console, and their sessions, written straight into a broker's database.

Signing in at the page takes half a second of hashing; who does not test that takes a session.

Used by conftest.py.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore

BACKEND = "django.contrib.auth.backends.ModelBackend"
PASSWORD = "correct horse battery staple"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    id: int
    name: str
    password: str
    hashed: str


def make_operator(
    db: psycopg.Connection[Any],
    name: str = "",
    *,
    groups: Sequence[str] = (),
    superuser: bool = False,
    staff: bool = True,
) -> Operator:
    """A user with PASSWORD, in the groups of these names."""
    name = name or f"operator-{secrets.token_hex(4)}"
    hashed = make_password(PASSWORD)
    row = db.execute(
        "INSERT INTO auth_user (username, password, is_superuser, is_staff, is_active,"
        " first_name, last_name, email, date_joined)"
        " VALUES (%s, %s, %s, %s, true, '', '', '', now()) RETURNING id",
        [name, hashed, superuser, staff],
    ).fetchone()
    assert row is not None
    for group in groups:
        found = db.execute("SELECT id FROM auth_group WHERE name = %s", [group]).fetchone()
        assert found is not None, f"there is no group {group}"
        db.execute(
            "INSERT INTO auth_user_groups (user_id, group_id) VALUES (%s, %s)", [row[0], found[0]]
        )
    return Operator(id=row[0], name=name, password=PASSWORD, hashed=hashed)


def make_session(db: psycopg.Connection[Any], operator: Operator) -> str:
    """The cookie of somebody who has signed in."""
    key = secrets.token_hex(16)
    user = User(password=operator.hashed)
    data = SessionStore().encode(
        {
            SESSION_KEY: str(operator.id),
            BACKEND_SESSION_KEY: BACKEND,
            HASH_SESSION_KEY: user.get_session_auth_hash(),
        }
    )
    db.execute(
        "INSERT INTO django_session (session_key, session_data, expire_date) VALUES (%s, %s, %s)",
        [key, data, datetime.now(UTC) + timedelta(hours=4)],
    )
    return key
