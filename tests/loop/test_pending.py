"""Runs that do not wait: they return what is open, go on with the answers, and do nothing twice."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from journeyman import Agent, Budget, DefinitionError, Limits, Runtime, Subagents, ask_user, run, run_sync, tool
from journeyman.endings import InvalidInputContext
from journeyman.gate import Allow, Ask, Deny
from journeyman.journal import InMemoryJournal
from journeyman.model import ToolSpec
from journeyman.result import AskedQuestion, Failure, Pending, PendingCall
from journeyman.testing.scripted import Answer, ScriptedModel, call, say
from journeyman.tools import ExternalTools
from journeyman.tools.tools import AnyTool
from tests.play import context_of, existing, failed, instance_of, make_gate, make_tool, results_in, succeeded, texts

PICK: dict[str, object] = {
    "name": "pick",
    "description": "Let the user pick.",
    "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
}


@dataclass
class Till:
    paid: list[object] = field(default_factory=list[object])

    def pay(self, **options: Any) -> AnyTool:
        return make_tool("pay", "paid {n}", into=self.paid, effect="once", **options)


def picker(*answers: Answer, tools: tuple[AnyTool, ...] = (), **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel([*answers, "Done."])
    return Agent(name="clerk", model=model, tools=[*tools, ExternalTools([PICK])], **options), model


async def test_a_run_gives_its_external_calls_to_its_caller_and_goes_on_with_their_results() -> None:
    """Each part is done once: model calls, calls before, limits; the results stand in the order of the calls."""
    till = Till()
    calls = say(call("pay", n=1, id="p"), call("pick", n=1, id="a"), call("pick", n=2, id="b"), call("pay", n=2))
    agent, model = picker(calls, tools=(till.pay(),), limits=Limits(calls=4))
    first = instance_of(Pending, await run(agent, "Go.", wait=False))
    assert first.calls == tuple(
        [PendingCall(id=id, tool_name="pick", arguments={"n": n}, path=("clerk",)) for id, n in (("a", 1), ("b", 2))]
    )
    assert (first.questions, [each.role for each in first.history]) == ((), ["user", "assistant"])
    second = instance_of(Pending, await run(agent, first, results={"b": {"is": "blue"}}, wait=False))
    assert [each.id for each in second.calls] == ["a"]
    assert till.paid == [1]
    result = succeeded(await run(agent, second, results={"a": "red"}, wait=False))
    assert texts(result) == ["paid 1", "red", '{"is":"blue"}', "paid 2"]
    assert (till.paid, len(model.requests), result.metadata.n_calls) == ([1, 2], 2, 4)


def test_each_part_of_a_run_may_have_an_event_loop_of_its_own() -> None:
    @tool(effect="pure")
    async def ponder(n: int) -> str:
        """Take longer than the run counts as waiting."""
        for _ in range(200):
            await asyncio.sleep(0)
        return f"pondered {n}"

    agent, model = picker(call("ponder", n=1), call("pick", n=1, id="a"), call("ponder", n=2), tools=(ponder,))
    pending = instance_of(Pending, run_sync(agent, "Go.", wait=False))
    assert failed(run_sync(agent, "Go.", wait=False, results={"a": "red"})).code == "INVALID_INPUT"
    result = succeeded(run_sync(agent, pending, wait=False, results={"a": "red"}))
    assert (texts(result), len(model.requests)) == (["pondered 1", "red", "pondered 2"], 4)


async def test_what_nobody_here_answers_is_open_too() -> None:
    """A gate's question is answered with a decision, that of the model with a text."""
    till = Till()
    answers = [call("ask_user", question="Which?", options=["x", "y"], id="q"), call("pay", n=3, id="p")]
    agent, _ = picker(*answers, tools=(till.pay(), ask_user), gate=make_gate(Ask("Pay three?"), "pay"))
    asked = instance_of(Pending, await run(agent, "Go.", wait=False))
    assert asked.questions == (AskedQuestion(id="q", kind="answer", question="Which?", options=("x", "y")),)
    waits = instance_of(Pending, await run(agent, asked, results={"q": "y"}, wait=False))
    assert waits.questions == (
        AskedQuestion(id="p", kind="approve", question="Pay three?", tool_name="pay", arguments={"n": 3}),
    )
    assert texts(succeeded(await run(agent, waits, results={"p": Deny("No.")}, wait=False))) == [
        "y",
        "Error: denied: No.",
    ]
    assert till.paid == []


