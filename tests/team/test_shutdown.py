"""How members are let go: asked, then stopped, then left to themselves; always within the time that was given."""

from __future__ import annotations

import asyncio

import pytest

from journeyman import Agent, Chat, Tasks, Team
from journeyman.errors import TeamError
from journeyman.events import ToolFinished
from journeyman.models.scripted import Scripted, call
from journeyman.team import Shutdown
from journeyman.tools.tools import AnyTool, tool
from tests.chat.players import Door
from tests.support.clock import virtual_clock
from tests.support.recorder import Recorder
from tests.team.players import fates, join, lives, mail_read, member_of, until_idle, wanted


def sleeping(seconds: float) -> AnyTool:
    @tool
    async def sleep() -> str:
        """Sleep."""
        await asyncio.sleep(seconds)
        return "slept"

    return sleep


async def test_an_idle_member_ends_at_once_without_another_turn() -> None:
    model = Scripted(["One."])
    async with Team("crew") as team:
        await team.spawn(wanted(member_of(model), name="ada"))
        await until_idle(team)
        assert await team.shutdown("ada") == Shutdown(finished=("ada",))
        assert len(model.requests) == 1


@virtual_clock
async def test_a_working_member_is_asked_and_may_end_its_turn() -> None:
    recorder = Recorder()
    model = Scripted([call("sleep"), "I stop here."])
    clock = asyncio.get_running_loop().time
    async with Team("crew", on_event=recorder) as team:
        await team.spawn(wanted(member_of(model, tools=[sleeping(10.0)]), name="ada"))
        await asyncio.sleep(1.0)
        began = clock()
        assert await team.shutdown("ada", grace_s=30.0) == Shutdown(finished=("ada",))
        assert clock() - began == 9.0
        assert team.member("ada").last_text == "I stop here."
    asked = "Please come to an end: you will be stopped in 30 seconds. Your last words are kept."
    assert mail_read(model.requests[1])[-1] == ("team-lead", asked)
    assert lives(recorder.events, "ada") == [(1, "working"), (1, "stopping"), (1, "gone")]
    assert list(fates(recorder).values()) == [["delivered"]]


@virtual_clock
async def test_a_member_that_works_on_is_stopped_when_the_grace_is_over() -> None:
    clock = asyncio.get_running_loop().time
    async with Tasks() as tasks, Team("crew", tasks=tasks) as team:
        made = await team.spawn(wanted(member_of([call("sleep")], tools=[sleeping(1_000.0)]), name="ada"))
        await asyncio.sleep(1.0)
        began = clock()
        assert await team.shutdown("ada", grace_s=5.0) == Shutdown(stopped=("ada",))
        assert clock() - began == 5.0
        await tasks.wait()
        assert tasks.get(made.task_id).status == "killed"


