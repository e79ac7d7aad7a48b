"""What every file must keep to, held by reading the files.

The direction of imports is `lint-imports` (pyproject.toml); it is run here too, so that a
test run alone cannot miss it.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ["queen_project", "brokers", "mesh", "spool"]
PROCEDURES = PROJECT / "brokers" / "sql" / "procedures"

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 80
PROCEDURE_LINES_MAX = 400
SQL_VERB = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|MERGE)\b")
JUNK_ROOMS = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"}

# Newer than PostgreSQL 15, which is the oldest that we serve; or an extension, or ICU.
TOO_NEW = {
    "uuidv7, uuidv4 (18)": r"\buuidv[47]\s*\(",
    "uuid_extract (17)": r"\buuid_extract_\w+\s*\(",
    "MERGE ... RETURNING, merge_action (17)": r"\bmerge_action\s*\(|\bMERGE\b[^;]*\bRETURNING\b",
    "RETURNING OLD/NEW (18)": r"\bRETURNING\s+(WITH\s*\(|OLD\.|NEW\.)",
    "ANY_VALUE (16)": r"\bany_value\s*\(",
    "SQL/JSON queries (17)": r"\bJSON_(TABLE|QUERY|VALUE|EXISTS|SCALAR|SERIALIZE)\s*\(",
    "SQL/JSON constructors (16)": r"\bJSON_(ARRAYAGG|OBJECTAGG)\s*\(|\bIS\s+(NOT\s+)?JSON\b",
    "pg_input_is_valid (16)": r"\bpg_input_(is_valid|error_info)\s*\(",
    "array_shuffle, array_sample (16)": r"\barray_(shuffle|sample|sort|reverse)\s*\(",
    "random_normal (16)": r"\brandom_normal\s*\(",
    "random with bounds (17)": r"\brandom\s*\(\s*[^)\s]",
    "date_add, date_subtract (16)": r"\bdate_(add|subtract)\s*\(",
    "to_bin, to_oct (17)": r"\bto_(bin|oct)\s*\(",
    "crc32 (18)": r"\bcrc32c?\s*\(",
    "casefold (18)": r"\bcasefold\s*\(",
    "SYSTEM_USER (16)": r"\bsystem_user\b",
    "pg_stat_io, pg_stat_checkpointer (16, 17)": r"\bpg_stat_(io|checkpointer)\b",
    "numbers with underscores or a radix (16)": r"(?<![\w$.])(\d+_\d+|0[xob][0-9a-fA-F]+)\b",
    "an extension": r"\bCREATE\s+EXTENSION\b|\bgen_salt\b|\bpgp_\w+\s*\(|\bdigest\s*\(",
    "ICU or lz4": r"\bprovider\s*=\s*icu\b|\blz4\b",
}


def python_files() -> Iterator[Path]:
    yield PROJECT / "manage.py"
    for package in PACKAGES:
        yield from sorted((PROJECT / package).rglob("*.py"))


def sql_texts() -> Iterator[tuple[Path, str]]:
    """Procedures, and every string in Python that could be SQL; comments left out."""
    for path in sorted(PROCEDURES.glob("*.sql")):
        yield path, re.sub(r"--[^\n]*", "", path.read_text())
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and SQL_VERB.search(text):
                yield path, re.sub(r"--[^\n]*", "", text)


def shown(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def test_imports_go_one_way():
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(lint)], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_configuration_looks_at_the_environment():
    """Naming the settings module before Django starts is not looking."""
    looking = []
    for path in python_files():
        if shown(path) == "queen_project/config.py":
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            reads = re.search(r"\bos\.(environ|getenv|putenv)\b|\bfrom os import\b.*env", line)
            if reads and 'environ.setdefault("DJANGO_SETTINGS_MODULE"' not in line:
                looking.append(f"{shown(path)}:{number}")
    assert not looking


def test_there_is_no_junk_room():
    assert not [shown(path) for path in python_files() if path.name in JUNK_ROOMS]


def test_no_file_has_outgrown_its_noun():
    sizes = {shown(path): path.read_text().count("\n") for path in python_files()}
    assert not {name: size for name, size in sizes.items() if size > FILE_LINES_MAX}
    sizes = {path.name: path.read_text().count("\n") for path in PROCEDURES.glob("*.sql")}
    assert not {name: size for name, size in sizes.items() if size > PROCEDURE_LINES_MAX}


def test_no_function_has_outgrown_a_screen():
    long = []
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno > FUNCTION_LINES_MAX:
                    long.append(f"{shown(path)}:{node.lineno} {node.name}")
    assert not long


def test_every_module_says_what_it_is():
    silent = [
        shown(path)
        for path in python_files()
        if path.read_text().strip()
        and "migrations" not in path.parts
        and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


@pytest.mark.parametrize("what", TOO_NEW)
def test_the_sql_runs_on_postgresql_15(what: str):
    pattern = re.compile(TOO_NEW[what], re.IGNORECASE)
    assert not [shown(path) for path, text in sql_texts() if pattern.search(text)]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("uuidv7, uuidv4 (18)", "SELECT uuidv7()"),
        ("MERGE ... RETURNING, merge_action (17)", "MERGE INTO a USING b ON c RETURNING a.id"),
        ("random with bounds (17)", "SELECT random(1, 6)"),
        ("numbers with underscores or a radix (16)", "SELECT 1_000"),
        ("SQL/JSON queries (17)", "SELECT * FROM JSON_TABLE(x, '$')"),
    ],
)
def test_what_is_too_new_would_be_found(what: str, text: str):
    assert re.search(TOO_NEW[what], text, re.IGNORECASE)


@pytest.mark.parametrize("text", ["SELECT random() * 5", "INSERT INTO queen_kv_1 VALUES (p_1_2)"])
def test_what_is_old_enough_is_let_through(text: str):
    assert not [what for what, p in TOO_NEW.items() if re.search(p, text, re.IGNORECASE)]


def test_every_procedure_is_called():
    """By store/, or by another procedure. One that nobody calls is edited by mistake some day."""
    callers = {path.name: path.read_text() for path in (PROJECT / "brokers/store").rglob("*.py")}
    procedures = {path.stem: path.read_text() for path in PROCEDURES.glob("*.sql")}
    for file, text in procedures.items():
        for name in defined_in(text):
            others = [body for other, body in procedures.items() if other != file]
            # Within its own file it is named once more than it is created and commented.
            own = re.sub(r"--[^\n]*", "", text).count(name) > 1
            called = any(name in body for body in [*callers.values(), *others])
            assert called or own, f"{name} of {file}.sql is called by nobody"


def test_every_procedure_has_its_own_file_and_its_version():
    for path in PROCEDURES.glob("*.sql"):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", path.stem), path.name
        for name in defined_in(path.read_text()):
            assert re.fullmatch(r"queen_[a-z0-9_]+_v\d+", name), f"{name} in {path.name}"


def defined_in(text: str) -> list[str]:
    pattern = r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE)\s+(\w+)"
    return re.findall(pattern, text, re.IGNORECASE)
