"""Gemini's models over `generateContent`, by a key or on Vertex: settings, address and credentials, and what is asked
again.

What a model cannot do is refused before anything is sent. What is known about models is what ai.google.dev and
docs.cloud.google.com documented in November 2026.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, field
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict, cast
from urllib.parse import quote, urlsplit

from typing_extensions import Unpack

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import as_object
from journeyman.errors import ModelUnavailable, ProviderError
from journeyman.hosted.tools import CodeExecution, FileSearch, HostedTool, HostedToolSupport, WebSearch
from journeyman.model import Facts, ModelSettings, OutputFormat, Part, Request, ThinkingLevel, room_for
from journeyman.models.answers import RequestedStream
from journeyman.models.google.decode import PROVIDER, GoogleDecoder
from journeyman.models.google.encode import GoogleCodec, encode, media
from journeyman.models.prices import price_for
from journeyman.models.requests import (
    ROOM_FOR_ANSWER,
    by_longest_prefix,
    check_hosted,
    check_key,
    check_options,
    environment,
    join_address,
    known_models,
    limits,
    make_unsent_error,
    missing,
    sampling_fields,
    with_hosted,
    write_body,
)
from journeyman.models.strict import is_enforceable
from journeyman.models.transport import Network, OverHttp, Timeouts
from journeyman.tools.redaction import words_without_secrets
from journeyman.types import NOTHING_USED, JsonObject, Price

if TYPE_CHECKING:
    from journeyman.model import WholeModel

TokenProvider: TypeAlias = Callable[[], str | Awaitable[str]]
"""Returns a bearer token that is valid now. It is called before each request, so it should keep the token between
calls."""

BASE_URL: Final = "https://generativelanguage.googleapis.com/v1beta"
_VERTEX_URL: Final = "https://{}-aiplatform.googleapis.com/v1beta1"
_MULTI_REGION_URL: Final = "https://aiplatform.{}.rep.googleapis.com/v1beta1"
_VERTEX_URLS: Final[Mapping[str, str]] = {
    "global": "https://aiplatform.googleapis.com/v1beta1",
    "us": _MULTI_REGION_URL,
    "eu": _MULTI_REGION_URL,
}

_ABOUT_SIGNATURES: Final = ("corrupted thought signature", "thought signature is not valid")
"""What it says of a signature that another model, key or place has given; there is no label for it."""

_SAMPLING: Final = {"temperature": "temperature", "top_p": "topP", "seed": "seed", "stop": "stopSequences"}
_RESERVED: Final = frozenset({"contents", "systemInstruction"})
_GENERATION: Final = frozenset(
    {"audioTimestamp", "candidateCount", "enableAffectiveDialog", "frequencyPenalty", "imageConfig"}
    | {"logprobs", "maxOutputTokens", "mediaResolution", "modelSelectionConfig", "presencePenalty"}
    | {"responseFormat", "responseJsonSchema", "responseLogprobs", "responseMimeType", "responseModalities"}
    | {"responseSchema", "routingConfig", "seed", "speechConfig", "stopSequences"}
    | {"temperature", "thinkingConfig", "topK", "topP", "translationConfig"}
)
"""The fields of `generationConfig`: `ModelSettings.extra` may name them without it."""
_MODEL_NAME: Final = re.compile(r"(?!.*\.\.)[\w.:@/-]+")
_LOCATION: Final = re.compile(r"[a-z0-9-]+")


@lazy_dataclass(frozen=True, repr=False, eq=False)
class GoogleModel(OverHttp):
    """A model behind `generateContent`.

    Neither key nor token is needed where a gateway adds its own. `headers` are sent with every request.

    Raises:
        ModelUnavailable: no model can have this name, or the key is empty or has a character that no key has.
    """

    name: str
    """The model's name, as its provider writes it."""
    _: KW_ONLY
    api_key: str | None = None
    """The key that is sent as `x-goog-api-key`."""
    token: TokenProvider | None = None
    """Returns the token that is sent as a bearer token."""
    base_url: str = BASE_URL
    """The address that comes before `/models/NAME`."""
    streaming: bool = True
    """False: ask for the answer in one piece."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeouts: Timeouts = field(default_factory=Timeouts)
    price: Price | None = None
    """What the model costs; None leaves the cost of its answers unknown."""
    facts: Facts = field(init=False)
    """The documented ones; 8,192 tokens of output for a model that is not known here."""
    url: str = field(init=False)
    """The address to which requests go."""
    _headers: Mapping[str, str] = field(init=False)
    _codec: GoogleCodec = field(init=False)

    def __post_init__(self) -> None:
        check_key(self.api_key, model=self.name)
        name = self.name.removeprefix("models/")
        if not _MODEL_NAME.fullmatch(name):
            raise ModelUnavailable(
                f"{self.name!r} cannot be the name of a model, which becomes a part of the address.",
                model=f"{PROVIDER}:{self.name}",
                hint="Use letters, digits, and the characters . _ - : @ and /, but not two dots in a row.",
            )
        known = _look_up_model(name)
        facts = Facts(
            max_output_tokens=known.max_output_tokens,
            context_window=known.context_window,
            price=self.price,
            media=media(by_url=known.reasoning == "level"),
            native_output=not name.startswith("gemini-1"),
            hosted=_hosting_of(name, is_late=known.reasoning == "level", on_vertex=self.token is not None),
        )
        # Without it the stream is one JSON list, which is complete only at its end.
        query = {"alt": "sse"} if self.streaming else {}
        method = "streamGenerateContent" if self.streaming else "generateContent"
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "facts", facts)
        path = f"/models/{quote(name, safe='')}:{method}"
        object.__setattr__(self, "url", join_address(self.base_url, path, query, model=f"{PROVIDER}:{name}"))
        headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
        # The API takes the key in the address as well, where it ends up in logs.
        key = {} if self.api_key is None else {"x-goog-api-key": self.api_key}
        given = {name.lower(): value for name, value in self.headers.items()}
        object.__setattr__(self, "_headers", headers | key | given)
        is_late = known.reasoning == "level"
        object.__setattr__(self, "_codec", GoogleCodec(name, needs_signatures=is_late, files_in_results=is_late))

    def __repr__(self) -> str:
        return f"<GoogleModel {self.name}>"

    @property
    def provider(self) -> str:
        return PROVIDER

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        """Ask the model; see `Model.stream`.

        The request is sent a second time with another token if the service refuses the first one, and without
        signatures if it refuses a signature of another key or place.
        """
        return _Resent(self, request)

    def body(self, request: Request) -> bytes:
        """Return the request's body as it is sent.

        Raises:
            ProviderError: the settings ask for what the API would refuse (`bad_request`).
        """
        return self._body(request, self._codec)

    def _body(self, request: Request, codec: GoogleCodec) -> bytes:
        prefix, messages = request.prefix, request.messages
        return write_body(
            self._head(request), lambda head, more: encode(head, prefix, messages, codec=codec, more_tools=more)
        )

    def prepare_request(self, request: Request, *, token: str | None, signatures: bool) -> RequestedStream:
        """Return one request, which is still to be sent; without `signatures`, none goes back."""
        headers = self._headers if token is None else {**self._headers, "authorization": f"Bearer {token}"}
        codec = self._codec
        if not signatures:
            codec = GoogleCodec(codec.model, codec.needs_signatures, codec.files_in_results, keeps_signatures=False)
        post = self._posting(self.url, headers, self.timeouts)
        return RequestedStream(
            lambda: post(body=self._body(request, codec)),
            GoogleDecoder(codec.owner, price=self.price, deltas=request.deltas, room=room_for(request, self.facts)),
            "a stream of generateContent",
        )

    def _head(self, request: Request) -> JsonObject:
        settings, tools = request.settings, request.prefix.tools
        ceiling, limit = limits(request, self.facts)
        check_hosted(request, self.facts, model=f"{PROVIDER}:{self.name}")
        config: JsonObject = {"maxOutputTokens": limit, **self._reasoning(settings.thinking, ceiling, limit)}
        config |= sampling_fields(settings, _SAMPLING, model=f"{PROVIDER}:{self.name}", api="generateContent")
        if request.prefix.output is not None:
            config |= self._format(request.prefix.output, has_tools=bool(tools))
        head: JsonObject = {"generationConfig": config}
        strict = [tool for tool in tools if tool.strict]
        mode = _MODES[settings.tool_choice]
        if mode is None and strict and all(is_enforceable(tool.input_schema) for tool in strict):
            mode = "VALIDATED"  # the model may call or answer, and arguments fit their schemas
        # The API refuses the mode where no functions are declared.
        if mode is not None and tools:
            head["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
        if settings.hosted and settings.tool_choice != "auto" and not tools:
            raise make_unsent_error(f"{PROVIDER}:{self.name} has no tool_choice for hosted tools. Leave it at 'auto'.")
        head = with_hosted(_merge_objects(head, _extra(settings)), list(map(_hosted, settings.hosted)))
        is_vertex = self.token is not None or "aiplatform" in self.base_url  # which takes them together without a word
        if tools and head.get("tools") and _look_up_model(self.name).reasoning == "level" and not is_vertex:
            hosted: JsonObject = {"includeServerSideToolInvocations": True}
            head["toolConfig"] = hosted | as_object(head.get("toolConfig"))
        return head

    def _format(self, output: OutputFormat, *, has_tools: bool) -> JsonObject:
        """Return the fields that make the model answer with JSON; only the late models do so beside tools.

        Raises:
            ProviderError: this model does not (`bad_request`).
        """
        if not self.facts.native_output or (has_tools and _look_up_model(self.name).reasoning != "level"):
            beside = " beside tools" if self.facts.native_output else ""
            raise make_unsent_error(f"{self.name} has no native output{beside}. Use Output(…, mode='tool').")
        schema = {key: value for key, value in output.schema.items() if key != "$schema"}
        about: JsonObject = {"description": output.description} if output.description else {}
        return {"responseMimeType": "application/json", "responseJsonSchema": {**about, **schema}}

    def _reasoning(self, asked: ThinkingLevel | int | None, ceiling: int, limit: int) -> JsonObject:
        """Return the fields for reasoning; what the model thinks counts into `limit`."""
        known = _look_up_model(self.name)
        if asked is None or (asked == "off" and known.reasoning is None):
            return {}
        if known.reasoning is None:
            raise make_unsent_error(f"{self.name} does not reason. Leave ModelSettings.thinking at None.")
        if asked == "off" and not known.can_be_off:
            raise make_unsent_error(f"{self.name} always reasons. Ask for thinking='minimal' instead of 'off'.")
        if known.reasoning == "level":
            if isinstance(asked, int):
                raise make_unsent_error(
                    f"{self.name} takes no thinking budget. Ask for a level, such as thinking='medium'."
                )
            level = known.least if asked == "minimal" else _LEVELS[asked]
            return {"thinkingConfig": {"thinkingLevel": level, "includeThoughts": True}}
        if asked == "off":
            return {"thinkingConfig": {"thinkingBudget": 0}}
        if isinstance(asked, int) and not _LEAST_BUDGET <= asked < min(ceiling, _MOST_BUDGET + 1):
            said = (
                f"A thinking budget of {asked} is not between {_LEAST_BUDGET} and {_MOST_BUDGET} and below max_tokens"
            )
            raise make_unsent_error(f"{said}, which is {ceiling}. Change one of the two.")
        budget = min(asked, limit - ROOM_FOR_ANSWER) if isinstance(asked, int) else min(_BUDGETS[asked], limit * 3 // 4)
        if budget < _LEAST_BUDGET:
            return {}
        return {"thinkingConfig": {"thinkingBudget": budget, "includeThoughts": True}}


@lazy_dataclass(repr=False, eq=False)
class _Resent(AbstractAsyncContextManager[AsyncIterator[Part]]):
    """A request that is sent once more where that can help: with a new token, or without signatures."""

    _model: GoogleModel
    _request: Request
    _stream: RequestedStream = field(init=False)

    async def __aenter__(self) -> AsyncIterator[Part]:
        parts = await self._open_stream(signatures=True)
        if isinstance(parts, ProviderError):
            said = str(parts).lower()
            is_about_signatures = parts.kind == "bad_request" and any(words in said for words in _ABOUT_SIGNATURES)
            # A token lives for an hour, and may have run out since the provider made it.
            if is_about_signatures or (parts.status == 401 and self._model.token is not None):
                parts = await self._open_stream(signatures=not is_about_signatures)
        if isinstance(parts, ProviderError):
            raise parts.with_traceback(None)  # the frames below hold the token
        return parts

    async def __aexit__(self, *raised: object) -> None:
        await self._stream.__aexit__(None, None, None)

    async def _open_stream(self, *, signatures: bool) -> AsyncIterator[Part] | ProviderError:
        try:
            token = None if (provider := self._model.token) is None else await _token(self._model, provider)
            self._stream = self._model.prepare_request(self._request, token=token, signatures=signatures)
            return await self._stream.__aenter__()
        except ProviderError as error:
            return error


async def _token(model: GoogleModel, provider: TokenProvider) -> str:
    """Return the token for a request.

    Raises:
        ProviderError: there is none (`auth`), or none in time (`timeout`).
    """
    host, limit_s = urlsplit(model.url).netloc, model.timeouts.connect_s
    waiting = asyncio.timeout(limit_s)
    try:
        async with waiting:
            given = provider()
            token = cast("object", await given if inspect.isawaitable(given) else given)
    except Exception as error:  # noqa: BLE001 - whatever a function of the user's raises
        if waiting.expired():
            words = f"{host} was not asked: the token provider gave no token in {limit_s:g} s."
            failure = ProviderError(words, kind="timeout", usage=NOTHING_USED)
        else:
            failure = _no_token(host, f"the token provider failed ({words_without_secrets(error)})")
    else:
        if isinstance(token, str) and token.isascii() and token.isprintable() and token and " " not in token:
            return token
        failure = _no_token(host, "what the token provider gave is not a token, or has a character that no token has")
    raise failure  # outside of `except`: the other exception may hold the token


def _no_token(host: str, why: str) -> ProviderError:
    return ProviderError(f"{host} was not asked: {why}.", kind="auth", usage=NOTHING_USED)


def _hosting_of(name: str, *, is_late: bool, on_vertex: bool) -> HostedToolSupport:
    """Return the hosted tools of a model; only Vertex leaves domains out, and only the Developer API has file search.

    Early models have them only without tools of the user's.
    """
    if name.startswith("gemini-1"):
        return HostedToolSupport()
    has_files = not on_vertex and not name.startswith("gemini-2.0")
    return HostedToolSupport(
        web_search=frozenset({"blocked_domains"} if on_vertex else ()),
        code_execution=frozenset(),
        file_search=frozenset({"max_results"}) if has_files else None,
        beside_tools=is_late,
    )


def _hosted(tool: HostedTool) -> JsonObject:
    """Return a hosted tool in the API's form."""
    match tool:
        case WebSearch():
            return {"googleSearch": {"excludeDomains": [*tool.blocked_domains]} if tool.blocked_domains else {}}
        case CodeExecution():
            return {"codeExecution": {}}
        case FileSearch():
            most: JsonObject = {} if tool.max_results is None else {"topK": tool.max_results}
            return {"fileSearch": {"fileSearchStoreNames": [*tool.stores], **most}}


