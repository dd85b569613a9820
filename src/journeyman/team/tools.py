"""What the models of a team may do: write to one another, see who there is, and, for the leader, let members go.

Who calls is known by the member whose turn goes on; everybody else is the leader. Imports
`team_post`, `team_registry`, `team_shutdown` and `tools`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from journeyman.errors import TeamError
from journeyman.events.team import DeadLetter
from journeyman.team.members import EVERYBODY, LEADER, Member, MemberInfo, Roster
from journeyman.team.post import PostOffice
from journeyman.team.shutdown import Shutdown
from journeyman.tools.tool import AnyTool, ToolContext, tool

_SHOWN_CHARS = 60
_SHOWN_LETTERS = 20


Sender: TypeAlias = Callable[[], Member | None]
"""Returns who calls: a member, or None for the leader."""

Stop: TypeAlias = Callable[[str], Awaitable[Shutdown]]
"""Shuts down the member of that name, or all."""


def send_message_tool(sender: Sender, post: PostOffice) -> AnyTool:
    """Return the tool with which a member, or the leader, writes to another."""

    @tool(effect="idempotent", thread=False)
    def send_message(to: str, message: str, context: ToolContext, summary: str = "") -> str:
        """Send a message to a member of your team. It is read before the addressee's next step.

        Args:
            to: the name of a member, "team-lead" for the leader, or "*" for all members but you.
            message: what the addressee shall read. It knows nothing else of your conversation.
            summary: what it is about, in a few words.
        """
        member = sender()
        who = LEADER if member is None else f"{member.name}.{member.incarnation}"
        id = f"{who}/{'/'.join(context.path)}/{context.attempt}.{context.iteration}/{context.tool_use_id}"
        n_dead = len(post.dead_letters)
        sent = post.send(member, to, message, summary=summary, id=id)
        if len(post.dead_letters) > n_dead:
            raise TeamError(f"{to!r} has ended, so it will not read that. See team_roster for who is there.")
        if not sent and to == EVERYBODY:
            return "Nobody else is there, so nothing was sent."
        return f"Sent to {', '.join([mail.to for mail in sent])}." if sent else "That message was sent before."

    return send_message


def roster_tool(roster: Callable[[], Roster]) -> AnyTool:
    """Return the tool that shows who is in the team."""

    @tool(effect="pure", thread=False)
    def team_roster() -> str:
        """Show who is in the team, what each member does, and which messages could not be delivered."""
        return roster_text(roster())

    return team_roster


def shutdown_tool(sender: Sender, stop: Stop) -> AnyTool:
    """Return the tool with which the leader lets members go."""

    @tool(effect="idempotent")
    async def team_shutdown(name: str) -> str:
        """Let a member of the team go: it may end what it does, and is stopped if that takes too long.

        Args:
            name: the name of a member, or "*" for all members.
        """
        if sender() is not None:
            raise TeamError(f"Only {LEADER} lets members go. Send it a message instead.")
        ended = await stop(name)
        ways = {"ended": ended.finished, "stopped": ended.stopped, "does not end": ended.abandoned}
        return "; ".join([f"{way}: {', '.join(names)}" for way, names in ways.items() if names]) or "Nobody was there."

    return team_shutdown


# -- the roster, in words ---------------------------------------------------------------------------------------------


def roster_text(roster: Roster) -> str:
    """Return the roster as a model reads it."""
    about = f": {roster.description}" if roster.description else ""
    lines = [f"team {roster.name}, led by {LEADER}{about}"]
    lines += [_member_line(member) for member in roster.members] or ["- no members"]
    if roster.dead_letters:
        lines += ["not delivered:", *map(_letter_line, roster.dead_letters[-_SHOWN_LETTERS:])]
    return "\n".join(lines)


def _member_line(member: MemberInfo) -> str:
    facts = [f"{member.liveness}, last sign {member.quiet_s:.0f} s ago"]
    facts += [f"{member.n_waiting} unread"] if member.n_waiting else []
    facts += [member.error] if member.error else []
    about = f", {member.description}" if member.description else ""
    return f"- {member.name} ({member.agent}{about}): {'; '.join(facts)}"


def _letter_line(letter: DeadLetter) -> str:
    mail = letter.mail
    text = " ".join((mail.summary or mail.text).split())
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    return f"- {mail.sender} to {mail.to} ({letter.reason}): {shown}"
