"""The events of a team: its mail, and the changes of its members."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from journeyman.definition.data import lazy_dataclass
from journeyman.events.task import MemberStatus
from journeyman.types import RunPath

MailKind: TypeAlias = Literal["message", "idle", "gone", "shutdown"]
"""What mail is: somebody's words, or a notice of the team's. `idle`: a member has nothing left to do. `gone`: it ended.
`shutdown`: it is asked to end."""

DeadLetterReason: TypeAlias = Literal["gone", "stale", "unread", "closed"]
"""Why mail could not be delivered. `gone`: its addressee had ended. `stale`: it was for an earlier member of that name.
`unread`: its addressee ended before it read it. `closed`: the team was left before it was read."""


@lazy_dataclass(frozen=True, kw_only=True)
class TeamMessage:
    """One message from one member of a team to another. It ends delivered or as a dead letter, exactly once."""

    id: str
    """The id of the mail."""
    sender: str
    """The name of the member who wrote it."""
    to: str
    """The name of the member whom it is for."""
    text: str
    """What it says."""
    summary: str = ""
    """What it is about, in a few words."""
    kind: MailKind = "message"
    """What it is: somebody's words, or a notice of the team."""
    incarnation: int = 0
    """Which member of the addressee's name it is for, counted from 1; 0 for the leader."""
    sent: datetime
    """When it was sent."""


@lazy_dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """Mail that could not be delivered."""

    mail: TeamMessage
    """The mail."""
    reason: DeadLetterReason
    """Why it could not be delivered."""
    at: datetime
    """When that was found."""


@lazy_dataclass(frozen=True, kw_only=True)
class MailSent:
    """Mail is on its way. Exactly one `MailDelivered` or `MailReturned` with the same mail follows."""

    path: RunPath
    """Of the sender."""
    mail: TeamMessage
    """The mail."""


@lazy_dataclass(frozen=True, kw_only=True)
class MailDelivered:
    """Mail became part of its addressee's conversation, or was handed to the program that leads the team."""

    path: RunPath
    """Of the addressee."""
    mail: TeamMessage
    """The mail."""


@lazy_dataclass(frozen=True, kw_only=True)
class MailReturned:
    """Mail could not be delivered, and is a dead letter from now on."""

    path: RunPath
    """Of the team: the run that leads it; empty where a program does."""
    letter: DeadLetter
    """The mail, and why it came back."""


@lazy_dataclass(frozen=True, kw_only=True)
class MemberChanged:
    """A member does something else. The first of each member is `working` or `idle`, the last is `gone`."""

    path: RunPath
    """Of the member."""
    team: str
    """The name of the team."""
    name: str
    """The name of the member."""
    incarnation: int
    """Which member of that name it is: 1 for the first."""
    liveness: MemberStatus
    """What it does from now on."""
    at: datetime
    """When it began to."""
    error: str | None = None
    """Why it ended, when it failed."""
