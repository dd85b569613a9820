"""What a run told, in few words; and whether its events are balanced.

`Recorder` is a listener, `CallbackLog` makes callbacks; both keep what they got. `names`, `calls` and `transcript` say
it so that an expectation is one literal. `check_balance` is the strict check that every test of events should make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeAlias, TypeVar

from journeyman.events import (
    AttemptCompleted,
    AttemptStarted,
    CallbackContext,
    Callbacks,
    ContextCompacted,
    Event,
    IterationStarted,
    LayerCompleted,
    LayerStarted,
    MessageCommitted,
    ModelAnswered,
    ModelResponded,
    ModelRestarted,
    ModelRetried,
    OutputDelta,
    RunFailed,
    RunStarted,
    RunSucceeded,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolFinished,
    ToolInputDelta,
    ToolProgress,
    ValidationFailed,
)
from journeyman.types import Block, Message, RunPath, Text, ToolResult, ToolUse
from tests.support.stage_wire import neutral

E = TypeVar("E")

Delta: TypeAlias = TextDelta | ThinkingDelta | ToolInputDelta | OutputDelta


# -- keeping -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Recorder:
    """A listener that keeps every event."""

    events: list[Event] = field(default_factory=list[Event])

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one class."""
        return [event for event in self.events if isinstance(event, kind)]


@dataclass(slots=True, eq=False)
class CallbackLog:
    """Callbacks that keep their arguments: `run(..., callbacks=log.callbacks())`."""

    entries: list[tuple[str, CallbackContext, tuple[object, ...]]] = field(
        default_factory=list[tuple[str, CallbackContext, tuple[object, ...]]]
    )
    """Name, context and the other arguments, in order."""

    def callbacks(self) -> Callbacks:
        """Return all callbacks there are."""

        def named(name: str) -> Callable[..., None]:
            def keep(context: CallbackContext, *arguments: object) -> None:
                self.entries.append((name, context, arguments))

            return keep

        return Callbacks(**{each.name: named(each.name) for each in fields(Callbacks)})

    @property
    def names(self) -> list[str]:
        """The names of the callbacks, without `on_`, in order."""
        return [name.removeprefix("on_") for name, _, _ in self.entries]

    def of(self, name: str) -> list[tuple[CallbackContext, tuple[object, ...]]]:
        """Return context and arguments of each call of one callback, named without `on_`."""
        return [(context, arguments) for each, context, arguments in self.entries if each == f"on_{name}"]


# -- in few words ------------------------------------------------------------------------------------------------------


def names(events: Iterable[Event], *, deltas: bool = False) -> list[str]:
    """Return the names of the events' classes. Deltas, cut anywhere, only if asked for, and then neighbours once."""
    found: list[str] = []
    for event in events:
        is_delta = isinstance(event, Delta)
        name = type(event).__name__
        if not is_delta or (deltas and found[-1:] != [name]):
            found.append(name)
    return found


def calls(events: Iterable[Event]) -> list[str]:
    """Return begin and end of every call: `look#a?`, then `look#a: found`, or `look#a! Error: …`."""
    return [_call_line(event) for event in events if isinstance(event, ToolCalled | ToolFinished)]


def _call_line(event: ToolCalled | ToolFinished) -> str:
    who = f"{event.tool_name}#{event.tool_use_id}"
    if isinstance(event, ToolCalled):
        return f"{who}?"
    cached = " (cached)" if event.cached else ""
    return f"{who}{'!' if event.is_error else ':'} {event.tool_result}{cached}"


def transcript(messages: Iterable[Message]) -> list[tuple[str, ...]]:
    """Return every message as its role and its blocks, neutral: a text as it is, a call as `look({"n":1})#a`, a result
    as `#a: found` or `#a! Error: …`, anything else as the name of its class."""
    return [(message.role, *(_block_line(block) for block in message.content)) for message in neutral(messages)]


def _block_line(block: Block) -> str:
    match block:
        case Text(text):
            return text
        case ToolUse():
            return f"{block.name}({block.input_json})#{block.id}"
        case ToolResult():
            return f"#{block.tool_use_id}{'!' if block.is_error else ':'} {block.text}"
        case _:
            return type(block).__name__


# -- balance -----------------------------------------------------------------------------------------------------------


def check_balance(events: Sequence[Event]) -> None:
    """Fail if the events of a run that returned break a promise of order.

    One `RunStarted` first, one final event last, all on one path; attempts and layers open and close in turn; deltas
    only while the model answers; every announced call finishes once, and no other does; messages alternate.
    """
    state = _Balance(path=events[0].path if events else ())
    for number, event in enumerate(events):
        assert not state.is_over, f"{_at(number, event)}: nothing may follow the final event."
        assert event.path == state.path, f"{_at(number, event)}: another path."
        problem = state.problem(event, is_first=number == 0)
        assert problem is None, f"{_at(number, event)}: {problem}"
    assert state.is_over, "There is no final event."


