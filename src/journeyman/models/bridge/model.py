"""Every other provider, through pydantic-ai's direct API: Google, Bedrock, Mistral, Groq, Cohere, xAI, Hugging Face …

    connect("bridge:google:gemini-3-pro-preview")   # pip install 'journeyman[providers]' 'pydantic-ai-slim[google]'

All guarantees of a run hold, but it is the second choice where an adapter of our own exists: pydantic-ai walks the
whole history for each request, and not everything survives the crossing. What becomes of what:

| ours | over the bridge |
|---|---|
| text, tool call, tool result, error result | the same; lone surrogates become question marks |
| image, document | the same, where the model takes it; else `bad_request`, in a result a text that says so |
| document title | a text before the document |
| several texts and files in one result | one text first, joined by line feeds; then the files, or behind the result |
| empty result | `(no output)`, `(see the files)` |
| reasoning, signatures | come back to the same provider with all it wants back; another reads a text, or nothing |
| a provider's own details of a text, of a call | `Text.extra`, and a `RedactedThinking` before the call; both go back |
| citations | kept in `Text.extra`, not sent back |
| native tools' calls and results, files, compactions | `Opaque`; go back to the same provider |
| another provider's `Opaque` | a text that says what is left out |
| image or document of the assistant's | a text that says that it is left out |
| cache `auto`, `off` | pydantic-ai's `cache` setting; providers without one cache by themselves |
| cache mark in a user's text | a cache point, where the provider has such |
| cache mark in the system prompt, `explicit` | the end of the system prompt is cached |
| cache mark in a tool's result, `explicit` | `bad_request` |
| thinking level | pydantic-ai's `thinking`; `bad_request` where the model is not known to reason |
| thinking budget | `bad_request` |
| `ModelSettings.extra` | `top_k` and its like where the provider has them, others in the body; else `bad_request` |
| hosted tools | `bad_request` |
| `temperature`, `top_p`, `seed`, `stop` | the same, where the provider takes them; else `bad_request` |
| ids and names | letters, digits, `_`, `-`, at most 64 (Mistral: nine); others are rewritten, each always to the same |
| tokens: cached, reasoning | the same; None where the provider, or pydantic-ai, does not say |
| a refusal in OpenAI's own field | the same text, but in one piece, and sent back as any other text |
| tools of a model that has none | `bad_request` |
| strict tools | as for the Messages API: only schemas that can be enforced without loss |
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, field
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Final, Self, cast, get_args

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models import KnownModelName, StreamedResponse, infer_model
from pydantic_ai.models import Model as ForeignModel
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.settings import CacheSetting, ThinkingLevel
from pydantic_ai.settings import ModelSettings as ForeignSettings

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import as_object
from journeyman.errors import ModelUnavailable, ProviderError, ProviderErrorKind
from journeyman.hosted.tools import HostedToolSupport
from journeyman.model import UNKNOWN, Facts, ModelSettings, Part, Request, room_for
from journeyman.models.answers import Parts
from journeyman.models.bridge.decode import BridgeDecoder
from journeyman.models.bridge.encode import Encoder
from journeyman.models.error_reports import kind_of_status
from journeyman.models.leases import LoopLeases
from journeyman.models.requests import make_unsent_error, sampling_fields
from journeyman.models.transport import ASK_NOBODY, Timeouts, note_refusal
from journeyman.models.vendor_errors import Meaning, find_meaning, named_secrets, quote_error, scrub_error
from journeyman.models.wire import is_marked_inside
from journeyman.types import NOTHING_USED, Price, Usage

if TYPE_CHECKING:
    from journeyman.model import WholeModel

PATIENCE: Final = Timeouts(idle_s=300.0)
"""Longer than over our own wire: what keeps a connection alive is not seen here, only what it says."""

_RENAMED: Final[Mapping[str, str]] = {"google-gla": "google", "google-vertex": "google-cloud"}


@lazy_dataclass()
class _OpenModel:
    """The foreign model that is open on one event loop, with its encoder."""

    model: ForeignModel
    encoder: Encoder


@lazy_dataclass(frozen=True, repr=False, eq=False)
class BridgeModel:
    """A model of pydantic-ai as a `Model` of this library."""

    model: ForeignModel
    """The model of the other library."""
    _: KW_ONLY
    make: Callable[[], ForeignModel] | None = None
    """Makes the same model again, for each event loop that opens it. None: `model` itself is used, so only one event
    loop at a time may use it."""
    settings: ForeignSettings = field(default_factory=ForeignSettings)
    """Further settings of pydantic-ai, such as `google_safety_settings`. The settings of a request win over these."""
    timeouts: Timeouts = PATIENCE
    """`idle_s` limits the time between the request and the first part, and between any two parts. The provider's client
    decides how long connecting may take."""
    price: Price | None = None
    """What the model costs; None leaves the cost of its answers unknown."""
    max_output_tokens: int | None = None
    """The longest answer it can give, in tokens; None: not known."""
    secrets: tuple[str, ...] = ()
    """Texts that no error may show, in addition to the keys that the provider's client holds."""
    _leases: LoopLeases[_OpenModel] = field(default_factory=lambda: LoopLeases[_OpenModel](), init=False)

    def __repr__(self) -> str:
        return f"<BridgeModel {self.model.model_id}>"

    @property
    def provider(self) -> str:
        return self.model.system

    @property
    def name(self) -> str:
        return self.model.model_name

    @property
    def facts(self) -> Facts:
        """The facts that pydantic-ai has about the model, and those that were given."""
        window = self.model.context_window
        profile = self.model.profile
        return Facts(
            max_output_tokens=self.max_output_tokens,
            context_window=window,
            price=self.price,
            native_output=profile.get("supports_json_schema_output", False),
            sees_tools=None if profile.get("supports_tools", True) else False,
            hosted=HostedToolSupport(),
        )

    def open(self) -> AbstractAsyncContextManager[object]:
        """Keep connections, and translated messages, over many requests."""
        return self._leases.hold(self._open_model)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        """Ask the model; see `Model.stream`.

        Raises:
            ProviderError: nobody may be asked now.
        """
        if (reason := note_refusal(self.provider)) is not None:
            words = f"{self.provider}:{self.name} is not asked: {reason}."
            raise ProviderError(words, kind="not_recorded", usage=NOTHING_USED, hint=ASK_NOBODY)
        async with self._leases.hold(self._open_model) as lease:
            parts = _BridgeParts(self, lease, request)
            try:
                await parts.open()
                yield parts
            finally:
                await parts.close()

    async def __aenter__(self) -> Self:
        """Keep connections, and translated messages, until the block is left."""
        await self._leases.take(self._open_model)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._leases.give_back()

    @asynccontextmanager
    async def _open_model(self) -> AsyncGenerator[_OpenModel]:
        try:
            model = self.model if self.make is None else self.make()
            await model.__aenter__()
        except Exception as error:  # noqa: BLE001 - whatever class a provider's package raises
            failed = failure(error, self.model.model_id, begun=False, secrets=self.secrets)
        else:
            try:
                yield _OpenModel(model, Encoder(f"bridge:{model.system}", model.profile))
            finally:
                await model.__aexit__(None, None, None)
            return
        raise failed.with_traceback(None)


