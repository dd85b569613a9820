"""State: a run's and an attempt's, passed from call to call by value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from journeyman import Agent, Output, ToolContext, ToolResult, run, tool
from journeyman.endings import InternalContext, ProjectionContext
from journeyman.models.scripted import call
from journeyman.tools.tools import States
from tests.loop.players import Report, context_of, failed, report, small, succeeded
from tests.support.recorder import CallbackLog, Recorder, check_balance
from tests.support.stage import Stage


@dataclass
class Cart:
    items: list[str] = field(default_factory=list[str])


class Tally(BaseModel):
    counts: dict[str, int] = {}


@tool(thread=False)
def put(item: str, context: ToolContext) -> str:
    """Put an item into the cart of the run."""
    cart = context.run_state(Cart)
    cart.items.append(item)
    context.set_run_state(cart)
    return ", ".join(cart.items)


@tool(thread=False)
def mark(item: str, context: ToolContext) -> str:
    """Mark an item in this attempt."""
    seen = context.attempt_state(list[str])
    context.set_attempt_state([*seen, item])
    return ", ".join([*seen, item])


def new_cart(given: str) -> Cart:
    return Cart()


def no_marks(given: str, cart: object) -> list[str]:
    return []


def all_of(states: States) -> States:
    return states


def shopper(stage: Stage, *answers: Any, **options: Any) -> Agent[str]:  # noqa: ANN401 - passed on
    ready: dict[str, Any] = {
        "name": "shopper",
        "model": stage.model([*answers, "Done."]),
        "tools": [put, mark],
        "run_state": new_cart,
        "attempt_state": no_marks,
        "project": all_of,
    }
    return Agent(**{**ready, **options})


# -- from call to call -------------------------------------------------------------------------------------------------


async def test_state_goes_from_call_to_call_within_and_across_responses(stage: Stage) -> None:  # X1, X2, X3
    answers = [[call("put", item="a"), call("mark", item="x"), call("put", item="b")], call("put", item="c")]
    result = succeeded(await run(shopper(stage, *answers), "Go."))
    assert [result.text for result in stage.tool_results(1)] == ["a", "x", "a, b"]
    assert [result.text for result in stage.tool_results(2)] == ["a, b, c"]
    assert result.state == States(run=Cart(["a", "b", "c"]), attempt=["x"])


async def test_run_state_survives_a_rejection_and_attempt_state_does_not(stage: Stage) -> None:  # X1, X4, D19
    model = stage.model(
        [
            [call("put", item="a"), call("mark", item="x"), report(7)],
            [call("put", item="b"), call("mark", item="y"), report(2, id="o2")],
        ]
    )
    agent = Agent(
        name="shopper",
        model=model,
        tools=[put, mark],
        output=Output(Report),
        validators=[small],
        run_state=new_cart,
        attempt_state=no_marks,
        project=all_of,
    )
    result = succeeded(await run(agent, "Go."))
    assert result.state == States(run=Cart(["a", "b"]), attempt=["y"])


async def test_states_begin_with_the_input_and_the_runs_state(stage: Stage) -> None:  # X5
    made: list[object] = []

    def run_state(given: str) -> Cart:
        return Cart([given])

    def attempt_state(given: str, cart: Cart) -> list[str]:
        made.append((given, cart.items[:]))
        return [*cart.items]

    model = stage.model([[call("put", item="a"), report(7)], report(2, id="o2")])
    agent = Agent(
        name="shopper",
        model=model,
        tools=[put],
        output=Output(Report),
        validators=[small],
        run_state=run_state,
        attempt_state=attempt_state,
        project=lambda states: states.attempt,
    )
    result = succeeded(await run(agent, "milk"))
    assert made == [("milk", ["milk"]), ("milk", ["milk", "a"])]
    assert result.state == ["milk", "a"]


async def test_without_state_functions_there_is_no_state(stage: Stage) -> None:  # X5
    @tool(thread=False)
    def peek(context: ToolContext) -> bool:
        return context.run_state(type(None)) is context.attempt_state(type(None))

    agent = Agent(name="shopper", model=stage.model([call("peek"), "Done."]), tools=[peek])
    result = succeeded(await run(agent, "Go."))
    assert stage.tool_results(1)[0].text == "true"
    assert result.state is None


async def test_runs_do_not_share_state(stage: Stage) -> None:  # X5, A48, D29
    shared = Cart()

    def share(given: str) -> Cart:
        return shared

    agent = shopper(stage, call("put", item="a"), "Done.", call("put", item="b"), run_state=share)
    first = succeeded(await run(agent, "Go."))
    second = succeeded(await run(agent, "Go."))
    assert [first.state, second.state] == [States(Cart(["a"]), []), States(Cart(["b"]), [])]
    assert shared == Cart()


# -- by value ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["raises", "cannot be written", "error result"])
async def test_a_failing_call_leaves_the_state_as_it_was(stage: Stage, how: str) -> None:  # X3, A35, D25, D28
    @tool(thread=False)
    def spoil(context: ToolContext) -> object:
        cart = context.run_state(Cart)
        cart.items.append("spoiled")
        context.set_run_state(cart)
        context.set_attempt_state(["spoiled"])
        if how == "raises":
            raise ValueError("no")
        if how == "error result":
            return ToolResult("no", is_error=True)
        loop: list[object] = []
        loop.append(loop)
        return loop

    agent = shopper(stage, [call("put", item="a"), call("spoil"), call("mark", item="x")], tools=[put, mark, spoil])
    result = succeeded(await run(agent, "Go."))
    assert [result.is_error for result in stage.tool_results(1)] == [False, True, False]
    assert result.state == States(Cart(["a"]), ["x"])


async def test_a_change_that_was_not_set_is_lost(stage: Stage) -> None:  # X3, D29
    @tool(thread=False)
    def scribble(context: ToolContext) -> None:
        context.run_state(Cart).items.append("scribble")

    agent = shopper(stage, [call("scribble"), call("put", item="a")], tools=[put, scribble])
    assert succeeded(await run(agent, "Go.")).state == States(Cart(["a"]), [])


async def test_a_kept_reference_cannot_change_the_state(stage: Stage) -> None:  # X3, D29
    kept: list[Cart] = []

    @tool(thread=False)
    def keep(context: ToolContext) -> None:
        cart = Cart(["kept"])
        context.set_run_state(cart)
        kept.append(cart)

    @tool(thread=False)
    def tamper() -> None:
        kept[0].items.append("tampered")

    agent = shopper(stage, [call("keep"), call("tamper"), call("put", item="a")], tools=[put, keep, tamper])
    assert succeeded(await run(agent, "Go.")).state == States(Cart(["kept", "a"]), [])


async def test_state_is_replaced_and_not_merged(stage: Stage) -> None:  # D30
    @tool(thread=False)
    def remove(context: ToolContext) -> None:
        tally = context.run_state(Tally)
        context.set_run_state(Tally(counts={k: v for k, v in tally.counts.items() if k != "b"}))

    def two(given: str) -> Tally:
        return Tally(counts={"a": 1, "b": 2})

    agent = shopper(stage, call("remove"), tools=[remove], run_state=two)
    assert succeeded(await run(agent, "Go.")).state == States(Tally(counts={"a": 1}), [])


async def test_what_a_call_set_it_reads_back(stage: Stage) -> None:  # X2
    @tool(thread=False)
    def twice(context: ToolContext) -> list[str]:
        context.set_run_state(Cart(["one"]))
        return context.run_state(Cart).items

    agent = shopper(stage, call("twice"), tools=[twice])
    assert succeeded(await run(agent, "Go."))
    assert stage.tool_results(1)[0].text == '["one"]'


async def test_asking_for_the_wrong_type_is_an_error_result(stage: Stage) -> None:  # X2
    @tool(thread=False)
    def ask(context: ToolContext) -> None:
        context.run_state(Tally)

    agent = shopper(stage, call("ask"), tools=[ask])
    assert succeeded(await run(agent, "Go."))
    assert stage.tool_results(1)[0].text == (
        "Error: The run state is a Cart, not a Tally. Ask for the type that the agent's run_state gives."
    )


async def test_the_position_in_the_run_is_not_the_tools_to_change(stage: Stage) -> None:  # X1, X2
    @tool(thread=False)
    def cheat(context: ToolContext) -> None:
        context.attempt = 99  # type: ignore[misc] - this is the test

    @tool(thread=False)
    def where(context: ToolContext) -> str:
        return f"{context.attempt}/{context.iteration}"

    agent = shopper(stage, [call("cheat"), call("where")], tools=[cheat, where])
    assert succeeded(await run(agent, "Go."))
    assert stage.tool_results(1)[1].text == "1/1"


# -- what is made of it ------------------------------------------------------------------------------------------------


async def test_the_final_state_is_projected_into_the_result(stage: Stage) -> None:  # X6, D19
    def project(states: States) -> int:
        assert isinstance(states.run, Cart)
        return len(states.run.items)

    agent = shopper(stage, [call("put", item="a"), call("put", item="b")], project=project)
    assert succeeded(await run(agent, "Go.")).state == 2


async def test_a_projection_that_raises_fails_the_run(stage: Stage) -> None:  # X6
    def project(states: States) -> object:
        raise ValueError("cannot count")

    log, recorder = CallbackLog(), Recorder()
    agent = shopper(stage, call("put", item="a"), project=project)
    result = await run(agent, "Go.", callbacks=log.callbacks(), on_event=recorder)
    assert failed(result).code == "STATE_PROJECTION_FAILED"
    assert context_of(result, ProjectionContext).reason == "ValueError: cannot count"
    assert failed(result).metadata.usage is not None
    check_balance(recorder.events)
    assert log.names[-1] == "failure"


async def test_an_attempt_state_that_raises_is_an_internal_error(stage: Stage) -> None:  # X5, D39
    def attempt_state(given: str, cart: Cart) -> object:
        raise ValueError("no list")

    recorder = Recorder()
    agent = shopper(stage, attempt_state=attempt_state)
    result = await run(agent, "Go.", on_event=recorder)
    assert context_of(result, InternalContext).error == "ValueError: no list"
    assert stage.n_requests == 0
    check_balance(recorder.events)
