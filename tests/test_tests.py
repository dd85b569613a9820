"""The rules for the tests themselves: how long they may be, what collecting them loads, and what they may not pin."""

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
SKIPPED = {"__pycache__", "node_modules"}

MOST_LINES = {"tests": 111_900, "tools": 600, "in files without a test": 23_000}
"""These numbers only fall."""
SLACK = 1_500
"""So many lines below a number, it is lowered: what was saved stays saved."""
TEST = re.compile(r"^ *(async )?def test_", re.MULTILINE)


@functools.cache
def sources(folder: Path) -> dict[str, str]:
    """Return the Python files below a folder, by their path in it."""
    found = sorted(path for path in folder.rglob("*.py") if not SKIPPED & {*path.parts})
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in found}


def count_lines(files: Mapping[str, str]) -> int:
    return sum(text.count("\n") for text in files.values())


def measured(tests: Mapping[str, str], tools: Mapping[str, str]) -> dict[str, int]:
    without = {name: text for name, text in tests.items() if not TEST.search(text)}
    return {"tests": count_lines(tests), "tools": count_lines(tools), "in files without a test": count_lines(without)}


def too_many(lines: Mapping[str, int]) -> list[str]:
    return [f"{what}: {n:,} lines, at most {MOST_LINES[what]:,}" for what, n in lines.items() if n > MOST_LINES[what]]


def test_the_tests_and_what_stands_around_them_become_shorter() -> None:
    lines = measured(sources(TESTS), sources(ROOT / "tools"))
    assert too_many(lines) == []
    assert {what: n for what, n in lines.items() if n < MOST_LINES[what] - SLACK} == {}, "Lower these in MOST_LINES."


@pytest.mark.parametrize(
    ("name", "planted", "found"),
    [
        ("loop/test_more.py", "def test_it() -> None: ...\n", ["tests"]),
        ("loop/players.py", "def play() -> None: ...\n", ["tests", "in files without a test"]),
    ],
)
def test_planted_lines_are_found(name: str, planted: str, found: list[str]) -> None:
    lines = measured({name: planted + "\n" * MOST_LINES["tests"]}, {})
    assert [each.partition(":")[0] for each in too_many(lines)] == found


HEAVY = ("anthropic", "google.genai", "griffe", "httpx2", "mcp", "openai", "pydantic_ai", "schemathesis", "uvicorn")
"""Packages that take long to load."""
MAY_LOAD = {
    "cli": ["griffe", "uvicorn"],
    "contracts": ["anthropic", "griffe", "httpx2", "openai", "pydantic_ai"],
    "docs": ["griffe"],
    "durable": ["uvicorn"],
    "mcp": ["httpx2", "mcp", "uvicorn"],
    "models": ["anthropic", "google.genai", "griffe", "httpx2", "openai", "pydantic_ai"],
    "otel": ["httpx2", "mcp", "uvicorn"],
    "serve": ["griffe", "httpx2", "mcp", "uvicorn"],
    "store": ["uvicorn"],
    "tools": ["griffe"],
    "values": ["uvicorn"],
    "view": ["griffe", "httpx2", "uvicorn"],
}
"""By room: what its test modules load when they are collected, because it is about that. The lists only shrink."""
ROOMS = sorted({name.partition("/")[0] for name in sources(TESTS) if re.search(r"/test_\w+\.py$", name)})


COLLECTING = """
import importlib, json, sys
folder, source, heavy, *names = sys.argv[1:]
opened = []
def hear(event, given):
    if event == "open" and str(given[0]).startswith(source) and "importlib" not in sys._getframe(1).f_code.co_filename:
        opened.append(str(given[0]).removeprefix(source))
sys.path.insert(0, folder)
sys.addaudithook(hear)
for name in ["pytest", *names]:
    importlib.import_module(name)
print()
print(json.dumps([[name for name in heavy.split() if name in sys.modules], sorted({*opened})]))
"""
"""Imports modules, and tells which heavy packages are loaded then, and which files of the package were read."""


