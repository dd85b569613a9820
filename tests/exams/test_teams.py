"""The exam of teams: what a leader and its members read of the team's tools is the same wherever the members live."""

import re
from collections.abc import Sequence
from typing import Any

from journeyman import Agent, Chat, Subagents, Success, Team
from journeyman.testing.scripted import FunctionModel, call
from journeyman.types import ToolUse
from tests.durable.processes import Stage
from tests.play import following, texts, virtual_clock

_ID = re.compile(r'"task_id":"[a-z]+-[0-9a-f]+"')


def makes(name: str, agent: str = "scout") -> ToolUse:
    return call("subagent", agent=agent, name=name, task="Begin.", description="looks", id=name or "none")


def writes(to: str, text: str = "Hello.") -> ToolUse:
    return call("send_message", to=to, message=text, id=f"to-{to}-{len(text)}")


async def read(place: Stage | None, *calls: ToolUse) -> Sequence[str]:
    """Return what a leader reads of calls that it makes one after the other."""
    team = Team()
    tools = [*team.tools()]
    scout = Agent(name="scout", description="Looks.", model=FunctionModel(lambda request: "I wait."))

    model = following(*calls, "Done.", repeat=True)
    lead: Agent[Any, Any] = Agent(name="lead", model=model, tools=[Subagents(scout, team=team), *tools])
    if place is not None:
        result = await place.life(lead, suspend_after_s=0.02)
    else:
        async with team, Chat(lead) as chat:
            result = await chat.prompt("Go.")
    assert isinstance(result, Success), result
    return [_ID.sub('"task_id":"…"', text) for text in texts(result)]


MEMBER = (
    '{"task_id":"…","agent_id":"ada@team","status":"running","message":"\'ada\' is a member now, and works by itself."}'
)


@virtual_clock
async def test_a_member_has_a_name_of_its_own_that_can_be_one(place: Stage | None) -> None:
    members = map(makes, ("ada", "ada", "team-lead", "no name!"))
    first, taken, leads, wrong, roster = await read(place, *members, call("team_roster", id="r"))
    assert first == MEMBER
    assert taken.startswith("Error: 'ada' cannot join the team: The name 'ada' is taken")
    why = "The name 'team-lead' is the leader's. Give the member another one."
    assert leads == f"Error: 'team-lead' cannot join the team: {why}"
    why = "'no name!' cannot be the name of a member. Use 1 to 64 letters, digits, '_' or '-'."
    assert wrong == f"Error: 'no name!' cannot join the team: {why}"
    assert [line.split()[1] for line in roster.splitlines()[1:]] == ["ada"], "who was refused left nothing behind"


@virtual_clock
async def test_mail_goes_to_who_is_there_and_to_nobody_else(place: Stage | None) -> None:
    mails = [writes("ada"), writes("*"), writes("bob"), writes("team-lead"), writes("ada", " \n")]
    there = "Send to one of ['ada', 'team-lead'], or to '*' for all members."
    assert await read(place, writes("*", "Anybody?"), makes("ada"), *mails) == [
        "Nobody else is there, so nothing was sent.",
        MEMBER,
        *["Sent to ada."] * 2,
        f"Error: 'bob' is unknown. {there}",
        f"Error: 'team-lead' is the sender. {there}",
        "Error: The message is blank: there is nothing to send.",
    ]


@virtual_clock
async def test_the_roster_shows_who_is_there_and_what_each_does(place: Stage | None) -> None:
    empty, _, _, full = await read(
        place, call("team_roster", id="r1"), makes("ada"), writes("ada"), call("team_roster", id="r2")
    )
    assert empty == "team team, led by team-lead\n- no members"
    lead, member = full.splitlines()
    assert lead == "team team, led by team-lead"
    assert re.fullmatch(r"- ada \(scout, looks\): (working|idle|waits for a worker)([,;] .*)?", member), member


@virtual_clock
async def test_who_was_let_go_reads_no_more_and_its_name_is_free(place: Stage | None) -> None:
    lets_go = [call("team_shutdown", name=name, id=f"go-{name}") for name in ("bob", "ada")]
    nobody, gone = (await read(place, makes("ada"), *lets_go))[1:]
    assert nobody == "Error: There is no member 'bob' to let go. There are: ['ada']."
    assert gone in ("ended: ada", "Ends after its turn: ada")
