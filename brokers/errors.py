"""What can go wrong, in three families, and what HTTP says about each.

`RequestError` is the caller's fault: the same request will fail again. `Refusal` is the
right request at the wrong moment. `StoreError` means that PostgreSQL or the disk broke,
and says whether the effect may have happened all the same. An error has a stable `code`;
`TABLE` turns the code into an HTTP status, for both doors alike.

The text of an error may quote what a client sent, so it is made harmless here: whatever
goes in, `error_body` gives text that encodes as UTF-8.

Imports nothing of ours. Used by every part of the broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEXT_CHARACTERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """How a code is answered. Most codes stay out of the body: clients know one key, `error`.

    A fixed `text` is what clients match on; the error's own words are for the log then, or
    with `detail` in the body beside it.
    """

    status: int
    code_in_body: bool = False
    text: str | None = None
    detail: bool = False


def coded(status: int, code: str) -> Entry:
    """A code of the KV and timer families: there `error` is the code itself."""
    return Entry(status, text=code, detail=True)


TABLE: Mapping[str, Entry] = {
    # The caller's fault.
    "bad_request": Entry(400),
    "bad_body": Entry(400),
    "bad_tenant": Entry(400),
    "auth_required": Entry(401),
    "forbidden": Entry(403),
    "not_found": Entry(404),
    "no_such_route": Entry(404, code_in_body=True),
    "method_not_allowed": Entry(405),
    "conflict": Entry(409),
    "body_too_large": Entry(413),
    "unsupported_encoding": Entry(415),
    # The wrong moment.
    "unavailable": Entry(503, code_in_body=True),
    # The operator's fault: key material that cannot be used.
    "key_material": Entry(500),
    # The world broke.
    "pool": Entry(500, text="pool"),
    "statement_cancelled": Entry(500),
    "store_failed": Entry(500),
    "outcome_unknown": Entry(500),
    # Timers.
    "timers_bad_request": coded(400, "timers_bad_request"),
    "timers_count_prefix_required": coded(400, "timers_count_prefix_required"),
    "timers_count_prefix_invalid": coded(400, "timers_count_prefix_invalid"),
    "timers_count_prefix_too_long": coded(400, "timers_count_prefix_too_long"),
    "timers_count_no_paging": coded(400, "timers_count_no_paging"),
    "timers_read_mode_unknown": coded(400, "timers_read_mode_unknown"),
    "timer_horizon_exceeded": coded(403, "timer_horizon_exceeded"),
    "timers_disabled": coded(503, "timers_disabled"),
    "timers_unavailable": coded(503, "timers_unavailable"),
    # Key/value state.
    "kv_bad_request": coded(400, "kv_bad_request"),
    "kv_no_query_string": coded(400, "kv_no_query_string"),
    "kv_expiry_not_specified": coded(400, "kv_expiry_not_specified"),
    "kv_prefix_required": coded(400, "kv_prefix_required"),
    "kv_get_prefix_not_allowed_in_transaction": coded(
        400, "kv_get_prefix_not_allowed_in_transaction"
    ),
    "kv_refused": coded(403, "kv_disabled"),
    "kv_disabled": coded(503, "kv_disabled"),
    "kv_unavailable": coded(503, "kv_unavailable"),
    "payload_too_large": coded(413, "payload_too_large"),
    "rate_limited": coded(429, "rate_limited"),
    # Quotas.
    "feature_gated": coded(403, "feature_gated"),
    "kv_quota_exceeded": coded(403, "kv_quota_exceeded"),
    "timers_quota_exceeded": coded(403, "timers_quota_exceeded"),
    "quota_exceeded": coded(403, "quota_exceeded"),
    "storage_quota_exceeded": coded(403, "storage_quota_exceeded"),
}
INTERNAL = Entry(500)


class BrokerError(Exception):
    """The base of the three families; never raised itself.

    `body` replaces the whole answer where a route has an envelope of its own, and
    `headers` go out with it.
    """

    default_code = "bad_request"

    def __init__(
        self,
        text: str,
        *,
        code: str | None = None,
        body: dict[str, Any] | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(text)
        self.text = text
        self.code = code or self.default_code
        assert self.code in TABLE, f"an error code without a status: {self.code}"
        self.body = body
        self.headers = headers

    @property
    def status(self) -> int:
        return TABLE[self.code].status


class RequestError(BrokerError):
    """The caller's fault; repeating the request will not help."""


