"""Skills: folders of instructions and files in the open Agent Skills format, of which a model loads what it needs."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.skills.skills import Skill, Skills

__all__ = ["Skill", "Skills"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"skills": "Skill Skills"})
