"""Teams: long-lived members with mailboxes."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.team.mail import TeamHooks
    from journeyman.team.members import MemberInfo, TeamSnapshot
    from journeyman.team.messages import ShutdownResult
    from journeyman.team.spawn import TeamSpawner, TeamSpawnRequest, TeamSpawnResult
    from journeyman.team.team import Team

__all__ = [
    "MemberInfo",
    "ShutdownResult",
    "Team",
    "TeamHooks",
    "TeamSnapshot",
    "TeamSpawnRequest",
    "TeamSpawnResult",
    "TeamSpawner",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "mail": "TeamHooks",
            "members": "MemberInfo TeamSnapshot",
            "messages": "ShutdownResult",
            "spawn": "TeamSpawnRequest TeamSpawnResult TeamSpawner",
            "team": "Team",
        },
    )
