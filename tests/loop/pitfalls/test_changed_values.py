"""Tools, callbacks and others that change what they were given: the history, the state and the output stay theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest
from typing_extensions import TypedDict

from journeyman import Agent, CallbackContext, Callbacks, Event, Limits, Output, Success, Tool, ToolContext, run, tool
from journeyman.events import ToolCalled
from journeyman.gate import Allow, GateRequest
from journeyman.models.scripted import call
from journeyman.tools.tools import MiddlewareCall, Next, States
from journeyman.types import JsonObject, ToolResult, ToolUse
from tests.loop.pitfalls.players import TOO_LARGE, Report, look, report, shown, small, submit
from tests.support.stage import Stage

# -- arguments ---------------------------------------------------------------------------------------------------------


class Basket(TypedDict):
    items: list[str]


@tool
async def pack(basket: Basket, labels: dict[str, list[int]]) -> str:
    """Pack the basket, and change everything that came."""
    basket["items"].append("stolen")
    labels["a"].clear()
    labels["b"] = [1]
    return "packed"


def pack_raw(arguments: JsonObject) -> str:
    arguments.clear()
    arguments["basket"] = "gone"
    return "packed"


ARGUMENTS: JsonObject = {"basket": {"items": ["pear"]}, "labels": {"a": [1, 2]}}
PACKERS = [pack, Tool("pack", "Pack.", {"type": "object"}, pack_raw)]


def asked(stage: Stage) -> JsonObject:
    """Return the arguments of the first call, as the second request sent them back."""
    use = stage.messages(1)[1].content[0]
    assert isinstance(use, ToolUse)
    return use.input


@pytest.mark.parametrize("packer", PACKERS, ids=["typed", "with a schema"])
async def test_a_tool_that_changes_its_arguments_does_not_rewrite_the_history(
    stage: Stage, packer: Tool[..., object]
) -> None:  # D12
    agent = Agent(name="a", model=stage.model([call("pack", ARGUMENTS), "Done."]), tools=[packer])
    result = await run(agent, "Go.")
    assert asked(stage) == ARGUMENTS
    assert result.history[1].tool_uses[0].input == ARGUMENTS


async def test_a_default_that_a_tool_changes_is_new_for_the_next_call(stage: Stage) -> None:  # D12
    @tool
    async def note(word: str, words: list[str] = []) -> list[str]:  # noqa: B006 - that it is safe is what is tested
        words.append(word)
        return words

    model = stage.model([call("note", word="one"), call("note", word="two"), "Done."])
    await run(Agent(name="a", model=model, tools=[note]), "Go.")
    assert [stage.tool_results(n)[0].content for n in (1, 2)] == ['["one"]', '["two"]']


async def test_two_calls_with_the_same_arguments_do_not_share_them(stage: Stage) -> None:  # D12
    seen: list[JsonObject] = []

    @tool(parallel=True)
    async def add(to: dict[str, int]) -> str:
        to["added"] = to.get("added", 0) + 1
        await asyncio.sleep(0)
        seen.append(dict(to))
        return "added"

    model = stage.model([[call("add", to={}), call("add", to={})], "Done."])
    await run(Agent(name="a", model=model, tools=[add]), "Go.")
    assert seen == [{"added": 1}, {"added": 1}]


async def test_callbacks_listeners_and_gates_that_change_the_arguments_change_only_their_own(
    stage: Stage,
) -> None:  # D12, A27
    told: list[JsonObject] = []
    seen: list[JsonObject] = []

    def listen(event: Event) -> None:
        if isinstance(event, ToolCalled):
            event.tool_input.clear()

    def on_call(context: CallbackContext, name: str, arguments: JsonObject) -> None:
        told.append(dict(arguments))
        arguments["where"] = "elsewhere"

    class Meddler:
        async def decide(self, request: GateRequest) -> Allow:
            seen.append(dict(request.arguments))
            request.arguments["where"] = "anywhere"
            return Allow()

    agent = Agent(name="a", model=stage.model([call("look", where="up"), "Done."]), tools=[look], gate=Meddler())
    await run(agent, "Go.", callbacks=Callbacks(on_tool_call=on_call), on_event=listen)
    assert told == [{"where": "up"}]
    assert seen == [{"where": "up"}]
    assert stage.tool_results(1)[0].content == "found up"
    assert asked(stage) == {"where": "up"}


async def test_a_middleware_changes_what_the_tool_gets_but_not_the_history(stage: Stage) -> None:  # D12
    async def redirect(call: MiddlewareCall, proceed: Next) -> ToolResult:
        call.arguments["where"] = "down"
        return await proceed(call)

    model = stage.model([call("look", where="up"), "Done."])
    await run(Agent(name="a", model=model, tools=[look], middlewares=[redirect]), "Go.")
    assert stage.tool_results(1)[0].content == "found down"
    assert asked(stage) == {"where": "up"}


async def test_a_reflection_that_changes_the_draft_changes_neither_output_nor_history(stage: Stage) -> None:  # D12
    def inflate(report: Report) -> str:
        report.total = 1_000
        return "inflated"

    model = stage.model([report(7), submit()])
    agent = Agent(name="a", model=model, output=Output(Report, reflection=inflate), validators=[small])
    assert (await run(agent, "Go.")).unwrap() == Report(total=7)
    assert asked(stage) == {"total": 7}


async def test_the_list_of_tools_may_change_after_the_definition_without_changing_the_agent(
    stage: Stage,
) -> None:  # D12
    tools, validators = [look], [small]
    model = stage.model([[call("look", id="a"), report(99, "b")], report(1)])
    agent = Agent(name="a", model=model, tools=tools, output=Output(Report), validators=validators)
    tools.clear()
    validators.clear()
    assert (await run(agent, "Go.")).unwrap() == Report(total=1)
    assert stage.tool_results(1) == [
        ToolResult("found here", tool_use_id="a"),
        ToolResult(TOO_LARGE, is_error=True, tool_use_id="b"),
    ]


# -- state -------------------------------------------------------------------------------------------------------------


@dataclass
class Cart:
    items: list[str] = field(default_factory=list[str])


def cart(given: str) -> Cart:
    return Cart()


def attempt_cart(given: str, run_state: object) -> Cart:
    return Cart()


@tool
async def buy(item: str, ctx: ToolContext) -> str:
    """Put an item into both carts."""
    run_cart, attempt = ctx.run_state(Cart), ctx.attempt_state(Cart)
    ctx.set_run_state(Cart([*run_cart.items, item]))
    ctx.set_attempt_state(Cart([*attempt.items, item]))
    return ",".join(run_cart.items)


async def bought(stage: Stage, *scripted: ToolUse, **tools: Tool[..., object]) -> tuple[list[str], list[str]]:
    """Run the calls, one per response, and return the items of run and attempt at the end."""

    def items(states: States) -> tuple[list[str], list[str]]:
        assert isinstance(states.run, Cart)
        assert isinstance(states.attempt, Cart)
        return states.run.items, states.attempt.items

    agent = Agent(
        name="a",
        model=stage.model([*scripted, "Done."]),
        tools=[buy, *tools.values()],
        run_state=cart,
        attempt_state=attempt_cart,
        project=items,
    )
    result = await run(agent, "Go.")
    assert isinstance(result, Success), result
    return cast("tuple[list[str], list[str]]", result.state)


async def test_the_projection_sees_the_state_that_the_tools_left(stage: Stage) -> None:  # D19
    assert await bought(stage, call("buy", item="pear"), call("buy", item="fig")) == (["pear", "fig"], ["pear", "fig"])


async def test_the_projection_sees_the_attempt_state_of_the_attempt_that_succeeded(stage: Stage) -> None:  # D19
    states: list[object] = []
    model = stage.model([call("buy", item="pear"), report(99), call("buy", item="fig"), report(1)])
    agent = Agent(
        name="a",
        model=model,
        tools=[buy],
        output=Output(Report),
        validators=[small],
        run_state=cart,
        attempt_state=attempt_cart,
        project=lambda final: states.extend([final.run, final.attempt]),
    )
    assert isinstance(await run(agent, "Go."), Success)
    assert states == [Cart(["pear", "fig"]), Cart(["fig"])]


def circular() -> object:
    ring: list[object] = []
    ring.append(ring)
    return ring


async def coroutine() -> None: ...


RESULTS: dict[str, Callable[[], object]] = {
    "circular": circular,
    "a generator": lambda: (n for n in range(3)),
    "an iterator": lambda: iter([1]),
    "a coroutine in a list": lambda: [coroutine()],
    "an error result": lambda: ToolResult("no", is_error=True),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
async def test_a_call_whose_result_cannot_be_sent_leaves_the_state_as_it_was(
    stage: Stage, result: Callable[[], object]
) -> None:  # D25
    @tool
    async def spoil(ctx: ToolContext) -> object:
        ctx.set_run_state(Cart(["spoilt"]))
        ctx.set_attempt_state(Cart(["spoilt"]))
        return result()

    assert await bought(stage, call("buy", item="pear"), call("spoil"), spoil=spoil) == (["pear"], ["pear"])
    assert stage.tool_results(2)[0].is_error


async def test_a_call_that_changes_the_state_in_place_and_raises_leaves_no_trace(stage: Stage) -> None:  # D28
    @tool
    async def burn(ctx: ToolContext) -> str:
        ctx.run_state(Cart).items.append("ashes")
        ctx.set_attempt_state(Cart(["ashes"]))
        raise ValueError("on fire")

    assert await bought(stage, call("buy", item="pear"), call("burn"), burn=burn) == (["pear"], ["pear"])


async def test_the_calls_of_one_response_see_the_state_of_those_before_them(stage: Stage) -> None:  # D28, X3
    model = stage.model([[call("buy", item="pear"), call("buy", item="fig"), call("buy", item="plum")], "Done."])
    await run(
        Agent(name="a", model=model, tools=[buy], run_state=cart, attempt_state=attempt_cart),
        "Go.",
    )
    assert [result.text for result in stage.tool_results(1)] == ["(no output)", "pear", "pear,fig"]


async def test_a_reference_kept_from_one_call_does_not_reach_the_next(stage: Stage) -> None:  # D29
    kept: list[Cart] = []

    @tool
    async def keep(ctx: ToolContext) -> str:
        for hostage in kept:
            hostage.items.append("forged")
        found = ",".join(ctx.run_state(Cart).items)
        given = Cart(["own"])
        ctx.set_run_state(given)
        kept.extend([given, ctx.run_state(Cart), ctx.attempt_state(Cart)])
        return found

    states = await bought(stage, call("keep"), call("keep"), call("buy", item="fig"), keep=keep)
    assert states == (["own", "fig"], ["fig"])
    assert [stage.tool_results(n)[0].text for n in (1, 2)] == ["(no output)", "own"]


async def test_a_state_that_all_runs_share_is_not_changed_by_a_run(stage: Stage) -> None:  # D29
    shared = Cart(["seed"])

    @tool
    async def grow(ctx: ToolContext) -> str:
        cart = ctx.run_state(Cart)
        cart.items.append("leaf")
        ctx.set_run_state(cart)
        return ",".join(ctx.run_state(Cart).items)

    model = stage.model([call("grow"), "Done."] * 2)
    agent = Agent(name="a", model=model, tools=[grow], run_state=lambda given: shared)
    await run(agent, "Go.")
    await run(agent, "Go.")
    assert stage.tool_results(1)[0].content == stage.tool_results(3)[0].content == "seed,leaf"
    assert shared == Cart(["seed"])


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

    finals: list[object] = []
    agent = Agent(
        name="a",
        model=stage.model([call("drop"), "Done.", call("reshape"), "Done."]),
        tools=[drop, reshape],
        run_state=lambda given: {"old": 1, "new": 2},
        project=lambda states: finals.append(states.run),
        limits=Limits(iterations=3),
    )
    await run(agent, "Go.")
    await run(agent, "Go.")
    assert finals == [{"new": 2}, ["another", "shape"]]


async def test_a_draft_shown_twice_is_two_objects(stage: Stage) -> None:  # D12
    drafts: list[Report] = []

    def keep(draft: Report) -> str:
        drafts.append(draft)
        return shown(draft)

    model = stage.model([[report(1), report(1)], submit()])
    result = await run(Agent(name="a", model=model, output=Output(Report, reflection=keep)), "Go.")
    assert len({id(each) for each in [*drafts, result.unwrap()]}) == 3
