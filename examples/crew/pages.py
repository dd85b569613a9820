"""What the crew hands in, and the pages that it is held to: quotations by line, links by where they lead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from posixpath import dirname, join, normpath

from pydantic import BaseModel, Field

_CITATION = re.compile(r"“([^”]+)” \(([^():\s]+):(\d+)\)")
_LINK = re.compile(r"\]\(([\w./-]*(?:#[\w-]+)?)\)")


class Finding(BaseModel):
    """A part of a line."""

    file: str
    line: int = Field(ge=1)
    quotation: str = Field(min_length=1)

    def cited(self) -> str:
        """Return it as notes cite it."""
        return f"“{self.quotation}” ({self.file}:{self.line})"

    @classmethod
    def cited_in(cls, text: str) -> list[Finding]:
        """Return what a text cites."""
        return [cls(file=file, line=int(line), quotation=said) for said, file, line in _CITATION.findall(text)]


class Findings(BaseModel):
    """What a scout hands in."""

    findings: list[Finding] = Field(max_length=3)


class Review(BaseModel):
    """What a reviewer hands in."""

    note: str
    removed: list[str] = []


class BrokenLink(BaseModel):
    """A link that leads nowhere."""

    page: str
    line: int = Field(ge=1)
    target: str


class LinkReport(BaseModel):
    """What a checker hands in."""

    pages: int = Field(ge=0)
    links: int = Field(ge=0)
    broken: list[BrokenLink]


def links_in(text: str) -> list[str]:
    """Return where the links of a line lead, those to other files and headings of the folder."""
    found: list[str] = _LINK.findall(text)
    return [target for target in found if ("." in target or "#" in target) and not target.startswith("/")]


def led_to(page: str, target: str) -> tuple[str, str]:
    """Return the file and the heading that a link on `page` leads to. A file elsewhere begins with `..`."""
    file, _, heading = target.partition("#")
    return (normpath(join(dirname(page), file)) if file else page), heading


def anchor(heading: str) -> str:
    """Return what links call a heading: `## Two words` is `two-words`."""
    return re.sub(r"[^\w -]", "", heading.lstrip("#").strip().lower()).replace(" ", "-")


class Pages:
    """The folder, as a program sees it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def check(self, findings: Sequence[Finding]) -> None:
        """Raise if a quotation does not stand where it is said to."""
        wrong = [each for each in findings if each.quotation not in self._line(each.file, each.line)]
        if wrong:
            raise ValueError("These do not stand there word for word:\n" + "\n".join(each.cited() for each in wrong))

    def check_broken(self, broken: Sequence[BrokenLink]) -> None:
        """Raise if a link that is called broken is not there, or leads somewhere."""
        for each in broken:
            if each.target not in links_in(self._line(each.page, each.line)):
                raise ValueError(f"{each.page}:{each.line} has no link to {each.target}.")
            if self._leads_somewhere(each):
                raise ValueError(f"The link to {each.target} in {each.page}:{each.line} leads somewhere.")

    def _leads_somewhere(self, link: BrokenLink) -> bool:
        file, heading = led_to(link.page, link.target)
        lines = self._lines(file)
        return (self._folder / file).exists() and (not heading or heading in self._anchors(lines))

    def _anchors(self, lines: Sequence[str]) -> Iterator[str]:
        return (anchor(line) for line in lines if line.startswith("#"))

    def _line(self, file: str, number: int) -> str:
        lines = self._lines(file)
        return lines[number - 1] if number <= len(lines) else ""

    def _lines(self, file: str) -> list[str]:
        path = (self._folder / file).resolve()
        if not path.is_relative_to(self._folder) or not path.is_file():
            return []
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
