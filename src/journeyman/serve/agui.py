"""AG-UI: what happens in a turn of a chat, in the words of the Agent User Interaction Protocol.

A thread is a chat, and a run of the protocol is a turn, or the part of one between two interrupts. What a client is
told is made from the numbered events alone, so it is the same each time. The id of an AG-UI event is the id of our
event that it comes from, and its place among the events made from that one, so a client that was cut off can be told
the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast
from weakref import WeakKeyDictionary

from ag_ui.core import events as ui
from ag_ui.core.types import Interrupt, RunAgentInput
from ag_ui.encoder import EventEncoder
from pydantic_core import from_json, to_jsonable_python
from starlette.responses import Response

from journeyman import events
from journeyman.definition.json_numbers import write_json
from journeyman.definition.narrowing import is_json_object, is_list
from journeyman.events import Event
from journeyman.result import Metadata, plain_output
from journeyman.serve.live import Ended, Entry, Live
from journeyman.serve.refusals import Refusal
from journeyman.tools.external import external_question
from journeyman.types import JsonObject

PROTOCOL: Final = "1.0"
_APPROVAL: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "description": "Whether the call may happen."},
        "reason": {"type": "string", "description": "Why not, for the agent to read."},
        "editedArgs": {"type": "object", "description": "Other arguments for the call."},
    },
    "required": ["approved"],
}
_ANSWER: Final[JsonObject] = {"type": "string", "description": "The answer."}
_TOLD_FROM: Final = 64
"""An output that grows is sent again when it has grown by so many characters, or by a fiftieth."""


Wanted: TypeAlias = events.ApprovalRequested | events.QuestionAsked


@dataclass(slots=True)
class Segment:
    """The part of a turn that is one run of the protocol."""

    run_id: str
    after: int
    """The number of the last event before it."""
    until: int | None = None
    """The number of its last event, where it ended with an interrupt."""
    interrupts: Sequence[Interrupt] = ()
    begins_in: str | None = None
    """The step of the turn that goes on where it begins, and where it ended with an interrupt."""
    ends_in: str | None = None
    open: Sequence[Wanted] = ()
    """What had been asked before it, and is not answered by its request."""
    answered: Collection[str] = ()
    """The ids of what its request answers, which may still be asked when it goes on."""


class Threads:
    """The segments in which clients of AG-UI follow the turns of chats: each is a run of the protocol."""

    def __init__(self) -> None:
        self._segments: WeakKeyDictionary[Live, list[Segment]] = WeakKeyDictionary()
        """Forgotten with the turn."""

    def of(self, live: Live, run_id: str, answered: Collection[str] = ()) -> Segment:
        """Return the part of a turn that is told as this run: a new one, unless there is one. `answered` are the ids of
        what its request answers."""
        known = self._segments.setdefault(live, [])
        found = self.find(live, run_id)
        if found is None:
            before = known[-1] if known else Segment("", live.first - 1)
            after = live.first - 1 if before.until is None else before.until
            left = [each for each in live.open.values() if each.id not in answered]
            found = Segment(run_id, after, begins_in=before.ends_in, open=left, answered=answered)
            known.append(found)
        return found

    def check_answers(self, live: Live, answered: Collection[str]) -> None:
        """Check what a request answers: all that its client was told, and nothing else.

        Raises:
            Refusal: something is left out, or does not wait.
        """
        told = [each.id for segment in self._segments.get(live, ())[-1:] for each in segment.interrupts]
        missing = [id for id in told if id in live.open and id not in answered]
        has_ended = live.ended is not None
        unknown = [id for id in answered if (live.open or has_ended) and id not in live.open]
        if missing:
            text = f"The interrupts {', '.join(missing)} are left out."
            raise Refusal(409, "NOT_ANSWERED", text, "Answer all interrupts of the last run in one resume.")
        if unknown:
            shown = ", ".join([repr(id[:80]) for id in unknown[:5]])
            raise Refusal(409, "NOT_WAITING", f"Nothing waits under {shown}.", "Send the ids of the interrupts.")

    def find(self, live: Live | None, run_id: str) -> Segment | None:
        """Return the part of a turn that was told as this run."""
        known = [] if live is None else self._segments.get(live, [])
        return next((each for each in known if each.run_id == run_id), None)


class Agui:
    """The events of one run of the protocol, for one client."""

    def __init__(self, live: Live, segment: Segment, *, thread_id: str, seen: tuple[int, int] = (0, 0)) -> None:
        """`seen`: the number and the place of the last event that the client has."""
        self.is_done = False
        self._live, self._segment = live, segment
        self._thread_id, self._run_id = thread_id, segment.run_id
        self._seen = seen
        self._encoder = EventEncoder()
        self._number, self._place = segment.after, 0
        """The number of the event that was told last, and as how many events of the protocol it was told."""
        self._text: str | None = None
        self._thinking: str | None = None
        self._message: str | None = None
        """The message that further calls are a part of: clients add them to their newest one if it has this id."""
        self._calls: dict[str, bool] = {}
        """Calls whose arguments have begun to be told, and whether they are told to the end."""
        self._step: str | None = None
        self._output: object = None
        self._told_chars = 0
        self._asked: dict[str, Interrupt] = {}
        self._tools = {each.name for each in live.agent.plan.tools.values() if each.journals_itself and each.external}
        """The client's tools."""
        self._wanted: set[str] = set()
        """The ids under which their results are waited for."""
        self._has_begun = False
        for each in segment.open:
            self._ask(each)

    @property
    def may_pause(self) -> bool:
        return bool(self._asked or self._wanted) and self._segment.until is None

    def say(self, entries: Sequence[Entry]) -> bytes:
        pieces: list[bytes] = []
        for entry in entries:
            if self.is_done:
                break
            self._number = entry.number
            told = list(self._tell(entry))
            self._place = len(told)
            if self._segment.until == entry.number and not self.is_done:
                told += self._pause_events(self._segment.interrupts)
            pieces += self._number_events(told)
        return b"".join(pieces)

    def pause(self) -> bytes:
        """End the run with what waits for an answer."""
        self._segment.until, self._segment.interrupts = self._number, tuple(self._asked.values())
        self._segment.ends_in = self._step
        return b"".join(self._number_events(list(self._pause_events(self._segment.interrupts)), self._place))

    def _number_events(self, told: Sequence[ui.BaseEvent], before: int = 0) -> Iterator[bytes]:
        for place, event in enumerate(told, before + 1):
            if (self._number, place) > self._seen:
                yield b"id: %d.%d\n" % (self._number, place) + self._encoder.encode(event).encode()

    def _pause_events(self, interrupts: Sequence[Interrupt]) -> Iterator[ui.BaseEvent]:
        self.is_done = True
        yield from self._close_messages()
        if self._step is not None:
            yield ui.StepFinishedEvent(step_name=self._step)
        outcome = ui.RunFinishedInterruptOutcome(interrupts=list(interrupts)) if interrupts else None
        yield ui.RunFinishedEvent(
            thread_id=self._thread_id, run_id=self._run_id, outcome=outcome or ui.RunFinishedSuccessOutcome()
        )

    def _tell(self, entry: Entry) -> Iterator[ui.BaseEvent]:
        event = entry.event
        if not self._has_begun:
            self._has_begun = True
            yield ui.RunStartedEvent(thread_id=self._thread_id, run_id=self._run_id, protocol_version=PROTOCOL)
            if (step := self._segment.begins_in) is not None:
                self._step = step
                yield ui.StepStartedEvent(step_name=step)
        if isinstance(event, Ended):
            yield from self._end_events(event)
        elif isinstance(event, Wanted):
            self._ask(event)
        elif isinstance(event, events.ApprovalAnswered | events.QuestionAnswered):
            self._asked.pop(event.id, None)
            self._wanted.discard(event.id)
        elif len(event.path) > 1:
            yield from self._below(event)
        else:
            yield from self._text_events(event)

    def _ask(self, event: Wanted) -> None:
        """Note what is asked, for the end of the run."""
        if event.id in self._segment.answered or event.question in self._live.early:
            return
        is_external = event.tool_use_id is not None and event.question == external_question(event.tool_use_id)
        if is_external and len(event.path) == 1:  # a call that its client was told of, and does the work of
            self._wanted.add(event.id)
        else:
            self._asked[event.id] = interrupt_of(event)

    def _text_events(self, event: Event) -> Iterator[ui.BaseEvent]:
        match event:
            case events.TextDelta(text=text):
                if self._text is None:
                    yield from self._close_messages()
                    self._text = self._message = f"{self._live.number}.{self._number}"
                    yield ui.TextMessageStartEvent(message_id=self._text, role="assistant")
                yield ui.TextMessageContentEvent(message_id=self._text, delta=text)
            case events.ThinkingDelta(text=text):
                if self._thinking is None:
                    yield from self._close_messages()
                    self._thinking, self._message = f"{self._live.number}.{self._number}", None
                    yield ui.ReasoningStartEvent(message_id=self._thinking)
                    yield ui.ReasoningMessageStartEvent(message_id=self._thinking, role="reasoning")
                yield ui.ReasoningMessageContentEvent(message_id=self._thinking, delta=text)
            case events.SandboxRefused(tool_use_id=id, sandbox=sandbox, cause=cause, what=what, need=need):
                value = {"toolCallId": id, "sandbox": sandbox, "cause": cause, "what": what, "need": need}
                yield ui.CustomEvent(name="journeyman.refused", value=value)
            case events.ToolInputDelta() | events.ToolCalled() | events.ToolFinished() | events.ToolProgress():
                yield from self._call(event)
            case events.OutputDelta():
                yield from self._grow_output(event)
            case _:
                yield from self._step_events(event)

    def _step_events(self, event: Event) -> Iterator[ui.BaseEvent]:
        """Give the protocol's events for the steps of a turn."""
        match event:
            case events.AttemptStarted(attempt=attempt):
                self._step = f"attempt {attempt}"
                yield ui.StepStartedEvent(step_name=self._step)
            case events.AttemptCompleted() if self._step is not None:
                yield from self._close_messages()
                yield ui.StepFinishedEvent(step_name=self._step)
                self._step = None
            case events.ModelResponded():
                yield from self._close_messages()
                self._message = None
            case events.ModelRestarted(attempt=attempt, iteration=iteration):
                yield from self._close_messages()
                self._message = None
                value = {"attempt": attempt, "iteration": iteration}
                yield ui.CustomEvent(name="journeyman.restarted", value=value)
            case events.ValidationFailed(attempt=attempt, feedback=feedback):
                value = {"attempt": attempt, "feedback": feedback}
                yield ui.CustomEvent(name="journeyman.rejected", value=value)
            case _:
                return

    def _close_messages(self) -> Iterator[ui.BaseEvent]:
        """End the messages that are open."""
        if self._text is not None:
            yield ui.TextMessageEndEvent(message_id=self._text)
            self._text = None
        if self._thinking is not None:
            yield ui.ReasoningMessageEndEvent(message_id=self._thinking)
            yield ui.ReasoningEndEvent(message_id=self._thinking)
            self._thinking = None
        for id, is_told in self._calls.items():
            if not is_told:
                self._calls[id] = True
                yield ui.ToolCallEndEvent(tool_call_id=id)

    def _call(
        self, event: events.ToolInputDelta | events.ToolCalled | events.ToolFinished | events.ToolProgress
    ) -> Iterator[ui.BaseEvent]:
        id, name = event.tool_use_id, event.tool_name
        match event:
            case events.ToolInputDelta(json=json):
                yield from self._begin_call(id, name)
                yield ui.ToolCallArgsEvent(tool_call_id=id, delta=json)
            case events.ToolCalled(kind="output", tool_input=given):
                yield from self._change_output(given)
            case events.ToolCalled(kind="tool" | "unknown", tool_input=given):
                if id not in self._calls:
                    yield from self._begin_call(id, name)
                    yield ui.ToolCallArgsEvent(tool_call_id=id, delta=write_json(given).decode())
                yield from self._close_messages()
            case events.ToolFinished() if name in self._tools and any(
                isinstance(each.event, events.QuestionAsked) and each.event.question == external_question(id)
                for each in self._live.entries
            ):
                return  # the client has told us
            case events.ToolFinished(kind="tool" | "unknown", tool_result=result):
                self._message = None
                yield ui.ToolCallResultEvent(message_id=f"result-{id}", tool_call_id=id, content=result)
            case events.ToolProgress(message=message, fraction=fraction):
                value = {"toolCallId": id, "message": message, "fraction": fraction}
                yield ui.CustomEvent(name="journeyman.progress", value=value)
            case _:
                return

    def _begin_call(self, id: str, name: str) -> Iterator[ui.BaseEvent]:
        if id not in self._calls:
            if self._text is not None or self._thinking is not None:
                yield from self._close_messages()
            self._calls[id] = False
            self._message = self._message or f"{self._live.number}.{self._number}"
            yield ui.ToolCallStartEvent(tool_call_id=id, tool_call_name=name, parent_message_id=self._message)

    def _grow_output(self, event: events.OutputDelta) -> Iterator[ui.BaseEvent]:
        n_chars = len(event.json)
        if n_chars < self._told_chars:
            self._told_chars = 0  # another attempt
        if n_chars - self._told_chars >= max(_TOLD_FROM, self._told_chars // 50):
            self._told_chars = n_chars
            yield from self._change_output(event.partial())

    def _change_output(self, output: object) -> Iterator[ui.BaseEvent]:
        output = to_jsonable_python(output)
        before, self._output = self._output, output
        if before is None:
            yield ui.StateSnapshotEvent(snapshot={"output": output})
        elif operations := list(changes(before, output, "/output")):
            yield ui.StateDeltaEvent(delta=cast("Any", operations))

    def _below(self, event: Event) -> Iterator[ui.BaseEvent]:
        """Tell of a run in the run: that it has begun, and how it has ended."""
        id = "/".join(event.path)
        match event:
            case events.RunStarted(agent=agent, tool_use_id=tool_use_id):
                above = "/".join(event.path[:-1]) if len(event.path) > 2 else None
                yield ui.SubagentStartedEvent(
                    subagent_run_id=id, name=agent, parent_tool_call_id=tool_use_id, parent_subagent_run_id=above
                )
            case events.RunSucceeded(output=output):
                yield ui.SubagentFinishedEvent(subagent_run_id=id, result=plain_output(output, None))
            case events.RunFailed(error=error):
                yield ui.SubagentErrorEvent(subagent_run_id=id, message=error.message, code=error.code)
            case _:
                return

    def _end_events(self, ended: Ended) -> Iterator[ui.BaseEvent]:
        self.is_done = True
        yield from self._close_messages()
        document: dict[str, Any] = from_json(ended.document)
        error = document.get("error")
        is_stopped = ended.code == "EXECUTION_CANCELLED"
        if error is not None and not is_stopped:
            message = f"{error['message']} {error['hint']}".strip()
            yield ui.RunErrorEvent(message=message, code=error["code"])
            return
        if self._step is not None:
            yield ui.StepFinishedEvent(step_name=self._step)
        output = document.get("output")
        if not is_stopped and self._live.agent.plan.output is not None:
            yield from self._change_output(output)
        outcome = ui.RunFinishedCancelledOutcome() if is_stopped else ui.RunFinishedSuccessOutcome()
        yield ui.RunFinishedEvent(
            thread_id=self._thread_id,
            run_id=self._run_id,
            outcome=outcome,
            result=output,
            usage=token_usage_of(ended.metadata),
        )


def changes(before: object, now: object, path: str) -> Iterator[dict[str, object]]:
    """Give the operations of RFC 6902 that make one value of the other: where a list has grown, what was added."""
    if before == now:
        return
    if is_json_object(before) and is_json_object(now):
        for key in before.keys() - now.keys():
            yield {"op": "remove", "path": f"{path}/{_escape(key)}"}
        for key, value in now.items():
            if key in before:
                yield from changes(before[key], value, f"{path}/{_escape(key)}")
            else:
                yield {"op": "add", "path": f"{path}/{_escape(key)}", "value": value}
    elif is_list(before) and is_list(now) and len(before) <= len(now):
        for index, (old_item, new_item) in enumerate(zip(before, now, strict=False)):
            yield from changes(old_item, new_item, f"{path}/{index}")
        for value in now[len(before) :]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    else:
        yield {"op": "replace", "path": path, "value": now}


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def failed_run(given: RunAgentInput, refusal: Refusal) -> Response:
    """Return a run that fails at once: so the protocol tells a client that its run cannot go on."""
    encoder = EventEncoder()
    begun = ui.RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id, protocol_version=PROTOCOL)
    error = ui.RunErrorEvent(message=str(refusal), code=refusal.code)
    body = "".join([encoder.encode(each) for each in (begun, error)])
    return Response(body, headers={"Cache-Control": "no-store"}, media_type="text/event-stream")


def token_usage_of(metadata: Metadata | None) -> list[ui.TokenUsage] | None:
    """Return the usage of a run, as the protocol counts it; None where that is not known."""
    used = None if metadata is None else metadata.usage
    if used is None:
        return None
    n_input = used.input_tokens + (used.cache_read_tokens or 0) + (used.cache_write_tokens or 0)
    return [ui.TokenUsage(input_tokens=n_input, output_tokens=used.output_tokens)]


def interrupt_of(event: events.ApprovalRequested | events.QuestionAsked) -> Interrupt:
    """Return the question of an event as an interrupt of the protocol."""
    if isinstance(event, events.QuestionAsked):
        metadata: dict[str, Any] = {"options": list(event.options)}
        return Interrupt(
            id=event.id, reason="input_required", message=event.question, response_schema=_ANSWER, metadata=metadata
        )
    metadata = {"tool": event.tool_name, "arguments": event.arguments, "offers": list(event.offers)}
    return Interrupt(
        id=event.id,
        reason="tool_call",
        message=event.question,
        tool_call_id=event.tool_use_id,
        response_schema=_APPROVAL,
        metadata=metadata,
    )
