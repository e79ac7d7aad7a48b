"""The key ring: what it seals only its keys open, byte for byte, and nothing falls back.

Method: envelopes are made and opened here with the cipher itself, as another program that
knows nothing but the written format would.
"""

import base64
import json
import os
import threading

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from brokers import encryption, frames
from brokers.encryption import KeyRing, NoKey, UndecryptableError
from brokers.frames import FLAG_ENCRYPTED
from brokers.store import sealing
from brokers.store.combine import Parcel
from queen_project.config import ConfigError, load, warnings

OLD, CURRENT, FOREIGN = "11" * 32, "2a" * 32, "ff" * 32
PAYLOADS = [
    b"null",
    b'""',
    b"9007199254740993",
    b"1" * 5000,
    b'"\\ud800"',
    b'{"a":1,"a":2,"f":1.0,"g":1E2}',
    '"😀 \u2028"'.encode(),
    b'"' + b"x" * 3_000_000 + b'"',
]


@pytest.fixture
def keys() -> KeyRing:
    return KeyRing(CURRENT)


def refusal(keys: KeyRing, envelope: bytes) -> str:
    with pytest.raises(UndecryptableError) as caught:
        keys.open(envelope)
    return str(caught.value)


def parts(envelope: bytes) -> dict[str, bytes]:
    return {
        name: base64.b64decode(value, validate=True) for name, value in json.loads(envelope).items()
    }


def rebuilt(fields: dict[str, bytes]) -> bytes:
    return json.dumps(
        {name: base64.b64encode(value).decode() for name, value in fields.items()}
    ).encode()


# --- the envelope -------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda one: one[:20].decode())
def test_what_was_sealed_is_opened_byte_for_byte(keys, payload):
    envelope = keys.seal(payload)
    assert payload not in envelope or len(payload) < 6
    assert keys.open(envelope) == payload


def test_the_envelope_is_the_one_of_the_contract(keys):
    envelope = keys.seal(b'{"a":1}')
    assert list(json.loads(envelope)) == ["encrypted", "iv", "authTag"]
    found = parts(envelope)
    assert (len(found["iv"]), len(found["authTag"])) == (16, 16)
    cipher = AESGCM(bytes.fromhex(CURRENT))
    plain = cipher.decrypt(found["iv"][:12], found["encrypted"] + found["authTag"], None)
    assert plain == b'{"a":1}'


def test_an_envelope_of_another_program_is_opened(keys):
    """Its iv is random to the end, and its members stand in another order."""
    iv = os.urandom(16)
    sealed = AESGCM(bytes.fromhex(CURRENT)).encrypt(iv[:12], b"[1]", None)
    envelope = rebuilt({"iv": iv, "authTag": sealed[-16:], "encrypted": sealed[:-16]})
    assert KeyRing(CURRENT, [OLD]).open(envelope) == b"[1]"
    assert KeyRing(OLD, [CURRENT]).open(envelope) == b"[1]"


def test_no_nonce_is_used_twice(keys):
    nonces = {parts(keys.seal(b"1"))["iv"][:12] for _ in range(2000)}
    assert len(nonces) == 2000


# --- the ring -----------------------------------------------------------------------------------


def test_the_current_key_seals_and_every_key_opens():
    before, after = KeyRing(OLD), KeyRing(CURRENT, [FOREIGN, OLD])
    assert after.open(before.seal(b"1")) == b"1"
    assert KeyRing(CURRENT).open(after.seal(b"2")) == b"2"


def test_a_ring_of_old_keys_reads_and_does_not_seal():
    ring = KeyRing("", [OLD])
    assert ring.open(KeyRing(OLD).seal(b"1")) == b"1"
    assert not ring.can_seal
    with pytest.raises(NoKey):
        ring.seal(b"1")


def test_what_no_key_opens_says_so(keys):
    envelope = KeyRing(FOREIGN).seal(b"1")
    assert refusal(keys, envelope) == "payload cannot be decrypted: no key of this broker fits"
    assert "no encryption key" in refusal(KeyRing(), envelope)


@pytest.mark.parametrize("name", ["encrypted", "iv", "authTag"])
def test_a_changed_envelope_is_not_opened(keys, name):
    fields = parts(keys.seal(b'"payload"'))
    fields[name] = bytes([fields[name][0] ^ 1]) + fields[name][1:]
    assert "damaged" in refusal(keys, rebuilt(fields))


@pytest.mark.parametrize("size", [0, 12, 15, 17])
@pytest.mark.parametrize("name", ["iv", "authTag"])
def test_an_iv_or_tag_of_another_length_is_refused(keys, name, size):
    fields = parts(keys.seal(b'"payload"'))
    fields[name] = (fields[name] * 2)[:size]
    assert "damaged" in refusal(keys, rebuilt(fields))


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"null", b"[]", b'"x"', b"{", b"{}", b'{"encrypted":"","iv":""}', b"\xff"),
        *(b'{"encrypted":"*","iv":"*","authTag":"*"}', b'{"encrypted":1,"iv":2,"authTag":3}'),
        b"[" * 5000,
    ],
    ids=lambda one: repr(one)[:30],
)
def test_what_is_no_envelope_is_refused_and_not_returned(keys, text):
    assert "damaged" in refusal(keys, text)


