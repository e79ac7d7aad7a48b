"""Nothing that is secret is told: not in the log, at any verbosity, nor by a page or a command.

Method: a broker that has a secret wherever one can be set, logs everything, as JSON, and runs on
a database of its own whose constraints refuse some values: an error of PostgreSQL then quotes the
row. Callers do all that they can get wrong, and the log is searched afterwards.
"""

import base64
import json
import os
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from io import StringIO
from pathlib import Path

import httpx
import jwt
import pytest

from brokers.api.routes import ROUTES
from brokers.config_client import ClientConfig
from brokers.management.queen.main import main
from tests import harness
from tests.wire_client import UNKNOWN_UUID, WireClient, ack_of

SECRETS = {
    "JWT_SECRET": "the-secret-of-tokens-" + "t" * 40,
    "JWT_JWKS_URL": "http://keeper:password-of-the-jwks@127.0.0.1:1/keys?key=key-of-the-jwks",
    "QUEEN_SYNC_SECRET": "the-secret-of-the-mesh-" + "m" * 30,
    "QUEEN_ENCRYPTION_KEY": "5e" * 32,
    "QUEEN_ENCRYPTION_KEYS_OLD": "6f" * 32 + "," + "7a" * 32,
    "QUEEN_SECRET_KEY": "the-secret-of-django-" + "d" * 50,
    "QUEEN_TOKEN": "the-token-of-the-command-line",
    "PG_PASSWORD": "the-password-of-postgres",
}
SPELLED = (
    *(value for name, value in SECRETS.items() if "," not in value and "://" not in value),
    *SECRETS["QUEEN_ENCRYPTION_KEYS_OLD"].split(","),
    *("password-of-the-jwks", "key-of-the-jwks", "password-of-the-url"),
)
PAYLOAD = "a-payload-that-nobody-may-read"
REFUSED = "refused-by-a-constraint"
PASSWORD = "the-password-of-an-operator"
PAGES_MAX = 60
SIGN_IN = f"""
import django; django.setup()
from django.contrib import auth
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
user = User.objects.create_superuser("operator", password="{PASSWORD}")
session = SessionStore()
session[auth.SESSION_KEY] = str(user.pk)
session[auth.BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
session[auth.HASH_SESSION_KEY] = user.get_session_auth_hash()
session.create()
print(session.session_key)
"""
UNFIT = (
    f"ALTER TABLE queen_kv ADD CHECK (position('{REFUSED}'::bytea in value) = 0)",
    f"ALTER TABLE queen_segment ADD CHECK (position('{REFUSED}'::bytea in frames) = 0)",
    f"ALTER TABLE queen_timer ADD CHECK (position('{REFUSED}'::bytea in payload) = 0)",
)


@pytest.fixture(scope="module")
def database(postgres):
    name = f"queen_{harness.WORKER}_{uuid.uuid4().hex[:8]}"
    database = harness.make_database(postgres, name)
    with database.connect() as db:
        for statement in UNFIT:
            db.execute(statement)
    yield database
    harness.drop_database(database)


@pytest.fixture(scope="module")
def environment(database):
    return database.environment | SECRETS | {
        "QUEEN_API_KEYS": "true",
        "JWT_ENABLED": "true",
        "JWT_ALGORITHM": "auto",
        "RUST_LOG": "trace",
        "QUEEN_LOG_JSON": "true",
    }  # fmt: skip


@pytest.fixture(scope="module")
def broker(environment, tmp_path_factory):
    process = harness.BrokerProcess(tmp_path_factory.mktemp("secrets") / "log", environment)
    yield process
    process.stop()


@pytest.fixture(scope="module")
def token() -> str:
    claims = {"sub": "me", "role": "admin"}
    return jwt.encode(claims, SECRETS["JWT_SECRET"], algorithm="HS256")


@pytest.fixture(scope="module")
def key(environment) -> str:
    made = manage(environment, "apikey", "create", "the sweep", "--role", "admin")
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    assert key.split("_", 2)[2] not in made.stderr
    return key


