"""Tokens of public keys at a broker that fetches the keys: which are let in, and for how long.

Method: a real broker, and a server of the test on loopback whose set of keys the test changes. The
broker has an HMAC secret too, so every family of algorithms is allowed and only the key decides.
"""

import base64
import hashlib
import hmac

import jwt
import pytest

from tests.unit.test_tokens import ED, OTHER_RSA, RSA, SECRET, Keys, jwk_of, pem
from tests.wire_client import WireClient, expect

CLAIMS = {"role": "admin", "sub": "me"}


@pytest.fixture
def served():
    keys = Keys()
    keys.has(jwk_of(RSA, "rsa-1"), jwk_of(ED, "ed-1"))
    yield keys
    keys.server.shutdown()
    keys.server.server_close()


@pytest.fixture
def status_of(start_broker, served):
    """What a broker that knows those keys answers to a token."""
    broker = start_broker(
        JWT_ENABLED="true", JWT_ALGORITHM="auto", JWT_SECRET=SECRET, JWT_JWKS_URL=served.url
    )
    with WireClient.at(broker.url) as wire:

        def ask(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return expect(wire.http.get("/api/v1/resources/queues", headers=headers), 200, 401)

        yield lambda token: ask(token).status_code


def signed(key, algorithm: str, kid: str | None) -> str:
    headers = None if kid is None else {"kid": kid}
    return jwt.encode(CLAIMS, key, algorithm=algorithm, headers=headers)


def confused(public: str, kid: str | None) -> str:
    """What a library refuses to make: HS256 whose secret is a public key, known to everybody."""
    template = signed(SECRET, "HS256", kid).rpartition(".")[0]
    digest = hmac.digest(public.encode(), template.encode(), hashlib.sha256)
    return f"{template}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def test_keys_of_a_url_are_good_for_their_own_kind_of_signature_and_until_they_are_taken_away(
    status_of, served, eventually
):
    old = signed(RSA, "RS256", "rsa-1")
    steady = signed(ED, "EdDSA", "ed-1")
    assert status_of(old) == status_of(steady) == 200
    assert status_of(signed(SECRET, "HS256", None)) == 200, "the secret is a key too"
    for key, kid in ((RSA, "rsa-1"), (ED, "ed-1"), (RSA, None)):
        for public in (pem(key), pem(key).strip()):
            assert status_of(confused(public, kid)) == 401
    assert status_of(signed(OTHER_RSA, "RS256", "rsa-1")) == 401, "another's signature"
    assert status_of(signed(RSA, "RS256", "ed-1")) == 401, "a key of another kind"

    new = signed(OTHER_RSA, "RS256", "rsa-2")
    served.has(jwk_of(OTHER_RSA, "rsa-2"), jwk_of(ED, "ed-1"))
    assert status_of(old) == 200, "nobody has asked for the keys again"
    # An unknown key ID has them fetched, five seconds after the last time at the earliest.
    eventually(lambda: status_of(new) == 200, timeout_s=20)
    assert status_of(old) == 401, "although it was remembered"
    assert status_of(steady) == 200
