"""Models on this machine, whose server this library starts."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.models.local.model import LocalModel

__all__ = ["LocalModel"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"model": "LocalModel"})
