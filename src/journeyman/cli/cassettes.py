"""`journeyman record` and `journeyman replay`: a run that is recorded, and a recording that is shown or run again.

A cassette that is shown without its agent is turned back into events: what was asked, said and called, as it went.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, cast

from cyclopts import Parameter
from pydantic import JsonValue
from pydantic_core import to_json

from journeyman import events
from journeyman.cli.app import Mistake
from journeyman.cli.opening import OPENING_S, AgentLoop
from journeyman.cli.run import Flag, Job, Stdout, perform, read_text
from journeyman.cli.show.lines import EMPTY, Line, duration, usage_sentence
from journeyman.cli.show.screen import Screen, open_screen
from journeyman.cli.show.seen import SeenRun, SeenRuns
from journeyman.errors import CassetteError, ProviderError, count
from journeyman.model import Collector, InputPart, Part, TextPart, ThinkingPart
from journeyman.models.cassette.cassette import Cassette
from journeyman.models.cassette.format import RecordedRequest, messages_of
from journeyman.models.transport import offline
from journeyman.types import JsonObject, Message, RunPath, Text, Usage


def record(  # noqa: PLR0913 - one for each option, all by name
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
    timeout: float = OPENING_S,
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
        timeout: How many seconds a function or context manager may take to give the agent.
    """
    stdout = Stdout(drop_others=quiet)
    recording = Cassette(cassette, "all")
    with AgentLoop(timeout) as loop:
        job = Job(
            text=read_text(input, input_file),
            agent=loop.agent(target),
            loop=loop,
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


def replay(
    file: Annotated[Path, Parameter(name="CASSETTE")],
    target: Annotated[str | None, Parameter(name="FILE:AGENT")] = None,
    input: str | None = None,
    /,
    *,
    realtime: Flag = False,
    json: Flag = False,
    quiet: Flag = False,
    timeout: float = OPENING_S,
) -> int:
    """Play a cassette: by itself, or as the answers to an agent that runs again.

    No model is asked, and no tool is run. An agent that now asks something else fails, and is shown what differs.

    Args:
        file: What `journeyman record` or a test has recorded.
        target: The agent to run again: a Python file or a module, a colon, and the agent in it. Without it, the
            recording is shown.
        input: The agent's input, where it shall not be the recorded one.
        realtime: Take as long as it took.
        json: Print one JSON document: the result, usage, attempts and history. Needs an agent.
        quiet: Print nothing but the result, or the error.
        timeout: How many seconds a function or context manager may take to give the agent.
    """
    stdout = Stdout(drop_others=quiet)
    if not file.exists():
        raise Mistake(f"There is no file {file}.", f"Record it: journeyman record FILE:AGENT INPUT --cassette {file}")
    try:
        cassette = Cassette(file, "none", realtime=realtime)
        with offline("a cassette is replayed"), AgentLoop(timeout) as loop:
            if target is None:
                if json:
                    raise Mistake(
                        "--json is for an agent that runs again.", "Name it after the cassette: agents.py:analyst."
                    )
                return _show(cassette, stdout, realtime=realtime, quiet=quiet)
            job = Job(
                text=_input(cassette, input),
                agent=loop.agent(target),
                loop=loop,
                stdout=stdout,
                check=f"journeyman check {target}",
                json=json,
                quiet=quiet,
                notice=f"Replaying {file}.",
                cassette=cassette,
            )
            code = perform(job)
            if cassette.unused and not cassette.misses and not quiet:
                text = f"not asked for: {', '.join(cassette.unused)}"
                open_screen(quiet=False).say([Line(mark="warning", text=text, rows=4)])
            return code
    except CassetteError as error:
        raise Mistake(error.message, error.hint) from error


def _input(cassette: Cassette, given: str | None) -> str:
    recorded = cassette.header.input if cassette.header is not None else None
    if given is None and recorded is None:
        raise Mistake(f"{cassette.path} does not hold the agent's input.", "Give it as text after the agent.")
    return given if given is not None else recorded or ""


def _show(cassette: Cassette, stdout: Stdout, *, realtime: bool, quiet: bool) -> int:
    screen = open_screen(quiet=quiet)
    try:
        said = ShownCassette(cassette, screen, time.sleep if realtime else None).show()
    finally:
        screen.close()
    stdout.write_text(said)
    return 0


# -- a cassette by itself ---------------------------------------------------------------------------------------------


class ShownCassette:
    """A cassette that is shown by itself, without the agent that was recorded."""

    def __init__(self, cassette: Cassette, screen: Screen, wait: Callable[[float], None] | None) -> None:
        """`wait` waits for so many seconds; None shows everything at once."""
        self._cassette = cassette
        self._screen = screen
        self._wait = wait
        self._seen = SeenRuns()
        self._usage = Usage()
        self._took_s = {
            (call.call.run, call.call.key.rpartition("/")[2]): call.call.ms / 1000 for call in cassette.calls
        }
        self._has_several = len({request.run for request in cassette.requests}) > 1
        name = (cassette.header.agent or "").rpartition(":")[2] if cassette.header is not None else ""
        self._name = name or "recorded"

    def show(self) -> str:
        """Show all of it. Return what the first run said last, or handed in."""
        for request in self._cassette.requests:
            self._show(request)
        runs = [*self._seen.open.values()]
        for call in [call for run in runs for call in run.open_calls]:
            self._screen.say([Line(indent=4, mark="step", name=call.name, text=call.given)])
        asked = f"{count(len(self._cassette.requests), 'request')}, {count(len(self._cassette.calls), 'recorded call')}"
        end = Line(mark="done", name="end of the recording", text=f"· {asked}")
        self._screen.say([EMPTY, end, Line(indent=2, text=usage_sentence(self._usage), style="dim")])
        handed_in = [call.input for call in runs[0].open_calls] if runs else []
        return to_json(handed_in[-1], indent=2).decode() if handed_in else runs[0].said if runs else ""

    def _show(self, request: RecordedRequest) -> None:
        path = (f"{self._name}#{request.run}" if self._has_several else self._name,)
        run = self._seen.open.get(path) or self._begin(path, request)
        for event in self._results(run, request):
            self._tell(event)
        self._tell(events.IterationStarted(path=path, attempt=1, iteration=len(run.iterations) + 1))
        self._answer(run, request)

    def _begin(self, path: RunPath, request: RecordedRequest) -> SeenRun:
        prompt = "\n".join(str(block["text"]) for block in _blocks(messages_of(request.body)[:1]) if "text" in block)
        model = str(request.body["model"])
        self._tell(events.RunStarted(path=path, agent=path[0], model=model, max_attempts=1, max_iterations=0))
        self._tell(events.MessageCommitted(path=path, message=Message("user", (Text(prompt),))))
        return self._seen.open[path]

    def _tell(self, event: events.Event) -> None:
        self._seen.follow(event)
        self._screen.show(event)

    def _results(self, run: SeenRun, request: RecordedRequest) -> Iterator[events.Event]:
        """Give the results that the last message holds."""
        calls = {call.id: call for call in run.open_calls}
        for block in _blocks(messages_of(request.body)[-1:]):
            call = calls.get(str(block.get("tool_use_id")))
            if call is None or call.is_error is not None:
                continue
            took_s = self._took_s.get((request.run, call.id), 0.0)
            self._pause(took_s)
            yield events.ToolFinished(
                path=run.path,
                attempt=1,
                iteration=len(run.iterations),
                tool_use_id=call.id,
                tool_name=call.name,
                kind="tool",
                tool_result=_text(block.get("content")),
                is_error=block.get("is_error") is True,
                cached=False,
                duration_s=took_s,
            )

    def _answer(self, run: SeenRun, request: RecordedRequest) -> None:
        collector, so_far = Collector(), 0.0
        for ms, part in request.parts:
            self._pause((ms - so_far) / 1000)
            so_far = ms
            collector.add(part)
            for event in _deltas(run.path, part):
                self._tell(event)
        self._usage += collector.used()
        if (error := request.error()) is not None:
            text = f"{error.kind}: {error} ({duration((request.answer.ms if request.answer else 0) / 1000)})"
            self._screen.say([Line(indent=4, mark="failed", text=text, rows=4)])
            return
        try:
            response = collector.response()
        except ProviderError:
            self._screen.say([Line(indent=4, mark="stopped", text="the run that was recorded was stopped here")])
            return
        said = Message("assistant", response.content)
        for event in _answered(run, said, response.usage, response.model):
            self._tell(event)

    def _pause(self, seconds: float) -> None:
        if self._wait is not None and seconds > 0:
            self._wait(seconds)


def _deltas(path: RunPath, part: Part) -> list[events.Event]:
    match part:
        case TextPart(text):
            return [events.TextDelta(path=path, text=text)]
        case ThinkingPart(text):
            return [events.ThinkingDelta(path=path, text=text)]
        case InputPart(id, name, json):
            return [events.ToolInputDelta(path=path, tool_use_id=id, tool_name=name, json=json)]
        case _:
            return []


def _answered(run: SeenRun, said: Message, usage: Usage, model: str) -> Iterator[events.Event]:
    iteration = len(run.iterations)
    yield events.ModelResponded(
        path=run.path,
        attempt=1,
        iteration=iteration,
        stop_reason="tool_use" if said.tool_uses else "end_turn",
        text=said.text,
        usage=usage,
        model=model,
    )
    for use in said.tool_uses:
        yield events.ToolCalled(
            path=run.path,
            attempt=1,
            iteration=iteration,
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