class NoSuchRoute(RequestError):
    default_code = "no_such_route"

    def __init__(self) -> None:
        super().__init__("Not Found")


class MethodNotAllowed(RequestError):
    default_code = "method_not_allowed"

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__("Method Not Allowed", headers=(("allow", ", ".join(allowed)),))
        self.allowed = allowed


class Refusal(BrokerError):
    """The right request at the wrong moment: come back after `retry_after_s`."""

    default_code = "unavailable"

    def __init__(
        self,
        text: str,
        *,
        retry_after_s: int,
        code: str | None = None,
        body: dict[str, Any] | None = None,
    ) -> None:
        headers = (("retry-after", str(retry_after_s)),)
        super().__init__(text, code=code, body=body, headers=headers)
        self.retry_after_s = retry_after_s


class StoreError(BrokerError):
    """PostgreSQL or the disk failed. `outcome_unknown`: the effect may have happened."""

    default_code = "store_failed"

    def __init__(
        self,
        text: str,
        *,
        code: str | None = None,
        outcome_unknown: bool = False,
        sqlstate: str = "",
    ) -> None:
        super().__init__(text, code=code or ("outcome_unknown" if outcome_unknown else None))
        self.outcome_unknown = outcome_unknown
        self.sqlstate = sqlstate


# What the procedures raise when a tenant would have more than it may.
QUOTA_CODES: Mapping[str, str] = {
    "QN031": "kv_quota_exceeded",
    "QN032": "timers_quota_exceeded",
    "QN033": "quota_exceeded",
    "QN034": "quota_exceeded",
}


class Permanent(StoreError):
    """The database refused: the same call would fail every time. Nothing happened."""

    def __init__(self, text: str, *, sqlstate: str, detail: str = "") -> None:
        super().__init__(text, code=QUOTA_CODES.get(sqlstate), sqlstate=sqlstate)
        self.detail = detail


class NoConnection(StoreError):
    """No connection was to be had: nothing was sent, so nothing can have happened."""

    default_code = "pool"

    def __init__(self, text: str = "pool") -> None:
        super().__init__(text)


class StatementCancelled(StoreError):
    """The server cancelled the statement, at its time limit or on an operator's order."""

    default_code = "statement_cancelled"


def logged(error: StoreError) -> str:
    """For the log. Never the driver's own error: its details may quote a row, payload and all."""
    cause = error.__cause__ if isinstance(error.__cause__, StoreError) else error
    return f"{cause.text} ({cause.sqlstate})" if cause.sqlstate else cause.text


def error_body(error: BaseException) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the JSON document of an error; an unexpected one tells nothing."""
    if not isinstance(error, BrokerError):
        return INTERNAL.status, {"error": "internal error"}
    entry = TABLE[error.code]
    if error.body is not None:
        return entry.status, {key: _harmless(value) for key, value in error.body.items()}
    body: dict[str, Any] = {"error": entry.text or harmless(error.text)}
    if entry.code_in_body:
        body["code"] = error.code
    if entry.detail:
        body["detail"] = harmless(error.text)
    return entry.status, body


def error_text(error: BrokerError) -> str:
    """What stands under `error` in the answer: the code's fixed text, or the error's own."""
    return TABLE[error.code].text or error.text


def harmless(text: str) -> str:
    """Text that always encodes: lone surrogates as visible escapes, and not without end."""
    if len(text) > TEXT_CHARACTERS_MAX:
        text = text[:TEXT_CHARACTERS_MAX] + "..."
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _harmless(value: Any) -> Any:
    return harmless(value) if isinstance(value, str) else value