async def test_two_gates_that_ask_about_one_call_are_answered_one_after_the_other() -> None:
    till = Till()
    gates = [make_gate(Ask("First?")), make_gate(Ask("Second?"))]
    agent, _ = picker(call("pay", n=1, id="p"), tools=(till.pay(),), gate=gates)
    pending: Any = await run(agent, "Go.", wait=False)
    for question in ("First?", "Second?"):
        assert [each.question for each in instance_of(Pending, pending).questions] == [question]
        assert till.paid == []
        pending = await run(agent, pending, results={"p": Allow()}, wait=False)
    assert (texts(succeeded(pending)), till.paid) == (["paid 1"], [1])


async def test_a_run_below_is_answered_by_the_way_to_it() -> None:
    till = Till()
    below, _ = picker(call("pick", n=1, id="x"), description="Picks.", tools=(till.pay(),))
    above = Agent(
        name="lead",
        model=ScriptedModel([say(call("pay", n=5), call("subagent", agent="clerk", task="Go.")), "All done."]),
        tools=[till.pay(), Subagents(below)],
    )
    pending = instance_of(Pending, await run(above, "Go.", wait=False))
    (waiting,) = pending.calls
    assert waiting.path[0] == "lead"
    assert waiting.id == "/".join((*waiting.path[1:], "x"))
    result = succeeded(await run(above, pending, results={waiting.id: "red"}, wait=False))
    assert (result.output, till.paid) == ("All done.", [5])


async def test_calls_that_run_together_end_before_the_run_is_left() -> None:
    """The slow one has an effect: it is neither cut nor done again."""
    n_done = 0

    @tool(parallel=True, effect="once")
    async def slow() -> str:
        """Be slow."""
        nonlocal n_done
        for _ in range(500):
            await asyncio.sleep(0)
        n_done += 1
        return "slow"

    agent, _ = picker(say(call("slow"), call("pick", n=1, id="a")), tools=(slow,))
    pending = instance_of(Pending, await run(agent, "Go.", wait=False))
    assert n_done == 1
    assert texts(succeeded(await run(agent, pending, results={"a": 1}, wait=False))) == ["slow", "1"]
    assert n_done == 1


async def test_a_run_in_which_nothing_is_open_ends_as_any_other() -> None:
    agent, _ = picker(call("pick", n="x"))
    assert "Invalid arguments" in texts(succeeded(await run(agent, "Go.", wait=False)))[0]
    assert failed(await run(Agent(name="a", model=ScriptedModel([])), "Go.", wait=False)).code == "API_ERROR"


async def test_where_nobody_is_there_the_model_reads_so() -> None:
    agent, _ = picker(call("pick", n=1))
    assert texts(succeeded(await run(agent, "Go."))) == ["Nobody is there who runs this tool."]


async def test_a_long_result_is_cut_and_one_of_a_stranger_is_marked() -> None:
    model = ScriptedModel([call("pick", n=1, id="a"), "Done."])
    agent = Agent(name="clerk", model=model, tools=[ExternalTools([PICK], max_chars=10, untrusted=True)])
    pending = instance_of(Pending, await run(agent, "Go.", wait=False))
    result = succeeded(await run(agent, pending, results={"a": "x" * 10_000_000}, wait=False))
    assert texts(result) == [f"{'x' * 10}\n[Cut: the first 10 of 10,000,000 characters.]"]
    assert [each.untrusted for each in results_in(result.history)] == [True]


