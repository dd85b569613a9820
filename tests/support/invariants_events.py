"""What must hold of the events and callbacks of a run: each promise in the docstrings of `events.py`, and A26 to A28.

Each rule yields what is wrong, in words.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from journeyman import Event, Failure, Message, Success, ToolResult
from journeyman import events as kinds
from tests.support.run_record import AnyResult, RunRecord

E = TypeVar("E")

_WHILE_ASKING = (
    *(kinds.TextDelta, kinds.ThinkingDelta, kinds.ToolInputDelta, kinds.OutputDelta),
    *(kinds.ModelRetried, kinds.ModelRestarted, kinds.ModelAnswered, kinds.ContextCompacted),
)
LAST = (kinds.RunSucceeded, kinds.RunFailed)
_OF_THE_RUN = (
    kinds.RunStarted,
    kinds.RunSucceeded,
    kinds.RunFailed,
    kinds.MessageCommitted,
    kinds.CallAbandoned,
    kinds.ToolProgress,
)


def own_events(record: RunRecord) -> list[Event]:
    """Return the events of the run itself, without those of runs inside it."""
    return [event for event in record.events if event.path == record.path]


def order_faults(events: Sequence[Event]) -> Iterator[str]:
    """What the order of one run's events must hold, whoever recorded them: see each of the rules."""
    for rule in (frame_faults, attempt_faults, iteration_faults, call_faults, layer_faults):
        yield from rule(events)


def has_ended(events: Sequence[Event]) -> bool:
    """Tell whether an ending was told: what was begun must then be complete."""
    return any(isinstance(event, LAST) for event in events)


def reached(events: Sequence[Event]) -> tuple[int, int]:
    """Return the attempt and the iteration that began last."""
    attempt = iteration = 0
    for event in events:
        if isinstance(event, kinds.AttemptStarted):
            attempt, iteration = event.attempt, 0
        elif isinstance(event, kinds.IterationStarted):
            iteration = event.iteration
    return attempt, iteration


def frame_faults(events: Sequence[Event]) -> Iterator[str]:
    """RunStarted first; at most one ending, last."""
    if events and (not isinstance(events[0], kinds.RunStarted) or len(_of(events, kinds.RunStarted)) != 1):
        yield "RunStarted is not the first event, or not the only one"
    endings = [event for event in events if isinstance(event, LAST)]
    if len(endings) > 1 or (endings and events[-1] is not endings[0]):
        yield f"not exactly one ending, last: {endings}"


def ending_faults(record: RunRecord) -> Iterator[str]:
    """The ending that was told is the one that was returned."""
    ending = next((event for event in reversed(own_events(record)) if isinstance(event, LAST)), None)
    if record.result is None or ending is None:
        return
    match record.result, ending:
        case Success(output=output), kinds.RunSucceeded(output=told_output) if output == told_output:
            pass
        case Failure(error=error), kinds.RunFailed(error=told_error) if error is told_error:
            pass
        case _:
            yield f"told {ending}, returned {record.result}"
    if ending.metadata != replace(record.result.metadata, callback_errors=ending.metadata.callback_errors):
        yield f"told {ending.metadata}, returned {record.result.metadata}"


def attempt_faults(events: Sequence[Event]) -> Iterator[str]:
    """Attempts are numbered, balanced and never overlap; what belongs to one happens inside it."""
    opened = 0
    is_open = False
    for event in events:
        if isinstance(event, kinds.AttemptStarted):
            if is_open or event.attempt != opened + 1:
                yield f"attempt {event.attempt} starts after {opened}, which is open: {is_open}"
            opened, is_open = event.attempt, True
        elif isinstance(event, kinds.AttemptCompleted):
            if not is_open or event.attempt != opened:
                yield f"attempt {event.attempt} completes, and {opened} is open: {is_open}"
            is_open = False
        elif not isinstance(event, _OF_THE_RUN) and not (is_open and getattr(event, "attempt", opened) == opened):
            yield f"{event} outside of its attempt: {opened} is open: {is_open}"
    if is_open and has_ended(events):
        yield f"attempt {opened} never completes"


def success_faults(record: RunRecord) -> Iterator[str]:
    """An attempt passed if, and only if, the run succeeded; but for what may still go wrong in between."""
    passed = [event.succeeded for event in _of(own_events(record), kinds.AttemptCompleted)]
    code = record.result.code if isinstance(record.result, Failure) else None
    may_pass = (code is None or code in _AFTER_SUCCESS) and passed[-1:] == [True]
    if (isinstance(record.result, Success) or may_pass) != any(passed):
        yield f"attempts passed: {passed}, and the run ended with {record.result}"


