"""The key that Django signs with: generated once, kept in the data directory.

Imports nothing of ours. Used by settings.py.
"""

import os
import secrets
import tempfile
from pathlib import Path

LENGTH_MIN = 50


def kept_secret_key(data_dir: Path) -> str:
    """Read the key, or make one; of two processes that make one at once, the first wins.

    Where nothing can be written the key lives as long as the process: only signatures
    that should outlive it (admin sessions) are lost.
    """
    path = data_dir / "secret-key"
    try:
        if not path.exists():
            _make(path)
        key = path.read_text(encoding="ascii").strip()
    except OSError:
        key = ""
    return key if len(key) >= LENGTH_MIN else secrets.token_urlsafe(64)


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix="secret-key-")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(64))
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)
