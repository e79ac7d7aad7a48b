"""The environment becomes a configuration, or every reason why not is told at once.

Method: config.load with environments written out; the real one is never looked at.
"""

import ssl
from pathlib import Path

import pytest

from brokers.config import Config
from queen_project import config as environment
from queen_project import embedded_paths
from queen_project.config import ConfigError, for_listener, load, warnings

OWN = {"PG_HOST": "db.example"}


def problems(**env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(env)
    return caught.value.problems


@pytest.fixture(scope="module")
def certificate() -> str:
    """Any certificate that this machine trusts."""
    bundle = Path(ssl.get_default_verify_paths().cafile or "/nonexistent")
    if not bundle.exists():
        pytest.skip("this machine has no bundle of trusted certificates to borrow one from")
    text = bundle.read_text()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return begin + text.split(begin, 1)[1].split(end, 1)[0] + end + "\n"


def test_an_empty_environment_has_the_documented_defaults():
    config = load({})
    assert (config.server.port, config.server.bind_addr) == (6632, "0.0.0.0")
    assert config.server.body_bytes_max == 64 * 1024 * 1024
    assert config.postgres.embedded
    assert config.postgres.pool_size == 24
    assert config.postgres.stmt_timeout_ms == 30_000
    assert config.pop.timeout_ms == 30_000
    assert config.pop.poll_ms == 1000
    assert config.pop.subscription_mode == "new"
    assert config.push.busy_ms == 5000
    assert config.jobs.txn_floor_s == 900
    assert (config.hotlist.window_batch, config.hotlist.reseed_ms) == (100, 30_000)
    assert config.ack.registry_mb == 64


def test_every_unusable_value_is_named_at_once():
    told = problems(
        PORT="six",
        QUEEN_APPLY_SCHEMA="maybe",
        DB_POOL_SIZE="1_000",
        QUEEN_BIND_ADDR="0.0.0.0:6632",
        QUEEN_POP_AUTOPILOT="sometimes",
        DEFAULT_SUBSCRIPTION_MODE="old",
        LOG_LEVEL="loud",
        PG_PORT="x",
        QUEEN_TENANCY_HEADER="on",
        QUEEN_ADMISSION_SHARE_POP="nan",
    )
    names = [
        *("PORT", "QUEEN_APPLY_SCHEMA", "DB_POOL_SIZE", "QUEEN_BIND_ADDR", "QUEEN_POP_AUTOPILOT"),
        *("DEFAULT_SUBSCRIPTION_MODE", "LOG_LEVEL", "PG_PORT", "QUEEN_TENANCY_HEADER"),
        "QUEEN_ADMISSION_SHARE_POP",
    ]
    assert len(told) == len(names)
    for name in names:
        assert any(line.startswith(name) for line in told), (name, told)


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "TRUE", " On "])
def test_a_boolean_may_be_written_in_four_ways(word: str):
    assert load({"QUEEN_LOG_JSON": word}).logging.json is True


@pytest.mark.parametrize("word", ["false", "0", "no", "off", "OFF"])
def test_and_so_may_its_opposite(word: str):
    assert load({"QUEEN_APPLY_SCHEMA": word}).server.apply_schema is False


@pytest.mark.parametrize("word", ["2", "y", "enabled", "tru", "1.0"])
def test_any_other_word_is_no_boolean(word: str):
    [problem] = problems(QUEEN_LOG_JSON=word)
    assert "expected true/false, 1/0, yes/no, on/off" in problem


@pytest.mark.parametrize("blank", ["", "   "])
def test_an_empty_value_is_the_default(blank: str):
    config = load({"PORT": blank, "QUEEN_APPLY_SCHEMA": blank, "PG_HOST": blank})
    assert config.server.port == 6632
    assert config.server.apply_schema is True
    assert config.postgres.embedded


@pytest.mark.parametrize("digits", ["٣", "1_000", "0x10", "1.5", "1e3", "--1", "9" * 5000])
def test_only_plain_digits_are_an_integer(digits: str):
    assert problems(PORT=digits)


def test_intervals_below_their_floor_are_raised_to_it():
    config = load({"QUEEN_PUSH_BUSY_MS": "0", "POP_WAIT_MAX_INTERVAL_MS": "-5"})
    assert config.push.busy_ms == 1
    assert config.pop.poll_ms == 1