if TYPE_CHECKING:
    from pydantic_ai.models.test import TestModel

    _model: WholeModel = BridgeModel(TestModel())


def from_name(
    name: str,
    *,
    settings: ForeignSettings | None = None,
    timeouts: Timeouts = PATIENCE,
    price: Price | None = None,
    max_output_tokens: int | None = None,
    **options: object,
) -> BridgeModel:
    """Return the model that pydantic-ai calls `name`, such as `google:gemini-3-pro-preview`.

    `options` are those of its provider in pydantic-ai, such as `api_key`, `base_url` or `region_name`. What is not
    given comes from the environment variables that the provider reads.

    Raises:
        ModelUnavailable: nobody knows the name, or a package or a key is missing.
    """
    provider, _, model = name.partition(":")
    if not model:
        raise ModelUnavailable(
            f"The name {name!r} is not of the form 'provider:model'.",
            model=f"bridge:{name}",
            hint=f"Write the provider too, such as 'bridge:mistral:{name}'.",
        )
    make = partial(infer_model, f"{_RENAMED.get(provider, provider)}:{model}")
    if options:
        make = partial(make, provider_factory=lambda named: infer_provider_class(named)(**options))
    try:
        first = make()
    except Exception as error:  # noqa: BLE001 - every provider has its own classes for what is missing
        problem = unavailable(error, f"bridge:{name}", named_secrets(options))
    else:
        return BridgeModel(
            first,
            make=make,
            settings=settings or ForeignSettings(),
            timeouts=timeouts,
            price=price,
            max_output_tokens=max_output_tokens,
            secrets=tuple(named_secrets(options)),
        )
    raise problem


