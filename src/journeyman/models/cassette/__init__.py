"""Cassettes: a recorded conversation, which a model and a journal play back."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.models.cassette.cassette import Cassette

__all__ = [
    "Cassette",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "cassette": "Cassette",
        },
    )
