"""The parts of a model's answer, as the events that listeners see. Imports `conversation`, `model` and `events`."""

from __future__ import annotations

from collections.abc import Callable

from journeyman.events.run import (
    Event,
    ModelAnswered,
    ModelRestarted,
    ModelRetried,
    OutputDelta,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
)
from journeyman.loop.record import Conversation
from journeyman.model import Answered, InputPart, Part, Restarted, Retried, TextPart, ThinkingPart


def shower(talk: Conversation) -> Callable[[Part], None]:
    """Return what shows the parts of one model call to the listeners."""
    watch = talk.watch
    if watch is None:
        return lambda part: None
    written: dict[str, str] = {}
    """The output as far as it is written, by call: a model may propose several in one response."""

    def show(part: Part) -> None:
        if isinstance(part, Restarted):
            written.clear()
        event = _event(talk, part, written)
        if event is not None:
            watch.show(event)

    return show


def _event(talk: Conversation, part: Part, written: dict[str, str]) -> Event | None:
    path = talk.path
    match part:
        case TextPart(text):
            return TextDelta(path=path, text=text)
        case ThinkingPart(text):
            return ThinkingDelta(path=path, text=text)
        case InputPart():
            return _input_event(talk, part, written)
        case _:
            return _request_event(talk, part)


def _request_event(talk: Conversation, part: Part) -> Event | None:
    """Return the event for a part that tells of the requests and not of the answer."""
    match part:
        case Retried():
            return ModelRetried(
                path=talk.path,
                attempt=talk.attempt,
                iteration=talk.iteration,
                request=part.attempt,
                max_requests=part.max_attempts,
                delay_s=part.delay_s,
                kind=part.error.kind,
                message=str(part.error),
            )
        case Restarted():
            return ModelRestarted(path=talk.path, attempt=talk.attempt, iteration=talk.iteration)
        case Answered(provider, model):
            return ModelAnswered(path=talk.path, provider=provider, model=model)
        case _:
            return None


def _input_event(talk: Conversation, part: InputPart, written: dict[str, str]) -> Event:
    own = talk.hand_in.get(part.tool_name)
    if own is None or own.kind != "output":
        return ToolInputDelta(path=talk.path, tool_use_id=part.tool_use_id, tool_name=part.tool_name, json=part.json)
    so_far = written.get(part.tool_use_id, "") + part.json
    written[part.tool_use_id] = so_far
    return OutputDelta(path=talk.path, tool_use_id=part.tool_use_id, json=so_far)
