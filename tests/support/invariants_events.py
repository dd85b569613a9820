"""What must hold of the events and callbacks of a run: each promise in the docstrings of `events.py`, and A26 to A28.

Each rule yields what is wrong, in words.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from journeyman import Failure, Success, ToolResult
from journeyman.events import (
    AttemptCompleted,
    AttemptStarted,
    CallAbandoned,
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
from journeyman.types import Message
from tests.support.run_record import RunRecord

E = TypeVar("E")

_WHILE_ASKING = (
    *(TextDelta, ThinkingDelta, ToolInputDelta, OutputDelta),
    *(ModelRetried, ModelRestarted, ModelAnswered, ContextCompacted),
)
_LAST = (RunSucceeded, RunFailed)
_OF_THE_RUN = (RunStarted, RunSucceeded, RunFailed, MessageCommitted, CallAbandoned, ToolProgress)


def own_events(record: RunRecord) -> list[Event]:
    """Return the events of the run itself, without those of runs inside it."""
    return [event for event in record.events if event.path == record.path]


def frame_faults(record: RunRecord) -> Iterator[str]:
    """RunStarted first; exactly one ending, last, and the one that was returned."""
    events = own_events(record)
    if not events:
        if record.result is not None:
            yield "there are no events"
        return
    if [type(event) for event in events].index(RunStarted) != 0 or len(_of(events, RunStarted)) != 1:
        yield "RunStarted is not the first event, or not the only one"
    endings = [event for event in events if isinstance(event, _LAST)]
    if record.result is None:
        if len(endings) > 1:
            yield f"several endings: {endings}"
        return
    if len(endings) != 1 or events[-1] is not endings[0]:
        yield f"not exactly one ending, last: {endings}"
        return
    yield from _ending_faults(record.result, endings[0])


def _ending_faults(result: Success[object] | Failure, told: Event) -> Iterator[str]:
    match result, told:
        case Success(output=output), RunSucceeded(output=told_output) if output is told_output:
            pass
        case Failure(error=error), RunFailed(error=told_error) if error is told_error:
            pass
        case _:
            yield f"told {told}, returned {result}"
    if isinstance(told, _LAST):
        without = replace(result.metadata, callback_errors=told.metadata.callback_errors)
        if told.metadata != without:
            yield f"told {told.metadata}, returned {result.metadata}"


def attempt_faults(record: RunRecord) -> Iterator[str]:
    """Attempts are numbered, balanced and never overlap; what belongs to one happens inside it."""
    opened = 0
    is_open = False
    for event in own_events(record):
        if isinstance(event, AttemptStarted):
            if is_open or event.attempt != opened + 1:
                yield f"attempt {event.attempt} starts after {opened}, which is open: {is_open}"
            opened, is_open = event.attempt, True
        elif isinstance(event, AttemptCompleted):
            if not is_open or event.attempt != opened:
                yield f"attempt {event.attempt} completes, and {opened} is open: {is_open}"
            is_open = False
        elif not isinstance(event, _OF_THE_RUN) and not (is_open and getattr(event, "attempt", opened) == opened):
            yield f"{event} outside of its attempt: {opened} is open: {is_open}"
    if is_open and record.result is not None:
        yield f"attempt {opened} never completes"
    if (isinstance(record.result, Success) or _may_pass(record)) != any(_passed(record)):
        yield f"attempts passed: {_passed(record)}, and the run ended with {record.result}"


def _passed(record: RunRecord) -> list[bool]:
    return [event.succeeded for event in _of(own_events(record), AttemptCompleted)]


def _may_pass(record: RunRecord) -> bool:
    """Whether the run failed although an attempt passed: what still may go wrong comes in between."""
    code = record.result.code if isinstance(record.result, Failure) else None
    return (code is None or code in _AFTER_SUCCESS) and _passed(record)[-1:] == [True]


_AFTER_SUCCESS = ("STATE_PROJECTION_FAILED", "EXECUTION_CANCELLED", "BUDGET_EXCEEDED")


def iteration_faults(record: RunRecord) -> Iterator[str]:
    """Iterations are numbered from 1 in each attempt; each has at most one response, and its deltas before that."""
    number, is_asking = 0, False
    for event in own_events(record):
        match event:
            case AttemptStarted():
                number, is_asking = 0, False
            case IterationStarted(iteration=iteration):
                if iteration != number + 1 or is_asking:
                    yield f"iteration {iteration} starts after {number}, which waits for the model: {is_asking}"
                number, is_asking = iteration, True
            case ModelResponded() if event.iteration != number or not is_asking:
                yield f"{event} in iteration {number}, which waits for the model: {is_asking}"
            case ModelResponded():
                is_asking = False
            case ToolCalled() | ToolFinished() if event.iteration != number:
                yield f"{event} in iteration {number}"
            case _ if not is_asking and _is_while_asking(event):
                yield f"{event} while nobody asks the model"
            case _:
                pass


def _is_while_asking(event: Event) -> bool:
    is_said = isinstance(event, MessageCommitted) and event.message.role == "assistant"
    return is_said or isinstance(event, _WHILE_ASKING)


def committed_faults(record: RunRecord) -> Iterator[str]:
    """The messages that were told are the history, in order; one that grew before it was sent is told again."""
    told: list[Message] = []
    for event in own_events(record):
        if isinstance(event, MessageCommitted):
            grows = told and told[-1].role == event.message.role == "user"
            if grows and event.message.content[: len(told[-1].content)] == told[-1].content:
                told.pop()
            told.append(event.message)
    if record.result is not None and told and tuple(told) != record.result.history[-len(told) :]:
        yield f"told {told}, and the history is {record.result.history}"


def call_faults(record: RunRecord) -> Iterator[str]:
    """Calls are told in call order, and each is finished once, with the result that the history has."""
    events = own_events(record)
    called, finished = _of(events, ToolCalled), _of(events, ToolFinished)
    yield from _order_faults(record, events)
    for id, times in Counter(event.tool_use_id for event in called).items():
        if times > 1:
            yield f"call {id} is told {times} times"
    places = {event.tool_use_id: place for place, event in enumerate(events) if isinstance(event, ToolCalled)}
    ends = Counter(event.tool_use_id for event in finished)
    for event in called:
        n_ends = ends.pop(event.tool_use_id, 0)
        if n_ends > 1 or (n_ends == 0 and record.result is not None):
            yield f"call {event.tool_use_id} finishes {n_ends} times"
    if ends:
        yield f"calls finish that were never told: {ends}"
    for place, event in enumerate(events):
        if isinstance(event, ToolFinished | ToolProgress | CallAbandoned):
            yield from _inside_faults(events, places.get(event.tool_use_id, place), event)
    yield from _result_faults(record, finished)


def _order_faults(record: RunRecord, events: Sequence[Event]) -> Iterator[str]:
    """All calls of a response that asks for calls are told, in order; on a run that was stopped, the first ones."""
    said = [event.message for event in events if isinstance(event, MessageCommitted)]
    asked = {call.id: message for message in said if message.role == "assistant" for call in message.tool_uses}
    told: dict[int, list[str]] = {}
    for event in _of(events, ToolCalled):
        message = asked.get(event.tool_use_id)
        if message is None:
            yield f"a call that nobody asked for: {event}"
        else:
            told.setdefault(id(message), []).append(event.tool_use_id)
    for message in said:
        ids = [call.id for call in message.tool_uses]
        seen = told.get(id(message), [])
        if seen != ids[: len(seen)]:
            yield f"asked for {ids}, told {seen}"
    for before, after in pairwise(event for event in events if isinstance(event, ModelResponded | IterationStarted)):
        if isinstance(before, ModelResponded) and isinstance(after, IterationStarted):
            yield from _complete_faults(events, before)


def _complete_faults(events: Sequence[Event], responded: ModelResponded) -> Iterator[str]:
    """The run went on after this response, so all its calls have been told."""
    place = events.index(responded)
    said = [event.message for event in events[:place] if isinstance(event, MessageCommitted)]
    if responded.stop_reason != "tool_use" or not said or said[-1].role != "assistant":
        return
    asked = [call.id for call in said[-1].tool_uses]
    told = [event.tool_use_id for event in _of(events[place:], ToolCalled)]
    if told[: len(asked)] != asked:
        yield f"went on from a response that asks for {asked}, and told {told}"


def _inside_faults(
    events: Sequence[Event], called_at: int, event: ToolFinished | ToolProgress | CallAbandoned
) -> Iterator[str]:
    place = next(place for place, each in enumerate(events) if each is event)
    called = events[called_at]
    if not isinstance(called, ToolCalled) or place < called_at:
        yield f"{event} before its ToolCalled"
        return
    if called.tool_name != event.tool_name:
        yield f"{event} is not of {called}"
    if isinstance(event, ToolFinished):
        if (called.kind, called.attempt, called.iteration) != (event.kind, event.attempt, event.iteration):
            yield f"{event} is not of {called}"
    elif any(
        isinstance(each, ToolFinished) and each.tool_use_id == event.tool_use_id for each in events[called_at:place]
    ):
        yield f"{event} after its ToolFinished"


def _result_faults(record: RunRecord, finished: Sequence[ToolFinished]) -> Iterator[str]:
    if record.result is None:
        return
    blocks = [block for message in record.result.history for block in message.content]
    results = {block.tool_use_id: block for block in blocks if isinstance(block, ToolResult)}
    for event in finished:
        result = results.get(event.tool_use_id)
        if result is None or (result.text, result.is_error) != (event.tool_result, event.is_error):
            yield f"{event}, and the history has {result}"


def layer_faults(record: RunRecord) -> Iterator[str]:
    """Layers come in the order of the definition, balanced, up to the first that does not pass."""
    names = _layer_names(record)
    current: list[str] = []
    is_open = failed = False
    for event in own_events(record):
        match event:
            case AttemptStarted():
                current, failed = [], False
            case LayerStarted(name=name):
                if is_open or failed:
                    yield f"layer {name} starts; another is open: {is_open}; one has failed: {failed}"
                current, is_open = [*current, name], True
                if current != names[: len(current)]:
                    yield f"layers {current}, not {names}"
            case LayerCompleted(outcome=outcome):
                if not is_open or outcome.name != current[-1]:
                    yield f"layer {outcome.name} completes, and {current} have started"
                is_open, failed = False, not outcome.passed
            case ValidationFailed() if not failed or is_open:
                yield "ValidationFailed, and no layer has failed"
            case AttemptCompleted() | RunSucceeded() | RunFailed() if is_open:
                yield f"layer {current[-1]} never completes"
                is_open = False
            case _:
                pass


def _layer_names(record: RunRecord) -> list[str]:
    schema = [] if record.agent.plan.output is None else ["schema"]
    return [*schema, *(getattr(each, "__name__", type(each).__name__) for each in record.agent.validators)]


def stop_faults(record: RunRecord) -> Iterator[str]:
    """Once somebody has stopped the run, it begins nothing new (R36, D22, D23), unless the cancellation was caught."""
    is_seen_at_once = record.watch == "listener" and not record.is_nested
    if record.stopped_at is not None and is_seen_at_once and not (record.was_cancelled and record.was_swallowed):
        for event in record.events[record.stopped_at :]:
            if isinstance(event, AttemptStarted | IterationStarted | LayerStarted):
                yield f"{event} after the run was stopped"


def mistaken_faults(record: RunRecord) -> Iterator[str]:
    """What stops the run is no error of the function that it interrupts."""
    if record.result is None:
        return
    errors = [each.error for each in record.result.metadata.callback_errors]
    cause = record.result.error.cause if isinstance(record.result, Failure) else None
    for error in (*errors, cause):
        if isinstance(error, asyncio.CancelledError) and error.args[:1] in _OF_A_STOP:
            yield f"a cancellation of the run is recorded as an error: {errors}, {cause!r}"


_OF_A_STOP = ((), ("abort",), ("deadline",), ("attempt_deadline",))


def callback_faults(record: RunRecord) -> Iterator[str]:
    """Every callback is called once for each event of its kind, in order; of the two last ones, one."""
    if record.callbacks is None or (record.result is None and record.watch == "stream"):
        return
    expected = [
        _CALLBACKS[type(event)]
        for event in own_events(record)
        if type(event) in _CALLBACKS and getattr(record.callbacks, _CALLBACKS[type(event)]) is not None
    ]
    if (found := [call.name for call in record.called]) != expected:
        yield f"callbacks {found}, not {expected}"
    for call in record.called:
        if call.context.path != record.path or call.context.attempt > max(record.attempts, 0):
            yield f"a context that is not the run's: {call}"
    if record.result is not None:
        missed = Counter(error.callback for error in record.result.metadata.callback_errors)
        if any(missed[name] > found.count(name) for name in missed if name.startswith("on_")):
            yield f"errors of callbacks that were not called: {missed}"


_CALLBACKS: dict[type[object], str] = {
    RunStarted: "on_run_start",
    AttemptStarted: "on_attempt_start",
    AttemptCompleted: "on_attempt_complete",
    IterationStarted: "on_iteration_start",
    ModelResponded: "on_model_response",
    ToolCalled: "on_tool_call",
    ToolFinished: "on_tool_result",
    LayerStarted: "on_layer_start",
    LayerCompleted: "on_layer_complete",
    ValidationFailed: "on_validation_failure",
    RunSucceeded: "on_success",
    RunFailed: "on_failure",
}


def _of(events: Sequence[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]
