"""Who is in a team: who may have a name, how members are let go, and what is left of them."""

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack

import pytest

from journeyman import Agent, Chat, Tasks, Team
from journeyman.errors import TeamError
from journeyman.events import Identity, ToolFinished
from journeyman.inbox.inbox import current_conversation
from journeyman.team import ShutdownResult
from journeyman.team.members import Member
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.tools.tools import AnyTool, tool
from tests.play import Door, Recorder, cancelled, existing, virtual_clock
from tests.team.members import (
    Crew,
    done_by,
    fates,
    heard,
    join,
    lives,
    mail_read,
    member_of,
    until_idle,
    wanted,
    whatever_happens,
)


async def test_the_leader_is_there_from_the_beginning() -> None:
    async with Crew() as team:
        assert (team.send("*", "Hello."), team.roster().members, team.roster().n_waiting) == ((), (), 0)


async def test_a_member_that_cannot_begin_leaves_nothing_behind() -> None:
    tasks, team = Tasks(), None
    async with AsyncExitStack() as stack:
        async with tasks:
            team = await stack.enter_async_context(Crew(tasks=tasks))
        with pytest.raises(RuntimeError, match="async with Tasks"):
            await join(team, "ada", ["Done."])
        assert (team.roster().members, tasks.list()) == ((), ())
        team.rename("others")  # which no team with members can


async def test_a_member_has_the_name_of_its_agent_if_no_other_is_given() -> None:
    async with Crew() as team:
        made = await team.spawn(wanted(member_of(["Done."], name="scout")))
        assert (made.name, made.agent_id, made.team_name, made.incarnation) == ("scout", "scout@crew", "crew", 1)
        assert made.task_id == team.member("scout").task_id == "tm-1"


async def test_a_team_is_renamed_only_while_it_has_no_members() -> None:
    async with Crew(description="old") as team:
        team.rename("gang", "new")
        team.rename("")
        assert (team.name, team.roster().description) == ("gang", "new")
        await join(team, "ada", ["Done."])
        with pytest.raises(TeamError, match=r"Team 'gang' has members: \['ada'\]. Rename it while it has none."):
            team.rename("crew")
        await team.shutdown()
        team.rename("crew")
        assert team.name == "crew"
        with pytest.raises(TeamError, match="'a b' cannot be the name of a team"):
            team.rename("a b")


async def test_a_team_without_a_name_takes_that_of_the_first_request() -> None:
    async with Team() as team:
        made = await team.spawn(wanted(member_of(["Done."]), team_name="crew"))
        assert made.agent_id == "scout@crew"
        with pytest.raises(TeamError, match=r"There is no team 'gang'\. The team is 'crew'; leave the name out"):
            await team.spawn(wanted(member_of(["Done."]), name="max", team_name="gang"))


async def test_a_deleted_team_does_nothing_any_more() -> None:
    async with Crew() as team:
        await join(team, "ada", ["Done."])
        await team.delete()
        assert [member.liveness for member in team.roster().members] == ["gone"]
        for act in (team.delete, team.receive, lambda: join(team, "max", ["Done."])):
            with pytest.raises(TeamError):
                await act()
        for send in (lambda: team.send("*", "Hello."), lambda: team.rename("gang")):
            with pytest.raises(TeamError, match="There is no team 'crew' any more: it was deleted"):
                send()


async def test_a_team_is_open_once() -> None:
    team = Crew()
    with pytest.raises(RuntimeError, match=r"The team is not open\."):
        await join(team, "ada", ["Done."])
    async with team:
        pass
    with pytest.raises(RuntimeError, match="entered before"):
        await team.__aenter__()


async def test_a_name_is_free_again_when_its_member_is_gone_and_the_next_is_another_incarnation() -> None:
    recorder = Recorder()
    async with Crew(on_event=recorder) as team:
        await join(team, "ada", ["Done."])
        await team.shutdown("ada")
        made = await join(team, "ada", ["Done."])
        assert made.incarnation == 2
    assert lives(recorder.events, "ada")[-2:] == [(2, "stopping"), (2, "gone")]


