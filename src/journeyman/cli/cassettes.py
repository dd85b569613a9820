"""`journeyman record`.

`journeyman replay`.

Showing a cassette by itself, without the agent that was recorded: what was asked, said and called, as it went.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, cast

from cyclopts import Parameter
from pydantic import JsonValue
from pydantic_core import to_json

from journeyman.cli.app import Mistake
from journeyman.cli.loading import load_agent
from journeyman.cli.run import Flag, Job, Stdout, perform, read_text
from journeyman.cli.show.lines import EMPTY, Line, arguments, count, duration, usage_sentence
from journeyman.cli.show.screen import Screen, open_screen
from journeyman.errors import CassetteError, ProviderError
from journeyman.events import (
    Event,
    IterationStarted,
    MessageCommitted,
    ModelResponded,
    RunStarted,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolFinished,
    ToolInputDelta,
)
from journeyman.model import Collector, InputPart, Part, TextPart, ThinkingPart
from journeyman.models.cassette.cassette import Cassette
from journeyman.models.cassette.format import RecordedRequest, messages_of
from journeyman.models.transport import offline
from journeyman.types import JsonObject, Message, RunPath, Text, ToolUse, Usage


@dataclass(slots=True)
class _Run:
    """What is remembered of a recorded run."""

    path: RunPath
    requests: int = 0
    calls: dict[str, ToolUse] = field(default_factory=dict[str, ToolUse])
    """The calls whose results were not shown yet, by id."""
    said: str = ""
    """The last words."""


class Player:
    """Shows what a cassette holds."""

    def __init__(self, cassette: Cassette, screen: Screen, wait: Callable[[float], None] | None) -> None:
        """`wait` waits for so many seconds; None shows everything at once."""
        self._cassette = cassette
        self._screen = screen
        self._wait = wait
        self._runs: dict[int, _Run] = {}
        self._usage = Usage()
        self._took_s = {
            (call.call.run, call.call.key.rpartition("/")[2]): call.call.ms / 1000 for call in cassette.calls
        }
        several = len({take.run for take in cassette.requests}) > 1
        header = cassette.header
        name = (header.agent or "").rpartition(":")[2] if header is not None else ""
        self._name = name or "recorded"
        self._several = several

    def play(self) -> str:
        """Show it. Return what the first run said last, or handed in."""
        for take in self._cassette.requests:
            self._play(take)
        for run in self._runs.values():
            for call in run.calls.values():
                self._screen.say([Line(indent=4, mark="step", name=call.name, text=arguments(call.input))])
        asked = f"{count(len(self._cassette.requests), 'request')}, {count(len(self._cassette.calls), 'recorded call')}"
        end = Line(mark="done", name="end of the recording", text=f"· {asked}")
        self._screen.say([EMPTY, end, Line(indent=2, text=usage_sentence(self._usage), style="dim")])
        return _last_words(next(iter(self._runs.values()), None))

    def _play(self, take: RecordedRequest) -> None:
        run = self._runs.get(take.run)
        if run is None:
            run = self._runs[take.run] = _Run((f"{self._name}#{take.run}" if self._several else self._name,))
            self._show(_started(run, take))
        for event in self._results(run, take):
            self._show([event])
        run.requests += 1
        self._show([IterationStarted(path=run.path, attempt=1, iteration=run.requests)])
        self._answer(run, take)

    def _show(self, events: list[Event]) -> None:
        for event in events:
            self._screen.show(event)

    def _results(self, run: _Run, take: RecordedRequest) -> Iterator[Event]:
        """Give the results that the last message holds."""
        for block in _blocks(messages_of(take.body)[-1:]):
            call = run.calls.pop(str(block.get("tool_use_id")), None)
            if call is not None:
                took_s = self._took_s.get((take.run, call.id), 0.0)
                self._pause(took_s)
                yield ToolFinished(
                    path=run.path,
                    attempt=1,
                    iteration=run.requests,
                    tool_use_id=call.id,
                    tool_name=call.name,
                    kind="tool",
                    tool_result=_text(block.get("content")),
                    is_error=block.get("is_error") is True,
                    cached=False,
                    duration_s=took_s,
                )

    def _answer(self, run: _Run, take: RecordedRequest) -> None:
        collector, so_far = Collector(), 0.0
        for ms, part in take.parts:
            self._pause((ms - so_far) / 1000)
            so_far = ms
            collector.add(part)
            self._show(_deltas(run.path, part))
        self._usage += collector.used()
        if (error := take.error()) is not None:
            text = f"{error.kind}: {error} ({duration((take.answer.ms if take.answer else 0) / 1000)})"
            self._screen.say([Line(indent=4, mark="failed", text=text, rows=4)])
            return
        try:
            response = collector.response()
        except ProviderError:
            self._screen.say([Line(indent=4, mark="stopped", text="the run that was recorded was stopped here")])
            return
        said = Message("assistant", response.content)
        run.said = said.text
        self._show([_responded(run, said, response.usage, response.model)])
        for use in said.tool_uses:
            run.calls[use.id] = use
            self._show([_called(run, use)])

    def _pause(self, seconds: float) -> None:
        if self._wait is not None and seconds > 0:
            self._wait(seconds)


def sleeping(*, realtime: bool) -> Callable[[float], None] | None:
    """Return what `Player` waits with."""
    return time.sleep if realtime else None


def _started(run: _Run, take: RecordedRequest) -> list[Event]:
    model = str(take.body["model"])
    prompt = "\n".join(str(block["text"]) for block in _blocks(messages_of(take.body)[:1]) if "text" in block)
    return [
        RunStarted(path=run.path, agent=run.path[0], model=model, max_attempts=1, max_iterations=0),
        MessageCommitted(path=run.path, message=Message("user", (Text(prompt),))),
    ]


def _deltas(path: RunPath, part: Part) -> list[Event]:
    match part:
        case TextPart(text):
            return [TextDelta(path=path, text=text)]
        case ThinkingPart(text):
            return [ThinkingDelta(path=path, text=text)]
        case InputPart(id, name, json):
            return [ToolInputDelta(path=path, tool_use_id=id, tool_name=name, json=json)]
        case _:
            return []


def _responded(run: _Run, said: Message, usage: Usage, model: str) -> Event:
    return ModelResponded(
        path=run.path,
        attempt=1,
        iteration=run.requests,
        stop_reason="tool_use" if said.tool_uses else "end_turn",
        text=said.text,
        usage=usage,
        model=model,
    )


def _called(run: _Run, use: ToolUse) -> Event:
    return ToolCalled(
        path=run.path,
        attempt=1,
        iteration=run.requests,
        tool_use_id=use.id,
        tool_name=use.name,
        kind="tool",
        tool_input=use.input,
    )


def _blocks(messages: list[JsonValue]) -> Iterator[JsonObject]:
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        yield from (block for block in content if isinstance(block, dict)) if isinstance(content, list) else ()


def _text(content: JsonValue) -> str:
    if isinstance(content, list):
        texts = [cast("JsonObject", block).get("text") for block in content if isinstance(block, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return str(content)


def _last_words(run: _Run | None) -> str:
    if run is None:
        return ""
    handed_in = [call.input for call in run.calls.values()]
    return to_json(handed_in[-1], indent=2).decode() if handed_in else run.said


def replay(
    file: Annotated[Path, Parameter(name="CASSETTE")],
    target: Annotated[str | None, Parameter(name="FILE:AGENT")] = None,
    input: str | None = None,
    /,
    *,
    realtime: Flag = False,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Play a cassette: by itself, or as the answers to an agent that runs again.

    No model is asked, and no tool is run. An agent that now asks something else fails, and is shown what differs.

    Args:
        file: What `journeyman record` or a test has recorded.
        target: The agent to run again: a Python file or a module, a colon, and the agent in it. Without it, the
            recording is shown.
        input: The agent's input, where it shall not be the recorded one.
        realtime: RecordedRequest as long as it took.
        json: Print one JSON document: the result, usage, attempts and history. Needs an agent.
        quiet: Print nothing but the result, or the error.
    """
    stdout = Stdout(drop_others=quiet)
    try:
        cassette = _opened(file, realtime=realtime)
        with offline("a cassette is replayed"):
            if target is None:
                _refuse_json(json=json)
                return _show(cassette, stdout, realtime=realtime, quiet=quiet)
            text = _input(cassette, input)
            check = f"journeyman check {target}"
            notice = f"Replaying {file}."
            agent = load_agent(target)
            job = Job(
                agent=agent,
                text=text,
                stdout=stdout,
                check=check,
                json=json,
                quiet=quiet,
                notice=notice,
                cassette=cassette,
            )
            return _run_again(job, cassette)
    except CassetteError as error:
        raise Mistake(error.message, error.hint) from error


