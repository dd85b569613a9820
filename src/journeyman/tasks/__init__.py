"""Tasks: background work with an id."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.tasks.tasks import Tasks

__all__ = ["Tasks"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"tasks": "Tasks"})
