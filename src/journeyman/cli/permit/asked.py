"""Shows people the call that they are asked about, and reads their answers.

An edit is shown as the change that it makes, a new file as its beginning and size, a command with its folder, any other
call as a table of its arguments; what a screen would not show is written out. Questions of the model's are shown with
their options. Answers are words of their own, so that a sentence that was meant for the agent approves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from pydantic_core import from_json

from journeyman.agent import Agent
from journeyman.cli.show.lines import Line, all_arguments, one_line
from journeyman.errors import InvalidArguments, count, visible, visible_json, with_its_end
from journeyman.gate import Allow, Decision, Deny, Extent, Stop
from journeyman.types import JsonObject, RunPath

_ROWS_SHOWN: Final = 30
_LEAST_ROWS: Final = 6
_ROWS_AROUND: Final = 13
"""How many rows of a screen what stands around the rows of a call takes, at most."""
_CHARS_SHOWN: Final = 3_000
_ROW_CHARS: Final = 1_000
_MANY_ROWS: Final = 10_000
_PIECE: Final = 4_000
_FAULT_ROWS: Final = 12
_CONTEXT_ROWS: Final = 3
_PLACES_SHOWN: Final = 3
_LONGEST_FILE: Final = 2_000_000
"""How long a file may be, in bytes, of which the lines around a change are shown."""
_LONGEST_CHANGE: Final = 400
"""How many lines of a change are compared; of more, all of the old is shown, and then the new."""

_ALLOWS: Final[dict[str, Extent]] = {
    "y": "once",
    "yes": "once",
    "once": "once",
    "s": "session",
    "session": "session",
    "a": "always",
    "always": "always",
}
_GRANTS: Final[dict[str, str]] = {"once": "[y]es, once", "session": "for this [s]ession", "always": "[a]lways"}
_WHY: Final = re.compile(
    r": ((?:the mode is|it is outside of|it (?:may name|names) a file|it changes what|the command is) .*)$", re.DOTALL
)
_CHANGES: Final = ("edit", "write")
"""Tools of which the rows say more than their arguments in words."""
_OTHERS: Final = "[m]odify · [n]o, with a reason"
DENIED: Final = "the user said no"
_STYLES: Final = {"+ ": "green", "- ": "red", "  ": "", "@@": "cyan", "$ ": "bold"}
"""The style of a row by how it begins; of any other it is dim."""


class AskedCall(Protocol):
    """A call that a person is asked about: an `Approval`, or the event of one."""

    @property
    def tool_name(self) -> str: ...
    @property
    def arguments(self) -> JsonObject: ...
    @property
    def path(self) -> RunPath: ...
    @property
    def question(self) -> str: ...
    @property
    def offers(self) -> Sequence[str]: ...
    @property
    def rule(self) -> str: ...


# -- how it is shown --------------------------------------------------------------------------------------------------


def lines_of_call(asked: AskedCall, height: int) -> Iterator[Line]:
    """Give the lines that tell what a call would do, on a screen of so many rows. A long one is folded, so that its
    title is still to be seen: its end may matter most."""
    who = "" if len(asked.path) == 1 else f" for {'/'.join(asked.path[1:])}"
    # The reason of the question, without what stands above and below it anyway.
    found = _WHY.search(asked.question)
    why = found[1] if found else asked.question
    yield Line(mark="asks", name=f"{asked.tool_name} asks to run{who}", text=f"· {one_line(why, 300)}", rows=2)
    rows = list(_argument_rows(asked.tool_name, asked.arguments))
    cut = [with_its_end(row, _ROW_CHARS) for row in rows]
    folded, most = [*cut], min(max(height - _ROWS_AROUND, _LEAST_ROWS), _ROWS_SHOWN)
    if len(cut) > most:
        hidden, n_last = f"… ({count(len(cut) - most, 'more row')}) …", most // 3
        folded = [*cut[: most - n_last], hidden, *cut[-n_last:]]
    for row in folded:
        yield _in_bar(row)
    if folded != rows:
        yield Line(indent=2, mark="warning", text="Not all of it is shown: v shows it")
    if asked.rule:
        yield Line(indent=2, text=f"session and always allow {asked.rule}", style="dim", rows=_FAULT_ROWS)


def whole(asked: AskedCall) -> Iterator[Line]:
    """Give all the lines that tell what a call would do."""
    for row in _argument_rows(asked.tool_name, asked.arguments):
        for start in range(0, max(len(row), 1), _PIECE):
            yield _in_bar(row[start : start + _PIECE])


def describe_change(tool_name: str, arguments: JsonObject) -> Iterator[Line]:
    """Give the lines that tell what a call does with the arguments that a person gave it."""
    rows = list(_argument_rows(tool_name, arguments)) if tool_name in _CHANGES else []
    how = "changed:" if rows else f"changed to {all_arguments(arguments)}"
    yield Line(indent=2, text=f"{tool_name} allowed, {how}", style="green", rows=4)
    for row in rows[:_ROWS_SHOWN]:
        yield _in_bar(with_its_end(row, _ROW_CHARS))


def _in_bar(row: str) -> Line:
    return Line(indent=2, mark="bar", text=row, style=_STYLES.get(row[:2], "dim"), rows=_MANY_ROWS)


def _argument_rows(tool_name: str, arguments: JsonObject) -> Iterator[str]:
    match tool_name, arguments:
        case "bash", {"command": str(command), **rest}:
            first, *others = _plain(command).split("\n")
            yield f"$ {first}"
            yield from (f"  {row}" for row in others)
            folder = rest.pop("folder", None)
            yield f"in {_plain(str(Path.cwd() / folder)) if isinstance(folder, str) else Path.cwd()}"
            yield from _table(rest)
        case "edit", {"path": str(path), "old_text": str(old), "new_text": str(new), **rest} if old:
            is_all = rest.pop("replace_all", False) is True
            yield f"edits {_plain(path)}"
            yield from _change(_text_of_file(path), old, new, is_all=is_all)
            yield from _table(rest)
        case "write", {"path": str(path), "content": str(content), **rest}:
            yield f"writes {_plain(path)} · {_size(path, content)}"
            yield from (f"+ {row}" for row in _plain(content).split("\n"))
            yield from _table(rest)
        case _, {**given} if given:
            yield from _table(given)
        case _:
            yield "(without arguments)"


def _plain(text: str) -> str:
    """Return a text in which whatever a screen would not show is written out; line feeds stay."""
    return visible_json(text.expandtabs(4))


def _size(path: str, content: str) -> str:
    """Say how much is written, and over how much."""
    n_lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    size = f"{count(len(content.encode('utf-8', 'surrogatepass')), 'byte')}, {count(n_lines, 'line')}"
    try:
        return f"replaces {count((Path.cwd() / path).stat().st_size, 'byte')} with {size}"
    except (OSError, ValueError):
        return f"a new file of {size}"


def _table(given: Mapping[str, object]) -> Iterator[str]:
    width = max(map(len, given), default=0)
    for name, value in given.items():
        text = _plain(value) if isinstance(value, str) else visible(value, indent=None)
        first, *others = text.split("\n")
        yield f"{_plain(name).replace(chr(10), ' '):<{width}}  {first}"
        yield from (f"{'':<{width}}  {each}" for each in others)


def _text_of_file(path: str) -> str | None:
    """Return the file that an edit would change; None: it cannot be shown."""
    try:
        file = Path.cwd() / path
        if not file.is_file() or file.stat().st_size > _LONGEST_FILE:
            return None
        return file.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except (OSError, ValueError):
        return None


def _change(text: str | None, old: str, new: str, *, is_all: bool) -> Iterator[str]:
    """Give the rows of a change: with the lines around it, where it is known where it is."""
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    places = [] if text is None else [found.start() for found in re.finditer(re.escape(old), text)]
    if text is None or not places:
        yield "@@ where it is could not be told @@"
        yield from _compare(old.split("\n"), new.split("\n") if new else [])
        return
    places_shown = places[: _PLACES_SHOWN if is_all else 1]
    for at in places_shown:
        start, end = text.count("\n", 0, at), text.count("\n", 0, at + len(old)) + 1
        before = text.split("\n")
        after = (text[:at] + new + text[at + len(old) :]).split("\n")
        yield f"@@ line {start + 1} @@"
        yield from (f"  {_plain(row)}" for row in before[max(0, start - _CONTEXT_ROWS) : start])
        yield from _compare(before[start:end], after[start : end + len(after) - len(before)])
        yield from (f"  {_plain(row)}" for row in before[end : end + _CONTEXT_ROWS])
    if others := len(places) - len(places_shown):
        yield f"and at {count(others, 'other place')}" + ("" if is_all else ": it must be unique")


def _compare(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    if len(before) + len(after) > _LONGEST_CHANGE:
        rows = [*(f"-{row}" for row in before), *(f"+{row}" for row in after)]
    else:  # in one piece, after three rows that name files and lines
        rows = islice(unified_diff(before, after, n=len(before), lineterm=""), 3, None)
    yield from (f"{row[0]} {_plain(row[1:])}" for row in rows)


def question_lines(path: RunPath, question: str, options: Sequence[str]) -> Iterator[Line]:
    """Give the lines of a question of the model's."""
    who = "" if len(path) == 1 else f" for {'/'.join(path[1:])}"
    yield Line(mark="asks", name=f"a question{who}", text=question, rows=_FAULT_ROWS)
    for number, option in enumerate(options, 1):
        yield Line(indent=4, text=f"{number} {option}", rows=3)


