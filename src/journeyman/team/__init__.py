"""Teams: long-lived members with mailboxes."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.team.mail import TeamHooks
    from journeyman.team.members import MemberInfo, Roster
    from journeyman.team.post import Shutdown
    from journeyman.team.spawn import TeamSpawner, TeamSpawnRequest, TeamSpawnResult
    from journeyman.team.team import Team

__all__ = [
    "MemberInfo",
    "Roster",
    "Shutdown",
    "Team",
    "TeamHooks",
    "TeamSpawnRequest",
    "TeamSpawnResult",
    "TeamSpawner",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "mail": "TeamHooks",
            "members": "MemberInfo Roster",
            "post": "Shutdown",
            "spawn": "TeamSpawnRequest TeamSpawnResult TeamSpawner",
            "team": "Team",
        },
    )
