"""The output that an agent declares, and the plan by which a model is asked for it."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.output.output import (
        ContinueRun,
        FailRun,
        OutputMode,
        PerRun,
        Renderer,
        StopAfter,
        StopContext,
        StopGuard,
        StopRule,
        StopVerdict,
        Validator,
    )

__all__ = [
    "ContinueRun",
    "FailRun",
    "OutputMode",
    "PerRun",
    "Renderer",
    "StopAfter",
    "StopContext",
    "StopGuard",
    "StopRule",
    "StopVerdict",
    "Validator",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "output": "ContinueRun FailRun OutputMode PerRun Renderer StopAfter StopContext StopGuard StopRule"
            " StopVerdict Validator"
        },
    )
