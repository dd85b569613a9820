"""Anthropic's models, and whatever else speaks the Messages API: request settings, headers and the stream of parts.

The bytes of a conversation are made in `anthropic_encode`, answers are read in `anthropic_decode`, HTTP is done in
`transport`. Facts about models are those that platform.claude.com documented in November 2026.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from journeyman.errors import ModelUnavailable, ProviderError
from journeyman.model import Part, Request, Settings, ThinkingLevel
from journeyman.models.answers import Asked, refused
from journeyman.models.anthropic.decode import KINDS, PROVIDER, Decoder
from journeyman.models.anthropic.encode import encode
from journeyman.models.prices import price_for
from journeyman.models.transport import Answer, Timeouts, lease, open_stream
from journeyman.types import NOTHING_USED, JsonObject, Price

if TYPE_CHECKING:
    from journeyman.model import Limited, LoadsTools, Model, Opens, Priced

API_VERSION: Final = "2026-10-21"
"""The `anthropic-version` that is sent. A gateway that knows only the older one needs `version="2023-06-01"`."""

BASE_URL: Final = "https://api.anthropic.com"


# -- what is known about models ----------------------------------------------------------------------------------------

_Reasoning: TypeAlias = Literal["adaptive", "budget", "both"]


@dataclass(frozen=True, slots=True)
class _Facts:
    max_output_tokens: int
    context_window: int | None
    reasoning: _Reasoning
    """Steered by a level of effort, by a budget in tokens, or by either."""
    off: str | None
    """The `thinking.type` that switches reasoning off; None when nothing does."""


# The longest prefix that fits, from `claude-` on: gateways put words before it.
_FACTS: Final[Mapping[str, _Facts]] = {
    "claude-fable-": _Facts(128_000, 1_000_000, "adaptive", None),
    "claude-mythos-": _Facts(128_000, 1_000_000, "adaptive", None),
    "claude-opus-5-5": _Facts(128_000, 1_000_000, "adaptive", None),
    "claude-opus-5": _Facts(128_000, 1_000_000, "adaptive", "disabled"),
    "claude-sonnet-5-5": _Facts(128_000, 1_000_000, "adaptive", "between_tools"),
    "claude-sonnet-5": _Facts(128_000, 1_000_000, "adaptive", "disabled"),
    "claude-haiku-5": _Facts(128_000, 1_000_000, "adaptive", "disabled"),
    "claude-opus-4-8": _Facts(128_000, 1_000_000, "adaptive", "disabled"),
    "claude-opus-4-7": _Facts(128_000, 1_000_000, "adaptive", "disabled"),
    "claude-opus-4-6": _Facts(128_000, 1_000_000, "both", "disabled"),
    "claude-sonnet-4-6": _Facts(128_000, 1_000_000, "both", "disabled"),
    "claude-opus-4-5": _Facts(64_000, 200_000, "budget", "disabled"),
    "claude-sonnet-4": _Facts(64_000, 200_000, "budget", "disabled"),
    "claude-haiku-4": _Facts(64_000, 200_000, "budget", "disabled"),
    "claude-opus-4": _Facts(32_000, 200_000, "budget", "disabled"),
    "claude-3-7-sonnet": _Facts(64_000, 200_000, "budget", "disabled"),
    "claude-3-5-": _Facts(8_192, 200_000, "budget", "disabled"),
    "claude-3-": _Facts(4_096, 200_000, "budget", "disabled"),
    "claude-": _Facts(8_192, None, "adaptive", "disabled"),
    "": _Facts(8_192, None, "budget", "disabled"),
}

_EFFORTS: Final[Mapping[ThinkingLevel, str]] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "max": "max",
}
_BUDGETS: Final[Mapping[ThinkingLevel, int]] = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 12_288,
    "high": 24_576,
    "max": 49_152,
}
_LEAST_BUDGET: Final = 1_024
_ROOM_FOR_ANSWER: Final = 256  # tokens that a budget leaves when the limit of a call is lowered


@cache
def _facts(name: str) -> _Facts:
    known = name[name.find("claude-") :] if "claude-" in name else name
    return _FACTS[max((prefix for prefix in _FACTS if known.startswith(prefix)), key=len)]


# -- the model ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AnthropicModel:
    """A model behind the Messages API.

    Neither key is needed where a gateway adds its own. `headers` are sent with every request, for example
    `anthropic-beta`.
    """

    name: str
    _: KW_ONLY
    api_key: str | None = None
    """Sent as `x-api-key`."""
    auth_token: str | None = None
    """Sent as a bearer token."""
    base_url: str = BASE_URL
    """The service's address, without `/v1/messages`."""
    version: str = API_VERSION
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeouts: Timeouts = field(default_factory=Timeouts)
    price: Price | None = None
    """What the model costs; None leaves the cost of its answers unknown."""
    deferred_loading: bool | None = None
    """Whether the service loads deferred tools itself; None: if it is Anthropic's own."""
    _url: str = field(init=False)
    _headers: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        for key in (self.api_key, self.auth_token):
            if key is not None and not (key.isascii() and key.isprintable() and " " not in key and key):
                raise ModelUnavailable(
                    f"The key for {self.name!r} is empty or has a character that no key has.",
                    model=self.name,
                    hint="Copy the key again, without spaces and line breaks.",
                )
        object.__setattr__(self, "_url", self.base_url.rstrip("/").removesuffix("/v1") + "/v1/messages")
        object.__setattr__(self, "_headers", self._all_headers())

    def __repr__(self) -> str:
        return f"<AnthropicModel {self.name}>"

    @property
    def provider(self) -> str:
        return PROVIDER

    @property
    def max_output_tokens(self) -> int:
        """The documented maximum; 8,192 for a model that is not known here."""
        return _facts(self.name).max_output_tokens

    @property
    def context_window(self) -> int | None:
        return _facts(self.name).context_window

    @property
    def loads_tools(self) -> bool:
        """Whether it loads deferred tools itself: Anthropic's models from the fourth on do."""
        if self.deferred_loading is not None:
            return self.deferred_loading
        return self.base_url == BASE_URL and self.name.startswith("claude-") and not self.name.startswith("claude-3-")

    def open(self) -> AbstractAsyncContextManager[object]:
        """Keep connections over many requests."""
        return lease()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        """Ask the model; see `Model.stream`."""

        def post() -> AbstractAsyncContextManager[Answer]:
            return open_stream(self._url, headers=self._headers, body=self.body(request), timeouts=self.timeouts)

        decoder = Decoder(self.price, deltas=request.deltas)
        return Asked(post, decoder, refused=_refused, expected="a Messages API stream")

    def body(self, request: Request) -> bytes:
        """Return the request's body as it is sent.

        Raises:
            ProviderError: the settings ask for what the API would refuse (`bad_request`).
        """
        head = self._head(request)
        tools = head.pop("tools", None)
        more_tools = tools if isinstance(tools, list) else []
        try:
            return encode(head, request.prefix, request.messages, cache=request.settings.cache, more_tools=more_tools)
        except (TypeError, ValueError) as error:
            failure = _refused_here(
                f"The request cannot be written as JSON: {error}. Look at schemas and Settings.extra."
            )
        raise failure

    def _head(self, request: Request) -> JsonObject:
        settings = request.settings
        ceiling = self.max_output_tokens if settings.max_tokens is None else settings.max_tokens
        limit = ceiling if request.max_tokens is None else min(ceiling, request.max_tokens)
        head: JsonObject = {"model": self.name, "max_tokens": limit, "stream": True}
        head |= self._reasoning(settings.thinking, ceiling=ceiling, limit=limit)
        if settings.tool_choice != "auto" and request.prefix.tools:
            head["tool_choice"] = {"type": settings.tool_choice}
        if settings.stop_sequences:
            head["stop_sequences"] = list(settings.stop_sequences)
        return _with_extra(head, settings)

    def _reasoning(self, asked: ThinkingLevel | int | None, *, ceiling: int, limit: int) -> JsonObject:
        """Return the fields for reasoning; `limit` is `ceiling` or less, when a budget leaves less."""
        facts = _facts(self.name)
        if asked is None:
            return {}
        if isinstance(asked, int):
            return _budget(self._checked_budget(asked, facts, ceiling), limit)
        if asked == "off":
            if facts.off is None:
                raise _refused_here(f"{self.name} always reasons. Ask for thinking='minimal' instead of 'off'.")
            return {"thinking": {"type": facts.off}}
        if facts.reasoning == "budget":
            return _budget(min(_BUDGETS[asked], limit * 3 // 4), limit)
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": _EFFORTS[asked]}}

    def _checked_budget(self, budget: int, facts: _Facts, ceiling: int) -> int:
        if facts.reasoning == "adaptive":
            raise _refused_here(f"{self.name} takes no thinking budget. Ask for a level, such as thinking='medium'.")
        if not _LEAST_BUDGET <= budget < ceiling:
            said = f"A thinking budget of {budget} is not between {_LEAST_BUDGET} and max_tokens, which is {ceiling}."
            raise _refused_here(f"{said} Change one of the two.")
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


async def _refused(answer: Answer) -> ProviderError:
    return with_overflow(await refused(answer, KINDS))


if TYPE_CHECKING:
    _model: Model = AnthropicModel("")
    _opens: Opens = AnthropicModel("")
    _limited: Limited = AnthropicModel("")
    _priced: Priced = AnthropicModel("")
    _loads_tools: LoadsTools = AnthropicModel("")


def from_environment(
    name: str,
    *,
    api_key: str | None = None,
    auth_token: str | None = None,
    base_url: str | None = None,
    version: str = API_VERSION,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    price: Price | None = None,
) -> AnthropicModel:
    """Return the model; what is not given comes from ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, and ANTHROPIC_BASE_URL.

    Without a `price`, it is the list price; at another address than the provider's own, where others may bill, none.

    Raises:
        ModelUnavailable: there is no key.
    """
    if api_key is None and auth_token is None:
        api_key = _environment("ANTHROPIC_API_KEY")
        auth_token = _environment("ANTHROPIC_AUTH_TOKEN") if api_key is None else None
    if api_key is None and auth_token is None:
        raise ModelUnavailable(
            f"There is no key for the model {name!r}.",
            model=f"{PROVIDER}:{name}",
            hint="Set the environment variable ANTHROPIC_API_KEY, or ANTHROPIC_AUTH_TOKEN for a bearer token.",
        )
    base_url = base_url or _environment("ANTHROPIC_BASE_URL") or BASE_URL
    if price is None and base_url.rstrip("/").removesuffix("/v1") == BASE_URL:
        price = price_for(PROVIDER, name)
    return AnthropicModel(
        name,
        api_key=api_key,
        auth_token=auth_token,
        base_url=base_url,
        version=version,
        headers=headers or {},
        timeouts=timeouts or Timeouts(),
        price=price,
    )


def _environment(variable: str) -> str | None:
    return os.environ.get(variable, "").strip() or None


# -- requests ----------------------------------------------------------------------------------------------------------


def _budget(budget: int, limit: int) -> JsonObject:
    """Return the field for a budget; no field if the limit of this call leaves no room to reason."""
    if budget >= limit:
        budget = limit - _ROOM_FOR_ANSWER
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _LEAST_BUDGET else {}


def _with_extra(head: JsonObject, settings: Settings) -> JsonObject:
    """Add the user's own fields; of one that is an object on both sides, the members are put together."""
    if taken := {"messages", "system"} & settings.extra.keys():
        raise _refused_here(f"Settings.extra has {sorted(taken)}. These come from the agent's prompts and history.")
    for key, value in settings.extra.items():
        before = head.get(key)
        head[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return head


def _refused_here(text: str) -> ProviderError:
    return ProviderError(text, kind="bad_request", usage=NOTHING_USED)


# -- answers -----------------------------------------------------------------------------------------------------------


def with_overflow(error: ProviderError) -> ProviderError:
    """Tell a conversation that is too long from other bad requests.

    This reads the message, which nothing else does: the API answers 400 `invalid_request_error` without a code, and
    the texts are `prompt is too long: 205668 tokens > 200000 maximum` (GitHub: kortix-ai/suna#217) and `input length
    and `max_tokens` exceed context limit: 178959 + 64000 > 200000` (docker/docker-agent#569).
    """
    text = str(error).lower()
    if error.kind == "bad_request" and ("prompt is too long" in text or "exceed context limit" in text):
        error.kind = "context_overflow"
    return error
