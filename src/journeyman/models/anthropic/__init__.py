"""The Messages API of Anthropic."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.models.anthropic.model import AnthropicModel

__all__ = ["AnthropicModel"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"model": "AnthropicModel"})
