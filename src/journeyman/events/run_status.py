"""The status of a run: one word for it in every face, made of all that a store knows of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from journeyman.endings import ErrorCode

RunStatus: TypeAlias = Literal[
    "ready", "running", "waiting", "held", "blocked", "done", "failed", "cancelled", "left", "died"
]
"""The status of a run. `ready`: the next worker may drive it; `running`: a process drives it; `waiting`: no process
does, and it waits for an answer or for a moment; `held`: it waits until it is released; `blocked`: it cannot go on by
itself. `done`, `failed`, `cancelled`: it has ended. `left`: a chat or a team that was left. `died`: its process has
died; a durable run goes on when somebody takes it."""

GOES_ON: Final[tuple[RunStatus, ...]] = ("ready", "running", "waiting", "held", "blocked")
"""The statuses of a run that has not ended, and that nobody has left."""
_READ: Final[Mapping[str, RunStatus]] = {
    **{each: each for each in get_args(RunStatus)},
    **{"live": "running", "success": "done", "failure": "failed"},
}
"""By the word in a row, that for its status: those of recordings differ."""
_STORED_AS: Final[Mapping[RunStatus, RunStatus]] = {"died": "running", "cancelled": "failed"}
"""By statuses that rows may not tell apart from another, that one: nobody can store that his own process has died."""


def words_of(status: RunStatus) -> tuple[str, ...]:
    """Return the words that a row may have of a run with a status. Runs with another one may have them, too."""
    return tuple([word for word, each in _READ.items() if each in (status, _STORED_AS.get(status))])


class StoredStatus(NamedTuple):
    """The part of a row, of a durable run or of a recording, that says how the run is."""

    word: str
    """As the row has it."""
    code: str | None
    """The code of its failure; None if it has not failed."""
    owner: str | None
    """The process that drives or records it."""
    ended: float | None = None
    """Seconds since 1970."""


_LATE_S: Final = 2.0
"""The time within which a recorder has begun to write the last life of a durable run."""


def status_of(
    head: StoredStatus | None, recording: StoredStatus | None, is_held: Callable[[str], bool], *, now: float = 0.0
) -> RunStatus:
    """Return the status of a run of which a store has the row of a durable run, that of a recording, or both.

    `is_held` tells whether a process lives. A durable run says itself how it is, since nobody records the time in which
    nobody drives it. One that has ended goes on until its recording has ended, too: who reads that until then has read
    all of it. `now` is in seconds since 1970.
    """
    stored = head or recording
    if stored is None:
        return "left"
    word = _READ.get(stored.word, "blocked")  # what is damaged does not go on
    if word == "running":
        return "running" if stored.owner and is_held(stored.owner) else "died"
    if head is not None and recording is not None and head.ended is not None:
        is_late = recording.word == "left" and now - head.ended < _LATE_S
        if is_late or (recording.word == "live" and recording.owner and is_held(recording.owner)):
            return "running"
    is_cancelled = word == "failed" and stored.code == ErrorCode.EXECUTION_CANCELLED
    return "cancelled" if is_cancelled else word
