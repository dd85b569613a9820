"""Approvals and questions at the prompt: how they are shown, what the answers mean, and arguments that a person edits.

Answers are words of their own, so that a sentence that was meant for the agent approves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic_core import from_json

from journeyman.agent import Agent
from journeyman.cli.chat.view import SAY, Prompt
from journeyman.cli.show.lines import Line, one_line
from journeyman.cli.show.lines import arguments as arguments_in_words
from journeyman.errors import InvalidArguments, count, visible, with_its_end
from journeyman.events import ApprovalAnswered, ApprovalRequested, QuestionAnswered, QuestionAsked
from journeyman.gate import Allow, Decision, Deny, Extent, Rewrite, Stop
from journeyman.types import JsonObject

Asked: TypeAlias = ApprovalRequested | QuestionAsked
Answered: TypeAlias = ApprovalAnswered | QuestionAnswered
_ROWS_SHOWN: Final = 30
_LAST_ROWS: Final = 10
_CHARS_SHOWN: Final = 3_000
_MANY_ROWS: Final = 10_000
_PIECE: Final = 4_000
_FAULT_ROWS: Final = 12

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
_OTHERS: Final = "[m]odify · [n]o, with a reason · e[x]it the turn"
_DENIED: Final = "the user said no"


@dataclass(slots=True)
class _Open:
    """What waits for the user."""

    asked: Asked
    prompt: Prompt
    is_editing: bool = False
    edited: JsonObject | None = None
    """The arguments that the user gave instead."""


class Asking:
    """What waits for the user, oldest first. It all happens in the thread of the chat."""

    def __init__(
        self, agent: Agent[Any, Any, Any], answer: Callable[[str, Decision | str], None], show: Callable[[Prompt], None]
    ) -> None:
        """`answer` takes an id and its answer. `show` takes what the input line is for from now on."""
        self._agent = agent
        self._answer = answer
        self._show = show
        self._open: dict[str, _Open] = {}

    def add(self, asked: Asked) -> Iterator[Line]:
        """Take note of what waits. Gives its lines."""
        label = "allow? " if isinstance(asked, ApprovalRequested) else "answer> "
        self._open[asked.id] = _Open(asked, Prompt(label, asked.id, hint=_hint(asked)))
        yield from _shown(asked)
        self._tell()

    def remove(self, answered: Answered) -> Iterator[Line]:
        """Take note of an answer, whoever gave it. Gives its line."""
        waiting = self._open.pop(answered.id, None)
        if waiting is not None:
            yield from _outcome(waiting, answered)
        self._tell()

    def is_open(self, id: str) -> bool:
        """Tell whether this still waits."""
        return id in self._open

    def takes(self, id: str, text: str, *, is_command: bool) -> bool:
        """Tell whether a line is for this. Commands are not, and an empty line answers nothing."""
        waiting = self._open[id]
        if waiting.is_editing:
            return not is_command
        if isinstance(waiting.asked, QuestionAsked):
            return bool(text.strip()) and not is_command
        return bool(text.strip()) and not text.startswith("/")

    def enter(self, id: str, text: str) -> Iterator[Line]:
        """Take a line as an answer. Gives lines where it is none, or not yet."""
        waiting = self._open[id]
        if isinstance(waiting.asked, QuestionAsked):
            self._answer(id, _chosen(waiting.asked, text))
        elif waiting.is_editing:
            yield from self._edited(waiting, waiting.asked, text)
        else:
            yield from self._decided(waiting, waiting.asked, text)

    def _decided(self, waiting: _Open, asked: ApprovalRequested, text: str) -> Iterator[Line]:
        first, _, rest = text.strip().partition(" ")
        word, reason = first.rstrip(",.:;").lower(), rest.strip()
        extent = _ALLOWS.get(word) if not reason else None
        if extent in asked.offers:
            self._answer(asked.id, Allow(extent))
        elif word in ("n", "no", "deny"):
            self._answer(asked.id, Deny(reason or _DENIED))
        elif word in ("x", "exit", "stop"):
            self._answer(asked.id, Stop(reason or "stopped by the user"))
        elif word in ("m", "modify") and not reason:
            self._edit(waiting, visible(asked.arguments, indent=None))
        elif word in ("v", "view") and not reason:
            yield from _whole(asked.arguments)
        else:
            yield Line(mark="warning", text=f"{one_line(text, 40)!r} is no answer. {_hint(asked)}", rows=4)

    def _edit(self, waiting: _Open, given: str) -> None:
        waiting.is_editing = True
        hint = "Edit the arguments, then press Enter. An empty line goes back."
        waiting.prompt = Prompt("arguments> ", waiting.asked.id, given=given, hint=hint)
        self._tell()

    def _edited(self, waiting: _Open, asked: ApprovalRequested, text: str) -> Iterator[Line]:
        if not text.strip():
            waiting.is_editing = False
            waiting.prompt = Prompt("allow? ", asked.id, hint=_hint(asked))
            self._tell()
            return
        try:
            arguments = self._parsed(asked, text)
        except InvalidArguments as invalid:
            issues = "\n".join(invalid.issues)
            yield Line(mark="failed", text=f"These arguments do not fit:\n{issues}", rows=_FAULT_ROWS)
            self._edit(waiting, text)
            return
        waiting.edited = arguments
        is_same = arguments == asked.arguments
        self._answer(asked.id, Allow() if is_same else Rewrite(arguments, "changed by the user"))

    def _parsed(self, asked: ApprovalRequested, text: str) -> JsonObject:
        """Return the arguments, checked as those of the model are.

        Raises:
            InvalidArguments: they do not fit.
        """
        try:
            value: object = from_json(text)
        except ValueError as error:
            raise InvalidArguments("arguments", [f"it is not valid JSON: {error}"]) from error
        if not isinstance(value, dict):
            raise InvalidArguments("arguments", ["it is no JSON object, such as {…}"])
        tool = self._agent.plan.tools.get(asked.tool_name) if len(asked.path) == 1 else None
        if tool is not None:  # those of a sub-agent's tools are checked when the call is made
            tool.parse(text)
        return value  # pyright: ignore[reportUnknownVariableType] - JSON edge

    def _tell(self) -> None:
        waiting = next(iter(self._open.values()), None)
        self._show(SAY if waiting is None else waiting.prompt)


# -- how it is shown --------------------------------------------------------------------------------------------------


def _shown(asked: Asked) -> Iterator[Line]:
    who = "" if len(asked.path) == 1 else f" for {'/'.join(asked.path[1:])}"
    if isinstance(asked, QuestionAsked):
        yield Line(mark="asks", name=f"a question{who}", text=asked.question, rows=_FAULT_ROWS)
        for number, option in enumerate(asked.options, 1):
            yield Line(indent=4, text=f"{number} {option}", rows=3)
        return
    # The reason of the question, without what stands above and below it anyway.
    found = _WHY.search(asked.question)
    why = found[1] if found else asked.question
    yield Line(mark="asks", name=f"{asked.tool_name} asks to run{who}", text=f"· {one_line(why, 300)}", rows=2)
    text = visible(asked.arguments)
    rows = text.split("\n")
    if len(rows) > _ROWS_SHOWN:  # what matters may stand at the end
        hidden = f"… ({count(len(rows) - _ROWS_SHOWN, 'more row')}) …"
        rows = [*rows[: _ROWS_SHOWN - _LAST_ROWS], hidden, *rows[-_LAST_ROWS:]]
    shown = with_its_end("\n".join(rows), _CHARS_SHOWN)
    yield Line(indent=2, mark="bar", text=shown, rows=_MANY_ROWS)
    if shown != text:
        yield Line(indent=2, mark="warning", text="Not all of it is shown: v shows it")
    if asked.rule:
        yield Line(indent=2, text=f"session and always allow {asked.rule}", style="dim", rows=_FAULT_ROWS)


def _whole(arguments: JsonObject) -> Iterator[Line]:
    for row in visible(arguments).split("\n"):
        for start in range(0, max(len(row), 1), _PIECE):
            yield Line(indent=2, mark="bar", text=row[start : start + _PIECE], rows=_MANY_ROWS)


def _hint(asked: Asked) -> str:
    if isinstance(asked, QuestionAsked):
        return "A number or a text." if asked.options else ""
    return " · ".join([*(_GRANTS[extent] for extent in _GRANTS if extent in asked.offers), _OTHERS])


def _chosen(asked: QuestionAsked, text: str) -> str:
    """Return the option with that number, or the text."""
    number = text.strip()
    is_number = number.isascii() and number.isdigit() and 1 <= int(number) <= len(asked.options)
    return asked.options[int(number) - 1] if is_number else text.strip()


def _outcome(waiting: _Open, answered: Answered) -> Iterator[Line]:
    """Say what was answered. A denial is in the call's result, which follows."""
    name = waiting.asked.tool_name if isinstance(waiting.asked, ApprovalRequested) else ""
    if isinstance(answered, QuestionAnswered):
        yield Line(name=">", text=answered.answer or "(not answered)", rows=_FAULT_ROWS)
    elif answered.decision == "allow":
        yield Line(indent=2, text=f"{name} allowed", style="green")
    elif answered.decision == "rewrite":
        changed = arguments_in_words(waiting.edited or {})
        yield Line(indent=2, text=f"{name} allowed, changed to {changed}", style="green", rows=4)
