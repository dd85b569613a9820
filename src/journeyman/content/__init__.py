"""Files that users send: what they are by their bytes, and which of them a model takes."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.content.media import LARGEST_BYTES, MediaLimit, MediaSupport

__all__ = ["LARGEST_BYTES", "MediaLimit", "MediaSupport"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"media": "LARGEST_BYTES MediaLimit MediaSupport"})
