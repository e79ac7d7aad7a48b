"""Which web tokens are good, and what each bad one is told.

Method: the judge alone, with keys of the test's own; a JWKS document comes from a real server
on loopback.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from brokers.config_access import AuthConfig
from brokers.errors import BrokerError
from brokers.jwks import DOCUMENT_BYTES_MAX, KeySet, NoDocument, read_document
from brokers.principal import levels_of
from brokers.tokens import Tokens

SECRET = "s" * 64
RSA = generate_private_key(65537, 2048)
OTHER_RSA = generate_private_key(65537, 2048)
ED = Ed25519PrivateKey.generate()


def pem(key: Any) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def judge(token: str | bytes, keys: KeySet | None = None, **config: Any) -> Any:
    settings = AuthConfig(**{"jwt_enabled": True, "jwt_secret": SECRET, **config})
    raw = token.encode() if isinstance(token, str) else token
    return asyncio.run(Tokens(settings, keys).judge(raw))


def refusal(token: str | bytes, keys: KeySet | None = None, **config: Any) -> tuple[int, str]:
    with pytest.raises(BrokerError) as told:
        judge(token, keys, **config)
    return told.value.status, told.value.text


def signed(claims: Any = None, key: Any = SECRET, alg: str = "HS256", **header: Any) -> str:
    return jwt.encode(claims or {}, key, algorithm=alg, headers=header)


def handmade(header: Any, claims: Any = b"{}", signature: bytes = b"") -> str:
    """A token whose parts need be nothing that a library would make."""
    parts = [
        part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims)
    ]
    return ".".join(base64url(part) for part in (*parts, signature))


@pytest.mark.parametrize(
    ("setting", "taken"),
    [
        ("HS256", {"HS256"}),
        ("HS512", {"HS512"}),
        ("RS256", {"RS256", "RS384", "RS512"}),
        ("RS384", {"RS384"}),
        ("EdDSA", {"EdDSA"}),
        ("auto", {"HS256", "HS384", "HS512", "RS256", "RS384", "RS512"}),
    ],
)
def test_only_the_algorithms_of_the_setting_are_taken(setting, taken):
    keys = {"HS": SECRET, "RS": RSA, "Ed": ED}
    for alg in ("HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "EdDSA"):
        if setting == "auto" and alg == "EdDSA":
            continue  # one PEM is one kind of key
        token = signed({"sub": "x"}, keys[alg[:2]], alg)
        public = pem(ED if setting == "EdDSA" else RSA)
        if alg in taken:
            principal, _ = judge(token, jwt_algorithm=setting, jwt_public_key=public)
            assert principal.subject == "x"
        else:
            told = refusal(token, jwt_algorithm=setting, jwt_public_key=public)
            assert told == (401, "Unsupported token algorithm")


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", "", "HS256 ", "hs256", "ES256"])
@pytest.mark.parametrize("setting", ["auto", "HS256", "RS256", "EdDSA"])
def test_a_token_without_a_signature_is_no_token(alg, setting):
    token = handmade({"alg": alg, "typ": "JWT"}, {"role": "admin"})
    told = refusal(token, jwt_algorithm=setting, jwt_public_key=pem(RSA))
    assert told == (401, "Unsupported token algorithm")


@pytest.mark.parametrize("alg", [None, 1, ["HS256"], {"a": 1}, True])
def test_an_algorithm_that_is_no_text_is_none(alg):
    assert refusal(handmade({"alg": alg}))[0] == 401


@pytest.mark.parametrize("setting", ["RS256", "EdDSA", "auto"])
def test_a_public_key_is_never_a_secret(setting):
    """The old confusion: HMAC with the text of the public key, which everybody may have."""
    public = pem(ED if setting == "EdDSA" else RSA)
    head = base64url(b'{"alg":"HS256","typ":"JWT"}')
    body = base64url(b'{"role":"admin"}')
    for key in (public, public.strip(), public + "\n"):
        mac = hmac.new(key.encode(), f"{head}.{body}".encode(), hashlib.sha256).digest()
        token = f"{head}.{body}.{base64url(mac)}"
        told = refusal(token, jwt_algorithm=setting, jwt_public_key=public, jwt_secret="")
        expected = (500, "HS secret not configured") if setting == "auto" else None
        assert told == (expected or (401, "Unsupported token algorithm"))


def test_a_key_that_a_token_brings_itself_is_not_used():
    jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(OTHER_RSA.public_key()))
    for header in ({"jwk": jwk}, {"jku": "http://127.0.0.1:9/keys"}, {"x5u": "http://x/"}):
        token = signed({"role": "admin"}, OTHER_RSA, "RS256", **header)
        told = refusal(token, jwt_algorithm="RS256", jwt_public_key=pem(RSA))
        assert told == (401, "Invalid token signature")


@pytest.mark.parametrize(
    "token",
    [
        "", "x", "a.b", "a.b.c.d", "..", "!!.!!.!!", "e30.e30", "bnVsbA.e30.x",
        handmade(b"[]"), handmade(b"{"), handmade(b"\xff"), b"\x00.\x00.\x00", "é.é.é",
        handmade(b"[" * 3000), handmade({"alg": "HS256", "crit": ["b64"], "b64": False}),
        handmade({"alg": "HS256", "crit": []}), handmade({"alg": "HS256", "kid": 7}),
        "a" * 9000, handmade({"alg": "HS256"}, b"x" * 9000),
    ],
)  # fmt: skip
def test_what_cannot_be_read_as_a_token_is_a_bad_header(token):
    assert refusal(token) == (401, "Bad token header")


@pytest.mark.parametrize("claims", [b"[]", b"null", b'"x"', b"{", b"\xff", b"[" * 3000])
def test_claims_that_are_no_object_are_refused_after_the_signature(claims):
    token = jwt.PyJWS().encode(claims, SECRET, algorithm="HS256")
    assert refusal(token) == (401, "Bad token header")


def test_a_changed_token_is_refused():
    head, body, signature = signed({"role": "read-only"}).split(".")
    other = base64url(b'{"role":"admin"}')
    for token in (f"{head}.{other}.{signature}", f"{head}.{body}.{signature[:-4]}AAAA"):
        assert refusal(token) == (401, "Invalid token signature")
    assert refusal(signed(key="t" * 64)) == (401, "Invalid token signature")


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": -31}, "Token has expired"),
        ({"exp": -29}, None),
        ({"exp": 10**6}, None),
        ({"nbf": 31}, "Token not yet valid"),
        ({"nbf": 29}, None),
        ({"iat": 31}, "Token issued in the future"),
        ({"iat": 29}, None),
        ({"iat": -(10**6)}, None),
    ],
)
def test_each_time_is_judged_with_the_same_skew(claims, told):
    now = time.time()
    token = signed({name: now + offset for name, offset in claims.items()})
    if told is None:
        _, until = judge(token)
        assert until == pytest.approx(now + claims["exp"] + 30) if "exp" in claims else until > 1e18
    else:
        assert refusal(token) == (401, told)


@pytest.mark.parametrize("value", ["soon", True, [], {}, 1e300, -1e300, "1e3"])
def test_a_time_that_is_no_time_never_holds(value):
    def told(name: str) -> tuple[int, str]:
        token = jwt.PyJWS().encode(json.dumps({name: value}).encode(), SECRET, algorithm="HS256")
        return refusal(token)

    assert told("exp") == (401, "Token has expired")
    assert told("nbf") == (401, "Token not yet valid")
    assert told("iat") == (401, "Token issued in the future")


def test_issuer_and_audience_are_exact_where_they_are_set():
    token = signed({"iss": "us", "aud": ["a", "b"]})
    assert judge(token, jwt_issuer="us", jwt_audience="b")
    assert refusal(token, jwt_issuer="u") == (401, "Invalid token issuer")
    assert refusal(token, jwt_audience="c") == (401, "Invalid token audience")
    assert judge(signed({"aud": "b"}), jwt_audience="b")
    assert refusal(signed({}), jwt_issuer="us") == (401, "Invalid token issuer")
    assert refusal(signed({}), jwt_audience="b") == (401, "Invalid token audience")
    assert refusal(signed({"aud": "abc"}), jwt_audience="b") == (401, "Invalid token audience")


@pytest.mark.parametrize(
    ("claims", "roles"),
    [
        ({"role": "admin"}, ["admin"]),
        ({"roles": ["read-only", "write-only"]}, ["read-only", "write-only"]),
        ({"role": "read-only", "roles": ["write-only"]}, ["read-only", "write-only"]),
        ({"role": ["admin"]}, []),
        ({"roles": "admin"}, []),
        ({"role": "Admin"}, []),
        ({"role": "superuser", "roles": [None, 1, {}]}, []),
        ({}, []),
    ],
)
def test_roles_come_from_either_claim(claims, roles):
    principal, _ = judge(signed(claims))
    assert principal.levels == levels_of(roles)


def test_roles_and_claims_may_have_other_names():
    token = signed({"https://x/role": "boss", "groups": ["read-only"]})
    principal, _ = judge(
        token,
        jwt_roles_claim="https://x/role",
        jwt_roles_array_claim="groups",
        jwt_role_admin="boss",
        jwt_role_read_only="viewer",
    )
    assert principal.levels == levels_of(["admin"])


@pytest.mark.parametrize("subject", ["a\x00b", "\ud800", "x" * 1025])
def test_a_subject_that_cannot_be_stored_is_refused(subject):
    token = jwt.PyJWS().encode(json.dumps({"sub": subject}).encode(), SECRET, algorithm="HS256")
    assert refusal(token) == (401, "Bad token header")


def test_key_material_that_is_none_is_the_servers_fault():
    assert refusal(signed(), jwt_secret="", jwt_public_key="x") == (500, "HS secret not configured")
    rs, ed = signed({}, RSA, "RS256"), signed({}, ED, "EdDSA")
    bad = {"jwt_algorithm": "auto", "jwt_public_key": "no pem"}
    assert refusal(rs, **bad) == (500, "invalid RSA public key PEM")
    assert refusal(ed, **bad) == (500, "invalid Ed public key PEM")
    assert refusal(ed, jwt_algorithm="auto", jwt_public_key=pem(RSA))[0] == 500


# JWKS


class Keys:
    """A server of one document, which can be changed; counts how often it was asked."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes, dict[str, str]] = (200, b'{"keys":[]}', {})
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                status, body, headers = outer.answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys?v=1"

    def has(self, *jwks: Any) -> None:
        self.answer = (200, json.dumps({"keys": jwks}).encode(), {})


