"""The pages of the documentation: their Python blocks run in order, in one namespace for each page.

A block fenced as `text` holds what the Python block before it prints. Headings, links and anchors are read the way
GitHub does.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import cast

from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_PRINTED = "__printed__"
_FENCED = re.compile(r"^( *)(```+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"!?\[(?:[^\]]*)\]\(([^)\s]+)\)")


def page_name(page: Path) -> str:
    """Name a page as the repository does: `docs/tools.md`."""
    return page.relative_to(ROOT).as_posix()


def run_page(page: Path) -> None:
    """Run the page's blocks, and compare what they print with what the page shows."""
    document = Document.parse(str(page), CodeBlockParser("python", _run), CodeBlockParser("text", _compare))
    document.namespace.update({"__name__": "__main__", _PRINTED: ""})
    for example in document.examples():
        example.evaluate()


def python_blocks(page: Path) -> Iterator[str]:
    """Give the source of each Python block."""
    for example in Document.parse(str(page), CodeBlockParser("python", _run)).examples():
        yield str(example.parsed)


def printed_blocks(page: Path) -> Iterator[str]:
    """Give each block that shows what a program prints."""
    for example in Document.parse(str(page), CodeBlockParser("text", _compare)).examples():
        yield str(example.parsed)


def _run(example: Example) -> None:
    code = compile("\n" * example.line + str(example.parsed), example.path, "exec", dont_inherit=True)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, example.namespace)
    example.namespace[_PRINTED] = printed.getvalue()


def _compare(example: Example) -> str | None:
    expected, printed = str(example.parsed), cast("str", example.namespace[_PRINTED])
    if printed == expected:
        return None
    return f"the page shows:\n{expected}\nthe block before it prints:\n{printed}"


# -- the text around the blocks ---------------------------------------------------------------------------------------


def prose(page: Path) -> str:
    """Return the page's text with the inside of fenced blocks blanked out, line for line."""
    return _FENCED.sub(lambda block: "\n" * block.group().count("\n"), page.read_text(encoding="utf-8"))


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
    """Return the targets of the page's links to files of the repository and to anchors."""
    return [target for target in _LINK.findall(prose(page)) if "://" not in target]
