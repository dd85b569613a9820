"""Anthropic's models, and other services with the Messages API: request settings, headers and the stream of parts.

What a model cannot do is refused before anything is sent. What is known about models is what platform.claude.com
documented in November 2026.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, field
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict

from typing_extensions import Unpack

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import as_object
from journeyman.hosted.tools import HostedTool, HostedToolSupport, WebSearch
from journeyman.model import Facts, ModelSettings, OutputFormat, Part, Request, ThinkingLevel, room_for
from journeyman.models.answers import RequestedStream
from journeyman.models.anthropic.decode import PROVIDER, AnthropicDecoder
from journeyman.models.anthropic.encode import encode, media
from journeyman.models.prices import price_for
from journeyman.models.requests import (
    ROOM_FOR_ANSWER,
    by_longest_prefix,
    check_hosted,
    check_key,
    check_options,
    encode_location,
    environment,
    join_address,
    known_models,
    limits,
    make_unsent_error,
    missing,
    sampling_fields,
    with_extra,
    with_hosted,
    write_body,
)
from journeyman.models.strict import close_schema
from journeyman.models.transport import Network, OverHttp, Timeouts
from journeyman.types import JsonObject, Price

if TYPE_CHECKING:
    from journeyman.model import WholeModel

API_VERSION: Final = "2026-10-21"
"""The `anthropic-version` that is sent. A gateway that knows only the older one needs `version="2023-06-01"`."""

BASE_URL: Final = "https://api.anthropic.com"

_RESERVED: Final = frozenset({"messages", "system"})
_SAMPLING: Final = {"temperature": "temperature", "top_p": "top_p", "stop": "stop_sequences"}


@lazy_dataclass(frozen=True, repr=False, eq=False)
class AnthropicModel(OverHttp):
    """A model behind the Messages API.

    Neither key is needed where a gateway adds its own. `headers` are sent with every request, for example
    `anthropic-beta`.

    Raises:
        ModelUnavailable: the key is empty, or has a character that no key has.
    """

    name: str
    """The model's name, as its provider writes it."""
    _: KW_ONLY
    api_key: str | None = None
    """The key that is sent as `x-api-key`."""
    auth_token: str | None = None
    """The token that is sent as a bearer token."""
    base_url: str = BASE_URL
    """The service's address, without `/v1/messages`."""
    version: str = API_VERSION
    """The version of the API, sent as `anthropic-version`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeouts: Timeouts = field(default_factory=Timeouts)
    price: Price | None = None
    """What the model costs; None leaves the cost of its answers unknown."""
    deferred_loading: bool | None = None
    """Whether the service loads deferred tools itself. None: only Anthropic's own service does."""
    facts: Facts = field(init=False)
    """The documented ones; 8,192 tokens of output for a model that is not known here."""
    _url: str = field(init=False)
    _headers: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        for key in (self.api_key, self.auth_token):
            check_key(key, model=self.name)
        known = _look_up_model(self.name)
        loads_tools = self.deferred_loading
        if loads_tools is None:  # Anthropic's models from the fourth on do
            is_late = self.name.startswith("claude-") and not self.name.startswith("claude-3-")
            loads_tools = is_late and self.base_url == BASE_URL
        facts = Facts(
            max_output_tokens=known.max_output_tokens,
            context_window=known.context_window,
            price=self.price,
            loads_tools=loads_tools,
            media=media(by_url=self.base_url == BASE_URL, context_window=known.context_window),
            native_output=known.native_output,
            hosted=HostedToolSupport(
                web_search=frozenset({"max_uses", "allowed_domains", "blocked_domains", "location"}),
                code_execution=frozenset() if known.native_output is not False else None,
            ),
        )
        object.__setattr__(self, "facts", facts)
        object.__setattr__(self, "_url", join_address(self.base_url, "/v1/messages", model=f"{PROVIDER}:{self.name}"))
        object.__setattr__(self, "_headers", self._all_headers())

    def __repr__(self) -> str:
        return f"<AnthropicModel {self.name}>"

    @property
    def provider(self) -> str:
        return PROVIDER

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        """Ask the model; see `Model.stream`."""
        post = self._posting(self._url, self._headers, self.timeouts)
        return RequestedStream(
            lambda: post(body=self.body(request)),
            AnthropicDecoder(price=self.price, deltas=request.deltas, room=room_for(request, self.facts)),
            "a Messages API stream",
        )

    def body(self, request: Request) -> bytes:
        """Return the request's body as it is sent.

        Raises:
            ProviderError: the settings ask for what the API would refuse (`bad_request`).
        """
        prefix, messages, cache = request.prefix, request.messages, request.settings.cache
        return write_body(
            self._head(request), lambda head, more: encode(head, prefix, messages, cache=cache, more_tools=more)
        )

    def _head(self, request: Request) -> JsonObject:
        settings = request.settings
        ceiling, limit = limits(request, self.facts)
        head: JsonObject = {"model": self.name, "max_tokens": limit, "stream": True}
        check_hosted(request, self.facts, model=f"{PROVIDER}:{self.name}")
        head |= self._reasoning(settings.thinking, ceiling=ceiling, limit=limit)
        if request.prefix.output is not None:
            head["output_config"] = {
                **as_object(head.get("output_config")),
                "format": self._format(request.prefix.output),
            }
        if settings.tool_choice != "auto" and (request.prefix.tools or settings.hosted):
            head["tool_choice"] = {"type": settings.tool_choice}
        head |= self._sampling(settings)
        return with_hosted(with_extra(head, settings.extra, reserved=_RESERVED), list(map(_hosted, settings.hosted)))

    def _sampling(self, settings: ModelSettings) -> JsonObject:
        fields = sampling_fields(settings, _SAMPLING, model=f"{PROVIDER}:{self.name}", api="the Messages API")
        asked = " and no ".join([name for name in ("temperature", "top_p") if name in fields])
        if asked and not _look_up_model(self.name).takes_sampling:
            raise make_unsent_error(
                f"{self.name} takes no {asked}. Leave it out of ModelSettings, or choose an older model."
            )
        # The API refuses a temperature beside reasoning, on the models that still take one.
        if settings.temperature is not None and settings.thinking not in (None, "off"):
            raise make_unsent_error(f"{self.name} takes no temperature while it reasons. Leave it out, or thinking.")
        return fields

    def _format(self, output: OutputFormat) -> JsonObject:
        """Return the field that makes the model answer with JSON.

        Raises:
            ProviderError: the schema has what the API would refuse (`bad_request`).
        """
        if PROVIDER not in output.forms:
            try:
                output.forms[PROVIDER] = {"type": "json_schema", "schema": close_schema(output.schema)}
            except ValueError as error:
                raise make_unsent_error(
                    f"{self.name} cannot be made to answer with {output.name!r}: {error}. Change the type, or use"
                    " Output(…, mode='tool')."
                ) from None
        return output.forms[PROVIDER]

    def _reasoning(self, asked: ThinkingLevel | int | None, *, ceiling: int, limit: int) -> JsonObject:
        """Return the fields for reasoning; `limit` is `ceiling` or less, when a budget leaves less."""
        known = _look_up_model(self.name)
        if asked is None:
            return {}
        if isinstance(asked, int):
            return _budget(self._checked_budget(asked, known, ceiling), limit)
        if asked == "off":
            if known.off is None:
                raise make_unsent_error(f"{self.name} always reasons. Ask for thinking='minimal' instead of 'off'.")
            return {"thinking": {"type": known.off}}
        if known.reasoning == "budget":
            return _budget(min(_BUDGETS[asked], limit * 3 // 4), limit)
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low" if asked == "minimal" else asked}}

    def _checked_budget(self, budget: int, known: _ClaudeFacts, ceiling: int) -> int:
        if known.reasoning == "adaptive":
            raise make_unsent_error(
                f"{self.name} takes no thinking budget. Ask for a level, such as thinking='medium'."
            )
        if not _LEAST_BUDGET <= budget < ceiling:
            said = f"A thinking budget of {budget} is not between {_LEAST_BUDGET} and max_tokens, which is {ceiling}."
            raise make_unsent_error(f"{said} Change one of the two.")
        return budget

    def _all_headers(self) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "anthropic-version": self.version,
        }
        if self.api_key is not None:
            headers["x-api-key"] = self.api_key
        if self.auth_token is not None:
            headers["authorization"] = f"Bearer {self.auth_token}"
        return headers | {name.lower(): value for name, value in self.headers.items()}


def _hosted(tool: HostedTool) -> JsonObject:
    """Return a hosted tool in the API's form: of each the version that every model takes which has it."""
    if not isinstance(tool, WebSearch):
        return {"type": "code_execution_20250825", "name": "code_execution"}
    form: JsonObject = {"type": "web_search_20250305", "name": "web_search", **encode_location(tool.location)}
    most: JsonObject = {} if tool.max_uses is None else {"max_uses": tool.max_uses}
    lists = {"allowed_domains": tool.allowed_domains, "blocked_domains": tool.blocked_domains}
    return {**form, **most, **{name: [*domains] for name, domains in lists.items() if domains}}


def _budget(budget: int, limit: int) -> JsonObject:
    """Return the field for a budget; no field if the limit of this call leaves no room to reason."""
    if budget >= limit:
        budget = limit - ROOM_FOR_ANSWER
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _LEAST_BUDGET else {}


class AnthropicOptions(TypedDict, total=False):
    """The options of `connect("anthropic:…")` besides the name and the key: those of `AnthropicModel`."""

    base_url: str | None
    version: str
    headers: Mapping[str, str] | None
    timeouts: Timeouts | None
    network: Network | None
    price: Price | None


def from_environment(
    name: str, *, api_key: str | None = None, auth_token: str | None = None, **options: Unpack[AnthropicOptions]
) -> AnthropicModel:
    """Return the model. What is not given comes from ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, and ANTHROPIC_BASE_URL.

    Without a `price`, the model has the list price; at another address than the provider's own, where others may bill,
    it has none.

    Raises:
        ModelUnavailable: there is no key, or the address or the key cannot be one.
        TypeError: there are no such options.
    """
    own = check_options(f"{PROVIDER}:{name}", options, AnthropicOptions)
    if api_key is None and auth_token is None:
        api_key = environment("ANTHROPIC_API_KEY")
        auth_token = environment("ANTHROPIC_AUTH_TOKEN") if api_key is None else None
    if api_key is None and auth_token is None:
        hint = "Set the environment variable ANTHROPIC_API_KEY, or ANTHROPIC_AUTH_TOKEN for a bearer token."
        keys = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"]
        raise missing("key", model=f"{PROVIDER}:{name}", shown=name, hint=hint, variables=keys)
    base_url = options.get("base_url") or environment("ANTHROPIC_BASE_URL") or BASE_URL
    price = options.get("price")
    if price is None and base_url.rstrip("/").removesuffix("/v1") == BASE_URL:
        price = price_for(PROVIDER, name)
    own |= {"base_url": base_url, "price": price}
    return AnthropicModel(name, api_key=api_key, auth_token=auth_token, **own)


_Reasoning: TypeAlias = Literal["adaptive", "budget", "both"]


@lazy_dataclass(frozen=True)
class _ClaudeFacts:
    max_output_tokens: int
    context_window: int | None
    reasoning: _Reasoning
    """Steered by a level of effort, by a budget in tokens, or by either."""
    off: str | None
    """The `thinking.type` that switches reasoning off; None when nothing does."""
    native_output: bool | None = True
    """Whether it takes `output_config.format`; None: not known."""

    @property
    def takes_sampling(self) -> bool:
        """Whether it takes `temperature` and `top_p`: none does that reasons by levels of effort only. A model that is
        not known is asked."""
        return self.reasoning != "adaptive" or self.context_window is None


_BUDGETS: Final[Mapping[str, int]] = {"minimal": 1_024, "low": 4_096, "medium": 12_288, "high": 24_576, "max": 49_152}
_LEAST_BUDGET: Final = 1_024  # the API takes no smaller budget, and none of max_tokens or more


@cache
def _look_up_model(name: str) -> _ClaudeFacts:
    # The longest prefix that fits, from `claude-` on: gateways put words before it.
    start = name[name.find("claude-") :] if "claude-" in name else name
    return _ClaudeFacts(**by_longest_prefix(known_models("journeyman.models.anthropic"), start))


if TYPE_CHECKING:
    _model: WholeModel = AnthropicModel("")
