"""The port to a language model: what is asked, the parts of the answer as they arrive, and their sum.

A model streams `Part`s, and a `Collector` adds them up into a `Response`. There is no other path: who does not want the
stream still gets the sum of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import field, replace
from typing import Final, Literal, Protocol, TypeAlias

from journeyman.content.media import MediaSupport
from journeyman.definition.data import lazy_dataclass
from journeyman.errors import ModelUnavailable, ProviderError, UnusableAnswer
from journeyman.hosted.tools import HostedTool, HostedToolSupport
from journeyman.types import (
    NOTHING_USED,
    Block,
    JsonObject,
    Message,
    Opaque,
    Price,
    RedactedThinking,
    StopReason,
    Text,
    Thinking,
    ToolUse,
    Usage,
)

__all__ = [
    "Answered",
    "BlockFinished",
    "CachePolicy",
    "Facts",
    "InputPart",
    "OutputFormat",
    "Part",
    "Prefix",
    "Request",
    "Response",
    "ResponseFinished",
    "ResponseStarted",
    "Restarted",
    "Retried",
    "Tap",
    "TextPart",
    "ThinkingLevel",
    "ThinkingPart",
    "ToolChoice",
    "ToolSpec",
    "UsageSeen",
]

ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "max"]
"""How much the model reasons before it answers."""
CachePolicy: TypeAlias = Literal["off", "auto", "explicit"]
"""What is marked for the provider's cache: nothing, the usual blocks, or only those with a mark of their own."""
ToolChoice: TypeAlias = Literal["auto", "any", "none"]
"""Whether the model may, must or must not call tools."""


@lazy_dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The settings of a model's requests. None always means: the provider's default."""

    max_tokens: int | None = None
    """The longest answer, in tokens. None: the model's documented maximum, or 8,192 where that is not known."""
    thinking: ThinkingLevel | int | None = None
    """How much the model reasons first: a level, or a budget in tokens."""
    cache: CachePolicy = "auto"
    """`auto` marks system, tools and the last message for the provider's prompt cache; `explicit` only the blocks with
    `cache_mark`; `off` nothing (a cache write costs more than a plain read, so one-shot runs may want it off)."""
    tool_choice: ToolChoice = "auto"
    temperature: float | None = None
    """How freely the model chooses its words: 0 is the least. Many models that reason refuse it."""
    top_p: float | None = None
    """The share of likely words that the model chooses from: above 0, at most 1."""
    seed: int | None = None
    """Makes answers repeat, as far as the provider can; the Messages API and the Responses API have none."""
    stop: tuple[str, ...] = ()
    """Texts at which the model stops writing; the Responses API has none."""
    hosted: tuple[HostedTool, ...] = ()
    """Tools that the provider runs by itself, such as `WebSearch()` of `journeyman.hosted`."""
    extra: JsonObject = field(default_factory=dict[str, object])  # pyright: ignore[reportAssignmentType]
    """Further fields of the provider's request body, sent as they are."""


@lazy_dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: JsonObject
    strict: bool = False
    """Ask the provider to guarantee the schema, where it can do so without loss."""
    deferred: bool = False
    """The model does not see this tool until a `ToolReference` names it. It is sent only to models that load tools
    themselves."""
    provider_schemas: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """The tool in a provider's own form, by the provider's short name. That provider is sent this form instead."""
    is_proxy: bool = False
    """True for a tool that calls deferred tools for models that cannot load them. Other models are not sent it."""
    wire: dict[str, bytes] = field(default_factory=lambda: {}, init=False, repr=False, compare=False)
    """The bytes of the tool as it is sent, by codec id: it is encoded once."""


@lazy_dataclass(frozen=True, kw_only=True)
class OutputFormat:
    """The form in which a provider makes its model answer: JSON of a schema, in place of a text."""

    name: str
    description: str
    schema: JsonObject
    """A JSON schema, whose top level is an object."""
    strict: bool = False
    """Ask the provider to guarantee the schema, if the provider leaves the choice."""
    forms: dict[str, JsonObject] = field(default_factory=lambda: {}, init=False, repr=False, compare=False)
    """The format as providers are told it, by codec id: it is made once."""


