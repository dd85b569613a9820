"""The common part of the models behind OpenAI's two APIs: it reaches the service, and makes the frame of a request.

What differs from service to service is in the `Endpoint`; what differs between the two APIs is in the two subclasses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache, partial
from typing import ClassVar, Final, TypeAlias
from urllib.parse import quote, urlsplit, urlunsplit

import orjson

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import as_list, as_object, as_text
from journeyman.errors import ProviderError
from journeyman.model import Facts, ModelSettings, OutputFormat, Part, Request, ThinkingLevel
from journeyman.models.answers import RequestedStream
from journeyman.models.decoding import Decoder
from journeyman.models.openai.endpoint import (
    OPENAI,
    Endpoint,
    Server,
    answers_natively,
    hosting_of,
    look_up_model,
    media_of,
)
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
from journeyman.models.transport import HttpAnswer, OverHttp, Timeouts, open_stream
from journeyman.types import JsonObject, Price
from journeyman.window import estimate_message, estimate_prefix

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
    url: str = field(init=False)
    """The address to which requests go."""
    _facts: Facts = field(init=False)
    """Those that are known before anybody is asked."""
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
            sees_tools=None if endpoint.tools else False,
            hosted=hosting_of(endpoint, self.name, is_chat=self._is_chat),
        )
        object.__setattr__(self, "_facts", facts)
        object.__setattr__(self, "url", self._whole_url())
        object.__setattr__(self, "_headers", self._all_headers())
        server = None
        if endpoint.server is not None:
            base_url, patience = (self.base_url or endpoint.base_url or "").rstrip("/"), facts_timeouts(self.timeouts)
            opening = partial(
                open_stream, headers=self._headers, timeouts=patience, network=self.network, is_heard=False
            )
            server = OwnServer(endpoint, self.name, base_url, opening, known_server(self.url, self.name))
        object.__setattr__(self, "_server", server)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.endpoint.provider}:{self.name}>"

    @property
    def provider(self) -> str:
        return self.endpoint.provider

    @property
    def facts(self) -> Facts:
        """The endpoint's limits, or the documented ones; 8,192 tokens of output for a model that is not known here. A
        server of one's own is asked for the window when a run begins."""
        return self._facts if self._server is None else self._server.complete(self._facts)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        """Ask the model; see `Model.stream`."""
        post = self._posting(self.url, self._headers, self.timeouts)

        def make_stream() -> RequestedStream:
            return RequestedStream(lambda: post(body=self.body(request)), self._decoder(request), self._expected)

        return make_stream() if self._server is None else PatientStream(self._server, make_stream)

    def open(self) -> AbstractAsyncContextManager[object]:
        """Begin a run, a chat or the like: a server of one's own is asked for the window of the model."""
        opened = OverHttp.open(self)  # a class with slots has no `super()`
        return opened if self._server is None else _ask_for_facts(self._server, opened)

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


@asynccontextmanager
async def _ask_for_facts(server: OwnServer, opened: AbstractAsyncContextManager[object]) -> AsyncGenerator[None]:
    """Ask a server of one's own for its facts as a run with it begins."""
    async with opened:
        await server.learn()
        yield


#
# A service documents its windows, and a server such as llama.cpp's or Ollama is started with one. So it is asked, by a
# GET when a run begins, and the answer is kept for a minute. What it does not tell stays unknown, and a run never
# fails because of it.

_PATIENCE_S: Final = 3.0  # a server on the same machine answers at once; one that does not must not hold up a run
_KEPT_S: Final = 60.0
_FACTS_BYTES: Final = 4 * 1024 * 1024
_FIRST_LOOK_S: Final = 0.05
_LONGEST_LOOK_S: Final = 1.0
_LEAST_ANSWER_TOKENS: Final = 64
_STARTS: Final[Mapping[Server, str]] = {
    "llama.cpp": "llama-server -m MODEL.gguf",
    "LM Studio": "lms server start",
    "Ollama": "ollama serve",
    "vLLM": "vllm serve MODEL",
}
_log = logging.getLogger("journeyman")
_progress = logging.getLogger("journeyman.progress")


