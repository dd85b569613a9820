"""Anthropic's models through a client of the official SDK: on Bedrock, Vertex or Foundry, or with other credentials.

    connect("anthropic:claude-sonnet-5-5", client=AsyncAnthropicVertex(region="global", project_id="…"))
    connect("bedrock:global.anthropic.claude-sonnet-5-5", aws_region="us-east-1")

The request's body and the reading of its answer are those of `AnthropicModel`; what lies between, from the address and
the signature to the framing of the stream, is the client's. It costs about three times the CPU. The client belongs to
the code that made it: nothing here closes it, and like any of its kind it serves one event loop. Its own retries are
off, because a retry that nobody sees cannot be counted. By the prefixes `bedrock` and `vertex-anthropic` the client is
made here, for each event loop that opens the model, and closed with it. The SDK (`pip install 'journeyman[anthropic]'`)
is imported only when there is a client.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, field, replace
from functools import partial
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic_core import from_json

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import as_object
from journeyman.errors import ModelUnavailable, ProviderError, ProviderErrorKind
from journeyman.hosted.tools import HostedToolSupport
from journeyman.model import Facts, Part, Request, room_for
from journeyman.models.answers import Parts, complete_error, retry_after_s
from journeyman.models.anthropic.decode import PROVIDER, AnthropicDecoder
from journeyman.models.anthropic.encode import media
from journeyman.models.anthropic.model import BASE_URL, AnthropicModel
from journeyman.models.anthropic.model import from_environment as with_a_key
from journeyman.models.error_reports import LABELS, kind_of_status, tell_wrapped
from journeyman.models.leases import LoopLeases
from journeyman.models.prices import price_for
from journeyman.models.requests import environment
from journeyman.models.transport import Timeouts
from journeyman.models.vendor_errors import find_meaning, named_secrets, quote_error, scrub_error
from journeyman.types import NOTHING_USED, JsonObject, Price

if TYPE_CHECKING:
    from anthropic import APIStatusError, AsyncAnthropic, AsyncStream
    from anthropic.lib.bedrock import AsyncAnthropicBedrock, AsyncAnthropicBedrockMantle
    from anthropic.lib.vertex import AsyncAnthropicVertex

    from journeyman.model import WholeModel

    Client: TypeAlias = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicBedrockMantle | AsyncAnthropicVertex
    """Any asynchronous client of the SDK; those for Foundry and for AWS are of the first kind."""
    _Events: TypeAlias = AsyncStream[object]

_KINDS: Final[Mapping[str, ProviderErrorKind]] = {**LABELS, "invalid_request_error": "bad_request"}
_OF_MODEL: Final = ("headers", "price", "timeouts")
"""The options of a model in a cloud that are not its client's."""
_STREAMS: Final = ("text/event-stream", "application/vnd.amazon.eventstream")
_REQUEST_IDS: Final = ("request-id", "x-request-id", "x-amzn-requestid", "apim-request-id")


