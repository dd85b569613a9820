"""Cassettes: what was recorded replays the same, offline; what differs is shown; secrets and half files stay out."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from journeyman import Abort, Agent, Failure, Limits, Output, Result, Runtime, ToolContext, run, run_sync, tool
from journeyman.endings import ApiErrorContext, RateLimitContext
from journeyman.errors import CassetteError, NotRecorded, ProviderError, Usage
from journeyman.events import Event, ModelRetried, TextDelta, ToolFinished
from journeyman.model import Model, ModelSettings, Part, Price, Request, Restarted, Retried
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.cassette.cassette import Cassette, CassetteMode
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.tools.redaction import Secret
from journeyman.types import Base64, Image, Text, Thinking, ToolResult
from tests.play import failed, succeeded, virtual_clock
from tests.support.messages_answers import answer, cut, fault, stall, thinking, tool_use
from tests.support.servers import MessagesApi

AnyAgent: TypeAlias = Agent[Any, Any]
Patch: TypeAlias = pytest.MonkeyPatch


class Report(BaseModel):
    city: str
    degrees: int


looked: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_looked_at() -> None:
    looked.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


@tool(parallel=True)
async def look(city: str) -> str:
    """Look at the weather."""
    looked.append(city)
    return f"{len(looked)} clouds over {city}"


@tool
def count(ctx: ToolContext) -> int:
    """Count up."""
    looked.append("count")
    ctx.set_run_state(ctx.run_state(int) + 1)
    return ctx.run_state(int)


@tool
def fall(ctx: ToolContext) -> str:
    """Fall."""
    raise ValueError("it is slippery")


def not_too_hot(report: Report) -> None:
    """Nobody believes more than 40 degrees."""
    if report.degrees > 40:
        raise ValueError(f"{report.degrees} degrees is too hot")


reporter = Agent(
    name="reporter",
    model="anthropic:claude-sonnet-5-5",
    system="You report the weather.",
    tools=[look, count, fall],
    output=Output(Report, reflection=lambda report: f"{report.city}: {report.degrees}"),
    validators=[not_too_hot],
    run_state=lambda input: 0,
    final_state=lambda states: states.run,
)

CONVERSATION = (
    answer(
        thinking("Two cities."),
        "I look.",
        tool_use("look", {"city": "Oslo"}, id="toolu_a"),
        tool_use("look", {"city": "Rome"}, id="toolu_b"),
        tool_use("count", {}, id="toolu_c"),
    ),
    fault(529, headers={"retry-after": "0"}),
    answer(tool_use("fall", {}, id="toolu_d"), tool_use("nothing", {}, id="toolu_e"), tool_use("count", {}, id="f")),
    answer(tool_use("output", {"city": "Rome", "degrees": 99}, id="toolu_g")),
    answer(tool_use("submit", {}, id="toolu_h")),
    answer(tool_use("output", {"city": "Röme", "degrees": 30}, id="toolu_i")),
    answer("There.", tool_use("submit", {}, id="toolu_j")),
)


class Tap:
    """A model around a model that keeps the bodies as the wire would have them."""

    def __init__(self, inner: Model, wire: AnthropicModel) -> None:
        self.inner, self.wire = inner, wire
        self.provider, self.name = inner.provider, inner.name
        self.facts = wire.facts
        self.bodies: list[Any] = []

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        self.bodies.append(json.loads(self.wire.body(request)))
        return self.inner.stream(request)


def timeless(value: Any) -> Any:  # noqa: ANN401 - of results and events alike
    """Return events and results without what is never the same: durations, and exceptions."""
    if is_dataclass(value) and not isinstance(value, type):
        left_out = ("duration_s", "latency_s", "delay_s", "cause", "wire")
        kept = {each.name: timeless(getattr(value, each.name)) for each in fields(value) if each.name not in left_out}
        return type(value).__name__, kept
    if isinstance(value, BaseException):
        return repr(value)
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in cast("dict[str, Any]", value).items()}
    return [timeless(item) for item in cast("list[Any]", value)] if isinstance(value, list | tuple) else value


async def play(agent: AnyAgent, cassette: Cassette, model: Model | str | None = None, text: str = "Go.") -> Result[Any]:
    return await run(agent, text, runtime=Runtime(model=cassette.model(model or agent.model), journal=cassette.journal))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def record(path: Path, answers: Sequence[Answer], *, agent: AnyAgent | None = None, text: str = "Go.") -> None:
    with Cassette(path, "all") as cassette:
        asyncio.run(play(agent or forecaster, cassette, ScriptedModel(answers), text))


forecaster = Agent(name="forecaster", model=ScriptedModel([]), system="You look.", tools=[look, fall])


def ask(path: Path, *, agent: AnyAgent = forecaster, text: str = "Go.", mode: CassetteMode = "none") -> Result[Any]:
    """Replay as another process would: with nothing but the file."""
    with Cassette(path, mode) as cassette:
        return asyncio.run(play(agent, cassette, "scripted:scripted", text))


async def test_a_recording_replays_with_the_same_bodies_history_events_result(path: Path, monkeypatch: Patch) -> None:
    price = Price(input=3, output=15, cache_read=0.3)
    recorded: list[Event] = []
    async with MessagesApi(list(CONVERSATION)) as api:
        wire = AnthropicModel("claude-sonnet-5-5", api_key="sk-ant-0123456789", base_url=api.url, price=price)
        with Cassette(path, "once") as cassette:
            runtime = Runtime(model=cassette.model(wire), journal=cassette.journal)
            first = succeeded(await run(reporter, "Where?", on_event=recorded.append, runtime=runtime))
    assert len(api.requests) == len(CONVERSATION)

    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    looked.clear()
    replayed: list[Event] = []
    with Cassette(path, "none") as cassette:
        tap = Tap(cassette.model("anthropic:claude-sonnet-5-5"), wire)
        second = await run(
            reporter, "Where?", on_event=replayed.append, runtime=Runtime(model=tap, journal=cassette.journal)
        )
    assert tap.bodies == [request.body for request in api.requests]
    assert second.history == first.history
    assert timeless(replayed) == timeless(recorded)
    assert timeless(second) == timeless(first)
    assert (cassette.unused, cassette.misses, looked) == ((), (), [])
    assert b"sk-ant-0123456789" not in path.read_bytes()


async def test_a_recording_with_nobody_watching_replays_its_deltas_to_a_listener(path: Path) -> None:
    async with MessagesApi([answer("Nice and warm.", delta_chars=5)]) as api:
        wire = AnthropicModel("claude-sonnet-5-5", api_key="key", base_url=api.url)
        with Cassette(path) as cassette:
            await run(Agent(name="a", model=cassette.model(wire)), "Hm?")
    events: list[Event] = []
    with Cassette(path) as cassette:
        await run(Agent(name="a", model=cassette.model()), "Hm?", on_event=events.append)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Nice and warm."
    assert sum(isinstance(event, TextDelta) for event in events) > 1


def test_a_failed_run_fails_again_in_the_same_way(path: Path) -> None:
    usage = Usage(requests=1, input_tokens=7, exact=False)
    last = ProviderError("Later.", kind="rate_limited", status=429, request_id="req_1", retry_after_s=99, usage=usage)
    record(path, [call("look", city="Oslo"), last])
    result = failed(ask(path))
    assert (result.error.context, result.error.attempt, result.error.iteration) == (
        RateLimitContext(message="Later.", status=429, request_id="req_1", retry_after_s=99),
        1,
        2,
    )
    assert result.metadata.usage == Usage(requests=2, input_tokens=17, output_tokens=5, exact=False)


@virtual_clock
async def test_a_retry_is_replayed_without_its_wait(path: Path) -> None:
    loop = asyncio.get_running_loop()
    script = ScriptedModel([ProviderError("Later.", kind="overloaded", retry_after_s=30), "Now."])
    with Cassette(path, "all") as cassette:
        started = loop.time()
        await play(forecaster, cassette, script)
        assert loop.time() - started == 30
    events: list[Event] = []
    with Cassette(path) as cassette:
        started = loop.time()
        result = await run(forecaster, "Go.", on_event=events.append, runtime=Runtime(model=cassette.model()))
        assert loop.time() == started
    assert result.unwrap() == "Now."
    assert [event.message for event in events if isinstance(event, ModelRetried)] == ["Later."]


class Patient:
    """A model around a model that repeats a request itself, and tells of it."""

    def __init__(self, inner: Model) -> None:
        self.provider, self.name = inner.provider, inner.name
        self._inner = inner

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        async def parts() -> AsyncIterator[Part]:
            error = ProviderError("Busy.", kind="overloaded", status=529, usage=Usage(requests=1, input_tokens=7))
            yield Retried(1, 3, 0.5, error)
            yield Restarted(Usage(requests=1, input_tokens=7))
            async with self._inner.stream(request) as answered:
                async for part in answered:
                    yield part

        yield parts()


def test_what_a_model_tells_of_its_own_retries_is_told_again(path: Path) -> None:
    events: list[list[object]] = [[], []]
    for told in events:
        with Cassette(path) as cassette:
            runtime = Runtime(model=cassette.model(Patient(ScriptedModel(["Now."]))))
            run_sync(forecaster, "Go.", runtime=runtime, on_event=told.append).unwrap()
    assert timeless(events[0]) == timeless(events[1])
    (retried,) = [event for event in events[1] if isinstance(event, ModelRetried)]
    assert (retried.message, retried.kind, retried.delay_s) == ("Busy.", "overloaded", 0.5)


@virtual_clock
async def test_what_took_long_is_replayed_at_once(path: Path) -> None:
    loop = asyncio.get_running_loop()

    async def slowly(request: Request) -> Answer:
        await asyncio.sleep(2)
        return call("doze") if len(request.messages) == 1 else "Awake."

    @tool
    async def doze() -> str:
        """Doze."""
        await asyncio.sleep(5)
        return "rested"

    agent = Agent(name="a", model=FunctionModel(slowly), tools=[doze])
    took: list[float] = []
    for _ in range(2):
        started = loop.time()
        with Cassette(path) as cassette:
            assert (await play(agent, cassette)).unwrap() == "Awake."
        took.append(round(loop.time() - started, 1))
    assert took == [9, 0]


def test_pictures_are_compared_and_not_kept(path: Path) -> None:
    picture, other = Image(Base64.of(b"\x89PNG" * 999, "image/png")), Image(Base64.of(b"\x89PNH" * 999, "image/png"))
    record(path, ["A cat."], agent=replace(forecaster, prompt=(Text("What is it?"), picture)))
    assert path.stat().st_size < 2_000
    assert ask(path, agent=replace(forecaster, prompt=(Text("What is it?"), picture))).unwrap() == "A cat."
    result = ask(path, agent=replace(forecaster, prompt=(Text("What is it?"), other)))
    assert "messages[0].content[1].source.data differs" in str(result)


def test_text_that_is_no_proper_unicode_replays(path: Path) -> None:
    record(path, ["na\udcefve"], text="caf\udce9")
    assert ask(path, text="caf\udce9").unwrap() == "na?ve"


def test_a_long_conversation_takes_space_in_proportion_to_its_length(tmp_path: Path) -> None:
    sizes: list[int] = []
    for n in (20, 40):
        path = tmp_path / f"{n}.jsonl"
        patient = replace(forecaster, limits=Limits(iterations=99))
        record(path, [*[call("look", city="x" * 500)] * n, "Done."], agent=patient)
        sizes.append(path.stat().st_size)
    assert 1.8 < sizes[1] / sizes[0] < 2.1


def test_a_changed_prompt_fails_with_a_diff_of_the_message(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    record(Path("weather.jsonl"), [call("look", city="Oslo", id="1"), "Clouds."], text="Is it warm in Oslo?")
    result = failed(ask(Path("weather.jsonl"), text="Is it cold in Oslo?"))
    assert isinstance(result.error.context, ApiErrorContext)
    assert result.error.context.kind == "not_recorded"
    assert result.error.context.message == snapshot("""\
