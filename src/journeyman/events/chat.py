"""The events of a chat beside those of its runs: questions that wait for a person, and the end of a turn."""

from __future__ import annotations

from typing import Literal, TypeAlias

from journeyman.definition.data import lazy_dataclass
from journeyman.result import Failure, Success
from journeyman.types import NOTHING_USED, JsonObject, RunPath, Usage

DecisionWord: TypeAlias = Literal["allow", "deny", "rewrite", "stop"]
"""A decision about a call, as events and stores tell it."""


@lazy_dataclass(frozen=True, kw_only=True)
class ApprovalRequested:
    """A gate asks about a call, which waits for `Chat.answer`. Exactly one `ApprovalAnswered` follows."""

    path: RunPath
    """Of the run that wants the call."""
    id: str
    """What to answer to."""
    question: str
    """What is asked, in words."""
    tool_use_id: str
    tool_name: str
    arguments: JsonObject
    """What the call is to be made with."""
    question_id: str
    """Of tool and arguments: the answer holds for exactly these."""
    offers: tuple[str, ...]
    """How far `Allow(extent)` may reach: `once`, and perhaps `session` and `always`."""
    rule: str = ""
    """What is allowed for the session, or forever, in words: it may be more than this call."""
    attempt: int | None = None
    """The place of the run when it asked, in a recording; a chat does not tell it, here and below."""
    iteration: int | None = None


@lazy_dataclass(frozen=True, kw_only=True)
class ApprovalAnswered:
    """After its `ApprovalRequested`, and before the call is made or refused. A turn that ends has denied it."""

    path: RunPath
    id: str
    """That of the question."""
    decision: DecisionWord
    """What was decided."""
    reason: str
    """Why, in words; perhaps empty."""
    tool_use_id: str | None = None
    """The call that waited. The next two are told in a recording only."""
    attempt: int | None = None
    iteration: int | None = None


@lazy_dataclass(frozen=True, kw_only=True)
class QuestionAsked:
    """The model asks the user through `ask_user`, or an MCP server does in the middle of a call, and waits for
    `Chat.answer`. Exactly one `QuestionAnswered` follows."""

    path: RunPath
    id: str
    """What to answer to."""
    question: str
    """What is asked, in words."""
    options: tuple[str, ...]
    """Answers to choose from; any other text will do as well."""
    question_id: str = ""
    """Of a durable run: what to answer to from outside."""
    tool_use_id: str | None = None
    """The call that waited. The next two are told in a recording only."""
    attempt: int | None = None
    iteration: int | None = None


@lazy_dataclass(frozen=True, kw_only=True)
class QuestionAnswered:
    """After its `QuestionAsked`."""

    path: RunPath
    id: str
    """That of the question."""
    answer: str | None
    """None: the turn ended before there was one."""
    tool_use_id: str | None = None
    """The call that waited. The next two are told in a recording only."""
    attempt: int | None = None
    iteration: int | None = None


@lazy_dataclass(frozen=True, kw_only=True)
class TurnEnded:
    """The last event of a turn, after those of all its runs. The chat is idle by then: a listener may prompt it."""

    path: RunPath
    result: Success[object] | Failure | None
    """Of the turn's last run; None when the turn was cancelled from outside."""
    usage: Usage = NOTHING_USED
    """What all runs of the turn have used."""
