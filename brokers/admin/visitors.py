"""Who may look at the console: its pages, and the socket of its dashboard.

Users are Django's. A user who is active and staff sees, and its permissions say what it may do
(roles.py). While there is no user at all, whoever sits at this machine may look and change
nothing; nobody else may. Loopback is the socket's own peer: what a header claims only ever
takes the right away, for a proxy on this machine speaks for others, and a page of another
site that calls itself by our address is no visitor.

Imports runtime. Used by gate.py and by live/.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.http.cookie import parse_cookie

from brokers import runtime

# Why somebody may not look.
LOGIN, CLOSED, NOT_STAFF = "login", "closed", "not_staff"
FORWARDED = frozenset({"x-forwarded-for", "forwarded", "x-real-ip", "via", "x-forwarded-host"})


class LoopbackVisitor(AnonymousUser):
    """Somebody at this machine while no user exists: sees what the broker has, does nothing."""

    is_staff = True
    is_active = True
    username = "loopback visitor"

    def get_username(self) -> str:
        return self.username

    def get_short_name(self) -> str:
        return self.username

    def has_usable_password(self) -> bool:
        return False

    def has_perm(self, perm: str, obj: Any = None) -> bool:
        return perm.startswith("brokers.view_")

    def has_perms(self, perm_list: Iterable[str], obj: Any = None) -> bool:
        return all(self.has_perm(perm, obj) for perm in perm_list)

    def has_module_perms(self, module: str) -> bool:
        return module == "brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who is at the other end: its address, by which name it asked, and whether for others."""

    address: str
    host: str
    forwarded: bool

    @classmethod
    def of_request(cls, request: HttpRequest) -> "Peer":
        return cls(
            address=request.META.get("REMOTE_ADDR", ""),
            host=request.META.get("HTTP_HOST", ""),
            forwarded=any(name.lower() in FORWARDED for name in request.headers),
        )

    @classmethod
    def of_scope(cls, scope: Mapping[str, Any]) -> "Peer":
        """Of an ASGI scope, of HTTP or of a websocket."""
        client = scope.get("client") or ("",)
        names = {name.decode("latin-1").lower() for name, _ in scope["headers"]}
        return cls(
            address=str(client[0]),
            host=header(scope, b"host"),
            forwarded=not FORWARDED.isdisjoint(names),
        )

    @property
    def is_here(self) -> bool:
        return not self.forwarded and is_loopback(self.address) and is_loopback_host(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The user who may look; or None, and why not: LOGIN, CLOSED or NOT_STAFF."""

    user: Any = None
    why: str = ""


def judge(user: Any, peer: Peer) -> Verdict:
    """Asks the database, so not in the loop. Raises django.db.Error when it is away."""
    if user.is_authenticated:
        return Verdict(user=user) if user.is_active and user.is_staff else Verdict(why=NOT_STAFF)
    if users_exist():
        return Verdict(why=LOGIN)
    # Whoever asks callers of the API who they are does not mean to show the rest to anybody.
    broker = runtime.current()
    protected = broker is not None and broker.access.required
    if protected or not peer.is_here:
        return Verdict(why=CLOSED)
    return Verdict(user=LoopbackVisitor())


def users_exist() -> bool:
    """Never remembered: the first user closes the console at once, on every broker."""
    return auth.get_user_model().objects.exists()


def judge_scope(scope: Mapping[str, Any]) -> Verdict:
    """The same for a websocket, which has a scope and the cookies of the page that opens it.

    A socket is no page: the browser lets any site open one, with our cookies. So its Origin
    has to be the host that it asks. Asks the database, so not in the loop.
    """
    peer = Peer.of_scope(scope)
    origin = header(scope, b"origin")
    if origin and urlsplit(origin).netloc != peer.host and origin not in _trusted_origins():
        return Verdict(why=CLOSED)
    return _judge_cookies(header(scope, b"cookie"), peer)


def _judge_cookies(cookies: str, peer: Peer) -> Verdict:
    request = HttpRequest()
    engine = import_module(settings.SESSION_ENGINE)
    key = parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME)
    request.session = engine.SessionStore(key)
    return judge(auth.get_user(request), peer)


def _trusted_origins() -> list[str]:
    return list(settings.CSRF_TRUSTED_ORIGINS)


def header(scope: Mapping[str, Any], name: bytes) -> str:
    """The header of that name; empty when there is none, or more than one."""
    values = [value for key, value in scope["headers"] if key.lower() == name]
    return values[0].decode("latin-1") if len(values) == 1 else ""


def is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def is_loopback_host(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    return name == "localhost" or is_loopback(name)