# Fields that every provider names alike but puts elsewhere: pydantic-ai knows where.
_UNIFIED: Final = frozenset(
    {"frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty", "seed", "service_tier"}
    | {"temperature", "top_k", "top_p"}
)

_SILENT: Final = ForeignSettings(framing_announcement="never")
"""Let pydantic-ai say nothing to the model that the user did not say."""
_SAMPLING: Final = {"temperature": "temperature", "top_p": "top_p", "seed": "seed", "stop": "stop_sequences"}
"""What pydantic-ai calls the settings of how a model chooses its words."""


def settings_for(model: ForeignModel, request: Request, defaults: ForeignSettings) -> ForeignSettings:
    """Return the settings of one request, over `defaults`.

    Raises:
        ProviderError: they ask for what the provider does not take (`bad_request`).
    """
    settings, made = request.settings, cast("ForeignSettings", {**_SILENT, **defaults})
    if request.prefix.tools and not model.profile.get("supports_tools", True):
        raise make_unsent_error(
            f"{model.model_id} is not known to support tools, and the request has some. Choose a model that supports"
            " tools, or remove tools, typed output and sub-agents from the agent."
        )
    named = cast("Mapping[str, Iterable[str]]", model.profile).get("openai_unsupported_model_settings", ())
    unsupported = frozenset([*model.unsupported_settings, *named])
    """What the model ignores, by its class or by its name."""
    limits = [limit for limit in (settings.max_tokens, request.max_tokens) if limit is not None]
    if limits:
        made["max_tokens"] = min(limits)
    if settings.hosted:
        raise make_unsent_error(
            f"{model.model_id} has no hosted tools over the bridge. Leave ModelSettings.hosted empty."
        )
    if settings.tool_choice != "auto" and request.prefix.tools:
        made["tool_choice"] = "required" if settings.tool_choice == "any" else "none"
    taken = {ours: theirs for ours, theirs in _SAMPLING.items() if theirs not in unsupported}
    sampling = sampling_fields(settings, taken, model=model.model_id, api="the bridge")
    made = cast("ForeignSettings", {**made, **sampling})
    if (thinking := _thinking(settings, model)) is not None:
        made["thinking"] = thinking
    if "cache" not in made:
        made["cache"] = _cache(request)
    if "max_retries" not in unsupported:
        made["max_retries"] = 0  # a retry that nobody sees cannot be counted
    return _with_extra(made, settings, unsupported, model)