@pytest.mark.parametrize("batch", ["0", "10001", "-1"])
def test_an_autopilot_batch_out_of_range_stops_the_start(batch: str):
    assert problems(QUEEN_POP_AUTOPILOT_BATCH=batch)


def test_the_first_of_two_names_wins_and_an_empty_one_falls_through():
    both = {"DEFAULT_TIMEOUT": "5", "POP_DEFAULT_TIMEOUT_MS": "6"}
    assert load(both).pop.timeout_ms == 5
    assert load({**both, "DEFAULT_TIMEOUT": ""}).pop.timeout_ms == 6
    assert load({"PG_DATABASE": "", "PG_DB": "two"}).postgres.database == "two"
    assert load({"PG_DATABASE": "one", "PG_DB": "two"}).postgres.database == "one"


def test_a_value_below_another_name_is_blamed_on_that_name():
    [problem] = problems(POP_DEFAULT_TIMEOUT_MS="soon")
    assert problem.startswith("POP_DEFAULT_TIMEOUT_MS")


@pytest.mark.parametrize("address", ["::1", "[::1]", "10.0.0.1", "localhost", "db-1.example"])
def test_an_address_is_a_host_or_an_ip(address: str):
    assert load({"QUEEN_BIND_ADDR": address}).server.bind_addr == address.strip("[]")


@pytest.mark.parametrize("address", ["localhost:80", "[::1]:80", "1.2.3.4:80", "a b", "http://x"])
def test_an_address_with_a_port_stops_the_start(address: str):
    assert problems(QUEEN_BIND_ADDR=address)


def test_the_server_id_is_host_and_port_until_it_is_named():
    config = load({"PORT": "7000"})
    assert config.server.server_id.endswith(":7000")
    assert for_listener(load({"PORT": "0"}), port=7001).server.server_id.endswith(":7001")
    named = for_listener(load({"QUEEN_SERVER_ID": "blue", "PORT": "0"}), port=7001)
    assert (named.server.server_id, named.server.port) == ("blue", 7001)


def test_tenancy_needs_the_word_that_a_proxy_guards_the_header():
    assert "QUEEN_KV_TRUSTED_PROXY" in problems(QUEEN_TENANCY_HEADER="1")[0]
    both = load({"QUEEN_TENANCY_HEADER": "1", "QUEEN_KV_TRUSTED_PROXY": "1"})
    assert both.tenancy.header


def test_authentication_that_cannot_be_enforced_is_not_pretended():
    for algorithm in ("HS256", "HS512", "auto"):
        [told] = problems(JWT_ENABLED="true", JWT_ALGORITHM=algorithm)
        assert "JWT_SECRET" in told and "JWT_PUBLIC_KEY" in told and "JWT_JWKS_URL" in told
        for name in ("JWT_SECRET", "JWT_PUBLIC_KEY", "JWT_JWKS_URL"):
            load({"JWT_ENABLED": "1", "JWT_ALGORITHM": algorithm, name: "http://x/"})
    for algorithm in ("RS256", "RS512", "EdDSA"):
        given = {"JWT_ENABLED": "1", "JWT_ALGORITHM": algorithm}
        [told] = problems(**given, JWT_SECRET="s")
        assert "JWT_PUBLIC_KEY" in told and "JWT_JWKS_URL" in told
        load(given | {"JWT_PUBLIC_KEY": "not even a key: that is told to each caller"})
    for wrong in ("none", "HS-256", "ES256", "hs256"):
        assert "JWT_ALGORITHM" in problems(JWT_ALGORITHM=wrong)[0]
    assert "JWT_JWKS_URL" in problems(JWT_JWKS_URL="ftp://x/keys")[0]


def test_a_skip_list_that_is_set_and_empty_is_empty_and_unset_is_the_default():
    assert load({}).auth.jwt_skip_paths == ("/health", "/metrics/prometheus", "/metrics", "/")
    assert load({"JWT_SKIP_PATHS": ""}).auth.jwt_skip_paths == ()
    assert load({"JWT_SKIP_PATHS": " /a , /b/,"}).auth.jwt_skip_paths == ("/a", "/b/")


def test_grants_are_required_where_the_header_is_read_unless_told_otherwise():
    both = {"QUEEN_TENANCY_HEADER": "1", "QUEEN_KV_TRUSTED_PROXY": "1"}
    assert load({}).quota.require_grant is False
    assert load(both).quota.require_grant is True
    assert load(both | {"QUEEN_KV_REQUIRE_GRANT": "off"}).quota.require_grant is False
    assert load({"QUEEN_KV_REQUIRE_GRANT": "on"}).quota.require_grant is True