@lazy_dataclass(frozen=True, kw_only=True)
class Prefix:
    """The part of a request that stays the same from call to call of one run: the system prompt, the tools, and the
    form of the answer."""

    system: tuple[Text, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    output: OutputFormat | None = None
    """What the provider makes the model answer with; None: a text."""
    is_shared: bool = field(default=False, repr=False, compare=False)
    """True: the system prompt and the tools come from the agent's definition alone, and are those of all its runs."""
    wire: dict[str, bytes] = field(default_factory=lambda: {}, init=False, repr=False, compare=False)
    """The bytes of the prefix as it is sent, by codec id: it is encoded once."""

    @property
    def deferred(self) -> frozenset[str]:
        """The names of the deferred tools."""
        return frozenset([tool.name for tool in self.tools if tool.deferred])


@lazy_dataclass(kw_only=True)
class Request:
    """One model call. Read it, but do not change it.

    Not frozen, because a frozen one costs three times as much to make: the benchmark `in-process` needs it.
    """

    prefix: Prefix
    messages: Sequence[Message]
    """The conversation, oldest first. It grows after the call: a model that keeps it must copy it."""
    settings: ModelSettings
    max_tokens: int | None = None
    """The limit for this call, when a budget leaves less than `settings.max_tokens`."""
    deltas: bool = True
    """False: nobody looks at the pieces, so a model may leave out `TextPart`, `ThinkingPart` and `InputPart`."""


@lazy_dataclass(kw_only=True)
class Response:
    """One complete answer. Like `Request`, it may be read but not changed."""

    content: tuple[Block, ...]
    stop_reason: StopReason
    stop_detail: str | None = None
    """The provider's own word for the stop reason, or the category of a refusal."""
    usage: Usage = Usage(requests=1)
    model: str = ""
    """Which model answered, as the provider names it."""
    id: str = ""
    """The provider's id of the answer."""


#
# Not frozen: they are made by the hundred for each response, and a frozen one costs three times as much to make. The
# benchmark `over-http` needs it.


@lazy_dataclass()
class ResponseStarted:
    """The first part: it says who answers, and how much input was counted already."""

    model: str
    id: str
    usage: Usage


@lazy_dataclass()
class TextPart:
    """A piece of text, for display: the whole comes as `BlockFinished`."""

    text: str


@lazy_dataclass()
class ThinkingPart:
    """A piece of reasoning, for display."""

    text: str


@lazy_dataclass()
class InputPart:
    """A piece of a call's arguments, for display: JSON text, cut anywhere."""

    tool_use_id: str
    tool_name: str
    json: str


@lazy_dataclass()
class BlockFinished:
    """One block is complete. Blocks come in the order of the message."""

    block: Block


@lazy_dataclass()
class UsageSeen:
    """The usage counted so far. It replaces what earlier parts of this response said."""

    usage: Usage


@lazy_dataclass()
class ResponseFinished:
    """The last part: it says why the model stopped."""

    stop_reason: StopReason
    stop_detail: str | None = None
    usage: Usage | None = None
    """The usage of the whole response, if no earlier part told it."""


@lazy_dataclass()
class Retried:
    """A request failed and is repeated after a wait. Comes before the wait."""

    attempt: int
    """The number of the request that failed, from 1."""
    max_attempts: int
    delay_s: float
    error: ProviderError


@lazy_dataclass()
class Restarted:
    """Forget the blocks and deltas of this call so far: it starts again. The usage they reported stays counted."""

    usage: Usage | None = None
    """What the failed request used, if its error told. None: it used what its parts told."""


@lazy_dataclass()
class Answered:
    """The model, of several, that gives the answer which follows (from a model around models)."""

    provider: str
    model: str


Part: TypeAlias = (
    ResponseStarted
    | TextPart
    | ThinkingPart
    | InputPart
    | BlockFinished
    | UsageSeen
    | ResponseFinished
    | Retried
    | Restarted
    | Answered
)
"""A piece of an answer, as a model yields it."""


class Model(Protocol):
    """A language model."""

    @property
    def provider(self) -> str:
        """The provider's short name, for example `anthropic`."""
        ...

    @property
    def name(self) -> str:
        """The model's name, as the provider knows it."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        """Ask the model. Leaving the context closes the request, finished or not.

        Entering and iterating raise `ProviderError` and nothing else (except for cancellation). A response that ends
        without `ResponseFinished` is an error: `stream_cut`.
        """
        ...


class Tap(Protocol):
    """A tap on one request to a model: it learns what is sent, and what comes back. Nothing here raises or waits."""

    def note_body(self, body: bytes, pieces: Sequence[bytes]) -> None:
        """Take note of a body that was made: it is the pieces, joined. The encoder keeps them from request to
        request."""
        ...

    def note_request(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Take note of a request that goes out now; of another one, if a model asks several."""
        ...

    def note_status(self, status: int, request_id: str | None) -> None:
        """Take note of the beginning of the answer."""
        ...

    def note_data(self, data: bytes | Sequence[tuple[bytes, bytes]]) -> None:
        """Take note of a part of the answer: events, by name and data, or a body."""
        ...

    def note_response(self, response: Response) -> None:
        """Take note of the complete answer."""
        ...

    def note_failure(self, error: BaseException) -> None:
        """Take note that there is no answer, or not all of it."""
        ...


class RequestUnderWay:
    """A request that is made here, as whoever helps to make it finds it."""

    tap: Tap | None = None
    """The tap that hears the request; None: nobody does."""
    paid_max_tokens: int | None = None
    """The longest answer that a budget pays for now, for a model that asks another one within the same call. None: the
    request says it."""


current_request: ContextVar[RequestUnderWay | None] = ContextVar("journeyman_request", default=None)
"""The request that is made here."""


def current_tap() -> Tap | None:
    """Return who hears the request that is made here."""
    request = current_request.get()
    return None if request is None else request.tap


class Opens(Protocol):
    """A model that has something to do for each run, such as opening what is closed when the run ends. These blocks may
    nest."""

    def open(self) -> AbstractAsyncContextManager[object]: ...


@lazy_dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts that are known about a model before it is asked."""

    max_output_tokens: int | None = None
    """The longest answer it can give, in tokens; None when unknown."""
    context_window: int | None = None
    """The most tokens of input and output together; None when unknown."""
    price: Price | None = None
    """What it costs; None when unknown."""
    loads_tools: bool = False
    """Whether it loads deferred tools itself."""
    sees_tools: bool | None = None
    """False: its server has told that it shows the model no tools. None: unknown, and taken for granted."""
    media: MediaSupport | None = None
    """Which files it takes from users; None when unknown: then all are tried."""
    native_output: bool | None = None
    """Whether it can be made to answer with JSON of a schema; None when unknown: then it is tried."""
    hosted: HostedToolSupport | None = None
    """Which tools its provider runs; None when unknown: then they are asked for."""


UNKNOWN: Final = Facts()
"""The facts of a model of which nothing is known."""


class HasFacts(Protocol):
    """A model that tells facts about itself."""

    @property
    def facts(self) -> Facts: ...


class WholeModel(Model, Opens, HasFacts, Protocol):
    """A model with everything that an adapter has: it is asked, it opens what it needs, and it tells facts."""


def facts_of(model: Model) -> Facts:
    """Return what is known about a `HasFacts` model; `UNKNOWN` for any other."""
    return getattr(model, "facts", UNKNOWN)


def sent_tools(tools: Sequence[ToolSpec], *, loads_tools: bool) -> tuple[ToolSpec, ...]:
    """Return the tools that a model is sent: the deferred ones, or those that stand in for them.

    A provider refuses tools of which all are deferred.
    """
    if loads_tools and any(tool.deferred for tool in tools):
        sent = tuple([tool for tool in tools if not tool.is_proxy])
        return sent if any(not tool.deferred for tool in sent) else ()
    return tuple([tool for tool in tools if not tool.deferred])


def make_no_price_error(model: Model) -> ModelUnavailable:
    """Return the reason why a run whose cost is limited cannot use `model`: its price is unknown."""
    return ModelUnavailable(
        "its cost is limited, and it has no known price",
        model=f"{model.provider}:{model.name}",
        hint="Give the model its price, as in connect(name, price=Price(…)), or remove the limit on cost.",
    )


def opened(model: Model) -> AbstractAsyncContextManager[object]:
    """Return a context that holds open what an `Opens` model needs; an empty one for any other model."""
    opens: Callable[[], AbstractAsyncContextManager[object]] | None = getattr(model, "open", None)
    return _NOTHING_TO_OPEN if opens is None else opens()


LEAST_TEXT_CHARS: Final = 1024 * 1024
"""How much text, reasoning and arguments an answer may always hold together, in characters."""
TEXT_CHARS_PER_TOKEN: Final = 64
"""How much more it may hold for each token that it may have."""
MAX_OTHER_CHARS: Final = 32 * 1024 * 1024
"""How much all its other blocks may hold."""
MAX_BLOCKS: Final = 1_000
"""How many blocks an answer may have."""


class Room:
    """The room that is left for an answer: a service that sends without end does not fill the memory.

    Who reads an answer lowers `chars` by what came, and calls `check` when that is below 0.
    """

    __slots__ = ("chars", "limit", "n_blocks", "other")

    def __init__(self, max_tokens: int | None = None) -> None:
        """`max_tokens`: the longest answer that was asked for; None where that is not known."""
        self.limit = self.chars = max(LEAST_TEXT_CHARS, TEXT_CHARS_PER_TOKEN * (max_tokens or 0))
        self.other = MAX_OTHER_CHARS
        self.n_blocks = MAX_BLOCKS

    def check(self) -> None:
        """Raise if the room is used up.

        Raises:
            UnusableAnswer: there is none left.
        """
        if self.chars < 0:
            raise UnusableAnswer(f"it has more than {self.limit:,} characters", limit=self.limit)
        if self.other < 0:
            wrong = f"it has more than {MAX_OTHER_CHARS:,} characters beside its text"
            raise UnusableAnswer(wrong, limit=MAX_OTHER_CHARS)
        if self.n_blocks < 0:
            raise UnusableAnswer(f"it has more than {MAX_BLOCKS:,} blocks", limit=MAX_BLOCKS)

    def take(self, block: Block) -> None:
        """Take in a whole block.

        Raises:
            UnusableAnswer: there is no room for it.
        """
        self.n_blocks -= 1
        match block:
            case Text() | Thinking():
                self.chars -= len(block.text)
            case ToolUse():
                self.chars -= len(block.malformed or block.input_json)
            case Opaque():
                self.other -= len(block.json)
            case RedactedThinking():
                self.other -= len(block.data)
            case _:
                pass
        if isinstance(block, Thinking):
            self.other -= len(block.signature or "")
        if self.chars < 0 or self.other < 0 or self.n_blocks < 0:
            self.check()


def room_for(request: Request, facts: Facts) -> Room:
    """Return the room for the answer to a request to a model with these facts."""
    return Room(request.max_tokens or request.settings.max_tokens or facts.max_output_tokens)


def is_negative(usage: Usage) -> bool:
    """Tell whether a count is below 0."""
    told = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens or 0, usage.cache_write_tokens or 0)
    return min(*told, usage.reasoning_tokens or 0, usage.cost or 0, usage.web_searches or 0) < 0


def checked_usage(usage: Usage) -> Usage:
    """Return the usage that a service reports, if it can be true.

    Raises:
        UnusableAnswer: a count of it is negative, which would give a run more than it may use.
    """
    if is_negative(usage):
        raise UnusableAnswer("it reports a negative use")
    return usage


_NOTHING_TO_OPEN: Final = nullcontext()


def read_unfinished_text(parts: object) -> str:
    """Return the text of the block in which an answer broke off, where its parts have not told it: without listeners,
    only whole blocks are told. It is empty for models that cannot tell."""
    told: Callable[[], str] | None = getattr(parts, "unfinished_text", None)
    return "" if told is None else told()


class Collector:
    """A collector of the parts of one model call, which adds them up."""

    __slots__ = (
        *("_blocks", "_finished", "_id", "_is_counted", "_lost", "_max_tokens", "_model"),
        *("_pieces", "_room", "_shown", "_texts", "_usage"),
    )

    def __init__(self, max_tokens: int | None = None) -> None:
        """`max_tokens`: the longest answer that was asked for, if that is known; see `Room`."""
        self._max_tokens = max_tokens
        self._room = Room(max_tokens)
        self._shown = self._room.limit
        """How many more characters of text pieces may come."""
        self._blocks: list[Block] = []
        self._texts: list[str] = []
        """The parts of a text block that is not finished."""
        self._pieces: list[str] = []
        """The parts of reasoning and arguments that are not finished."""
        self._usage: Usage | None = None
        self._lost = NOTHING_USED
        self._model = ""
        self._id = ""
        self._finished: ResponseFinished | None = None
        self._is_counted = False
        """True once the output was counted too, and not just the input."""

    def add(self, part: Part) -> None:
        """Take in the next part.

        Raises:
            UnusableAnswer: the answer has become too large, or reports a negative use.
        """
        if isinstance(part, BlockFinished):
            self._room.take(part.block)
            self._blocks.append(part.block)
            self._texts.clear()
            self._pieces.clear()
        elif isinstance(part, TextPart):
            self._texts.append(part.text)
            self._shown -= len(part.text)
            if self._shown < 0:
                self._room.chars = min(self._room.chars, self._shown)
                self._room.check()
        elif isinstance(part, ResponseFinished):
            self._finished = part
            if part.usage is not None:
                self._usage, self._is_counted = checked_usage(part.usage), True
        elif isinstance(part, ThinkingPart):
            self._pieces.append(part.text)
        elif isinstance(part, InputPart):
            self._pieces.append(part.json)
        else:
            self._add_fact(part)

    def _add_fact(self, part: Part) -> None:
        match part:
            case UsageSeen():
                self._usage, self._is_counted = checked_usage(part.usage), True
            case ResponseStarted():
                self._model, self._id, self._usage = part.model, part.id, checked_usage(part.usage)
            case Restarted():
                self._lost = self.sum_usage() if part.usage is None else self._lost + part.usage
                self._blocks.clear()
                self._texts.clear()
                self._pieces.clear()
                self._room = Room(self._max_tokens)
                self._shown = self._room.limit
                self._usage, self._finished, self._is_counted = None, None, False
            case _:
                return

    def response(self) -> Response:
        """Return the response that the parts make.

        Raises:
            ProviderError: the parts ended before the response did (`stream_cut`).
        """
        if self._finished is None:
            raise ProviderError("The model's answer ended before it was complete.", kind="stream_cut")
        return Response(
            content=tuple(self._blocks),
            stop_reason=self._finished.stop_reason,
            stop_detail=self._finished.stop_detail,
            usage=self.sum_usage(),
            model=self._model,
            id=self._id,
        )

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        finished = [block.text for block in self._blocks if isinstance(block, Text)]
        return "\n\n".join([text for text in (*finished, "".join(self._texts)) if text])

    @property
    def words(self) -> str:
        """All that the model has written so far: text, reasoning and arguments."""
        written = [*self._texts, *self._pieces]
        for block in self._blocks:
            match block:
                case Text() | Thinking():
                    written.append(block.text)
                case ToolUse():
                    written.append(block.malformed or block.input_json)
                case _:
                    pass
        return "".join(written)

    def sum_usage(self) -> Usage:
        """Return the usage of the call, as far as it is known: exact when the call has finished and told its usage."""
        if self._finished is not None and self._is_counted and self._usage is not None:
            return self._usage if self._lost is NOTHING_USED else self._lost + self._usage
        seen = self._usage or Usage(requests=1)
        return self._lost + replace(seen, exact=False)

    def used_before(self, failure: BaseException) -> Usage:
        """Return what the call has used up to its failure."""
        told = failure.usage if isinstance(failure, ProviderError) else None
        return self.sum_usage() if told is None else self._lost + told


async def collect(parts: AsyncIterator[Part]) -> Response:
    """Add up `parts` into a `Response`: all there is to a call that is not streamed.

    Raises:
        ProviderError: the stream failed, or ended too early.
    """
    collector = Collector()
    async for part in parts:
        collector.add(part)
    return collector.response()