def _thinking(settings: ModelSettings, model: ForeignModel) -> ThinkingLevel | None:
    asked, profile = settings.thinking, model.profile
    always = profile.get("thinking_always_enabled", False)
    if asked is None:
        return None
    if isinstance(asked, int):
        raise make_unsent_error(
            f"{model.model_id} takes no thinking budget here. Ask for a level, such as thinking='medium'."
        )
    if asked == "off":
        if always:
            raise make_unsent_error(f"{model.model_id} always reasons. Ask for thinking='minimal' instead of 'off'.")
        return False if profile.get("supports_thinking", False) else None
    if not (always or profile.get("supports_thinking", False)):
        raise make_unsent_error(f"{model.model_id} is not known to reason. Leave thinking={asked!r} out.")
    return asked


def _cache(request: Request) -> CacheSetting:
    """Return the cache policy; marks in the user's own texts go with the messages.

    A mark in the system prompt stands for the end of it, which is where pydantic-ai sets one.
    """
    policy = request.settings.cache
    if policy != "explicit":
        return policy == "auto"
    if any(is_marked_inside(block) for message in request.messages for block in message.content):
        raise make_unsent_error(
            "A cache mark inside of a tool's result cannot be carried. Mark a text of the user, or use "
            "ModelSettings(cache='auto')."
        )
    return {"messages": False} if any(text.cache_mark for text in request.prefix.system) else False


def _with_extra(
    made: ForeignSettings, settings: ModelSettings, unsupported: frozenset[str], model: ForeignModel
) -> ForeignSettings:
    """Add the user's own fields: the unified ones where pydantic-ai puts them, others to the request's body."""
    unified = settings.extra.keys() & _UNIFIED
    others = {name: value for name, value in settings.extra.items() if name not in unified}
    if refused := sorted(unified & unsupported):
        raise make_unsent_error(f"{model.model_id} does not take {', '.join(refused)}. Leave it out.")
    if others:
        if "extra_body" in unsupported:
            raise make_unsent_error(
                f"ModelSettings.extra has {sorted(others)}, and pydantic-ai adds no fields to a request of "
                f"{model.model_id}. Give its own settings to the model: connect(…, settings={{…}})."
            )
        before = as_object(cast("Mapping[str, object]", made).get("extra_body"))
        made["extra_body"] = {**before, **others}
    return cast("ForeignSettings", {**made, **{name: settings.extra[name] for name in unified}})


@lazy_dataclass(repr=False, eq=False)
class _BridgeParts(Parts):
    """The parts of an answer, and the request that brings them."""

    _bridge: BridgeModel
    _lease: _OpenModel
    _request: Request
    _carrier: AbstractAsyncContextManager[StreamedResponse] | None = None
    _decoder: BridgeDecoder | None = None
    _events: AsyncIterator[ModelResponseStreamEvent] | None = None

    def unfinished_text(self) -> str:
        return "" if self._decoder is None else self._decoder.unfinished_text()

    async def open(self) -> None:
        """Send the request, and wait for the answer to begin.

        Raises:
            ProviderError: there was no answer.
        """
        try:
            carrier = self._open_stream()
            async with asyncio.timeout(self._bridge.timeouts.idle_s):
                stream = await carrier.__aenter__()
        except ProviderError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever class a provider's package raises
            failed = self._meaning(error, begun=False)
        else:
            self._carrier, self._events = carrier, aiter(stream)
            self._decoder = BridgeDecoder(
                stream,
                owner=f"bridge:{self._lease.model.system}",
                is_remote=self._lease.model.provider is not None,
                price=self._bridge.price,
                deltas=self._request.deltas,
                room=room_for(self._request, UNKNOWN),
            )
            return
        raise failed.with_traceback(None)  # outside of `except`: their exceptions hold requests, and with them keys

    def _open_stream(self) -> AbstractAsyncContextManager[StreamedResponse]:
        request, model, encoder = self._request, self._lease.model, self._lease.encoder
        settings = settings_for(model, request, self._bridge.settings)
        parameters = encoder.parameters(request.prefix)
        messages = encoder.messages(request.messages, marks=request.settings.cache != "off")
        return model_request_stream(model, messages, model_settings=settings, model_request_parameters=parameters)

    async def close(self) -> None:
        """Close the request, finished or not."""
        carrier, self._carrier, self._events = self._carrier, None, None
        if carrier is None:
            return
        try:
            await carrier.__aexit__(None, None, None)
        except Exception as error:  # noqa: BLE001 - as above
            if self._has_ended:
                return  # the answer is complete; only its connection is lost
            failed = self._meaning(error, begun=True)
        else:
            return
        raise failed.with_traceback(None)

    def _failure(self, error: Exception) -> ProviderError:
        if not isinstance(error, ProviderError):
            return self._meaning(error, begun=True)
        if error.usage is None and self._decoder is not None:
            error.usage = self._decoder.usage(exact=False)
        return error

    async def _more(self) -> Sequence[Part]:
        if self._events is None or self._decoder is None:
            raise ProviderError("The answer is read outside of its `async with` block.", kind="unknown")
        async with asyncio.timeout(self._bridge.timeouts.idle_s):
            event = await anext(self._events, None)
        if event is not None:
            return self._decoder.feed(event)
        self._has_ended = True
        return self._decoder.end()

    def _meaning(self, error: Exception, *, begun: bool) -> ProviderError:
        model = self._lease.model
        usage = self._decoder.usage(exact=False) if self._decoder is not None else None
        secrets = [*self._bridge.secrets, *_held_secrets(getattr(model.provider, "client", None))]
        return failure(error, model.model_id, begun=begun, usage=usage, secrets=secrets)


