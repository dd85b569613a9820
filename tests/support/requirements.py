"""The map from each requirement to what holds it: tests that cite its number, or sections of pages.

A test cites with a comment (`# R45, D14`, `# R28-R30`) in or right above it; a page with an HTML comment under a
heading (`<!-- R62 -->`). `python -m tests.support.requirements` rewrites the map at the end of
docs/contributing/requirements.md.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.pages import ROOT, anchor, headings, prose

PAGE = ROOT / "docs" / "contributing" / "requirements.md"
MAP = "## Where each is held"

LAST = {"R": 79, "X": 40, "A": 48, "D": 49}
NUMBERS = tuple(f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1))

ADVICE = frozenset({"R62", "R69", "R71", "R72", "R73", "X18", "D46", "D48", "D49"})
"""What a page may hold: guidance and documentation. Anything else takes a test."""

_CITED = re.compile(r"\b([RXAD])(\d{1,2})(?:(?:-| to )\1?(\d{1,2}))?\b")
_MAY_CITE = re.compile(r"#.*\b[RXAD]\d")
"""Found wherever a comment cites a number. To take a file apart takes long, and many cite none."""
_PAGE_MARK = re.compile(r"<!--(.*?)-->")
_STATED = re.compile(r"^\| ([RXAD]\d+) \| \S.*\|$", re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Where a number is held: a place in a file."""

    path: str
    """From the root of the repository."""
    line: int
    name: str
    """The test's name, or the page's heading; empty when the comment belongs to no test."""


def cited(text: str) -> Iterator[str]:
    """Give every number that a comment cites, those within a range included."""
    for letter, first, last in _CITED.findall(text):
        for number in range(int(first), int(last or first) + 1):
            yield f"{letter}{number}"


def holders_in_tests(folder: Path = ROOT / "tests") -> Iterator[tuple[str, Holder]]:
    """Give each number that a comment in the tests cites, with the test that the comment belongs to."""
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not _MAY_CITE.search(source):
            continue
        spans = _tests(ast.parse(source))
        for line, comment in _comments(source):
            for number in cited(comment):
                name_line, name = _owner(spans, line)
                yield number, Holder(path.relative_to(folder.parent).as_posix(), name_line, name)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _tests(tree: ast.Module) -> list[tuple[int, int, str]]:
    """Return each function at the top, or in a class there, as first line, last line and name, decorators included."""
    nodes = [inner for node in tree.body for inner in (node.body if isinstance(node, ast.ClassDef) else [node])]
    return [
        (min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.end_lineno or node.lineno, node.name)
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _owner(spans: list[tuple[int, int, str]], line: int) -> tuple[int, str]:
    """Return the test around a line, or right below it; (0, "") when there is none."""
    for first, last, name in spans:
        if first - 3 <= line <= last and name.startswith("test_"):
            return first, name
    return 0, ""


def holders_in_pages(folder: Path = ROOT / "docs") -> Iterator[tuple[str, Holder]]:
    """Give each number that a page cites, with the heading above the citation."""
    for page in sorted(folder.rglob("*.md")):
        text = prose(page)
        for mark in _PAGE_MARK.finditer(text):
            above = [heading for start, heading in headings(page) if start < mark.start()]
            for number in cited(mark.group(1)):
                path = page.relative_to(folder.parent).as_posix()
                yield number, Holder(path, text.count("\n", 0, mark.start()), above[-1])


@cache
def holders() -> dict[str, list[Holder]]:
    """Return who holds each number, in the order of the numbers."""
    found: dict[str, set[Holder]] = {number: set() for number in NUMBERS}
    for number, holder in (*holders_in_tests(), *holders_in_pages()):
        found.setdefault(number, set()).add(holder)
    return {number: sorted(each) for number, each in found.items()}


def stated() -> list[str]:
    """Return the numbers that the page states, in its order."""
    return _STATED.findall(PAGE.read_text(encoding="utf-8").partition(MAP)[0])


def written_map() -> str:
    """Return the last part of the page, as it should be."""
    rows = [f"| {number} | {_cell(each)} |" for number, each in holders().items()]
    return "\n".join([MAP, "", "| | |", "|---|---|", *rows, ""])


def _cell(found: list[Holder]) -> str:
    by_path: dict[str, list[str]] = {}
    for holder in found:
        names = by_path.setdefault(holder.path, [])
        if holder.name and holder.name not in names:
            names.append(holder.name)
    return "; ".join(_file(path, names) for path, names in by_path.items())


def _file(path: str, names: list[str]) -> str:
    if path.startswith("docs/"):
        page = path.removeprefix("docs/contributing/")
        page = page if page != path else f"../{path.removeprefix('docs/')}"
        return ", ".join(f"[{name}]({page}#{anchor(name)})" for name in names)
    link = f"[{path.removeprefix('tests/')}](../../{path})"
    return f"{link}: {', '.join(f'`{name}`' for name in names)}" if names else link


def rewrite() -> None:
    """Bring the map in the page up to date."""
    above = PAGE.read_text(encoding="utf-8").partition(MAP)[0]
    PAGE.write_text(above + written_map(), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
