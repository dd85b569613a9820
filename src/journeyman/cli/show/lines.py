"""One line of the tree, how it is laid out, and the short forms in it: durations, numbers, arguments.

Whatever a model, a tool or a file says may hold escape sequences that move the cursor or forge lines: they are taken
out of every line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic_core import from_json
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from journeyman.definition.json_numbers import write_json
from journeyman.definition.narrowing import as_list, as_object, as_text, is_json_object
from journeyman.errors import count
from journeyman.events.run_view import CallView
from journeyman.subagents.calls import NAME as SUBAGENT
from journeyman.texts import shorten
from journeyman.toolbox.todo import NAME as TODO
from journeyman.types import JsonObject, Usage

Mark: TypeAlias = Literal[
    "done", "failed", "waiting", "asks", "step", "child", "background", "mail", "stopped", "warning", "bar", ""
]

WIDEST: Final = 100
"""Lines are no longer than this, so that notes stay near what they are about."""
_MOST_CHARS: Final = 20_000
"""What is longer than this is cut before it is looked at."""
_LONGEST_PIECE: Final = 4_000

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
_LEAST_DOLLARS: Final = 0.00005  # what is less is $0.0000
_CHANGED: Final = "The call was made with other arguments: "
"""How the result of a call begins whose arguments were changed."""
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\|$)|[ -/]*[0-~])", re.MULTILINE)
"""A sequence that never ends takes the rest of its line, and no line below it: a stranger's text would hide them."""
_INVISIBLE: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line before it is laid out."""

    text: str = ""
    style: str = ""
    """The style of the text."""
    mark: Mark = ""
    name: str = ""
    """What stands before the text, in bold."""
    note: str = ""
    """What stands at the right edge, dim."""
    indent: int = 0
    rows: int = 1
    """How many rows the text may take before it is cut."""
    margin: int = 0
    """How many columns to leave free at the right edge."""
    is_markdown: bool = False
    """Whether the text is a block of Markdown, which a chat in a terminal lays out as such."""


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
    texts = _wrap(clean(line.text[:_MOST_CHARS]), room - note_width, line.rows, console)
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


def _wrap(text: str, width: int, rows: int, console: Console) -> list[str]:
    """Cut `text` into at most `rows` rows of `width` cells; the last ends in … if there was more."""
    if rows == 1:
        row = Text(" ".join(text.split()))
        row.truncate(max(width, 1), overflow="ellipsis")
        return [row.plain]
    kept = text[: (rows + 1) * max(width, 1) + 1]  # enough to fill the rows: no line break makes them hold more
    parts = [Text(part).wrap(console, max(width, 1)) or [Text()] for part in kept.split("\n")]
    wrapped = [piece.plain.rstrip() for part in parts for piece in part]
    if len(wrapped) > rows:
        last = Text(wrapped[rows - 1] + "…")
        last.truncate(max(width, 1), overflow="ellipsis")
        wrapped = [*wrapped[: rows - 1], last.plain]
    return wrapped or [""]


def table_lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Give the lines of a table whose first row is its head, each cell as wide as the widest of its column."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def fact_lines(facts: Mapping[str, str]) -> Iterator[str]:
    """Give a line for each fact that is known: its name, and what it is."""
    return (f"{name + ':':<13}{one_line(text)}" for name, text in facts.items() if text)


def clean(text: str) -> str:
    """Return `text` without escape sequences and control characters; line breaks stay."""
    return _INVISIBLE.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n"))).expandtabs(4)


def one_line(text: str, longest: int = 2_000) -> str:
    """Return `text`, clean and on one line, cut to `longest` characters."""
    flat = " ".join(clean(text[: 4 * longest]).split())
    return shorten(flat, longest)


def row_pieces(rows: Iterable[str]) -> Iterator[str]:
    """Give rows, of one that is longer than a line may be its pieces."""
    for row in rows:
        yield from (row[start : start + _LONGEST_PIECE] for start in range(0, max(len(row), 1), _LONGEST_PIECE))


def refusal_words(cause: str, sandbox: object = None) -> str:
    """Return what stands before the name of a thing that a sandbox has refused, or of a file that was put aside."""
    if cause in ("held", "not_held"):
        return "was put aside" if cause == "held" else "could not be put aside"
    return f"refused ({cause})" if sandbox is None else f"refused by {sandbox} ({cause})"


def duration(seconds: float) -> str:
    """Say how long something took: `8 ms`, `1.2 s`, `3 min 05 s`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s"


