"""The output of an agent: the output tool, and the reflection that shows a draft back to the model; or its last text.

Submit lives only inside a reflection, so that neither can exist without the other. What ends an agent that answers with
text, or prolongs it, has no meaning beside an output tool.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import KW_ONLY
from typing import Any, Final, Generic, Literal, TypeAlias, cast

from typing_extensions import TypeForm, TypeVar

from journeyman.data import lazy_dataclass
from journeyman.errors import Problem
from journeyman.json_numbers import write_json
from journeyman.model import UNKNOWN, Facts, OutputFormat
from journeyman.types import JsonObject, RunPath, Text, ToolResult

__all__ = [
    "ContinueRun",
    "FailRun",
    "PerRun",
    "Renderer",
    "StopAfter",
    "StopContext",
    "StopGuard",
    "StopRule",
    "StopVerdict",
]

T = TypeVar("T")
Needs = TypeVar("Needs", default=object, contravariant=True)
"""The type of the deps that a function takes as its last argument; it need not take any."""

Renderer: TypeAlias = Callable[[T], str | Awaitable[str]] | Callable[[T, Needs], str | Awaitable[str]]
"""Renders a draft as the model should see it. The function gets the run's deps as its second argument, if it needs
them."""


_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@lazy_dataclass(frozen=True, kw_only=True)
class SubmitTool:
    """The tool with which the model hands in the draft it is satisfied with. It takes no arguments."""

    name: str = "submit"
    """The name of the tool."""
    description: str = (
        "Submit the output you proposed last. Call this once you are satisfied with it; it is then validated."
    )
    """What the model reads about it."""


# No slots: Python 3.11 cannot make a frozen generic dataclass with slots as `Output[Report](…)`.
@lazy_dataclass(frozen=True, slots=False)
class Reflection(Generic[T, Needs]):
    """A reflection that shows a proposed output back to the model, which may propose again before it submits."""

    handler: Renderer[T, Needs]
    """Renders the draft as the model should see it. If it raises, the model reads the error."""
    _: KW_ONLY
    submit: SubmitTool = SubmitTool()
    """The tool with which the model submits its draft."""
    require_clean: bool = False
    """Refuse to submit a draft whose reflection failed. Otherwise validation decides."""
    submit_alone: bool = False
    """Refuse to submit in the response that proposes the draft: the model has not seen it yet."""
    early_submit: Literal["fail", "answer"] = "fail"
    """What happens when the model submits before any draft: the run ends with `SUBMIT_BEFORE_OUTPUT`, or the model
    reads an error and goes on."""


@lazy_dataclass(frozen=True, slots=False)
class Output(Generic[T, Needs]):
    """The type of an agent's output, and the tool whose arguments are the output."""

    type: TypeForm[T]
    """A model, dataclass, TypedDict, `list[int]`, `Report | None` … A type that is not an object is wrapped in one,
    with the single property `value`."""
    _: KW_ONLY
    name: str = "output"
    """The name of the tool with which the model hands in."""
    description: str = ""
    """What the model is told about the tool. Empty: a plain instruction."""
    reflection: Renderer[T, Needs] | Reflection[T, Needs] | None = None
    """A function that renders the draft, or a `Reflection` with options. None: the first output is final."""
    strict: bool = False
    """Ask the provider to guarantee the schema, where it can do so without loss. A type with which no provider can is
    refused."""
    mode: Literal["tool", "native", "prompted"] = "tool"
    """`tool`: the model hands in with a tool. `native`: its provider makes it answer with JSON of the type, and its
    last text is the output. `prompted`: the system prompt asks for such JSON, and it is read out of the last text, also
    with words around it; for models that know no tools. Without a tool the output cannot be reflected on."""
    feedback_role: Literal["result", "text"] = "result"
    """Where the model reads the error prompt: in the result of the call that handed in, or in a text after it. After an
    answer without such a call it is a text."""
    reminder: bool = False
    """Remind a model that stops without handing in, instead of failing with `INVALID_RESPONSE`. Each reminder costs an
    iteration."""

    def reflecting(self) -> Reflection[T, Needs] | None:
        """Return the reflection with its options, if there is one."""
        reflection = self.reflection
        if reflection is None:
            return None
        if isinstance(reflection, Reflection):
            return cast("Reflection[T, Needs]", reflection)
        return Reflection(reflection)


def native_format(output: Output[Any, Any], schema: JsonObject) -> OutputFormat:
    """Return the form of a native output, as a provider is asked for it."""
    about = output.description.strip()
    return OutputFormat(name=output.name, description=about, schema=schema, strict=output.strict)


