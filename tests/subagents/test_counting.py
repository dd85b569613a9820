"""What sub-agents did is counted alike wherever they work, and the sums add up."""

import asyncio
from typing import Any

import pytest

from journeyman import Agent, Budget, Output, Runtime, Subagents, Tasks, Team, run, tool
from journeyman.errors import DefinitionError, SubagentFailed
from journeyman.team import TeamSpawnRequest, TeamSpawnResult
from journeyman.testing.scripted import ScriptedModel, call
from tests.play import Stage, existing, look, succeeded
from tests.subagents.leads import Count, errors, play, read, scout
from tests.team.members import wanted


def searcher() -> Agent[Count]:
    """Return an agent that looks twice, once in vain, asks another, and hands in a count: three calls of tools."""
    other = Agent(name="other", model=ScriptedModel([call("look"), "found"], repeat=True), tools=[look])
    ask = call("subagent", agent="other", task="look")
    answers = [call("look"), call("nowhere"), ask, call("output", total=4)]
    return Agent(name="searcher", model=ScriptedModel(answers), tools=[look, Subagents(other)], output=Output(Count))


async def test_calls_are_counted_alike_wherever_a_sub_agent_works(stage: Stage) -> None:
    task = {"agent": "searcher", "task": "look"}
    single = await play(stage, Subagents(searcher()), task)
    [record] = single.metadata.children
    async with Tasks(notify=lambda text, info: None) as tasks, Team("crew", tasks=tasks) as team:
        await Subagents(searcher(), tasks=tasks).execute({**task, "background": True})
        member = await team.spawn(wanted(searcher(), name="ada"))
        await team.receive()
        await team.shutdown("ada")
        await tasks.wait()
        counts = [tasks.get("bg-1").n_calls, tasks.get(member.task_id).n_calls]
        used = [tasks.get("bg-1").usage, tasks.get(member.task_id).usage]
    own = await run(searcher(), "look")
    assert [*counts, read(single)["usage"]["tools"], record.calls, own.metadata.n_calls] == [3] * 5
    assert used == [own.metadata.usage, own.metadata.usage]


async def test_the_value_of_a_typed_task_in_the_background_is_the_value(stage: Stage) -> None:
    async with Tasks(notify=lambda text, info: None) as tasks:
        await Subagents(searcher(), tasks=tasks).execute({"agent": "searcher", "task": "look", "background": True})
        await tasks.wait()
        info = tasks.get("bg-1")
    assert (info.value, info.result) == (Count(total=4), '{"total":4,"places":[]}')


async def test_what_the_budget_counts_is_what_the_run_and_its_background_used_together(stage: Stage) -> None:
    deep = Subagents(scout(stage, call("look", id="a"), "found"))
    model = stage.model([call("subagent", agent="scout", task="look", id="m"), "done"])
    crew = Subagents(Agent(name="middle", model=model, tools=[deep]))
    budget = Budget(tokens=100_000, scope="caller")

    @tool
    async def rest() -> str:
        """Wait for all background work."""
        await tasks.wait()
        return "rested"

    async with Tasks(notify=lambda text, info: None) as tasks:
        crew.tasks = tasks
        start = call("subagent", agent="middle", task="go", background=True)
        lead = Agent(name="lead", model=ScriptedModel([start, call("rest"), "done"]), tools=[crew, rest])
        metadata = succeeded(await run(lead, "Go.", runtime=Runtime(budget=budget))).metadata
        assert metadata.background_usage == tasks.get("bg-1").usage
    assert metadata.usage is not None
    assert metadata.background_usage is not None
    assert metadata.background_usage.requests == 4
    assert metadata.usage.total_tokens + metadata.background_usage.total_tokens == budget.used_tokens


