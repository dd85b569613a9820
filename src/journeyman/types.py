"""The values of a conversation: messages, their blocks, and what they cost.

Frozen, slotted and provider-neutral. `history.py` owns the rules by which these values may follow one another.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import field, fields, is_dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import islice
from operator import attrgetter
from os import PathLike
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json
from typing_extensions import TypeForm

from journeyman.content.media import check_file, checked_url, read_file
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.json_numbers import read_object
from journeyman.definition.narrowing import is_json_object, is_list, is_list_or_tuple

__all__ = [
    "Base64",
    "Block",
    "Content",
    "Effect",
    "JsonObject",
    "Opaque",
    "Price",
    "RedactedThinking",
    "Role",
    "RunPath",
    "Source",
    "StopReason",
    "TextOrigin",
    "Thinking",
    "ToolReference",
    "ToolUse",
    "Url",
    "UserContent",
]

T = TypeVar("T")

JsonObject: TypeAlias = dict[str, JsonValue]
"""What JSON calls an object, parsed."""
RefusalCause: TypeAlias = Literal[
    "write", "read", "protected", "program", "network", "socket", "privilege", "held", "not_held"
]
"""The kind of what a sandbox refused: to change what is outside, to read what is hidden, to change what is protected, a
program, a host, a unix socket, to be another user; `held`: a file that programs run by themselves was put aside;
`not_held`: such a file could not be."""
RunPath: TypeAlias = tuple[str, ...]
"""Names a run: the agent's name, or, for a sub-agent, the names from the root down, each with the number of its run."""
StopReason: TypeAlias = Literal[
    "end_turn", "tool_use", "stop_sequence", "max_tokens", "pause_turn", "refusal", "context_window", "other"
]
"""Why the model stopped. `context_window`: the response filled the window. `other`: a value this library does not
know; the provider's own word is in `Response.stop_detail`."""

Role: TypeAlias = Literal["user", "assistant"]


_SHOWN_BASE64: Final = 64
"""The longest Base64 that `repr` shows, in characters."""


@lazy_dataclass(frozen=True)
class Base64:
    """Bytes inside the message."""

    data: str
    """Base64 text without line breaks."""
    media_type: str
    """The type of the bytes, for example `image/png` or `application/pdf`."""
    type: Literal["base64"] = field(default="base64", repr=False, kw_only=True)

    def __repr__(self) -> str:
        """Show short data as it is, and of longer the size and a digest: a picture would fill a log."""
        shown = repr(self.data)
        if len(self.data) > _SHOWN_BASE64:
            digest = sha256(self.data.encode()).hexdigest()[:16]
            shown = f"<{len(self.data) * 3 // 4:,} bytes, sha256 {digest}>"
        return f"Base64(data={shown}, media_type={self.media_type!r})"

    @classmethod
    def of(cls, data: bytes, media_type: str) -> Base64:
        """Return bytes of a type, as they stand in a message."""
        return cls(b64encode(data).decode(), media_type)


@lazy_dataclass(frozen=True)
class Url:
    """Bytes that the provider fetches by itself."""

    url: str
    type: Literal["url"] = field(default="url", repr=False, kw_only=True)


Source: TypeAlias = Annotated[Base64 | Url, Field(discriminator="type")]


TextOrigin: TypeAlias = Literal["notice", "mail", "summary", "memory", "stranger"]
"""`notice`: that background work has ended. `mail`: another agent's. `summary`: a model's, of an older conversation.
`memory`: a file's of the project, in a system prompt. `stranger`: anybody's, such as a document that is to be read."""


@lazy_dataclass(frozen=True)
class Text:
    """Words: the user's, a tool's or the model's."""

    text: str
    cache_mark: bool = field(default=False, kw_only=True)
    """End a cached prefix here (see `ModelSettings.cache`); ignored by providers that cache by themselves."""
    extra: JsonObject | None = field(default=None, kw_only=True)
    """Provider fields beside the text, such as citations, kept verbatim."""
    origin: TextOrigin | None = field(default=None, kw_only=True, compare=False, repr=False)
    """Who wrote a text on the user's side, if not the user. Never sent, and never trusted as the user's words."""
    type: Literal["text"] = field(default="text", repr=False, kw_only=True)


