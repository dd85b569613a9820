"""Telling those who watch a run: listeners at once, callbacks awaited in place. Neither can break a run.

Where nobody watches there is no `Watch` at all, and no event is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import field
from typing import Final

from journeyman.cancel import is_awaited, is_failure
from journeyman.endings import Place
from journeyman.errors import Told, log_caught
from journeyman.events import (
    AttemptCompleted,
    AttemptStarted,
    CallbackContext,
    Callbacks,
    Event,
    IterationStarted,
    LayerCompleted,
    LayerStarted,
    Listener,
    ModelResponded,
    RunFailed,
    RunStarted,
    RunSucceeded,
    ToolCalled,
    ToolFinished,
    ValidationFailed,
)
from journeyman.result import CallbackError, ToolKind
from journeyman.types import RunPath, record_class, value_class

_NOTHING = Callbacks()


@record_class(kw_only=True)
class Watch:
    """Who watches one run."""

    path: RunPath
    listeners: Sequence[Listener] = ()
    """They hear of this run and of all runs below. Read anew at each event."""
    on_message: Listener | None = None
    """Hears of this run only."""
    callbacks: Callbacks = _NOTHING
    above: Watch | None = None
    """Who watches the run above, and so this one."""
    max_attempts: int = 0
    max_iterations: int = 0
    is_muted: Callable[[], bool] | None = None
    """Tells whether what is told now was told before, in an earlier life of the run; None: nothing was."""
    errors: list[CallbackError] = field(default_factory=list[CallbackError])
    """What listeners and callbacks raised, in order."""
    told: Told = field(default_factory=set[tuple[str, str]])
    """What of it was logged."""

    def regret(self, kind: str, name: str, error: BaseException) -> None:
        """Remember and log what a listener, a callback or a hook of this name raised."""
        self.errors.append(CallbackError(callback=name, error=error))
        log_caught(f"The {kind} {name}", error, told=self.told)

    @property
    def is_heard(self) -> bool:
        """True when anybody listens, here or above."""
        watch: Watch | None = self
        while watch is not None:
            if watch.listeners:
                return True
            watch = watch.above
        return False

    def show(self, event: Event) -> None:
        """Give the event to every listener, here and then above. Who raises is remembered where it listens."""
        if self.is_muted is not None and self.is_muted():
            return
        if self.on_message is not None:
            self._give(self.on_message, event)
        watch: Watch | None = self
        while watch is not None:
            for listener in tuple(watch.listeners):  # one that is told may add or remove some
                watch._give(listener, event)
            watch = watch.above

    def _give(self, listener: Listener, event: Event) -> None:
        try:
            listener(event)
        except BaseException as error:
            if not is_failure(error):
                raise
            self.regret("listener", _name_of(listener), error)

    async def tell(self, event: Event, place: Place) -> None:
        """Give the event to every listener, then to its callback, and await that."""
        if self.is_muted is not None and self.is_muted():
            return
        if self.callbacks is _NOTHING:
            self.show(event)
            return
        name, arguments, facts = _call_of(event)  # before a listener can change what they hold
        self.show(event)
        callback = getattr(self.callbacks, name) if name else None
        if callback is None:
            return
        try:
            outcome = callback(self._context(facts, place), *arguments)
            if is_awaited(outcome):
                await outcome
        except BaseException as error:
            if not is_failure(error):
                raise
            self.regret("callback", name, error)

    def _context(self, facts: _CallFacts, place: Place) -> CallbackContext:
        return CallbackContext(
            path=self.path,
            attempt=place.attempt,
            max_attempts=self.max_attempts,
            iteration=place.iteration,
            max_iterations=self.max_iterations,
            tool_use_id=facts.tool_use_id,
            kind=facts.kind,
            is_error=facts.is_error,
            cached=facts.cached,
        )


@value_class()
class _CallFacts:
    """What a callback learns of the call it is about; nothing for the others."""

    tool_use_id: str | None = None
    kind: ToolKind | None = None
    is_error: bool | None = None
    cached: bool | None = None


def _call_of(event: Event) -> tuple[str, tuple[object, ...], _CallFacts]:
    """Return the callback for `event`, its arguments after the context, and the facts of the call."""
    match event:
        case ToolCalled(tool_use_id=id, kind=kind):
            return "on_tool_call", (event.tool_name, deepcopy(event.tool_input)), _CallFacts(id, kind)
        case ToolFinished(tool_use_id=id, kind=kind, is_error=is_error, cached=cached):
            facts = _CallFacts(id, kind, is_error, cached)
            return "on_tool_result", (event.tool_name, event.tool_result), facts
        case ModelResponded():
            return "on_model_response", (event,), _NO_CALL
        case _:
            name, fact = _STEPS.get(type(event), ("", ""))
            return name, (getattr(event, fact),) if fact else (), _NO_CALL


_STEPS: Final[Mapping[type, tuple[str, str]]] = {
    RunStarted: ("on_run_start", ""),
    AttemptStarted: ("on_attempt_start", ""),
    IterationStarted: ("on_iteration_start", ""),
    LayerStarted: ("on_layer_start", "name"),
    LayerCompleted: ("on_layer_complete", "outcome"),
    ValidationFailed: ("on_validation_failure", "feedback"),
    AttemptCompleted: ("on_attempt_complete", "succeeded"),
    RunSucceeded: ("on_success", "output"),
    RunFailed: ("on_failure", "error"),
}
"""The callback for each kind of event, and the fact that it is given; none for the empty name."""

_NO_CALL = _CallFacts()


def _name_of(listener: Listener) -> str:
    return getattr(listener, "__qualname__", type(listener).__name__)
