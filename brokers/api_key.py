"""An API key: `qk_<id>_<secret>`. The id is for people and lists, the secret proves.

Kept is a SHA-256 of the whole key and nothing else. A slow hash would protect what people
choose; a secret of 256 random bits cannot be guessed from its hash however fast that is, and
a fast one costs a request a microsecond.

Imports nothing of ours. Used by flow/access.py, services/api_keys.py and models/access.py.
"""

import hashlib
import re
import secrets
from typing import NamedTuple

PREFIX = b"qk_"
ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
ID_CHARACTERS = 12
SECRET_BYTES = 32
KEY_BYTES_MAX = 128

_key = re.compile(rb"qk_[a-z0-9]{%d}_[A-Za-z0-9_-]{43}" % ID_CHARACTERS)
_id = re.compile(rf"(?:qk_)?([a-z0-9]{{{ID_CHARACTERS}}})(?:_[A-Za-z0-9_-]{{43}})?")


class NewKey(NamedTuple):
    """`text` is shown once, to whoever asked for the key."""

    id: str
    text: str
    digest: bytes


def new_key() -> NewKey:
    key_id = "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_CHARACTERS))
    text = f"qk_{key_id}_{secrets.token_urlsafe(SECRET_BYTES)}"
    return NewKey(key_id, text, digest(text.encode("ascii")))


def id_of(text: str) -> str | None:
    """Of an ID, or of a whole key; None for what is neither."""
    found = _id.fullmatch(text.strip())
    return found[1] if found else None


def digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def is_key(text: bytes) -> bool:
    """Whether it has the shape of one; a web token never has."""
    return len(text) <= KEY_BYTES_MAX and _key.fullmatch(text) is not None