request 1: messages[0].content[0].text differs (weather.jsonl, line 3; - recorded, + now):
- messages[0].content[0].text: "Is it warm in Oslo?"
+ messages[0].content[0].text: "Is it cold in Oslo?"
Undo the change, or record again: mode="all", pytest --journeyman-record=all, journeyman cassette record.\
""")
    assert isinstance(result.error.cause, NotRecorded)
    assert result.metadata.usage == Usage()


def differing(path: Path, **changed: Any) -> str:
    result = failed(ask(path, agent=replace(forecaster, **changed)))
    return "\n".join(str(result.error.cause).splitlines()[:-1]).replace(f"{path.parent}/", "")


LONG = "\n".join(f"Rule {number}: be kind." for number in range(40))


def test_what_differs_is_named_and_shown(path: Path) -> None:
    record(path, [call("look", city="Oslo", id="1"), "Clouds."], agent=replace(forecaster, system=LONG))
    changed = LONG.replace("Rule 20: be kind.", "Rule 20: be stern.").replace("Rule 31: be kind.\n", "")
    assert differing(path, system=changed) == snapshot("""\
request 1: system[0].text differs (a.jsonl, line 3; - recorded, + now):
  system[0].text: "Rule 19: be kind.\\n"
- system[0].text: "Rule 20: be kind.\\n"
+ system[0].text: "Rule 20: be stern.\\n"
  system[0].text: "Rule 21: be kind.\\n"
  …
  system[0].text: "Rule 30: be kind.\\n"