_AFTER_SUCCESS = ("STATE_PROJECTION_FAILED", "EXECUTION_CANCELLED", "BUDGET_EXCEEDED")


def iteration_faults(events: Sequence[Event]) -> Iterator[str]:
    """Iterations are numbered from 1 in each attempt; each has at most one response, its deltas before that and its
    calls after it."""
    number, is_asking = 0, False
    for event in events:
        match event:
            case kinds.AttemptStarted():
                number, is_asking = 0, False
            case kinds.IterationStarted(iteration=iteration):
                if iteration != number + 1 or is_asking:
                    yield f"iteration {iteration} starts after {number}, which waits for the model: {is_asking}"
                number, is_asking = iteration, True
            case kinds.ModelResponded() if event.iteration != number or not is_asking:
                yield f"{event} in iteration {number}, which waits for the model: {is_asking}"
            case kinds.ModelResponded():
                is_asking = False
            case kinds.ToolCalled() | kinds.ToolFinished() if event.iteration != number:
                yield f"{event} in iteration {number}"
            case kinds.ToolCalled() if is_asking:
                yield f"{event} while the model is still answering"
            case _ if not is_asking and _is_while_asking(event):
                yield f"{event} while nobody asks the model"
            case _:
                pass


def _is_while_asking(event: Event) -> bool:
    is_said = isinstance(event, kinds.MessageCommitted) and event.message.role == "assistant"
    return is_said or isinstance(event, _WHILE_ASKING)


def committed_faults(record: RunRecord) -> Iterator[str]:
    """The messages that were told are the history, in order; one that grew before it was sent is told again."""
    told: list[Message] = []
    for event in own_events(record):
        if isinstance(event, kinds.MessageCommitted):
            grows = told and told[-1].role == event.message.role == "user"
            if grows and event.message.content[: len(told[-1].content)] == told[-1].content:
                told.pop()
            told.append(event.message)
    if record.result is not None and told and tuple(told) != record.result.history[-len(told) :]:
        yield f"told {told}, and the history is {record.result.history}"


def call_faults(events: Sequence[Event]) -> Iterator[str]:
    """Calls are told in call order, and each is finished once."""
    called, finished = _of(events, kinds.ToolCalled), _of(events, kinds.ToolFinished)
    yield from _call_order_faults(events)
    for id, times in Counter(event.tool_use_id for event in called).items():
        if times > 1:
            yield f"call {id} is told {times} times"
    places = {event.tool_use_id: place for place, event in enumerate(events) if isinstance(event, kinds.ToolCalled)}
    ends = Counter(event.tool_use_id for event in finished)
    for event in called:
        n_ends = ends.pop(event.tool_use_id, 0)
        if n_ends > 1 or (n_ends == 0 and has_ended(events)):
            yield f"call {event.tool_use_id} finishes {n_ends} times"
    if ends:
        yield f"calls finish that were never told: {ends}"
    for place, event in enumerate(events):
        if isinstance(event, kinds.ToolFinished | kinds.ToolProgress | kinds.CallAbandoned):
            called_at = place if event.tool_use_id is None else places.get(event.tool_use_id, place)
            yield from _inside_faults(events, called_at, event)


def _call_order_faults(events: Sequence[Event]) -> Iterator[str]:
    """All calls of a response that asks for calls are told, in order; on a run that was stopped, the first ones."""
    said = [event.message for event in events if isinstance(event, kinds.MessageCommitted)]
    asked = {call.id: message for message in said if message.role == "assistant" for call in message.tool_uses}
    told: dict[int, list[str]] = {}
    for event in _of(events, kinds.ToolCalled):
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
    for before, after in pairwise(
        event for event in events if isinstance(event, kinds.ModelResponded | kinds.IterationStarted)
    ):
        if isinstance(before, kinds.ModelResponded) and isinstance(after, kinds.IterationStarted):
            yield from _complete_faults(events, before)


def _complete_faults(events: Sequence[Event], responded: kinds.ModelResponded) -> Iterator[str]:
    """The run went on after this response, so all its calls have been told."""
    place = events.index(responded)
    said = [event.message for event in events[:place] if isinstance(event, kinds.MessageCommitted)]
    if responded.stop_reason != "tool_use" or not said or said[-1].role != "assistant":
        return
    asked = [call.id for call in said[-1].tool_uses]
    told = [event.tool_use_id for event in _of(events[place:], kinds.ToolCalled)]
    if told[: len(asked)] != asked:
        yield f"went on from a response that asks for {asked}, and told {told}"