def _held_secrets(client: object) -> list[str]:
    """Return the keys that a provider's client holds, or that what it is made of holds."""
    held = cast("Mapping[str, object]", getattr(client, "__dict__", {}))
    below = [cast("Mapping[str, object]", vars(value)) for value in held.values() if hasattr(value, "__dict__")]
    return [secret for holder in (held, *below) for secret in named_secrets(holder)]


#
# Every exception of a provider's package becomes a `ProviderError` or a `ModelUnavailable`, by its class and status,
# not by its words.

# The first class that fits, before the status is asked.
_KINDS: Final[tuple[tuple[type[Exception], ProviderErrorKind], ...]] = (
    (ModelContextWindowExceededError, "context_overflow"),
    (ModelRateLimitError, "rate_limited"),
    (ModelQuotaExceededError, "quota"),
    (ModelAuthenticationError, "auth"),
    (ModelNotFoundError, "not_found"),
    (ModelUnavailableError, "overloaded"),
    (ContentFilterError, "content_filtered"),
)
_KINDS_WITHOUT_STATUS: Final[tuple[tuple[type[Exception], ProviderErrorKind], ...]] = (
    (ModelRequestRejectedError, "bad_request"),
    (ModelServerError, "overloaded"),
)
_OWN_TIMEOUTS: Final = (ModelTimeoutError, ModelRequestTimeout)


def failure(
    error: Exception, name: str, *, begun: bool, usage: Usage | None = None, secrets: Iterable[str] = ()
) -> ProviderError:
    """Return the error that an exception of pydantic-ai, or of a package below it, stands for.

    `begun`: whether the answer had begun; `usage`: what it had reported. `name` says in the text which model it was.
    """
    if isinstance(error, ModelHTTPError):
        made = _explain_refusal(error, name)
    elif (kind := _kind_by_class(error)) is not None:
        made = ProviderError(f"{name} refused: {quote_error(error)}.", kind=kind)
        if isinstance(error, ModelAPIError):
            made.type, made.retry_after_s = _label(error), error.retry_after
    else:
        known = _classify_error(error, begun=begun)
        made = ProviderError(f"{name} {known.words} ({quote_error(error)}).", kind=known.kind)
        made.usage = NOTHING_USED if known.unbilled else None
    if begun:
        made.usage = usage
    made.args = (scrub_error(str(made), secrets),)
    return made