- system[0].text: "Rule 31: be kind.\\n"
  system[0].text: "Rule 32: be kind.\\n"\
""")

    @tool
    async def smell(city: str) -> str:
        """Smell the air."""
        return "fresh"

    assert differing(path, system=LONG, tools=[smell, fall]) == snapshot("""\
request 1: tools["look"].description differs (and 11 more) (a.jsonl, line 3; - recorded, + now):
- tools["look"].description: "Look at the weather."
- tools["look"].input_schema.additionalProperties: false
- tools["look"].input_schema.properties.city.type: "string"
- tools["look"].input_schema.required[0]: "city"
- tools["look"].input_schema.type: "object"
- tools["look"].name: "look"
+ tools["smell"].description: "Smell the air."
+ tools["smell"].input_schema.additionalProperties: false
+ tools["smell"].input_schema.properties.city.type: "string"
+ tools["smell"].input_schema.required[0]: "city"
+ tools["smell"].input_schema.type: "object"
+ tools["smell"].name: "smell"\
""")
    assert differing(path, system=LONG, settings=ModelSettings(thinking="high")) == snapshot("""\
request 1: settings.thinking differs (a.jsonl, line 3; - recorded, + now):
+ settings.thinking: "high"\
""")


def test_a_changed_tool_shows_in_the_request_that_follows_it(path: Path) -> None:
    long = "x" * 300
    record(path, [call("look", city=long, id="1"), "Clouds."])
    with Cassette(path, tools="run") as cassette:
        asyncio.run(play(forecaster, cassette))
        start, place = "clouds over ", "messages[2].content[0].content"
        assert str(cassette.misses[0]).splitlines()[:4] == [
            f"request 2: {place} differs ({path}, line 6; - recorded, + now):",
            f'- {place}: "1 {start}{long[:86]}"',
            f'+ {place}: "2 {start}{long[:86]}"',
            f'  {place}: "{long[:100]}"',
        ]
    assert looked == [long, long]


def test_a_request_more_than_recorded_is_a_miss(path: Path) -> None:
    record(path, ["Once."])
    with Cassette(path) as cassette:
        assert asyncio.run(play(forecaster, cassette)).unwrap() == "Once."
        again = asyncio.run(play(forecaster, cassette))
    assert "request 2: it equals request 1" in str(again)
    assert "which is recorded once and asked for once more" in str(again)
    assert len(cassette.misses) == 1


def test_another_model_is_another_conversation(path: Path) -> None:
    record(path, ["Once."])
    with Cassette(path) as cassette:
        result = failed(asyncio.run(play(forecaster, cassette, "anthropic:claude-sonnet-5-5")))
    assert "request 1: model differs" in result.error.message
    assert '- model: "scripted:scripted"\n+ model: "anthropic:claude-sonnet-5-5"\n' in result.error.message


def test_a_miss_is_not_retried(path: Path) -> None:
    record(path, ["Once."])
    events: list[Event] = []
    with Cassette(path) as cassette:
        runtime = Runtime(model=cassette.model())
        run_sync(
            replace(forecaster, limits=replace(forecaster.limits, request_retries=5)),
            "Else.",
            on_event=events.append,
            runtime=runtime,
        )
    assert len(cassette.misses) == 1
    assert not [event for event in events if isinstance(event, ModelRetried)]


def test_what_was_not_asked_for_can_be_asserted(path: Path) -> None:
    record(path, [call("look", city="Oslo", id="1"), "Clouds."])
    with Cassette(path) as cassette:
        run_sync(replace(forecaster, gate=None), "Something else.", runtime=Runtime(model=cassette.model()))
    looking = "call attempt/1/iteration/1/call/1 of look (line 5)"
    assert cassette.unused == ("request 1 (line 3)", "request 2 (line 6)", looking)


def test_once_records_where_there_is_no_file_and_replays_where_there_is(tmp_path: Path) -> None:
    path = tmp_path / "cassettes" / "a.jsonl"
    for replaying in (False, True):
        script = ScriptedModel(["Hello."])
        with Cassette(path) as cassette:
            assert cassette.is_replaying is replaying
            assert asyncio.run(play(forecaster, cassette, script)).unwrap() == "Hello."
        assert script.remaining == replaying


def test_none_without_a_file_fails_at_the_first_request_and_writes_nothing(path: Path, tmp_path: Path) -> None:
    assert f"request 1: there is no file {path}." in str(ask(path))
    assert list(tmp_path.iterdir()) == []


def test_new_replays_what_is_known_and_adds_what_is_not(path: Path) -> None:
    record(path, [call("look", city="Oslo", id="1"), "Clouds."])
    before = path.read_bytes().splitlines()
    looked.clear()
    script = ScriptedModel(["Sun."])
    with Cassette(path, "new") as cassette:
        assert asyncio.run(play(forecaster, cassette, script)).unwrap() == "Clouds."
        assert (script.requests, looked, len(cassette.unused)) == ([], [], 0)
        assert asyncio.run(play(forecaster, cassette, script, "And Rome?")).unwrap() == "Sun."
    assert path.read_bytes().splitlines()[1 : len(before)] == before[1:]
    assert [line["run"] for line in lines_of(path) if line.get("event") == "request"] == [1, 1, 2]
    assert (ask(path).unwrap(), ask(path, text="And Rome?").unwrap()) == ("Clouds.", "Sun.")


def test_all_records_anew_and_leaves_the_old_file_until_it_is_complete(path: Path, tmp_path: Path) -> None:
    record(path, ["Old."])
    old = path.read_bytes()
    with Cassette(path, "all") as cassette:
        assert asyncio.run(play(forecaster, cassette, ScriptedModel(["New."]))).unwrap() == "New."
        assert path.read_bytes() == old
    assert ask(path).unwrap() == "New."
    with Cassette(path, "all"):
        pass  # nothing was asked
    assert ask(path).unwrap() == "New."
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_process_that_dies_while_it_records_leaves_the_old_file(path: Path, tmp_path: Path) -> None:
    record(path, ["Old."])
    old = path.read_bytes()
    program = f"""
