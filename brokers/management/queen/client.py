"""One request to a broker after the other, over one connection.

Imports nothing of ours. Used by the verbs.
"""

import http.client
import json
import ssl
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

USER_ERROR = 1
SERVER_ERROR = 2
NOT_ALLOWED = 3
NOTHING_THERE = 4
TIMEOUT_S = 60.0
ERROR_CHARACTERS_MAX = 500


class Failed(Exception):
    """What to tell, and the exit code. `retry_after_s`: the broker said when to come back."""

    def __init__(self, text: str, code: int = USER_ERROR, *, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.retry_after_s = retry_after_s


class Answer(NamedTuple):
    """`raw` are its bytes, as they came: a payload in it is as its producer wrote it."""

    status: int
    raw: bytes

    @property
    def document(self) -> Any:
        if not self.raw:
            return None
        try:
            return json.loads(self.raw)
        except ValueError:
            raise Failed("the answer is not JSON: is this a broker?", SERVER_ERROR) from None


class Client:
    """`url` may have a path, where a proxy serves the broker below one."""

    def __init__(self, url: str, token: str = "") -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if "@" in parts.netloc:  # what is said below names the URL
            raise Failed("the URL of a broker has no user and password: see --token")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Failed(f"{url} is not the URL of a broker")
        token = token.strip()
        if not (token.isascii() and token.isprintable()):
            raise Failed("the token has characters that no header can carry")
        try:
            self._address = (parts.hostname, parts.port)
        except ValueError:
            raise Failed(f"{url}: that port is none") from None
        self._secure = parts.scheme == "https"
        self._base = parts.path.rstrip("/")
        self._url = url
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._connection: http.client.HTTPConnection | None = None

    def get(self, *path: str, timeout_s: float = TIMEOUT_S, **query: Any) -> Answer:
        return self.call("GET", path, query=query, timeout_s=timeout_s)

    def post(self, *path: str, body: Any = None, **query: Any) -> Answer:
        return self.call("POST", path, query=query, body=body)

    def delete(self, *path: str, **query: Any) -> Answer:
        return self.call("DELETE", path, query=query)

    def call(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """The answer, if it is none of an error. `path`: its first part is taken as it is,
        the others are names, each one segment."""
        target = self._base + path[0] + "".join(f"/{segment(one)}" for one in path[1:])
        asked = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        if asked:
            target += f"?{urlencode(asked)}"
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        answer, retry_after = self._exchange(method, target, sent, timeout_s)
        if answer.status < 400:
            return answer
        raise _refused(answer, retry_after)

    def _exchange(
        self, method: str, target: str, body: bytes | None, timeout_s: float
    ) -> tuple[Answer, str]:
        # A kept connection may have been closed at the other end: only what changes nothing
        # is then asked for again by itself.
        fresh = self._connection is None
        try:
            return self._once(method, target, body, timeout_s)
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            self.close()
            if fresh or method != "GET" or "/pop" in target:
                raise self._unreachable(error) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from error
        try:
            return self._once(method, target, body, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from error

    def _once(
        self, method: str, target: str, body: bytes | None, timeout_s: float
    ) -> tuple[Answer, str]:
        if self._connection is None:
            host, port = self._address
            if self._secure:
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(host, port, context=context)
            else:
                self._connection = http.client.HTTPConnection(host, port)
        self._connection.timeout = timeout_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_s)
        self._connection.request(method, target, body, self._headers)
        answer = self._connection.getresponse()
        return Answer(answer.status, answer.read()), answer.headers.get("retry-after", "")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _unreachable(self, error: Exception) -> Failed:
        return Failed(f"{self._url}: {error or type(error).__name__}", SERVER_ERROR)


def segment(name: str) -> str:
    """A name as one segment of a path; dots too, for proxies fold dot segments away."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refused(answer: Answer, retry_after: str) -> Failed:
    try:
        told = json.loads(answer.raw)
    except ValueError:
        told = None
    text = answer.raw.decode("utf-8", "replace")[:ERROR_CHARACTERS_MAX]
    missing = answer.status == 404
    if isinstance(told, dict):
        text = str(told.get("message") or told.get("error") or text)
        if told.get("code") == "no_such_route":
            text, missing = "this broker has no such route", False
    if answer.status in (401, 403):
        code = NOT_ALLOWED
    elif missing:
        code = NOTHING_THERE
    else:
        code = SERVER_ERROR if answer.status >= 500 else USER_ERROR
    seconds = float(retry_after) if retry_after.isdigit() else 0.0
    return Failed(f"{answer.status}: {text}", code, retry_after_s=seconds)
