"""Background and team: what the call returns at once, what is refused, and what goes on after it."""

from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import pytest
from pydantic_core import from_json

from journeyman import Abort, Agent, Budget, Chat, Limits, Runtime, Subagents, Tasks, ToolContext, run, tool
from journeyman.errors import SubagentMisused, TeamError
from journeyman.events import RunStarted
from journeyman.journal import InMemoryJournal
from journeyman.model import ModelSettings
from journeyman.team import TeamSpawnRequest, TeamSpawnResult
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.tools.background import Writer
from tests.play import Door, Recorder, Stage, echo, existing, hang, look, raising, succeeded, transcript
from tests.subagents.leads import detached, errors, lead, play, read, scout
from tests.tasks.works import Told

SHORT = ModelSettings(max_tokens=500)
LATER = {"agent": "scout", "task": "look", "background": True}


async def test_background_work_is_refused_where_nobody_awaits_it(stage: Stage) -> None:  # S1.6
    [error] = errors(await play(stage, Subagents(scout(stage)), LATER))
    assert error.startswith("Error: Background work is not available here: nobody would await it.")
    assert stage.n_requests == 2


async def test_background_work_is_refused_where_nobody_would_be_told(stage: Stage) -> None:  # 6
    async with Tasks() as tasks:
        [error] = errors(await play(stage, Subagents(scout(stage)), LATER, runtime=Runtime(tasks=tasks)))
        assert tasks.list() == ()
    assert error.startswith("Error: Background work is not available here: nobody would be told when it ends.")


async def test_it_returns_at_once_and_the_task_can_be_seen_by_then(stage: Stage) -> None:  # S1.6
    told, door = Told(), Door()
    async with Tasks(notify=told) as tasks:
        crew = Subagents(scout(stage, door.before("found")), tasks=tasks)
        result = await play(stage, crew, {**LATER, "description": "a look"})
        message = "Sub-agent 'scout' works in the background as task bg-1. You will be told when it ends."
        facts = {"task_id": "bg-1", "description": "a look", "status": "running"}
        assert read(result) == {**facts, "message": message}
        info = tasks.get("bg-1")
        assert (info.kind, info.agent, info.description, info.status) == ("agent", "scout", "a look", "running")
        door.opened.set()
        await tasks.wait()
        info = tasks.get("bg-1")
    assert (info.status, info.result, info.usage.requests) == ("completed", "found", 1)
    assert told.ids == ["bg-1"]
    assert "<result>found</result>" in told.notes[0][0]


async def test_the_tools_own_recipient_is_told(stage: Stage, told: Told) -> None:  # S1.6
    others = Told()
    async with Tasks(notify=others) as tasks:
        await play(stage, Subagents(scout(stage), notify=told), LATER, runtime=Runtime(tasks=tasks))
        await tasks.wait()
    assert (len(told.notes), len(others.notes)) == (1, 0)


async def test_a_chat_is_told_through_its_follow_ups(stage: Stage, door: Door) -> None:  # S1.6
    crew = Subagents(scout(stage, door.before("found")))
    model = stage.model([call("subagent", LATER, id="a"), "started", "I read it."])
    async with (
        Tasks() as tasks,
        Chat(Agent(name="lead", model=model, tools=[crew]), runtime=Runtime(tasks=tasks)) as chat,
    ):
        assert (await chat.prompt("Go.")).unwrap() == "started"
        door.opened.set()
        await tasks.wait()
        assert len(chat.state.follow_ups) == 1
        assert (await chat.continue_()).unwrap() == "I read it."
    [text] = stage.texts(3)
    assert text.startswith("<background-task-completed>")
    assert "<result>found</result>" in text


async def test_a_failure_in_the_background_fails_the_task_with_its_words(stage: Stage, told: Told) -> None:  # S1.6
    async with Tasks(notify=told) as tasks:
        await play(stage, Subagents(scout(stage, say("No.", stop_reason="refusal")), tasks=tasks), LATER)
        await tasks.wait()
    [info] = told.infos
    assert info.status == "failed"
    assert "Sub-agent 'scout' failed (turns=1 tools=0): MODEL_REFUSED" in (info.error or "")


async def test_it_outlives_the_run_its_deadline_and_its_signal(stage: Stage, door: Door) -> None:  # S1.6
    abort = Abort()
    async with Tasks(notify=Told()) as tasks:
        crew = Subagents(scout(stage, door.before("found")), tasks=tasks)
        await run(lead(stage, crew, LATER, limits=Limits(seconds=30)), "Go.", abort=abort)
        abort.abort()
        door.opened.set()
        await tasks.wait()
        assert tasks.get("bg-1").status == "completed"


