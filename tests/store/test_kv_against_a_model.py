"""The key/value procedure against a model of a page: any calls, the same answers and state.

Method: Hypothesis makes lists of calls over a few keys; the model is a dictionary and
Python's decimals. Expiry is played by moving an entry's end into the past.
"""

import uuid
from dataclasses import dataclass, field
from decimal import Context, Decimal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brokers.domain import KvLost, KvOperation
from tests.store.kv_calling import apply

KEYS = ["a", "b", "ab", "é"]
VALUES = [b"1", b"2.50", b'"x"', b"null"]
DELTAS = ["1", "-3", "0.25"]
EXACT = Context(prec=100)

keys = st.sampled_from(KEYS)
# What is expected is said in words, because versions are known only when a call is made.
expectations = st.sampled_from([None, "nothing", "the present one", "another"])


@st.composite
def operations(draw):
    op = draw(st.sampled_from(["put", "putIfAbsent", "delete", "incr", "get", "getPrefix"]))
    one = KvOperation(op=op, namespace="", key=draw(keys))
    wanted = None
    if op in ("put", "delete"):
        wanted = draw(expectations)
    if op in ("put", "putIfAbsent"):
        one.value = draw(st.sampled_from(VALUES))
    if op == "incr":
        one.delta = draw(st.sampled_from(DELTAS))
        one.low = draw(st.sampled_from([None, "-3", "0"]))
        one.high = draw(st.sampled_from([None, "4"]))
    one.required = op not in ("get", "getPrefix") and draw(st.booleans()) and draw(st.booleans())
    return one, wanted


steps = st.one_of(
    st.lists(operations(), min_size=1, max_size=5, unique_by=lambda pair: pair[0].key),
    keys,  # this one expires
)


@dataclass
class Model:
    """`entries` are the live ones: value and version."""

    entries: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    def reason(self, one: KvOperation) -> str | None:
        value, version = self.entries.get(one.key, (None, 0))
        if one.op == "incr":
            counted = number(value) if value is not None else Decimal(0)
            if counted is None:
                return "type"
            delta = Decimal(one.delta)
            for tried in (delta, EXACT.add(counted, delta)):
                if one.low is not None and tried < Decimal(one.low):
                    return "limit"
                if one.high is not None and tried > Decimal(one.high):
                    return "limit"
            return None
        if one.expect is None:
            return "absent" if one.op == "delete" and not version else None
        if one.expect == 0 and one.op != "delete":
            return "exists" if version else None
        if not version:
            return "absent"
        return None if version == one.expect else "version"


def number(value: bytes) -> Decimal | None:
    return Decimal(value.decode()) if value[:1] in b"-0123456789" else None


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=12))
def test_any_calls_have_the_model_s_answers_and_leave_its_state(db, calls):
    ns, model, newest = f"model-{uuid.uuid4().hex[:12]}", Model(), 0
    for step in calls:
        if isinstance(step, str):
            expire = "UPDATE queen_kv SET expires_at = clock_timestamp() WHERE ns = %s AND key = %s"
            db.execute(expire, [ns, step])
            model.entries.pop(step, None)
            continue
        asked = [prepared(one, wanted, ns, model) for one, wanted in step]
        answer = apply(db, *asked)
        lost = [no for no, one in enumerate(asked) if one.required and model.reason(one)]
        if lost:
            one = asked[lost[0]]
            value, version = model.entries.get(one.key, (None, 0))
            assert answer == KvLost(lost[0], model.reason(one), version, value)
        else:
            assert not isinstance(answer, KvLost)
            for one, result in zip(asked, answer, strict=True):
                newest = check(model, one, result, newest)
    stored = db.execute("SELECT key, value, version FROM queen_kv WHERE ns = %s", [ns]).fetchall()
    live = {key: (value, version) for key, value, version in stored if key in model.entries}
    assert live == model.entries
    assert all(version > 0 for _, _, version in stored), "a place was left behind"


def prepared(one: KvOperation, wanted: str | None, ns: str, model: Model) -> KvOperation:
    present = model.entries.get(one.key, (None, 0))[1]
    one.namespace = ns
    one.expect = {
        None: None,
        "nothing": 0,
        "the present one": present or 1,
        "another": present + 1,
    }[wanted]
    if one.op == "putIfAbsent":
        one.expect = 0
    return one


def check(model: Model, one: KvOperation, result, newest: int) -> int:
    value, version = model.entries.get(one.key, (None, 0))
    if one.op == "get":
        found = None if result.entry is None else (result.entry.value, result.entry.version)
        assert found == model.entries.get(one.key)
        return newest
    if one.op == "getPrefix":
        wanted = sorted((key for key in model.entries if key.startswith(one.key)), key=str.encode)
        assert [entry.key for entry in result.entries] == wanted
        return newest
    reason = model.reason(one)
    assert (result.applied, result.reason) == (reason is None, reason)
    if reason is not None:
        assert (result.value, result.version) == (value, version)
        return newest
    if one.op == "delete":
        del model.entries[one.key]
        assert result.version == 0
        return newest
    written = one.value
    if one.op == "incr":
        start = Decimal(0) if value is None else number(value)
        assert Decimal(result.value.decode()) == EXACT.add(start, Decimal(one.delta))
        written = result.value
    assert (result.value, result.version > newest) == (written, True)
    model.entries[one.key] = (written, result.version)
    return result.version
