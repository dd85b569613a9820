"""The register of a team: members by name, with their mailboxes, and the last state of those that are gone.

Only one member has a name at a time. Each member of a name has its own *incarnation*, counted from 1, so that nothing
meant for an earlier one reaches a later one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final

from journeyman.agent import NAME
from journeyman.chat.chat import Chat
from journeyman.definition.data import lazy_dataclass
from journeyman.errors import TeamError
from journeyman.events import DeadLetter, MemberStatus
from journeyman.team.mail import Mailbox
from journeyman.tools.background import TaskContext
from journeyman.types import NOTHING_USED, Message, RunPath, Usage

LEADER: Final = "team-lead"
"""The name of the leader. No member has it."""

EVERYBODY: Final = "*"
"""The address of all other members. The leader is not among them."""


@lazy_dataclass(frozen=True, kw_only=True)
class MemberInfo:
    """A member, as it was at one moment."""

    name: str
    """The member's name."""
    team: str
    """The name of the team."""
    incarnation: int
    """The number of this member among those that have had its name: 1 for the first."""
    agent: str
    """The name of its definition."""
    description: str
    """What the member is for."""
    color: str
    """The colour in which a screen may show it."""
    task_id: str
    """The id of the background task that it lives in."""
    path: RunPath
    liveness: MemberStatus
    """What it does."""
    last_sign: datetime
    """When the member last gave a sign of life: it called its model, sent mail, or did something else."""
    quiet_s: float
    """How many seconds ago the last sign of life was."""
    n_waiting: int
    """How much mail the member has not read yet."""
    last_text: str
    """What the member last said at the end of a turn."""
    usage: Usage
    """The usage of its turns so far."""
    error: str | None = None
    """Why the member ended, if it failed."""

    @property
    def id(self) -> str:
        """`name@team`."""
        return f"{self.name}@{self.team}"

    @property
    def depth(self) -> int:
        """The number of runs above it."""
        return len(self.path) - 1


@lazy_dataclass(frozen=True, kw_only=True)
class TeamSnapshot:
    """A team, as it was at one moment."""

    name: str
    """The name of the team."""
    description: str
    """What the team is for."""
    members: tuple[MemberInfo, ...]
    """The members by name, including those that are gone, unless another has their name now."""
    n_waiting: int
    """Mail that the leader has not read yet."""
    dead_letters: tuple[DeadLetter, ...]
    """Mail that could not be delivered, oldest first."""


@lazy_dataclass(kw_only=True, eq=False, repr=False)
class Member:
    """A member, alive or gone."""

    registry: Registry
    """The registry of its team."""
    name: str
    agent: str
    """The name of its definition."""
    box: Mailbox
    path: RunPath
    description: str
    color: str
    incarnation: int = 0
    """Set when it is registered."""
    task_id: str = ""
    task: TaskContext | None = None
    chat: Chat[Any, Any] | None = None
    liveness: MemberStatus = "working"
    last_text: str = ""
    error: str | None = None
    is_heard: bool = False
    """True once those who watch the team hear of its turns."""
    is_announced: bool = False
    """True once those who watch the team were told what it does."""
    _clock: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)
    _sign_s: float = field(init=False)
    _sign_at: float = field(init=False)
    _usage: Usage = NOTHING_USED
    _transcript: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        self.sign()

    def sign(self) -> None:
        """Note a sign of life."""
        # Two clocks: one can be set back, and the other knows no date.
        self._sign_s = self._clock()
        self._sign_at = time.time()
        if self.task is not None:
            self.task.sign()

    @property
    def usage(self) -> Usage:
        """The usage of its turns so far."""
        return self._usage if self.chat is None else self.chat.usage

    @property
    def transcript(self) -> tuple[Message, ...]:
        """Its conversation so far."""
        return self._transcript if self.chat is None else self.chat.messages

    def rest(self) -> None:
        """Let its chat go, which has ended."""
        # A chat holds its agent and all that belongs to it: of those that are gone, only this is looked at.
        self._usage, self._transcript, self.chat = self.usage, self.transcript, None

    def info(self) -> MemberInfo:
        """Return it as it is now."""
        return MemberInfo(
            name=self.name,
            team=self.registry.name,
            incarnation=self.incarnation,
            agent=self.agent,
            description=self.description,
            color=self.color,
            task_id=self.task_id,
            path=self.path,
            liveness=self.liveness,
            last_sign=datetime.fromtimestamp(self._sign_at, UTC),
            quiet_s=self._clock() - self._sign_s,
            n_waiting=len(self.box.waiting),
            last_text=self.last_text,
            usage=self.usage,
            error=self.error,
        )

    def __repr__(self) -> str:
        return f"<Member {self.name!r}, number {self.incarnation}, {self.liveness}>"


