"""Cassettes: a recorded conversation, which a model and a journal play back."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.models.cassette.cassette import Cassette, CassetteMode
    from journeyman.models.cassette.format import RecordedCall, RecordedRequest
    from journeyman.models.cassette.vcr import import_vcr
    from journeyman.tools.redaction import Secret

__all__ = ["Cassette", "CassetteMode", "RecordedCall", "RecordedRequest", "Secret", "import_vcr"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {"cassette": "Cassette CassetteMode Secret", "format": "RecordedCall RecordedRequest", "vcr": "import_vcr"},
    )