def _opened(file: Path, *, realtime: bool) -> Cassette:
    if not file.exists():
        raise Mistake(f"There is no file {file}.", f"Record it: journeyman record FILE:AGENT INPUT --cassette {file}")
    return Cassette(file, "none", realtime=realtime)


def _refuse_json(*, json: bool) -> None:
    if json:
        raise Mistake("--json is for an agent that runs again.", "Name it after the cassette: agents.py:analyst.")


def _input(cassette: Cassette, given: str | None) -> str:
    recorded = cassette.header.input if cassette.header is not None else None
    if given is None and recorded is None:
        raise Mistake(f"{cassette.path} does not hold the agent's input.", "Give it as text after the agent.")
    return given if given is not None else recorded or ""


def _run_again(job: Job, cassette: Cassette) -> int:
    code = perform(job)
    if cassette.unused and not cassette.misses and not job.quiet:
        text = f"not asked for: {', '.join(cassette.unused)}"
        open_screen(quiet=False).say([Line(mark="warning", text=text, rows=4)])
    return code


def _show(cassette: Cassette, stdout: Stdout, *, realtime: bool, quiet: bool) -> int:
    screen = open_screen(quiet=quiet)
    try:
        said = Player(cassette, screen, sleeping(realtime=realtime)).play()
    finally:
        screen.close()
    stdout.write_text(said)
    return 0


