"""The bodies that clients of the JSON API send, and the documents that they get: one class for each.

The fields stand nowhere else: what is parsed, the errors of a body that does not fit, and the OpenAPI document follow
from these classes. A body is a dataclass; an answer is a `TypedDict`, which costs nothing to make and to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema
from typing_extensions import TypedDict

from journeyman.definition.data import lazy_dataclass
from journeyman.events.run_status import RunStatus
from journeyman.inbox.signals import QuestionKind
from journeyman.types import Usage

ID: Final = "^[A-Za-z0-9._~-]{1,100}$"
"""The form of what clients call their runs, chats and requests."""
QUESTION: Final = "^[0-9a-f]{6,64}$"
"""The form of the ids of questions."""


def refuse_blank(text: str) -> str:
    """Return a text that says something; of any other, pydantic tells that it is blank."""
    if not text.strip():
        raise ValueError("is blank")
    return text


WORDS: Final = {"type": "string", "pattern": r"\S"}
"""The schema of a text that says something."""
Words: TypeAlias = Annotated[str, AfterValidator(refuse_blank), WithJsonSchema(WORDS)]
Moment: TypeAlias = Annotated[float, Field(description="Seconds since 1970.")]


@lazy_dataclass(frozen=True, kw_only=True)
class RunBody:
    input: Any
    """The input of the agent, whose schema stands in the document."""


@lazy_dataclass(frozen=True, kw_only=True)
class StopBody:
    reason: Words = "stopped by the user"


@lazy_dataclass(frozen=True, kw_only=True)
class TextBody:
    text: Words


class UserMessage(TypedDict):
    id: str
    role: Literal["user"]
    content: Words


class AguiBody(TypedDict):
    """RunAgentInput of the AG-UI protocol."""

    threadId: Annotated[str, Field(pattern=ID)]
    runId: str
    messages: Annotated[list[UserMessage], Field(min_length=1)]


class Said(TypedDict):
    status: str


class BegunDocument(TypedDict):
    id: str
    agent: str
    status: RunStatus


class ServedAgent(TypedDict):
    name: str
    description: str


class AgentList(TypedDict):
    agents: list[ServedAgent]


class RunLine(BegunDocument):
    created: Moment
    ended: Moment | None
    tokens: int
    cost: float


class ChatLine(TypedDict):
    id: str
    agent: str
    created: Moment
    is_running: bool


NextPlace: TypeAlias = Annotated[str | None, Field(description="The `before` of the next page.")]


class RunList(TypedDict):
    runs: list[RunLine]
    next: NextPlace


class ChatList(TypedDict):
    chats: list[ChatLine]
    next: NextPlace


class QuestionDocument(TypedDict):
    id: Annotated[str, Field(pattern=QUESTION)]
    kind: QuestionKind
    path: Sequence[str]
    tool: str
    arguments: dict[str, Any] | None
    question: str
    options: Sequence[str]
    expires_at: Moment | None


class ResultDocument(TypedDict):
    """The end of a run: docs/result-document.md says what is in it."""

    version: Literal[1]
    agent: str
    code: str
    output: Any
    error: Any
    usage: Any
    attempts: Any
    history: Any


class RunDocument(RunLine):
    attempt: int
    iteration: int
    reason: str | None
    questions: list[QuestionDocument]
    result: ResultDocument | None


class ChatDocument(TypedDict):
    id: str
    is_running: bool
    messages: list[dict[str, Any]]
    usage: Annotated[Usage, WithJsonSchema({"type": "object"})]
    questions: list[QuestionDocument]


class Issue(TypedDict):
    path: str
    message: str


class RefusedDocument(TypedDict):
    code: str
    message: Annotated[str, Field(description="What happened, with the values.")]
    hint: Annotated[str, Field(description="What to do.")]
    issues: NotRequired[Annotated[Sequence[Issue], Field(description="What is wrong with the body.")]]


class ErrorDocument(TypedDict):
    error: RefusedDocument
