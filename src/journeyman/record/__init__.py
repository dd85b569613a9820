"""Recordings of runs: what happened, and what was sent, kept in a store for whoever looks at it later."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.record.reading import Found, Piece, RecordedEvent, RecordedRun, Recordings, SentRequest
    from journeyman.record.recorder import Recorder, RecordingTape

__all__ = ["Found", "Piece", "RecordedEvent", "RecordedRun", "Recorder", "RecordingTape", "Recordings", "SentRequest"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "reading": "Found Piece RecordedEvent RecordedRun Recordings SentRequest",
            "recorder": "Recorder RecordingTape",
        },
    )
