"""State: a run's and an attempt's, passed from call to call by value."""

import asyncio
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pydantic import BaseModel

from journeyman import Agent, Event, Limits, ModelSettings, Output, Text, Tool, ToolContext, ToolResult, run, tool
from journeyman.budget import BudgetPolicy
from journeyman.endings import ProjectionContext
from journeyman.events import RunSucceeded
from journeyman.loop import validation_context
from journeyman.testing.scripted import call
from journeyman.tools.context import States
from journeyman.types import JsonObject
from tests.loop.callback_log import CallbackLog
from tests.loop.parts import broken, circular, first_input, preview, rejected
from tests.play import Recorder, Report, Stage, context_of, failed, report, reporter, small, submit, succeeded, talker
from tests.play.tools import look


@dataclass
class Cart:
    items: list[str] = field(default_factory=list[str])


def new_cart(given: str) -> Cart:
    return Cart()


def no_marks(given: str, cart: object) -> list[str]:
    return []


def all_of(states: States) -> States:
    return states


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


def shopper(stage: Stage, *answers: Any, **options: Any) -> Agent[str]:
    ready: dict[str, Any] = {
        "name": "shopper",
        "model": stage.model([*answers, "Done."]),
        "tools": [put, mark],
        "run_state": new_cart,
        "attempt_state": no_marks,
        "final_state": all_of,
    }
    return Agent(**{**ready, **options})


async def test_state_goes_from_call_to_call_within_and_across_responses(stage: Stage) -> None:  # X1, X2, X3, D19, D28
    answers = [[call("put", item="a"), call("mark", item="x"), call("put", item="b")], call("put", item="c")]
    result = succeeded(await run(shopper(stage, *answers), "Go."))
    assert [result.text for result in stage.tool_results(1)] == ["a", "x", "a, b"]
    assert [result.text for result in stage.tool_results(2)] == ["a, b, c"]
    assert result.state == States(run=Cart(["a", "b", "c"]), attempt=["x"])


async def test_run_state_survives_a_rejection_and_attempt_state_does_not(stage: Stage) -> None:  # X1, X4, D19, A35
    model = stage.model(
        [
            [call("put", item="a"), call("mark", item="x"), report(7)],
            [call("put", item="b"), call("mark", item="y"), report(2, id="o2")],
        ]
    )
    agent = reporter(model, tools=[put, mark], run_state=new_cart, attempt_state=no_marks, final_state=all_of)
    assert succeeded(await run(agent, "Go.")).state == States(run=Cart(["a", "b"]), attempt=["y"])


async def test_states_begin_with_the_input_and_the_runs_state(stage: Stage) -> None:  # X5
    made: list[object] = []

    def run_state(given: str) -> Cart:
        return Cart([given])

    def attempt_state(given: str, cart: Cart) -> list[str]:
        made.append((given, cart.items[:]))
        return [*cart.items]

    model = stage.model([[call("put", item="a"), report(7)], report(2, id="o2")])
    agent = reporter(model, tools=[put], run_state=run_state, attempt_state=attempt_state, final_state=all_of)
    result = succeeded(await run(agent, "milk"))
    assert made == [("milk", ["milk"]), ("milk", ["milk", "a"])]
    assert result.state == States(run=Cart(["milk", "a"]), attempt=["milk", "a"])


async def test_without_state_functions_there_is_no_state(stage: Stage) -> None:  # X5
    @tool(thread=False)
    def peek(context: ToolContext) -> bool:
        return context.run_state(type(None)) is context.attempt_state(type(None))

    result = succeeded(await run(talker(stage.model([call("peek"), "Done."]), tools=[peek]), "Go."))
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


async def coroutine() -> None: ...


SPOILT: dict[str, Callable[[], object]] = {
    "raises": broken,
    "circular": circular,
    "a generator": lambda: (n for n in range(3)),
    "an iterator": lambda: iter([1]),
    "a coroutine in a list": lambda: [coroutine()],
    "an error result": lambda: ToolResult("no", is_error=True),
}


# X3, A35, D25, D28
@pytest.mark.parametrize("result", SPOILT.values(), ids=SPOILT)
async def test_a_failing_call_leaves_the_state_as_it_was(stage: Stage, result: Callable[[], object]) -> None:
    @tool(thread=False)
    def spoil(context: ToolContext) -> object:
        cart = context.run_state(Cart)
        cart.items.append("spoiled")
        context.set_run_state(cart)
        context.set_attempt_state(["spoiled"])
        return result()

    agent = shopper(stage, [call("put", item="a"), call("spoil"), call("mark", item="x")], tools=[put, mark, spoil])
    assert succeeded(await run(agent, "Go.")).state == States(Cart(["a"]), ["x"])
    assert [result.is_error for result in stage.tool_results(1)] == [False, True, False]