@pytest.fixture
def wire(broker, token):
    with WireClient.at(broker.url, {"Authorization": f"Bearer {token}"}) as wire:
        yield wire


def manage(environment, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run(environment, "manage.py", *arguments)


def run(environment, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=harness.PROJECT_DIR,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def assert_untold(text: str, *more: str) -> None:
    told = [secret for secret in (*SPELLED, *more) if secret in text]
    assert not told


def test_no_read_tells_a_secret(wire, key, broker):
    wire.push("q", 1)
    paths = {
        "/".join("x" if part[:1] in (":", "*") else part for part in route.template.split("/"))
        for route in ROUTES
        if route.method == "GET"
    }
    for path in sorted(paths | {"/", "/admin/", "/admin/login/", "/nope", "/_queen/queues"}):
        answer = wire.get(path)
        assert answer.status_code < 500, path
        assert_untold(answer.text + str(answer.headers), key, key.split("_", 2)[2])
    assert_untold(Path(f"/proc/{broker.pid}/cmdline").read_text())


@pytest.fixture(scope="module")
def session(environment, broker) -> str:
    """The cookie of somebody who may do everything in the console."""
    done = run(environment, "-c", SIGN_IN)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_page_of_the_console_tells_a_secret(broker, session, key):
    """All that can be reached from the first one by its links, where there are any."""
    cookies = {"sessionid": session}
    seen, waiting = {"/admin/"}, ["/admin/"]
    with httpx.Client(base_url=broker.url, cookies=cookies, timeout=60) as http:
        while waiting and len(seen) <= PAGES_MAX:
            answer = http.get(waiting.pop(0), headers={"Accept": "text/html"})
            secret = key.split("_", 2)[2]
            assert_untold(answer.text, key, secret, PASSWORD, "pbkdf2_sha256$", "argon2")
            links = re.findall(r'href="(/(?:admin|console)/[^"]*)"', answer.text)
            fresh = {unescape(one) for one in links if "logout" not in one} - seen
            seen |= fresh
            waiting += sorted(fresh)


def test_a_session_of_the_console_is_no_credential_of_the_api(broker, session):
    with httpx.Client(base_url=broker.url, cookies={"sessionid": session}, timeout=60) as http:
        for method, path in (
            ("GET", "/api/v1/resources/queues"),
            ("GET", "/status"),
            ("POST", "/api/v1/push"),
            ("DELETE", "/api/v1/resources/queues/q"),
            ("GET", "/api/schema"),
            ("GET", "/nope"),
        ):
            answer = http.request(method, path)
            assert (answer.status_code, answer.headers.get("set-cookie")) == (401, None), path
        assert "set-cookie" not in http.get("/health").headers


def send_badly(url: str, credential: str) -> None:
    """All that a caller can get wrong who has a credential, or nearly one."""
    for value in (credential, f"Bearer {credential}", f"Basic {credential}", credential[:-2]):
        headers = {"Authorization": value, "Cookie": f"token={credential}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as http:
            http.get(f"/api/v1/resources/queues?token={credential}")
            http.get(f"/nope/{credential}", params={"access_token": credential})
            http.post(f"/admin/?key={credential}", content=credential)
            http.request("BREW", f"/api/v1/push?{credential}")
            http.post("/api/v1/push", content=b"{")
            http.post("/api/v1/push", content=b"\xff" + PAYLOAD.encode())
            http.post("/api/v1/configure", content=f'{{"queue": {{"{PAYLOAD}": 1}}'.encode())
            http.post("/streams/v1/queries", json={"name": [PAYLOAD]})
            http.post("/api/v1/push", content=PAYLOAD, headers={"Content-Encoding": "gzip"})
            http.get("/api/v1/resources/queues", headers={"X": credential * 800})
    twice = [("Authorization", credential), ("Authorization", credential)]
    assert httpx.get(f"{url}/status", headers=twice).status_code == 401


def test_the_log_tells_no_credential_whatever_a_caller_does_with_it(broker, token, key):
    for credential in (token, key):
        send_badly(broker.url, credential)
    assert "LOG_LEVEL=DEBUG" in broker.log
    secrets = [token, *token.split(".")[1:], key, key.split("_", 2)[2], PAYLOAD]
    assert_untold(broker.log, *secrets)


def test_the_log_and_the_answers_tell_no_row_that_postgresql_refused(wire, broker):
    text = f"{PAYLOAD} {REFUSED}"
    [row] = wire.push("refusing", text)
    assert row["status"] == "failed"
    answers = [
        wire.http.put("/api/v1/kv/n/k", json={"value": text, "forever": True},
                      headers=wire.headers),
        wire.post("/api/v1/transaction",
                  {"operations": [{"type": "push", "queue": "refusing", "payload": text}]}),
        wire.post("/api/v1/timers", {"operations": [
            {"op": "schedule", "queue": "refusing", "timerKey": "k", "delayMs": 10**7,
             "txn": "x", "payload": base64.b64encode(json.dumps(text).encode()).decode()}]}),
    ]  # fmt: skip
    wire.push("q2", PAYLOAD)
    [message] = wire.messages("q2")
    trace = {"transactionId": message["transactionId"], "partitionId": message["partitionId"]}
    answers.append(wire.post("/api/v1/traces", trace | {"data": {"x": "\x00" + PAYLOAD}}))
    wire.post("/api/v1/ack", ack_of(message) | {"status": "failed", "error": PAYLOAD})
    wire.post("/streams/v1/cycle", {"query_id": UNKNOWN_UUID, "state_ops": [{"value": PAYLOAD}]})
    assert {answer.status_code for answer in answers[:3]} <= {200, 500, 503}
    told = json.dumps(row) + "".join(answer.text for answer in answers)
    assert PAYLOAD not in told and "Failing row" not in told
    assert "check constraint" in broker.log, "nothing was refused"
    assert_untold(broker.log, PAYLOAD, "Failing row")


def test_no_command_tells_a_secret(environment, key, tmp_path):
    mistyped = f"Bearer {key[:-1]}"
    commands = [
        ("apikey", "list", "--all", "--json"),
        ("apikey", "revoke", mistyped),
        ("mesh", "--status", "--at", "127.0.0.1:1"),
        ("sweeper", "--once"),
        ("drain", str(tmp_path), "--status"),
    ]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda one: manage(environment, *one), commands))
    for command, told in zip(commands, done, strict=True):
        assert "Traceback" not in told.stderr, (command, told.stderr)
        assert_untold(told.stdout + told.stderr, key, key.split("_", 2)[2][:-1])
    assert done[1].returncode != 0 and "the sweep" in done[0].stdout


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("http://me:password-of-the-url@127.0.0.1:1", ""),
        ("me:password-of-the-url@127.0.0.1:1", ""),
        ("http://127.0.0.1:1", "a-token-of\u2028two-lines"),
        ("http://127.0.0.1:1", "a-token-of\ntwo-lines"),
        ("http://127.0.0.1:1", "a-token-of-two-lines\r\n"),
    ],
)
def test_the_command_line_tells_neither_its_token_nor_a_password_in_its_url(url, token):
    out, errors = StringIO(), StringIO()
    assert main(["status"], ClientConfig(url=url, token=token), out, errors) != 0
    assert errors.getvalue().startswith("error: ")
    assert_untold(out.getvalue() + errors.getvalue(), "a-token-of")


def test_a_secret_that_stops_the_start_is_not_shown(environment):
    wrong = {
        "JWT_JWKS_URL": "ftp://keeper:password-of-the-jwks@host",
        "QUEEN_ENCRYPTION_KEY": SECRETS["QUEEN_ENCRYPTION_KEY"][:-1],
        "PG_HOST": "postgres://me:password-of-the-url@host/db",
    }
    told = manage(environment | wrong, "broker", "--port", "0")
    assert told.returncode != 0
    for name in wrong:
        assert name in told.stderr
    assert_untold(told.stdout + told.stderr, wrong["QUEEN_ENCRYPTION_KEY"])
