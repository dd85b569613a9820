"""How members of a team are let go: asked first, then stopped, then left to themselves. It ends in bounded time.

Imports `team_post` and `team_registry`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from journeyman.errors import TeamError
from journeyman.team.members import EVERYBODY, LEADER, Member, Registry
from journeyman.team.post import PostOffice


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """How the members ended that were let go, by name."""

    finished: tuple[str, ...] = ()
    """They ended by themselves, within the grace."""
    stopped: tuple[str, ...] = ()
    """They were stopped, and ended."""
    abandoned: tuple[str, ...] = ()
    """They were stopped and do not end. They are out of the team all the same, and nobody waits for them."""


def to_go(
    registry: Registry, names: Sequence[str], incarnation: int | None, *, here: Member | None
) -> tuple[Member, ...]:
    """Return the members of these names, or all, that are there. `here` is the one that asks.

    Raises:
        TeamError: it is among them.
    """
    wanted = registry.teammates if not names or EVERYBODY in names else tuple(dict.fromkeys(names))
    alive = [member for name in wanted if (member := registry.alive(name)) is not None]
    found = tuple([member for member in alive if incarnation is None or member.incarnation == incarnation])
    if here is not None and here in found:
        raise TeamError(f"{here.name!r} cannot wait for its own end. Let {LEADER!r} do it.")
    return found


async def let_go(
    post: PostOffice, members: Sequence[Member], *, stop: Callable[[str], object], grace_s: float, force_s: float
) -> Shutdown:
    """Let members go, and return how they ended. `stop` stops the background task of that id.

    It takes `grace_s` and `force_s` seconds at most, and not much longer.
    """
    for member in members:
        _ask(post, member, grace_s)
    await _all_gone(members, grace_s)
    late = [member for member in members if not member.gone.done()]
    for member in late:
        stop(member.task_id)
    await _all_gone(late, force_s)
    abandoned = [member for member in late if not member.gone.done()]
    for member in abandoned:
        post.part(member, f"{member.name} was stopped, and does not end.")
    return Shutdown(
        finished=_names(members, but=late), stopped=_names(late, but=abandoned), abandoned=_names(abandoned)
    )


def _ask(post: PostOffice, member: Member, grace_s: float) -> None:
    was_working = member.liveness == "working"
    member.was_asked = True
    member.box.end()
    post.change(member, "stopping")
    if was_working and grace_s > 0:
        text = f"Please come to an end: you will be stopped in {grace_s:g} seconds. Your last words are kept."
        post.send(None, member.name, text, kind="shutdown", incarnation=member.incarnation)


async def _all_gone(members: Sequence[Member], seconds: float) -> None:
    """Wait until all of them are gone, but not longer than so many seconds."""
    waiting = [member.gone for member in members if not member.gone.done()]
    if waiting:
        await asyncio.wait(waiting, timeout=max(0.0, seconds))


def _names(members: Sequence[Member], *, but: Sequence[Member] = ()) -> tuple[str, ...]:
    return tuple([member.name for member in members if member not in but])