import os
from journeyman import Agent, Runtime, run_sync, tool
from journeyman.models.cassette.cassette import Cassette
from journeyman.tools.redaction import Secret
from journeyman.testing.scripted import ScriptedModel, call

@tool
def die() -> str:
    "Die."
    os._exit(9)

with Cassette({str(path)!r}, "all") as cassette:
    agent = Agent(name="a", model=ScriptedModel([call("die")]), tools=[die])
    run_sync(agent, "Go.", runtime=Runtime(model=cassette.model(agent.model), journal=cassette.journal))
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert (done.returncode, path.read_bytes()) == (9, old)
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file\n")
    with pytest.raises(CassetteError, match=r"folder/a\.jsonl cannot be (written|read): .*\. \w"):
        record(tmp_path / "folder" / "a.jsonl", ["Hello."])


def test_a_replay_runs_no_tool_and_puts_back_results_errors_and_states(path: Path) -> None:
    agent = replace(reporter, output=Agent(name="x", model="a:b").output, validators=[])
    record(path, [[call("count", id="1"), call("fall", id="2")], call("count", id="3"), "Done."], agent=agent)
    looked.clear()
    events: list[Event] = []
    with Cassette(path) as cassette:
        runtime = Runtime(model=cassette.model(), journal=cassette.journal)
        result = succeeded(run_sync(agent, "Go.", on_event=events.append, runtime=runtime))
    assert (result.state, looked) == (2, [])
    assert result.metadata.tools["fall"].errors == {"raised": 1}
    texts = [event.tool_result for event in events if isinstance(event, ToolFinished)]
    assert texts == ["1", "Error: it is slippery", "2"]


