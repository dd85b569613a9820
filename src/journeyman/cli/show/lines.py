"""One line of the tree, and how it is laid out: a mark, a name, a text that is cut to fit, a note on the right.

Knows nothing of events. Read `tree.py` next: it makes the lines. Imports rich.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from journeyman.cli.show.words import clean

Mark: TypeAlias = Literal[
    "done", "failed", "waiting", "asks", "step", "child", "background", "mail", "stopped", "warning", "bar", ""
]

WIDEST: Final = 100
"""Lines are no longer than this, so that notes stay near what they are about."""

_MOST_CHARS: Final = 20_000
"""What is longer than this is cut before it is looked at."""

_SYMBOLS: Final[dict[Mark, tuple[str, str, str]]] = {
    "done": ("✓", "+", "green"),
    "failed": ("✗", "x", "red"),
    "waiting": ("↻", "~", "yellow"),
    "asks": ("?", "?", "yellow"),
    "step": ("▸", ">", "cyan"),
    "child": ("↳", ">", "cyan"),
    "background": ("◦", "o", "cyan"),
    "mail": ("→", ">", "cyan"),
    "stopped": ("■", "#", "yellow"),
    "warning": ("!", "!", "yellow"),
    "bar": ("│", "|", "dim"),
    "": ("", "", ""),
}

_PLAIN: Final = str.maketrans("·…✓✗", "-~+x")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line before it is laid out."""

    text: str = ""
    style: str = ""
    """Of the text."""
    mark: Mark = ""
    name: str = ""
    """In bold, before the text."""
    note: str = ""
    """Dim, at the right edge."""
    indent: int = 0
    rows: int = 1
    """How many rows the text may take before it is cut."""
    margin: int = 0
    """How many columns to leave free at the right edge."""


EMPTY: Final = Line()


def laid_out(line: Line, console: Console) -> Iterator[Text]:
    """Give the rows that `line` takes on the console, none wider than it."""
    width = min(console.width, WIDEST) - line.margin
    unicode = speaks_unicode(console)
    head = _head(line, unicode=unicode)
    note_width = cell_len(line.note) + 2 if line.note else 0
    room = width - cell_len(head.plain)
    if room - note_width < 16:
        note_width = 0
    texts = _wrapped(clean(line.text[:_MOST_CHARS]), room - note_width, line.rows, console)
    for number, text in enumerate(texts):
        row = head.copy() if number == 0 or line.mark == "bar" else Text(" " * cell_len(head.plain))
        row.append(text, line.style)
        if number == 0 and note_width:
            row.append(" " * (width - cell_len(row.plain) - cell_len(line.note)))
            row.append(line.note, "dim")
        row.truncate(max(width, 1), overflow="ellipsis")
        row.rstrip()
        if not unicode:
            row.plain = row.plain.translate(_PLAIN)
        yield row


def speaks_unicode(console: Console) -> bool:
    """Say whether the console's encoding has the symbols."""
    return console.encoding.lower().replace("-", "").startswith("utf")


def _head(line: Line, *, unicode: bool) -> Text:
    symbol, plain, style = _SYMBOLS[line.mark]
    head = Text(" " * line.indent)
    if symbol:
        head.append(symbol if unicode else plain, style).append(" ")
    if line.name:
        head.append(clean(line.name), "bold")
        head.append(" " if line.text or line.note else "")
    return head


def _wrapped(text: str, width: int, rows: int, console: Console) -> list[str]:
    """Cut `text` into at most `rows` rows of `width` cells; the last ends in … if there was more."""
    if rows == 1:
        row = Text(" ".join(text.split()))
        row.truncate(max(width, 1), overflow="ellipsis")
        return [row.plain]
    kept = text[: (rows + 1) * max(width, 1) + 1]  # enough to fill the rows: no line break makes them hold more
    wrapped = [piece.rstrip() for part in kept.split("\n") for piece in _pieces(part, max(width, 1), console)]
    if len(wrapped) > rows:
        last = Text(wrapped[rows - 1] + "…")
        last.truncate(max(width, 1), overflow="ellipsis")
        wrapped = [*wrapped[: rows - 1], last.plain]
    return wrapped or [""]


def _pieces(text: str, width: int, console: Console) -> list[str]:
    return [piece.plain for piece in Text(text).wrap(console, width)] or [""]
