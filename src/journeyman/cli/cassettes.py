"""`journeyman cassette record`, `replay` and `test`: runs that are shown or run again, and tests made of them.

A cassette that is shown without its agent is one line for each request and each call, as it went.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from pprint import pformat
from tempfile import TemporaryDirectory
from typing import Annotated, Final

from pydantic import JsonValue, ValidationError
from pydantic_core import from_json, to_json, to_jsonable_python

from journeyman.agent import Runtime
from journeyman.cli.app import Mistake, Refused
from journeyman.cli.durable import find_store, tell
from journeyman.cli.load_agent import AgentLoop, find_object
from journeyman.cli.options import AgentName, AnyAgent, ForceFlag, GivenOptions, InputText, RunName, TreeFlag, explain
from journeyman.cli.recorded import open_recordings, refuse_existing, write_new
from journeyman.cli.run import Job, Stdout, perform, read_text
from journeyman.cli.show.lines import EMPTY, Line, arguments, duration, one_line, ran, short_usage, usage_sentence
from journeyman.cli.show.played import cassette_lines
from journeyman.cli.show.screen import open_screen
from journeyman.definition.narrowing import is_json_object
from journeyman.errors import ProviderError, count
from journeyman.loop.run import run as run_agent
from journeyman.model import Collector
from journeyman.models.cassette.cassette import Cassette
from journeyman.models.cassette.format import RecordedRequest, messages_of
from journeyman.models.transport import offline
from journeyman.processes.unboxed import Unboxed
from journeyman.processes.whole_run import run_whole
from journeyman.record.reading import RecordedRun, Recordings
from journeyman.result import Failure, Success
from journeyman.types import NOTHING_USED, JsonObject, Message, ToolUse, Usage, adapter_of


def record(
    target: AgentName,
    input: InputText = None,
    /,
    *,
    out: Annotated[Path, explain("The cassette to write; one that is there is replaced at the end.")],
    tree: TreeFlag = False,
    shared: GivenOptions,
) -> int:
    """Run an agent as `run` does, and record what its model and its tools answer.

    Keys and what else looks like a secret are taken out. `journeyman cassette replay` plays the file again.
    """
    stdout = Stdout(drop_others=shared.quiet)
    if out.is_dir():
        raise Mistake(f"{out} is a folder.", f"Name a file in it: --out {out / 'trip.jsonl'}")
    above = next(each for each in out.absolute().parents if each.exists())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise Mistake(f"{out} cannot be written: {above} takes no files.", "Give another --out.")
    recording = Cassette(out, "all")
    with AgentLoop(shared.timeout) as loop:
        job = Job(
            text=read_text(input),
            agent=loop.agent(target, mode=shared.mode),
            loop=loop,
            stdout=stdout,
            check=f"journeyman check {target}",
            options=shared,
            tree=tree,
            notice=f"Recording to {out}.",
            cassette=recording,
        )
        recording.describe(agent=target, input=job.text)
        with recording:
            return perform(job)


def replay(
    file: Annotated[Path, explain("What was recorded: trip.jsonl.", name="CASSETTE")],
    target: Annotated[
        str | None, explain("The agent to run again; without one the recording is shown.", name="FILE:AGENT")
    ] = None,
    input: Annotated[str | None, explain("Another input than the recorded one.", name="INPUT")] = None,
    /,
    *,
    shared: GivenOptions,
) -> int:
    """Play a cassette: by itself, or as the answers to an agent that runs again.

    No model is asked, and no tool is run. An agent that now asks something else fails, and is shown what differs.
    """
    stdout = Stdout(drop_others=shared.quiet)
    if not file.exists():
        hint = f"Record it: journeyman cassette record FILE:AGENT INPUT --out {file}"
        raise Mistake(f"There is no file {file}.", hint)
    cassette = Cassette(file, "none")
    with offline("a cassette is replayed"), AgentLoop(shared.timeout) as loop:
        if target is None:
            if shared.json:
                hint = "Name it after the cassette: agents.py:analyst."
                raise Mistake("--json is for an agent that runs again.", hint)
            return _show(cassette, stdout, quiet=shared.quiet)
        text = input if input is not None or cassette.header is None else cassette.header.input
        if text is None:
            raise Mistake(f"{cassette.path} does not hold the agent's input.", "Give it as text after the agent.")
        job = Job(
            text=text,
            agent=loop.agent(target, is_guarded=False),  # no tool is run
            loop=loop,
            stdout=stdout,
            check=f"journeyman check {target}",
            options=shared,
            notice=f"Replaying {file}.",
            cassette=cassette,
        )
        code = perform(job)
        if cassette.unused and not cassette.misses and not shared.quiet:
            text = f"not asked for: {', '.join(cassette.unused)}"
            open_screen(quiet=False).say([Line(mark="warning", text=text, rows=4)])
        return code


def _show(cassette: Cassette, stdout: Stdout, *, quiet: bool) -> int:
    """Show all of it, and print what the first run said last, or handed in."""
    runs: dict[int, _ShownRun] = {}
    screen = open_screen(quiet=quiet)
    try:
        for line in _shown_lines(cassette, runs):
            screen.say([line])
    finally:
        screen.close()
    first = next(iter(runs.values()), _ShownRun(""))
    handed_in = [call.input for call in first.calls.values()]
    stdout.write_text(to_json(handed_in[-1], indent=2).decode() if handed_in else first.said)
    return 0


def make_test(
    run: RunName,
    target: Annotated[str | None, explain("The agent, if not the recorded one.", name="FILE:AGENT")] = None,
    /,
    *,
    path: Annotated[str | None, explain("A run inside of the recording: lead/scout#2.")] = None,
    out: Annotated[Path | None, explain("The test to write; else test_AGENT_ID.py here.")] = None,
    force: ForceFlag = False,
    shared: GivenOptions,
) -> int:
    """Make a test of a recorded run: a cassette, and a file for pytest that replays it and asserts how it ends.

    The run is replayed at once, and nothing is written unless it ends as it did. Then pytest runs the file. What the
    run's calls of other agents came to is replayed as it was: a sub-agent gets a test of its own with --path.
    """
    Stdout()
    with open_recordings(find_store(shared.store)) as recordings:
        found = recordings.find(run)
        told = _RecordedFacts.of(recordings, found, path)
    agent_place = target or (told.target if path is None else None)
    if agent_place is None:
        hint = f"Name it: journeyman cassette test {run} FILE:AGENT"
        raise Mistake("The recording does not say where its agent is.", hint)
    name = re.sub(r"\W+", "_", f"{told.name}_{found.id[-8:]}").lower()
    place = Path(f"test_{name}.py") if out is None else out
    if place.suffix != ".py" or not place.stem.isidentifier():
        raise Mistake(f"{place} is no name for a test file.", "Name a Python file with --out: tests/test_trip.py.")
    test_name = f"test_{told.name}_ends_as_recorded"
    cassette = place.parent / "cassettes" / place.stem / f"{test_name}.jsonl"
    refuse_existing(place, cassette, force=force)
    with AgentLoop(shared.timeout) as loop, offline("a recording is replayed"):
        agent = loop.agent(agent_place, is_guarded=False)  # as a test has it
        source = _test_file(agent, agent_place, told, place=place, test_name=test_name, id=found.id)
        _check_replay(loop, agent, told)
    write_new(cassette, told.cassette, force=force)
    write_new(place, source.encode(), force=force)
    tell(f"Written: {place}, {cassette}")
    if find_spec("pytest") is None:
        tell(f"It was not run, since pytest is not installed here. Run it: pytest {place}")
        return 0
    _run_file(place)
    tell(f"It passes: {told.ending}. Run it: pytest {place}")
    return 0


def _run_file(place: Path) -> None:
    """Run the file that was written as its owner will; `Refused` if it does not pass."""
    words = ("-m", "pytest", "--quiet", "--tb=short", "-p", "no:cacheprovider", str(place))
    given = partial(run_whole, folder=str(Path.cwd()), environment=os.environ, timeout_s=_PYTEST_S, with_errors=True)
    try:
        with closing(Unboxed()) as unboxed:  # which ends whatever pytest leaves running
            code, output = given(unboxed.spawn, sys.executable, words)
    except TimeoutError:
        text = f"{place} did not end within {_PYTEST_S} seconds in pytest."
        raise Refused(text, f"See why: pytest {place}") from None
    if code:
        lines = output.decode(errors="replace").splitlines()
        reasons = [line[1:].strip() for line in lines if line.startswith("E ")] or lines[-1:] or ["nothing"]
        text = f"{place} is written, and does not pass: {one_line(reasons[-1]).rstrip('.')}."
        raise Refused(text, f"See all: pytest {place}")


_PYTEST_S: Final = 120
"""A file that replays one run takes a second or two; what its module does when it is imported may take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedFacts:
    """The facts of a recorded run from which a test is made: input, cassette, and how it ended."""

    name: str
    """The agent's name, as a part of one in Python."""
    target: str | None
    input: str
    cassette: bytes
    code: str | None
    """Of a failure."""
    output: JsonValue

    @property
    def ending(self) -> str:
        return "a success" if self.code is None else self.code

    @classmethod
    def of(cls, recordings: Recordings, found: RecordedRun, path: str | None) -> _RecordedFacts:
        """Read it; `Refused` if it has no end to assert, or the recording does not tell enough of it."""
        if found.kind in ("chat", "team"):
            hint = "Of a run inside one can be made: --path." if found.kind == "team" else "Export it: --as cassette."
            raise Refused(f"The recording is of a {found.kind}, of which no test can be made.", hint)
        where = (found.agent,) if path is None else tuple(path.split("/"))
        lines = cassette_lines(recordings, found, where)
        ends = [each for each in recordings.all_events(found, path=where) if each.kind in ("RunSucceeded", "RunFailed")]
        if not ends:
            raise Refused(f"The run has no end to assert: it is {found.status}.", "Export it: --as cassette.")
        facts: dict[str, JsonValue] = ends[-1].facts
        error = facts.get("error")
        header = from_json(lines[0])
        return cls(
            name=re.sub(r"\W+", "_", where[-1].partition("#")[0]).lower(),
            target=header.get("agent"),
            input=header.get("input") or "",
            cassette=b"".join(line + b"\n" for line in lines),
            code=str(error["code"]) if isinstance(error, dict) else None,
            output=facts.get("output"),
        )