def _explain_refusal(error: ModelHTTPError, name: str) -> ProviderError:
    """Return the error that the service reports with a status. Such an answer is not billed."""
    headers: Mapping[str, str] = error.headers or {}
    kind, label = _kind_by_class(error) or kind_of_status(error.status_code), _label(error)
    words = f"answered {error.status_code} {label or ''}".rstrip()
    return ProviderError(
        f"{name} {words}: {_message_in_body(error.body) or quote_error(error)}".rstrip(".") + ".",
        kind=kind,
        status=error.status_code,
        type=label,
        request_id=next((headers[one] for one in ("request-id", "x-request-id") if one in headers), None),
        retry_after_s=error.retry_after,
        usage=NOTHING_USED,
    )


def _kind_by_class(error: Exception) -> ProviderErrorKind | None:
    kinds = _KINDS if isinstance(error, ModelHTTPError) else _KINDS + _KINDS_WITHOUT_STATUS
    return next((kind for category, kind in kinds if isinstance(error, category)), None)


def _label(error: ModelAPIError) -> str | None:
    return error.provider_error_type or error.provider_error_code


def _message_in_body(body: object) -> str:
    """Return the words of an error document, wherever the provider puts them."""
    for key in ("error", "message", "detail"):
        if isinstance(body, dict) and (found := body.get(key)):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            return _message_in_body(found)  # pyright: ignore[reportUnknownArgumentType]
    return body if isinstance(body, str) else ""


def _classify_error(error: Exception, *, begun: bool) -> Meaning:
    if isinstance(error, _OWN_TIMEOUTS) and error.__cause__ is None:
        error = TimeoutError(str(error))
    known = find_meaning(error, begun=begun)
    if known is not None and (begun or isinstance(error, AgentRunError | OSError)):
        return known
    if begun:
        return Meaning("stream_cut", "could not be understood any further")
    if isinstance(error, ModelConnectionError):
        return Meaning("network", "could not be reached", unbilled=error.phase in ("pool", "connect"))
    if isinstance(error, AgentRunError):
        return Meaning("unknown", "could not be understood")
    # `UserError` and what encoders raise: the request never left.
    return known or Meaning("bad_request", "cannot be asked that", unbilled=True)


_EXTRA: Final = re.compile(r"pydantic-ai-slim\[([\w-]+)\]")
_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")


def unavailable(error: Exception, name: str, secrets: Iterable[str]) -> ModelUnavailable:
    """Return the error of a model that cannot even be made: a package or a key is missing, or nobody knows its name."""
    text = scrub_error(" ".join(str(error).split()), secrets)
    if isinstance(error, ImportError):
        extra = _EXTRA.search(text)
        package = f"pydantic-ai-slim[{extra[1]}]" if extra else error.name or "the provider's package"
        message = f"The model {name!r} needs a package that is not installed."
        hint = f"Install it: pip install 'journeyman[providers]' '{package}'"
        return ModelUnavailable(message, model=name, hint=hint)
    first_sentence = re.split(r"(?<=[.!?])\s", text)[0].rstrip(".")
    if variables := sorted({*_VARIABLE.findall(first_sentence)}):
        hint = f"Set {' or '.join(variables)}, or give its option to connect."
    else:
        hint = f"{_suggestion(name)}Look at its name, and at the options that were given to connect."
    return ModelUnavailable(f"The model {name!r} cannot be used: {first_sentence}.", model=name, hint=hint)


def _suggestion(name: str) -> str:
    """Return a name that may have been meant, if pydantic-ai knows a provider that is called almost the same."""
    bridge, provider, model = name.split(":", 2)
    known = {name.partition(":")[0] for name in get_args(KnownModelName.__value__)}
    close = get_close_matches(provider, sorted(known), n=1)
    return f"Did you mean '{bridge}:{close[0]}:{model}'? " if close and provider not in known else ""
