"""Numbers that no double holds: their digits are the same in every place that a run leaves them."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, Field, Json

from journeyman import Agent, Model, Output, Runtime, run, tool
from journeyman.durable import Durable, InMemoryEngine, Memory, Worker
from journeyman.errors import InvalidArguments
from journeyman.gate import Allow, Ask, GateRequest, Rewrite
from journeyman.journal import StepFacts, decode_step, encode_step
from journeyman.models.cassette import Cassette
from journeyman.otel import OpenTelemetry
from journeyman.record import Recordings
from journeyman.testing.scripted import ScriptedModel, say
from journeyman.tools.schema import Fields, Parameter, output_schema
from journeyman.types import ToolUse
from tests.cli.program import Warm
from tests.play import succeeded
from tests.serve.http_served import serving

WEI, RATE = 2**70, "1.10000000000000000000000000001"
WRITTEN = f'{{"wei":{WEI},"rate":{RATE}}}'


class Money(BaseModel):
    amount: Decimal
    note: str | None = None
    parts: list[Money] = Field([], max_length=30_000)


class Order(BaseModel):
    wei: int
    rate: Decimal


@tool
def send(wei: int, rate: Decimal) -> str:
    """Send wei."""
    return f"{wei} at {rate}"


SENT = f"{WEI} at {RATE}"


def sender(model: Model | None = None) -> Agent[Any, Any]:
    script = ScriptedModel([say(ToolUse("c1", "send", WRITTEN)), "Sent."])
    return Agent(name="sender", model=model or script, tools=[send])


def clerk() -> Agent[Any, Any]:
    model = ScriptedModel([say(ToolUse("c1", "output", WRITTEN))], repeat=True)
    return Agent(name="clerk", model=model, input=Order, prompt=lambda order: str(order), output=Output(Order))


MONEY, IN_TEXT = output_schema(Money), output_schema(Json[list[Decimal]])
ARGUMENTS = Fields([Parameter(name="amount", annotation=Decimal), Parameter(name="at", annotation=int, default=0)])


def json_numbers() -> st.SearchStrategy[str]:
    digits = st.text("0123456789", min_size=1, max_size=40)
    whole = digits.map(lambda text: text.lstrip("0") or "0")
    power = st.integers(-330, 260).map(lambda power: f"e{power}")
    return st.builds(
        lambda *parts: "".join(parts),
        st.sampled_from(["", "-"]),
        whole,
        st.just("") | digits.map(".{}".format),
        st.just("") | power,
    )


@given(json_numbers(), st.sampled_from(["null", '"e-5"']))
def test_a_decimal_has_the_digits_of_any_json_number(written: str, note: str) -> None:
    text = f'{{"amount": {written}, "note": {note}}}'
    assert MONEY.parse(text).amount == Decimal(written)
    assert ARGUMENTS.parse(f'{{"amount": {written}, "at": null}}', "it")["amount"] == Decimal(written)
    assert IN_TEXT.parse(json.dumps({"value": f"[{written}]"})) == [Decimal(written)]


def test_a_decimal_among_very_many_has_its_digits() -> None:
    text = f'{{"amount": {RATE}, "parts": {json.dumps([{"amount": "1"}] * 3_000)}}}'
    assert output_schema(Money).parse(text).amount == Decimal(RATE)


def test_two_numbers_that_became_one_double_are_refused_and_not_rounded() -> None:
    schema = output_schema(list[Decimal])
    with pytest.raises(InvalidArguments, match=r"should be a text that holds the number"):
        schema.parse('{"value": [0.1, 0.1000000000000000055511151231257827]}')
    assert schema.parse('{"value": [0.10, 0.1, 0.10000000000000000000]}') == [Decimal("0.1")] * 3
    assert schema.parse('{"value": ["0.1", 0.1000000000000000055511151231257827]}')[0] == Decimal("0.1")


def test_other_types_take_long_numbers_as_before() -> None:
    schema = output_schema(dict[str, float | Annotated[Decimal, Field(gt=5)] | str])
    text = '{"a": 0.1234567890123456789, "b": "0.1234567890123456789"}'
    assert schema.parse(text) == {"a": 0.12345678901234568, "b": "0.1234567890123456789"}


async def test_arguments_are_the_same_in_records_traces_and_documents(tmp_path: Path) -> None:
    kept, tracers = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(kept))
    place = tmp_path / "runs.db"
    runtime = Runtime(recorder=place, telemetry=OpenTelemetry(tracers, content=True))
    result = await run(sender(), "Go.", runtime=runtime)
    assert json.dumps(WRITTEN) in result.to_json()
    assert any(SENT in str(message) for message in result.history)
    said = [str(dict(span.attributes or {})) for span in kept.get_finished_spans()]
    assert sum(str(WEI) in each and RATE in each for each in said) == 3  # the answer, the call, the next request
    with Recordings(place) as recordings:
        [called] = [each for each in recordings.all_events(recordings.find("last")) if each.kind == "ToolCalled"]
        assert str(called.document()["tool_input"]) == f"{{'wei': {WEI}, 'rate': {RATE}}}"


async def test_a_gate_that_passes_arguments_on_and_an_approval_keep_them() -> None:
    requests: list[GateRequest] = []

    class Passing:
        async def decide(self, request: GateRequest) -> Rewrite | Ask:
            requests.append(request)
            return Ask("May it?") if "note" in request.arguments else Rewrite({**request.arguments, "note": "x"})

    @tool
    def send(wei: int, rate: Decimal, note: str = "") -> str:
        """Send wei."""
        return f"{wei} at {rate}"

    async def approve(approval: object) -> Allow:
        return Allow()

    agent = Agent(name="sender", model=ScriptedModel([say(ToolUse("c1", "send", WRITTEN)), "Sent."]), tools=[send])
    result = await run(agent, "Go.", runtime=Runtime(gate=Passing(), approver=approve))
    assert SENT in str(result.history)
    other = replace(requests[0], arguments=ToolUse("c1", "send", WRITTEN[:-1] + "1}").input)
    assert other.arguments["rate"] == requests[0].arguments["rate"]
    assert other.digest != requests[0].digest


async def test_a_cassette_replays_them(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    steps: tuple[tuple[Literal["all", "none"], Model | str], ...] = (
        ("all", sender().model),
        ("none", "scripted:scripted"),
    )
    for mode, model in steps:
        with Cassette(path, mode) as cassette:
            runtime = Runtime(model=cassette.model(model), journal=cassette.journal)
            result = succeeded(await run(sender(), "Go.", runtime=runtime))
        assert any(SENT in str(message) for message in result.history)


async def test_a_durable_run_works_on_them_and_hands_them_back() -> None:
    order, memory = Order(wei=WEI, rate=Decimal(RATE)), Memory()
    async with Durable(InMemoryEngine(memory)) as durable:
        await durable.start(clerk(), order, id="one")
        await Worker(durable, agents=[clerk()]).run(until_idle=True)
    async with Durable(InMemoryEngine(memory)) as durable:
        result = await (await durable.get("one", clerk())).result()
    assert result.unwrap() == order
    assert str(order) in str(result.history[0])


def test_a_stored_step_is_read_as_it_was_written() -> None:
    value = WRITTEN.encode()
    assert decode_step(encode_step(value, StepFacts(kind="call")))[1] == value


async def test_an_input_over_http_keeps_them() -> None:
    async with serving([clerk()]) as served:
        url = f"{served.url}/agents/clerk/runs"
        headers = {"content-type": "application/json"}
        async with served.client.post(url, data=f'{{"input":{WRITTEN}}}', headers=headers) as response:
            text = await response.text()
    document = json.loads(text)
    assert document["output"] == {"wei": WEI, "rate": RATE}
    assert f"rate=Decimal('{RATE}')" in text


PROGRAM = f"""
from decimal import Decimal
from journeyman import Agent, tool
from journeyman.testing.scripted import ScriptedModel, say
from journeyman.types import ToolUse

@tool
def send(wei: int, rate: Decimal) -> str:
    return "Sent."

agent = Agent(name="sender", model=ScriptedModel([say(ToolUse("c1", "send", '{WRITTEN}')), "Sent."]), tools=[send])
"""


def test_commands_show_them(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(PROGRAM)
    done = warm("run", "it.py:agent", "Go.", "--stream", "jsonl", cwd=tmp_path, env={"JOURNEYMAN_RECORD": "1"})
    shown = [warm("show", "last", *words, cwd=tmp_path).stdout for words in ((), ("--json",))]
    assert done.code == 0
    for text in (done.stdout, *shown, warm("export", "last", cwd=tmp_path).stdout):
        assert f'"rate":{RATE}' in text
        assert f'"wei":{WEI}' in text
