"""The events of which recordings and telemetry are told beside those of the runs; no listener hears them.

They tell how a run came to do what its other events tell. Unlike those, they are told again in each life of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import JsonValue

from journeyman.definition.data import lazy_dataclass
from journeyman.events.chat import DecisionWord
from journeyman.types import JsonObject, RunPath

SignalOutcome: TypeAlias = Literal["waits", "taken", "withdrawn", "late", "refused"]
"""The answer of a run to a signal from outside."""


@lazy_dataclass(frozen=True, kw_only=True)
class Target:
    """The place where the recorded agent is found. Before anything else of a recording."""

    path: RunPath
    target: str
    """In the form that commands take: agents.py:scout."""


@lazy_dataclass(frozen=True, kw_only=True)
class Input:
    """A run was given its task. Once in each life, after `RunStarted` and before its first attempt; in a life that goes
    on, before `RunResumed`."""

    path: RunPath
    input: JsonValue
    """The task, as JSON."""
    limits: Mapping[str, float]
    """The limits of the run, by name, without those that are not set."""


@lazy_dataclass(frozen=True, kw_only=True)
class OutputModeChosen:
    """The way in which the output is handed in was chosen by what the model can. After `Input`, before the first
    attempt."""

    path: RunPath
    mode: str
    """`tool`, `native` or `prompted`."""


@lazy_dataclass(frozen=True, kw_only=True)
class ToolsDiffer:
    """The toolsets give other tools than in an earlier life of the run. At most once in each life, before the model
    would have been shown them."""

    path: RunPath
    attempt: int
    """0 before the first attempt."""
    iteration: int
    """0 before the first iteration of the attempt."""
    differences: tuple[str, ...]
    """Each difference, in words."""


@lazy_dataclass(frozen=True, kw_only=True)
class StepRecalled:
    """A response was read from the journal, and its model is not asked again. Before what comes of the response."""

    path: RunPath
    attempt: int
    iteration: int
    key: str
    """The step of the journal."""


@lazy_dataclass(frozen=True, kw_only=True)
class ApproverAnswered:
    """Somebody has answered what a gate asks about a call. Before `GateDecided` of that call."""

    path: RunPath
    attempt: int
    iteration: int
    tool_use_id: str
    tool_name: str
    question: str
    """The words in which the gate asked."""
    question_id: str
    """Of tool and arguments: the answer holds for exactly these."""
    decision: DecisionWord
    """The answer."""
    rule: str = ""
    """The rule that an approval for longer would have made, in words."""
    reason: str = ""
    """Why, in words; empty if nobody says why."""
    extent: str | None = None
    """The reach of an approval: `once`, `session` or `always`; None for any other decision."""


@lazy_dataclass(frozen=True, kw_only=True)
class GateDecided:
    """All gates have decided about a call. Once for each call that gates were asked about, before it is made or
    refused."""

    path: RunPath
    attempt: int
    iteration: int
    tool_use_id: str
    tool_name: str
    decision: DecisionWord
    """The decision of all gates together: `rewrite`, where the call is made with other arguments."""
    reason: str | None = None
    """Why the call is refused; None where it is not."""
    arguments: JsonObject | None = None
    """With what the call is made instead; None where nothing was changed."""


@lazy_dataclass(frozen=True, kw_only=True)
class CallOutcome:
    """A call has failed, or has changed a state. Directly before its `ToolFinished`, and only of such a call."""

    path: RunPath
    attempt: int
    iteration: int
    tool_use_id: str
    tool_name: str
    error: str | None = None
    """The kind of its failure; None: it succeeded."""
    states: JsonObject | None = None
    """The states that it changed: `run`, `attempt`, or both."""
    lost: str | None = None
    """A state that cannot be written as JSON, and why."""


@lazy_dataclass(frozen=True, kw_only=True)
class SignalTaken:
    """A signal from outside has come to the run, or more has become of one: the last of a signal counts."""

    path: RunPath
    signal: int
    """Its number in the store."""
    what: str
    """Its kind: `steer`, `approve` and so on."""
    who: str
    """Whoever sent it."""
    outcome: SignalOutcome
    """The answer of the run so far."""
    id: str
    """Of an answer, the question; of any other signal, the key that tells it from others of its kind."""
    text: str | None = None
    """The words that it brings to the run, if it brings any."""
    why: str = ""
    """Why it is late, or was refused."""


NotedEvent: TypeAlias = (
    Target
    | Input
    | OutputModeChosen
    | ToolsDiffer
    | StepRecalled
    | ApproverAnswered
    | GateDecided
    | CallOutcome
    | SignalTaken
)
"""Anything that only recordings and telemetry are told."""
