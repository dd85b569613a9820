"""The register of a team: members by name, with their mailboxes, and the last state of those that are gone.

Only one member has a name at a time. Each member of a name has its own *incarnation*, counted from 1, so that nothing
meant for an earlier one reaches a later one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final

from journeyman.agent import NAME
from journeyman.chat.chat import Chat
from journeyman.data import lazy_dataclass
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
    gone: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done when it is gone."""
    was_asked: bool = False
    """True when its leader asked it to end."""
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

    def info(self, team: str) -> MemberInfo:
        """Return it as it is now."""
        return MemberInfo(
            name=self.name,
            team=team,
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


class Registry:
    """The names of one team."""

    def __init__(self, name: str, description: str, leader: Mailbox) -> None:
        self.name = name
        self.description = description
        self.leader: Final = leader
        self.usage_of_gone = NOTHING_USED
        """What members used whose names others have now."""
        self._alive: dict[str, Member] = {}
        self._gone: dict[str, Member] = {}
        """The last of each name that nobody has now."""
        self._n_of: dict[str, int] = {}
        """How many members of each name there have been."""
        self.is_deleted = False

    # -- changing

    def register(self, member: Member) -> None:
        """Give a member its name and its incarnation, or raise a `TeamError` if there is no team, or no such name."""
        self.check_open()
        self.check_name(member.name)
        earlier = self._gone.pop(member.name, None)
        if earlier is not None:
            self.usage_of_gone += earlier.usage
        member.incarnation = self._n_of[member.name] = self._n_of.get(member.name, 0) + 1
        self._alive[member.name] = member

    def check_name(self, name: str) -> None:
        """Raise a `TeamError` if no member can be called that: it is no name, or the leader's, or taken."""
        if not NAME.fullmatch(name):
            raise TeamError(f"{name!r} cannot be the name of a member. Use 1 to 64 letters, digits, '_' or '-'.")
        if name == LEADER:
            raise TeamError(f"The name {LEADER!r} is the leader's. Give the member another one.")
        if name in self._alive:
            raise TeamError(f"The name {name!r} is taken in team {self.name!r}. Names there are: {list(self.names)}.")

    def unregister(self, member: Member) -> None:
        """Let a member go, and close its mailbox: its name is free from now on. A `TeamError` says it is not there."""
        if self._alive.get(member.name) is not member:
            raise TeamError(f"{member!r} is not in team {self.name!r}. Members are: {list(self.teammates)}.")
        member.box.close()
        del self._alive[member.name]
        self._gone[member.name] = member

    def forget(self, member: Member) -> None:
        """Take back the name of a member that could not begin. It was never there."""
        member.box.close()
        del self._alive[member.name]

    def rename(self, name: str, description: str | None = None) -> None:
        """Rename the team, as `Team.rename` says."""
        self.check_open()
        if self._alive:
            raise TeamError(f"Team {self.name!r} has members: {list(self.teammates)}. Rename it while it has none.")
        if name and not NAME.fullmatch(name):
            raise TeamError(f"{name!r} cannot be the name of a team. Use 1 to 64 letters, digits, '_' or '-'.")
        self.name = name or self.name
        self.description = self.description if description is None else description

    def delete(self) -> None:
        """Close every mailbox, and forget the names."""
        for member in tuple(self._alive.values()):
            self.unregister(member)
        self.leader.close()
        self.is_deleted = True

    def check_open(self) -> None:
        """Raise a `TeamError` if the team is deleted."""
        if self.is_deleted:
            raise TeamError(f"There is no team {self.name!r} any more: it was deleted. Make another Team.")

    # -- looking

    @property
    def names(self) -> tuple[str, ...]:
        """The leader and all members that are alive, sorted."""
        return tuple(sorted([LEADER, *self._alive]))

    @property
    def teammates(self) -> tuple[str, ...]:
        """All members that are alive, sorted; the leader is none."""
        return tuple(sorted(self._alive))

    def alive(self, name: str) -> Member | None:
        """Return the member of that name; None where there is none."""
        return self._alive.get(name)

    def find_member(self, name: str) -> Member | None:
        """Return the member that has that name, or had it last."""
        return self._alive.get(name) or self._gone.get(name)

    def members(self) -> tuple[Member, ...]:
        """Return all members that are alive, and the last of each name that nobody has, by name."""
        return tuple([member for _, member in sorted({**self._gone, **self._alive}.items())])

    def any_alive(self, test: Callable[[Member], bool]) -> bool:
        """Tell whether there is a member for which `test` holds."""
        return any(test(member) for member in self._alive.values())