async def test_an_agent_that_takes_no_text_or_has_nothing_to_do_is_refused() -> None:
    async with Crew() as team:
        with pytest.raises(TeamError, match="takes <class 'int'>, but the prompts of a member are texts"):
            await team.spawn(wanted(Agent(name="counter", model=ScriptedModel(["1"]), input=int)))
        with pytest.raises(TeamError, match="The prompt is blank"):
            await team.spawn(wanted(member_of(["Done."]), " "))


async def test_who_a_member_is_can_be_asked_in_its_tools_only() -> None:
    seen: list[object] = []

    @tool(thread=False)
    def look() -> str:
        member = current_conversation.get().member
        seen.append(isinstance(member, Member) and existing(member.task).info.identity)
        return "looked"

    async with Crew() as team:
        await done_by(team, "ada", [call("look"), "Done."], look)
    assert seen == [Identity("ada", "crew")]
    assert current_conversation.get().member is None


async def timed(work: Awaitable[ShutdownResult]) -> tuple[ShutdownResult, float]:
    """Return how members ended, and how many seconds that took."""
    clock = asyncio.get_running_loop().time
    began = clock()
    return await work, clock() - began


def sleeping(seconds: float) -> AnyTool:
    @tool
    async def sleep() -> str:
        await asyncio.sleep(seconds)
        return "slept"

    return sleep


async def test_an_idle_member_ends_at_once_without_another_turn() -> None:
    model = ScriptedModel(["One."])
    async with Crew() as team:
        await done_by(team, "ada", model)
        assert await team.shutdown("ada") == ShutdownResult(finished=("ada",))
        assert len(model.requests) == 1


@virtual_clock
async def test_a_working_member_is_asked_and_may_end_its_turn(recorder: Recorder) -> None:
    model = ScriptedModel([call("sleep"), "I stop here."])
    async with Crew(on_event=recorder) as team:
        await join(team, "ada", model, sleeping(10.0))
        await asyncio.sleep(1.0)
        assert await timed(team.shutdown("ada", grace_s=30.0)) == (ShutdownResult(finished=("ada",)), 9.0)
        assert team.member("ada").last_text == "I stop here."
    asked = "Please finish: you will be stopped in 30 seconds. Your last words are kept."
    assert mail_read(model.requests[1])[-1] == ("team-lead", asked)
    assert lives(recorder.events, "ada") == [(1, "working"), (1, "stopping"), (1, "gone")]
    assert list(fates(recorder).values()) == [["delivered"]]


@virtual_clock
async def test_a_member_that_does_not_end_is_left_to_itself_and_its_name_is_free() -> None:
    released = asyncio.Event()

    @tool
    async def hang() -> str:
        await whatever_happens(released)
        return "released"

    async with Tasks() as tasks, Crew(tasks=tasks) as team:
        await join(team, "ada", [call("hang"), "Done."], hang)
        await asyncio.sleep(1.0)
        assert await timed(team.shutdown("ada", grace_s=5.0, force_s=3.0)) == (ShutdownResult(abandoned=("ada",)), 8.0)
        assert team.member("ada").error == "ada was stopped, and does not end."
        assert (await join(team, "ada", ["Here I am."])).incarnation == 2
        assert await heard(team) == ("idle", "Here I am.")
        released.set()  # the end of the first says nothing of the second
        await asyncio.sleep(1.0)
        assert (team.member("ada").liveness, team.member("ada").incarnation) == ("idle", 2)


@virtual_clock
async def test_a_shutdown_of_an_earlier_member_leaves_a_later_one_alone() -> None:
    async with Crew() as team:
        first = await done_by(team, "ada", ["Done."])
        await team.shutdown("ada")
        await done_by(team, "ada", ["Done."])
        assert await team.shutdown("ada", incarnation=first.incarnation) == ShutdownResult()
        assert team.member("ada").liveness == "idle"


@virtual_clock
async def test_a_shutdown_that_goes_on_does_not_stop_a_member_that_came_meanwhile() -> None:
    async with Crew() as team:
        await join(team, "ada", [call("sleep"), "Done."], sleeping(3.0))
        await join(team, "max", [call("sleep")], sleeping(1_000.0))
        await asyncio.sleep(1.0)
        ending = asyncio.create_task(team.shutdown(grace_s=10.0))
        await asyncio.sleep(5.0)
        assert team.member("ada").liveness == "gone"
        assert (await join(team, "ada", ["I am new."])).incarnation == 2
        assert await ending == ShutdownResult(finished=("ada",), stopped=("max",))
        assert team.member("ada").liveness == "idle"