def _at(number: int, event: Event) -> str:
    return f"Event {number}, {type(event).__name__}"


@dataclass(slots=True)
class _Balance:
    path: RunPath
    is_over: bool = False
    attempt: int | None = None
    n_attempts: int = 0
    iteration: int = 0
    is_asking: bool = False
    layer: str | None = None
    layers_failed: bool = False
    open_calls: dict[str, str] = field(default_factory=dict[str, str])
    last_role: str = ""

    def problem(self, event: Event, *, is_first: bool) -> str | None:
        """Say what is wrong with `event` here."""
        if isinstance(event, RunStarted) != is_first:
            return "RunStarted is the first event, and only that."
        match event:
            case AttemptStarted() | AttemptCompleted():
                return self._attempt_problem(event)
            case IterationStarted() | ModelResponded():
                return self._iteration_problem(event)
            case LayerStarted() | LayerCompleted() | ValidationFailed():
                return self._layer_problem(event)
            case ToolCalled() | ToolFinished() | ToolProgress():
                return self._call_problem(event)
            case _:
                return self._other_problem(event)

    def _attempt_problem(self, event: AttemptStarted | AttemptCompleted) -> str | None:
        if isinstance(event, AttemptStarted):
            if self.attempt is not None or event.attempt != self.n_attempts + 1:
                return "the attempt before has not completed, or a number was left out."
            self.attempt = self.n_attempts = event.attempt
            self.iteration, self.layers_failed = 0, False
            return None
        if self.attempt != event.attempt or self.open_calls or self.layer is not None:
            return f"not this attempt's turn, or open: calls {self.open_calls}, layer {self.layer}."
        if event.succeeded and self.layers_failed:
            return "it succeeded although a layer failed."
        self.attempt, self.is_asking = None, False
        return None

    def _iteration_problem(self, event: IterationStarted | ModelResponded) -> str | None:
        if event.attempt != self.attempt:
            return "it belongs to no open attempt."
        if isinstance(event, IterationStarted):
            if self.open_calls or event.iteration != self.iteration + 1:
                return f"calls are open: {self.open_calls}, or the number does not follow {self.iteration}."
            self.iteration, self.is_asking = event.iteration, True
            return None
        if not self.is_asking or event.iteration != self.iteration:
            return "the model was not asked, or twice answered."
        self.is_asking = False
        return None

    def _layer_problem(self, event: LayerStarted | LayerCompleted | ValidationFailed) -> str | None:
        if event.attempt != self.attempt:
            return "it belongs to no open attempt."
        match event:
            case LayerStarted(name=name):
                if self.layer is not None or self.layers_failed:
                    return "a layer is open, or one failed."
                self.layer = name
            case LayerCompleted(outcome=outcome):
                if outcome.name != self.layer:
                    return f"the open layer is {self.layer}."
                self.layer, self.layers_failed = None, not outcome.passed
            case ValidationFailed():
                if not self.layers_failed:
                    return "no layer failed."
        return None

    def _call_problem(self, event: ToolCalled | ToolFinished | ToolProgress) -> str | None:
        if isinstance(event, ToolCalled):
            if event.tool_use_id in self.open_calls or self.is_asking:
                return "it is called already, or the model is still answering."
            self.open_calls[event.tool_use_id] = event.tool_name
            return None
        if self.open_calls.get(event.tool_use_id) != event.tool_name:
            return "it was not called, or has finished before."
        if isinstance(event, ToolFinished):
            del self.open_calls[event.tool_use_id]
        return None

    def _final_problem(self, *, succeeded: bool) -> str | None:
        self.is_over = True
        if self.attempt is not None or self.open_calls or self.layer is not None:
            return f"open: attempt {self.attempt}, calls {self.open_calls}, layer {self.layer}."
        if succeeded and self.layers_failed:
            return "it succeeded although a layer failed."
        return None

    def _other_problem(self, event: Event) -> str | None:
        match event:
            case RunSucceeded() | RunFailed():
                return self._final_problem(succeeded=isinstance(event, RunSucceeded))
            case MessageCommitted(message=message):
                if message.role == self.last_role and not message.continues:
                    return f"two messages of the {message.role} in a row."
                self.last_role = message.role
            case TextDelta() | ThinkingDelta() | ToolInputDelta() | OutputDelta():
                return None if self.is_asking else "the model is not answering."
            case ModelRetried() | ModelRestarted() | ModelAnswered() | ContextCompacted():
                return None if self.is_asking else "the model is not asked."
            case _:
                pass
        return None