# -- what is answered -------------------------------------------------------------------------------------------------


Meaning: TypeAlias = Decision | Literal["modify", "view", "unclear"]


def hint(asked: AskedCall, *, may_stop: bool) -> str:
    """Say which answers there are."""
    grants = [_GRANTS[extent] for extent in _GRANTS if extent in asked.offers]
    return " · ".join([*grants, _OTHERS, "e[x]it the turn" if may_stop else "e[x]it the run"])


def read_answer(asked: AskedCall, text: str) -> Meaning:
    """Say what a line means as an answer."""
    first, _, rest = text.strip().partition(" ")
    word, reason = first.rstrip(",.:;").lower(), rest.strip()
    extent = _ALLOWS.get(word) if not reason else None
    if extent is not None and extent in asked.offers:
        return Allow(extent)
    if word in ("n", "no", "deny"):
        return Deny(reason or DENIED)
    if word in ("x", "exit", "stop"):
        return Stop(reason or "stopped by the user")
    if word in ("m", "modify") and not reason:
        return "modify"
    return "view" if word in ("v", "view") and not reason else "unclear"


def unclear(text: str, meant: str) -> Line:
    """Return the line for what is no answer."""
    return Line(mark="warning", text=f"{one_line(text, 40)!r} is no answer. {meant}", rows=4)