@virtual_clock
async def test_all_members_are_let_go_at_the_same_time() -> None:
    async with Crew() as team:
        for name in ("ada", "max", "eve"):
            await join(team, name, [call("sleep")], sleeping(1_000.0))
        await asyncio.sleep(1.0)
        assert await timed(team.shutdown(grace_s=5.0)) == (ShutdownResult(stopped=("ada", "eve", "max")), 5.0)


@virtual_clock
async def test_leaving_the_team_stops_everybody(door: Door) -> None:
    async with Tasks() as tasks:
        async with Crew(tasks=tasks) as team:
            made = await join(team, "ada", [door.before("Done.")])
            await door.reached.wait()
        assert (team.member("ada").liveness, tasks.get(made.task_id).liveness) == ("gone", "gone")


@virtual_clock
async def test_leaving_a_team_that_is_cancelled_leaves_no_member_behind() -> None:
    async with Tasks() as tasks:

        async def work() -> None:
            async with Crew(tasks=tasks) as team:
                await join(team, "ada", [call("sleep")], sleeping(1_000.0))
                await asyncio.sleep(1.0)
                await team.shutdown(grace_s=500.0)

        working = asyncio.create_task(work())
        await asyncio.sleep(2.0)
        working.cancel()
        await asyncio.sleep(0)
        await cancelled(working)
        await tasks.wait()
        assert [info.status for info in tasks.list()] == ["killed"]


@virtual_clock
async def test_the_leaders_model_lets_members_go(recorder: Recorder) -> None:
    async with Crew(on_event=recorder) as team:
        await join(team, "ada", ["Done."])
        await join(team, "max", [call("sleep")], sleeping(1_000.0))
        await until_idle(team, "ada")
        script = [call("team_shutdown", name="*"), call("team_shutdown", name="*"), "They are gone."]
        async with Chat(Agent(name="lead", model=ScriptedModel(script), tools=team.tools())) as chat:
            chat.subscribe(recorder)
            await chat.prompt("Let them go.")
    ended = [event.tool_result for event in recorder.of(ToolFinished) if event.path == ("lead",)]
    assert ended == ["ended: ada; stopped: max", "Nobody was there."]


async def test_a_member_cannot_let_members_go(recorder: Recorder) -> None:
    async with Crew(on_event=recorder) as team:
        own = team.tools()[2]
        script = [call("team_shutdown", name="*"), call("end"), "Done."]

        @tool
        async def end() -> str:
            return str(await team.shutdown())

        await done_by(team, "ada", script, own, end)
    assert [event.tool_result for event in recorder.of(ToolFinished)] == [
        "Error: Only team-lead lets members go. Send it a message instead.",
        "Error: 'ada' cannot wait for its own end. Let 'team-lead' do it.",
    ]


async def test_a_name_that_nobody_ever_had_is_an_error_and_lets_nobody_go() -> None:
    async with Crew() as team:
        await done_by(team, "ada", ["Done."])
        with pytest.raises(TeamError, match=r"There is no member 'ghost' to let go. There are: \['ada'\]."):
            await team.shutdown("ada", "ghost")
        assert team.member("ada").liveness == "idle"
        await team.shutdown("ada")
        assert await team.shutdown("ada") == ShutdownResult()
        with pytest.raises(KeyError, match="There is no member 'nobody'"):
            team.member("nobody")
        with pytest.raises(TeamError):
            team.send("nobody", "Hello.")


@virtual_clock
async def test_a_member_that_is_let_go_before_its_first_step_leaves_nothing_behind(recorder: Recorder) -> None:
    async with Tasks() as tasks, Crew(tasks=tasks, on_event=recorder) as team:
        made = await join(team, "ada", ["Done."])
        team.send("ada", "Hello.")
        assert tasks.stop(made.task_id)
        assert await heard(team) == ("gone", "ada was stopped.")
        assert (await join(team, "ada", ["Done."])).incarnation == 2
    assert fates(recorder)["m-1"] == ["unread"]
    assert lives(recorder.events, "ada")[0] == (1, "gone")