@pytest.fixture
def served():
    keys = Keys()
    yield keys
    keys.server.shutdown()
    keys.server.server_close()


def jwk_of(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    kind = jwt.algorithms.OKPAlgorithm if key is ED else jwt.algorithms.RSAAlgorithm
    return json.loads(kind.to_jwk(key.public_key())) | {"kid": kid} | more


def key_set(url: str, **more: Any) -> KeySet:
    given = {"timeout_s": 5.0, "refresh_s": 3600.0, "changed": lambda: None, **more}
    return KeySet(url, **given)


CONFIG = {"jwt_algorithm": "auto", "jwt_public_key": "", "jwt_secret": ""}


async def test_an_unknown_key_id_has_the_document_fetched_once_in_five_seconds(served):
    keys = key_set(served.url)
    tokens = Tokens(AuthConfig(jwt_enabled=True, **CONFIG), keys)
    served.has(jwk_of(RSA, "one"), jwk_of(ED, "two"), {"kty": "EC"}, "junk", {"kty": "RSA"})
    for token in (signed({}, RSA, "RS256", kid="one"), signed({}, ED, "EdDSA", kid="two")):
        await tokens.judge(token.encode())
    await tokens.judge(signed({}, ED, "EdDSA").encode())
    assert served.asked == 1, "an empty key ID is the first key of its kind"
    stranger = signed({}, OTHER_RSA, "RS256", kid="three").encode()

    async def judged() -> str:
        with pytest.raises(BrokerError) as told:
            await tokens.judge(stranger)
        return told.value.text

    assert set(await asyncio.gather(*(judged() for _ in range(20)))) == {"Unknown key ID"}
    assert served.asked == 1, "not again within five seconds"
    served.has(jwk_of(OTHER_RSA, "three"))
    keys._tried_at -= 6
    await tokens.judge(stranger)
    assert served.asked == 2


def test_a_key_of_one_kind_does_not_serve_the_other():
    document = json.dumps({"keys": [jwk_of(RSA, "k")]}).encode()
    entries = read_document(document)
    keys = key_set("http://127.0.0.1:9/")
    keys._entries, keys._tried_at = entries, time.monotonic()
    assert refusal(signed({}, ED, "EdDSA", kid="k"), keys, **CONFIG) == (401, "Unknown key ID")


@pytest.mark.parametrize(
    "answer",
    [
        (404, b"", {}),
        (302, b"", {"Location": "/keys"}),
        (200, b"{", {}),
        (200, b"[]", {}),
        (200, b'{"keys":{}}', {}),
        (200, b" " * (DOCUMENT_BYTES_MAX + 1), {}),
    ],
)
async def test_a_fetch_that_fails_keeps_the_keys_that_there_were(served, answer):
    told = []
    keys = key_set(served.url, changed=lambda: told.append(1))
    served.has(jwk_of(RSA, "one"))
    assert await keys._fetch()
    served.answer = answer
    assert not await keys._fetch()
    assert await keys.find("one", type(RSA.public_key())) is not None
    assert (served.asked, told) == (2, [1])


async def test_other_keys_make_what_was_remembered_be_forgotten(served):
    told = []
    keys = key_set(served.url, changed=lambda: told.append(1))
    for jwks in ([jwk_of(RSA, "one")], [jwk_of(RSA, "one")], [jwk_of(OTHER_RSA, "one")]):
        served.has(*jwks)
        await keys._fetch()
    assert len(told) == 2


def test_keys_that_are_too_weak_or_not_for_signing_are_passed_over():
    weak = generate_private_key(65537, 1024)
    jwks = [jwk_of(weak, "weak"), jwk_of(RSA, "enc", use="enc"), jwk_of(RSA, "good", use="sig")]
    entries = read_document(json.dumps({"keys": jwks}).encode())
    assert [entry.kid for entry in entries] == ["good"]
    with pytest.raises(NoDocument):
        read_document(b"[" * 100_000)
