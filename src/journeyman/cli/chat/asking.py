"""Approvals and questions at the prompt of a chat: which of them waits, and what a line that is entered does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from journeyman.agent import Agent
from journeyman.cli.chat.view import SAY, Prompt
from journeyman.cli.permit.asked import (
    arguments_from,
    choose_option,
    describe_change,
    hint,
    lines_of_call,
    misfit,
    question_lines,
    unclear,
    whole,
)
from journeyman.cli.permit.asked import read_answer as meant_by
from journeyman.cli.show.lines import Line
from journeyman.errors import InvalidArguments, visible
from journeyman.events import ApprovalAnswered, ApprovalRequested, QuestionAnswered, QuestionAsked
from journeyman.gate import Allow, Decision, Extent, Rewrite
from journeyman.types import JsonObject

Asked: TypeAlias = ApprovalRequested | QuestionAsked
Answered: TypeAlias = ApprovalAnswered | QuestionAnswered
_FAULT_ROWS: Final = 12
_EXTENTS: Final = {"session": "for this session", "always": "always"}


@dataclass(slots=True)
class _Open:
    """An approval or a question that waits for the user, and how far they are with it."""

    asked: Asked
    prompt: Prompt
    is_editing: bool = False
    edited: JsonObject | None = None
    """The arguments that the user gave instead."""
    extent: Extent = "once"
    """How far the user allowed it."""


class Asking:
    """The approvals and questions that wait for the user, oldest first; used only in the thread of the chat."""

    def __init__(
        self,
        agent: Agent[Any, Any, Any],
        answer: Callable[[str, Decision | str], None],
        show: Callable[[Prompt], None],
        height: Callable[[], int],
    ) -> None:
        """`answer` takes an id and its answer. `show` takes what the input line is for from now on. `height` returns
        how many rows the screen has."""
        self._height = height
        self._agent = agent
        self._answer = answer
        self._show = show
        self._open: dict[str, _Open] = {}

    def add(self, asked: Asked) -> Iterator[Line]:
        """Take note of what waits. Gives its lines."""
        label = "allow? " if isinstance(asked, ApprovalRequested) else "answer> "
        self._open[asked.id] = _Open(asked, Prompt(label, asked.id, hint=_hint(asked)))
        if isinstance(asked, ApprovalRequested):
            yield from lines_of_call(asked, self._height())
        else:
            yield from question_lines(asked.path, asked.question, asked.options)
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
            self._answer(id, choose_option(waiting.asked.options, text))
        elif waiting.is_editing:
            yield from self._take_edit(waiting, waiting.asked, text)
        else:
            yield from self._decide(waiting, waiting.asked, text)

    def _decide(self, waiting: _Open, asked: ApprovalRequested, text: str) -> Iterator[Line]:
        match meant_by(asked, text):
            case "modify":
                self._edit(waiting, visible(asked.arguments, indent=None))
            case "view":
                yield from whole(asked)
            case "unclear":
                yield unclear(text, _hint(asked))
            case decision:
                waiting.extent = decision.extent if isinstance(decision, Allow) else "once"
                self._answer(asked.id, decision)

    def _edit(self, waiting: _Open, given: str) -> None:
        waiting.is_editing = True
        hint = "Edit the arguments, then press Enter. An empty line goes back."
        waiting.prompt = Prompt("arguments> ", waiting.asked.id, given=given, hint=hint)
        self._tell()

    def _take_edit(self, waiting: _Open, asked: ApprovalRequested, text: str) -> Iterator[Line]:
        if not text.strip():
            waiting.is_editing = False
            waiting.prompt = Prompt("allow? ", asked.id, hint=_hint(asked))
            self._tell()
            return
        try:
            arguments = arguments_from(self._agent, asked, text)
        except InvalidArguments as invalid:
            yield misfit(invalid)
            self._edit(waiting, text)
            return
        waiting.edited = arguments
        is_same = arguments == asked.arguments
        self._answer(asked.id, Allow() if is_same else Rewrite(arguments, "changed by the user"))

    def _tell(self) -> None:
        waiting = next(iter(self._open.values()), None)
        self._show(SAY if waiting is None else waiting.prompt)


# -- how it is shown --------------------------------------------------------------------------------------------------


def _hint(asked: Asked) -> str:
    if isinstance(asked, QuestionAsked):
        return "A number or a text." if asked.options else ""
    return hint(asked, may_stop=True)


def _outcome(waiting: _Open, answered: Answered) -> Iterator[Line]:
    """Say what was answered. A denial is in the call's result, which follows."""
    name = waiting.asked.tool_name if isinstance(waiting.asked, ApprovalRequested) else ""
    if isinstance(answered, QuestionAnswered):
        yield Line(name=">", text=answered.answer or "(not answered)", rows=_FAULT_ROWS)
    elif answered.decision == "allow":
        rule = waiting.asked.rule if isinstance(waiting.asked, ApprovalRequested) else ""
        extent = "" if waiting.extent == "once" else f" {_EXTENTS[waiting.extent]}: {rule}"
        yield Line(indent=2, text=f"{name} allowed{extent}", style="green", rows=4)
    elif answered.decision == "rewrite":
        yield from describe_change(name, waiting.edited or {})
