"""Models for tests: they play a script or a function, or spoil what another model answers. None needs a key."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.testing.faulty import FaultyModel
    from journeyman.testing.offline import no_model_calls
    from journeyman.testing.scripted import (
        Answer,
        FunctionModel,
        Policy,
        ScriptedModel,
        StreamedAnswer,
        StreamingPolicy,
        call,
        play_by_history,
        say,
    )

__all__ = [
    "Answer",
    "FaultyModel",
    "FunctionModel",
    "Policy",
    "ScriptedModel",
    "StreamedAnswer",
    "StreamingPolicy",
    "call",
    "no_model_calls",
    "play_by_history",
    "say",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "faulty": "FaultyModel",
            "offline": "no_model_calls",
            "scripted": (
                "Answer FunctionModel Policy ScriptedModel StreamedAnswer StreamingPolicy call play_by_history say"
            ),
        },
    )
