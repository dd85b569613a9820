"""The common part of the models behind OpenAI's two APIs: it reaches the service, and makes the frame of a request.

What differs from service to service is in the `Endpoint`; what differs between the two APIs is in the two subclasses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, field, replace
from functools import partial
from typing import ClassVar, Final
from urllib.parse import quote

from journeyman.data import lazy_dataclass
from journeyman.model import Facts, ModelSettings, OutputFormat, Part, Request, ThinkingLevel
from journeyman.models.answers import Decoder, RequestedStream
from journeyman.models.openai.endpoint import OPENAI, Endpoint, answers_natively, hosting_of, look_up_model, media_of
from journeyman.models.openai.own_server import OwnServer, PatientStream, facts_timeouts, fit_answer, known_server
from journeyman.models.requests import (
    check_hosted,
    check_key,
    join_address,
    limits,
    make_unsent_error,
    missing,
    sampling_fields,
    write_body,
)
from journeyman.models.strict import is_enforceable
from journeyman.models.transport import OverHttp, Timeouts, open_stream
from journeyman.types import JsonObject, Price

_TOOL_CHOICES: Final = {"any": "required", "none": "none"}
_EFFORTS: Final[Mapping[ThinkingLevel, tuple[str, ...]]] = {
    "off": ("none",),
    "minimal": ("minimal", "low"),
    "low": ("low",),
    "medium": ("medium",),
    "high": ("high",),
    "max": ("max", "xhigh", "high"),
}
"""For each level the words for it, the best first."""


@lazy_dataclass(frozen=True, repr=False, eq=False)
class OpenAIStyleModel(OverHttp, ABC):
    """A model behind one of OpenAI's two APIs.

    No key is needed if the server asks for none. `headers` are sent with every request.
    """

    _expected: ClassVar[str]
    """What an answer should be, for the message about one that is not."""
    _is_chat: ClassVar[bool]
    """Whether it is Chat Completions."""

    name: str
    """The model's name, as its provider writes it."""
    _: KW_ONLY
    endpoint: Endpoint = OPENAI
    """What the service can do, and where its paths are."""
    api_key: str | None = None
    """The key; None: it is read from the environment."""
    base_url: str | None = None
    """The address that the endpoint's path follows, usually with `/v1`; None: the endpoint's own."""
    streaming: bool = True
    """False: ask for the answer in one piece. Use this for a server that cannot stream, or cannot stream with tools."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeouts: Timeouts = field(default_factory=Timeouts)
    price: Price | None = None
    """What the model costs; None leaves the cost of its answers unknown."""
    facts: Facts = field(init=False)
    """The endpoint's limits, or the documented ones; 8,192 tokens of output for a model that is not known here. A
    server of one's own is asked for the window when a run begins."""
    url: str = field(init=False)
    """The address to which requests go."""
    _headers: Mapping[str, str] = field(init=False)
    _server: OwnServer | None = field(init=False)
    """None for a service."""

    def __post_init__(self) -> None:
        check_key(self.api_key, model=self.name)
        endpoint, known = self.endpoint, look_up_model(self.name)
        longest, window = endpoint.max_output_tokens, endpoint.context_window
        longest = known.max_output_tokens if longest is None else longest
        window = known.context_window if window is None else window
        facts = Facts(
            max_output_tokens=longest,
            context_window=window,
            price=self.price,
            media=media_of(endpoint, self.name, is_chat=self._is_chat),
            native_output=answers_natively(endpoint, self.name),
            hosted=hosting_of(endpoint, self.name, is_chat=self._is_chat),
        )
        object.__setattr__(self, "facts", facts)
        object.__setattr__(self, "url", self._whole_url())
        object.__setattr__(self, "_headers", self._all_headers())
        server = None
        if endpoint.server is not None:
            base_url, patience = (self.base_url or endpoint.base_url or "").rstrip("/"), facts_timeouts(self.timeouts)
            opening = partial(open_stream, headers=self._headers, timeouts=patience, network=self.network)
            server = OwnServer(endpoint, self.name, base_url, opening, known_server(self.url, self.name))
        object.__setattr__(self, "_server", server)
        self._take_in()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.endpoint.provider}:{self.name}>"

    @property
    def provider(self) -> str:
        return self.endpoint.provider

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        """Ask the model; see `Model.stream`."""
        post = self._posting(self.url, self._headers, self.timeouts)

        def make_stream() -> RequestedStream:
            return RequestedStream(lambda: post(body=self.body(request)), self._decoder(request), self._expected)

        return make_stream() if self._server is None else PatientStream(self._server, make_stream, self._take_in)

    def open(self) -> AbstractAsyncContextManager[object]:
        """Begin a run, a chat or the like: a server of one's own is asked for the window of the model."""
        opened = OverHttp.open(self)  # a class with slots has no `super()`
        return opened if self._server is None else _Learning(self._server, opened, self._take_in)

    def _take_in(self) -> None:
        """Take what the server has told into the facts."""
        if self._server is None:
            return
        known = self._server.known
        facts = replace(self.facts, sees_tools=known.has_tools)
        if (window := known.window_tokens) is not None and self.endpoint.context_window is None:
            longest = min(self.facts.max_output_tokens or window, window)
            facts = replace(facts, context_window=window, max_output_tokens=longest)
        object.__setattr__(self, "facts", facts)

    def body(self, request: Request) -> bytes:
        """Return the request's body as it is sent.

        Raises:
            ProviderError: the request asks for what the service would refuse (`bad_request`).
        """
        if request.prefix.tools and not self.endpoint.tools:
            raise make_unsent_error(
                f"{self.provider}:{self.name} is set up without tools, and the request has some. Choose a model that"
                " supports tools, or remove tools, typed output and sub-agents from the agent."
            )
        check_hosted(request, self.facts, model=f"{self.provider}:{self.name}")
        if self._server is not None:
            self._server.tell_no_tools(request)
            request = fit_answer(request, self.facts.context_window, limits(request, self.facts)[1])
        return write_body(self._head(request), partial(self._encode_body, request))

    # -- what the two APIs have of their own

    @property
    @abstractmethod
    def _path(self) -> str:
        """The endpoint's path for this API."""

    @abstractmethod
    def _head(self, request: Request) -> JsonObject:
        """Return the fields of a request except for tools, prompts and messages."""

    @abstractmethod
    def _encode_body(self, request: Request, head: JsonObject, more_tools: Sequence[object]) -> bytes:
        """Return the body with these fields; `more_tools` are tools in the API's own form."""

    @abstractmethod
    def _decoder(self, request: Request) -> Decoder:
        """Return the decoder that reads the answer."""

    def _form(self, output: OutputFormat) -> JsonObject:
        """Return the schema of the answer, with its name; enforced, where that is asked for and loses nothing.

        Raises:
            ProviderError: the model has no such answers (`bad_request`).
        """
        name = f"{self.provider}:{self.name}"
        if not self.facts.native_output:
            raise make_unsent_error(f"{name} has no native output. Use Output(…, mode='tool'), or another model.")
        form: JsonObject = {"name": output.name, "schema": output.schema, "strict": is_enforceable(output.schema)}
        return {**form, "description": output.description} if output.description else form

    def _sampling(self, settings: ModelSettings, names: Mapping[str, str], *, api: str) -> JsonObject:
        fields = sampling_fields(settings, names, model=f"{self.provider}:{self.name}", api=api)
        asked = " and no ".join([name for name in ("temperature", "top_p") if names.get(name) in fields])
        knows_best = self.endpoint.reasoning.efforts is not None  # a service of its own models
        if asked and not knows_best and not look_up_model(self.name).takes_sampling(settings.thinking):
            raise make_unsent_error(
                f"{self.provider}:{self.name} takes no {asked} while it reasons. Leave it out of ModelSettings."
            )
        return fields

    def _tool_fields(self, request: Request) -> JsonObject:
        fields: JsonObject = {}
        choice = request.settings.tool_choice
        if not request.prefix.tools and not (request.settings.hosted and not self._is_chat):
            return fields
        if choice == "any" and not self.endpoint.forces_calls:
            raise make_unsent_error(
                f"{self.provider}:{self.name} cannot be told that it must call a tool. Leave ModelSettings.tool_choice"
                " at 'auto', and use Output(reminder=True)."
            )
        if choice in _TOOL_CHOICES:
            fields["tool_choice"] = _TOOL_CHOICES[choice]
        if self.endpoint.parallel_tool_calls is not None and request.prefix.tools:
            fields["parallel_tool_calls"] = self.endpoint.parallel_tool_calls
        return fields

    def _effort(self, level: ThinkingLevel) -> str:
        """Return the service's word for a level of reasoning.

        Raises:
            ProviderError: the model does not reason, or not at that level (`bad_request`).
        """
        taken, name = self.endpoint.reasoning.efforts, f"{self.provider}:{self.name}"
        if taken is None:
            taken = look_up_model(self.name).efforts
        if not taken:
            raise make_unsent_error(f"{name} takes no effort for reasoning. Leave ModelSettings.thinking at None.")
        word = next((word for word in _EFFORTS[level] if word in taken), None)
        if word is None and level == "off":
            raise make_unsent_error(f"{name} always reasons. Ask for thinking='minimal' instead of 'off'.")
        if word is None:
            raise make_unsent_error(f"{name} takes no effort {level!r} for reasoning. It takes: {', '.join(taken)}.")
        return word

    # -- the service

    def _whole_url(self) -> str:
        base_url = self.base_url or self.endpoint.base_url
        if base_url is None:
            hint = "Give base_url, or set that of the endpoint."
            raise missing("address", model=f"{self.provider}:{self.name}", shown=self.name, hint=hint)
        path = self._path.replace("{model}", quote(self.name, safe=""))
        return join_address(base_url, path, model=f"{self.provider}:{self.name}")

    def _all_headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
        if self.api_key is not None:
            bearer = self.endpoint.key_header == "authorization"
            headers[self.endpoint.key_header] = f"Bearer {self.api_key}" if bearer else self.api_key
        return headers | {name.lower(): value for name, value in self.headers.items()}


@lazy_dataclass(frozen=True)
class _Learning(AbstractAsyncContextManager[None]):
    """A context around a run with a server of one's own: it asks the server for its facts as it opens."""

    server: OwnServer
    opened: AbstractAsyncContextManager[object]
    take_in: Callable[[], None]

    async def __aenter__(self) -> None:
        await self.opened.__aenter__()
        await self.server.learn()
        self.take_in()

    async def __aexit__(self, *raised: object) -> None:
        await self.opened.__aexit__(None, None, None)