@lazy_dataclass(frozen=True)
class Image:
    """A picture in user input or in a tool's result.

    `from_path` raises an `OSError` if the file cannot be read. All three raise a `ValueError` if an address is wrong,
    or if bytes are of another type than you said, cut off, or too many. So do `Document` and `Audio`.
    """

    source: Source
    origin: TextOrigin | None = field(default=None, kw_only=True, compare=False, repr=False)
    """Whose it is, if not the user's. Never sent; a `TaintGate` does not trust it."""
    type: Literal["image"] = field(default="image", repr=False, kw_only=True)

    @classmethod
    def from_path(cls, path: str | PathLike[str], media_type: str | None = None) -> Image:
        """Read a file; its name says what it is, unless `media_type` does."""
        return cls(Base64.of(*read_file(path, "image", media_type)))

    @classmethod
    def from_url(cls, url: str) -> Image:
        """Point to a picture of the web. A provider that cannot fetch it is sent its bytes."""
        return cls(Url(checked_url(url)))

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str | None = None) -> Image:
        """Take bytes; `media_type` is checked, and may be left out."""
        return cls(Base64.of(data, check_file(data, "image", media_type, name="The picture")))


@lazy_dataclass(frozen=True)
class Document:
    """A document (PDF or plain text) in user input or in a tool's result."""

    source: Source
    title: str | None = None
    origin: TextOrigin | None = field(default=None, kw_only=True, compare=False, repr=False)
    """Whose it is, if not the user's. Never sent; a `TaintGate` does not trust it."""
    type: Literal["document"] = field(default="document", repr=False, kw_only=True)

    @classmethod
    def from_path(cls, path: str | PathLike[str], media_type: str | None = None, title: str | None = None) -> Document:
        """Read a PDF, or a text in UTF-8; without a title, the file's name is the title."""
        return cls(Base64.of(*read_file(path, "document", media_type)), PurePath(path).name if title is None else title)

    @classmethod
    def from_url(cls, url: str, title: str | None = None) -> Document:
        """Point to a document of the web. A provider that cannot fetch it is sent its bytes."""
        return cls(Url(checked_url(url)), title)

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str | None = None, title: str | None = None) -> Document:
        """Take bytes; `media_type` is checked, and may be left out."""
        return cls(Base64.of(data, check_file(data, "document", media_type, name=title or "The document")), title)


@lazy_dataclass(frozen=True)
class Audio:
    """A sound in user input, such as speech."""

    source: Source
    origin: TextOrigin | None = field(default=None, kw_only=True, compare=False, repr=False)
    """Whose it is, if not the user's. Never sent; a `TaintGate` does not trust it."""
    type: Literal["audio"] = field(default="audio", repr=False, kw_only=True)

    @classmethod
    def from_path(cls, path: str | PathLike[str], media_type: str | None = None) -> Audio:
        """Read a file; its name says what it is, unless `media_type` does."""
        return cls(Base64.of(*read_file(path, "audio", media_type)))

    @classmethod
    def from_url(cls, url: str) -> Audio:
        """Point to a sound of the web. A provider that cannot fetch it is sent its bytes."""
        return cls(Url(checked_url(url)))

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str | None = None) -> Audio:
        """Take bytes; `media_type` is checked, and may be left out."""
        return cls(Base64.of(data, check_file(data, "audio", media_type, name="The sound")))


@lazy_dataclass(frozen=True)
class Thinking:
    """The model's reasoning; sent back unchanged, signature included."""

    text: str
    signature: str | None = None
    provider: str | None = None
    """The provider whose model wrote it; others read it as a text. None: unknown, and treated as the reader's own."""
    type: Literal["thinking"] = field(default="thinking", repr=False, kw_only=True)


@lazy_dataclass(frozen=True)
class RedactedThinking:
    """Reasoning that the provider encrypted; sent back unchanged."""

    data: str
    provider: str | None = None
    """The provider whose model wrote it; others cannot read it. None: unknown, and treated as the reader's own."""
    type: Literal["redacted_thinking"] = field(default="redacted_thinking", repr=False, kw_only=True)


