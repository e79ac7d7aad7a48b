"""Settings: a field that knows its environment names and bounds, and how texts are read.

Imports nothing of ours. Used by config.py.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any
from urllib.parse import quote

DIRECTORY_NAME_MAX = 200
ENCRYPTION_KEY_DIGITS = 64


def setting(
    *env: str,
    default: Any,
    low: float | None = None,
    high: float | None = None,
    floor: float | None = None,
    choices: Sequence[str] = (),
    parse: Callable[[str], Any] | None = None,
    secret: bool = False,
    shown: str = "",
    empty_counts: bool = False,
    boolean: bool = False,
) -> Any:
    """A dataclass field that knows its environment names (the first one set wins) and bounds.

    `shown` is the name to print, where that is not the first. `empty_counts`: an empty value is
    one, and not the same as none. `boolean`: a truth whose default is neither.
    """
    metadata = {
        "env": env,
        "low": low,
        "high": high,
        "floor": floor,
        "choices": tuple(choices),
        "parse": parse,
        "secret": secret,
        "shown": shown or (env[0] if env else ""),
        "empty_counts": empty_counts,
        "boolean": boolean,
    }
    return field(default=default, metadata=metadata, repr=not secret)


def without_password(text: str) -> str:
    """To be printed: an address that somebody wrote a password into, where none is wanted."""
    return re.sub(r"[^\s,/]*:[^\s,@]*@", "<hidden>@", text)


def ports(text: str) -> tuple[int, ...]:
    """`5432` or `5432,5433`: one port for all hosts of PG_HOST, or one for each."""
    numbers = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 65536 for part in numbers):
        raise ValueError("is not a port, or a list of ports")
    return tuple(int(part) for part in numbers)


def encryption_key(text: str) -> str:
    """A key of 32 bytes as 64 hexadecimal digits. Its text never goes into an error."""
    digits = text.strip()
    if re.fullmatch(r"[0-9a-fA-F]*", digits) is None:
        raise ValueError("is no key: it must be 64 hexadecimal digits and nothing else")
    if len(digits) != ENCRYPTION_KEY_DIGITS:
        raise ValueError(
            f"is no key: it must be 64 hexadecimal digits, and there are {len(digits)}"
        )
    return digits.lower()


def encryption_keys(text: str) -> tuple[str, ...]:
    """Several keys with commas between them."""
    return tuple(encryption_key(part) for part in text.split(","))


LOG_LEVELS = {
    "trace": "DEBUG",
    "debug": "DEBUG",
    "info": "INFO",
    "warn": "WARNING",
    "warning": "WARNING",
    "error": "ERROR",
    "off": "CRITICAL",
}


def log_levels(text: str) -> tuple[tuple[str, str], ...]:
    """`info,queen::pop=debug` as (logger, level) pairs; the logger "" is the root.

    `queen::pop` names the service pop, `queen` all of the broker; any other target is
    a logger's own name.
    """
    levels: dict[str, str] = {}
    for directive in filter(None, (part.strip() for part in text.split(","))):
        target, _, level = directive.rpartition("=")
        if level.strip().lower() not in LOG_LEVELS:
            raise ValueError("is not a log filter such as info,queen::pop=debug")
        name = target.strip().replace("queen::", "brokers.services.", 1).replace("::", ".")
        levels["brokers" if name == "queen" else name] = LOG_LEVELS[level.strip().lower()]
    return tuple(levels.items())


def subscription_mode(text: str) -> str:
    """`new-only` is another name of `new`."""
    mode = text.strip().lower()
    if mode not in ("new", "new-only", "all"):
        raise ValueError("is neither new nor all")
    return "all" if mode == "all" else "new"


def hosts(text: str) -> tuple[str, ...]:
    """`pg1,pg2`, or the directory of a Unix socket."""
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ValueError("holds an empty host name")
    if any("@" in name[1:] for name in names):  # an abstract socket begins with one
        raise ValueError("is no host: who connects is said by PG_USER and PG_PASSWORD")
    return names


def mesh_peers(text: str) -> tuple[str, ...]:
    """`host` or `host:port`, with commas between them; an IPv6 address with a port in brackets."""
    peers = tuple(part.strip() for part in text.split(","))
    for peer in peers:
        host, port = host_and_port(peer, 1)
        if not re.fullmatch(r"[A-Za-z0-9._:%-]{1,253}", host) or not 0 < port < 65536:
            raise ValueError("is not a list of host or host:port")
    return peers


def host_and_port(text: str, default_port: int) -> tuple[str, int]:
    """Of `host`, `host:port`, `::1` or `[::1]:port`; the port is 0 when it is none."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest[1:] if rest[:1] == ":" else rest and "none"
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        return text, default_port
    if not port:
        return host, default_port
    return host, int(port) if re.fullmatch(r"[0-9]{1,5}", port) else 0


def directory_name(server_id: str) -> str:
    """A server id as the name of a directory: never another's, never a path."""
    name = quote(server_id, safe="")
    if not name.strip("."):
        name = name.replace(".", "%2E")
    if len(name) > DIRECTORY_NAME_MAX:
        name = f"{name[:100]}-{hashlib.sha256(server_id.encode()).hexdigest()[:32]}"
    return name
