"""Cuts the Markdown that a model writes into blocks while it grows, and lays them out in rows of a terminal.

What has been cut off never changes again, so it can be printed for good; only the block that grows is drawn again.
Colours are the terminal's own, and none is a background, so that they can be read on light and on dark.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TextElement
from rich.padding import Padding
from rich.style import Style
from rich.syntax import ANSI_LIGHT, ANSISyntaxTheme, Syntax
from rich.text import Text
from rich.theme import Theme

from journeyman.cli.show.lines import clean

_MOST_LINES: Final = 40
_LONGEST_LINE: Final = 4_000
_FENCE: Final = re.compile(r"[ \t>]*(`{3,}|~{3,})([^`]*)$")
_ITEM: Final = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_INDENTED: Final = re.compile(r"\t| {2}")
_CODE_INDENTS: Final = ("    ", "\t")
_CODE_MARGIN: Final = 2

_STYLES: Final = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold italic",
        "markdown.h6": "italic",
        "markdown.code": "cyan",
        "markdown.block_quote": "italic",
        "markdown.list": "none",
        "markdown.item.bullet": "bold",
        "markdown.item.number": "bold",
        "markdown.link": "underline",
        "markdown.link_url": "cyan",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
        "markdown.kbd": "bold",
    }
)
_READABLE: Final = {
    "blue": "magenta",
    "bright_blue": "magenta",
    "yellow": "green",
    "bright_red": "red",
    "white": "default",
}
"""What stands for the colours that are hard to read on light or on dark."""
_CODE: Final = ANSISyntaxTheme(
    {
        token: style + Style(color=_READABLE.get(style.color.name)) if style.color else style
        for token, style in ANSI_LIGHT.items()
    }
)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of Markdown that can be laid out by itself."""

    text: str
    goes_on: bool = False
    """Whether it continues the block before, which was cut only because it is long."""


class Blocks:
    """Cuts Markdown that grows into blocks."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line = ""
        """What is there of the line that is not complete."""
        self._fence = ""
        """What began the code that the lines end in, with its language; empty outside of code."""
        self._goes_on = False
        self._n_chars = 0

    def add(self, text: str) -> Iterator[Block]:
        """Take what follows. Gives the blocks that are complete with it."""
        *whole, rest = (self._line + text).split("\n")
        for line in whole:
            end = yield from self._without_pieces(line)
            yield from self._add_line(end.rstrip("\r"))
        self._line = yield from self._without_pieces(rest)

    def rest(self) -> Block | None:
        """Return what is there of the block that grows; None if nothing is."""
        text = "\n".join([*self._lines, self._line])
        return Block(text, self._goes_on) if text.strip() else None

    def finish(self) -> Iterator[Block]:
        """Give the last block, and begin again."""
        rest = self.rest()
        self._lines, self._line, self._fence, self._goes_on, self._n_chars = [], "", "", False, 0
        if rest is not None:
            yield rest

    def _without_pieces(self, line: str) -> Generator[Block, None, str]:
        """Give the blocks that a long line fills, and return what is left of it."""
        while len(line) > _LONGEST_LINE:
            cut = line.rfind(" ", 0, _LONGEST_LINE) + 1 or _LONGEST_LINE
            yield from self._add_line(line[:cut])
            yield from self._cut_off()
            line = line[cut:]
        return line

    def _add_line(self, line: str) -> Iterator[Block]:
        is_gap = not self._fence and not line.strip()
        is_after_gap = not self._fence and bool(self._lines) and not self._lines[-1].strip()
        if (is_gap or is_after_gap) and not self._may_hold(line):
            yield from self._cut_off()
            self._goes_on = False
        if line.strip() or self._lines:
            self._lines.append(line)
        found = _FENCE.match(line)
        if found and not self._fence:
            self._fence = line
        elif found and not found[2].strip() and found[1].startswith(_mark(self._fence)):
            self._fence = ""
        self._n_chars += len(line)
        if len(self._lines) >= _MOST_LINES or self._n_chars > _LONGEST_LINE:
            yield from self._cut_off()

    def _may_hold(self, line: str) -> bool:
        """Tell whether the block, a list or indented code, may hold an empty line, or this line after an empty one."""
        first = next(iter(self._lines), "")
        if _ITEM.match(first):
            return not line.strip() or bool(_ITEM.match(line) or _INDENTED.match(line))
        return first.startswith(_CODE_INDENTS) and (not line.strip() or line.startswith(_CODE_INDENTS))

    def _cut_off(self) -> Iterator[Block]:
        """Give the lines that are there. Code that goes on is closed, and opened again for what follows."""
        text = "\n".join(self._lines).rstrip()
        fence = self._fence
        if text.strip():
            yield Block(f"{text}\n{_mark(fence)}" if fence else text, self._goes_on)
            self._goes_on = True
        self._lines, self._n_chars = [fence] if fence else [], 0


def blocks(text: str) -> Iterator[Block]:
    """Give the blocks of a text that is complete."""
    cutter = Blocks()
    yield from cutter.add(text)
    yield from cutter.finish()


def _mark(fence: str) -> str:
    found = _FENCE.match(fence)
    return found[1] if found else ""


def end_of(block: str, n_lines: int) -> str:
    """Return the end of a block that grows, of so many lines at least, which is laid out as it is in the whole."""
    lines = block.split("\n")
    at = len(lines) - n_lines
    if at > 1 and _FENCE.match(lines[0]):
        return "\n".join([lines[0], *lines[at:]])
    while at > 0 and not (_ITEM.match(lines[0]) and _ITEM.match(lines[at]) and not lines[at][0].isspace()):
        at -= 1
    return "\n".join(lines[max(at, 0) :])


def markdown_rows(text: str, console: Console, width: int) -> list[Text]:
    """Return the rows of a block, none wider than `width` columns.

    A line break is one on the screen too, as in chats, not a space as in documents.
    """
    width = max(width, 1)
    with console.use_theme(_STYLES):
        lines = console.render_lines(_Markdown(clean(text)), console.options.update_width(width), pad=False)
    rows = [Text.assemble(*((clean(segment.text), segment.style or "") for segment in line)) for line in lines]
    if not any(row.plain.strip() for row in rows):  # it only defines what others refer to
        rows = list(Text(clean(text)).wrap(console, width))
    for row in rows:
        row.rstrip()
        row.truncate(width, overflow="ellipsis")
    shown = [number for number, row in enumerate(rows) if row.plain]
    return rows[shown[0] : shown[-1] + 1] if shown else []


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        highlighted = Syntax("", self.lexer_name, theme=_CODE, background_color="default").highlight(code)
        highlighted.rstrip()
        highlighted.no_wrap = False
        yield Padding(highlighted, (0, 0, 0, _CODE_MARGIN))


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _Verbatim(TextElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.rstrip()
        yield self.text


class _Markdown(Markdown):
    """Markdown in which nothing that was said gets lost: tags and pictures are shown as they were written."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "html_block": _Verbatim,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text, hyperlinks=False)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"
                elif child.type == "html_inline":
                    child.type = "text"
                elif child.type == "image":
                    child.content = f"![{child.content}]({child.attrs.get('src', '')})"
                    child.type, child.tag, child.children = "text", "", None
