"""Every other provider, by the models of pydantic-ai."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.models.bridge.model import BridgeModel

__all__ = ["BridgeModel"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"model": "BridgeModel"})
