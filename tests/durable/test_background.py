"""Sub-agents in the background of durable runs: runs of their own, which outlive the process that has sent them."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from journeyman import Agent, Chat, Limits, Subagents, Success, Tasks, ToolContext, run, tool
from journeyman.durable import Durable, InMemoryEngine, RunInfo, Worker
from journeyman.durable.records import Change, load_head
from journeyman.errors import SubagentMisused
from journeyman.gate import Allow, Deny, GateRequest, Verdict
from journeyman.journal import Above, SentRun
from journeyman.loop.state import run_context
from journeyman.model import Request
from journeyman.step import RunStep
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call
from tests.durable.processes import START, Process, Stage, a_row, a_signal, a_step, claimed, found, in_memory, ready_ids
from tests.durable.worlds import World, payer, until
from tests.play import existing, failed, n_answers, succeeded, texts, virtual_clock


def sends(*agents: Agent[Any, Any, Any]) -> Answer:
    """Return calls that send out each of the agents."""
    about = "What {} does"
    return [
        call(
            "subagent", agent=each.name, task="Go.", background=True, description=about.format(each.name), id=each.name
        )
        for each in agents
    ]


def heard(request: Request) -> list[str]:
    """Return the agents of whose end a model has read, as often as it has."""
    said = [message.text for message in request.messages if message.role == "user"]
    return sorted(re.findall("<agent>(.*)</agent>", "\n".join(said)))


def leads(*agents: Agent[Any, Any, Any], answers: Sequence[Answer] = ()) -> FunctionModel:
    """Return a model that sends agents out, and says of whom it has heard."""
    script = answers or [sends(*agents), "They work."]

    def answer(request: Request) -> Answer:
        number = n_answers(request)
        return script[number] if number < len(script) else f"Heard of {', '.join(heard(request))}."

    return FunctionModel(answer)


def lead(*agents: Agent[Any, Any, Any], **options: Any) -> Agent[str, str]:
    """Return an agent that sends the others out."""
    ready: dict[str, Any] = {"name": "lead", "model": leads(*agents), "tools": [Subagents(*agents)], **options}
    return Agent(**ready)


async def runs_of(durable: Durable, agent: str) -> list[RunInfo]:
    """Return the runs of an agent, oldest first."""
    return [*reversed(await durable.list(agent=agent))]


async def test_a_background_run_is_a_run_of_its_own_and_the_run_above_hears_of_its_end(stage: Stage) -> None:
    world = World()
    async with stage.durable(suspend_after_s=0.02) as durable:
        result = succeeded(await durable.run(lead(payer(world, "A")), "Pay.", id="top"))
        assert result.output == "Heard of payer."
        (below,) = await runs_of(durable, "lead/payer")
        (above,) = await runs_of(durable, "lead")
    assert (below.status, below.parent, world.done) == ("done", above.id, ["A"])
    assert below.id.startswith(f"{above.id}."), "the rows of a tree lie together"


async def dies_at(process: Process, number: int, *, after: bool, now: asyncio.Event) -> None:
    """Let a process die at one of its calls."""
    n_calls = 0

    async def count(name: str) -> None:
        nonlocal n_calls
        n_calls += name != "newest"  # with which the store is opened
        if n_calls == number and not now.is_set():
            now.set()
            process.kill()  # now, and not when its other runs have gone on for a while
            await asyncio.Event().wait()

    process.before, process.after = (process.before, count) if after else (count, process.after)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@virtual_clock
async def test_wherever_the_process_dies_a_background_run_begins_once_and_tells_once(after: bool) -> None:
    number, lives = 0, 2  # K20, K25
    while lives == 2:
        number += 1
        stage, world, dying = in_memory(), World(), asyncio.Event()
        crew = lead(payer(world, "A"))
        process = stage.process()
        await dies_at(process, number, after=after, now=dying)
        lives, result = 1, await stage.life(crew, until=dying, process=process, suspend_after_s=0.02)
        if result is None:
            lives, result = 2, await stage.life(crew, suspend_after_s=0.02)
        assert isinstance(result, Success), (number, result)
        assert result.output == "Heard of payer.", number
        async with stage.durable() as durable:
            (below,) = await runs_of(durable, "lead/payer")
            told = [each for each in await durable.hub.engine.signals() if each.kind == "task_ended"]
            paid = texts(await (await durable.get(below.id)).result())
        assert (below.status, len(told), len(world.done)) in {("done", 1, 1), ("done", 1, 0)}, number
        assert world.done or "whether it took effect is unknown" in paid[0], number
    assert number > 20


async def test_another_worker_goes_on_with_the_runs_of_one_that_dies(stage: Stage) -> None:
    world = World(dies_after="A")
    crew, stop = lead(payer(world, "A")), asyncio.Event()
    async with stage.durable(suspend_after_s=0.02) as durable:
        handle = await durable.start(crew, "Pay.", id="top")
        async with stage.durable(suspend_after_s=0.02) as dying, stage.durable(suspend_after_s=0.02) as other:
            working = asyncio.create_task(Worker(dying, agents=[crew]).run(stop=stop))
            await world.reached.wait()
            stage.processes[1].kill()
            working.cancel()
            await asyncio.wait({working})
            worker = asyncio.create_task(Worker(other, agents=[crew]).run(stop=stop))
            result = succeeded(await asyncio.wait_for(handle.result(), 30))
            stop.set()
            await worker
        (below,) = await runs_of(durable, "lead/payer")
        told = texts(await (await durable.get(below.id)).result())
    assert (result.output, world.done, below.leases) == ("Heard of payer.", ["A"], 2)
    assert "whether it took effect is unknown" in told[0]  # K4, K25


class Denies:
    """A gate of the agent above, which denies payments."""

    async def decide(self, request: GateRequest) -> Verdict:
        return Deny("not today") if request.tool_name == "pay" else Allow()


async def test_the_gates_of_the_runs_above_hold_in_every_process(stage: Stage) -> None:
    world = World()
    crew = lead(payer(world, "A"), gate=Denies())
    async with stage.durable(suspend_after_s=0.02) as durable:
        handle = await durable.start(crew, "Pay.", id="top")
        await Worker(durable, agents=[crew]).run(until_idle=True)
        (below,) = await runs_of(durable, "lead/payer")
        told = texts(await (await durable.get(below.id)).result())
        row = await found(durable.hub.engine, below.id)
        assert isinstance(await handle.result(), Success)
    assert (world.done, told) == ([], ["Error: denied: not today"])
    assert load_head(row).gates == ("Denies",), "no process goes on with it without"


async def test_its_deps_come_from_the_program_of_the_run_above(stage: Stage) -> None:
    @tool(effect="pure")
    async def ask(context: ToolContext[str]) -> str:
        """Ask."""
        return f"{context.deps} was asked"

    below = Agent(name="below", model=ScriptedModel([call("ask", id="1"), "Asked."]), tools=[ask], deps=str)
    tools = [Subagents(below, deps=lambda number: f"database {number}")]
    above = Agent(name="lead", model=leads(below), tools=tools, deps=int)
    async with stage.durable(suspend_after_s=0.02) as durable:
        await durable.start(above, "Go.", id="top")
        await Worker(durable, agents=[above.with_deps(7)]).run(until_idle=True)
        (run,) = await runs_of(durable, "lead/below")
        told = texts(await (await durable.get(run.id)).result())
    assert told == ["database 7 was asked"]


async def test_it_spends_no_more_than_the_run_above_had_left_in_however_many_lives(stage: Stage) -> None:
    tokens: list[int] = []
    for n_deaths in (0, 3):  # K14, K25
        world = World()
        crew = lead(payer(world, "A", "B", "C"), limits=Limits(tokens=9_000))
        name = f"top{n_deaths}"
        for _ in range(n_deaths):
            dying, process = asyncio.Event(), stage.process()
            await dies_at(process, 14, after=True, now=dying)
            assert await stage.life(crew, until=dying, process=process, id=name) is None
        succeeded(await stage.life(crew, id=name, suspend_after_s=0.02))
        async with stage.durable() as durable:
            below = (await runs_of(durable, "lead/payer"))[-1]
            tokens.append(below.tokens)
            row = existing(await durable.hub.engine.get(below.id))
            above = existing(load_head(row).above)
            assert 8_000 < existing(above.allowance.tokens) < 9_000
    assert tokens[0] == tokens[1] > 0


async def test_what_was_sent_out_may_send_out_others(stage: Stage) -> None:
    world = World()
    middle = lead(payer(world, "A"), name="middle")
    async with stage.durable(suspend_after_s=0.02) as durable:
        result = succeeded(await durable.run(lead(middle), "Pay.", id="top"))
        (below,) = await runs_of(durable, "lead/middle/payer")
    assert (result.output, world.done, below.status) == ("Heard of middle.", ["A"], "done")


_STRICTLY = "differ from those that it was begun with, and the program is strict"
_CHANGED: list[tuple[bool, dict[str, Any], str]] = [
    (True, {"system": "Pay nothing."}, f"the agent's system prompt {_STRICTLY}"),
    (True, {"tools": []}, f"the agent's tools {_STRICTLY}"),
    (True, {"limits": Limits(iterations=7)}, f"the agent's limits {_STRICTLY}"),
    (False, {"system": "Pay nothing."}, "the model is asked something else"),
]


@pytest.mark.parametrize(("strict", "changed", "why"), _CHANGED)
@virtual_clock
async def test_a_background_run_whose_agent_is_another_now_is_blocked(
    stage: Stage, strict: bool, changed: dict[str, Any], why: str
) -> None:
    # K15, of a run that another has sent out
    world, process = World(dies_after="A"), stage.process()
    assert await stage.life(lead(payer(world, "A")), until=world.reached, process=process) is None
    async with stage.durable(strict=strict) as durable:
        await Worker(durable, agents=[lead(payer(world, "A", **changed))]).run(until_idle=True)
        (below,) = await runs_of(durable, "lead/payer")
    assert (below.status, world.done) == ("blocked", ["A"])
    assert why in (below.reason or "")


async def test_a_run_that_another_process_would_not_find_is_not_sent_out() -> None:
    world = World()
    inner = lead(payer(world, "A"))

    @tool(effect="idempotent")
    async def delegate() -> str:
        """Run another agent, of which nobody else knows."""
        return str((await run(replace(inner, name="inner"), "Go.")).unwrap())

    outer = Agent(name="outer", model=ScriptedModel([call("delegate", id="1"), "Done."]), tools=[delegate])
    async with Durable(InMemoryEngine()) as durable:
        succeeded(await durable.run(outer, "Go.", id="top"))
        assert await durable.list(agent="outer/inner/payer") == ()
    assert world.done == []


async def test_whoever_sends_out_what_another_process_would_not_find_hears_why_and_what_to_do() -> None:
    world, heard = World(), list[str]()
    known, other = payer(world, "A"), payer(world, "A", system="Pay twice.")

    @tool(effect="once")
    async def send() -> str:
        """Send out runs that the program has not given to this agent."""
        here = existing(run_context.get().run)
        journal = existing(here.options.runtime.journal)
        assert journal.sent is not None
        for names, definition in ((("nobody",), known), (("payer",), other)):
            origin = Above(path=here.path, description="", tool_use_id="s", number=0)
            sent = SentRun(agents=names, definition=definition, input="Go.", exact="", above=origin)
            with pytest.raises(SubagentMisused) as refused:
                await journal.sent.start(RunStep(key=names[0], kind="sent"), sent)
            heard.append(str(refused.value))
        return "Refused."

    above = Agent(name="lead", model=ScriptedModel([call("send", id="1"), "Done."]), tools=[send, Subagents(known)])
    async with Durable(InMemoryEngine()) as durable:
        assert isinstance(await durable.run(above, "Go.", id="top"), Success)
        assert [each.agent for each in await durable.list()] == ["lead"]
    whys = [("nobody", "The agent 'lead' has no sub-agent 'nobody'."), ("payer", "There are two agents 'payer'.")]
    assert heard == [
        f"Sub-agent {name!r} cannot work in the background of a durable run: another process would not find it. {why}"
        " (A program gives it to the agent above by Subagents(...), or Subagents(tasks=...).)"
        for name, why in whys
    ]


async def test_task_tools_tell_of_it_in_another_process_too(stage: Stage) -> None:
    world, tasks = World(dies_after="A"), Tasks()
    below = payer(world, "A")

    def answer(request: Request) -> Answer:
        ids = re.findall("bg-[0-9a-f]{8}", str(request.messages)) or [""]
        script: list[Answer] = [
            sends(below),
            call("task_list", id="list"),
            call("task_message", {"id": ids[0], "text": "Hurry."}, id="say"),
            call("task_stop", {"id": ids[0]}, id="stop"),
            call("task_output", {"id": ids[0], "wait_s": 60}, id="read"),
            call("task_output", {"id": "bg-1"}, id="none"),
            "Done.",
            "Heard.",
        ]
        return script[n_answers(request)]

    crew = Agent(name="lead", model=FunctionModel(answer), tools=[Subagents(below), *tasks.tools()])
    process, dying = stage.process(), asyncio.Event()
    await dies_at(process, 10, after=True, now=dying)
    assert await stage.life(crew, until=dying, process=process) is None
    result = await stage.life(crew, suspend_after_s=0.02)
    read = "\n".join(texts(result))
    assert "agent running" in read or "agent failed" in read or "agent completed" in read
    assert "that is not listed here, was killed with it" in read
    assert "There is no task 'bg-1'. The tasks are: bg-" in read
    assert "whether it took effect is unknown" in read or "was cancelled" in read or "killed" in read


async def test_a_stopped_run_leaves_what_it_has_sent_out_alone(stage: Stage) -> None:
    world = World(dies_after="A")
    async with stage.durable(suspend_after_s=0.02) as durable:
        running = asyncio.create_task(durable.run(lead(payer(world, "A")), "Pay.", id="top"))
        await world.reached.wait()
        await durable.stop("top", "enough")
        assert failed(await running).code == "EXECUTION_CANCELLED"
        (below,) = await runs_of(durable, "lead/payer")
        assert below.status == "running"


async def test_a_run_that_rests_in_a_later_life_can_be_stopped(stage: Stage) -> None:
    world = World(dies_after="A")
    crew = lead(payer(world, "A"))
    async with stage.durable(suspend_after_s=0.02) as durable:
        running = asyncio.create_task(durable.run(crew, "Pay.", id="top"))
        await world.reached.wait()
        await until(durable, "top", "waiting")
        await durable.stop("top", "enough")
        result = failed(await running)
    assert result.code == "EXECUTION_CANCELLED"


async def test_a_step_and_what_it_starts_and_says_are_one(stage: Stage) -> None:
    engine = await stage.begin()  # K20
    for id in ("a", "b"):
        await engine.add(a_row(id))
    claim = await claimed(engine, "a")
    starts, posts = a_row("a.1", parent="a"), a_signal("b", "mail", "a/1", text="hello")
    assert await engine.write(claim, a_step("a", "call/1/background/0"), starts=starts, posts=posts) == "written"
    assert (await found(engine, "a.1")).status == "ready"
    assert (await found(engine, "b")).n_signals == 1
    again = a_signal("b", "mail", "a/2", text="hello")
    assert await engine.write(claim, a_step("a", "call/1/background/0"), starts=a_row("a.2"), posts=again) == "taken"
    await claimed(engine, "a", also=["running"], steal=True)
    assert await engine.write(claim, a_step("a", "call/2/background/0"), starts=a_row("a.2"), posts=again) == "fenced"
    assert not await engine.settle(claim, Change(status="done"), now=START, posts=again)
    assert await engine.get("a.2") is None
    assert [each.dedup for each in await engine.signals(run="b")] == ["a/1"]


async def test_an_end_tells_once_and_whoever_waits_goes_on(stage: Stage) -> None:
    engine = await stage.begin()  # K9, K20
    for id in ("above", "below"):
        await engine.add(a_row(id))
    above, below = await claimed(engine, "above"), await claimed(engine, "below")
    assert await engine.settle(above, Change(status="waiting"), now=START, n_signals=0)
    told = a_signal("above", "task_ended", "below", text="ended")
    assert await engine.settle(below, Change(status="done"), now=START, posts=told)
    assert await engine.signal(told) == "known"
    row = await found(engine, "above")
    assert (row.status, row.n_signals) == ("ready", 1)
    assert await ready_ids(engine) == ["above"]


async def test_a_turn_of_a_durable_chat_ends_when_what_it_has_sent_out_has_told_it(stage: Stage) -> None:
    world = World()
    crew = lead(payer(world, "A"))
    async with stage.durable(suspend_after_s=0.02) as durable:
        async with Chat.open(crew, durable, id="user-1", create=True) as chat:
            result = succeeded(await chat.prompt("Pay."))
        assert result.output == "Heard of payer."
        (below,) = await runs_of(durable, "lead/payer")
        async with Chat.open(crew, durable, id="user-1") as chat:
            said = [message.text for message in chat.messages if message.role == "assistant"]
    assert (below.status, world.done) == ("done", ["A"])
    assert said[-1] == "Heard of payer."


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@virtual_clock
async def test_wherever_the_process_of_a_chat_dies_its_turn_hears_once_of_what_it_has_sent_out(after: bool) -> None:
    number, lives = 0, 2  # K25
    while lives == 2:
        number += 1
        stage, world, dying = in_memory(), World(), asyncio.Event()
        crew = lead(payer(world, "A"))
        process = stage.process()
        await dies_at(process, number, after=after, now=dying)

        async def life(process: Process, crew: Agent[str, str] = crew, stage: Stage = stage) -> list[str]:
            async with (
                Durable(process, now=stage.now, suspend_after_s=0.02) as durable,
                Chat.open(crew, durable, id="user-1", create=True) as chat,
            ):
                if chat.turn is not None:
                    await chat.turn
                elif not chat.messages:
                    await chat.prompt("Pay.")
                return [message.text for message in chat.messages]

        living = asyncio.create_task(life(process))
        dead = asyncio.create_task(dying.wait())
        await asyncio.wait({living, dead}, return_when=asyncio.FIRST_COMPLETED)
        dead.cancel()
        await asyncio.wait({dead})
        lives = 1
        if not living.done():
            process.kill()
            living.cancel()
            await asyncio.wait({living})
            lives, living = 2, asyncio.create_task(life(stage.process()))
        said = await living
        assert said[-1] == "Heard of payer.", number
        assert len(world.done) <= 1, number