async def wrong(agent: Agent, pending: object, **options: Any) -> str:
    """Return the complaint of a run; the `Pending` can still be answered."""
    begin: Any = run
    result = await begin(agent, pending, **{"wait": False, **options})
    (issue,) = context_of(instance_of(Failure, result), InvalidInputContext).issues
    return issue


async def test_answers_that_cannot_be_are_refused_and_nothing_is_lost() -> None:
    till = Till()
    gate = make_gate(Ask("Pay?"), "pay")
    agent, model = picker(call("pick", n=1, id="a"), call("pay", n=1, id="p"), tools=(till.pay(),), gate=gate)
    loop: list[object] = []
    loop.append(loop)
    first = instance_of(Pending, await run(agent, "Go.", wait=False))
    for results, said in (
        ({"z": 1}, "results['z'] is for nothing that is open. Open: a"),
        ({"a": object()}, "results['a'] is no JSON"),
        ({"a": loop}, "results['a'] is no JSON"),
        (["a"], "results is ['a']. Pass a dict"),
    ):
        assert said in await wrong(agent, first, results=results)
    assert "Pass wait=False" in await wrong(agent, first, results={"a": 1}, wait=True)
    assert "results are given to a run that begins" in await wrong(agent, "Go.", results={"a": 1})
    assert "Leave out Runtime(journal=…)" in await wrong(agent, first, runtime=Runtime(journal=InMemoryJournal()))
    second = instance_of(Pending, await run(agent, first, results={"a": 1}, wait=False))
    assert "was given before" in await wrong(agent, first, results={"a": 2})
    assert "Pass Allow()" in await wrong(agent, second, results={"p": "yes"})
    other = Agent(name="other", model=model)
    assert "the journal is of the agent 'clerk'" in await wrong(other, second)
    assert texts(succeeded(await run(agent, second, results={"p": Allow()}, wait=False))) == ["1", "paid 1"]
    assert len(model.requests) == 3


async def test_one_pending_goes_on_once_at_a_time() -> None:
    agent, _ = picker(call("pick", n=1, id="a"))
    pending = instance_of(Pending, await run(agent, "Go.", wait=False))
    one, other = await asyncio.gather(
        run(agent, pending, results={"a": 1}, wait=False), run(agent, pending, wait=False)
    )
    succeeded(one)
    assert "goes on already" in str(context_of(instance_of(Failure, other), InvalidInputContext))


async def test_limits_count_all_parts_of_a_run() -> None:
    answers = [call("pick", n=each, id=f"c{each}") for each in range(3)]
    agent, _ = picker(*answers, limits=Limits(calls=2, per_attempt=Budget(tokens=1_000)))
    pending: Any = await run(agent, "Go.", wait=False)
    for each in range(2):
        pending = await run(agent, pending, results={f"c{each}": "x"}, wait=False)
    assert texts(succeeded(pending))[2] == "Error: not run: this run may make no more tool calls."


@pytest.mark.parametrize(
    ("tools", "code"),
    [
        (3, "INVALID_ARGUMENT"),
        ([3], "INVALID_TOOL_DICT"),
        ([{"name": "a b", "input_schema": {"type": "object"}}], "INVALID_TOOL_NAME"),
        ([ToolSpec(name="", description="", input_schema={"type": "object"})], "MISSING_TOOL_NAME"),
    ],
)
def test_what_describes_no_tool_is_refused(tools: object, code: str) -> None:
    make: Any = ExternalTools
    with pytest.raises(DefinitionError) as caught:
        make(tools)
    assert [each.code for each in caught.value.problems] == [code]


def test_external_tools_are_a_toolset_as_any_other() -> None:
    (made,) = existing(ExternalTools([PICK]).prefixed("ui_").known_tools)
    assert (made.name, made.effect, made.external) == ("ui_pick", "once", True)