@lazy_dataclass(frozen=True)
class ToolUse:
    """The model asks for one call."""

    id: str
    """Unique in its history."""
    name: str
    input_json: str = "{}"
    """The arguments: the JSON object exactly as the model wrote it."""
    malformed: str | None = None
    """What the model wrote when that is no JSON object; `input_json` is then `{}`, so that the message can still be
    sent."""
    wire_id: str | None = None
    """The provider's id, when it was empty or repeated and `id` had to be made."""
    extra: JsonObject | None = field(default=None, kw_only=True)
    """Provider fields beside the call, such as who made it, kept verbatim under the provider's name."""
    type: Literal["tool_use"] = field(default="tool_use", repr=False, kw_only=True)

    @property
    def input(self) -> JsonObject:
        """The arguments, parsed again at each access, so that no reader can change the history. Numbers keep their
        digits: a fraction that no double holds is a `WrittenNumber`."""
        return read_object(self.input_json)


@lazy_dataclass(frozen=True)
class ToolReference:
    """In a tool's result: a deferred tool that was found. A provider that loads deferred tools itself shows it to the
    model; for all others it is left out."""

    name: str
    type: Literal["tool_reference"] = field(default="tool_reference", repr=False, kw_only=True)


@lazy_dataclass(frozen=True)
class ToolResult:
    """The answer to one call. A tool may return one to give content blocks or to report an error."""

    content: str | tuple[Text | Image | Document | ToolReference, ...]
    is_error: bool = False
    tool_use_id: str = ""
    """Filled in by the loop."""
    untrusted: bool | None = field(default=None, kw_only=True, compare=False, repr=False)
    """True: these may be a stranger's words, as the tool declared that made them, or says of this result. Never sent,
    and stored with the message, so that a `TaintGate` knows it also where the tool is another one by then, or gone."""
    type: Literal["tool_result"] = field(default="tool_result", repr=False, kw_only=True)

    @property
    def text(self) -> str:
        """The words of the result; pictures and documents are left out."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def parts(self) -> tuple[Text | Image | Document, ...]:
        """The content as blocks, without references; of nothing but references, a text with the names."""
        if isinstance(self.content, str):
            return (Text(self.content),)
        parts = tuple([block for block in self.content if not isinstance(block, ToolReference)])
        names = ", ".join([block.name for block in self.content if isinstance(block, ToolReference)])
        return parts or ((Text(f"Found: {names}."),) if names else ())


@lazy_dataclass(frozen=True)
class Opaque:
    """A block that this library has no class for: kept verbatim, sent back to its own provider only."""

    provider: str
    json: str
    """The block exactly as the provider sent it: one JSON object with a `type`."""
    type: Literal["opaque"] = field(default="opaque", repr=False, kw_only=True)

    @property
    def kind(self) -> str:
        """The provider's name for the block's type."""
        value: JsonObject = from_json(self.json)
        return str(value.get("type", ""))


UserContent: TypeAlias = Text | Image | Document | Audio
"""What a prompt may consist of."""

Content: TypeAlias = UserContent | Sequence[str | UserContent]
"""What an agent that takes a text takes as well: a block, or texts and blocks one after the other."""

Block: TypeAlias = Annotated[
    Text | Image | Document | Audio | Thinking | RedactedThinking | ToolUse | ToolResult | Opaque,
    Field(discriminator="type"),
]
"""Anything that a message may hold."""


@lazy_dataclass(frozen=True)
class Message:
    """One message of the conversation. Never changed; an edit makes another."""

    role: Role
    content: tuple[Block, ...]
    continues: bool = False
    """True when this assistant message goes on where the one before it paused."""
    wire: Annotated[dict[str, bytes], Field(exclude=True)] = field(
        default_factory=lambda: {}, init=False, repr=False, compare=False
    )
    """The message as sent, by codec id: encoded once, by the adapter. Not stored."""

    @property
    def text(self) -> str:
        """The words of the message's text blocks, with a blank line between two."""
        return "\n\n".join([block.text for block in self.content if isinstance(block, Text) and block.text])

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The calls this message asks for, in order."""
        return tuple([block for block in self.content if isinstance(block, ToolUse)])


@lazy_dataclass(frozen=True, kw_only=True)
class Usage:
    """The tokens, searches and cost of requests. Add two with `+`, many with `sum`; `Usage()` is nothing used.

    `str` writes it for people: `1,204 in, 310 out, $0.0123`.
    """

    requests: int = 0
    """Responses counted, complete or not."""
    input_tokens: int = 0
    """Input tokens neither read from nor written to a cache."""
    output_tokens: int = 0
    cache_read_tokens: int | None = None
    """None when no response reported it."""
    cache_write_tokens: int | None = None
    """None when no response reported it."""
    reasoning_tokens: int | None = None
    """The part of `output_tokens` spent on reasoning; None when no response reported it."""
    web_searches: int | None = None
    """Searches that the provider ran itself; None when no response reported any. The next two fields are alike."""
    code_executions: int | None = None
    file_searches: int | None = None
    cost: float | None = None
    """US dollars; None when the price of any counted response is unknown."""
    cache_saved: float | None = None
    """US dollars that the cache saved, against all input at the plain price; below 0 when writing it cost more. None
    when no response reported a cache, or when the price of any that did is unknown."""
    exact: bool = True
    """False when a response did not report all that it used, as one that broke off: the numbers are then lower bounds,
    with an estimate of what it had written."""

    @property
    def total_tokens(self) -> int:
        """All tokens, cached or not, in and out."""
        cached = (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)
        return self.input_tokens + self.output_tokens + cached

    @property
    def reports_cache(self) -> bool:
        """True when a response told what it read from a cache or wrote to it, even if that was nothing."""
        return self.cache_read_tokens is not None or self.cache_write_tokens is not None

    def __add__(self, other: Usage) -> Usage:
        if self is NOTHING_USED or other is NOTHING_USED:
            return other if self is NOTHING_USED else self
        return Usage.total((self, other))

    def __radd__(self, other: int) -> Usage:
        """Let `sum` begin with its 0."""
        return self if other == 0 else NotImplemented

    def __str__(self) -> str:
        least = "" if self.exact else "at least "
        cost = "cost unknown" if self.cost is None and self.requests else f"${self.cost or 0:.4f}"
        return f"{least}{self.total_tokens - self.output_tokens:,} in, {self.output_tokens:,} out, {cost}"

    @classmethod
    def total(cls, usages: Sequence[Usage]) -> Usage:
        """Add up many at once."""
        if not usages:
            return NOTHING_USED
        requests, inputs, outputs, *told, costs, saved, exact = zip(*map(_FACTS, usages), strict=True)
        cached = zip(saved, told[0], told[1], strict=True)
        return cls(
            requests=sum(requests),
            input_tokens=sum(inputs),
            output_tokens=sum(outputs),
            **{
                name: sum(known) if (known := [count for count in counts if count is not None]) else None
                for name, counts in zip(_MAY_BE_UNTOLD, told, strict=True)
            },
            cost=_sum_costs([cost for cost, counted in zip(costs, requests, strict=True) if counted]),
            cache_saved=_sum_costs(
                [saving for saving, read, written in cached if saving is not None or read or written]
            ),
            exact=all(exact),
        )


_FACTS: Final = attrgetter(*[each.name for each in fields(Usage)])
_MAY_BE_UNTOLD: Final = [each.name for each in fields(Usage)[3:-3]]


def _sum_costs(costs: Sequence[float | None]) -> float | None:
    """Return the sum of what counted responses cost; None when there is none, or one whose cost is unknown."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


