"""A question that a person is asked at a terminal: how it is shown, and what the lines mean that they enter.

An edit is shown as the change that it makes, a new file as its beginning and size, a command with its folder, any other
call as a table of its arguments; what a screen would not show is written out. Questions of the model's are shown with
their options. Answers are words of their own, so that a sentence that was meant for the agent approves nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import termios
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import unified_diff
from functools import partial
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from pydantic_core import from_json
from rich.console import Console

from journeyman.cli.options import AnyAgent
from journeyman.cli.permit.policy import Nobody, find_watched_run
from journeyman.cli.show.lines import Line, all_arguments, one_line, row_pieces
from journeyman.cli.show.screen import PlainScreen, is_dumb
from journeyman.errors import InvalidArguments, count, visible, visible_json, with_its_end
from journeyman.events import ApprovalAnswered, ApprovalRequested, QuestionAnswered, QuestionAsked
from journeyman.gate import Allow, Approval, Decision, Deny, Extent, Rewrite, Stop
from journeyman.inbox.inbox import current_conversation, enter_conversation
from journeyman.inbox.questions import Asker as AsksUser
from journeyman.inbox.questions import FirstAnswer, asked_event
from journeyman.step import RunStep
from journeyman.types import JsonObject, RunPath

_ROWS_SHOWN: Final = 30
_LEAST_ROWS: Final = 6
_ROWS_AROUND: Final = 13
"""How many rows of a screen what stands around the rows of a call takes, at most."""
_ROW_CHARS: Final = 1_000
_MANY_ROWS: Final = 10_000
_FAULT_ROWS: Final = 12
_CONTEXT_ROWS: Final = 3
_PLACES_SHOWN: Final = 3
_LONGEST_FILE: Final = 2_000_000
"""How long a file may be, in bytes, of which the lines around a change are shown."""
_LONGEST_CHANGE: Final = 400
"""How many lines of a change are compared; of more, all of the old is shown, and then the new."""

_ALLOWS: Final[dict[Extent, Sequence[str]]] = {
    "once": ("y", "yes", "once"),
    "session": ("s", "session"),
    "always": ("a", "always"),
}
"""The words that allow a call, by how far."""
_GRANTS: Final[dict[str, str]] = {"once": "[y]es, once", "session": "for this [s]ession", "always": "[a]lways"}
_WHY: Final = re.compile(
    r": ((?:the mode is|it is outside of|it (?:may name|names) a file|it changes what|the command is) .*)$", re.DOTALL
)
_EXTENTS: Final = {"session": "for this session", "always": "always"}
_CHANGES: Final = ("edit", "write")
"""Tools of which the rows say more than their arguments in words."""
_OTHERS: Final = "[m]odify · [n]o, with a reason"
DENIED: Final = "the user said no"
_STYLES: Final = {"+ ": "green", "- ": "red", "  ": "", "@@": "cyan", "$ ": "bold"}
"""The style of a row by how it begins; of any other it is dim."""


Asked: TypeAlias = ApprovalRequested | QuestionAsked
Answered: TypeAlias = ApprovalAnswered | QuestionAnswered


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """The prompt of a line that is to be entered: its label, its hint, and the question that it answers, if any."""

    label: str
    """The text before the line."""
    id: str = ""
    """The id of the question that the line answers; empty when the line is said to the agent."""
    given: str = ""
    """The text in the line at first, to be edited."""
    hint: str = ""
    """The text above the line."""


class TerminalQuestion:
    """An approval, or a question of the model's, that a person is asked, and how far they are with it."""

    def __init__(self, agent: AnyAgent, asked: Asked, *, may_exit: Literal["turn", "run"]) -> None:
        """`may_exit` is what a person may end instead of answering."""
        self.asked: Final = asked
        self.answer: Decision | str | None = None
        """The answer, once the person has given one."""
        self._agent = agent
        if isinstance(asked, ApprovalRequested):
            grants = [_GRANTS[extent] for extent in _GRANTS if extent in asked.offers]
            self._asks = Prompt("allow? ", asked.id, hint=" · ".join([*grants, _OTHERS, f"e[x]it the {may_exit}"]))
        else:
            self._asks = Prompt("answer> ", asked.id, hint="A number or a text." if asked.options else "")
        self.prompt = self._asks
        """The prompt of the line that is to be entered next."""

    def lines(self, height: int) -> Iterator[Line]:
        """Give the lines that show it, on a screen of so many rows."""
        if isinstance(self.asked, ApprovalRequested):
            yield from _lines_of_call(self.asked, height)
            return
        yield Line(mark="asks", name=f"a question{_whose(self.asked)}", text=self.asked.question, rows=_FAULT_ROWS)
        for number, option in enumerate(self.asked.options, 1):
            yield Line(indent=4, text=f"{number} {option}", rows=3)

    def enter(self, text: str) -> Iterator[Line]:
        """Take a line as an answer. Gives lines where it is none, or not yet; an empty one answers nothing."""
        is_editing, self.prompt = self.prompt is not self._asks, self._asks
        if not text.strip():
            return
        if isinstance(self.asked, QuestionAsked):
            options = {str(number): option for number, option in enumerate(self.asked.options, 1)}
            self.answer = options.get(text.strip(), text.strip())
        elif is_editing:
            yield from self._take_arguments(self.asked, text)
        else:
            yield from self._decide(self.asked, text)

    def _decide(self, asked: ApprovalRequested, text: str) -> Iterator[Line]:
        match _read_answer(asked, text):
            case "modify":
                self._edit(visible(asked.arguments, indent=None))
            case "view":
                yield from whole(asked)
            case "unclear":
                meant = f"{one_line(text, 40)!r} is no answer. {self._asks.hint}"
                yield Line(mark="warning", text=meant, rows=4)
            case decision:
                self.answer = decision

    def _edit(self, given: str) -> None:
        hint = "Edit the arguments, then press Enter. An empty line goes back."
        self.prompt = Prompt("arguments> ", self.asked.id, given=given, hint=hint)

    def _take_arguments(self, asked: ApprovalRequested, text: str) -> Iterator[Line]:
        try:
            arguments = _read_arguments(self._agent, asked, text)
        except InvalidArguments as invalid:
            issues = "\n".join(invalid.issues)
            yield Line(mark="failed", text=f"These arguments do not fit:\n{issues}", rows=_FAULT_ROWS)
            self._edit(text)
        else:
            self.answer = Allow() if arguments == asked.arguments else Rewrite(arguments, "changed by the user")

    def outcome(self, answered: Answered) -> Iterator[Line]:
        """Give the line that tells the answer, whoever gave it. A denial is in the call's result, which follows."""
        if isinstance(answered, QuestionAnswered):
            yield Line(name=">", text=answered.answer or "(not answered)", rows=_FAULT_ROWS)
        elif isinstance(self.asked, ApprovalRequested) and answered.decision == "allow":
            extent = self.answer.extent if isinstance(self.answer, Allow) else "once"
            how_far = "" if extent == "once" else f" {_EXTENTS[extent]}: {self.asked.rule}"
            yield Line(indent=2, text=f"{self.asked.tool_name} allowed{how_far}", style="green", rows=4)
        elif isinstance(self.asked, ApprovalRequested) and answered.decision == "rewrite":
            arguments = self.answer.arguments if isinstance(self.answer, Rewrite) else {}
            yield from _describe_change(self.asked.tool_name, arguments)


