"""What an error of PostgreSQL means to the broker: one place, decided by SQLSTATE.

transient   no SQLSTATE (the connection broke), 40001, 40P01, classes 08, 53, 57, 58, and
            the server's own state, which is not a property of the bytes: 25006 (a demoted
            primary), classes 28 and 3D, 42501, 42P01, 42883, 55P03, class XX.
permanent   everything else: the same call would fail every time.

Where the connection broke after a statement was sent, nobody knows whether it committed.

Imports errors. Used by store/pool.py.
"""

import psycopg

from brokers.errors import NoConnection, Permanent, StatementCancelled, StoreError

TRANSIENT_CLASSES = ("08", "28", "3D", "53", "57", "58", "XX")
TRANSIENT_STATES = ("40001", "40P01", "25006", "42501", "42P01", "42883", "55P03")
# The server rolled the statement back before it said so.
NOTHING_HAPPENED = ("40001", "40P01", "25006", "42501", "42P01", "42883", "55P03", "57014", "53300")
CANCELLED = "57014"


class Failed:
    """How many calls failed in this process, whatever for."""

    calls = 0


def store_error(error: Exception, *, sent: bool) -> StoreError:
    """The StoreError that a failed call raises. `sent`: the server may have got the statement."""
    if isinstance(error, StoreError):
        return error
    Failed.calls += 1
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    text = type(error).__name__
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        text = error.diag.message_primary  # without the context, which names our tables
    elif str(error).strip():
        text = str(error).strip()
    if state is None:
        return StoreError(text, outcome_unknown=True) if sent else NoConnection(text)
    if state == CANCELLED:
        return StatementCancelled(text, sqlstate=state)
    if state in TRANSIENT_STATES or state[:2] in TRANSIENT_CLASSES:
        return StoreError(
            text, outcome_unknown=sent and state not in NOTHING_HAPPENED, sqlstate=state
        )
    assert isinstance(error, psycopg.Error)
    return Permanent(text, sqlstate=state, detail=error.diag.message_detail or "")