def record(
    target: Annotated[str, Parameter(name="FILE:AGENT")],
    input: str | None = None,
    /,
    *,
    cassette: Path,
    input_file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    model: str | None = None,
    json: Flag = False,
    quiet: Flag = False,
    tree: Flag = False,
) -> int:
    """Run an agent as `run` does, and record what its model and its tools answer.

    Keys and what else looks like a secret are taken out. `journeyman replay` plays the file again.

    Args:
        target: A Python file or a module, a colon, and the agent in it: agents.py:analyst.
        input: The agent's input: a text as it is; for any other input type JSON.
        cassette: The file to record to, for example trip.jsonl. One that is there is replaced when the run has ended.
        input_file: Read the input from this file; - is stdin.
        model: Use this model instead of the agent's, for example anthropic:claude-sonnet-5-5.
        json: Print one JSON document: the result, usage, attempts and history.
        quiet: Print nothing but the result, or the error.
        tree: At the end, print the whole tree: runs, attempts, iterations, calls, and what each used.
    """
    stdout = Stdout(drop_others=quiet)
    recording = Cassette(cassette, "all")
    job = Job(
        text=read_text(input, input_file),
        agent=load_agent(target),
        stdout=stdout,
        check=f"journeyman check {target}",
        model=model,
        json=json,
        quiet=quiet,
        tree=tree,
        notice=f"Recording to {cassette}.",
        cassette=recording,
    )
    recording.describe(agent=target, input=job.text)
    try:
        with recording:
            return perform(job)
    except CassetteError as error:
        raise Mistake(error.message, error.hint) from error