def _whose(asked: Asked) -> str:
    return "" if len(asked.path) == 1 else f" for {'/'.join(asked.path[1:])}"


def _lines_of_call(asked: ApprovalRequested, height: int) -> Iterator[Line]:
    """Give the lines that tell what a call would do, on a screen of so many rows. A long one is folded, so that its
    title is still to be seen: its end may matter most."""
    # The reason of the question, without what stands above and below it anyway.
    found = _WHY.search(asked.question)
    why = found[1] if found else asked.question
    name = f"{asked.tool_name} asks to run{_whose(asked)}"
    yield Line(mark="asks", name=name, text=f"· {one_line(why, 300)}", rows=2)
    rows = list(_argument_rows(asked.tool_name, asked.arguments))
    cut = [with_its_end(row, _ROW_CHARS) for row in rows]
    folded, most = [*cut], min(max(height - _ROWS_AROUND, _LEAST_ROWS), _ROWS_SHOWN)
    if len(cut) > most:
        hidden, n_last = f"… ({count(len(cut) - most, 'more row')}) …", most // 3
        folded = [*cut[: most - n_last], hidden, *cut[-n_last:]]
    yield from map(_in_bar, folded)
    if folded != rows:
        yield Line(indent=2, mark="warning", text="Not all of it is shown: v shows it")
    if asked.rule:
        yield Line(indent=2, text=f"session and always allow {asked.rule}", style="dim", rows=_FAULT_ROWS)