def facts_timeouts(timeouts: Timeouts) -> Timeouts:
    """Return the timeouts for a question to a server about itself."""
    return Timeouts(connect_s=min(timeouts.connect_s, _PATIENCE_S), idle_s=min(timeouts.idle_s, _PATIENCE_S))


Opening: TypeAlias = Callable[..., AbstractAsyncContextManager[HttpAnswer]]
"""Opens an address of the server, and gives it a `body`, or None."""


@lazy_dataclass(eq=False)
class KnownServer:
    """The facts that a server has told about one of its models so far."""

    window_tokens: int | None = None
    """The most tokens of one conversation and its answer; None when it has not told."""
    has_tools: bool | None = None
    """Whether its template shows tools to the model; None when it has not told."""
    asked_at_s: float | None = None
    """When it answered last, or did not in time, by the monotonic clock."""
    is_told: bool = False
    """Whether somebody has been told that there are no tools."""


@lru_cache(maxsize=256)
def known_server(url: str, model: str) -> KnownServer:
    """Return the facts that this process knows of the model that is asked at `url`."""
    return KnownServer()


@lazy_dataclass(frozen=True, repr=False, eq=False)
class OwnServer:
    """The server of a model, as far as it is asked about the model."""

    endpoint: Endpoint
    name: str
    """The model's name."""
    base_url: str
    """The address that the endpoint's paths follow."""
    opening: Opening
    known: KnownServer
    """What it has told."""

    def complete(self, facts: Facts) -> Facts:
        """Return the facts of the model with those that the server has told."""
        known, window = self.known, self.known.window_tokens
        facts = replace(facts, sees_tools=known.has_tools if self.endpoint.tools else False)
        if window is None or self.endpoint.context_window is not None:
            return facts
        longest = min(facts.max_output_tokens or window, window)
        return replace(facts, context_window=window, max_output_tokens=longest)

    async def learn(self) -> None:
        """Ask the server for the window of the model, unless it is known and no older than a minute."""
        known, now_s = self.known, time.monotonic()
        if known.asked_at_s is not None and now_s - known.asked_at_s < _KEPT_S:
            return
        root = root_of(self.base_url)
        try:
            match self.endpoint.server:
                case "llama.cpp":  # the window of each slot
                    props = await _fetch_document(self.opening, f"{root}/props?model={quote(self.name, safe='')}")
                    window = _whole(as_object(props.get("default_generation_settings")).get("n_ctx"))
                    has_tools = as_object(props.get("chat_template_caps")).get("supports_tools")
                    known.has_tools = has_tools if isinstance(has_tools, bool) else known.has_tools
                case "Ollama":
                    window = await _ask_ollama(root, self.name, self.opening)
                case _:
                    window = await _ask_for_list(self.base_url, self.name, self.opening)
        except ProviderError as error:
            if error.kind in ("timeout", "stream_idle"):
                known.asked_at_s = now_s
            return
        if window is not None and window > 0:
            known.window_tokens, known.asked_at_s = window, now_s

    def tell_no_tools(self, request: Request) -> None:
        """Log once that the model is not shown the tools of a request."""
        if self.known.has_tools is False and request.prefix.tools and not self.known.is_told:
            self.known.is_told = True
            _log.warning(
                "The chat template of %s:%s has no tools, so the model does not see those of the agent. Start the"
                " server with a template that has them (--chat-template-file), or take another model.",
                self.endpoint.provider,
                self.name,
            )