def ask_in_words(output: Output[Any, Any], schema: JsonObject) -> Text:
    """Return what asks the model for a prompted output, at the end of its system prompt."""
    about = f"{output.description.strip()}\n" if output.description.strip() else ""
    rule = "End your work with one JSON object, and no words around it. It must fit this JSON Schema:"
    return Text(f"{about}{rule}\n{write_json(schema).decode()}")


def text_problems(output: Output[Any, Any], model: object) -> Iterator[Problem]:
    """Yield the problems of an output that is no tool, as far as the model is known."""
    mode: str = output.mode
    if mode not in ("native", "prompted"):
        yield Problem("INVALID_OUTPUT_MODE", f"Output.mode is {mode!r}.", "Pass 'tool', 'native' or 'prompted'.")
        return
    if output.reflection is not None:
        wrong = f"The output is {mode}, so it cannot be reflected on: the model's answer is final."
        yield Problem("NATIVE_REFLECTION", wrong, "Remove reflection, or use mode='tool'.")
    if output.reminder:
        wrong = f"The output is {mode}, so there is no tool that a reminder could name."
        yield Problem("NATIVE_REMINDER", wrong, "Remove reminder, or use mode='tool'.")
    if output.strict and mode == "prompted":
        wrong = "The output is prompted, so no provider sees its schema, and none can guarantee it."
        yield Problem("PROMPTED_STRICT", wrong, "Remove strict, or use mode='native'.")
    if not isinstance(output.name, str) or not _NAME.fullmatch(output.name):  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
        wrong = f"The output's name {output.name!r} is not 1 to 64 letters, digits, '_' or '-'."
        yield Problem("INVALID_NAME", wrong, "Give it a name such as 'report'.")
    facts: Facts = getattr(model, "facts", UNKNOWN)
    if mode == "native" and facts.native_output is False:
        named = f"{getattr(model, 'provider', '')}:{getattr(model, 'name', '')}"
        yield Problem("NO_NATIVE_OUTPUT", f"The model {named} has no native output.", "Use mode='tool'.")


TEXT: Final = Output(str)
"""The output of an agent that answers with plain text and has no output tool. It is compared by identity."""


# -- the end of an agent that answers with text ------------------------------------------------------------------------


@lazy_dataclass(frozen=True, kw_only=True)
class StopContext:
    """A normal stop that a stop guard may veto."""

    text: str
    """The model's last words."""
    attempt: int
    iteration: int
    trigger: Literal["answer", "stop_after"]
    """What would end the attempt: an answer, or a call of a tool in `stop_after`."""
    path: RunPath = ()
    """The run, from the root down."""
    agent: str = ""
    """The name of the agent."""
    task: str = ""
    """The run's input: a text as it is, any other as JSON."""


@lazy_dataclass(frozen=True)
class ContinueRun:
    """The run continues; the model reads `text`. A blank text lets it stop."""

    text: str
    """What the model reads."""


@lazy_dataclass(frozen=True)
class FailRun:
    """The run ends with `Failure(STOP_GUARD)`."""

    reason: str
    """Why the run ends as `STOP_GUARD`."""


StopVerdict: TypeAlias = ContinueRun | FailRun | None
"""What a stop guard answers; None lets the attempt end."""
StopGuard: TypeAlias = (
    Callable[[StopContext], StopVerdict | Awaitable[StopVerdict]]
    | Callable[[StopContext, Needs], StopVerdict | Awaitable[StopVerdict]]
)
"""Asked when an agent that answers with text stops normally, before its validators. None lets the agent stop. The guard
gets the run's deps as its second argument, if it needs them."""


@lazy_dataclass(frozen=True)
class PerRun:
    """A maker of stop guards, one for each run, so that a guard which counts or remembers shares nothing between
    runs."""

    factory: (
        Callable[[str, str], StopGuard | Awaitable[StopGuard | None] | None]
        | Callable[[str, str, Any], StopGuard | Awaitable[StopGuard | None] | None]
    )
    """Called when a run begins, with the agent's name and the task, which is the input as a text or as JSON; and with
    the run's deps, if it takes three arguments. If it returns None, the run has no guard."""


StopRule: TypeAlias = Callable[[str, ToolResult], bool | Awaitable[bool]]
"""Tells whether a call ends the run, from the tool's name and its result."""

StopAfter: TypeAlias = Sequence[str | StopRule] | StopRule
"""Which successful call ends the run: one rule, or names of tools and rules, of which any may end it."""
