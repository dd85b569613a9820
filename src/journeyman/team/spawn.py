"""The port by which a delegation asks a team for a new member. `Team` is a spawner, and so is whatever has a `spawn`
like this one, or is a function like it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast

from journeyman.agent import Agent
from journeyman.definition.data import lazy_dataclass
from journeyman.model import Model
from journeyman.types import Message

DEFAULT_NAME: Final = "team"
"""The name of a team to which nobody gives one."""
MAX_DEPTH: Final = 5
"""How many runs may be above a sub-agent, in any mode, or above a member of a team. It ends a row of agents that
each send out another one."""


@lazy_dataclass(frozen=True, kw_only=True)
class TeamSpawnRequest:
    """A member that is wanted."""

    agent: Agent[Any, Any, Any]
    """The definition: it takes a text."""
    prompt: str
    """The first task. Only a member with a `history` may have an empty one: it then waits for mail."""
    name: str = ""
    """Who it is in the team; empty for the agent's name."""
    team_name: str = ""
    """The name of the team; empty for the spawner's own team."""
    description: str = ""
    """What the task is, in a few words."""
    color: str = ""
    """The color for a program that draws the team. The team itself does not use it."""
    model: Model | None = None
    """The model that is used instead of the agent's."""
    history: Sequence[Message] = ()
    """The conversation of an earlier member, to go on from. A delegation leaves it empty."""


@lazy_dataclass(frozen=True, kw_only=True)
class TeamSpawnResult:
    """A member that was made."""

    task_id: str
    """The id of the background task that it lives in."""
    agent_id: str
    """`name@team`."""
    name: str
    """The member's name."""
    team_name: str
    """The name of the team."""
    incarnation: int = 1
    """Tells this member from earlier ones of that name: 1 for the first."""


class TeamSpawner(Protocol):
    """Makes members."""

    async def spawn(self, request: TeamSpawnRequest) -> TeamSpawnResult:
        """Make the member, and return as soon as it is registered: it works on by itself.

        Raises:
            TeamError: the member cannot be made; the text says why and what to do.
        """
        ...


SpawnFunction: TypeAlias = Callable[[TeamSpawnRequest], TeamSpawnResult | Awaitable[TeamSpawnResult]]
"""Makes members as `TeamSpawner.spawn` does. It may be async."""


async def spawn_member(spawner: TeamSpawner | SpawnFunction, request: TeamSpawnRequest) -> TeamSpawnResult:
    """Let a spawner make a member; raise a `TypeError` if it returns something else."""
    spawn = cast("Callable[[TeamSpawnRequest], object]", getattr(spawner, "spawn", spawner))
    made = spawn(request)
    made = await made if inspect.isawaitable(made) else made
    if not isinstance(made, TeamSpawnResult):
        raise TypeError(f"the spawner returned {made!r}, not a TeamSpawnResult")
    return made
