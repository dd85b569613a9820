"""What a result carries, and the document that it becomes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from journeyman import Abort, Agent, Callbacks, Chat, Event, Output, Price, ProviderError, run
from journeyman.events import TextDelta
from journeyman.model import Facts, Part, Request, TextPart
from journeyman.models.scripted import Scripted, call, say
from tests.loop.players import Report, look, report, reporter, talker
from tests.loop.results import failed, succeeded


class Breaking:
    """A model that says some words, and then breaks off, or hangs."""

    provider, name, facts = "scripted", "breaking", Facts(price=Price(input=1.0, output=1.0))

    def __init__(self, *, hangs: bool = False) -> None:
        self.requests: list[Request] = []
        self._hangs = hangs

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        self.requests.append(request)
        yield self._parts()

    async def _parts(self) -> AsyncGenerator[Part]:
        yield TextPart("Once upon")
        yield TextPart(" a time")
        if self._hangs:
            await asyncio.Event().wait()
        raise ProviderError("The connection broke.", kind="stream_cut")


async def test_a_failure_carries_the_last_answer() -> None:
    model = Scripted([[*say("I look.").content, call("look")], say("Roses", stop_reason="max_tokens")])
    assert failed(await run(talker(model, tools=[look]), "Go.")).answer == "Roses"
    assert failed(await run(reporter(Scripted(["I am done."])), "Go.")).answer == "I am done."
    assert failed(await run(talker(Scripted([])), "Go.")).answer is None


async def test_a_failure_carries_the_text_of_a_stream_that_was_cut() -> None:
    failure = failed(await run(talker(Breaking(), retries=0), "Go."))
    assert (failure.code, failure.answer) == ("API_ERROR", "Once upon a time")


async def test_a_failure_carries_the_text_of_an_answer_that_was_aborted_and_a_chat_tells_the_model() -> None:
    model = Breaking(hangs=True)

    def stop(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text == " a time":
            turn.abort("enough")

    async with Chat(talker(model), on_event=stop) as chat:
        turn = chat.start("Tell me a story.")
        failure = failed(await turn)
        assert (failure.code, failure.answer) == ("EXECUTION_CANCELLED", "Once upon a time")
        turn = chat.start("And now?")
        await turn
    said = "\n".join(block.text for block in model.requests[1].messages[-1].content if block.type == "text")
    assert "The user has seen this much of it:]\nOnce upon a time" in said
    assert said.index("Tell me a story.") < said.index("Once upon") < said.index("And now?")


async def test_no_projection_is_told_from_a_projection_of_none() -> None:  # X6
    def nothing(states: object) -> None: ...

    without, none = [succeeded(await run(talker(Scripted("Hi."), project=each), "Go.")) for each in (None, nothing)]
    assert (without.state, without.has_state) == (None, False)
    assert (none.state, none.has_state) == (None, True)
    assert none.map(len).has_state


async def test_both_results_have_a_code() -> None:
    assert (await run(talker(Scripted("Hi.")), "Go.")).code == "SUCCESS"
    assert (await run(talker(Scripted([])), "Go.")).code == "API_ERROR"


async def test_a_result_becomes_the_document_also_with_exceptions_in_it() -> None:
    def broken(*facts: object) -> None:
        raise ValueError("broken \ud83d")

    model = Scripted([report(99), report(1)])
    callbacks = Callbacks(on_attempt_start=broken, on_validation_failure=broken)
    document = json.loads((await run(reporter(model), "Go.", callbacks=callbacks)).to_json())
    assert (document["code"], document["agent"], document["output"]) == ("SUCCESS", "reporter", {"total": 1})
    assert [words.partition(":")[0] for words in document["callback_errors"]] == [
        *("on_attempt_start", "on_validation_failure", "on_attempt_start")
    ]


@pytest.mark.parametrize("indent", [None, 2])
async def test_a_failure_becomes_the_document(indent: int | None) -> None:
    abort = Abort()
    abort.abort("no")
    text = (await run(talker(Scripted([])), "Go.", abort=abort)).to_json(indent=indent)
    assert json.loads(text)["error"]["code"] == "EXECUTION_CANCELLED"
    assert ("\n" in text) is (indent is not None)


async def test_an_output_of_any_type_is_written_as_its_type_says() -> None:
    agent = Agent(name="pair", model=Scripted([call("output", value=[{"total": 2}])]), output=Output(list[Report]))
    assert json.loads((await run(agent, "Go.")).to_json())["output"] == [{"total": 2}]