def _extra(settings: ModelSettings) -> JsonObject:
    """Return the user's own fields, each where the API looks for it.

    Raises:
        ProviderError: one is what agents and histories make (`bad_request`).
    """
    extra = settings.extra
    if taken := _RESERVED & extra.keys():
        raise make_unsent_error(
            f"ModelSettings.extra has {sorted(taken)}. These come from the agent's prompts and history."
        )
    inner = {key: value for key, value in extra.items() if key in _GENERATION}
    rest = {key: value for key, value in extra.items() if key not in _GENERATION}
    return _merge_objects(rest, {"generationConfig": inner}) if inner else rest


def _merge_objects(one: JsonObject, other: JsonObject) -> JsonObject:
    """Return both; of what is an object on both sides, the members are put together, and else the other's wins."""
    both = dict(one)
    for key, value in other.items():
        before = both.get(key)
        both[key] = _merge_objects(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return both


class GoogleOptions(TypedDict, total=False):
    """The options of `connect("google:…")` besides the name and the key: those of `GoogleModel`."""

    base_url: str | None
    streaming: bool
    headers: Mapping[str, str]
    timeouts: Timeouts
    network: Network
    price: Price | None


def from_environment(name: str, *, api_key: str | None = None, **options: Unpack[GoogleOptions]) -> GoogleModel:
    """Return the model; its key comes from GOOGLE_API_KEY or GEMINI_API_KEY, its address from GOOGLE_GEMINI_BASE_URL.

    Without a `price`, it is the list price; at another address than the provider's own, where others may bill, none.

    Raises:
        ModelUnavailable: there is no key, or the name is none.
    """
    key = api_key if api_key is not None else environment("GOOGLE_API_KEY") or environment("GEMINI_API_KEY")
    if key is None:
        hint = "Set the environment variable GOOGLE_API_KEY, or GEMINI_API_KEY, or give api_key."
        keys = ["GOOGLE_API_KEY", "GEMINI_API_KEY"]
        raise missing("key", model=f"{PROVIDER}:{name}", shown=name, hint=hint, variables=keys)
    address = (options.get("base_url") or environment("GOOGLE_GEMINI_BASE_URL") or BASE_URL).strip().rstrip("/")
    if address.count("/") == 2:  # the host alone
        address += urlsplit(BASE_URL).path
    return _make_model(name, {**options, "base_url": address}, api_key=key, has_list_price=address == BASE_URL)


def on_vertex(
    name: str,
    *,
    token: TokenProvider | None = None,
    project: str | None = None,
    location: str | None = None,
    **options: Unpack[GoogleOptions],
) -> GoogleModel:
    """Return the model on Vertex. If they are not given, project and location come from GOOGLE_CLOUD_PROJECT and
    GOOGLE_CLOUD_LOCATION.

    `token` returns a bearer token for the scope `https://www.googleapis.com/auth/cloud-platform`. Without a `price`, it
    is the list price of the location `global`; at others, none.

    Raises:
        ModelUnavailable: there is no token provider or no project, or a name is none.
    """
    shown, base_url = f"vertex-google:{name}", options.get("base_url")
    if not callable(token):
        hint = "Give token=, a function that returns a bearer token: connect('vertex-google:…', token=my_function)."
        raise missing("token provider", model=shown, hint=hint)
    project = project or environment("GOOGLE_CLOUD_PROJECT")
    if project is None and base_url is None:
        hint = "Give project=, or set the environment variable GOOGLE_CLOUD_PROJECT."
        raise missing("project", model=shown, hint=hint, variables=["GOOGLE_CLOUD_PROJECT"])
    location = location or environment("GOOGLE_CLOUD_LOCATION") or "global"
    if not _LOCATION.fullmatch(location):
        hint = "Give a location such as 'global' or 'europe-west4'."
        raise ModelUnavailable(f"{location!r} is not a location of Vertex.", model=shown, hint=hint)
    host = _VERTEX_URLS.get(location, _VERTEX_URL).format(location)
    place = f"{host}/projects/{quote(project or '', safe=':')}/locations/{location}/publishers/google"
    has_list_price = base_url is None and location == "global"
    return _make_model(name, {**options, "base_url": base_url or place}, token=token, has_list_price=has_list_price)


def _make_model(
    name: str,
    options: GoogleOptions,
    *,
    has_list_price: bool,
    api_key: str | None = None,
    token: TokenProvider | None = None,
) -> GoogleModel:
    own = check_options(f"{PROVIDER}:{name}", options, GoogleOptions)
    if "price" not in own and has_list_price:
        own["price"] = price_for(PROVIDER, name)
    return GoogleModel(name, api_key=api_key, token=token, **own)


@lazy_dataclass(frozen=True)
class _GeminiFacts:
    max_output_tokens: int
    context_window: int | None
    reasoning: Literal["level", "budget"] | None
    """Steered by a level, or by a budget in tokens; None: the model does not reason."""
    least: str = "MINIMAL"
    """The lowest level."""
    can_be_off: bool = False


_MODES: Final[Mapping[str, str | None]] = {"auto": None, "any": "ANY", "none": "NONE"}
# There is an XHIGH, but nothing tells which models take it.
_LEVELS: Final[Mapping[str, str]] = {"low": "LOW", "medium": "MEDIUM", "high": "HIGH", "max": "HIGH"}
_BUDGETS: Final[Mapping[str, int]] = {"minimal": 1_024, "low": 4_096, "medium": 12_288, "high": 24_576, "max": 24_576}
# All models of 2.5 take these: flash-lite no less than the one, flash no more than the other.
_LEAST_BUDGET: Final = 512
_MOST_BUDGET: Final = 24_576


@cache
def _look_up_model(name: str) -> _GeminiFacts:
    # The lowest level of 3-pro, 3.1-pro and all from 3.7 on is LOW, of the others MINIMAL. A model that is not known
    # here is taken for a late one.
    return _GeminiFacts(**by_longest_prefix(known_models("journeyman.models.google"), name))


if TYPE_CHECKING:
    _model: WholeModel = GoogleModel("")