def test_what_is_weak_is_said_at_the_start():
    def said(**env: str) -> str:
        return "\n".join(warnings(load({"QUEEN_BIND_ADDR": "127.0.0.1", **env})))

    assert "without authentication" in said(QUEEN_BIND_ADDR="0.0.0.0")
    assert "without authentication" not in said(QUEEN_BIND_ADDR="0.0.0.0", QUEEN_API_KEYS="1")
    assert "without TLS" in said(QUEEN_BIND_ADDR="0.0.0.0", QUEEN_API_KEYS="1")
    assert "guessed" in said(JWT_ENABLED="1", JWT_SECRET="short")
    assert "plain http" in said(JWT_ENABLED="1", JWT_ALGORITHM="RS256", JWT_JWKS_URL="http://x/")
    assert "PEM" in said(JWT_ENABLED="1", JWT_ALGORITHM="RS256", JWT_PUBLIC_KEY="x")
    assert said(JWT_ENABLED="1", JWT_SECRET="s" * 32) == ""


def test_admission_follows_the_pool():
    admission = load({"DB_POOL_SIZE": "24"}).admission
    assert (admission.pool_reserve, admission.min, admission.max) == (6, 4, 18)
    assert admission.nosync_budget == 18


@pytest.mark.parametrize("pool", ["2", "3", "24", "160"])
@pytest.mark.parametrize("asked", ["0", "1", "500"])
def test_admission_never_goes_above_the_pool_less_its_reserve(pool: str, asked: str):
    env = {"DB_POOL_SIZE": pool, "QUEEN_ADMISSION_MAX": asked, "QUEEN_ADMISSION_INIT": asked}
    admission = load(env).admission
    ceiling = int(pool) - admission.pool_reserve
    assert 1 <= admission.min <= admission.init <= admission.max <= ceiling
    assert 1 <= admission.nosync_budget <= ceiling


def test_a_reserve_that_leaves_nothing_stops_the_start():
    assert problems(DB_POOL_SIZE="8", QUEEN_ADMISSION_POOL_RESERVE="8")


def test_names_that_only_older_brokers_know_are_ignored():
    load({"POP_WAIT_INITIAL_INTERVAL_MS": "x", "QUEEN_VEGAS_MAX": "x", "QUEEN_POP_FUSION": "x"})


# --- PostgreSQL -------------------------------------------------------------------------------


def test_without_a_host_the_embedded_server_is_meant(tmp_path: Path):
    postgres = load({"QUEEN_DATA_DIR": str(tmp_path), "PG_PORT": "9", "PG_USER": "me"}).postgres
    assert postgres.embedded
    parameters = postgres.parameters()
    assert parameters["host"] == str(embedded_paths.socket_dir(tmp_path))
    assert parameters["user"] == "postgres"


def test_a_single_host_is_taken_as_it_is():
    parameters = load({**OWN, "PG_PORT": "5433", "PG_PASSWORD": " s p "}).postgres.parameters()
    assert (parameters["host"], parameters["port"]) == ("db.example", "5433")
    assert parameters["password"] == " s p "
    assert parameters["sslmode"] == "disable"
    assert "target_session_attrs" not in parameters


def test_of_several_hosts_the_one_that_takes_writes_is_looked_for():
    parameters = load({"PG_HOST": "pg1, pg2", "PG_PORT": "5432,5433"}).postgres.parameters()
    assert (parameters["host"], parameters["port"]) == ("pg1,pg2", "5432,5433")
    assert parameters["target_session_attrs"] == "read-write"


def test_three_ports_for_two_hosts_stop_the_start():
    assert problems(PG_HOST="a,b", PG_PORT="1,2,3")
    assert problems(PG_HOST="a,,b")


def test_tls_is_verified_unless_told_otherwise(tmp_path: Path):
    verified = load({**OWN, "PG_USE_SSL": "true"}).postgres
    assert verified.ssl_trust == "webpki-roots"
    assert verified.parameters()["sslmode"] == "verify-full"
    assert verified.parameters()["sslrootcert"]
    trusting = load({**OWN, "PG_USE_SSL": "true", "PG_SSL_REJECT_UNAUTHORIZED": "false"})
    assert trusting.postgres.ssl_trust == "accept-any"
    assert trusting.postgres.parameters()["sslmode"] == "require"
    assert any("not verified" in warning for warning in environment.warnings(trusting))


