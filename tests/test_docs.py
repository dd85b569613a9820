"""README and docs say what is true: every block runs and prints what the page shows, every link leads somewhere."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from inspect import Parameter, get_annotations, signature
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest

import journeyman
from journeyman.endings import Context, ErrorCode
from journeyman.events import CallbackContext, Callbacks, Event
from journeyman.result import Metadata
from journeyman.tools.tools import ToolOptions
from tests.cli.program import QUICK_PYTEST
from tests.support import pages
from tests.support.site import UNPUBLISHED
from tests.test_architecture import declared

DOCS = pages.ROOT / "docs"
SOURCE = pages.ROOT / "src" / "journeyman"


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in QUICK_PYTEST.items():
        monkeypatch.setenv(variable, value)


@pytest.mark.timeout(60)  # a page may start programs of others
@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize("page", pages.GUIDES, ids=pages.page_name)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page: Path) -> None:  # X18, R69, R70
    pages.run_page(page)


def test_the_keyless_program_of_the_readme_runs_as_a_file_and_prints_what_follows_it(tmp_path: Path) -> None:
    keyless = dict(pages.programs(pages.ROOT / "README.md"))["A first program"]
    program = tmp_path / "program.py"
    program.write_text(keyless.source, encoding="utf-8")
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == ("", keyless.printed)


def test_every_name_of_the_front_page_is_used_in_a_block_that_runs() -> None:
    used = {name for page in pages.PAGES for block in pages.python_blocks(page) for name in names_in(block)}
    assert [name for name in journeyman.__all__ if name not in used] == []


def names_in(source: str) -> set[str]:
    """Return the names that the code imports, reads or looks up."""
    nodes = list(ast.walk(ast.parse(source)))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return imported | {node.id for node in nodes if isinstance(node, ast.Name)}


LINKING = (*pages.PAGES, *(pages.ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")))


@pytest.mark.parametrize("page", LINKING, ids=pages.page_name)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert [target for target in pages.links(page) if not leads_somewhere(page, target)] == []


def leads_somewhere(page: Path, target: str) -> bool:
    name, _, fragment = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.exists():
        return False
    return not fragment or fragment in {pages.anchor(heading) for _, heading in pages.headings(path)}


def test_every_module_that_a_page_names_exists() -> None:
    named = {(page.name, name) for page in pages.PAGES for name in re.findall(r"`(\w+\.py)`", pages.prose(page))}
    files = {path.name for folder in ("src", "examples", "tests") for path in (pages.ROOT / folder).rglob("*.py")}
    assert {(page, name) for page, name in named if name not in files | {"agents.py", "coder.py"}} == set()


def test_every_page_is_linked_from_the_index() -> None:
    linked = {DOCS / target.partition("#")[0] for target in pages.links(DOCS / "index.md")}
    of_the_site = {*pages.GUIDES} - UNPUBLISHED - {DOCS / "index.md"}
    assert sorted(pages.page_name(page) for page in of_the_site - linked) == []
    assert linked & UNPUBLISHED == set()


MAY_BE_LONG = {"docs/contributing/requirements.md": "it is written by a program, a row for each requirement"}


def test_no_page_is_longer_than_one_reads_at_once() -> None:
    lengths = {pages.page_name(page): len(page.read_text(encoding="utf-8").splitlines()) for page in pages.PAGES}
    assert {name: length for name, length in lengths.items() if length > 350 and name not in MAY_BE_LONG} == {}


SOUGHT = (
    *("dependencies", "services", "streaming", "batch", "image", "logging", "tracing", "notebook", "connection"),
    *("testing", "eval", "security", "durable", "operations", "viewer", "sub-agent", "team", "task", "plain python"),
    *("pydantic-ai", "langgraph", "openai agents", "rate limit", "retries", "fastapi", "jupyter", "opentelemetry"),
    *("approval", "price", "pdf", "error", "pytest", "postgres", "mcp"),
)


@pytest.mark.parametrize("word", SOUGHT)
def test_the_index_has_a_row_for_a_word_that_a_reader_looks_for(word: str) -> None:
    rows = [row.lower() for row in pages.prose(DOCS / "index.md").splitlines() if row.startswith("| [")]
    assert [row for row in rows if word in row] != []


def test_the_index_has_one_row_for_each_page() -> None:
    rows = [row for row in pages.prose(DOCS / "index.md").splitlines() if row.startswith("| [")]
    first = [re.findall(r"\(([^)]+)\)", row)[0] for row in rows]
    assert len(first) == len({*first})


CONTEXTS = {context.code: context for context in get_args(Context)}


@pytest.mark.parametrize("code", ErrorCode)
def test_the_endings_page_has_every_code_with_its_context_and_all_its_facts(code: ErrorCode) -> None:  # R39, X27, X28
    text, context = pages.section(DOCS / "endings.md", code), CONTEXTS[code]
    facts = [context.__name__, *(field.name for field in fields(context))]
    assert [fact for fact in facts if f"`{fact}`" not in text] == []


def test_the_endings_page_names_no_code_that_does_not_exist_and_the_readme_says_how_many_there_are() -> None:
    on_page = {heading for _, heading in pages.headings(DOCS / "endings.md") if heading.isupper()}
    assert on_page == {*ErrorCode}
    assert f"[{len(ErrorCode)} codes]" in pages.prose(pages.ROOT / "README.md")


def test_the_endings_page_has_every_code_of_a_definition_problem() -> None:  # X29, A43
    text = pages.section(DOCS / "endings.md", "What is raised")
    listed = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", text))
    assert listed == problem_codes()


def problem_codes() -> set[str]:
    """Return the codes of every `Problem(…)` in the package, and of what makes one."""
    codes: set[str] = set()
    sources = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    for source in sources:
        if not re.search(r"\b(Problem|(function|function_or_deps)_problem|(field|value)_problems|_choice)\(", source):
            continue  # to take all files apart takes two seconds
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(
                    func=ast.Name("Problem" | "field_problems" | "value_problems"), args=[ast.Constant(str(code)), *_]
                ):
                    codes.add(code)
                case ast.Call(func=ast.Name("function_problem" | "function_or_deps_problem" | "_choice")):
                    keywords = [each.value for each in node.keywords if each.arg == "code"]
                    codes |= {str(each.value) for each in keywords if isinstance(each, ast.Constant)}
                case _:
                    continue
    return codes | {"INVALID_FUNCTION"}  # what `function_problem` says by default


def test_the_page_on_events_has_every_event_and_callback() -> None:
    text = (DOCS / "callbacks-and-events.md").read_text(encoding="utf-8")
    events = [event.__name__ for event in get_args(Event)]
    callbacks = [field.name for field in fields(Callbacks)]
    assert [name for name in chain(events, callbacks) if not re.search(rf"\b{name}\b", text)] == []


OPTIONS = (
    *(journeyman.Agent, journeyman.Runtime, journeyman.Output, journeyman.Reflection, journeyman.SubmitTool),
    *(journeyman.Limits, journeyman.Budget, journeyman.ModelSettings, Metadata),
    ToolOptions,
)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.__name__)
def test_every_option_is_explained_on_a_page(options: type) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages.PAGES if page.name != "requirements.md")
    names = [name for name in get_annotations(options) if not name.startswith("_")]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(
    "documented",
    [
        *(journeyman.Tool, journeyman.tool, journeyman.Output, journeyman.Reflection, journeyman.SubmitTool, Callbacks),
        *(CallbackContext, journeyman.ToolContext),
    ],
)
def test_the_configuration_of_tools_and_the_callbacks_have_docstrings(documented: type) -> None:  # R71
    written_by_itself = f"{documented.__name__}("  # how a dataclass documents itself when nobody else does
    assert not (documented.__doc__ or written_by_itself).startswith(written_by_itself)


def test_the_names_page_names_only_what_exists() -> None:
    exists = everything_named(SOURCE)
    ours = [
        row.split("|")[2] for row in pages.prose(DOCS / "contributing" / "names.md").splitlines() if row.startswith("|")
    ]
    names = {name for cell in ours for code in re.findall(r"`([^`]+)`", cell) for name in words(code)}
    assert names - exists == set()


def everything_named(folder: Path) -> set[str]:
    """Return every identifier and string word in the folder's modules."""
    return {word for path in folder.rglob("*.py") for word in words(path.read_text(encoding="utf-8"))}


