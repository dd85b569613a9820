"""What a docstring says to a model: a description, and a line for each parameter.

Understands the three usual forms of a parameter section: Google (`Args:`), NumPy (`Parameters`, underlined) and
Sphinx (`:param name:`). Imports nothing of this package, and griffe only for a docstring that has such a section.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Literal, TypeAlias

Style: TypeAlias = Literal["google", "numpy", "sphinx"]

_GOOGLE = re.compile(r"(?:args|arguments|params|parameters|(?:keyword|other) (?:args|arguments|parameters)):\s*", re.I)
_NUMPY = re.compile(r"(?:Other )?Parameters\s*")
_UNDERLINE = re.compile(r"-{3,}\s*")
_SPHINX = re.compile(r":(?:param|parameter|arg|argument|key|keyword|type)\s")


@dataclass(frozen=True, slots=True)
class Described:
    """A docstring, taken apart."""

    description: str = ""
    """The docstring without its parameter section."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """The description of each parameter that has one."""


def describe(docstring: str | None) -> Described:
    """Take a cleaned docstring apart."""
    lines = (docstring or "").splitlines()
    for style, find in _FINDERS.items():
        numbers = set(find(lines))
        if numbers:
            section = [line for number, line in enumerate(lines) if number in numbers]
            rest = [line for number, line in enumerate(lines) if number not in numbers]
            return Described(_paragraphs(rest), _parameters("\n".join(section), style))
    return Described(_paragraphs(lines))


def _google(lines: list[str]) -> Iterator[int]:
    for number, line in enumerate(lines):
        if _GOOGLE.fullmatch(line):
            yield number
            yield from takewhile(lambda n: not lines[n] or lines[n][0].isspace(), range(number + 1, len(lines)))


def _numpy(lines: list[str]) -> Iterator[int]:
    headers = [number for number in range(len(lines) - 1) if _UNDERLINE.fullmatch(lines[number + 1])]
    for number, following in pairwise([*headers, len(lines)]):
        if _NUMPY.fullmatch(lines[number]):
            yield from range(number, following)


def _sphinx(lines: list[str]) -> Iterator[int]:
    for number, line in enumerate(lines):
        if _SPHINX.match(line):
            yield number
            yield from takewhile(lambda n: lines[n][:1].isspace(), range(number + 1, len(lines)))


_FINDERS: dict[Style, Callable[[list[str]], Iterator[int]]] = {"google": _google, "numpy": _numpy, "sphinx": _sphinx}
"""For each style, what gives the numbers of the lines that belong to a parameter section."""


def _paragraphs(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _parameters(section: str, style: Style) -> dict[str, str]:
    from griffe import Docstring, DocstringSectionParameters

    # Without a first line of its own, griffe takes the section's indentation away.
    parsed = Docstring(f"Parameters follow.\n\n{section}").parse(style, warnings=False)
    found = [part.value for part in parsed if isinstance(part, DocstringSectionParameters)]
    described = ((entry.name, " ".join(entry.description.split())) for entries in found for entry in entries)
    return {name: text for name, text in described if text}
