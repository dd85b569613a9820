"""A run of a recording as a cassette: what it asked and called, so that it can be run again, offline."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from journeyman.cli.app import Refused
from journeyman.definition.narrowing import is_json_object
from journeyman.model import (
    BlockFinished,
    Facts,
    ModelSettings,
    Part,
    Prefix,
    Request,
    Response,
    ResponseFinished,
    ResponseStarted,
)
from journeyman.models.cassette.format import FORMAT, VERSION, CassetteFile, Header, ModelLine, write_line
from journeyman.models.cassette.pieces import ErrorJson, error_of
from journeyman.models.cassette.record import NewRequest, Recording
from journeyman.record.reading import RecordedEvent, RecordedRun, Recordings
from journeyman.step import call_step
from journeyman.tools.redaction import Redactor
from journeyman.types import JsonObject, Message, RunPath, ToolResult, ToolUse, adapter_of


def text_of_value(value: object) -> str:
    """Return a value of a recording as people read it; of a text that was not kept, how long it was."""
    if is_json_object(value) and value.keys() == {"characters", "digest"}:
        return f"({value['characters']} characters)"
    return "" if value is None else value if isinstance(value, str) else to_json(value).decode()


def cassette_lines(recordings: Recordings, run: RecordedRun, path: RunPath = ()) -> list[bytes]:
    """Return the lines of a cassette with what one run of a recording asked and called; `path` is the run's, () the
    outermost one's. What its calls of other agents came to is in it, and not how. A recording that does not tell all
    that a cassette holds is `Refused`."""
    if not run.has_content:
        raise Refused("The recording was made without content.", "Record with content to replay a run.")
    path = path or (run.agent,)
    played = _Played(path)
    for event in recordings.all_events(run, path=path):
        played.take(event)
    if not played.lines:
        raise Refused(f"The recording holds no request of {'/'.join(path)}.", "There is nothing to replay.")
    made = datetime.fromtimestamp(run.started, UTC).isoformat(timespec="seconds")
    header = Header(format=FORMAT, version=VERSION, recorded=made, agent=played.target, input=played.input)
    return [write_line(header), *played.lines]


class _Played:
    """Builds the cassette of one run from its recorded events."""

    def __init__(self, path: RunPath) -> None:
        self.target: str | None = None
        self.input: str | None = None
        self._recording = Recording(Redactor(), CassetteFile(Path()))
        self._run = self._recording.run_of(path)
        self._model = ""
        self._prefix, self._settings = Prefix(), ModelSettings()
        self._messages: list[Message] = []
        self._results: dict[str, ToolResult] = {}
        self._calls: list[RecordedEvent] = []
        self._outcomes: dict[str | None, dict[str, Any]] = {}
        self._open: tuple[NewRequest, dict[str, Any]] | None = None
        """What was asked, and what is told of the answer, while events say the rest of it."""

    @property
    def lines(self) -> list[bytes]:
        """The lines of the cassette, once everything was taken in."""
        for event in self._calls:
            self._call(event)
        self._calls.clear()
        return self._recording.lines

    def take(self, event: RecordedEvent) -> None:
        """Take in the next event."""
        facts: dict[str, Any] = event.facts
        if "lost" in facts:
            raise Refused(f"The recording lacks a part of a {event.kind}.", "What is left of it: journeyman show RUN.")
        match event.kind:
            case "Target":
                self.target = facts["target"]
            case "Input":
                self.input = text_of_value(facts.get("input")) if self.input is None else self.input
            case "MessageCommitted":
                message = adapter_of(Message).validate_python(facts["message"])
                self._messages.append(message)
                if self._open is not None:
                    self._open[1]["answer"]["content"] = facts["message"]["content"]
                self._results |= {each.tool_use_id: each for each in message.content if isinstance(each, ToolResult)}
            case "ModelAsked":
                self._ask(facts)
            case "ModelResponded" if self._open is not None:
                (asked, known), self._open = self._open, None
                told = {name: facts[name] for name in ("stop_reason", "usage") if name in facts}
                self._end(asked, {**known, "answer": {**told, **known["answer"]}})
            case "ToolFinished" if facts.get("kind") == "tool":
                self._calls.append(event)
            case "CallOutcome":
                self._outcomes[event.tool_use_id] = event.facts
            case _:
                pass

    def _ask(self, facts: dict[str, Any]) -> None:
        if (model := facts.get("model")) is not None:
            known = adapter_of(Facts).validate_python(model.get("facts", {}))
            self._model = model["name"]
            line = ModelLine(
                model=self._model,
                max_output_tokens=known.max_output_tokens,
                context_window=known.context_window,
                price=known.price,
                loads_tools=known.loads_tools,
            )
            self._recording.model(line)
            self._prefix = adapter_of(Prefix).validate_python(
                {name: facts[name] for name in ("system", "tools") if name in facts}
            )
            self._settings = adapter_of(ModelSettings).validate_python(facts.get("settings", {}))
        if "messages" in facts:
            told: list[Message] = adapter_of(list[Message]).validate_python(facts["messages"])
            self._messages[facts.get("kept", 0) :] = told
        request = Request(prefix=self._prefix, messages=[*self._messages], settings=self._settings)
        asked = self._recording.make_comparable(self._run, self._model, request)
        self._recording.begin(asked)
        if "content" not in facts.get("answer", ("content",)):
            self._open = asked, facts
        else:
            self._end(asked, facts)

    def _end(self, asked: NewRequest, facts: dict[str, Any]) -> None:
        parts: list[Part] = []
        if (answer := facts.get("answer")) is not None:
            response = adapter_of(Response).validate_python(answer)
            parts = [
                ResponseStarted(response.model, response.id, response.usage),
                *map(BlockFinished, response.content),
                ResponseFinished(response.stop_reason, response.stop_detail, response.usage),
            ]
            self._run.tools |= {each.id: each.name for each in response.content if isinstance(each, ToolUse)}
        error = None if "error" not in facts else error_of(adapter_of(ErrorJson).validate_python(facts["error"]))
        ms: float = facts.get("ms", 0.0)
        self._recording.end(asked, parts, ms=ms, error=error, stopped=not parts and error is None)

    def _call(self, event: RecordedEvent) -> None:
        """Write what came of a call. One whose arguments did not fit is made again, and fails again."""
        id, told = event.tool_use_id or "", self._outcomes.get(event.tool_use_id, {})
        facts: dict[str, Any] = event.facts
        if told.get("error") in ("invalid_input", "interrupted"):
            return
        if (lost := told.get("lost")) is not None:
            raise Refused(f"The recording lacks {lost}.", "Let the function that makes it declare its type.")
        known = ToolResult(text_of_value(facts.get("tool_result")), is_error=facts.get("is_error", False))
        result = adapter_of(ToolResult).dump_python(self._results.get(id, known), mode="json", exclude_none=True)
        outcome: JsonObject = {"result": result, "cached": facts.get("cached", False)}
        states = told.get("states", told)  # recordings of before have them beside the error
        changed = {"error": told, "run": states, "attempt": states}
        outcome |= {name: facts[name] for name, facts in changed.items() if name in facts}
        step = call_step(event.attempt or 0, event.iteration or 0, id)
        self._recording.call(self._run, step, ms=facts.get("duration_s", 0.0) * 1e3, outcome=outcome, started=())
