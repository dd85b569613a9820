"""The pages of the documentation: their Python blocks run in order, in one namespace for each page.

A block fenced as `text` holds what the Python block before it prints. Headings, links and anchors are read the way
GitHub does.
"""

import ast
import asyncio
import inspect
import io
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser

from hatch_build import FENCED

ROOT = Path(__file__).parent.parent.parent
_HATCH = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
ADDRESS: str = _HATCH["metadata"]["hooks"]["custom"]["address"]
"""Where the repository can be read; "" as long as it has no public home."""
GUIDES = tuple(sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"))
"""Without the reference, whose pages are made of docstrings."""
PAGES = (ROOT / "README.md", *GUIDES)

_PRINTED = "__printed__"
_RUNNER = "__runner__"
_HEADING = re.compile(r"^(#+) +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"!?\[(?:[^\]]*)\]\(([^)\s]+)\)")


def page_name(page: Path) -> str:
    """Name a page as the repository does: `docs/tools.md`."""
    return page.relative_to(ROOT).as_posix()


def run_page(page: Path) -> None:
    """Run the page's blocks, and compare what they print with what the page shows.

    What they set in the environment is gone after them."""
    document = Document.parse(str(page), CodeBlockParser("python", _run), CodeBlockParser("text", _compare))
    surroundings = dict(os.environ)
    try:
        with asyncio.Runner() as runner:  # for blocks that await outside of functions, as cells of a notebook do
            document.namespace.update({"__name__": "__main__", _PRINTED: "", _RUNNER: runner})
            for example in document.examples():
                example.evaluate()
    finally:  # a block may set a key
        os.environ.clear()
        os.environ.update(surroundings)


def python_blocks(page: Path) -> Iterator[str]:
    """Give the source of each Python block."""
    for example in Document.parse(str(page), CodeBlockParser("python", _run)).examples():
        yield str(example.parsed)


@dataclass(frozen=True, slots=True)
class Program:
    """A Python block that is a program of its own."""

    source: str
    printed: str
    """What the page says that it prints; empty if it does not say."""


_PROGRAM = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?|^#+ +([^\n]+)$", re.MULTILINE | re.DOTALL)


def programs(page: Path) -> Iterator[tuple[str, Program]]:
    """Give each Python block under the heading that it stands below; the second one below it has a 2 behind."""
    heading, number = "", 0
    for found in _PROGRAM.finditer(page.read_text(encoding="utf-8")):
        source, printed, title = found.groups()
        if title:
            heading, number = title, 0
        else:
            number += 1
            yield heading if number == 1 else f"{heading} {number}", Program(source, printed or "")


def _run(example: Example) -> None:
    source = "\n" * example.line + str(example.parsed)
    code = compile(source, example.path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    printed = io.StringIO()
    with redirect_stdout(printed):
        done = eval(code, example.namespace)
        if code.co_flags & inspect.CO_COROUTINE:
            cast("asyncio.Runner", example.namespace[_RUNNER]).run(done)
    example.namespace[_PRINTED] = printed.getvalue()


def _compare(example: Example) -> str | None:
    expected, printed = str(example.parsed), cast("str", example.namespace[_PRINTED])
    if printed == expected:
        return None
    return f"the page shows:\n{expected}\nthe block before it prints:\n{printed}"


def prose(page: Path) -> str:
    """Return the page's text with the inside of fenced blocks blanked out, line for line."""
    return FENCED.sub(lambda block: "\n" * block.group().count("\n"), page.read_text(encoding="utf-8"))


def headings(page: Path) -> list[tuple[int, str]]:
    """Return the page's headings, each with the offset in its prose at which it stands."""
    return [(found.start(), found.group(2)) for found in _HEADING.finditer(prose(page))]


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.lower())
    return words.replace(" ", "-")


def section(page: Path, heading: str) -> str:
    """Return the text under a heading, down to the next heading of the same level or above."""
    text = prose(page)
    found = re.search(rf"^(#+) +{re.escape(heading)} *$", text, re.MULTILINE)
    assert found, f"{page.name} has no heading {heading!r}."
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found.group(1))}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def links(page: Path) -> list[str]:
    """Return the targets of the page's links to files of the repository and to anchors, seen from the page's folder."""
    return [target for target in _LINK.findall(prose(page)) if "://" not in target]