async def _ask_ollama(root: str, model: str, opening: Opening) -> int | None:
    """Return the window with which the model is loaded, or else that of its own file. What it was trained with is no
    answer: the server cuts a conversation at its own window, in silence."""
    names = {model, f"{model}:latest"}
    for each in map(as_object, as_list((await _fetch_document(opening, f"{root}/api/ps")).get("models"))):
        if each.get("name") in names and (window := _whole(each.get("context_length"))) is not None:
            return window
    shown = await _fetch_document(opening, f"{root}/api/show", orjson.dumps({"model": model}))
    lines = [line.split() for line in as_text(shown.get("parameters")).splitlines()]
    sizes = [words[1] for words in lines if len(words) == 2 and words[0] == "num_ctx"]
    return int(sizes[0]) if sizes and sizes[0].isdecimal() else None


async def _ask_for_list(base_url: str, model: str, opening: Opening) -> int | None:
    """Return the window by the list of the models: as vLLM writes it, or as LM Studio does for one that is loaded."""
    for url in (f"{base_url}/models", f"{root_of(base_url)}/api/v0/models"):
        for each in map(as_object, as_list((await _fetch_document(opening, url)).get("data"))):
            told = (_whole(each.get(name)) for name in ("max_model_len", "loaded_context_length"))
            if each.get("id") == model and (window := next(filter(None, told), None)) is not None:
                return window
    return None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def root_of(base_url: str) -> str:
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix("/v1"), query="", fragment=""))


async def _fetch_document(opening: Opening, url: str, body: bytes | None = None) -> JsonObject:
    """Return the object that is at an address; an empty one if there is none.

    Raises:
        ProviderError: there was no answer, or not all of it.
    """
    async with opening(url, body=body) as answer:
        if answer.status != 200:
            return {}
        data = await answer.body(_FACTS_BYTES)
    try:
        return as_object(orjson.loads(data))
    except orjson.JSONDecodeError:
        return {}


@dataclass(slots=True, repr=False, eq=False)
class PatientStream(AbstractAsyncContextManager[AsyncIterator[Part]]):
    """A request to a server of one's own, which waits while that loads its model.

    For as long as whoever asks waits: a large model takes minutes, and a run has a limit of its own.
    """

    server: OwnServer
    make: Callable[[], RequestedStream]
    """Makes the request; again after each wait."""
    _stream: RequestedStream = field(init=False)

    async def __aenter__(self) -> AsyncIterator[Part]:
        while True:
            self._stream = self.make()
            try:
                return await self._stream.__aenter__()
            except ProviderError as error:
                if error.status != 503 or error.type != "unavailable_error":  # as llama.cpp's says that it loads
                    endpoint = self.server.endpoint
                    variable = endpoint.base_url_variable  # None: the server is started by whoever asks it
                    if endpoint.server and variable and error.kind == "network" and error.status is None:
                        how = f"Start it: {_STARTS[endpoint.server]}, or set {variable}."
                        error.hint = f"Is {endpoint.server} running? {how}"
                    raise
            await self._wait()

    async def __aexit__(self, *raised: object) -> None:
        await self._stream.__aexit__(*raised)

    async def _wait(self) -> None:
        """Wait until the server has loaded its model, or is gone."""
        server, delay_s = self.server, _FIRST_LOOK_S
        _progress.info("%s:%s is waited for: its server loads the model.", server.endpoint.provider, server.name)
        while await _status(server.opening(f"{root_of(server.base_url)}/health", body=None)) == 503:
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_LOOK_S)
        await asyncio.sleep(delay_s)  # a proxy may answer for the server that still loads
        await server.learn()


async def _status(opening: AbstractAsyncContextManager[HttpAnswer]) -> int | None:
    try:
        async with opening as answer:
            return answer.status
    except ProviderError:
        return None


def fit_answer(request: Request, window_tokens: int | None, max_tokens: int) -> Request:
    """Return the request with no longer an answer than the window leaves: some servers refuse what is longer."""
    if window_tokens is None:
        return request
    used = estimate_prefix(request.prefix) + sum(map(estimate_message, request.messages))
    left = max(window_tokens - window_tokens // 50 - used, _LEAST_ANSWER_TOKENS)
    return request if max_tokens <= left else replace(request, max_tokens=left)
