"""The Responses API: OpenAI's, and that of the servers that also speak it: request settings and the stream of parts.

Every request holds the whole conversation, and the service is asked to keep nothing; reasoning comes encrypted and goes
back as it came. The bytes of a conversation are made in `openai_responses_encode`, answers are read in
`openai_responses_decode`, HTTP is done in `transport`. What a service can do, and what its errors mean, is in
`openai_endpoint`. Read `openai.py` next: models by name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final

from journeyman.errors import ProviderError
from journeyman.model import Part, Request, Settings, ThinkingLevel
from journeyman.models.answers import Asked, refused
from journeyman.models.openai.endpoint import (
    KINDS,
    OPENAI,
    Endpoint,
    address,
    check_key,
    check_tools,
    context_window,
    effort,
    facts,
    headers_for,
    max_output_tokens,
    refused_here,
    with_extra,
    with_overflow,
)
from journeyman.models.openai.responses_decode import Decoder
from journeyman.models.openai.responses_encode import encode
from journeyman.models.transport import Answer, Timeouts, lease, open_stream
from journeyman.types import JsonObject, Price

if TYPE_CHECKING:
    from journeyman.model import Limited, Model, Opens, Priced

_RESERVED: Final = frozenset({"conversation", "input", "instructions", "previous_response_id", "stream"})
_TOOL_CHOICES: Final = {"any": "required", "none": "none"}
_ENCRYPTED: Final = "reasoning.encrypted_content"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class OpenAIModel:
    """A model behind the Responses API.

    No key is needed where the server asks for none. `headers` are sent with every request. Summaries of the model's
    reasoning come where they are asked for: `Settings(extra={"reasoning": {"summary": "auto"}})`.
    """

    name: str
    _: KW_ONLY
    endpoint: Endpoint = OPENAI
    """What the service can do, and where its paths are."""
    api_key: str | None = None
    base_url: str | None = None
    """The address that the endpoint's path follows, usually with `/v1`; None: the endpoint's own."""
    streaming: bool = True
    """False: ask for the answer in one piece."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeouts: Timeouts = field(default_factory=Timeouts)
    price: Price | None = None
    """What the model costs; None leaves the cost of its answers unknown."""

    def __post_init__(self) -> None:
        check_key(self.api_key, model=self.name)
        _ = self._url  # without an address no model

    def __repr__(self) -> str:
        return f"<OpenAIModel {self.endpoint.provider}:{self.name}>"

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

        decoder = Decoder(self.provider, self.price, deltas=request.deltas)
        return Asked(post, decoder, refused=_refused, expected="a Responses API stream")

    def body(self, request: Request) -> bytes:
        """Return the request's body as it is sent.

        Raises:
            ProviderError: the request asks for what the service would refuse (`bad_request`).
        """
        check_tools(self.endpoint, model=self.name, asked=bool(request.prefix.tools))
        head = self._head(request)
        tools = head.pop("tools", None)
        more_tools = tools if isinstance(tools, list) else []
        try:
            return encode(head, request.prefix, request.messages, endpoint=self.endpoint, more_tools=more_tools)
        except (TypeError, ValueError) as error:
            failure = refused_here(
                f"The request cannot be written as JSON: {error}. Look at schemas and Settings.extra."
            )
        raise failure

    def _head(self, request: Request) -> JsonObject:
        settings = request.settings
        ceiling = self.max_output_tokens if settings.max_tokens is None else settings.max_tokens
        limit = ceiling if request.max_tokens is None else min(ceiling, request.max_tokens)
        head: JsonObject = {"model": self.name, "max_output_tokens": limit, "stream": self.streaming}
        head["store"] = self.endpoint.store or False
        if request.prefix.tools:
            head |= self._tool_fields(settings.tool_choice)
        if settings.stop_sequences:
            raise refused_here(
                f"{self.provider}:{self.name} takes no stop sequences over the Responses API. Leave"
                " Settings.stop_sequences empty, or use the model over Chat Completions."
            )
        head |= self._reasoning(settings.thinking)
        return with_extra(head, _with_includes(head, settings), reserved=_RESERVED)

    def _tool_fields(self, choice: str) -> JsonObject:
        fields: JsonObject = {}
        if choice in _TOOL_CHOICES:
            fields["tool_choice"] = _TOOL_CHOICES[choice]
        if self.endpoint.parallel_tool_calls is not None:
            fields["parallel_tool_calls"] = self.endpoint.parallel_tool_calls
        return fields

    def _reasoning(self, asked: ThinkingLevel | int | None) -> JsonObject:
        """Return the fields for reasoning; it comes encrypted, as nothing of it is kept by the service.

        Only models that are known to reason are asked for that: the others refuse it.
        """
        if isinstance(asked, int):
            name = f"{self.provider}:{self.name}"
            raise refused_here(f"{name} takes no thinking budget. Ask for a level, such as thinking='medium'.")
        fields: JsonObject = {"include": [_ENCRYPTED]} if _is_known_to_reason(self.name) else {}
        if asked is not None:
            fields["reasoning"] = {"effort": effort(self.endpoint, self.name, asked)}
        return fields

    @property
    def _url(self) -> str:
        return address(self.endpoint, base_url=self.base_url, path=self.endpoint.responses_path, model=self.name)

    @property
    def _headers(self) -> dict[str, str]:
        return headers_for(self.endpoint, api_key=self.api_key, more=self.headers)


async def _refused(answer: Answer) -> ProviderError:
    return with_overflow(await refused(answer, KINDS))


if TYPE_CHECKING:
    _model: Model = OpenAIModel("")
    _opens: Opens = OpenAIModel("")
    _limited: Limited = OpenAIModel("")
    _priced: Priced = OpenAIModel("")


def _is_known_to_reason(name: str) -> bool:
    known = facts(name)
    return bool(known.efforts) and known != facts("")


def _with_includes(head: JsonObject, settings: Settings) -> JsonObject:
    """Return the user's own fields; what they want included is added to what is included anyway, unless it is []."""
    ours, theirs = head.get("include"), settings.extra.get("include")
    if not isinstance(ours, list) or not isinstance(theirs, list) or not theirs:
        return settings.extra
    return {**settings.extra, "include": [*ours, *[each for each in theirs if each not in ours]]}