def words(code: str) -> list[str]:
    return re.findall(r"[A-Za-z_]{2,}", code)


@pytest.mark.parametrize("broken", ["[a](nowhere.md)", "[a](#nowhere)"])
def test_a_planted_broken_link_is_found(broken: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Somewhere\n\n{broken} [b](#somewhere) [c](page.md)\n", encoding="utf-8")
    assert [target for target in pages.links(page) if not leads_somewhere(page, target)] == [broken[4:-1]]


PLANTED: dict[str, Callable[[str], str]] = {
    "a raising block": lambda fence: f"{fence}python\n1 / 0\n{fence}\n",
    "another output": lambda fence: f"{fence}python\nprint(1)\n{fence}\n\n{fence}text\n2\n{fence}\n",
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_wrong_block_is_found(kind: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PLANTED[kind]("```"), encoding="utf-8")
    with pytest.raises((ZeroDivisionError, AssertionError)):
        pages.run_page(page)


SPAN = re.compile(r"`([^`\n]+)`")
CALL = re.compile(r"(?<![\w.])(\w+)\(((?:[^()`]|\([^()`]*\))*)\)")
INSIDE = re.compile(r"\([^()]*\)|\"[^\"]*\"|'[^']*'|\{[^{}]*\}|\[[^\[\]]*\]")
NAMED = re.compile(r"(?<![\w.])(\w+)=(?!=)")
ATTRIBUTE = re.compile(r"(?<![\w.])([A-Z]\w+)\.([a-z]\w*)")
OF_OTHERS = ("coming-from-", "requirements.md")
"""Pages that show the calls of other libraries, or the words of the product documents."""


@cache
def public_objects() -> Mapping[str, object]:
    homes = {
        name: "journeyman" if home == "__init__" else f"journeyman.{home}"
        for home, names in declared().items()
        for name in names
    }
    return {name: getattr(import_module(home), name) for name, home in homes.items()}


def missing_in_words(text: str) -> Iterator[str]:
    """Give the arguments and attributes of public names that stand in the code between words, and are not there."""
    for span in SPAN.findall(text):
        for name, inside in CALL.findall(span):
            known = arguments_of(public_objects().get(name))
            yield from (
                f"{name}({each}=)" for each in NAMED.findall(INSIDE.sub("", inside)) if known and each not in known
            )
        for name, attribute in ATTRIBUTE.findall(span):
            made = public_objects().get(name)
            is_there = isinstance(made, type) and any(attribute in get_annotations(each) for each in made.__mro__)
            if isinstance(made, type) and not is_there and not hasattr(made, attribute):
                yield f"{name}.{attribute}"


@cache
def arguments_of(made: object) -> frozenset[str]:
    try:
        every = signature(made).parameters  # pyright: ignore[reportArgumentType] - what has none raises
    except (TypeError, ValueError):
        return frozenset()
    return frozenset() if any(each.kind is Parameter.VAR_KEYWORD for each in every.values()) else frozenset(every)


def test_the_code_between_words_names_what_is_there() -> None:
    files = [*pages.PAGES, *sorted(SOURCE.rglob("*.py"))]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files if not file.name.startswith(OF_OTHERS)}
    assert {f"{name}: {each}" for name, text in texts.items() for each in missing_in_words(text)} == set()


@pytest.mark.parametrize(
    "planted", ["Runtime(approve=)", "RateLimitedModel(concurrency=)", "Runtime.record", "run(host=)"]
)
def test_an_old_word_between_words_is_found(planted: str) -> None:
    assert [
        *missing_in_words(f"Take `{planted}`, but `Limits(calls=f(x=1))`, `durable.run(id=…)` and `Runtime.gate`.")
    ] == [planted]
