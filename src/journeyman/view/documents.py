"""The JSON objects that the viewer sends, as far as `journeyman.record` does not declare them.

The page reads them by viewer/src/api.ts, which `python -m tools.viewer_types` makes of these classes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict

from journeyman.record.operator import Told
from journeyman.record.page import PieceDocument
from journeyman.record.reading import RecordedRun, StoredRequest


class EventHead(TypedDict):
    """Something that happened in a run: an event of `journeyman.events`, in its JSON form."""

    n: int
    """Its number in the store."""
    at: float
    """Seconds since 1970."""
    type: str
    """The name of the event's class. For a note, such as `Input`, its own."""
    path: list[str]
    attempt: NotRequired[int]
    """The attempt in which it happened, from 1."""
    iteration: NotRequired[int]
    """The iteration within the attempt, from 1."""
    tool_use_id: NotRequired[str]
    """The call that it is about."""
    tool_name: NotRequired[str]
    """The tool that it is about."""


class RunAddition(TypedDict):
    """The part of a run that its recording does not have."""

    waits: NotRequired[Literal["approval", "an answer"]]
    """What a live run waits for from a person."""


class RequestAddition(TypedDict):
    """The part of a request that is sent with one of them alone."""

    pieces: list[PieceDocument]
    """The same may stand in it more than once."""


RunDocument: TypeAlias = Annotated[dict[str, Any], RecordedRun, RunAddition]
"""A JSON object with the fields of these classes. So are the next ones."""
EventDocument: TypeAlias = Annotated[dict[str, Any], EventHead]
"""With the other fields of the event, too."""
RequestDocument: TypeAlias = Annotated[dict[str, Any], StoredRequest]
WholeRequestDocument: TypeAlias = Annotated[dict[str, Any], StoredRequest, RequestAddition]


class StoreDocument(TypedDict):
    """The store that is looked at."""

    place: str
    version: str
    """That of this library."""
    bytes: int
    runs: int
    read_only: bool
    notice: str | None
    """What is wrong with it, though it can be looked at."""


class RunsDocument(TypedDict):
    """A page of runs, the newest first. It may be short, or empty, while there is more."""

    runs: list[RunDocument]
    more: bool
    next: str | None
    """The run behind which the next page begins."""
    newest: int
    """The number of the newest recording when this was read."""


class DayDocument(TypedDict):
    """The counts of one day."""

    day: int
    """Midnight UTC."""
    runs: int
    failed: int
    cost: float


class DaysDocument(TypedDict):
    """The counts of each of the last days, the oldest first."""

    days: list[DayDocument]


class EventsDocument(TypedDict):
    """A page of what happened in a run."""

    events: list[EventDocument]
    more: bool


class RequestsDocument(TypedDict):
    """All requests of a run."""

    requests: list[RequestDocument]


class SignalsDocument(TypedDict):
    """Everything that was said to a run, the oldest first."""

    signals: list[Told]
    read_only: bool
    """Whether nothing can be said to it here."""


class ForgottenDocument(TypedDict):
    """The answer to who wants runs forgotten: all of them were."""

    forgotten: int
    notice: str | None
    """Why their room could not be given back."""


class RefusalDocument(TypedDict):
    """An error: what happened, and what to do."""

    error: str
    hint: str
