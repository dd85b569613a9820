"""Telling those who watch a run: listeners at once, callbacks awaited in place. Neither can break a run.

Where nobody watches there is no `Watch` at all, and no event is made.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import field
from typing import TYPE_CHECKING, Final, ParamSpec

from journeyman.agent import Runtime
from journeyman.cancellation import is_awaited, is_failure, log_caught
from journeyman.connect import recorder_at
from journeyman.definition.data import lazy_dataclass
from journeyman.endings import Place
from journeyman.errors import Told, name_and_words
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
    RecordingEnded,
    RunFailed,
    RunStarted,
    RunSucceeded,
    ToolCalled,
    ToolFinished,
    ValidationFailed,
)
from journeyman.journal import Outside, RecordingSink, SharedTape, TapeEnd, TapeKind, Where
from journeyman.model import Model, Request, Tap
from journeyman.result import CallbackError
from journeyman.types import RunPath, ToolUse

P = ParamSpec("P")

_log = logging.getLogger("journeyman")
NO_CALLBACKS = Callbacks()
ANYWHERE: Final = nullcontext()
"""The block for work of which nobody is told."""


@lazy_dataclass(kw_only=True)
class Watch:
    """The audience of one run: all who hear of it, and the recording of it."""

    path: RunPath
    listeners: Sequence[Listener] = ()
    """They hear of this run and of all runs below. Read again at each event."""
    on_message: Listener | None = None
    """Hears of this run only."""
    callbacks: Callbacks = NO_CALLBACKS
    """They are called at the steps of this run."""
    above: Watch | None = None
    """Who watches the run above, and so this one."""
    max_attempts: int = 0
    max_iterations: int = 0
    tape: RecordingSink | None = None
    """Takes down this run; those below have the same."""
    own_tape: RecordingSink | None = None
    """The same, if it was begun for this run: then it ends with it."""
    is_muted: Callable[[], bool] | None = None
    """Tells whether what is told now was told before, in an earlier life of the run; None: nothing was."""
    errors: list[CallbackError] = field(default_factory=list[CallbackError])
    """What listeners and callbacks raised, in order."""
    told: Told = field(default_factory=set[tuple[str, str]])
    """What of it was logged."""
    is_over: bool = False
    """True once it is told how the run ended."""

    def active(self, use: ToolUse | None = None) -> AbstractContextManager[object]:
        """Return a block whose work is that of the run, or of a call of it, for those who are told as it happens."""
        self.unmute()
        return ANYWHERE if self.tape is None else self.tape.active(self.path, use)

    def unmute(self) -> None:
        """Tell that the run goes on, if it does and nobody has said so."""
        if self.is_muted is not None:
            self.is_muted()

    def regret(self, kind: str, name: str, error: BaseException) -> None:
        """Remember and log what a listener, a callback or a hook of this name raised."""
        self.errors.append(CallbackError(callback=name, error=error))
        log_caught(f"The {kind} {name}", error, told=self.told)

    @property
    def is_heard(self) -> bool:
        """True when anybody listens, here or above: then pieces of answers are shown, too."""
        watch: Watch | None = self
        while watch is not None:
            if watch.listeners:
                return True
            watch = watch.above
        return False

    @property
    def wants_words(self) -> bool:
        """True when somebody is shown the answers as they are written."""
        return self.is_heard or (self.tape is not None and self.tape.wants_words)

    @property
    def is_followed(self) -> bool:
        """True when anybody listens, or records."""
        return self.tape is not None or self.is_heard

    def show(self, event: Event) -> None:
        """Give the event to every listener, here and then above. Who raises is remembered where it listens."""
        if self.is_muted is not None and self.is_muted():
            return
        self.pass_on(event)
        if self.tape is not None:
            self.tape.hear(event)
            if (why := self.tape.ended_early()) is not None:
                self.show(RecordingEnded(path=self.path, reason=why))

    def pass_on(self, event: Event) -> None:
        """Give an event that is recorded elsewhere to every listener."""
        watch: Watch | None = self
        listeners = self.listeners if self.on_message is None else (self.on_message, *self.listeners)
        while watch is not None:
            for listener in tuple(listeners):  # one that is told may add or remove some
                try:
                    listener(event)
                except BaseException as error:
                    if not is_failure(error):
                        raise
                    watch.regret("listener", getattr(listener, "__qualname__", type(listener).__name__), error)
            watch = watch.above
            listeners = () if watch is None else watch.listeners

    async def tell(self, event: Event, place: Place) -> None:
        """Give the event to every listener, then to its callback, and await that."""
        if self.is_muted is not None and self.is_muted():
            return
        name, facts = _CALLBACKS.get(type(event), ("", ()))
        callback = getattr(self.callbacks, name) if name else None
        if callback is None:
            self.show(event)
            return
        # Before a listener can change what they hold. A copy of an input for each callback: one that changes it would
        # change what the model is sent next.
        given = [(fact, getattr(event, fact)) for fact in facts]
        arguments = [deepcopy(value) if fact == "tool_input" else value for fact, value in given]
        if isinstance(event, ModelResponded):
            arguments = [event]
        self.show(event)
        try:
            outcome = callback(self._context(event, place), *arguments)
            if is_awaited(outcome):
                await outcome
        except BaseException as error:
            if not is_failure(error):
                raise
            self.regret("callback", name, error)

    def _context(self, event: Event, place: Place) -> CallbackContext:
        call = event if isinstance(event, ToolCalled | ToolFinished) else None
        end = event if isinstance(event, ToolFinished) else None
        return CallbackContext(
            path=self.path,
            attempt=place.attempt,
            max_attempts=self.max_attempts,
            iteration=place.iteration,
            max_iterations=self.max_iterations,
            tool_use_id=None if call is None else call.tool_use_id,
            kind=None if call is None else call.kind,
            is_error=None if end is None else end.is_error,
            cached=None if end is None else end.cached,
        )


_CALLBACKS: Final[Mapping[type, tuple[str, tuple[str, ...]]]] = {
    RunStarted: ("on_run_start", ()),
    AttemptStarted: ("on_attempt_start", ()),
    AttemptCompleted: ("on_attempt_complete", ("succeeded",)),
    IterationStarted: ("on_iteration_start", ()),
    ModelResponded: ("on_model_response", ()),
    ToolCalled: ("on_tool_call", ("tool_name", "tool_input")),
    ToolFinished: ("on_tool_result", ("tool_name", "tool_result")),
    LayerStarted: ("on_layer_start", ("name",)),
    LayerCompleted: ("on_layer_complete", ("outcome",)),
    ValidationFailed: ("on_validation_failure", ("feedback",)),
    RunSucceeded: ("on_success", ("output",)),
    RunFailed: ("on_failure", ("error",)),
}
"""The callback for each kind of event, and the facts of the event that it is given behind the context."""


def begin_tape(
    runtime: Runtime,
    kind: TapeKind,
    agent: str,
    *,
    id: str | None = None,
    traceparent: str = "",
    conversation: str = "",
) -> RecordingSink | None:
    """Begin a recording, or go on with that of this `id`, and a report to telemetry, as a part of the trace of
    `traceparent` and of the stored `conversation`. None: the runtime wants neither, or it cannot be done, which is
    logged: no run fails because of it."""
    given, tapes = runtime.recorder, list[RecordingSink]()
    if given is None and runtime.telemetry is None:
        return None
    if isinstance(given, SharedTape):
        return given.tape  # whoever began it has begun all of it
    try:
        if isinstance(given, str | os.PathLike):
            given = recorder_at(given, is_for_one=True)
        tapes += [] if given is None else [given.begin(kind, agent, id=id)]
    except Exception as error:  # noqa: BLE001 - of a file, or of a recorder of the user's
        _log.warning("nothing is recorded of %s: %s", agent, name_and_words(error))
    try:
        told = runtime.telemetry
        if told is not None:
            tapes.append(told.begin(kind, agent, id=id, traceparent=traceparent, conversation=conversation))
    except Exception as error:  # noqa: BLE001 - of a provider of the user's
        _log.warning("nothing is told of %s: %s", agent, name_and_words(error))
    return TwoTapes(*tapes) if len(tapes) == 2 else tapes[0] if tapes else None


async def end_tape(runtime: Runtime, tape: RecordingSink | None, status: TapeEnd, code: str | None = None) -> None:
    """End what `begin_tape` gave for a runtime; but not what somebody else has begun, who shares it."""
    if tape is not None and not isinstance(runtime.recorder, SharedTape):
        await tape.end(status, code)


def traceparent_of(runtime: Runtime, agent: str) -> str:
    """Tell that a run is stored, and return what all its lives are a part of; empty where nothing is told."""
    try:
        return "" if runtime.telemetry is None else runtime.telemetry.queued(agent)
    except Exception as error:  # noqa: BLE001 - of a provider of the user's
        _log.warning("nobody is told that a run of %s is stored: %s", agent, name_and_words(error))
        return ""


def _tell_both(first: Callable[P, object], second: Callable[P, object]) -> Callable[P, None]:
    """Return a function that calls one after the other with what it is given."""

    def tell(*given: P.args, **facts: P.kwargs) -> None:
        first(*given, **facts)
        second(*given, **facts)

    return tell


class TwoTapes:
    """Two tapes of the same run: one records it, the other reports it to telemetry."""

    def __init__(self, first: RecordingSink, second: RecordingSink) -> None:
        self._first, self._second = first, second
        self.hear: Final = _tell_both(first.hear, second.hear)
        self.apart: Final = _tell_both(first.apart, second.apart)

    @property
    def is_behind(self) -> bool:
        return self._first.is_behind or self._second.is_behind

    @property
    def outside(self) -> Outside | None:
        return self._first.outside or self._second.outside

    @property
    def wants_words(self) -> bool:
        return self._first.wants_words or self._second.wants_words

    def tap(self, where: Where, model: Model, request: Request) -> Tap:
        return TwoTaps(self._first.tap(where, model, request), self._second.tap(where, model, request))

    @contextmanager
    def active(self, path: RunPath, use: ToolUse | None = None) -> Generator[None]:
        with self._first.active(path, use), self._second.active(path, use):
            yield

    async def room(self) -> None:
        await self._first.room()
        await self._second.room()

    def ended_early(self) -> str | None:
        return self._first.ended_early() or self._second.ended_early()

    async def end(self, status: TapeEnd, code: str | None = None) -> None:
        await self._second.end(status, code)
        await self._first.end(status, code)


class TwoTaps:
    """Two taps of the same request. The end reaches them in reverse order: the one that began last ends first."""

    def __init__(self, first: Tap, second: Tap) -> None:
        self.note_body: Final = _tell_both(first.note_body, second.note_body)
        self.note_request: Final = _tell_both(first.note_request, second.note_request)
        self.note_status: Final = _tell_both(first.note_status, second.note_status)
        self.note_data: Final = _tell_both(first.note_data, second.note_data)
        self.note_response: Final = _tell_both(second.note_response, first.note_response)
        self.note_failure: Final = _tell_both(second.note_failure, first.note_failure)


if TYPE_CHECKING:
    _tape: type[RecordingSink] = TwoTapes
    _tap: type[Tap] = TwoTaps