def _check_replay(loop: AgentLoop, agent: AnyAgent, told: _RecordedFacts) -> None:
    """Replay the run, as the test does; `Refused` if it does not end as it did."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "recording.jsonl"
        file.write_bytes(told.cassette)
        cassette = Cassette(file, "none")
        runtime = Runtime(model=cassette.model(), journal=cassette.journal)
        try:
            value = told.input if agent.input is str else adapter_of(agent.input).validate_json(told.input)
        except ValidationError as error:
            raise Refused(f"The recorded input does not fit {agent.name}.", "Name its agent: FILE:AGENT.") from error
        result = loop.run(run_agent(agent, value, runtime=runtime))
    missed = [str(miss).replace(str(file), "the recording").partition("\n")[0] for miss in cassette.misses]
    if missed:
        raise Refused(f"The agent asks now what it did not ask then: {one_line(missed[0]).rstrip('.:')}.", _DIFFERS)
    code = result.code.value if isinstance(result, Failure) else None
    if code != told.code:
        ending = code or "a success"
        raise Refused(f"Replayed, the run ends with {ending}, and not with {told.ending} as it did.", _DIFFERS)
    if isinstance(result, Success) and to_jsonable_python(result.output, fallback=repr) != told.output:
        raise Refused("Replayed, the run hands in something else than it did.", _DIFFERS)


_DIFFERS: Final = (
    "A test can be made of an agent that is as it was, and does not depend on time, chance or background work."
)


def _test_file(agent: AnyAgent, target: str, told: _RecordedFacts, *, place: Path, test_name: str, id: str) -> str:
    """Return the file for pytest; a `Mistake` if no test can import the agent."""
    origin, _, attribute = target.rpartition(":")
    if not attribute.replace(".", "_").isidentifier() or not origin:
        raise Mistake(f"{target} does not name the agent.", f"Name it: {target}:{told.name}")
    value = find_object(target)
    called = "" if value is agent else "()" if inspect.isfunction(value) else None
    if called is None or inspect.iscoroutinefunction(value) or inspect.isgeneratorfunction(value):
        raise Mistake(f"{target} is no agent that a test can import.", "Name an agent, or a function that returns one.")
    search, module = _import_of(origin, place)
    first, _, inner = attribute.partition(".")
    by_name = all(name.isidentifier() and not iskeyword(name) for name in module.split("."))
    # What is tested has one name here, which is ours: that of the user's may be `agent`, `cassette` or `run_sync`.
    taken = (
        f"from {module} import {first} as {_SUBJECT}" if by_name else f"{_SUBJECT} = import_module({module!r}).{first}"
    )
    code, is_text = told.code, agent.input is str
    ours = ["Runtime", "run_sync"] if code is None else ["ErrorCode", "Failure", "Runtime", "run_sync"]
    standard = [
        *(["import sys"] if search else []),
        *([] if by_name else ["from importlib import import_module"]),
        *(["from pathlib import Path"] if search else []),
    ]
    installed = [
        *([] if is_text else ["from pydantic import TypeAdapter"]),
        *(["from pydantic_core import to_jsonable_python"] if code is None else []),
    ]
    lines = [
        f'"""Made by `journeyman cassette test` of the recording {id}: {"success" if code is None else code}."""',
        "",
        *([*standard, ""] if standard else []),
        *([*installed, ""] if installed else []),
        f"from journeyman import {', '.join(ours)}",
        "",
        *([f"sys.path.insert(0, str(Path(__file__).parent / {search!r}))", ""] if search else []),
        f"{taken}{'  # noqa: E402' if search and by_name else ''}",
        "",
        f"INPUT = {pformat(told.input, width=100, sort_dicts=False)}",
        *([f"OUTPUT = {pformat(told.output, width=100, sort_dicts=False)}"] if code is None else []),
        "",
        "",
        f"def {test_name}(cassette):",
        f"    agent = {_SUBJECT}{f'.{inner}' if inner else ''}{called}",
        "    runtime = Runtime(model=cassette.model(), journal=cassette.journal)",
        f"    given = {'INPUT' if is_text else 'TypeAdapter(agent.input).validate_json(INPUT)'}",
        "    result = run_sync(agent, given, runtime=runtime)",
    ]
    if code is None:
        lines.append("    assert to_jsonable_python(result.unwrap(), fallback=repr) == OUTPUT")
    else:
        lines += ["    assert isinstance(result, Failure), result", f"    assert result.code is ErrorCode.{code}"]
    return "\n".join([*lines, ""])


_SUBJECT: Final = "subject"
"""The agent's name in a generated file."""