async def test_a_child_that_cancels_itself_has_its_usage_in_the_result(stage: Stage) -> None:
    @tool
    async def give_up() -> str:
        current = existing(asyncio.current_task())
        current.cancel()
        await asyncio.Event().wait()
        return "never"

    quitter = Agent(name="quitter", model=ScriptedModel([call("give_up")]), tools=[give_up])
    tasks = [{"agent": name, "task": "go"} for name in ("quitter", "scout")]
    for result in (
        read(await play(stage, Subagents(quitter, scout(stage)), {"tasks": tasks})),
        (await Subagents(_again(quitter), scout(stage)).execute({"tasks": tasks})).model_dump(),
    ):
        quit, found = result["results"]
        assert (quit["is_error"], quit["usage"]["input"], quit["usage"]["turns"]) == (True, 10, 1)
        assert found["output"] == "found"


def _again(agent: Agent[Any]) -> Agent[Any]:
    return Agent(name=agent.name, model=ScriptedModel([call("give_up")]), tools=agent.tools)


async def test_a_blank_last_answer_of_a_text_sub_agent_is_no_output_and_no_error(stage: Stage) -> None:  # S1.3
    def silent() -> Agent:
        return scout(stage, " \n ", name="silent")

    task = {"agent": "silent", "task": "go"}
    chain = {"chain": [task, {"agent": "scout", "task": "after: {previous}"}]}
    assert read(await play(stage, Subagents(silent()), task))["output"] == "(no output)"
    chained = read(await play(stage, Subagents(silent(), scout(stage)), chain))
    assert [item["task"] for item in chained["results"]] == ["go", "after: (no output)"]
    assert "error" not in chained
    assert read(await play(stage, Subagents(silent()), {"tasks": [task]}))["summary"] == "1/1 succeeded"
    async with Tasks(notify=lambda text, info: None) as tasks:
        await Subagents(silent(), tasks=tasks).execute({**task, "background": True})
        await tasks.wait()
        assert (tasks.get("bg-1").status, tasks.get("bg-1").result) == ("completed", "(no output)")
    assert (await Subagents(silent()).run("silent", "go")).code == "INVALID_RESPONSE"
    typed = Agent(name="typed", model=ScriptedModel([" "]), output=Output(Count))
    with pytest.raises(SubagentFailed):
        await Subagents(typed).execute({"agent": "typed", "task": "go"})


JOIN = {"agent": "scout", "task": "look", "name": "ann"}


def made(request: TeamSpawnRequest) -> TeamSpawnResult:
    return TeamSpawnResult(task_id="tm-1", agent_id=f"{request.name}@crew", name=request.name, team_name="crew")


async def made_later(request: TeamSpawnRequest) -> TeamSpawnResult:
    return made(request)


@pytest.mark.parametrize("spawner", [made, made_later])
async def test_a_plain_function_is_a_spawner(spawner: Any, stage: Stage) -> None:  # noqa: ANN401 - a function  # S1.7
    crew = Subagents(scout(stage), team=spawner)
    assert read(await play(stage, crew, JOIN))["agent_id"] == "ann@crew"


async def test_a_spawner_that_returns_something_else_is_told(stage: Stage) -> None:
    crew = Subagents(scout(stage), team=lambda request: None)  # pyright: ignore[reportArgumentType] - the wrong type
    assert "returned None, not a TeamSpawnResult" in errors(await play(stage, crew, JOIN))[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [("tasks", 5), ("tasks", Tasks), ("notify", 5), ("create_model", "x"), ("team", "crew"), ("team", Team)],
)
def test_wrong_collaborators_are_refused_when_they_are_given(name: str, value: Any) -> None:  # noqa: ANN401 - any wrong value
    idle = Agent(name="idle", model=ScriptedModel([]))
    with pytest.raises(DefinitionError, match=f"{name} is "):
        Subagents(idle, **{name: value})
    crew = Subagents(idle)
    with pytest.raises(DefinitionError, match=f"{name} is "):
        setattr(crew, name, value)
    setattr(crew, name, None)
