"""The events of durable runs beside those of the run itself: which process drives them, and what is stored.

A process tells of what it does itself; `Durable(…, on_event=…)` hears it.
"""

from __future__ import annotations

from typing import TypeAlias

from journeyman.definition.data import lazy_dataclass
from journeyman.types import RunPath


@lazy_dataclass(frozen=True, kw_only=True)
class RunQueued:
    """A run was stored for a worker to do."""

    path: RunPath
    """The agent's name; of every event here."""
    run: str
    """Its id in the store; of every event here."""
    queue: str
    """The queue from which workers take it."""
    priority: int
    """Of the runs that are due, those with the higher number go first."""
    after_s: float
    """It does not begin before so many seconds."""


@lazy_dataclass(frozen=True, kw_only=True)
class RunClaimed:
    """A process drives the run from now on; before anything of it happens there."""

    path: RunPath
    run: str
    worker: str
    """Who drives it; of every event here that has it."""
    epoch: int
    """Grows with every claim; of every event here that has it."""
    taken_from: str | None
    """Who drove it and has died or fallen silent; None when nobody did."""
    n_lives: int
    """How often it was claimed, this time included."""
    n_steps: int
    """The records that are stored of it, which are not done again."""
    duration_s: float
    """How long the claim took."""


@lazy_dataclass(frozen=True, kw_only=True)
class RunWoken:
    """A run that was suspended goes on, since an answer, a word or its time has come. Directly after `RunClaimed`."""

    path: RunPath
    run: str
    worker: str
    epoch: int


@lazy_dataclass(frozen=True, kw_only=True)
class StepStored:
    """A step was written, before anything comes of it. Between `RunClaimed` and what ends that life of the run."""

    path: RunPath
    run: str
    worker: str
    epoch: int
    key: str
    """The step."""
    bytes: int
    """The size of its body, as it is stored; 0 for the mark that it was begun."""
    duration_s: float
    """How long the store took."""


@lazy_dataclass(frozen=True, kw_only=True)
class RunSuspended:
    """A run that only waits has left this process. It is a row now, and takes no memory."""

    path: RunPath
    run: str
    worker: str
    epoch: int


@lazy_dataclass(frozen=True, kw_only=True)
class RunClaimLost:
    """Somebody else drives the run now, so what this process still did of it is not stored."""

    path: RunPath
    run: str
    worker: str
    epoch: int


@lazy_dataclass(frozen=True, kw_only=True)
class RunNeedsAttention:
    """The run is blocked: it cannot go on before a person has looked at it."""

    path: RunPath
    run: str
    worker: str
    epoch: int
    reason: str
    """Why it cannot go on, and what to do."""


DurableEvent: TypeAlias = (
    RunQueued | RunClaimed | RunWoken | StepStored | RunSuspended | RunClaimLost | RunNeedsAttention
)
"""Anything that may happen to a durable run beside what happens in it."""
