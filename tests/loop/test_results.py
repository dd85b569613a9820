"""What a result carries, and the document that it becomes."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel

from journeyman import Abort, Agent, Callbacks, Chat, Event, Limits, Output, Usage, run, tool
from journeyman.errors import ProviderError
from journeyman.events import LayerCompleted, TextDelta, ToolFinished
from journeyman.model import Facts, Part, Request, TextPart
from journeyman.result import AttemptRecord, CallbackError, ChildRecord, Metadata, Success, ToolStats
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.types import Price
from tests.play import Recorder, Report, failed, look, raising, report, reporter, succeeded, talker, texts

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "result-document.schema.json"
SCHEMA = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))


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
    model = ScriptedModel([[*say("I look.").content, call("look")], say("Roses", stop_reason="max_tokens")])
    assert failed(await run(talker(model, tools=[look]), "Go.")).answer == "Roses"
    assert failed(await run(reporter(ScriptedModel(["I am done."])), "Go.")).answer == "I am done."
    assert failed(await run(talker(ScriptedModel([])), "Go.")).answer is None


async def test_a_failure_carries_the_text_of_a_stream_that_was_cut() -> None:
    failure = failed(await run(talker(Breaking(), limits=Limits(request_retries=0)), "Go."))
    assert (failure.code, failure.answer) == ("API_ERROR", "Once upon a time")


async def test_a_failure_carries_the_text_of_an_answer_that_was_aborted_and_a_chat_tells_the_model() -> None:
    model = Breaking(hangs=True)

    def stop(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text == " a time":
            chat.abort("enough")

    async with Chat(talker(model), on_event=stop) as chat:
        failure = failed(await chat.start("Tell me a story."))
        assert (failure.code, failure.answer) == ("EXECUTION_CANCELLED", "Once upon a time")
        turn = chat.start("And now?")
        await turn
    said = "\n".join(block.text for block in model.requests[1].messages[-1].content if block.type == "text")
    assert "The user has seen this much of it:]\nOnce upon a time" in said
    assert said.index("Tell me a story.") < said.index("Once upon") < said.index("And now?")


async def test_no_projection_is_told_from_a_projection_of_none() -> None:  # X6
    def nothing(states: object) -> None: ...

    without, none = [
        succeeded(await run(talker(ScriptedModel("Hi."), final_state=each), "Go.")) for each in (None, nothing)
    ]
    assert (without.state, without.has_state) == (None, False)
    assert (none.state, none.has_state) == (None, True)
    assert none.map(len).has_state


async def test_a_result_becomes_the_document_also_with_exceptions_in_it() -> None:
    broken = raising(ValueError("broken \ud83d"))
    model = ScriptedModel([report(99), report(1)])
    callbacks = Callbacks(on_attempt_start=broken, on_validation_failure=broken)
    document = json.loads((await run(reporter(model), "Go.", callbacks=callbacks)).to_json())
    assert (document["code"], document["agent"], document["output"]) == ("SUCCESS", "reporter", {"total": 1})
    assert [words.partition(":")[0] for words in document["callback_errors"]] == [
        *("on_attempt_start", "on_validation_failure", "on_attempt_start")
    ]


def test_all_that_a_run_took_is_in_the_document() -> None:
    took = Metadata(
        usage=Usage(requests=1, input_tokens=2),
        latency_s=3.5,
        agent="reporter",
        attempts=(AttemptRecord(number=1, iterations=2, usage=Usage(requests=1), report=None),),
        tools={"look": ToolStats(kind="tool", calls=4)},
        callback_errors=(CallbackError(callback="on_event", error=ValueError("broken")),),
        children=(ChildRecord(path=("reporter", "helper-1"), usage=Usage(requests=5), code=None),),
        overshoot_tokens=6,
        overshoot_cost=7.5,
        background_usage=Usage(requests=8, input_tokens=9),
    )
    nothing = Metadata(usage=None, latency_s=0.0, background_usage=None)
    full, empty = [json.loads(Success(output="", metadata=each, history=()).to_json()) for each in (took, nothing)]
    names = {each.name for each in fields(Metadata)}
    assert names <= full.keys()
    assert [name for name in sorted(names) if full[name] == empty[name]] == []
    assert (full["background_usage"]["total_tokens"], empty["background_usage"]) == (9, None)
    assert sorted(SCHEMA["required"]) == sorted(full)
    assert [error.message for error in jsonschema_rs.Draft202012Validator(SCHEMA).iter_errors(full)] == []


@pytest.mark.parametrize("indent", [None, 2])
async def test_a_failure_becomes_the_document(indent: int | None) -> None:
    abort = Abort()
    abort.abort("no")
    text = (await run(talker(ScriptedModel([])), "Go.", abort=abort)).to_json(indent=indent)
    assert json.loads(text)["error"]["code"] == "EXECUTION_CANCELLED"
    assert ("\n" in text) is (indent is not None)


async def test_an_output_of_any_type_is_written_as_its_type_says() -> None:
    agent = Agent(name="pair", model=ScriptedModel([call("output", value=[{"total": 2}])]), output=Output(list[Report]))
    assert json.loads((await run(agent, "Go.")).to_json())["output"] == [{"total": 2}]


class Hidden(BaseModel, hide_input_in_errors=True):
    pin: int


@pytest.mark.parametrize("kind", [Hidden, list[Hidden], Hidden | None, dict[str, Hidden]])
async def test_what_a_type_hides_is_in_no_feedback_error_or_event(kind: Any, recorder: Recorder) -> None:  # noqa: ANN401
    secret: dict[str, Any] = {"pin": "s3cret"}
    written = {Hidden: secret, list[Hidden]: {"value": [secret]}, dict[str, Hidden]: {"a": secret}}
    arguments = written.get(kind, {"value": secret})

    async def take(given: Hidden) -> None:
        """Take."""

    model = ScriptedModel([call("take", given=secret), call("output", arguments)])
    agent = Agent(name="h", model=model, tools=[tool(take)], output=Output(kind), limits=Limits(attempts=1))
    failure = failed(await run(agent, "Go.", on_event=recorder))
    told = texts(failure)
    assert "should be a valid integer" in told[0]
    shown = [*told, failure.error.message, str(failure.report)]
    shown += [event.tool_result for event in recorder.events if isinstance(event, ToolFinished)]
    shown += [str(event.outcome) for event in recorder.events if isinstance(event, LayerCompleted)]
    assert not any("s3cret" in text for text in shown)


async def test_what_an_input_hides_is_not_in_the_failure() -> None:
    wrong: Any = {"pin": "s3cret"}
    failure = failed(await run(Agent(name="h", model=ScriptedModel([]), input=Hidden), wrong))
    assert failure.code == "INVALID_INPUT"
    assert "s3cret" not in failure.error.message


async def test_a_budget_that_is_too_small_says_what_the_next_call_needs() -> None:
    message = failed(await run(talker(ScriptedModel("Hi."), limits=Limits(tokens=250)), "Go.")).error.message
    assert re.fullmatch(
        r"The run's tokens budget is too small: the next call needs about \d+ tokens, 250 are allowed, 0 are used\.",
        message,
    )


@pytest.mark.parametrize(
    ("detail", "said"), [(None, "stopped without a reason."), ("sabbatical", "not known here, 'sabbatical'.")]
)
async def test_an_unknown_stop_reason_is_told_in_the_providers_word(detail: str | None, said: str) -> None:
    answer = replace(say("Well", stop_reason="other"), stop_detail=detail)
    assert said in failed(await run(talker(ScriptedModel([answer])), "Go.")).error.message