def choose_option(options: Sequence[str], text: str) -> str:
    """Return the option with that number, or the text."""
    number = text.strip()
    is_number = number.isascii() and number.isdigit() and 1 <= int(number) <= len(options)
    return options[int(number) - 1] if is_number else number


def arguments_from(agent: Agent[object, object, object], asked: AskedCall, text: str) -> JsonObject:
    """Return the arguments that a person gives instead, checked as those of the model are.

    Raises:
        InvalidArguments: they do not fit.
    """
    try:
        value: object = from_json(text)
    except ValueError as error:
        raise InvalidArguments("arguments", [f"it is not valid JSON: {error}"]) from error
    if not isinstance(value, dict):
        raise InvalidArguments("arguments", ["it is no JSON object, such as {…}"])
    tool = agent.plan.tools.get(asked.tool_name) if len(asked.path) == 1 else None
    if tool is not None:  # those of a sub-agent's tools are checked when the call is made
        tool.parse(text)
    return value  # pyright: ignore[reportUnknownVariableType] - JSON edge


def misfit(invalid: InvalidArguments) -> Line:
    """Return the line for arguments that do not fit."""
    issues = "\n".join(invalid.issues)
    return Line(mark="failed", text=f"These arguments do not fit:\n{issues}", rows=_FAULT_ROWS)
