"""The loop: a run of attempts, each of iterations, each of calls. The front page has what begins a run."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.loop.asking import ask_model
    from journeyman.loop.retry import respond
    from journeyman.loop.validation import validation_context, validator_from

__all__ = ["ask_model", "respond", "validation_context", "validator_from"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__, {"asking": "ask_model", "retry": "respond", "validation": "validation_context validator_from"}
    )
