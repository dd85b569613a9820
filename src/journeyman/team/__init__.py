"""Teams: long-lived members with mailboxes."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.team.team import Team, TeamHooks, TeamSpawnRequest

__all__ = [
    "Team",
    "TeamHooks",
    "TeamSpawnRequest",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "team": "Team TeamHooks TeamSpawnRequest",
        },
    )