def _import_of(origin: str, place: Path) -> tuple[str, str]:
    """Return the folder in which a test has to look for the agent's module, from its own, and the name of that.

    The folder is empty where pytest looks in it anyway, or Python does.
    """
    file = Path(origin)
    if file.suffix != ".py" and not file.exists():
        return "", origin
    file = file.resolve()
    top, names = file.parent, [file.stem]
    while (top / "__init__.py").is_file():
        names.insert(0, top.name)
        top = top.parent
    if names[0] in sys.stdlib_module_names:
        text = f"{origin} has the name of a module of Python, which a test would import."
        raise Mistake(text, "Give it another name.")
    here = place.parent.resolve()
    is_found = here == top and not (here / "__init__.py").is_file()
    return "" if is_found else os.path.relpath(top, here), ".".join(names)


@dataclass(slots=True)
class _ShownRun:
    """The part of a run that was shown so far."""

    name: str
    n_requests: int = 0
    said: str = ""
    """The model's last words."""
    calls: dict[str, ToolUse] = field(default_factory=dict[str, ToolUse])
    """The calls of its last answer that have no result yet."""
    usage: Usage = NOTHING_USED


def _shown_lines(cassette: Cassette, runs: dict[int, _ShownRun]) -> Iterator[Line]:
    """Give the lines of what a cassette holds, and keep in `runs` how far each run of it came."""
    agent = (cassette.header.agent or "") if cassette.header is not None else ""
    name, last = agent.rpartition(":")[2] or "recorded", None
    took_s = {(call.call.run, call.call.key.rpartition("/")[2]): call.call.ms / 1000 for call in cassette.calls}
    has_several = len({request.run for request in cassette.requests}) > 1
    for request in cassette.requests:
        if request.run not in runs:
            runs[request.run] = _ShownRun(f"{name}#{request.run}" if has_several else name)
            blocks = _blocks_in(messages_of(request.body)[:1])
            prompt = "\n".join(str(block["text"]) for block in blocks if "text" in block)
            yield Line(name=runs[request.run].name, text=f"· {request.body['model']}")
            yield Line(text=prompt.strip(), style="dim", rows=3)
        elif request.run != last:
            yield Line(text=runs[request.run].name, style="dim")
        run, last = runs[request.run], request.run
        for block in _blocks_in(messages_of(request.body)[-1:]):
            if (call := run.calls.pop(str(block.get("tool_use_id")), None)) is not None:
                yield from _call_lines(call, block, took_s.get((request.run, call.id), 0.0))
        run.n_requests += 1
        yield _answer_line(run, request)
    for call in [call for run in runs.values() for call in run.calls.values()]:
        yield Line(indent=4, mark="step", name=call.name, text=arguments(call.input))
    asked = f"{count(len(cassette.requests), 'request')}, {count(len(cassette.calls), 'recorded call')}"
    yield EMPTY
    yield Line(mark="done", name="end of the recording", text=f"· {asked}")
    yield Line(indent=2, text=usage_sentence(Usage.total([run.usage for run in runs.values()])), style="dim")