def test_a_ring_does_not_show_its_keys(keys):
    envelope = KeyRing(FOREIGN).seal(b"1")
    told = repr(keys) + refusal(keys, envelope) + repr(load({"QUEEN_ENCRYPTION_KEY": CURRENT}))
    assert CURRENT not in told


# --- messages and parcels -----------------------------------------------------------------------

PAYLOAD = b'{"data":1,"x":",\\"data\\":"}'


def made(*sealed_already: bytes) -> Parcel:
    """Two messages of a request."""
    return Parcel(
        ["i1", "i2"],
        ['"t1"', '"t2"'],
        [frames.frame(f"{no:036}", f'"t{no}"', None, ',"data":', PAYLOAD) for no in (1, 2)],
        *sealed_already,
    )


def test_the_head_of_a_sealed_frame_is_unchanged(keys):
    [frame, _] = made().frames
    sealed = keys.seal_frame(frame)
    start = frames.payload_start(frame)
    assert sealed[:start] == frame[:start] and PAYLOAD not in sealed
    assert frames.transaction_of(sealed) == b'"t1"'
    assert keys.open_frame(sealed) == frame


def test_a_frame_that_cannot_be_opened_has_an_error_and_no_data(keys):
    sealed = KeyRing(FOREIGN).seal_frame(made().frames[0])
    with pytest.raises(UndecryptableError) as caught:
        keys.open_frame(sealed)
    message = json.loads(encryption.unreadable_frame(sealed, caught.value) + b"}")
    assert message["data"] is None and message["isEncrypted"] is True
    assert message["error"].startswith("payload cannot be decrypted: ")
    assert message["transactionId"] == "t1"


def test_a_parcel_is_sealed_once(keys):
    parcel = made()
    assert not sealing.is_sealed([parcel]) and sealing.flags([parcel]) is None
    sealing.seal(keys, [parcel])
    once = list(parcel.frames)
    sealing.seal(keys, [parcel])
    assert parcel.frames == once
    assert sealing.flags([parcel]) == bytes([FLAG_ENCRYPTED] * 2)


def test_a_message_that_comes_sealed_is_left_alone(keys):
    parcel = made(bytes([FLAG_ENCRYPTED, 0]))
    first, second = parcel.frames
    sealing.seal(keys, [parcel])
    assert parcel.frames[0] == first
    assert keys.open_frame(parcel.frames[1]) == second


def test_parcels_with_and_without_flags_are_flagged_together(keys):
    parcels = [made(), made(bytes([0, FLAG_ENCRYPTED]))]
    assert sealing.flags(parcels) == bytes([0, 0, 0, FLAG_ENCRYPTED])
    assert sealing.flags_of([(parcels[1], 1), (parcels[0], 0)]) == bytes([FLAG_ENCRYPTED, 0])
    assert sealing.flags_of([(parcels[0], 1)]) is None


async def test_much_work_is_done_beside_the_event_loop():
    limit = encryption.INLINE_BYTES_MAX
    assert await encryption.bounded(threading.get_ident, limit) == threading.get_ident()
    assert await encryption.bounded(threading.get_ident, limit + 1) != threading.get_ident()


# --- the environment ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["QUEEN_ENCRYPTION_KEY", "QUEEN_ENCRYPTION_KEYS_OLD"])
@pytest.mark.parametrize(
    "bad",
    ["ab" * 31, "ab" * 33, "ab" * 31 + "a", "xy" * 32, "ab" * 31 + "0x", "٣" * 64, "ab cd" * 13],
)
def test_a_malformed_key_stops_the_start_and_is_not_echoed(name, bad):
    with pytest.raises(ConfigError) as caught:
        load({name: bad})
    [problem] = caught.value.problems
    assert problem.startswith(f"{name}=<secret>") and "64 hexadecimal digits" in problem
    assert bad not in problem


@pytest.mark.parametrize("bad", [f"{OLD},", f",{OLD}", f"{OLD},{'ab' * 31}", f"{OLD};{CURRENT}"])
def test_one_malformed_old_key_stops_the_start(bad):
    with pytest.raises(ConfigError):
        load({"QUEEN_ENCRYPTION_KEYS_OLD": bad})


def test_keys_are_read_in_either_case_and_shown_by_their_length():
    env = {
        "QUEEN_ENCRYPTION_KEY": f" {CURRENT.upper()}\n",
        "QUEEN_ENCRYPTION_KEYS_OLD": f"{OLD}, {FOREIGN}",
    }
    config = load(env)
    assert config.encryption.key == CURRENT
    assert config.encryption.keys_old == (OLD, FOREIGN)
    assert config.describe()["encryption"] == {
        "QUEEN_ENCRYPTION_KEY": "<set:64 chars>",
        "QUEEN_ENCRYPTION_KEYS_OLD": "<set:129 chars>",
    }
    assert load({}).describe()["encryption"]["QUEEN_ENCRYPTION_KEY"] == "<unset>"


def test_old_keys_alone_are_warned_about():
    said = "\n".join(warnings(load({"QUEEN_ENCRYPTION_KEYS_OLD": OLD})))
    assert "refuse pushes" in said and OLD not in said