NOTHING_USED: Final = Usage()


@lazy_dataclass(frozen=True, kw_only=True)
class Price:
    """The price of a model, in US dollars per million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    """None: as `input`."""
    cache_write: float | None = None
    """None: as `input`."""
    web_search: float | None = field(default=None, repr=False)
    """For a thousand searches that the provider runs itself; None: unknown. The next two fields are alike."""
    code_execution: float | None = field(default=None, repr=False)
    file_search: float | None = field(default=None, repr=False)
    above: tuple[tuple[int, Price], ...] = ()
    """The price of a whole request whose input, cached or not, is longer than so many tokens; the smallest number comes
    first."""

    def at(self, input_tokens: int) -> Price:
        """Return the price of a request with this much input."""
        price = self
        for tokens, higher in self.above:
            if input_tokens > tokens:
                price = higher
        return price

    def of(self, usage: Usage) -> float | None:
        """Return the cost of `usage` in US dollars.

        None when its requests may have had different prices: see `above`; or when it is of a hosted tool without one.
        """
        price, fees = self._one_price(usage), self._fees(usage)
        if price is None or fees is None:
            return None
        read = price.input if price.cache_read is None else price.cache_read
        write = price.input if price.cache_write is None else price.cache_write
        micro_dollars = (
            usage.input_tokens * price.input
            + usage.output_tokens * price.output
            + (usage.cache_read_tokens or 0) * read
            + (usage.cache_write_tokens or 0) * write
        )
        return micro_dollars / 1_000_000 + fees

    def saved(self, usage: Usage) -> float | None:
        """Return what the cache saved, in US dollars, against all input at the plain price.

        Below 0 when writing cost more than reading saved. None when `usage` tells of no cache, or its cost is unknown.
        """
        price = self._one_price(usage)
        if price is None or not usage.reports_cache:
            return None
        read = 0.0 if price.cache_read is None else price.input - price.cache_read
        write = 0.0 if price.cache_write is None else price.input - price.cache_write
        return ((usage.cache_read_tokens or 0) * read + (usage.cache_write_tokens or 0) * write) / 1_000_000

    def charged(self, usage: Usage) -> Usage:
        """Return `usage` with its cost, and with what the cache saved, where it does not tell them itself."""
        if usage.cost is not None and (usage.cache_saved is not None or not usage.reports_cache):
            return usage
        return replace(
            usage,
            cost=self.of(usage) if usage.cost is None else usage.cost,
            cache_saved=self.saved(usage) if usage.cache_saved is None else usage.cache_saved,
        )

    def _fees(self, usage: Usage) -> float | None:
        n_calls = (usage.web_searches, usage.code_executions, usage.file_searches)
        prices = (self.web_search, self.code_execution, self.file_search)
        fees = [None if price is None else n * price / 1_000 for n, price in zip(n_calls, prices, strict=True) if n]
        return _sum_costs(fees) if fees else 0.0

    def _one_price(self, usage: Usage) -> Price | None:
        price = self.at(usage.total_tokens - usage.output_tokens) if self.above else self
        return None if price is not self and usage.requests > 1 else price


def adapter_of(kind: TypeForm[T]) -> TypeAdapter[T]:
    """Return the adapter of a type. It is made when it is first asked for, since that takes time."""
    return _adapters(kind)


@cache
def _adapters(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - `adapter_of` types it
    return TypeAdapter(kind)


def canonical_json(value: JsonValue) -> bytes:
    """Return bytes that are the same for equal JSON, so that a digest can be taken of them."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def dump_messages(messages: Sequence[Message]) -> bytes:
    """Return the messages as JSON, to be read by `load_messages`."""
    return adapter_of(list[Message]).dump_json(list(messages), exclude_none=True)