@virtual_clock
async def test_a_member_that_does_not_end_is_left_to_itself_and_its_name_is_free() -> None:
    released = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang, whatever happens."""
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return "released"

    clock = asyncio.get_running_loop().time
    async with Tasks() as tasks, Team("crew", tasks=tasks) as team:
        await team.spawn(wanted(member_of([call("hang"), "Done."], tools=[hang]), name="ada"))
        await asyncio.sleep(1.0)
        began = clock()
        assert await team.shutdown("ada", grace_s=5.0, force_s=3.0) == Shutdown(abandoned=("ada",))
        assert clock() - began == 8.0
        assert team.member("ada").error == "ada was stopped, and does not end."
        assert (await join(team, "ada", ["Here I am."])).incarnation == 2
        (mail,) = await team.receive()
        assert mail.text == "Here I am."
        released.set()  # the end of the first says nothing of the second
        await asyncio.sleep(1.0)
        assert (team.member("ada").liveness, team.member("ada").incarnation) == ("idle", 2)


@virtual_clock
async def test_a_shutdown_of_an_earlier_member_leaves_a_later_one_alone() -> None:
    async with Team("crew") as team:
        first = await join(team, "ada", ["Done."])
        await until_idle(team)
        await team.shutdown("ada")
        await join(team, "ada", ["Done."])
        await until_idle(team)
        assert await team.shutdown("ada", incarnation=first.incarnation) == Shutdown()
        assert team.member("ada").liveness == "idle"


@virtual_clock
async def test_a_shutdown_that_goes_on_does_not_stop_a_member_that_came_meanwhile() -> None:
    async with Team("crew") as team:
        await team.spawn(wanted(member_of([call("sleep"), "Done."], tools=[sleeping(3.0)]), name="ada"))
        await team.spawn(wanted(member_of([call("sleep")], tools=[sleeping(1_000.0)]), name="max"))
        await asyncio.sleep(1.0)
        ending = asyncio.create_task(team.shutdown(grace_s=10.0))
        await asyncio.sleep(5.0)
        assert team.member("ada").liveness == "gone"
        assert (await join(team, "ada", ["I am new."])).incarnation == 2
        assert await ending == Shutdown(finished=("ada",), stopped=("max",))
        assert team.member("ada").liveness == "idle"


@virtual_clock
async def test_all_members_are_let_go_at_the_same_time() -> None:
    clock = asyncio.get_running_loop().time
    async with Team("crew") as team:
        for name in ("ada", "max", "eve"):
            await team.spawn(wanted(member_of([call("sleep")], tools=[sleeping(1_000.0)]), name=name))
        await asyncio.sleep(1.0)
        began = clock()
        assert (await team.shutdown(grace_s=5.0)).stopped == ("ada", "eve", "max")
        assert clock() - began == 5.0


@virtual_clock
async def test_leaving_the_team_stops_everybody() -> None:
    door = Door()
    async with Tasks() as tasks:
        async with Team("crew", tasks=tasks) as team:
            made = await join(team, "ada", [door.before("Done.")])
            await door.reached.wait()
        assert (team.member("ada").liveness, tasks.get(made.task_id).liveness) == ("gone", "gone")


@virtual_clock
async def test_leaving_a_team_that_is_cancelled_leaves_no_member_behind() -> None:
    async with Tasks() as tasks:

        async def work() -> None:
            async with Team("crew", tasks=tasks) as team:
                await team.spawn(wanted(member_of([call("sleep")], tools=[sleeping(1_000.0)]), name="ada"))
                await asyncio.sleep(1.0)
                await team.shutdown(grace_s=500.0)

        working = asyncio.create_task(work())
        await asyncio.sleep(2.0)
        working.cancel()
        await asyncio.sleep(0)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await tasks.wait()


@virtual_clock
async def test_the_leaders_model_lets_members_go() -> None:
    recorder = Recorder()
    async with Team("crew", on_event=recorder) as team:
        await join(team, "ada", ["Done."])
        await team.spawn(wanted(member_of([call("sleep")], tools=[sleeping(1_000.0)]), name="max"))
        await until_idle(team, "ada")
        script = [call("team_shutdown", name="*"), call("team_shutdown", name="*"), "They are gone."]
        async with Chat(Agent(name="lead", model=Scripted(script), tools=team.tools())) as chat:
            chat.subscribe(recorder)
            await chat.prompt("Let them go.")
    ended = [event.tool_result for event in recorder.of(ToolFinished)]
    assert ended == ["ended: ada; stopped: max", "Nobody was there."]


async def test_a_member_cannot_let_members_go() -> None:
    recorder = Recorder()
    async with Team("crew", on_event=recorder) as team:
        own = team.tools()[2]
        script = [call("team_shutdown", name="*"), call("end"), "Done."]

        @tool
        async def end() -> str:
            """End."""
            return str(await team.shutdown())

        await team.spawn(wanted(member_of(script, tools=[own, end]), name="ada"))
        await until_idle(team)
    assert [event.tool_result for event in recorder.of(ToolFinished)] == [
        "Error: Only team-lead lets members go. Send it a message instead.",
        "Error: 'ada' cannot wait for its own end. Let 'team-lead' do it.",
    ]


async def test_names_that_nobody_has_are_not_waited_for() -> None:
    async with Team("crew") as team:
        assert await team.shutdown("nobody") == Shutdown()
        with pytest.raises(KeyError, match="There is no member 'nobody'"):
            team.member("nobody")
        with pytest.raises(TeamError):
            team.send("nobody", "Hello.")


@virtual_clock
async def test_a_member_that_is_let_go_before_its_first_step_leaves_nothing_behind() -> None:
    recorder = Recorder()
    async with Tasks() as tasks, Team("crew", tasks=tasks, on_event=recorder) as team:
        made = await join(team, "ada", ["Done."])
        team.send("ada", "Hello.")
        assert tasks.stop(made.task_id)
        (mail,) = await team.receive()
        assert (mail.kind, mail.text) == ("gone", "ada was stopped.")
        assert (await join(team, "ada", ["Done."])).incarnation == 2
    assert fates(recorder)["m-1"] == ["unread"]
    assert lives(recorder.events, "ada")[0] == (1, "gone")