@pytest.mark.parametrize("escaped", [False, True])
def test_a_root_certificate_is_kept_for_libpq_in_a_private_file(
    tmp_path: Path, certificate: str, escaped: bool
):
    env = {
        **OWN,
        "PG_USE_SSL": "true",
        "PG_SSL_REJECT_UNAUTHORIZED": "false",
        "PG_SSL_ROOT_CERT": certificate.replace("\n", "\\n") if escaped else certificate,
        "QUEEN_DATA_DIR": str(tmp_path / "data"),
    }
    postgres = load(env).postgres
    kept = Path(postgres.parameters()["sslrootcert"])
    assert postgres.ssl_trust == "supplied-ca"
    assert postgres.parameters()["sslmode"] == "verify-full"
    assert kept.read_text() == certificate
    assert kept.stat().st_mode & 0o777 == 0o600
    assert load(env) == load(env)


@pytest.mark.parametrize("pem", ["garbage", "-----BEGIN CERTIFICATE-----\nAA==\n"])
def test_a_malformed_root_certificate_stops_the_start(pem: str):
    assert problems(**OWN, PG_USE_SSL="1", PG_SSL_ROOT_CERT=pem)


# --- what is shown ----------------------------------------------------------------------------


def test_no_secret_is_shown():
    env = {**OWN, "PG_PASSWORD": "hunter2", "QUEEN_SECRET_KEY": "sesame"}
    shown = repr(load(env).describe())
    assert "hunter2" not in shown
    assert "sesame" not in shown
    assert load(env).describe()["postgres"]["PG_PASSWORD"] == "<set:7 chars>"
    assert load({}).describe()["postgres"]["PG_PASSWORD"] == "<unset>"


def test_a_host_has_no_password_and_one_that_has_is_not_shown():
    for host in ("me:word@db", "postgres://me:word@db/x", "db1,me:word@db2"):
        [told] = problems(PG_HOST=host)
        assert told.startswith("PG_HOST=") and "word" not in told.partition(" ")[0]
    assert load({"PG_HOST": "@/queen/abstract"}).postgres.hosts == ("@/queen/abstract",)


def test_every_setting_is_shown_under_a_name_that_sets_it():
    for part, values in Config().describe().items():
        assert values, part
        assert all(name.replace("_", "").isupper() for name in values)


def test_an_open_listener_is_warned_about():
    assert any("without authentication" in warning for warning in environment.warnings(load({})))
    assert not environment.warnings(load({"QUEEN_BIND_ADDR": "127.0.0.1"}))
    assert not environment.warnings(load({"QUEEN_BIND_ADDR": "::1"}))


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("info", {"": "INFO"}),
        ("warn,queen::pop=debug", {"": "WARNING", "brokers.services.pop": "DEBUG"}),
        ("queen=trace", {"brokers": "DEBUG"}),
        ("off,brokers.store=error", {"": "CRITICAL", "brokers.store": "ERROR"}),
    ],
)
def test_a_log_filter_names_loggers(text: str, levels: dict[str, str]):
    assert dict(load({"LOG_LEVEL": text}).logging.levels) == levels


def test_one_log_variable_overrides_the_other():
    config = load({"LOG_LEVEL": "info", "RUST_LOG": "error"})
    assert dict(config.logging.levels) == {"": "ERROR"}


# --- where things lie -------------------------------------------------------------------------


def test_a_socket_path_stays_within_its_limit():
    short = embedded_paths.socket_dir(Path("/srv/queen"))
    assert short == Path("/srv/queen/postgres-socket")
    long = embedded_paths.socket_dir(Path("/srv") / ("x" * 200))
    assert long.parent == Path("/tmp")
    assert long == embedded_paths.socket_dir(Path("/srv") / ("x" * 200))
    assert long != embedded_paths.socket_dir(Path("/srv") / ("y" * 200))


def test_a_relative_data_directory_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert load({"QUEEN_DATA_DIR": "here"}).paths.data_dir == tmp_path / "here"


def test_without_peers_the_mesh_needs_no_secret():
    mesh = load(OWN).mesh
    assert mesh.enabled and mesh.peers == () and mesh.addresses == ()
    assert (mesh.port, mesh.bind_addr) == (6633, "0.0.0.0")
    assert (mesh.heartbeat_ms, mesh.dead_threshold_ms) == (1000, 5000)


