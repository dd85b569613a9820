"""Faults on purpose: which there are, that they repeat, and that a run bears them."""

from dataclasses import dataclass

import pytest

from journeyman import Agent, DefinitionError, Failure, Message, Success, Text, Usage, run
from journeyman.errors import ProviderError
from journeyman.model import Collector
from journeyman.testing import FaultyModel, ScriptedModel, call, say
from journeyman.testing.faulty import FAULTS, FaultKind, InjectedFault
from journeyman.types import NOTHING_USED, ToolUse
from tests.models import asking
from tests.play import Recorder, check_balance, existing, make_tool, virtual_clock

LOOKS = say(Text("I look."), call("look", what="a long argument", id="x"), call("look", what="another", id="y"))


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of one request."""

    content: tuple[object, ...] = ()
    error: ProviderError | None = None
    used: Usage = NOTHING_USED


async def ask(model: FaultyModel, *messages: Message) -> Asked:
    collector = Collector()
    try:
        response = await asking.ask(model, *messages, into=collector)
    except ProviderError as error:
        return Asked(error=error, used=collector.used_before(error))
    return Asked(response.content, used=response.usage)


def faulty(kind: FaultKind, *, seed: int = 1) -> FaultyModel:
    return FaultyModel(ScriptedModel([LOOKS], repeat=True), seed, rate=1, faults=[kind])


@pytest.mark.parametrize(
    ("kind", "error_kind", "status"),
    [("refused", "network", None), ("rate_limited", "rate_limited", 429), ("overloaded", "overloaded", 529)],
)
async def test_a_request_that_is_turned_away_used_nothing(kind: FaultKind, error_kind: str, status: int | None) -> None:
    model = FaultyModel(ScriptedModel([]), 1, rate=1, faults=[kind], retry_after_s=3)
    asked = await ask(model)
    assert asked.error is not None
    assert (asked.error.kind, asked.error.status, asked.error.retry_after_s) == (error_kind, status, 3)
    assert asked.used == NOTHING_USED
    assert model.made == [InjectedFault(1, kind)]
    assert "a fault that FaultyModel made, seed 1." in str(asked.error)


@pytest.mark.parametrize(("kind", "error_kind"), [("cut", "stream_cut"), ("idle", "stream_idle")])
async def test_an_answer_that_breaks_off_has_used_what_it_told(kind: FaultKind, error_kind: str) -> None:
    for seed in range(20):
        asked = await ask(faulty(kind, seed=seed))
        assert existing(asked.error).kind == error_kind
        assert (asked.used.requests, asked.used.input_tokens, asked.used.exact) == (1, 10, False)


@virtual_clock
async def test_a_slow_answer_comes_whole() -> None:
    model = faulty("slow")
    assert (await ask(model)).content == LOOKS.content
    assert model.made == [InjectedFault(1, "slow")]


async def test_damaged_arguments_are_kept_as_a_decoder_keeps_them() -> None:
    asked = await ask(faulty("damaged_arguments"))
    calls = [block for block in asked.content if isinstance(block, ToolUse)]
    assert [use.input_json for use in calls] == ["{}", "{}"]
    for use, original in zip(calls, LOOKS.content[1:], strict=True):
        assert isinstance(original, ToolUse)
        assert original.input_json.startswith(existing(use.malformed))


async def test_ids_repeat_that_of_the_first_call_or_of_the_last_one_in_the_conversation() -> None:
    ids = [block.id for block in (await ask(faulty("repeated_ids"))).content if isinstance(block, ToolUse)]
    assert ids == ["x", "x"]
    before = Message("assistant", (ToolUse("old", "look"),))
    ids = [block.id for block in (await ask(faulty("repeated_ids"), before)).content if isinstance(block, ToolUse)]
    assert ids == ["old", "old"]


async def test_an_empty_answer_says_nothing_and_still_costs() -> None:
    asked = await ask(faulty("empty"))
    assert (asked.content, asked.used) == ((), LOOKS.usage)


async def test_a_fault_that_does_not_fit_the_answer_is_not_made() -> None:
    model = FaultyModel(ScriptedModel(["Hi."], repeat=True), 1, rate=1, faults=["damaged_arguments", "repeated_ids"])
    for _ in range(4):
        assert (await ask(model)).content == (Text("Hi."),)
    assert model.made == []


@virtual_clock
async def test_the_same_seed_makes_the_same_faults() -> None:  # X39
    async def made(seed: int) -> list[InjectedFault]:
        model = FaultyModel(ScriptedModel([LOOKS], repeat=True), seed, rate=0.5)
        for _ in range(60):
            await ask(model)
        return model.made

    first = await made(7)
    assert first == await made(7) != await made(8)
    assert 15 < len(first) < 45
    assert {fault.kind for fault in first} == {*FAULTS}


async def test_without_a_rate_nothing_fails() -> None:
    model = FaultyModel(ScriptedModel([LOOKS], repeat=True), 1, rate=0)
    for _ in range(20):
        assert (await ask(model)).content == LOOKS.content
    assert model.made == []


@virtual_clock
async def test_a_run_bears_every_fault_or_says_why_not() -> None:  # X39
    look = make_tool("look", "found {what}")
    outcomes: set[str] = set()
    for seed in range(40):
        model = FaultyModel(ScriptedModel([LOOKS, LOOKS, "Done."], repeat=True), seed, rate=0.4)
        recorder = Recorder()
        result = await run(Agent(name="tester", model=model, tools=[look]), "Go.", on_event=recorder)
        check_balance(recorder.events)
        outcomes.add("SUCCESS" if isinstance(result, Success) else result.code)
        if isinstance(result, Failure):
            assert model.made, result.error.message
    assert outcomes >= {"SUCCESS", "INVALID_RESPONSE"}
    assert outcomes <= {"SUCCESS", "INVALID_RESPONSE", "API_ERROR", "RATE_LIMIT_ERROR"}


@pytest.mark.parametrize(("rate", "faults"), [(2, ["fire"]), (-1, []), ("1", 3)])
def test_faults_that_do_not_exist_and_rates_that_are_none_are_refused(rate: object, faults: object) -> None:
    with pytest.raises(DefinitionError) as caught:
        FaultyModel(ScriptedModel([]), 1, rate=rate, faults=faults)  # pyright: ignore[reportArgumentType] - the mistake in question
    assert [problem.message for problem in caught.value.problems] == [f"rate is {rate!r}.", f"faults is {faults!r}."]
    assert caught.value.problems[1].hint.startswith("Choose from: refused, ")