def test_a_cached_result_is_cached_again(path: Path) -> None:
    cached = replace_tool(look, effect="pure", cache="run")
    agent = replace(forecaster, tools=[cached])
    record(path, [call("look", city="Oslo", id="1"), call("look", city="Oslo", id="2"), "Done."], agent=agent)
    with Cassette(path) as cassette:
        result = asyncio.run(play(agent, cassette))
    assert result.metadata.tools["look"].cache_hits == 1


def replace_tool(one: Any, **options: Any) -> Any:  # noqa: ANN401 - any tool
    return tool(one.handler, name=one.name, **options)


@pytest.mark.parametrize(("effect", "runs"), [("pure", True), ("idempotent", False), ("once", False)])
def test_a_call_that_was_not_recorded_runs_only_if_it_is_pure(path: Path, effect: str, runs: bool) -> None:
    with Cassette(path) as cassette:  # without the journal
        looks = [call("look", city="Oslo", id="1"), call("look", city="Rome", id="2")]
        run_sync(forecaster, "Go.", runtime=Runtime(model=cassette.model(ScriptedModel([looks, "Done."]))))
    looked.clear()
    result = ask(path, agent=replace(forecaster, tools=[replace_tool(look, effect=effect, parallel=True), fall]))
    assert looked == (["Oslo", "Rome"] if runs else [])
    if runs:
        assert result.unwrap() == "Done."
        return
    assert isinstance(result, Failure)
    said = f"call attempt/1/iteration/1/call/1 of look is not in {path}, and it is not made while replaying"
    assert f"{said}: its effect is '{effect}'." in result.error.message


def test_a_state_that_is_no_json_says_so_while_it_is_recorded(tmp_path: Path) -> None:
    def unstorable(input: str) -> object:
        return object()

    @tool
    def change(context: ToolContext) -> str:
        context.set_run_state(object())
        return "changed"

    agent = replace(forecaster, run_state=unstorable, tools=[change])
    with Cassette(tmp_path / "a.jsonl") as cassette:
        result = asyncio.run(play(agent, cassette, ScriptedModel([call("change", id="1")])))
    assert "What came of attempt/1/iteration/1/call/1 cannot be recorded" in str(result)
    assert "Keep values in the run's states that Pydantic can write as JSON." in str(result)


