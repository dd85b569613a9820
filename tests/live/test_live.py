"""Some 60 runs with SmolLM2 in llama.cpp's server, over its four APIs."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import Unpack

from journeyman import Abort, Agent, Chat, ErrorCode, Failure, Limits, Model, ModelSettings, Output, Runtime, run, tool
from journeyman.compaction import ClearToolResults
from journeyman.events import ContextCompacted, Event, ModelRetried, TextDelta
from journeyman.loop.state import RunOptions
from journeyman.models.cassette import Cassette
from journeyman.models.local.model import LocalModel, examples_of
from journeyman.result import Result, Success
from journeyman.types import JsonObject
from tests.live.conftest import WIRES, model_over, note
from tests.live.tap import Tap
from tests.support.local_servers import processes_with

WAYS = [(wire, streaming) for wire in WIRES for streaming in (True, False) if streaming or wire != "anthropic"]
QUIET = ModelSettings(max_tokens=24)


class Trip(BaseModel):
    city: str
    days: int


def few_days(trip: Trip) -> None:
    """Few days only."""
    if trip.days > 5:
        raise ValueError(f"Plan a visit to a city. city: {trip.city}, days: 5")


@tool
def weather(city: str) -> str:
    """Say what the weather is like in a city."""
    return f"It rains in {city}, at 11 degrees."


def with_examples(agent: Agent[Any, Any, Any], wire: str) -> ModelSettings:
    """Return settings that show the model how a call is written, over the APIs that pass that on."""
    extra: JsonObject = {"chat_template_kwargs": {"examples": examples_of(agent.plan.specs)}}
    return ModelSettings(max_tokens=48, extra=extra if wire in ("llama-cpp", "openai-chat") else {})


async def connected(wire: str, local: LocalModel, tap: Tap, *, streaming: bool) -> Model:
    options = {} if wire == "anthropic" else {"streaming": streaming}
    return await model_over(wire, local, tap.url, **options)


async def asked(
    agent: Agent[Any, Any, Any], text: str, tap: Tap, *, kind: str, **options: Unpack[RunOptions]
) -> Result[Any]:
    """Run the agent, and check what holds for every run: the ending is known, and the usage is the server's own."""
    before_in, before_out = tap.used()
    result = note(await run(agent, text, **options), kind=kind)
    usage = result.metadata.usage
    assert usage is not None
    total_in = usage.input_tokens + (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    assert (before_in + total_in, before_out + usage.output_tokens, usage.exact) == (*tap.used(), True)
    return result


@pytest.mark.parametrize(("wire", "streaming"), WAYS)
async def test_a_conversation_goes_on_over_each_api(local: LocalModel, tap: Tap, wire: str, streaming: bool) -> None:
    agent = Agent(name="a", model=await connected(wire, local, tap, streaming=streaming), settings=QUIET)
    first = await asked(agent, "Hello. Who are you?", tap, kind="talk")
    usage = first.metadata.usage
    assert usage is not None
    assert usage.requests == 1
    assert 0 < usage.output_tokens <= 24
    again = await asked(agent, "And where do you live?", tap, kind="talk on", history=first.history)
    assert len(again.history) >= len(first.history) + 1


@pytest.mark.parametrize(("wire", "streaming"), WAYS)
async def test_tools_are_called_or_not_and_the_history_is_taken_again(
    local: LocalModel, tap: Tap, wire: str, streaming: bool
) -> None:
    agent = Agent(
        name="a",
        model=await connected(wire, local, tap, streaming=streaming),
        tools=[weather],
        limits=Limits(iterations=2),
    )
    agent = _with(agent, with_examples(agent, wire))
    first = await asked(agent, "What is the weather in Lima?", tap, kind="tool")
    await asked(agent, "And in Oslo?", tap, kind="tool on", history=first.history)


@pytest.mark.parametrize(("wire", "streaming"), WAYS)
async def test_typed_output_passes_its_checks_or_is_not_handed_in(
    local: LocalModel, tap: Tap, wire: str, streaming: bool
) -> None:
    agent = Agent(
        name="a",
        model=await connected(wire, local, tap, streaming=streaming),
        output=Output(Trip, name="visit", description="Plan a visit to a city."),
        validators=[few_days],
        limits=Limits(attempts=2, iterations=2),
    )
    result = await asked(_with(agent, with_examples(agent, wire)), "Plan a visit to Paris, 9 days.", tap, kind="typed")
    if isinstance(result, Success):
        assert result.output.days <= 5


@pytest.mark.parametrize("wire", WIRES)
async def test_a_prompt_that_is_longer_than_the_window_is_told_as_that(local: LocalModel, tap: Tap, wire: str) -> None:
    agent = Agent(
        name="a",
        model=await connected(wire, local, tap, streaming=True),
        settings=QUIET,
        limits=Limits(request_retries=0),
    )
    result = note(await run(agent, "The fox lives by the river. " * 600), kind="too long")
    assert isinstance(result, Failure)
    assert result.code == ErrorCode.CONTEXT_OVERFLOW


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_that_is_aborted_ends_and_its_words_stay_taken(local: LocalModel, tap: Tap, wire: str) -> None:
    abort = Abort()

    def stop(event: Event) -> None:
        if isinstance(event, TextDelta):
            abort.abort("enough")

    settings = ModelSettings(max_tokens=200)
    agent = Agent(name="a", model=await connected(wire, local, tap, streaming=True), settings=settings)
    result = note(await run(agent, "Tell a long story.", on_event=stop, abort=abort), kind="abort")
    assert isinstance(result, Failure)
    assert result.code == ErrorCode.EXECUTION_CANCELLED
    note(await run(_with(agent, QUIET), "Go on.", history=result.history), kind="abort on")


async def test_a_server_that_is_killed_under_eight_streams_is_started_again(local: LocalModel) -> None:
    (killed,) = processes_with(local.server.options.path)
    retried = n_began = 0

    def kill(event: Event) -> None:
        nonlocal n_began, retried
        retried += isinstance(event, ModelRetried)
        n_began += isinstance(event, TextDelta)
        if n_began == 1 and isinstance(event, TextDelta):
            os.kill(killed, signal.SIGKILL)

    agent = Agent(name="a", model=local, settings=ModelSettings(max_tokens=12, extra={"ignore_eos": True}))
    results = await asyncio.gather(*[run(agent, f"Count from {n}.", on_event=kill) for n in range(8)])
    for result in results:
        note(result, kind="killed")
        assert not isinstance(result, Failure) or result.code in (ErrorCode.TOKEN_LIMIT_EXCEEDED, ErrorCode.API_ERROR)
    assert retried > 0
    assert len({killed, *processes_with(local.server.options.path)}) == 2


async def test_a_chat_goes_on_over_a_window_of_2048_tokens(local: LocalModel) -> None:
    compacted: list[ContextCompacted] = []

    def hear(event: Event) -> None:
        if isinstance(event, ContextCompacted):
            compacted.append(event)

    agent = Agent(name="a", model=local, settings=ModelSettings(max_tokens=24), compaction=[ClearToolResults()])
    async with Chat(agent, on_event=hear) as chat:
        for number in range(7):
            result = note(await chat.prompt(f"Story {number}. " + "A fox lives by the river. " * 45), kind="chat")
            assert not isinstance(result, Failure) or result.code == ErrorCode.TOKEN_LIMIT_EXCEEDED
    assert compacted, "it came to the end of the window"


async def test_a_cassette_of_real_traffic_is_replayed_without_the_server(local: LocalModel, tmp_path: Path) -> None:
    agent = Agent(name="a", model="local:smollm2", tools=[weather], settings=QUIET, limits=Limits(iterations=2))

    async def once() -> Result[str]:
        with Cassette(tmp_path / "real.jsonl") as cassette:
            runtime = Runtime(model=cassette.model(local), journal=cassette.journal)
            return note(await run(agent, "What is the weather in Rome?", runtime=runtime), kind="cassette")

    recorded = await once()
    assert local.server.is_running
    local.server.end()
    replayed = await once()
    assert not local.server.is_running, "nobody was asked"
    assert (replayed.history, replayed.metadata.usage) == (recorded.history, recorded.metadata.usage)


AGENT = """
from journeyman import Agent, ModelSettings

agent = Agent(name="real", model="local:smollm2", settings=ModelSettings(max_tokens=12))
"""


def test_a_real_run_becomes_a_test_that_passes(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text(AGENT, encoding="utf-8")
    env = {**os.environ, "JOURNEYMAN_RECORD": "1", "JOURNEYMAN_STORE": str(tmp_path / "runs.db")}

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, env=env, capture_output=True, text=True)

    done = command("journeyman", "run", "real.py:agent", "Hello?", "--json")
    assert json.loads(done.stdout)["history"], done.stderr
    made = command("journeyman", "test", "last", "--out", "test_real.py")
    assert "It passes" in made.stdout + made.stderr
    tested = command("pytest", "-q", "-p", "no:randomly", "test_real.py")
    assert tested.returncode == 0, tested.stdout


def _with(agent: Agent[Any, Any, Any], settings: ModelSettings) -> Agent[Any, Any, Any]:
    return replace(agent, settings=settings)