@pytest.mark.parametrize("name", ["QUEEN_MESH_PEERS", "QUEEN_UDP_PEERS"])
def test_peers_are_hosts_with_or_without_a_port(name: str):
    env = OWN | {
        name: "queen-b, queen-c:7001,[::1]:7002,fe80::2,[fe80::3]",
        "QUEEN_SYNC_SECRET": "x",
    }
    assert load(env | {"QUEEN_UDP_NOTIFY_PORT": "7000"}).mesh.addresses == (
        ("queen-b", 7000),
        ("queen-c", 7001),
        ("::1", 7002),
        ("fe80::2", 7000),
        ("fe80::3", 7000),
    )


@pytest.mark.parametrize("peers", ["a,", "a:0", "a:70000", "a:b", "http://a", "[::1]x", "a b"])
def test_a_peer_that_is_no_address_stops_the_start(peers: str):
    [told] = problems(**OWN, QUEEN_MESH_PEERS=peers, QUEEN_SYNC_SECRET="x")
    assert "QUEEN_MESH_PEERS" in told


def test_a_mesh_that_anybody_could_join_stops_the_start():
    peers = OWN | {"QUEEN_MESH_PEERS": "queen-b"}
    [told] = problems(**peers)
    assert "QUEEN_SYNC_SECRET" in told and "QUEEN_SYNC_INSECURE" in told
    assert load(peers | {"QUEEN_SYNC_SECRET": "x" * 32}).mesh.peers
    assert load(peers | {"QUEEN_MESH_BIND_ADDR": "127.0.0.1"}).mesh.peers
    assert load(peers | {"QUEEN_BIND_ADDR": "::1"}).mesh.peers
    assert load(peers | {"QUEEN_SYNC_ENABLED": "false"}).mesh.peers
    open_to_all = load(peers | {"QUEEN_SYNC_INSECURE": "true"})
    assert any("QUEEN_SYNC_INSECURE" in one for one in environment.warnings(open_to_all))


def test_the_secret_of_the_mesh_is_never_printed_and_a_short_one_is_told_of():
    config = load(OWN | {"QUEEN_SYNC_SECRET": "hush"})
    assert "hush" not in str(config.describe()) + repr(config)
    assert any("QUEEN_SYNC_SECRET" in one for one in environment.warnings(config))


def test_a_peer_is_not_dead_before_a_second_heartbeat_is_due():
    env = {"QUEEN_SYNC_HEARTBEAT_MS": "3000", "QUEEN_SYNC_DEAD_THRESHOLD_MS": "3000"}
    assert load(OWN | env).mesh.dead_threshold_ms == 6000


def test_a_worker_is_a_replica_with_an_id_and_a_spool_of_its_own(tmp_path: Path):
    one = load(
        {**OWN, "QUEEN_DATA_DIR": str(tmp_path), "QUEEN_SERVER_ID": "a", "QUEEN_WORKERS": "2"}
    )
    workers = [environment.for_worker(one, number, run_dir=tmp_path) for number in range(2)]
    assert [worker.server.server_id for worker in workers] == ["a/0", "a/1"]
    directories = [worker.spool_directory for worker in workers]
    assert directories == [tmp_path / "spool" / "a%2F0", tmp_path / "spool" / "a%2F1"]
    assert all(worker.worker_spool_directories == set(directories) for worker in workers)


def test_workers_share_a_spool_directory_that_was_given(tmp_path: Path):
    given = {**OWN, "FILE_BUFFER_DIR": str(tmp_path), "QUEEN_SERVER_ID": "a", "QUEEN_WORKERS": "2"}
    worker = environment.for_worker(load(given), 1, run_dir=tmp_path)
    assert worker.spool_directory == tmp_path / "a%2F1"
    alone = load({**given, "QUEEN_WORKERS": "1"})
    assert alone.spool_directory == tmp_path and not alone.worker_spool_directories


def test_the_ids_of_all_workers_must_fit():
    assert load({**OWN, "QUEEN_SERVER_ID": "i" * 255}).server.server_id
    [told] = problems(**OWN, QUEEN_SERVER_ID="i" * 254, QUEEN_WORKERS="2")
    assert "QUEEN_SERVER_ID" in told