def collected(modules: list[str], folder: Path = ROOT) -> list[list[str]]:
    """Return what a fresh process has loaded and read when it has imported these modules."""
    command = [sys.executable, "-c", COLLECTING, str(folder), f"{ROOT / 'src'}/", " ".join(HEAVY), *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.share(one_in=13)
@pytest.mark.parametrize("room", ROOMS)
def test_collecting_a_room_loads_what_it_is_about_and_reads_no_source(room: str) -> None:
    names = [name for name in sources(TESTS) if re.match(rf"{room}/(.+/)?test_\w+\.py$", name)]
    modules = ["tests.conftest", *("tests." + name.removesuffix(".py").replace("/", ".") for name in names)]
    assert collected(modules) == [MAY_LOAD.get(room, []), []]


def test_a_planted_import_and_a_file_that_is_read_are_found(tmp_path: Path) -> None:
    version = ROOT / "src" / "journeyman" / "machine" / "version.py"
    program = f"from journeyman.serve import create_app\nopen({str(version)!r}).close()\n"
    (tmp_path / "planted.py").write_text(program, encoding="utf-8")
    assert collected(["planted"], tmp_path) == [["uvicorn"], ["journeyman/machine/version.py"]]


def test_no_plugin_loads_what_only_one_program_needs() -> None:
    assert "schemathesis" not in sys.modules, "pyproject.toml leaves its plugin out."


FUTURE = "from __future__ import annotations\n"


def without_need(files: Mapping[str, str], folder: Path) -> list[str]:
    """Return the files that put off their annotations though each name in them is there when it is read."""
    putting_off = [name for name, text in files.items() if f"\n{FUTURE}" in f"\n{text}"]
    for name in putting_off:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(files[name].replace(FUTURE, ""), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--target-version",
        "py311",
        "--no-cache",
        "--quiet",
    ]
    rules = ["--select", "F821,TC004", "--output-format", "json", str(folder)]
    done = subprocess.run([*command, *rules], capture_output=True, text=True, check=False)
    needing = {Path(each["filename"]).relative_to(folder.resolve()).as_posix() for each in json.loads(done.stdout)}
    return [name for name in putting_off if name not in needing]


def test_annotations_are_put_off_only_where_a_name_comes_later(tmp_path: Path) -> None:
    assert without_need(sources(TESTS), tmp_path) == [], "Leave out `from __future__ import annotations`."


def test_a_planted_header_is_found(tmp_path: Path) -> None:
    files = {
        "needless.py": f"{FUTURE}\ndef f(a: int) -> None: ...\n",
        "needed.py": f"{FUTURE}\nclass A:\n    def f(self) -> A: ...\n",
        "without.py": "def f(a: int) -> None: ...\n",
    }
    assert without_need(files, tmp_path) == ["needless.py"]


TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")
TAMPER = "support/tamper.py"
SPEAKS_SQL = {
    "cli/test_durable_commands.py": 1,
    "durable/dispatchers.py": 5,
    "durable/test_postgres.py": 1,
    "durable/test_postgres_days.py": 2,
    "record/test_postgres_recordings.py": 2,
    "store/test_damage.py": 5,
    "store/test_file.py": 5,
    "store/test_postgres_client.py": 2,
    "store/test_postgres_sessions.py": 8,
    "store/test_redacted.py": 1,
    "store/test_store.py": 2,
    "support/postgres.py": 1,
    "view/pictures.py": 4,
    "view/test_browser_live.py": 1,
    "view/test_forgetting.py": 2,
}
"""By file: its statements that name one of our tables. They move to `tamper`, or go; the numbers only fall."""


@functools.cache
def statement() -> re.Pattern[str]:
    """Return what finds a statement that names a table of ours."""
    made = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.sql")]
    tables = {name for text in (*made, *sources(ROOT / "src").values()) for name in TABLE.findall(text)}
    return re.compile(rf"\b(?:FROM|INTO|UPDATE|TABLE|ONLY) +(?:{'|'.join(sorted(tables))}|(?:jm|rec)_\w+)\b")


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in docs:
            yield node.value if isinstance(node.value, str) else node.value.decode(errors="replace")


def statements(source: str) -> int:
    return sum(len(statement().findall(text)) for text in texts(ast.parse(source))) if statement().search(source) else 0


def test_sql_that_names_a_table_of_ours_stands_in_one_file() -> None:
    found = {name: statements(text) for name, text in sources(TESTS).items() if name not in (TAMPER, "test_tests.py")}
    assert {name: n for name, n in found.items() if n} == SPEAKS_SQL


@pytest.mark.parametrize(
    ("planted", "n"),
    [
        ('file.execute("UPDATE rec_format SET version = 99")', 1),
        ("connection.execute(b\"DELETE FROM jm_steps WHERE key = 'a'\")", 1),
        ('file.rows(f"SELECT n FROM jm_runs WHERE session = {n}")', 1),
        ('file.execute("SELECT 1 FROM accounts")', 0),
        ('"""An UPDATE records nothing."""', 0),
    ],
)
def test_planted_sql_is_found(planted: str, n: int) -> None:
    assert statements(planted) == n


def whole_logs(source: str) -> list[str]:
    """Return the comparisons of a whole line of the log, or of all of its lines, with anything but nothing."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
            sides = [node.left, *node.comparators]
            if any(is_log(each) for each in sides) and not any(ast.unparse(each) in ("[]", "''") for each in sides):
                found.append(ast.unparse(node))
    return found


def is_log(node: ast.expr) -> bool:
    """Whether an expression is a whole line of the log, or all of its lines."""
    match node:
        case ast.Call(func=ast.Attribute(attr="getMessage")) | ast.Attribute(ast.Name("caplog"), "text" | "messages"):
            return True
        case ast.Subscript(value, ast.Constant()) | ast.ListComp(elt=value):
            return is_log(value)
        case _:
            return False


def test_a_whole_line_of_the_log_is_never_compared() -> None:
    found = {name: whole for name, text in sources(TESTS).items() if "caplog" in text and (whole := whole_logs(text))}
    assert found == {}, "Ask for the level, what it is about and the value."


@pytest.mark.parametrize(
    ("planted", "is_found"),
    [
        ('assert caplog.messages == ["The store is full."]', True),
        ("assert caplog.messages[0] == said", True),
        ('assert "The store is full." == caplog.records[0].getMessage()', True),
        ('assert [each.getMessage() for each in caplog.records] == ["a", "b"]', True),
        ("assert caplog.messages == []", False),
        ('assert "full" in caplog.text', False),
        ('assert caplog.messages[0].count("full") == 1', False),
    ],
)
def test_a_planted_comparison_of_the_log_is_found(planted: str, is_found: bool) -> None:
    assert bool(whole_logs(planted)) == is_found
