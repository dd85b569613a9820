"""Scripted answers that come in pieces, a script that survives a restart, and times without any provider."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from journeyman import Abort, Agent, Limits, Message, Output, Success, run, run_sync, stream
from journeyman.connect import connect
from journeyman.errors import DefinitionError
from journeyman.events import Event, OutputDelta, TextDelta
from journeyman.model import Request
from journeyman.testing import (
    Answer,
    FunctionModel,
    Policy,
    ScriptedModel,
    StreamedAnswer,
    call,
    no_model_calls,
    play_by_history,
    say,
)
from journeyman.testing.scripted import StreamingPolicy
from journeyman.types import Usage
from tests.play import failed, succeeded, virtual_clock


async def heard_from(agent: Agent[Any]) -> tuple[list[Event], Success[Any]]:
    async with stream(agent, "Bern") as events:
        heard = [each async for each in events]
    return heard, succeeded(events.result)


@virtual_clock
async def test_an_answer_comes_in_pieces_with_pauses_by_the_clock_of_the_loop() -> None:
    begun, answer = asyncio.get_running_loop().time(), StreamedAnswer("The tide rises.", size=6, pause_s=2.0)
    heard, _ = await heard_from(Agent(name="a", model=ScriptedModel([answer])))
    assert [each.text for each in heard if isinstance(each, TextDelta)] == ["The ti", "de ris", "es."]
    assert asyncio.get_running_loop().time() == begun + 6


async def test_the_arguments_of_a_call_come_in_pieces_too() -> None:
    model = ScriptedModel([StreamedAnswer(call("output", to="Bern"), size=5)])
    heard, _ = await heard_from(Agent(name="a", model=model, output=Output(dict[str, str])))
    assert [each.json for each in heard if isinstance(each, OutputDelta)] == ['{"to"', '{"to":"Ber', '{"to":"Bern"}']


@virtual_clock
async def test_an_answer_in_pieces_takes_as_long_where_nobody_looks() -> None:
    begun = asyncio.get_running_loop().time()
    agent = Agent(name="a", model=ScriptedModel([StreamedAnswer("abcd", size=1, pause_s=1.0)]))
    assert (await run(agent, "Go.")).unwrap() == "abcd"
    assert asyncio.get_running_loop().time() == begun + 4


async def test_a_function_streams() -> None:
    async def answer(request: Request):
        yield "I "
        yield "look."
        yield call("output", to=request.messages[0].text)
        yield say(usage=Usage(requests=1, input_tokens=7, output_tokens=3))
        yield "never"

    agent = Agent(name="a", model=FunctionModel(answer), output=Output(dict[str, str]))
    heard, result = await heard_from(agent)
    assert result.output == {"to": "Bern"}
    assert [each.text for each in heard if isinstance(each, TextDelta)] == ["I ", "look."]
    assert [each.type for each in result.history[1].content] == ["text", "tool_use"]
    assert result.metadata.usage == Usage(requests=1, input_tokens=7, output_tokens=3)


async def test_a_function_that_streams_is_closed_when_its_run_is_stopped() -> None:
    abort, closed = Abort(), list[str]()

    async def answer(request: Request):
        try:
            yield "I begin"
            abort.abort("enough")
            await asyncio.Event().wait()
        finally:
            closed.append("closed")

    result = failed(await run(Agent(name="a", model=ScriptedModel([answer])), "Go.", abort=abort))
    assert (result.code, closed) == ("EXECUTION_CANCELLED", ["closed"])


async def test_pieces_that_are_no_answer_fail_the_request() -> None:
    async def answer(request: Request):
        yield 5

    wrong: StreamingPolicy = answer  # pyright: ignore[reportAssignmentType] - what it is about
    result = await run(Agent(name="a", model=FunctionModel(wrong)), "Go.")
    assert "gave 5, which is not an answer" in str(result)


@pytest.mark.parametrize(
    "wrong",
    [StreamedAnswer("a", size=0), StreamedAnswer("a", pause_s=-1), StreamedAnswer(StreamedAnswer("a"))],  # pyright: ignore[reportArgumentType]
)
def test_a_streamed_answer_of_nonsense_is_refused(wrong: StreamedAnswer) -> None:
    with pytest.raises(DefinitionError, match=r"Answer 1 of the script is StreamedAnswer"):
        ScriptedModel([wrong])


def test_a_script_that_is_played_by_the_history_goes_on_where_another_process_began() -> None:
    script: list[Answer | Policy] = ["One.", lambda _: "Two."]
    history: Sequence[Message] = ()
    said: list[str] = []
    for _ in range(3):  # as each process would make it
        result = run_sync(Agent(name="a", model=FunctionModel(play_by_history(script))), "Go.", history=history)
        said.append(result.output if isinstance(result, Success) else str(result))
        history = result.history
    assert said[:2] == ["One.", "Two."]
    assert "The script has 2 answers, and this is request 3." in said[2]
    again = FunctionModel(play_by_history(["Last."], repeat=True))
    assert run_sync(Agent(name="a", model=again), "Go.", history=history).unwrap() == "Last."


def test_a_streamed_answer_is_the_same_answer() -> None:
    plain = succeeded(run_sync(Agent(name="a", model=ScriptedModel(["The tide."])), "Go."))
    cut = run_sync(Agent(name="a", model=ScriptedModel([StreamedAnswer("The tide.", size=1)])), "Go.")
    assert (cut.history, cut.metadata.usage) == (plain.history, plain.metadata.usage)


async def test_no_provider_is_asked_where_none_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="a", model=connect("anthropic:claude-sonnet-5-5", api_key="k", base_url="http://127.0.0.1:1"))
    with no_model_calls("it is a drill") as silence:
        result = await run(agent, "Go.")
        assert "127.0.0.1:1 is not asked: it is a drill. Give the run a model that asks nobody" in str(result)
        assert (await run(Agent(name="a", model=ScriptedModel(["Yes."])), "Go.")).unwrap() == "Yes."
    assert silence.refused == ["127.0.0.1:1"]
    monkeypatch.setenv("JOURNEYMAN_MODEL_CALLS", "0")
    assert "is not asked: JOURNEYMAN_MODEL_CALLS=0 forbids it" in str(await run(agent, "Go."))
    bridged = Agent(name="a", model=connect("groq:llama-3.3-70b-versatile", api_key="k"))
    assert "JOURNEYMAN_MODEL_CALLS=0 forbids it" in str(await run(bridged, "Go."))
    monkeypatch.setenv("JOURNEYMAN_MODEL_CALLS", "1")
    assert "could not be reached" in str(await run(replace(agent, limits=Limits(request_retries=0)), "Go."))
