"""Gemini by its own API: `generateContent` of the Developer API, and of Vertex."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.models.google.model import GoogleModel

__all__ = ["GoogleModel"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"model": "GoogleModel"})
