"""The steps of a run, as whoever takes one describes it.

Here keys are made, and nobody takes one apart: what a step is and where it stands are facts beside its key.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from journeyman.definition.data import lazy_dataclass

__all__ = ["RunStep", "StepKind"]

StepKind: TypeAlias = Literal[
    "approval",
    "answer",
    "call",
    "calls",
    "compaction",
    "end",
    "feedback",
    "guard",
    "head",
    "idle",
    "mail",
    "member",
    "model",
    "output_mode",
    "preview",
    "said",
    "sent",
    "state",
    "system",
    "tools",
    "verdict",
]
"""The kinds of steps. A stored step of any other kind lets no run go on."""
STEP_KINDS: Final = frozenset[str](get_args(StepKind))


def iteration_key(attempt: int, iteration: int, name: str) -> str:
    """Return the key of what belongs to an iteration of a run."""
    return f"attempt/{attempt}/iteration/{iteration}/{name}"


@lazy_dataclass(frozen=True, kw_only=True)
class RunStep:
    """A step of a run: where it stands, and what it is. Whoever takes the step says so; nobody reads it out of a key.

    Calls, approvals and answers are of a call, attempts count from 1, and 0 stands for none.
    """

    key: str
    """Its name, which no other step of its run has, nor one of the runs that share its journal."""
    kind: StepKind
    """Its kind, which tells how its value is read."""
    attempt: int = 0
    """The attempt of its own run in which it stands."""
    iteration: int = 0
    """The iteration of that attempt."""
    call: str | None = None
    """The id of the call that it belongs to."""
    within: tuple[int, int] | None = None
    """The attempt and iteration of the outermost run that the journal is of. None: that is its own run."""

    @property
    def at(self) -> tuple[int, int]:
        """The attempt and the iteration of the outermost run."""
        return (self.attempt, self.iteration) if self.within is None else self.within


def call_step(attempt: int, iteration: int, call: str) -> RunStep:
    """Return the step that a call is."""
    key = iteration_key(attempt, iteration, f"call/{call}")
    return RunStep(key=key, kind="call", attempt=attempt, iteration=iteration, call=call)
