"""Who plays in the tests of teams: members, and their mail."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

from journeyman import Agent, Message, Team, Text
from journeyman.events import Event, Listener, MailDelivered, MailReturned, MailSent, MemberChanged
from journeyman.model import Model, Request
from journeyman.team import TeamSpawnRequest, TeamSpawnResult
from journeyman.testing.scripted import Answer, Policy, ScriptedModel
from journeyman.tools.tools import AnyTool
from tests.play import Recorder

MAIL = re.compile(r'<team-message from="([^"]*)"(?: id="([^"]*)")?[^>]*>\n(.*?)\n</team-message>', re.DOTALL)


Played: TypeAlias = Sequence[Answer | Policy] | Model
"""A script, or whatever model is given."""


class Crew(Team):
    """A team that wakes a test when it changes."""

    def __init__(self, *, on_event: Listener | None = None, **options: Any) -> None:
        self.changed = asyncio.Event()

        def hear(event: Event) -> Any:  # noqa: ANN401 - what the listener gives
            if isinstance(event, MailSent | MemberChanged):
                self.changed.set()
            return on_event(event) if on_event is not None else None

        super().__init__("crew", on_event=hear, **options)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self


def member_of(answers: Played, *, name: str = "scout", tools: Sequence[AnyTool] = ()) -> Agent:
    """Return an agent that plays a script, or whatever model is given."""
    model = ScriptedModel(answers) if isinstance(answers, Sequence) else answers
    return Agent(name=name, model=model, tools=tools)


def wanted(agent: Agent[Any, Any], prompt: str = "Begin.", *, name: str = "", **more: Any) -> TeamSpawnRequest:
    """Return a request for a member."""
    return TeamSpawnRequest(agent=agent, prompt=prompt, name=name, **more)


async def join(team: Team, name: str, answers: Played, *tools: AnyTool) -> TeamSpawnResult:
    """Let a member of that name join that plays a script."""
    return await team.spawn(wanted(member_of(answers, tools=tools), name=name))


async def done_by(team: Crew, name: str, answers: Played, *tools: AnyTool) -> TeamSpawnResult:
    """Let a member join that plays a script, and wait until nobody has anything left to do."""
    return await turn_of(team, wanted(member_of(answers, tools=tools), name=name))


async def turn_of(team: Crew, request: TeamSpawnRequest) -> TeamSpawnResult:
    """Let a member join, and wait until nobody has anything left to do."""
    made = await team.spawn(request)
    await until_idle(team)
    return made


async def heard(team: Team) -> tuple[str, str]:
    """Return what the next mail to the leader is, and its text; it must be the only one."""
    (mail,) = await team.receive()
    return mail.kind, mail.text


def mail_in(message: Message) -> list[tuple[str, str]]:
    """Return the mail that is said in a message: who sent it, and the text."""
    texts = [block.text for block in message.content if isinstance(block, Text)]
    return [(found[1], found[3]) for text in texts for found in MAIL.finditer(text)]


def mail_read(request: Request) -> list[tuple[str, str]]:
    """Return all mail of the conversation that a request sends."""
    return [mail for message in request.messages if message.role == "user" for mail in mail_in(message)]


async def until_idle(team: Crew, *names: str) -> None:
    """Wait until these members, or all, have nothing left to do."""
    while {each.liveness for each in team.roster().members if not names or each.name in names} - {"idle", "gone"}:
        await team_changes(team)


async def read_by(team: Crew, name: str, text: str) -> None:
    """Send mail to a member, and wait until nobody has anything left to do."""
    team.send(name, text)
    await team_changes(team)
    await until_idle(team)


async def whatever_happens(released: asyncio.Event) -> None:
    """Wait for the event, and let no cancellation through."""
    while not released.is_set():
        try:
            await released.wait()
        except asyncio.CancelledError:
            continue


async def team_changes(team: Crew) -> None:
    """Wait until mail is sent, or a member does something else."""
    team.changed.clear()
    await team.changed.wait()


def fates(recorder: Recorder) -> dict[str, list[str]]:
    """Return what became of all mail, by id."""
    found: dict[str, list[str]] = {}
    for event in recorder.events:
        match event:
            case MailSent(mail=mail):
                found.setdefault(mail.id, [])
            case MailDelivered(mail=mail):
                found[mail.id].append("delivered")
            case MailReturned(letter=letter):
                found[letter.mail.id].append(letter.reason)
            case _:
                continue
    return found


def lives(events: Sequence[Event], name: str) -> list[tuple[int, str]]:
    """Return what a member did: its incarnation and liveness, in order."""
    changes = [event for event in events if isinstance(event, MemberChanged) and event.name == name]
    return [(event.incarnation, event.liveness) for event in changes]
