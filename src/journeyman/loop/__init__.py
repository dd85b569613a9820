"""The loop: a run of attempts, each of iterations, each of calls."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.loop.attempts import run, run_sync
    from journeyman.loop.retry import respond
    from journeyman.loop.streaming import Events, stream
    from journeyman.loop.validation import validation_context, validator_from

__all__ = ["Events", "respond", "run", "run_sync", "stream", "validation_context", "validator_from"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "attempts": "run run_sync",
            "retry": "respond",
            "streaming": "Events stream",
            "validation": "validator_from validation_context",
        },
    )