def asker(helper: AnyAgent, cassette: Cassette, effect: Any) -> Agent[str, str]:  # noqa: ANN401 - an Effect
    @tool(effect=effect)
    async def delegate(task: str) -> str:
        """Let the helper do it."""
        looked.append("delegate")
        return str((await play(helper, cassette, text=task)).unwrap())

    return Agent(
        name="lead", model=ScriptedModel([call("delegate", task="Look.", id="1"), "Thanks."]), tools=[delegate]
    )


@pytest.mark.parametrize(("effect", "again"), [("idempotent", ["delegate"]), ("once", [])])
async def test_an_agent_that_is_called_runs_again_unless_it_must_not(path: Path, effect: str, again: list[str]) -> None:
    helper = replace(forecaster, model=ScriptedModel([call("look", city="Oslo", id="1"), "Clouds."]))
    for expected in (["delegate", "Oslo"], again):
        looked.clear()
        with Cassette(path) as cassette:
            lead = asker(helper, cassette, effect)
            assert (await play(lead, cassette)).unwrap() == "Thanks."
            assert (looked, cassette.unused) == (expected, ())


async def test_runs_that_ask_the_same_at_the_same_time_each_keep_to_one_recorded_run(path: Path) -> None:
    served: list[int] = []

    async def number(request: Request) -> Answer:
        if len(request.messages) == 1:
            return call("draw", id="same")
        assert isinstance(request.messages[2].content[0], ToolResult)
        return f"I drew {request.messages[2].content[0].text}."

    @tool(parallel=True)
    async def draw() -> int:
        """Draw a number."""
        served.append(len(served))
        return served[-1]

    agent = Agent(name="drawer", model=FunctionModel(number), tools=[draw])
    texts: list[list[str]] = []
    for _ in range(2):
        with Cassette(path) as cassette:
            results = await asyncio.gather(*(play(agent, cassette) for _ in range(5)))
        texts.append([result.unwrap() for result in results])
        assert (cassette.misses, len(served)) == ((), 5)
    assert texts[0] == texts[1]
    assert {line["run"] for line in lines_of(path) if line.get("event") == "call"} == {1, 2, 3, 4, 5}


def test_equal_requests_are_answered_in_the_order_in_which_they_were(path: Path) -> None:
    script = ScriptedModel(["One.", "Two.", "Three."])
    for _ in range(2):
        with Cassette(path) as cassette:
            model = cassette.model(script)
            said = [run_sync(forecaster, "Go.", runtime=Runtime(model=model)).unwrap() for _ in range(3)]
        assert said == ["One.", "Two.", "Three."]


async def test_an_answer_that_nobody_waited_for_ends_the_replay_where_it_ended(path: Path) -> None:
    agent, abort = Agent(name="a", model="anthropic:claude-sonnet-5-5"), Abort()

    def stop(event: Event) -> None:
        if isinstance(event, TextDelta):
            abort.abort("enough")

    async with MessagesApi([stall(answer("One.", "Two."), after_events=5), answer("Whole.")]) as api:
        wire = AnthropicModel("claude-sonnet-5-5", api_key="key", base_url=api.url)
        with Cassette(path) as cassette:
            runtime = Runtime(model=cassette.model(wire))
            assert isinstance(await run(agent, "Go.", on_event=stop, abort=abort, runtime=runtime), Failure)
        assert lines_of(path)[-1]["stopped"] is True
        with Cassette(path) as cassette:
            assert "request 1: its answer ends here" in str(await play(agent, cassette))
        with Cassette(path, "new") as cassette:
            assert (await play(agent, cassette, wire)).unwrap() == "Whole."
    with Cassette(path) as cassette:
        assert (await play(agent, cassette)).unwrap() == "Whole."


async def test_an_answer_that_broke_off_breaks_off_again(path: Path) -> None:
    agent = Agent(name="a", model="anthropic:claude-sonnet-5-5", limits=Limits(request_retries=0))
    results: list[Result[Any]] = []
    async with MessagesApi([cut(answer("One.", "Two."), after_events=5)]) as api:
        wire = AnthropicModel("claude-sonnet-5-5", api_key="key", base_url=api.url)
        for _ in range(2):
            with Cassette(path) as cassette:
                results.append(await play(agent, cassette, wire))
    assert timeless(results[0]) == timeless(results[1])
    assert "stream_cut" in str(results[1])


