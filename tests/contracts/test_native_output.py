"""Native output over every wire: the provider is told the schema, and its last text is checked like any output."""

from __future__ import annotations

from typing import Any, Literal, cast

import pytest
from pydantic import BaseModel, Field

from journeyman import Failure, Limits, ModelSettings, Output, tool
from journeyman.events import OutputDelta, TextDelta
from journeyman.testing.scripted import call, say
from tests.contracts.carriers import CARRIER, run_over

WITH_TOOLS = [name for name in CARRIER if name != "gemini-2.5"]


class Row(BaseModel):
    product: str
    share: float | None = Field(default=None, ge=0, le=1, description="Of all.")


class Report(BaseModel):
    """What sold best."""

    unit: Literal["pieces", "euros"]
    total: float = Field(ge=0)
    rows: list[Row]


@tool(parallel=True)
async def look(n: int) -> str:
    """Look at one row.

    Args:
        n: the number of the row.
    """
    return f"row {n}"


def positive(report: Report) -> None:
    """The total is positive."""
    if report.total <= 0:
        raise ValueError(f"the total is {report.total}")


GOOD = '{"unit":"pieces","total":12,"rows":[{"product":"umbrellas","share":0.5}]}'


def native(kind: object = Report) -> dict[str, Any]:
    """Return the field of an agent that hands in so."""
    return {"output": Output(cast("type[Any]", kind), mode="native", description="The report.")}


@pytest.mark.parametrize("name", CARRIER)
async def test_the_answer_is_the_output(name: str) -> None:
    result, events, [body] = await run_over(name, say(GOOD), **native())
    assert result.unwrap() == Report(unit="pieces", total=12, rows=[Row(product="umbrellas", share=0.5)])
    deltas = [event for event in events if isinstance(event, OutputDelta)]
    assert deltas[-1].json == GOOD
    assert deltas[-1].partial(Report) == result.unwrap()
    assert not [event for event in events if isinstance(event, TextDelta)]
    assert "rows" in str(body)
    assert not body.get("tools")


@pytest.mark.parametrize("name", WITH_TOOLS)
async def test_tools_validators_and_attempts_are_those_of_any_run(name: str) -> None:
    answers = [
        say(call("look", n=1, id="a")),
        say('{"unit":"pieces","total":-1,"rows":[]}'),
        say('{"unit":"pieces","total":0,"rows":[]}'),
        say(GOOD),
    ]
    more = {"tools": [look], "validators": [positive], "limits": Limits(attempts=3, iterations=4, request_retries=0)}
    result, _, bodies = await run_over(name, *answers, **native(), **more)
    assert result.unwrap().total == 12
    assert [record.report.passed for record in result.metadata.attempts if record.report] == [False, False, True]
    assert "greater than or equal to 0" in str(bodies[2])
    assert "the total is 0.0" in str(bodies[3])


@pytest.mark.parametrize("name", CARRIER)
async def test_a_type_that_is_no_object_is_wrapped(name: str) -> None:
    result, events, _ = await run_over(name, say('{"value":[1,2,3]}'), **native(list[int]))
    assert result.unwrap() == [1, 2, 3]
    [*_, last] = [event for event in events if isinstance(event, OutputDelta)]
    assert last.partial(list[int]) == [1, 2, 3]


@pytest.mark.parametrize("name", ["anthropic-events", "openai-chat-events", "openai-responses-events", "google-events"])
async def test_words_that_are_no_json_are_a_failed_attempt(name: str) -> None:
    result, events, _ = await run_over(
        name, say("Let me think."), say(GOOD), **native(), limits=Limits(attempts=2, request_retries=0)
    )
    assert result.unwrap().total == 12
    first = next(event for event in events if isinstance(event, OutputDelta))
    assert (first.partial(), first.partial(Report)) == ({}, None)


@pytest.mark.parametrize("name", ["anthropic-events", "openai-chat-events", "openai-responses-events", "google-events"])
async def test_refusals_and_cut_answers_end_as_ever(name: str) -> None:
    refused, _, _ = await run_over(name, say("No.", stop_reason="refusal"), **native())
    cut, _, _ = await run_over(name, say('{"unit":"pie', stop_reason="max_tokens"), **native())
    assert [each.code for each in (refused, cut) if isinstance(each, Failure)] == [
        "MODEL_REFUSED",
        "TOKEN_LIMIT_EXCEEDED",
    ]


class Tree(BaseModel):
    name: str
    children: list[Tree]


@pytest.mark.parametrize(
    ("kind", "why"),
    [(Tree, "Tree contains itself"), (dict[str, int], "names are not known"), (list[Any], "be anything")],
)
async def test_what_anthropic_cannot_enforce_is_refused_before_it_is_sent(kind: object, why: str) -> None:
    result, _, bodies = await run_over("anthropic-events", say("{}"), **native(kind))
    assert isinstance(result, Failure)
    assert (result.code, bodies) == ("API_ERROR", [])
    assert why in result.error.message
    assert "Output(…, mode='tool')" in result.error.message


async def test_an_old_gemini_has_no_native_output_beside_tools() -> None:
    result, _, bodies = await run_over("gemini-2.5", say(GOOD), **native(), tools=[look])
    assert isinstance(result, Failure)
    assert bodies == []
    assert "has no native output beside tools" in result.error.message


async def test_effort_and_form_stand_side_by_side() -> None:
    _, _, [body] = await run_over("anthropic-events", say(GOOD), **native(), settings=ModelSettings(thinking="low"))
    assert body["output_config"]["effort"] == "low"
    schema = body["output_config"]["format"]["schema"]
    assert schema["properties"]["total"] == {"type": "number", "description": '{"minimum":0}'}
    assert schema["$defs"]["Row"]["additionalProperties"] is False


async def test_what_loses_nothing_is_enforced() -> None:
    class Strict(BaseModel, extra="forbid"):
        total: float

    for name, path in (
        ("openai-chat-events", ("response_format", "json_schema")),
        ("openai-responses-events", ("text", "format")),
    ):
        for kind, is_strict in ((Strict, True), (Report, False)):
            _, _, [body] = await run_over(name, say(GOOD), **native(kind), limits=Limits(attempts=1, request_retries=0))
            assert body[path[0]][path[1]]["strict"] is is_strict