@lazy_dataclass(frozen=True, repr=False, eq=False)
class AnthropicClientModel:
    """A model behind the Messages API, reached by a client of the official SDK."""

    name: str
    """The model's name in the service: on Bedrock, for example, `global.anthropic.claude-opus-5-5`."""
    _: KW_ONLY
    client: Client | None = None
    """The client that is asked. None: `make` makes one."""
    make: Callable[[], Client] | None = None
    """Makes a client, for each event loop that opens the model; it is closed when the last who opened it has left."""
    prefix: str = PROVIDER
    """The prefix of the model's full name; in a cloud `bedrock` or `vertex-anthropic`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that are sent with every request, for example `anthropic-beta`."""
    timeouts: Timeouts | None = None
    """The timeouts. None: those of the client, which waits ten minutes for the next piece unless it is told
    otherwise."""
    price: Price | None = None
    """What the model costs; None leaves the cost of its answers unknown."""
    loads_tools: bool = False
    """Whether the service loads deferred tools itself, as Anthropic's own does."""
    facts: Facts = field(init=False)
    """The documented ones; 8,192 tokens of output for a model that is not known here."""
    _form: AnthropicModel = field(init=False)
    """An `AnthropicModel` that knows the model and makes the bodies, but sends nothing."""
    _leases: LoopLeases[Client] = field(default_factory=lambda: LoopLeases["Client"](), init=False)

    def __post_init__(self) -> None:
        if self.client is not None and not inspect.iscoroutinefunction(getattr(self.client, "post", None)):
            raise ModelUnavailable(
                f"The client for {self.name!r} is {type(self.client).__name__}, which is not asynchronous.",
                model=f"{PROVIDER}:{self.name}",
                hint="Give one of the SDK's asynchronous clients, such as anthropic.AsyncAnthropicBedrock(...).",
            )
        form = AnthropicModel(self.name)
        object.__setattr__(self, "_form", form)
        by_url = self.client is not None and _host_of_client(self.client) == urlsplit(BASE_URL).netloc
        files, hosted = media(by_url=by_url, context_window=form.facts.context_window), form.facts.hosted
        if self.prefix != PROVIDER:  # of the hosted tools, one cloud has one
            searches = hosted.web_search if hosted is not None and self.prefix == "vertex-anthropic" else None
            hosted = HostedToolSupport(web_search=searches)
        own: dict[str, Any] = {"price": self.price, "loads_tools": self.loads_tools, "media": files, "hosted": hosted}
        object.__setattr__(self, "facts", replace(form.facts, **own))

    def __repr__(self) -> str:
        by = None if self.client is None else type(self.client).__name__
        return f"<AnthropicClientModel {f'{self.prefix}:{self.name}' if by is None else f'{self.name} by {by}'}>"

    @property
    def provider(self) -> str:
        return PROVIDER

    def open(self) -> AbstractAsyncContextManager[object]:
        """Keep a client that is made here, and its connections, over many requests.

        Raises:
            ProviderError: on entering, the client cannot be made any more (`auth`).
        """
        return self._leases.hold(self._open_client)

    async def __aenter__(self) -> Self:
        await self._leases.take(self._open_client)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._leases.give_back()

    @asynccontextmanager
    async def _open_client(self) -> AsyncGenerator[Client]:
        if self.client is not None:
            yield self.client  # it belongs to the code that made it
            return
        assert self.make is not None
        try:
            made = self.make()
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises, or what it asks for credentials
            problem = scrub_error(quote_error(error), ())
        else:
            async with made:
                yield made
            return
        words = f"The client for {self.prefix}:{self.name} cannot be made ({problem})."
        raise ProviderError(words, kind="auth", usage=NOTHING_USED)

    def body(self, request: Request) -> bytes:
        """Return the request's body as `AnthropicModel` sends it; a client may add to it or move fields to the address.

        Raises:
            ProviderError: the settings ask for what the API would refuse (`bad_request`).
        """
        return self._form.body(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        """Ask the model; see `Model.stream`."""
        async with self._leases.hold(self._open_client) as client:
            events = await self._ask(client, from_json(self.body(request)))
            try:
                decoder = AnthropicDecoder(price=self.price, deltas=request.deltas, room=room_for(request, self.facts))
                yield _SdkParts(client, events, decoder)
            finally:
                await events.close()

    async def _ask(self, client: Client, body: JsonObject) -> _Events:
        from anthropic import AsyncStream, Timeout

        # A redirect that is followed would take the key along.
        options: Any = {"headers": dict(self.headers), "max_retries": 0, "follow_redirects": False}
        if (timeouts := self.timeouts) is not None:
            options["timeout"] = Timeout(timeouts.idle_s, connect=timeouts.connect_s)
        try:
            return await client.post(
                "/v1/messages", body=body, options=options, cast_to=object, stream=True, stream_cls=AsyncStream[object]
            )
        except Exception as error:  # noqa: BLE001 - whatever class a client or its credentials raise
            failure = _failure(error, client, begun=False)
        raise failure.with_traceback(None)  # outside of `except`: the SDK's exception holds the request, and its key


if TYPE_CHECKING:
    _model: WholeModel = AnthropicClientModel("", client=AsyncAnthropic())


def from_environment(
    name: str,
    *,
    client: Client | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    price: Price | None = None,
    **more: object,
) -> AnthropicModel | AnthropicClientModel:
    """Return the model that `client` carries; without one, see `from_environment` of `anthropic`.

    Raises:
        ModelUnavailable: there is no key, the client is not asynchronous, or an option is given that does not go with a
            client.
    """
    if client is None:
        return with_a_key(name, headers=headers, timeouts=timeouts, price=price, **more)  # pyright: ignore[reportArgumentType]
    if more:
        raise ModelUnavailable(
            f"With client=, the model {name!r} takes no {', '.join(sorted(more))}.",
            model=f"{PROVIDER}:{name}",
            hint="Give it to the client instead.",
        )
    return AnthropicClientModel(name, client=client, headers=headers or {}, timeouts=timeouts, price=price)


def on_bedrock(name: str, **options: object) -> AnthropicClientModel:
    """Return Claude on Amazon Bedrock, under Bedrock's name for it, such as `global.anthropic.claude-sonnet-5-5`.

    The other options are those of the SDK's `AsyncAnthropicBedrock`, such as `aws_region` and `aws_profile`; an option
    that is left out comes from the places where AWS's tools look for it. Without a `price`, the model has the list
    price at AWS's own address.

    Raises:
        ModelUnavailable: a package or the region is missing, or an option is not right.
    """
    has_key = "api_key" in options or environment("AWS_BEARER_TOKEN_BEDROCK") is not None
    own_place = "base_url" not in options and environment("ANTHROPIC_BEDROCK_BASE_URL") is None
    price = price_for("bedrock", name) if own_place else None
    return _in_cloud("bedrock", name, options, packages=() if has_key else ("boto3", "botocore"), price=price)


def on_vertex(name: str, **options: object) -> AnthropicClientModel:
    """Return Claude on Google's Vertex, such as `claude-sonnet-5-5`.

    The other options are those of the SDK's `AsyncAnthropicVertex`, such as `project_id` and `region`; what is not
    given comes from ANTHROPIC_VERTEX_PROJECT_ID or GOOGLE_CLOUD_PROJECT, from CLOUD_ML_REGION or GOOGLE_CLOUD_LOCATION
    (none: `global`), and the credentials from where Google's tools look for them. Without a `price`, the cost is
    unknown.

    Raises:
        ModelUnavailable: a package is missing, or an option is not right.
    """
    region = environment("CLOUD_ML_REGION") or environment("GOOGLE_CLOUD_LOCATION") or "global"
    project = environment("ANTHROPIC_VERTEX_PROJECT_ID") or environment("GOOGLE_CLOUD_PROJECT")
    found = {"region": region} if project is None else {"region": region, "project_id": project}
    packages = () if "access_token" in options else ("google.auth", "requests")
    return _in_cloud("vertex-anthropic", name, {**found, **options}, packages=packages, price=None)


def _in_cloud(
    prefix: str, name: str, options: Mapping[str, Any], *, packages: Sequence[str], price: Price | None
) -> AnthropicClientModel:
    full_name = f"{prefix}:{name}"
    missing = [package for package in ("anthropic", *packages) if not _is_installed(package)]
    if missing:
        raise ModelUnavailable(
            f"The model {full_name!r} needs what is not installed: {', '.join(missing)}.",
            model=full_name,
            hint=f"Install it: pip install 'anthropic[{prefix.partition('-')[0]}]'",
        )
    from anthropic import AnthropicError
    from anthropic.lib.bedrock import AsyncAnthropicBedrock
    from anthropic.lib.vertex import AsyncAnthropicVertex

    kind = AsyncAnthropicBedrock if prefix == "bedrock" else AsyncAnthropicVertex
    make = partial(kind, **{key: value for key, value in options.items() if key not in _OF_MODEL})
    given = {key: value for key, value in options.items() if key in _OF_MODEL and value is not None}
    of_model: Any = {"price": price, "timeouts": Timeouts()} | given
    try:
        first = make()  # it opens nothing, and tells now what is missing, not in the middle of a run
    except (AnthropicError, TypeError, ValueError) as error:
        problem = scrub_error(quote_error(error), named_secrets(options))
    else:
        following = chain([first], iter(make, None))  # an iterator without an end
        return AnthropicClientModel(name, make=partial(next, following), prefix=prefix, **of_model)
    raise ModelUnavailable(
        f"The client for {full_name!r} cannot be made: {problem}",
        model=full_name,
        hint=f"Its options are those of {kind.__name__} in the package 'anthropic', and {', '.join(_OF_MODEL)}.",
    )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # what it is a part of
        return False


@lazy_dataclass(repr=False, eq=False)
class _SdkParts(Parts):
    """The parts of an answer, from the events that the SDK has parsed."""

    _client: Client
    _events: _Events
    _decoder: AnthropicDecoder

    def unfinished_text(self) -> str:
        return self._decoder.unfinished_text()

    async def _more(self) -> Iterable[Part]:
        decoder, response = self._decoder, self._events.response
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if decoder.complete or media_type in _STREAMS:
            event = None if decoder.complete else await anext(self._events, None)
            if event is not None:
                return decoder.take(as_object(event))
            self._has_ended = True
            return decoder.end()
        data = await response.aread()
        self._has_ended = True
        if media_type == "application/json":
            return self._decoder.document(data)
        words = f"did not answer with a Messages API stream ({media_type or 'no content type'}, {data[:200]!r})"
        raise ProviderError(f"{_host_of_client(self._client)} {words}.", kind="unknown")

    def _failure(self, error: Exception) -> ProviderError:
        response, used = self._events.response, self._decoder.usage()
        failure = error if isinstance(error, ProviderError) else _failure(error, self._client, begun=True)
        text, request_id = _without_keys(str(failure), self._client), _request_id(response.headers)
        return complete_error(failure, text, status=response.status_code, request_id=request_id, used=used)


def _failure(error: Exception, client: Client, *, begun: bool) -> ProviderError:
    """Return the error that an exception of the SDK, or of a package below it, stands for."""
    from anthropic import AnthropicError, APIConnectionError, APIStatusError

    if isinstance(error, APIStatusError):
        return _explain_refusal(error, client, begun=begun)
    host, known = _host_of_client(client), find_meaning(error, begun=begun)
    kind: ProviderErrorKind
    if known is not None and (begun or not isinstance(error, ValueError)):
        failure = ProviderError(f"{host} {known.words} ({quote_error(error)}).", kind=known.kind)
        failure.usage = NOTHING_USED if known.unbilled else None
    elif isinstance(error, APIConnectionError) or begun:
        kind = "stream_cut" if begun else "network"
        failure = ProviderError(f"{host} could not be understood ({quote_error(error)}).", kind=kind)
    else:
        # Before a request is sent, the SDK raises its own class, or that of a credentials package, for lack of a key.
        no_key = isinstance(error, AnthropicError) or type(error).__module__.startswith(("google.auth", "botocore"))
        words = f"{host} was not asked: the client has no valid credentials" if no_key else f"{host} was not asked"
        failure = ProviderError(f"{words} ({quote_error(error)}).", kind="bad_request", usage=NOTHING_USED)
        if no_key:
            failure.kind = "auth"
    failure.args = (_without_keys(str(failure), client),)
    return failure


def _explain_refusal(error: APIStatusError, client: Client, *, begun: bool) -> ProviderError:
    """Return the error that the service reports, in its answer's status or, when that had `begun`, in an event."""
    headers, label = error.response.headers, error.error_code or error.type
    kind: ProviderErrorKind = "unknown" if begun else kind_of_status(error.status_code)
    labels = (error.error_code, error.type) if begun or error.type != "invalid_request_error" else (error.error_code,)
    for one in reversed(labels):
        kind = _KINDS.get(one or "", kind)
    words = f"broke off with {label or 'an error'}" if begun else f"answered {error.status_code} {label or ''}".rstrip()
    text = f"{_host_of_client(client)} {words}: {error.api_message or quote_error(error)}".rstrip(".")
    failure = ProviderError(
        _without_keys(f"{text}.", client),
        kind=kind,
        status=error.status_code,
        type=label,
        request_id=_request_id(headers),
        retry_after_s=retry_after_s(headers),
        usage=None if begun else NOTHING_USED,
    )
    return tell_wrapped(failure)


def _host_of_client(client: Client) -> str:
    return client.base_url.netloc.decode("ascii", "replace").rpartition("@")[2] or str(client.base_url)


def _request_id(headers: Mapping[str, str]) -> str | None:
    return next((headers[name] for name in _REQUEST_IDS if name in headers), None)


def _without_keys(text: str, client: Client) -> str:
    return scrub_error(text, [*named_secrets(vars(client)), *named_secrets(client.default_headers)])