def _call_lines(call: ToolUse, block: JsonObject, took_s: float) -> Iterator[Line]:
    result, is_error = _text_of_content(block.get("content")), block.get("is_error") is True
    mark, given = "failed" if is_error else "done", ran(arguments(call.input), result)
    note = duration(took_s) if took_s else ""
    yield Line(indent=4, mark=mark, name=call.name, text=given, style="dim", note=note)
    if is_error:
        yield Line(indent=6, mark="bar", text=result.strip("\n"), style="red", rows=4)


def _answer_line(run: _ShownRun, request: RecordedRequest) -> Line:
    """Return the line of what came of a request, and keep what it says."""
    collector = Collector()
    for part in request.parts:
        collector.add(part)
    run.usage += collector.sum_usage()
    if (error := request.error()) is not None:
        text = f"{error.kind}: {error} ({duration((request.answer.ms if request.answer else 0) / 1000)})"
        return Line(indent=4, mark="failed", text=text, rows=4)
    try:
        response = collector.response()
    except ProviderError:
        return Line(indent=4, mark="stopped", text="the run that was recorded was stopped here")
    said = Message("assistant", response.content)
    run.said, run.calls = said.text, {use.id: use for use in said.tool_uses}
    note = short_usage(response.usage)
    return Line(indent=2, name=f"{run.n_requests}", text=one_line(said.text), note=note, rows=3)


def _blocks_in(messages: list[JsonValue]) -> Iterator[JsonObject]:
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        yield from (block for block in content if isinstance(block, dict)) if isinstance(content, list) else ()


def _text_of_content(content: JsonValue) -> str:
    if isinstance(content, list):
        texts = [block.get("text") for block in content if is_json_object(block)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return str(content)