async def test_stopping_the_task_kills_it(stage: Stage, told: Told) -> None:  # S1.6, S16.6
    async with Tasks(notify=told) as tasks:
        await play(stage, Subagents(scout(stage, hang), tasks=tasks), LATER)
        assert tasks.stop("bg-1")
        await tasks.wait()
    assert [info.status for info in told.infos] == ["killed"]


async def test_its_tokens_are_still_those_of_the_budget_above_and_its_usage_is_its_tasks(stage: Stage) -> None:
    budget = Budget(tokens=10_000, scope="day")
    door = Door()
    async with Tasks(notify=Told()) as tasks:
        crew = Subagents(scout(stage, door.before("found"), settings=SHORT), tasks=tasks)
        result = succeeded(await play(stage, crew, LATER, runtime=Runtime(budget=budget), settings=SHORT))
        door.opened.set()
        await tasks.wait()
        assert tasks.get("bg-1").usage.total_tokens == 15
    assert (existing(result.metadata.usage).requests, result.metadata.children) == (2, ())
    assert budget.used_tokens == 45


async def test_the_listeners_of_the_run_hear_it_too(stage: Stage, recorder: Recorder) -> None:  # S1.8
    await detached(stage, Subagents(scout(stage)), LATER, recorder)
    runs = [(event.path, event.mode) for event in recorder.of(RunStarted)]
    assert runs == [(("lead",), None), (("lead", "scout#1"), "background")]


async def test_messages_to_the_task_are_read_before_its_next_model_call(stage: Stage, door: Door) -> None:  # S1.6
    searching = Agent(name="scout", model=stage.model([call("wait", id="a"), "found more"]), tools=[door.tool()])
    async with Tasks(notify=Told()) as tasks:
        await play(stage, Subagents(searching, tasks=tasks), LATER)
        await door.reached.wait()
        assert tasks.message("bg-1", "Also the cellar.") == "queued"
        door.opened.set()
        await tasks.wait()
        assert (tasks.get("bg-1").result, tasks.get("bg-1").undelivered) == ("found more", ())
    assert transcript(stage.messages(stage.n_requests - 1))[-1] == ("user", "#a: waited", "Also the cellar.")


async def test_a_message_that_comes_with_the_last_answer_starts_one_more_turn(stage: Stage) -> None:  # S16.6
    """Each turn has a part of the journal for itself."""
    door, journal = Door(), InMemoryJournal()
    async with Tasks(notify=Told()) as tasks:
        crew = Subagents(scout(stage, door.before("found"), "and the cellar"), tasks=tasks)
        await play(stage, crew, LATER, runtime=Runtime(journal=journal))
        await door.reached.wait()
        tasks.message("bg-1", "Also the cellar.")
        door.opened.set()
        await tasks.wait()
        info = tasks.get("bg-1")
    assert (info.result, info.undelivered, info.usage.requests) == ("and the cellar", (), 2)
    assert transcript(stage.messages(stage.n_requests - 1))[-1] == ("user", "Also the cellar.")
    turns = "attempt/1/iteration/1/call/c1/background"
    assert {key for key in journal.finished if key.startswith(turns) and key.endswith("/model")} == {
        f"{turns}/{turn}/attempt/1/iteration/1/model" for turn in (0, 1)
    }


async def test_its_output_holds_calls_and_messages(stage: Stage) -> None:  # S1.6
    class Kept(StringIO):
        def close(self) -> None:
            if not self.closed:
                lines.extend(self.getvalue().splitlines())
            super().close()

    def opened(id: str, subject: str) -> tuple[Writer, str]:
        names.append((id, subject))
        return Kept(), "out.jsonl"

    lines, names = list[str](), list[tuple[str, str]]()
    crew = Subagents(scout(stage, call("look", where="x" * 99, id="a"), "found"))
    crew.background_output = opened
    info = await detached(stage, crew, LATER)
    assert names == [("bg-1", "scout")]
    assert (info.output_path, info.n_calls) == ("out.jsonl", 1)
    records = [from_json(line) for line in lines]
    assert [record["role"] for record in records if "role" in record] == ["user", "assistant", "user", "assistant"]
    [called] = [record["text"] for record in records if "role" not in record]
    assert called == '[tool] look({"where":"' + "x" * 50 + "…)"


async def test_an_output_that_cannot_be_opened_fails_the_task_and_asks_no_model(stage: Stage) -> None:  # S1.6, S1.9
    broken = raising(OSError("disk full"))
    assert (await detached(stage, Subagents(scout(stage), background_output=broken), LATER)).status == "failed"
    assert stage.n_requests == 2


async def test_an_unknown_agent_and_a_wrong_depth_are_told_before_anything_starts(stage: Stage) -> None:  # S1.6
    async with Tasks(notify=Told()) as tasks:
        crew = Subagents(scout(stage), tasks=tasks)
        [error] = errors(await play(stage, crew, {**LATER, "agent": "nobody"}))
        assert error == "Error: There is no sub-agent 'nobody'. There are: scout."
        assert tasks.list() == ()