def _inside_faults(
    events: Sequence[Event], called_at: int, event: kinds.ToolFinished | kinds.ToolProgress | kinds.CallAbandoned
) -> Iterator[str]:
    place = next(place for place, each in enumerate(events) if each is event)
    called = events[called_at]
    if not isinstance(called, kinds.ToolCalled) or place < called_at:
        yield f"{event} before its ToolCalled"
        return
    if called.tool_name != event.tool_name:
        yield f"{event} is not of {called}"
    if isinstance(event, kinds.ToolFinished):
        if (called.kind, called.attempt, called.iteration) != (event.kind, event.attempt, event.iteration):
            yield f"{event} is not of {called}"
    elif any(
        isinstance(each, kinds.ToolFinished) and each.tool_use_id == event.tool_use_id
        for each in events[called_at:place]
    ):
        yield f"{event} after its ToolFinished"


def result_faults(record: RunRecord, result: AnyResult) -> Iterator[str]:
    """Each call finishes with the result that the history has."""
    blocks = [block for message in result.history for block in message.content]
    results = {block.tool_use_id: block for block in blocks if isinstance(block, ToolResult)}
    for event in _of(own_events(record), kinds.ToolFinished):
        kept = results.get(event.tool_use_id)
        if kept is None or (kept.text, kept.is_error) != (event.tool_result, event.is_error):
            yield f"{event}, and the history has {kept}"


def layer_faults(events: Sequence[Event]) -> Iterator[str]:
    """Layers are balanced, and none follows one that does not pass; an attempt with such a one does not succeed."""
    open_layer: str | None = None
    failed = False
    for event in events:
        match event:
            case kinds.AttemptStarted():
                failed = False
            case kinds.LayerStarted(name=name):
                if open_layer is not None or failed:
                    yield f"layer {name} starts; open is {open_layer}; one has failed: {failed}"
                open_layer = name
            case kinds.LayerCompleted(outcome=outcome):
                if outcome.name != open_layer:
                    yield f"layer {outcome.name} completes, and {open_layer} is open"
                open_layer, failed = None, not outcome.passed
            case kinds.ValidationFailed() if not failed or open_layer is not None:
                yield "ValidationFailed, and no layer has failed"
            case kinds.AttemptCompleted() | kinds.RunSucceeded() | kinds.RunFailed() if open_layer is not None:
                yield f"layer {open_layer} never completes"
                open_layer = None
            case kinds.AttemptCompleted(succeeded=True) | kinds.RunSucceeded() if failed:
                yield "it succeeds although a layer has failed"
            case _:
                pass


def layer_name_faults(record: RunRecord) -> Iterator[str]:
    """Layers come in the order of the definition."""
    schema = [] if record.agent.plan.output is None else ["schema"]
    names = [*schema, *(getattr(each, "__name__", type(each).__name__) for each in record.agent.validators)]
    begun: dict[int, list[str]] = {}
    for event in _of(own_events(record), kinds.LayerStarted):
        begun.setdefault(event.attempt, []).append(event.name)
    for layers in begun.values():
        if layers != names[: len(layers)]:
            yield f"layers {layers}, not {names}"


def stop_faults(record: RunRecord) -> Iterator[str]:
    """Once somebody has stopped the run, it begins nothing new (R36, D22, D23), unless the cancellation was caught."""
    is_seen_at_once = record.watch == "listener" and not record.is_nested
    if record.stopped_at is not None and is_seen_at_once and not (record.was_cancelled and record.was_swallowed):
        for event in record.events[record.stopped_at :]:
            if isinstance(event, kinds.AttemptStarted | kinds.IterationStarted | kinds.LayerStarted):
                yield f"{event} after the run was stopped"


def mistaken_faults(record: RunRecord, result: AnyResult) -> Iterator[str]:
    """What stops the run is no error of the function that it interrupts."""
    errors = [each.error for each in result.metadata.callback_errors]
    cause = result.error.cause if isinstance(result, Failure) else None
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
    kinds.RunStarted: "on_run_start",
    kinds.AttemptStarted: "on_attempt_start",
    kinds.AttemptCompleted: "on_attempt_complete",
    kinds.IterationStarted: "on_iteration_start",
    kinds.ModelResponded: "on_model_response",
    kinds.ToolCalled: "on_tool_call",
    kinds.ToolFinished: "on_tool_result",
    kinds.LayerStarted: "on_layer_start",
    kinds.LayerCompleted: "on_layer_complete",
    kinds.ValidationFailed: "on_validation_failure",
    kinds.RunSucceeded: "on_success",
    kinds.RunFailed: "on_failure",
}


def _of(events: Sequence[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]
