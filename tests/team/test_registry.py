"""Names: who may have one, and what becomes of it."""

from __future__ import annotations

import re

import pytest

from journeyman import Agent, Team
from journeyman.errors import TeamError
from journeyman.events import Identity
from journeyman.models.scripted import Scripted, call
from journeyman.team import TeamSpawner
from journeyman.team.members import LEADER, current_member
from journeyman.tools.tools import tool
from tests.support.recorder import Recorder
from tests.team.players import join, lives, member_of, until_idle, wanted


async def test_the_leader_is_there_from_the_beginning() -> None:
    async with Team("crew") as team:
        assert (team.send("*", "Hello."), team.roster().members, team.roster().n_waiting) == ((), (), 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (LEADER, "The name 'team-lead' is the leader's. Give the member another one."),
        ("a b", "'a b' is no name for a member. Use 1 to 64 letters, digits, '_' or '-'."),
        ("ada", "The name 'ada' is taken in team 'crew'. Names there are: ['ada', 'team-lead']."),
    ],
)
async def test_names_that_no_member_can_have_are_refused_and_leave_nothing_behind(name: str, text: str) -> None:
    recorder = Recorder()
    async with Team("crew", on_event=recorder) as team:
        await join(team, "ada", ["Done."])
        agent = Agent(name="scout", model=Scripted(["Done."]))
        with pytest.raises(TeamError, match=re.escape(text)):
            await team.spawn(wanted(agent, name=name))
        await until_idle(team)
        assert [member.name for member in team.roster().members] == ["ada"]


async def test_a_member_has_the_name_of_its_agent_if_no_other_is_given() -> None:
    async with Team("crew") as team:
        made = await team.spawn(wanted(member_of(["Done."], name="scout")))
        assert (made.name, made.agent_id, made.team_name, made.incarnation) == ("scout", "scout@crew", "crew", 1)
        assert made.task_id == team.member("scout").task_id == "tm-1"


async def test_a_team_is_renamed_only_while_it_has_no_members() -> None:
    async with Team("crew", description="old") as team:
        team.rename("gang", "new")
        team.rename("")
        assert (team.name, team.roster().description) == ("gang", "new")
        await join(team, "ada", ["Done."])
        with pytest.raises(TeamError, match=r"Team 'gang' has members: \['ada'\]. Rename it while it has none."):
            team.rename("crew")
        await team.shutdown()
        team.rename("crew")
        assert team.name == "crew"
        with pytest.raises(TeamError, match="'a b' is no name for a team"):
            team.rename("a b")


async def test_a_team_without_a_name_takes_that_of_the_first_request() -> None:
    async with Team() as team:
        made = await team.spawn(wanted(member_of(["Done."]), team_name="crew"))
        assert made.agent_id == "scout@crew"
        with pytest.raises(TeamError, match=r"There is no team 'gang'\. The team is 'crew'; leave the name out"):
            await team.spawn(wanted(member_of(["Done."]), name="max", team_name="gang"))


async def test_a_deleted_team_does_nothing_any_more() -> None:
    async with Team("crew") as team:
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
    team = Team("crew")
    with pytest.raises(RuntimeError, match=r"The team is not open\."):
        await join(team, "ada", ["Done."])
    async with team:
        pass
    with pytest.raises(RuntimeError, match="entered before"):
        await team.__aenter__()


async def test_a_name_is_free_again_when_its_member_is_gone_and_the_next_is_another_incarnation() -> None:
    recorder = Recorder()
    async with Team("crew", on_event=recorder) as team:
        await join(team, "ada", ["Done."])
        await team.shutdown("ada")
        made = await join(team, "ada", ["Done."])
        assert made.incarnation == 2
    assert lives(recorder.events, "ada")[-2:] == [(2, "stopping"), (2, "gone")]


async def test_an_agent_that_takes_no_text_is_refused() -> None:
    async with Team("crew") as team:
        agent = Agent(name="counter", model=Scripted(["1"]), input=int)
        with pytest.raises(TeamError, match="takes <class 'int'>, but the prompts of a member are texts"):
            await team.spawn(wanted(agent))


async def test_a_member_without_anything_to_do_is_refused() -> None:
    async with Team("crew") as team:
        with pytest.raises(TeamError, match="The prompt is blank"):
            await team.spawn(wanted(member_of(["Done."]), " "))


async def test_who_a_member_is_can_be_asked_in_its_tools_only() -> None:
    seen: list[object] = []

    @tool(thread=False)
    def look() -> str:
        """Look."""
        member = current_member.get()
        assert member is not None
        assert member.task is not None
        seen.append(member.task.info.identity)
        return "looked"

    async with Team("crew") as team:
        await team.spawn(wanted(member_of([call("look"), "Done."], tools=[look]), name="ada"))
        await until_idle(team)
    assert seen == [Identity("ada", "crew")]
    assert current_member.get() is None


def test_a_team_is_a_spawner() -> None:
    spawner: TeamSpawner = Team()
    assert spawner.spawn
