"""Recordings of runs: what happened, and what was sent, kept in a store for whoever looks at it later."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.record.reading import RecordedEvent, RecordedRun, Recordings, RequestPart, StoredRequest, TextMatch
    from journeyman.record.recorder import Recorder, RunRecording

__all__ = [
    "RecordedEvent",
    "RecordedRun",
    "Recorder",
    "Recordings",
    "RequestPart",
    "RunRecording",
    "StoredRequest",
    "TextMatch",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "reading": "RecordedEvent RecordedRun Recordings RequestPart StoredRequest TextMatch",
            "recorder": "Recorder RunRecording",
        },
    )
