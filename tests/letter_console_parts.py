"""What tests of the console's letters, timers and key/value pages share.

Used by tests/api/test_console_*.py. Imports console_parts.
"""

import re
from html import unescape
from typing import Any

import httpx

from tests.console_parts import ConsoleClient, make_user

ROLES = ("Viewer", "Operator", "Administrator")
INLINE = re.compile(
    r"<style|\sstyle=|\son[a-z]+=|javascript:|<script(?![^>]*\ssrc=)", re.IGNORECASE
)


class Operators:
    """A signed-in console of each role, and the names of their users."""

    def __init__(self, clients: dict[str, ConsoleClient], names: dict[str, str]) -> None:
        self.clients = clients
        self.names = names

    def __getitem__(self, role: str) -> ConsoleClient:
        return self.clients[role]


def signed_in(stack: Any, url: str) -> Operators:
    """With sessions that a login would have made."""
    clients, names = {}, {}
    for role in ROLES:
        user = make_user(role, password=None)
        names[role] = user.get_username()
        clients[role] = stack.enter_context(ConsoleClient.of(url, user))
    return Operators(clients, names)


def audited(db: Any, operators: Operators, role: str) -> list[tuple[Any, ...]]:
    """(action, target, outcome, hits) of what that user did, the latest first."""
    return db.execute(
        "SELECT action, target, outcome, hits FROM queen_audit WHERE user_name = %s"
        " ORDER BY id DESC",
        [operators.names[role]],
    ).fetchall()


def done(answer: httpx.Response) -> str:
    """Where a deed that was done leads to."""
    assert answer.status_code == 302, f"{answer.status_code}: {failure_of(answer.text)}"
    return answer.headers["location"]


def failure_of(page: str) -> str:
    return " | ".join(unescape(one) for one in re.findall(r'errornote"[^>]*>([^<]*)<', page))


def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, f"{answer.status_code}: {failure_of(answer.text)}"
    return failure_of(answer.text)


def verbatim_of(page: str) -> list[str]:
    """The texts that a page shows verbatim: an error, a payload, and it once more indented."""
    return [
        unescape(one) for one in re.findall(r'<pre class="verbatim"[^>]*>(.*?)</pre>', page, re.S)
    ]


def field_of(page: str, name: str) -> str:
    """What stands in a text area, as a browser would give it back."""
    found = re.search(rf'<textarea name="{name}"[^>]*>\n?(.*?)</textarea>', page, re.S)
    assert found is not None, f"no text area {name}"
    text = unescape(found[1]).replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\n", "\r\n")


def links_of(page: str, text: str) -> list[str]:
    """The addresses behind the links with that text."""
    found = re.findall(r'<a [^>]*href="([^"]*)"[^>]*>([^<]*)</a>', page)
    return [unescape(address) for address, told in found if unescape(told).strip() == text]


def letters_of(page: str) -> list[str]:
    """The ids of the letters of a list, in its order."""
    return re.findall(r'href="/admin/dead-letters/([0-9a-f-]{36})/"', page)