SECRETS = {
    "anthropic": "sk-ant-api03-AbCdEf0123456789-x_y",
    "openai": "sk-proj-AbCdEfGh0123456789AbCdEfGh",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "google": "AIza" + "Sy0123456789abcdefghijklmnopqrstuvw"[:35],
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "slack": "xoxb-0123456789-abcdef",
    "token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9",
    "bearer": "Authorization: Bearer abc.def-0123456789",
    "header": "x-api-key: 0123-my-own-key",
    "basic": 'curl -H "authorization: Basic dXNlcjpwYXNz" x',
    "url": "postgres://me:hunter2hunter2@db.example.com/x",
    "private": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "environment": 'my "quoted" \\ password',
}
HIDDEN = {
    "bearer": "abc.def-0123456789",
    "header": "0123-my-own-key",
    "basic": "dXNlcjpwYXNz",
    "url": "hunter2hunter2",
    "private": "MIIEow",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_nowhere_in_the_file_and_is_not_missed(kind: str, path: Path, monkeypatch: Patch) -> None:
    secret = SECRETS[kind]
    monkeypatch.setenv("SHOP_DB_PASSWORD", SECRETS["environment"])
    answers: list[Answer] = [
        say(Thinking(f"I know {secret}."), f"It is {secret}, is it?", call("look", {"city": f"{secret} "}, id="1")),
        ProviderError(f"No {secret}!", kind="overloaded", retry_after_s=0),
        f"Done with {secret}.",
    ]
    record(path, answers, agent=replace(forecaster, system=f"Use {secret}"), text=f"Here: {secret}")
    text = path.read_text("utf-8")
    for form in (HIDDEN.get(kind, secret), json.dumps(HIDDEN.get(kind, secret))[1:-1]):
        assert form not in text
    assert text.count("[redacted]") >= 7
    result = ask(path, agent=replace(forecaster, system=f"Use {secret}"), text=f"Here: {secret}")
    assert "[redacted]" in str(result.unwrap())


def test_a_secret_that_comes_in_pieces_is_taken_out_of_all_of_them(path: Path) -> None:
    secret = SECRETS["anthropic"]

    async def go() -> None:
        look_there = tool_use("look", {"city": secret}, id="1")
        async with MessagesApi([answer(f"Take {secret} along", look_there, delta_chars=7), answer("So.")]) as api:
            wire = AnthropicModel("claude-sonnet-5-5", api_key="key", base_url=api.url)
            with Cassette(path) as cassette:
                assert (await play(forecaster, cassette, wire)).unwrap() == "So."

    asyncio.run(go())
    parts = [part for line in lines_of(path) if line.get("event") == "answer" for part in line["parts"]]
    assert "".join(part["text"] for part in parts if part["part"] == "text") == "Take [redacted] alongSo."
    assert json.loads("".join(part["json"] for part in parts if part["part"] == "input")) == {"city": "[redacted]"}
    assert secret[7:14] not in path.read_text("utf-8")
    with Cassette(path) as cassette:
        assert asyncio.run(play(forecaster, cassette, "anthropic:claude-sonnet-5-5")).unwrap() == "So."


def test_a_recording_made_with_a_secret_of_the_environment_replays_without_it(path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "open-sesame")
    record(path, [call("look", city="open-sesame", id="1"), "You said open-sesame."])
    monkeypatch.delenv("SHOP_TOKEN")
    assert ask(path).unwrap() == "You said [redacted]."


def test_fields_with_the_names_of_secrets_are_redacted_and_others_are_not(path: Path) -> None:
    arguments = {"password": "hunter2", "api_key": "k", "city": "Oslo", "nested": {"Authorization": "me"}, "token": "x"}
    record(path, [call("look", arguments, id="1"), "basic understanding; bearer certificates; https://me@host/a:b"])
    (use,) = [part["block"] for part in lines_of(path)[3]["parts"] if part["part"] == "block"]
    hidden = {"password": "[redacted]", "api_key": "[redacted]", "nested": {"Authorization": "[redacted]"}}
    assert json.loads(use["input_json"]) == {**arguments, **hidden}
    assert ask(path).unwrap() == "basic understanding; bearer certificates; https://me@host/a:b"


def test_users_take_out_more_by_texts_patterns_and_functions_or_nothing_at_all(path: Path) -> None:
    secret = SECRETS["anthropic"]

    redact: list[Secret] = ["Ada", re.compile(r"\d{3}-\d{4}"), lambda text: text.replace("Bern", "a city")]
    for mode in ("all", "none"):
        with Cassette(path, mode, redact=redact, redact_known=False) as cassette:
            script = ScriptedModel([f"Ada in Bern, 555-1234, {secret}"])
            said = asyncio.run(play(forecaster, cassette, script, "Ada, 555-4321, Bern"))
    assert said.unwrap() == f"[redacted] in a city, [redacted], {secret}"


HEADER = '{"format": "journeyman cassette", "version": 1, "recorded": "2026-11-01T00:00:00+00:00"}\n'
REQUEST = (
    '{"event": "request", "request": 1, "run": 1, "model": "a:b", "system": [], "tools": [], "settings": {}, '
    '"messages": []}\n'
)
WRONG_RUN = '{"event": "call", "run": "x", "key": "k", "outcome": {}}\n'
BROKEN_CHAIN = REQUEST.replace('"run"', '"continues": {"request": 9, "messages": 0}, "run"')
OTHER_VERSION = "the cassette is of version 2, and this journeyman reads 1. Update journeyman, or record it again."
OTHER_DIGEST = "line 2: request 1 was changed after it was recorded: its digest is "


def answered(request: int, *parts: str) -> str:
    kinds = [{"ms": 1, "part": part} for part in parts]
    return json.dumps({"event": "answer", "request": request, "parts": kinds}) + "\n"


WRONG: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "is empty. Record it again."),
    "no json": ("hello\n", "line 1: this is not JSON, or is cut off (Expecting value: line 1 column 1 (char 0))."),
    "no utf-8": (b'{"a": "\xff"}\n', "line 1: this is not JSON"),
    "a list": ("[1]\n", "line 1: this is not a JSON object but [1]."),
    "another format": ('{"a": 1}\n', 'line 1: this is not a cassette: the first line has no "format": "journeyman cas'),
    "another version": ('{"format": "journeyman cassette", "version": 2}\n', f"line 1: {OTHER_VERSION}"),
    "no date": ('{"format": "journeyman cassette", "version": 1}\n', "line 1: the line has no 'recorded'."),
    "a cut line": (HEADER + REQUEST + REQUEST[:40], "line 3: this is not JSON, or is cut off ("),
    "an empty line": (HEADER + "\n" + REQUEST, "line 2: the line is empty."),
    "no event": (HEADER + '{"run": 1}\n', "line 2: 'event' is missing."),
    "an unknown event": (HEADER + '{"event": "song"}\n', "line 2: there is no event 'song'."),
    "a missing field": (HEADER + '{"event": "answer", "request": 1}\n', "line 2: answer has no 'parts'."),
    "a wrong field": (HEADER + WRONG_RUN, "line 2: call.run is wrong: Input should be a valid integer"),
    "a head that is missing": (HEADER + REQUEST.replace('"tools": [], ', ""), "line 2: request 1 has no 'tools'."),
    "the same number": (HEADER + REQUEST + REQUEST, "line 3: there is a request 1 before."),
    "an answer to nothing": (HEADER + answered(7), "line 2: this answers request 7, which is not before it."),
    "an unknown part": (HEADER + REQUEST + answered(1, "song"), "line 3: parts.0 has no known 'song'."),
    "a wrong part": (HEADER + REQUEST + answered(1, "text"), "line 3: parts.0: the line has no 'text'."),
    "a break in the chain": (HEADER + BROKEN_CHAIN, "line 2: it continues request 9, which is not before it."),
    "a digest that does not fit": (HEADER + REQUEST.replace('"run"', '"digest": "abc", "run"'), OTHER_DIGEST),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_named_with_the_line_and_the_next_step(case: str, path: Path) -> None:
    content, said = WRONG[case]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CassetteError) as raised:
        Cassette(path)
    assert f"{path}, {said}" in str(raised.value) or f"{path} {said}" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.hint.endswith(".")