def load_messages(data: bytes | str) -> list[Message]:
    """Return the messages that `dump_messages` wrote.

    Raises:
        ValueError: `data` holds something else, such as the messages of a provider's own format. The message is one
            line, without the content.
    """
    try:
        messages = adapter_of(list[Message]).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"][:6])) or "the top"
        raise ValueError(f"This is not what dump_messages wrote: at {place[:200]}: {first['msg'][:200]}.") from None
    unknown = [*islice(_unknown_keys(messages, from_json(data)), _UNKNOWN_SHOWN)]
    if unknown:
        raise ValueError(
            f"This is not what dump_messages wrote: {', '.join(unknown)} would be lost. Make messages of another"
            " program into Message(…) first."
        )
    return messages


_UNKNOWN_SHOWN: Final = 5


def _unknown_keys(read: object, given: object, place: str = "") -> Iterator[str]:
    """Give the places in JSON of which nothing was read."""
    if is_list_or_tuple(read) and is_list(given):
        pairs = zip(read, given, strict=True)
        for number, (each, written) in enumerate(pairs):
            yield from _unknown_keys(each, written, f"{place}[{number}]")
    elif is_dataclass(read) and is_json_object(given):
        names = {each.name for each in fields(read) if each.init}
        for key, written in given.items():
            if key not in names:
                yield f"{place}.{key[:60]!r}"
            else:
                yield from _unknown_keys(getattr(read, key), written, f"{place}.{key}")


Effect: TypeAlias = Literal["pure", "idempotent", "once"]
"""What a call does to the world. `pure`: nothing. `idempotent`: the same when repeated. `once`: it must not be
repeated, so after a crash the model is told that the outcome is unknown."""