def whole(asked: ApprovalRequested) -> Iterator[Line]:
    """Give all the lines that tell what a call would do."""
    yield from map(_in_bar, row_pieces(_argument_rows(asked.tool_name, asked.arguments)))


def _describe_change(tool_name: str, arguments: JsonObject) -> Iterator[Line]:
    """Give the lines that tell what a call does with the arguments that a person gave it."""
    rows = list(_argument_rows(tool_name, arguments)) if tool_name in _CHANGES else []
    how = "changed:" if rows else f"changed to {all_arguments(arguments)}"
    yield Line(indent=2, text=f"{tool_name} allowed, {how}", style="green", rows=4)
    yield from (_in_bar(with_its_end(row, _ROW_CHARS)) for row in rows[:_ROWS_SHOWN])


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


Meaning: TypeAlias = Decision | Literal["modify", "view", "unclear"]


def _read_answer(asked: ApprovalRequested, text: str) -> Meaning:
    """Say what a line means as an answer."""
    first, _, rest = text.strip().partition(" ")
    word, reason = first.rstrip(",.:;").lower(), rest.strip()
    for extent, words in _ALLOWS.items():
        if word in words and not reason and extent in asked.offers:
            return Allow(extent)
    if word in ("n", "no", "deny"):
        return Deny(reason or DENIED)
    if word in ("x", "exit", "stop"):
        return Stop(reason or "stopped by the user")
    if word in ("m", "modify") and not reason:
        return "modify"
    return "view" if word in ("v", "view") and not reason else "unclear"


def _read_arguments(agent: AnyAgent, asked: ApprovalRequested, text: str) -> JsonObject:
    """Return the arguments that a person gives instead, checked as those of the model are; `InvalidArguments` if they
    do not fit."""
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


_AT_ONCE: Final = 65_536

T = TypeVar("T")

Edit: TypeAlias = Callable[[int, str, str], Awaitable[str | None]]
"""Lets a person edit a text, which is given after the terminal and a label. None: never mind."""


