"""Reads the JSON object out of an answer that was asked for in words: it may have a fence or words around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pydantic_core import from_json

_MARKS: Final = re.compile(r'[{}"\\]')
_FENCED: Final = re.compile(r"```[A-Za-z]*[ \t]*\n(.*?)```", re.DOTALL)
_MOST_MARKS: Final = 200_000
"""Of a text with more braces and quotes than these, which take 50 ms, the rest is not looked at."""


class ObjectFinder:
    """The places of the JSON objects in a text that grows. Braces and quotes are balanced; nothing else is checked."""

    def __init__(self, text: str = "") -> None:
        self.text = ""
        self.spans: list[tuple[int, int]] = []
        """Where each whole object begins and ends."""
        self._begins = self._at = self._depth = self._n_marks = 0
        self._is_quoted = False
        self.add(text)

    @property
    def is_open(self) -> bool:
        """True while an object has begun and not ended."""
        return self._depth > 0

    def add(self, piece: str) -> None:
        """Look at what the text goes on with."""
        self.text += piece
        while self._n_marks < _MOST_MARKS and (mark := _MARKS.search(self.text, self._at)) is not None:
            self._n_marks += 1
            self._at = mark.end()
            if mark[0] == "\\":
                self._at += self._is_quoted  # what is escaped is no mark, also where it comes with the next piece
            elif mark[0] == '"':
                self._is_quoted = self._depth > 0 and not self._is_quoted
            elif not self._is_quoted:
                self._count(mark)
        self._at = max(self._at, len(self.text))

    def _count(self, brace: re.Match[str]) -> None:
        if brace[0] == "{":
            if not self._depth:
                self._begins = brace.start()
            self._depth += 1
        elif self._depth:
            self._depth -= 1
            if not self._depth:
                self.spans.append((self._begins, brace.end()))

    def first(self) -> str:
        """Return the first object, as far as it is there."""
        begins, ends = self.spans[0] if self.spans else (self._begins, len(self.text))
        return self.text[begins:ends] if self.spans or self._depth else ""


def find_object(text: str) -> str:
    """Return the one JSON object that stands in a text. Of several, all must be equal.

    Raises:
        ValueError: there is none, or it cannot be read, or there are different ones. The words are for the model.
    """
    given = text.strip()
    if _read_object(given) is not None:
        return given
    found = {at: value for at in _FENCED.findall(given) if (value := _read_object(at)) is not None}
    finder = None if found else ObjectFinder(given)
    every = [] if finder is None else [given[begins:ends] for begins, ends in finder.spans]
    found = found or {at: value for at in every if (value := _read_object(at)) is not None}
    if not found:
        raise ValueError("; ".join(_explain_faults(every, is_open=finder is not None and finder.is_open)))
    first, *others = found.values()
    if any(other != first for other in others):
        raise ValueError(f"the answer holds {len(found)} different JSON objects; give one, and no other")
    return next(iter(found)).strip()


def _explain_faults(objects: list[str], *, is_open: bool) -> Iterator[str]:
    """Say why a text has no object that can be read."""
    if is_open:
        yield "the JSON object in the answer does not end"
    for each in objects[-1:]:
        try:
            from_json(each)
        except ValueError as error:
            yield f"the JSON object in the answer cannot be read: {error}"
    if not is_open and not objects:
        yield "the answer holds no JSON object"


def _read_object(text: str) -> dict[str, object] | None:
    try:
        value: object = from_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType] - JSON edge