def clock(seconds: float) -> str:
    """Say how long something has been going on, without a digit that races: `0.8 s`, `12 s`, `3 min 05 s`."""
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s" if seconds < 59.5 else duration(seconds)


def tokens_in(usage: Usage) -> int:
    """Return all input tokens, cached or not."""
    return usage.total_tokens - usage.output_tokens


def short_usage(usage: Usage) -> str:
    """Say what one model call used, in the space beside a line."""
    least = "" if usage.exact else ">= "
    return f"{least}{tokens_in(usage):,} in, {usage.output_tokens:,} out"


def usage_sentence(usage: Usage | None) -> str:
    """Say what a run used and what it cost. What is not known is not given as 0."""
    if usage is None:
        return "tokens not counted"
    if usage.requests == 0 and usage.total_tokens == 0:
        return "no tokens used"
    least = "" if usage.exact else "at least "
    cached = f" ({usage.cache_read_tokens:,} from the cache)" if usage.cache_read_tokens else ""
    cost = "cost unknown" if usage.cost is None else f"{least}${usage.cost:.4f}"
    taken = count(tokens_in(usage), "token")
    return f"{least}{taken} in{cached}, {usage.output_tokens:,} out · {cost}{_cache_effect(usage)}"


def _cache_effect(usage: Usage) -> str:
    """Say what the cache saved, or cost more than it saved; nothing where that is unknown or too little to show."""
    saved = usage.cache_saved or 0.0
    if abs(saved) < _LEAST_DOLLARS:
        return ""
    return f", the cache saved ${saved:.4f}" if saved > 0 else f", ${-saved:.4f} more than without a cache"


def arguments(given: JsonObject) -> str:
    """Say what a call was given: the only text as it is, of a change to a file the path, else names and values."""
    match given:
        case {"path": str(path), "content": str()} | {"path": str(path), "old_text": str(), "new_text": str()}:
            return one_line(path, 300)
        case _:
            return all_arguments(given)


def all_arguments(given: JsonObject) -> str:
    """Say all that a call was given: the only text as it is, else names and values."""
    match list(given.items()):
        case []:
            return ""
        case [(_, str() as text)]:
            return one_line(text, 300)
        case pairs:
            told = [f"{name}={write_json(value, default=repr).decode()}" for name, value in pairs]
            return one_line(", ".join(told), 300)


def ran(given: str, result: str) -> str:
    """Say what a call ran with, by its result: somebody may have changed what it was given."""
    first = result.partition("\n")[0]
    if not first.startswith(_CHANGED):
        return given
    try:
        changed: object = from_json(first.removeprefix(_CHANGED))
    except ValueError:  # cut, or the words of a tool
        return given
    if not is_json_object(changed):
        return given
    now = arguments(changed)
    return f"{now} (changed)" if now == given else f"{now} (changed from {given})"


def given_to(call: CallView) -> str:
    """Say in short what a call was given."""
    return _DESCRIBE.get(call.name, arguments)(call.input)


def describe_list(given: JsonObject) -> str:
    """Say what a list of work was given: what is in progress."""
    items = map(as_object, as_list(given.get("items")))
    working = [as_text(item.get("text")) for item in items if item.get("status") == "in_progress"]
    return one_line(working[0], 300) if working else arguments({})


def describe_delegation(given: JsonObject) -> str:
    """Say what a call that delegates was given: to how many, to whom, or what else it says."""
    match given:
        case {"tasks": [_, *_] as tasks}:
            return f"{count(len(tasks), 'task')} at the same time"
        case {"chain": [_, *_] as steps}:
            return f"{count(len(steps), 'step')} one after the other"
        case {"agent": str(agent), "task": str(task)}:
            how = " in the background" if given.get("background") else ""
            return one_line(f"{agent}{how}: {task}", 300)
        case _:
            return arguments(given)


_DESCRIBE: Final = {SUBAGENT: describe_delegation, TODO: describe_list}
"""By tool: what tells a call, if not its arguments."""