def open_terminal() -> int | None:
    """Return the terminal that this program was started from, if somebody is there: if it is in the foreground."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        if os.tcgetpgrp(terminal) == os.getpgrp():
            return terminal
    os.close(terminal)
    return None


@contextmanager
def asking(
    agent: AnyAgent,
    paused: Callable[[], AbstractContextManager[None]],
    tell: Callable[[Sequence[Line]], None],
    *,
    may_wait: bool = False,
) -> Generator[TerminalAsker | Nobody | None]:
    """Give what answers the questions of gates and models in this block: who is at the terminal, or nobody. None, where
    the runs may wait: nobody is here, and somebody may answer from elsewhere. Whoever follows a recorded run in the
    viewer may answer, too.

    `paused` keeps everyone else from writing to the terminal. `tell` gets the lines that say what nobody has answered.
    """
    terminal = open_terminal()
    if terminal is not None:
        try:
            yield TerminalAsker(agent, terminal, paused)
        finally:
            os.close(terminal)
        return
    nobody = Nobody()
    try:
        yield None if may_wait else nobody
    finally:
        if lines := list(nobody.lines()):
            tell(lines)


async def asked_by(asker: AsksUser | None, work: Awaitable[T]) -> T:
    """Do some work in which this one is asked what a model wants to know."""
    enter_conversation(replace(current_conversation.get(), asker=asker))
    return await work


class TerminalAsker:
    """Asks on one terminal."""

    def __init__(self, agent: AnyAgent, terminal: int, paused: Callable[[], AbstractContextManager[None]]) -> None:
        self._agent = agent
        self._terminal = terminal
        self._paused = paused
        self._turn = asyncio.Lock()

    async def approve(self, approval: Approval) -> Decision:
        """Ask about a call, and return the answer. Whoever follows the run in the viewer is asked, too; the first
        answer counts."""
        seen = find_watched_run()
        if seen is None:
            return await self._approve(approval)
        questions, place = seen
        return await questions.approve(approval, place=place, beside=self._approve)

    async def ask(
        self, path: RunPath, question: str, options: Sequence[str], *, call: RunStep | None = None
    ) -> str | None:
        """Ask what the model wants to know, in the same way, and return the answer; None after Ctrl-D."""
        seen = find_watched_run()
        if seen is None:
            return await self._ask_question(path, question, options)
        here = partial(self._ask_question, path, question, options)
        return await seen[0].ask(path, question, options, call=call, beside=here)

    async def _approve(self, approval: Approval) -> Decision:
        answer = await self._ask(asked_event(approval, approval.request.tool_use_id))
        return Deny(DENIED) if answer is None or isinstance(answer, str) else answer

    async def _ask_question(self, path: RunPath, question: str, options: Sequence[str]) -> str | None:
        answer = await self._ask(QuestionAsked(path=path, id="", question=question, options=(*options,)))
        return answer if isinstance(answer, str) else None

    async def _ask(self, asked: Asked) -> Decision | str | None:
        """Return the answer; None after Ctrl-D."""
        question, prompt = TerminalQuestion(self._agent, asked, may_exit="run"), None
        async with self._has_turn():
            self._say(question.lines(os.get_terminal_size(self._terminal).lines or 24))
            while question.answer is None:
                is_new, prompt = question.prompt is not prompt, question.prompt
                text = await self._enter(prompt, is_new=is_new)
                if text is None:
                    return None
                self._say(question.enter(text))
            return question.answer

    @asynccontextmanager
    async def _has_turn(self) -> AsyncGenerator[None]:
        """Have the terminal for one question."""
        async with self._turn:
            with self._paused():
                try:
                    yield
                except asyncio.CancelledError as left:
                    os.write(self._terminal, b"\n")
                    why = next((each for each in left.args if isinstance(each, FirstAnswer)), "stopped")
                    self._say([Line(text=f"It is asked no more, since it was {why}.", rows=2)])
                    raise

    async def _enter(self, prompt: Prompt, *, is_new: bool) -> str | None:
        """Return the line that is entered; None: there will be none."""
        if prompt.hint and is_new:
            self._say([Line(text=prompt.hint, style="cyan", rows=30)])
        if not prompt.given:
            return await self._line(prompt.label)
        edit: Edit = resolve_name("journeyman.cli.permit.editing:edit")  # imported for it alone
        return await edit(self._terminal, prompt.label, prompt.given) or ""

    def _say(self, lines: Iterable[Line]) -> None:
        with os.fdopen(os.dup(self._terminal), "w", encoding="utf-8", errors="replace") as file:
            width = os.get_terminal_size(self._terminal).columns or 80
            look: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "soft_wrap": True}
            console = Console(file=file, force_terminal=not is_dumb(), width=width, **look)
            PlainScreen(console).say([*lines])

    async def _line(self, label: str) -> str | None:
        """Return the line that is entered; None: there will be none."""
        termios.tcflush(self._terminal, termios.TCIFLUSH)
        os.write(self._terminal, label.encode())
        entered = b""
        while not entered.endswith(b"\n"):
            async with _readable(self._terminal):
                more = os.read(self._terminal, _AT_ONCE)
            if not more:  # Ctrl-D, or the terminal is gone
                os.write(self._terminal, b"\n")
                return entered.decode("utf-8", "replace") or None
            entered += more
        return entered.decode("utf-8", "replace").rstrip("\n")


@asynccontextmanager
async def _readable(descriptor: int) -> AsyncGenerator[None]:
    """Wait until there is something to read."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    yield


if TYPE_CHECKING:
    _asks: type[AsksUser] = TerminalAsker