async def test_a_reference_kept_from_one_call_does_not_reach_the_next(stage: Stage) -> None:  # D29, X3
    kept: list[Cart] = []

    @tool
    async def keep(ctx: ToolContext) -> str:
        for hostage in kept:
            hostage.items.append("forged")
        found = ",".join(ctx.run_state(Cart).items)
        given = Cart(["own"])
        ctx.set_run_state(given)
        kept.extend([given, ctx.run_state(Cart)])
        ctx.attempt_state(list[str]).append("kept")
        return found

    agent = shopper(stage, call("keep"), call("keep"), call("put", item="fig"), tools=[keep, put])
    assert succeeded(await run(agent, "Go.")).state == States(Cart(["own", "fig"]), [])
    assert [stage.tool_results(n)[0].text for n in (1, 2)] == ["(no output)", "own"]


async def test_new_state_replaces_the_old_whole(stage: Stage) -> None:  # D30
    @tool
    async def drop(ctx: ToolContext) -> dict[str, int]:
        state = ctx.run_state(dict[str, int])
        del state["old"]
        ctx.set_run_state(state)
        return state

    @tool
    async def reshape(ctx: ToolContext) -> str:
        ctx.set_run_state(["another", "shape"])
        return "done"

    def two(given: str) -> dict[str, int]:
        return {"old": 1, "new": 2}

    agent = shopper(stage, call("drop"), "Done.", call("reshape"), tools=[drop, reshape], run_state=two)
    assert succeeded(await run(agent, "Go.")).state == States({"new": 2}, [])
    assert succeeded(await run(agent, "Go.")).state == States(["another", "shape"], [])


async def test_what_a_call_set_it_reads_back(stage: Stage) -> None:  # X2
    @tool(thread=False)
    def twice(context: ToolContext) -> list[str]:
        context.set_run_state(Cart(["one"]))
        return context.run_state(Cart).items

    assert succeeded(await run(shopper(stage, call("twice"), tools=[twice]), "Go."))
    assert stage.tool_results(1)[0].text == '["one"]'


async def test_the_position_in_the_run_is_not_the_tools_to_change(stage: Stage) -> None:  # X1, X2
    @tool(thread=False)
    def cheat(context: ToolContext) -> None:
        context.attempt = 99  # pyright: ignore[reportAttributeAccessIssue] - this is the test

    @tool(thread=False)
    def where(context: ToolContext) -> str:
        return f"{context.attempt}/{context.iteration}"

    assert succeeded(await run(shopper(stage, [call("cheat"), call("where")], tools=[cheat, where]), "Go."))
    assert stage.tool_results(1)[1].text == "1/1"


async def test_the_state_of_a_call_that_timed_out_does_not_count(stage: Stage) -> None:  # A35, A45
    @tool(timeout_s=0.01)
    async def hang(context: ToolContext) -> None:
        context.set_run_state(Cart(["late"]))
        context.set_attempt_state(["late"])
        await asyncio.Event().wait()

    agent = shopper(stage, [call("put", item="a"), call("hang")], tools=[put, hang])
    assert succeeded(await run(agent, "Go.")).state == States(Cart(["a"]), [])


@pytest.mark.parametrize("which", ["run", "attempt"])
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"parallel": True}, "runs in parallel"),
        ({"cache": "attempt", "effect": "pure"}, "has its results cached"),
        ({"cache": "run", "effect": "pure"}, "has its results cached"),
    ],
)
async def test_a_parallel_or_cached_tool_reads_state_and_may_not_set_it(
    stage: Stage, options: dict[str, Any], why: str, which: str
) -> None:  # R75, R76, A9
    @tool(**options)
    async def write(context: ToolContext) -> None:
        assert (context.run_state(Cart), context.attempt_state(list)) == (Cart(), [])
        change = context.set_run_state if which == "run" else context.set_attempt_state
        change(["written"])

    why = f"Tool 'write' {why}, so it may not set state"
    agent = shopper(stage, [call("write"), call("write")], tools=[write])
    assert succeeded(await run(agent, "Go.")).state == States(Cart(), [])
    assert [(result.is_error, why in result.text) for result in stage.tool_results(1)] == [(True, True)] * 2


async def test_a_projection_that_raises_fails_the_run(stage: Stage, recorder: Recorder) -> None:  # X6
    def project(states: States) -> object:
        raise ValueError("cannot count")

    log = CallbackLog()
    agent = shopper(stage, call("put", item="a"), final_state=project)
    result = await run(agent, "Go.", callbacks=log.callbacks(), on_event=recorder)
    assert failed(result).code == "STATE_PROJECTION_FAILED"
    assert context_of(result, ProjectionContext).reason == "ValueError: cannot count"
    assert failed(result).metadata.usage is not None
    assert log.names[-1] == "failure"


async def test_a_reflection_that_changes_the_draft_changes_neither_output_nor_history(stage: Stage) -> None:  # D12
    def inflate(report: Report) -> str:
        report.total = 1_000
        return "inflated"

    agent = reporter(stage.model([report(4), submit()]), output=Output(Report, reflection=inflate))
    assert (await run(agent, "Go.")).unwrap() == Report(total=4)
    assert first_input(stage) == {"total": 4}


async def test_a_draft_shown_twice_is_two_objects(stage: Stage) -> None:  # D12
    drafts: list[Report] = []

    def keep(draft: Report) -> str:
        drafts.append(draft)
        return preview(draft)

    model = stage.model([[report(1), report(1)], submit()])
    result = await run(reporter(model, output=Output(Report, reflection=keep)), "Go.")
    assert len({id(each) for each in [*drafts, result.unwrap()]}) == 3


