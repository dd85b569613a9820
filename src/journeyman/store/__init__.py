"""Sessions, journals and events in one SQLite file."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.store.store import Store

__all__ = [
    "Store",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "store": "Store",
        },
    )