def check_name(name: str, *, is_taken: bool) -> None:
    """Raise a `TeamError` if no member can be called that: it is no name, or the leader's, or taken."""
    if not NAME.fullmatch(name):
        raise TeamError(f"{name!r} cannot be the name of a member. Use 1 to 64 letters, digits, '_' or '-'.")
    if name == LEADER:
        raise TeamError(f"The name {name!r} is the leader's. Give the member another one.")
    if is_taken:
        raise TeamError(f"The name {name!r} is taken. Give it another one, or send a message to that member.")


def find_addressees(own: str, to: str, text: str, *, alive: Iterable[str], known: Collection[str]) -> Sequence[str]:
    """Return the names to which mail goes that the one of this name sends; a `TeamError` says why it goes nowhere.
    Of the members, some are `alive`, and `known` are those that are gone, too."""
    if not text.strip():
        raise TeamError("The message is blank: there is nothing to send.")
    if to == own or to not in (EVERYBODY, LEADER, *known):
        who = "is the sender" if to == own else "is unknown"
        raise TeamError(f"{to!r} {who}. Send to one of {sorted({LEADER, *alive})}, or to '*' for all members.")
    return [name for name in sorted(alive) if name != own] if to == EVERYBODY else [to]


def find_members_to_go(names: Sequence[str], *, alive: Collection[str], known: Collection[str]) -> Sequence[str]:
    """Return which members end if those of these names are to, or all; a `TeamError` names one that never was there."""
    unknown = [name for name in names if name != EVERYBODY and name not in known]
    if unknown:
        raise TeamError(f"There is no member {', '.join(map(repr, unknown))} to let go. There are: {sorted(alive)}.")
    wanted = sorted(alive) if not names or EVERYBODY in names else dict.fromkeys(names)
    return [name for name in wanted if name in alive]


class Registry:
    """The names of one team."""

    def __init__(self, name: str, description: str, leader: Mailbox) -> None:
        self.name = name
        self.description = description
        self.leader: Final = leader
        self.usage_of_gone = NOTHING_USED
        """What members used whose names others have now."""
        self.last: Final[dict[str, Member]] = {}
        """The last member of each name. It is gone once its mailbox is closed."""
        self.n_of: dict[str, int] = {}
        """How many members of each name there have been."""
        self.is_deleted = False

    def register(self, member: Member) -> None:
        """Give a member its name and its incarnation, or raise a `TeamError` if there is no team."""
        self.check_open()
        earlier = self.last.get(member.name)
        if earlier is not None:
            self.usage_of_gone += earlier.usage
        member.incarnation = self.n_of[member.name] = self.n_of.get(member.name, 0) + 1
        self.last[member.name] = member

    def forget(self, member: Member) -> None:
        """Take back the name of a member that could not begin. It was never there."""
        member.box.close()
        del self.last[member.name]

    def rename(self, name: str, description: str | None = None) -> None:
        """Rename the team, as `Team.rename` says."""
        self.check_open()
        if self.teammates:
            raise TeamError(f"Team {self.name!r} has members: {list(self.teammates)}. Rename it while it has none.")
        if name and not NAME.fullmatch(name):
            raise TeamError(f"{name!r} cannot be the name of a team. Use 1 to 64 letters, digits, '_' or '-'.")
        self.name = name or self.name
        self.description = self.description if description is None else description

    def check_open(self) -> None:
        """Raise a `TeamError` if the team is deleted."""
        if self.is_deleted:
            raise TeamError(f"There is no team {self.name!r} any more: it was deleted. Make another Team.")

    @property
    def members(self) -> tuple[Member, ...]:
        """The last member of each name, by name."""
        return tuple([member for _, member in sorted(self.last.items())])

    @property
    def teammates(self) -> tuple[str, ...]:
        """All members that are alive, sorted; the leader is none."""
        return tuple([member.name for member in self.members if not member.box.is_closed])

    def alive(self, name: str) -> Member | None:
        """Return the member of that name; None where there is none."""
        member = self.last.get(name)
        return None if member is None or member.box.is_closed else member