def test_a_recording_can_be_changed_by_hand_where_its_digest_is_taken_out(path: Path) -> None:
    record(path, ["Clouds."], text="In Oslo?")
    lines = [{name: value for name, value in line.items() if name != "digest"} for line in lines_of(path)]
    changed = "".join(f"{json.dumps(line)}\n" for line in lines).replace("In Oslo?", "In Rome?")
    path.write_text(changed, "utf-8")
    assert ask(path, text="In Rome?").unwrap() == "Clouds."


def test_the_file_is_readable(path: Path) -> None:
    record(path, [call("look", city="Zürich", id="1"), "Clouds."])
    first, model, *events = lines_of(path)
    assert (first["format"], first["version"], model["model"]) == ("journeyman cassette", 1, "scripted:scripted")
    assert [event["event"] for event in events] == ["request", "answer", "call", "request", "answer"]
    assert events[0]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Go."}]}]
    assert events[2]["tool"] == "look"
    assert events[2]["outcome"]["result"]["content"] == "1 clouds over Zürich"
    assert events[3]["continues"] == {"request": 1, "messages": 1}
    asked = {"type": "tool_use", "id": "1", "name": "look", "input": {"city": "Zürich"}}
    told = {"type": "tool_result", "content": "1 clouds over Zürich", "tool_use_id": "1"}
    assert events[3]["messages"] == [{"role": "assistant", "content": [asked]}, {"role": "user", "content": [told]}]
    assert "Zürich" in path.read_text("utf-8")