# D12, A48, D44
async def test_the_list_of_tools_may_change_after_the_definition_without_changing_the_agent(stage: Stage) -> None:
    tools, validators = [look], [small]
    model = stage.model([[call("look", id="a"), report(99, "b")], report(1)])
    agent = reporter(model, tools=tools, validators=validators)
    tools.clear()
    validators.clear()
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert stage.tool_results(1) == [
        ToolResult("found here", tool_use_id="a"),
        ToolResult(rejected(99), is_error=True, tool_use_id="b"),
    ]


class Basket(BaseModel):
    items: list[str] = []


async def test_the_caller_and_each_function_have_an_input_of_their_own(stage: Stage) -> None:  # D29, X3
    seen: list[list[str]] = []

    def spoils(name: str) -> Callable[[Basket], str]:
        def made(basket: Basket) -> str:
            seen.append([*basket.items])
            basket.items.append(name)
            return name

        return made

    @tool(thread=False)
    def look_in(context: ToolContext[object, Basket]) -> str:
        """Look into the basket."""
        return spoils("tool")(context.input) + str(context.input.items)

    def validator(text: str) -> None:
        context: Any = validation_context()
        spoils("validator")(context.input)

    given = Basket(items=["apple"])
    agent = Agent(
        name="taster",
        model=stage.model([[call("look_in"), call("look_in")], "Done."]),
        input=Basket,
        system=spoils("system"),
        prompt=spoils("prompt"),
        run_state=spoils("run"),
        attempt_state=lambda basket, state: spoils("attempt")(basket),
        validators=[validator],
        tools=[look_in],
    )
    succeeded(await run(agent, given))
    assert seen == [["apple"]] * 7
    assert given.items == ["apple"]


async def test_what_a_state_function_keeps_does_not_reach_the_state(stage: Stage) -> None:  # D29, X3
    kept: list[list[str]] = [[], []]

    def kept_state(given: str) -> list[str]:
        return kept[0]

    def attempt_state(given: str, state: list[str], number: int) -> list[str]:
        state.append("changed by the attempt")
        kept[1] = [f"attempt {number}"]
        return kept[1]

    @tool(thread=False)
    def read(context: ToolContext) -> str:
        for each in kept:
            each.append("changed from outside")
        return f"{context.run_state(list)} {context.attempt_state(list)}"

    agent = shopper(stage, call("read"), tools=[read], run_state=kept_state, attempt_state=attempt_state)
    result = succeeded(await run(agent, "Go."))
    assert [each.text for each in stage.tool_results(1)] == ["[] ['attempt 1']"]
    assert isinstance(result.state, States)
    assert (result.state.run, result.state.attempt, result.state.number) == ([], ["attempt 1"], 1)


def number_of(states: States) -> int:
    return states.number


async def test_the_number_of_the_attempt_is_told_to_whoever_needs_it(stage: Stage) -> None:  # X5
    numbers: list[int] = []

    def attempt_state(given: str, state: object, number: int) -> None:
        numbers.append(number)

    model = stage.model([report(7), report(2)])
    agent = reporter(model, attempt_state=attempt_state, final_state=number_of)
    assert succeeded(await run(agent, "Go.")).state == 2
    assert numbers == [1, 2]


async def test_the_model_is_told_the_schema_that_its_calls_are_checked_by(stage: Stage) -> None:  # D44
    schema: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    made = Tool("count", "Count.", schema, print)
    before = deepcopy(schema)
    schema["properties"] = {"n": {"type": "string"}}
    made.input_schema["required"] = []
    assert made.spec.input_schema == before
    succeeded(await run(talker(stage.model([call("count", n="x"), "Done."]), tools=[made]), "Go."))
    assert "should be of type integer" in stage.tool_results(1)[0].text


async def test_settings_prompts_and_facts_are_what_they_were_when_the_agent_was_made(stage: Stage) -> None:  # D44
    extra: JsonObject = {"metadata": {"user_id": "u"}}
    system, policies = [Text("Be brief.")], list[BudgetPolicy]()
    limits = Limits(budget_policies=policies)
    agent = talker(stage.model(["Done."]), settings=ModelSettings(extra=extra), system=system, limits=limits)
    extra["metadata"] = {"user_id": "v"}
    system.clear()
    policies.append(cast("Any", None))
    assert agent.settings.extra == {"metadata": {"user_id": "u"}}
    assert (agent.system, agent.limits.budget_policies) == ((Text("Be brief."),), ())


async def test_a_listener_cannot_change_the_output(stage: Stage) -> None:  # D29
    def spoil(event: Event) -> None:
        if isinstance(event, RunSucceeded) and isinstance(event.output, Basket):
            event.output.items.clear()

    agent = Agent(name="b", model=stage.model([call("output", items=["pear"])]), output=Output(Basket))
    assert succeeded(await run(agent, "Go.", on_event=spoil)).output.items == ["pear"]
