"""The events of a batch: each input that is done with, and each pause for the rate limit."""

from __future__ import annotations

from typing import TypeAlias

from journeyman.definition.data import lazy_dataclass
from journeyman.endings import ErrorCode
from journeyman.types import RunPath, Usage


@lazy_dataclass(frozen=True, kw_only=True)
class InputFinished:
    """The run of one input has ended. After all events of that run; in the order in which runs end."""

    path: RunPath
    """Of the run: its last part is the agent's name, `#` and the input's number."""
    number: int
    """Which input, from 1."""
    code: ErrorCode | None
    """None when it succeeded."""
    n_taken: int
    """Inputs that were taken so far."""
    n_finished: int
    """Those of them whose runs have ended, this one included."""
    n_failed: int
    """Those of them whose runs have failed, this one included."""
    usage: Usage
    """What all runs that have ended have used together."""


@lazy_dataclass(frozen=True, kw_only=True)
class BatchPaused:
    """A provider has limited the rate. No run of the batch asks it again before the pause has ended."""

    path: RunPath
    """Where the batch is: the runs above it."""
    provider: str
    """The provider that asked to wait."""
    seconds: float
    """How long the pause is, from now."""


BatchEvent: TypeAlias = InputFinished | BatchPaused
"""Anything that may happen to a batch."""