async def test_depth_rises_in_the_background_too() -> None:  # S1.6, S16.11
    told: list[str] = []

    @tool
    async def depth(context: ToolContext) -> int:
        depths.append(context.depth)
        return context.depth

    depths: list[int] = []
    arguments = {"agent": "a", "task": "x", "background": True}
    async with Tasks(notify=Told()) as tasks:
        agent = Agent(name="a", model=echo(), tools=[depth])
        for _ in range(7):
            answers = [[call("depth", id="d"), call("subagent", arguments, id="s")], "done"]
            agent = Agent(name="a", model=ScriptedModel(answers), tools=[depth, Subagents(agent, tasks=tasks)])
        await run(agent, "Go.", on_event=lambda event: told.append(str(event)))
        await tasks.wait()
    assert depths == [0, 1, 2, 3, 4, 5]
    assert any("at depth 6" in text for text in told)


@dataclass
class Spawner:
    """Makes members, in name only."""

    requests: list[TeamSpawnRequest] = field(default_factory=list[TeamSpawnRequest])
    error: Exception | None = None

    async def spawn(self, request: TeamSpawnRequest) -> TeamSpawnResult:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        team = request.team_name or "crew"
        return TeamSpawnResult(task_id="tm-1", agent_id=f"{request.name}@{team}", name=request.name, team_name=team)


JOIN = {"agent": "scout", "task": "look", "team_name": "night", "description": "d", "color": "red"}


async def test_a_team_call_asks_the_spawner_once(stage: Stage) -> None:  # S1.7
    spawner, agent = Spawner(), scout(stage)
    result = await play(stage, Subagents(agent, team=spawner), JOIN)
    message = "'scout' is a member of team 'night' now, and works by itself."
    facts = {"task_id": "tm-1", "agent_id": "scout@night", "status": "running"}
    assert read(result) == {**facts, "message": message}
    wanted = TeamSpawnRequest(agent=agent, prompt="look", name="scout", team_name="night", description="d", color="red")
    assert spawner.requests == [wanted]


async def test_a_name_alone_joins_the_default_team(stage: Stage) -> None:  # S1.7, S1.9
    spawner = Spawner()
    crew = Subagents(scout(stage))
    crew.team = spawner
    result = await play(stage, crew, {"agent": "scout", "task": "look", "name": "ann"})
    assert read(result)["message"] == "'ann' is a member now, and works by itself."
    assert [(request.name, request.team_name) for request in spawner.requests] == [("ann", "")]


async def test_another_model_travels_in_the_request(stage: Stage) -> None:  # S1.2, S1.7
    model, spawner = ScriptedModel([]), Spawner()
    crew = Subagents(scout(stage), team=spawner, create_model=lambda name: model)
    await play(stage, crew, {**JOIN, "model": "fast"})
    assert [request.model for request in spawner.requests] == [model]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({**JOIN, "agent": "nobody"}, "Error: There is no sub-agent 'nobody'."),
        ({**JOIN, "background": True}, "Error: name and team_name cannot be combined with background."),
    ],
)
async def test_a_wrong_team_call_asks_no_spawner(stage: Stage, arguments: dict[str, Any], why: str) -> None:  # S1.7
    spawner = Spawner()
    [error] = errors(await play(stage, Subagents(scout(stage), team=spawner), arguments))
    assert error.startswith(why)
    assert spawner.requests == []


async def test_without_a_spawner_there_is_no_team(stage: Stage) -> None:  # S1.7
    [error] = errors(await play(stage, Subagents(scout(stage)), JOIN))
    assert error.startswith("Error: There is no team to join. Leave out name and team_name.")


async def test_what_the_spawner_raises_is_told(stage: Stage) -> None:  # S1.7
    spawner = Spawner(error=TeamError("The name is taken."))
    [error] = errors(await play(stage, Subagents(scout(stage), team=spawner), JOIN))
    assert error == "Error: 'scout' cannot join the team: The name is taken."
    with pytest.raises(SubagentMisused) as raised:
        await Subagents(scout(stage), team=spawner).execute(JOIN)
    assert isinstance(raised.value.__cause__, TeamError)


async def test_depth_holds_for_teams() -> None:  # S16.11
    spawner = Spawner()
    agent = Agent(name="a", model=echo(), tools=[look])
    for level in range(7):
        arguments = {"agent": "a", "task": "x", **({"team_name": "t"} if level == 0 else {})}
        model = ScriptedModel([call("subagent", arguments, id="s"), "done"])
        agent = Agent(name="a", model=model, tools=[Subagents(agent, team=spawner)])
    await run(agent, "Go.")
    assert spawner.requests == []
