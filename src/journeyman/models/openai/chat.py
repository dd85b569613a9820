"""Chat Completions: OpenAI's, and those of the many servers that speak it: request settings and the stream of parts.

The bytes of a conversation are made in `openai_chat_encode`, answers are read in `openai_chat_decode`, HTTP is done in
`transport`. What a service can do, and what its errors mean, is in `openai_endpoint`. Read `openai.py` next: models by
name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final

from journeyman.errors import ProviderError
from journeyman.model import Part, Request, ThinkingLevel
from journeyman.models.answers import Asked, refused
from journeyman.models.openai.chat_decode import Decoder
from journeyman.models.openai.chat_encode import encode
from journeyman.models.openai.endpoint import (
    KINDS,
    OPENAI,
    Endpoint,
    address,
    chat_tools,
    check_key,
    check_tools,
    context_window,
    effort,
    headers_for,
    max_output_tokens,
    refused_here,
    with_extra,
    with_overflow,
)
from journeyman.models.transport import Answer, Timeouts, lease, open_stream
from journeyman.types import JsonObject, Price

if TYPE_CHECKING:
    from journeyman.model import Limited, Model, Opens, Priced

_RESERVED: Final = frozenset({"messages", "stream"})
_TOOL_CHOICES: Final = {"any": "required", "none": "none"}
_ROOM_FOR_ANSWER: Final = 256  # tokens that a budget leaves when the limit of a call is lowered


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class OpenAIChatModel:
    """A model behind Chat Completions.

    No key is needed where the server asks for none. `headers` are sent with every request.
    """

    name: str
    _: KW_ONLY
    endpoint: Endpoint = OPENAI
    """What the service can do, and where its paths are."""
    api_key: str | None = None
    base_url: str | None = None
    """The address that the endpoint's path follows, usually with `/v1`; None: the endpoint's own."""
    streaming: bool = True
    """False: ask for the answer in one piece, where a server cannot stream, or not with tools."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeouts: Timeouts = field(default_factory=Timeouts)
    price: Price | None = None
    """What the model costs; None leaves the cost of its answers unknown."""

    def __post_init__(self) -> None:
        check_key(self.api_key, model=self.name)
        _ = self._url  # without an address no model

    def __repr__(self) -> str:
        return f"<OpenAIChatModel {self.endpoint.provider}:{self.name}>"

    @property
    def provider(self) -> str:
        return self.endpoint.provider

    @property
    def max_output_tokens(self) -> int:
        """The endpoint's, or the documented maximum; 8,192 for a model that is not known here."""
        return max_output_tokens(self.endpoint, self.name)

    @property
    def context_window(self) -> int | None:
        return context_window(self.endpoint, self.name)

    def open(self) -> AbstractAsyncContextManager[object]:
        """Keep connections over many requests."""
        return lease()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        """Ask the model; see `Model.stream`."""

        def post() -> AbstractAsyncContextManager[Answer]:
            return open_stream(self._url, headers=self._headers, body=self.body(request), timeouts=self.timeouts)

        tells_cost = self.endpoint.tells_cost
        decoder = Decoder(self.provider, self.price, deltas=request.deltas, tells_cost=tells_cost)
        return Asked(post, decoder, refused=_refused, expected="chat completions")

    def body(self, request: Request) -> bytes:
        """Return the request's body as it is sent.

        Raises:
            ProviderError: the request asks for what the service would refuse (`bad_request`).
        """
        check_tools(self.endpoint, model=self.name, asked=bool(request.prefix.tools))
        head = self._head(request)
        tools = head.pop("tools", None)
        more_tools = tools if isinstance(tools, list) else []
        endpoint, prefix, messages = self.endpoint, request.prefix, request.messages
        cache = request.settings.cache if self.name.startswith(endpoint.cache_marks) else None
        try:
            return encode(head, prefix, messages, endpoint=endpoint, cache=cache, more_tools=more_tools)
        except (TypeError, ValueError) as error:
            failure = refused_here(
                f"The request cannot be written as JSON: {error}. Look at schemas and Settings.extra."
            )
        raise failure

    def _head(self, request: Request) -> JsonObject:
        settings, endpoint = request.settings, self.endpoint
        ceiling = self.max_output_tokens if settings.max_tokens is None else settings.max_tokens
        limit = ceiling if request.max_tokens is None else min(ceiling, request.max_tokens)
        head: JsonObject = {"model": self.name, endpoint.max_tokens_field: limit, "stream": self.streaming}
        if self.streaming and endpoint.usage_in_stream:
            head["stream_options"] = {"include_usage": True}
        if endpoint.store is not None:
            head["store"] = endpoint.store
        if endpoint.tells_cost:
            head["usage"] = {"include": True}
        if request.prefix.tools:
            head |= self._tool_fields(settings.tool_choice)
        if settings.stop_sequences:
            head["stop"] = list(settings.stop_sequences)
        head |= self._reasoning(settings.thinking, request, ceiling=ceiling, limit=limit)
        return with_extra(head, settings.extra, reserved=_RESERVED)

    def _tool_fields(self, choice: str) -> JsonObject:
        fields: JsonObject = {}
        if choice in _TOOL_CHOICES:
            fields["tool_choice"] = _TOOL_CHOICES[choice]
        if self.endpoint.parallel_tool_calls is not None:
            fields["parallel_tool_calls"] = self.endpoint.parallel_tool_calls
        return fields

    def _reasoning(
        self, asked: ThinkingLevel | int | None, request: Request, *, ceiling: int, limit: int
    ) -> JsonObject:
        """Return the fields for reasoning; some models have tools with the effort `none` only, and must be told so."""
        tools = chat_tools(self.endpoint, self.name) if request.prefix.tools else "yes"
        if tools == "no":
            raise self._refused_with_tools("has no tools over Chat Completions")
        if isinstance(asked, int):
            return self._budget(asked, ceiling=ceiling, limit=limit)
        if asked is None:
            return {} if tools == "yes" else self._effort("off")
        fields = self._effort(asked)
        if tools == "without reasoning" and asked != "off":
            raise self._refused_with_tools("cannot both reason and use tools over Chat Completions")
        return fields

    def _effort(self, level: ThinkingLevel) -> JsonObject:
        match self.endpoint.effort_field:
            case "reasoning_effort":
                return {"reasoning_effort": effort(self.endpoint, self.name, level)}
            case "reasoning":
                return {"reasoning": {"effort": effort(self.endpoint, self.name, level)}}
            case None:
                raise refused_here(
                    f"{self.provider}:{self.name} has no known field for the effort of reasoning. Leave"
                    " Settings.thinking at None and put what the server takes into Settings.extra, or replace"
                    " effort_field and efforts of the endpoint."
                )

    def _budget(self, budget: int, *, ceiling: int, limit: int) -> JsonObject:
        """Return the field for a budget; `limit` is `ceiling` or less, when a budget of the run leaves less."""
        if not self.endpoint.takes_budget:
            name = f"{self.provider}:{self.name}"
            raise refused_here(f"{name} takes no thinking budget. Ask for a level, such as thinking='medium'.")
        if not 0 < budget < ceiling:
            said = f"A thinking budget of {budget} is not between 1 and max_tokens, which is {ceiling}."
            raise refused_here(f"{said} Change one of the two.")
        budget = min(budget, limit - _ROOM_FOR_ANSWER)
        return {"reasoning": {"max_tokens": budget}} if budget > 0 else {}

    def _refused_with_tools(self, words: str) -> ProviderError:
        prefix = "openai" if self.provider == "openai" else f"{self.provider}-responses"
        return refused_here(
            f"{self.provider}:{self.name} {words}. Use it over the Responses API, as '{prefix}:{self.name}', or without"
            " tools, typed output and sub-agents."
        )

    @property
    def _url(self) -> str:
        return address(self.endpoint, base_url=self.base_url, path=self.endpoint.chat_path, model=self.name)

    @property
    def _headers(self) -> dict[str, str]:
        return headers_for(self.endpoint, api_key=self.api_key, more=self.headers)


async def _refused(answer: Answer) -> ProviderError:
    return with_overflow(await refused(answer, KINDS))


if TYPE_CHECKING:
    _model: Model = OpenAIChatModel("")
    _opens: Opens = OpenAIChatModel("")
    _limited: Limited = OpenAIChatModel("")
    _priced: Priced = OpenAIChatModel("")
