"""The output of an agent: the output tools, and the reflection that shows a draft back to the model; or its last text.

Submit lives only inside a reflection, so that neither can exist without the other. What ends an agent that answers with
text, or prolongs it, has no meaning beside an output tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypedDict, Unpack, cast, overload

from typing_extensions import TypeForm, TypeVar

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.problems import explain_arguments
from journeyman.tools.tools import Tool
from journeyman.types import Effect, RunPath, ToolResult

T = TypeVar("T")
Draft = TypeVar("Draft")
Contra = TypeVar("Contra", contravariant=True)
Out = TypeVar("Out", covariant=True)
Needs = TypeVar("Needs", default=object, contravariant=True)
"""The type of the deps that a function takes as its last argument; it need not take any."""

Renderer: TypeAlias = Callable[[T], str | Awaitable[str]] | Callable[[T, Needs], str | Awaitable[str]]
"""Renders a draft as the model should see it. The function gets the run's deps as its second argument, if it needs
them."""

Validator: TypeAlias = Callable[[Contra], Awaitable[None] | None] | Callable[[Contra, Needs], Awaitable[None] | None]
"""A function that checks an output. To reject it, the function raises `Rejected(text, path=…)` or another exception,
such as `ValueError`; the model reads the text. The function gets the run's deps as its second argument, if it needs
them."""

OutputMode: TypeAlias = Literal["tool", "native", "prompted"]
"""How the model hands in: with a tool, with JSON that its provider makes it answer with, or with JSON in its words."""


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


class OutputOptions(TypedDict, Generic[Draft, Needs], total=False):
    """The options of `Output`; they are explained at its fields. A reflection and validators take a `Draft`."""

    reflection: Renderer[Draft, Needs] | Reflection[Draft, Needs] | None
    validators: Sequence[Validator[Draft, Needs]]
    name: str
    description: str
    strict: bool
    mode: OutputMode | Literal["auto"]
    effect: Effect | None
    feedback_role: Literal["result", "text"]
    reminder: bool


@lazy_dataclass(frozen=True, slots=False)
class Output(Generic[Out, Needs]):
    """The type of an agent's output, and the tool whose arguments are the output; or a function whose arguments the
    model hands in, and which returns the output."""

    type: TypeForm[Out] | Callable[..., Out | Awaitable[Out]]
    """A model, dataclass, TypedDict, `list[int]`, `Report | None` … A type that is not an object is wrapped in one,
    with the single property `value`. Or a function, or a `Tool`: it is called once for an output that passed, after
    submit too. What it returns is the output, of the type that it declares; what it raises, the model reads."""
    _: KW_ONLY
    name: str | None = None
    """The name of the tool with which the model hands in. None: the name of the function, or else `output`; in a
    `OneOf` with the name of the type, as `output_Report`."""
    description: str = ""
    """What the model is told about the tool. Empty: what the function's docstring says, or a plain instruction."""
    reflection: Renderer[Any, Needs] | Reflection[Any, Needs] | None = None
    """A function that renders the draft, or a `Reflection` with options. None: the first output is final. The draft of
    a function is a dict of its arguments."""
    validators: Sequence[Validator[Any, Needs]] = ()
    """Checks of this output, before those of the agent. Those of a function check a dict of its arguments, before it is
    called."""
    strict: bool = False
    """Ask the provider to guarantee the schema, where it can do so without loss. A type with which no provider can is
    refused."""
    mode: OutputMode | Literal["auto"] = "tool"
    """`tool`: the model hands in with a tool. `native`: its provider makes it answer with JSON of the type, and its
    last text is the output. `prompted`: the system prompt asks for such JSON, and it is read out of the last text, also
    with words around it; for models that know no tools. `auto`: the first of these that the model can, as far as its
    facts tell. Without a tool the output cannot be reflected on."""
    effect: Effect | None = None
    """The effect of the function on the world, as a tool has one. None: what the `Tool` says, or else the agent."""
    feedback_role: Literal["result", "text"] = "result"
    """Where the model reads the error prompt: in the result of the call that handed in, or in a text after it. After an
    answer without such a call it is a text."""
    reminder: bool = False
    """Remind a model that stops without handing in, instead of failing with `INVALID_RESPONSE`. Each reminder costs an
    iteration."""

    if TYPE_CHECKING:

        @overload
        def __init__(self, type: TypeForm[Out], **options: Unpack[OutputOptions[Out, Needs]]) -> None: ...
        @overload
        def __init__(
            self, type: Tool[..., Coroutine[Any, Any, Out], Needs], **options: Unpack[OutputOptions[Any, Needs]]
        ) -> None: ...
        @overload
        def __init__(self, type: Tool[..., Out, Needs], **options: Unpack[OutputOptions[Any, Needs]]) -> None: ...
        @overload
        def __init__(
            self, type: Callable[..., Coroutine[Any, Any, Out]], **options: Unpack[OutputOptions[Any, Needs]]
        ) -> None: ...
        @overload
        def __init__(self, type: Callable[..., Out], **options: Unpack[OutputOptions[Any, Needs]]) -> None: ...
        def __init__(self, type: Any, **options: Any) -> None: ...

    def reflecting(self) -> Reflection[Any, Needs] | None:
        """Return the reflection with its options, if there is one."""
        reflection = self.reflection
        if reflection is None:
            return None
        if isinstance(reflection, Reflection):
            return cast("Reflection[Any, Needs]", reflection)
        return Reflection(reflection)


@explain_arguments
class OneOf(Generic[Out, Needs]):
    """Several outputs, of which the model hands in one: `OneOf(Report, Output(book_flight), str)`.

    Each has a tool of its own, with its own name, description, reflection and validators. Where `str` is among them, a
    text with which the model ends its turn is an output, too.
    """

    __slots__ = ("members", "takes_text")

    def __init__(self, *members: TypeForm[Out] | Output[Out, Needs]) -> None:
        given: Sequence[Any] = members
        outputs: list[Any] = [each if isinstance(each, Output) else Output(each) for each in given if each is not str]
        self.members: tuple[Output[Any, Needs], ...] = tuple(outputs)
        """The outputs that have a tool."""
        self.takes_text: bool = str in given
        """Whether a text is an output."""

    def __repr__(self) -> str:
        return f"OneOf({', '.join([*map(repr, self.members), *['str'] * self.takes_text])})"


TEXT: Final = Output(str)
"""The output of an agent that answers with plain text and has no output tool. It is compared by identity."""


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
