"""What one service with an OpenAI-style API can do, how it is reached, and what its errors mean.

An `Endpoint` is data: a preset for each known service, and every field of it can be replaced:
`dataclasses.replace(VLLM, tools=False)`. Both OpenAI adapters read it. What is said of services is what their
documentation gave in November 2026. Read
`openai_chat.py` next.

What is known about OpenAI's models: how long they answer, how much they read, and how they are asked to reason.

As developers.openai.com documented them in November 2026; what Chat Completions refuse is from the API's own error
texts (GitHub: openai/openai-openapi#541, BerriAI/litellm#34569). Read
`openai_endpoint.py` next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

from pydantic import JsonValue

from journeyman.errors import ModelUnavailable, ProviderError, ProviderErrorKind
from journeyman.model import ThinkingLevel
from journeyman.models.answers import kind_of_status
from journeyman.types import NOTHING_USED, JsonObject

ChatTools: TypeAlias = Literal["yes", "without reasoning", "no"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a model."""

    max_output_tokens: int
    context_window: int | None
    efforts: tuple[str, ...] = ()
    """What its effort for reasoning can be, the least first; empty when it takes none."""
    chat_tools: ChatTools = "yes"
    """Whether it has tools over Chat Completions. `without reasoning`: with the effort `none` only."""


_THREE: Final = ("low", "medium", "high")
_FOUR: Final = (*_THREE, "xhigh")
_FIVE: Final = (*_FOUR, "max")
_LARGE: Final = 1_050_000

# The longest prefix that fits, after the vendor's name and a slash, which gateways put before it.
_FACTS: Final[Mapping[str, Facts]] = {
    "gpt-6": Facts(128_000, _LARGE, _FIVE, "no"),
    "gpt-6-sol": Facts(128_000, _LARGE, ("none", *_FIVE), "without reasoning"),
    "gpt-6-luna": Facts(128_000, _LARGE, ("none", *_FIVE), "without reasoning"),
    "gpt-5.6": Facts(128_000, _LARGE, ("none", *_FIVE), "without reasoning"),
    "gpt-5.5": Facts(128_000, _LARGE, ("none", *_FOUR), "without reasoning"),
    "gpt-5.5-pro": Facts(128_000, _LARGE, ("medium", "high", "xhigh")),
    "gpt-5.4": Facts(128_000, _LARGE, ("none", *_FOUR), "without reasoning"),
    "gpt-5.4-mini": Facts(128_000, 400_000, ("none", *_FOUR), "without reasoning"),
    "gpt-5.4-nano": Facts(128_000, 400_000, ("none", *_FOUR), "without reasoning"),
    "gpt-5.4-pro": Facts(128_000, _LARGE, ("medium", "high", "xhigh")),
    "gpt-5.3-codex": Facts(128_000, 400_000, _FOUR),
    "gpt-5.3-codex-spark": Facts(32_000, 128_000, _FOUR),
    "gpt-5.3-chat": Facts(16_384, 128_000, ("medium",)),
    "gpt-5.2": Facts(128_000, 400_000, ("none", *_FOUR)),
    "gpt-5.2-codex": Facts(128_000, 400_000, _FOUR),
    "gpt-5.2-pro": Facts(128_000, 400_000, ("medium", "high", "xhigh")),
    "gpt-5.2-chat": Facts(16_384, 128_000, ("medium",)),
    "gpt-5.1": Facts(128_000, 400_000, ("none", *_THREE)),
    "gpt-5.1-codex": Facts(128_000, 400_000, _THREE),
    "gpt-5.1-codex-max": Facts(128_000, 400_000, _FOUR),
    "gpt-5.1-chat": Facts(16_384, 128_000, ("medium",)),
    "gpt-5": Facts(128_000, 400_000, ("minimal", *_THREE)),
    "gpt-5-codex": Facts(128_000, 400_000, _THREE),
    "gpt-5-pro": Facts(272_000, 400_000, ("high",)),
    "gpt-5-chat": Facts(16_384, 128_000),
    "gpt-oss-": Facts(131_072, 131_072, _THREE),
    "o1": Facts(100_000, 200_000, _THREE),
    "o3": Facts(100_000, 200_000, _THREE),
    "o4-mini": Facts(100_000, 200_000, _THREE),
    "gpt-4.1": Facts(32_768, 1_047_576),
    "gpt-4o": Facts(16_384, 128_000),
    "gpt-4o-2024-05-13": Facts(4_096, 128_000),
    "gpt-4-turbo": Facts(4_096, 128_000),
    "gpt-4": Facts(8_192, 8_192),
    "gpt-3.5-turbo": Facts(4_096, 16_385),
    "": Facts(8_192, None, _THREE),
}


@cache
def facts(name: str) -> Facts:
    """Return what is known about a model; of an unknown one only 8,192 tokens of output are taken for granted."""
    known = name.rpartition("/")[2].removeprefix("ft:")
    return _FACTS[max((prefix for prefix in _FACTS if known.startswith(prefix)), key=len)]


KeyHeader: TypeAlias = Literal["authorization", "api-key"]
EffortField: TypeAlias = Literal["reasoning_effort", "reasoning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One service. The defaults are those of a plain compatible server that needs no key."""

    provider: str
    """The service's short name: the prefix of its models' names, and whose reasoning an answer holds."""

    # -- how it is reached
    base_url: str | None = None
    """The address that the paths follow; None: it must be given, or stand in `base_url_variable`."""
    base_url_variable: str | None = None
    """The environment variable for the address."""
    key_variable: str | None = None
    """The environment variable for the key."""
    needs_key: bool = False
    key_header: KeyHeader = "authorization"
    """`authorization`: sent as a bearer token; `api-key`: as it is, in a header of that name."""
    chat_path: str = "/chat/completions"
    """Where Chat Completions are; `{model}` stands for the model's name."""
    responses_path: str = "/responses"
    """Where Responses are; `{model}` stands for the model's name."""
    query: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """What follows the path, such as `api-version`."""

    # -- what it can do
    tools: bool = True
    """False: a request with tools is an error before it is sent."""
    parallel_tool_calls: bool | None = None
    """Sent as `parallel_tool_calls`; None: not sent, and the service decides. False asks for one call at a time."""
    strict: bool = False
    """Whether the service enforces the schemas of tools that are marked `strict`."""
    images: bool = True
    """Whether users may send pictures; where not, a text says that one is missing."""
    image_urls: bool = True
    """Whether the service fetches pictures by itself."""
    documents: bool = False
    """Whether users may send PDF files; where not, a text says that one is missing. Plain text needs nothing."""
    document_urls: bool = False
    """Whether Chat Completions fetch documents by themselves."""
    refusals: bool = False
    """Whether Chat Completions take a refusal of the model back as one; where not, it is a text like any other."""

    longest_id: int | None = None
    """The longest id of a call that Chat Completions take, in characters; None: any."""

    # -- how it is asked
    usage_in_stream: bool = True
    """Whether a stream tells its usage when asked to by `stream_options.include_usage`."""
    system_role: Literal["system", "developer"] = "system"
    """The role of the message with the system prompt, in Chat Completions."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of the longest answer's field, in Chat Completions."""
    store: bool | None = None
    """Sent as `store`; None: not sent, and the service decides whether it keeps answers."""
    cache_marks: tuple[str, ...] = ()
    """How the names of those models begin whose texts may be marked for the prompt cache, by `cache_control`, in Chat
    Completions. All others cache by themselves."""
    tells_cost: bool = False
    """Whether Chat Completions are asked, by `usage.include`, what an answer cost, and tell it in US dollars."""

    # -- reasoning
    reasoning_field: str = "reasoning_content"
    """The field of a Chat Completions message that holds the reasoning. `reasoning` and `reasoning_content` are read
    wherever they come; this one is sent."""
    echoes_reasoning: bool = False
    """Whether Chat Completions take the model's reasoning back in `reasoning_field`."""
    reasoning_details: bool = False
    """Whether reasoning also comes as `reasoning_details`, which are sent back instead of its text."""
    effort_field: EffortField | None = None
    """How Chat Completions are asked for an effort: `reasoning_effort`, or `reasoning: {"effort": ...}`. None: not at
    all."""
    efforts: tuple[str, ...] | None = None
    """The efforts that every model takes, the least first, in the service's words; None: see the model's facts."""
    takes_budget: bool = False
    """Whether a budget in tokens is taken, as `reasoning: {"max_tokens": ...}`."""

    # -- limits
    max_output_tokens: int | None = None
    """The longest answer of every model, in tokens; None: see the model's facts."""
    context_window: int | None = None
    """The most tokens in and out of every model; None: see the model's facts."""


OPENAI: Final = Endpoint(
    provider="openai",
    base_url="https://api.openai.com/v1",
    base_url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    needs_key=True,
    strict=True,
    documents=True,
    refusals=True,
    longest_id=40,
    max_tokens_field="max_completion_tokens",
    store=False,
    effort_field="reasoning_effort",
)
AZURE: Final = Endpoint(
    provider="azure",
    base_url_variable="AZURE_OPENAI_ENDPOINT",
    key_variable="AZURE_OPENAI_API_KEY",
    needs_key=True,
    key_header="api-key",
    chat_path="/openai/v1/chat/completions",
    responses_path="/openai/v1/responses",
    strict=True,
    documents=True,
    refusals=True,
    longest_id=40,
    max_tokens_field="max_completion_tokens",
    store=False,
    effort_field="reasoning_effort",
)
OPENROUTER: Final = Endpoint(
    provider="openrouter",
    base_url="https://openrouter.ai/api/v1",
    base_url_variable="OPENROUTER_BASE_URL",
    key_variable="OPENROUTER_API_KEY",
    needs_key=True,
    documents=True,
    document_urls=True,
    cache_marks=("anthropic/", "~anthropic/"),
    tells_cost=True,
    reasoning_field="reasoning",
    echoes_reasoning=True,
    reasoning_details=True,
    effort_field="reasoning",
    efforts=("none", "minimal", "low", "medium", "high", "xhigh"),
    takes_budget=True,
)
OLLAMA: Final = Endpoint(
    provider="ollama",
    base_url="http://localhost:11434/v1",
    base_url_variable="OLLAMA_BASE_URL",
    key_variable="OLLAMA_API_KEY",
    reasoning_field="reasoning",
    echoes_reasoning=True,
    effort_field="reasoning_effort",
    efforts=("none", "low", "medium", "high"),
)
VLLM: Final = Endpoint(
    provider="vllm",
    base_url="http://localhost:8000/v1",
    base_url_variable="VLLM_BASE_URL",
    key_variable="VLLM_API_KEY",
    reasoning_field="reasoning",
    echoes_reasoning=True,
    effort_field="reasoning_effort",
    efforts=("none", "low", "medium", "high"),
)
LLAMA_CPP: Final = Endpoint(
    provider="llama-cpp",
    base_url="http://localhost:8080/v1",
    base_url_variable="LLAMA_CPP_BASE_URL",
    key_variable="LLAMA_CPP_API_KEY",
    echoes_reasoning=True,
    effort_field="reasoning_effort",
    efforts=("none", "low", "medium", "high"),
)
LM_STUDIO: Final = Endpoint(
    provider="lm-studio",
    base_url="http://localhost:1234/v1",
    base_url_variable="LM_STUDIO_BASE_URL",
    key_variable="LM_STUDIO_API_KEY",
    image_urls=False,
    effort_field="reasoning_effort",
    efforts=("none", "low", "medium", "high"),
)


# -- requests ----------------------------------------------------------------------------------------------------------


def address(endpoint: Endpoint, *, base_url: str | None, path: str, model: str) -> str:
    """Return the URL for a request; `path` is one of the endpoint's two, and its own address is used if none is given.

    Raises:
        ModelUnavailable: neither has an address.
    """
    base_url = base_url or endpoint.base_url
    if base_url is None:
        raise ModelUnavailable(
            f"There is no address for the model {model!r}.",
            model=f"{endpoint.provider}:{model}",
            hint="Give base_url, or set that of the endpoint.",
        )
    query = f"?{urlencode(endpoint.query)}" if endpoint.query else ""
    return base_url.rstrip("/") + path.replace("{model}", quote(model, safe="")) + query


def headers_for(endpoint: Endpoint, *, api_key: str | None, more: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request, the user's own last."""
    headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
    if api_key is not None:
        bearer = endpoint.key_header == "authorization"
        headers[endpoint.key_header] = f"Bearer {api_key}" if bearer else api_key
    return headers | {name.lower(): value for name, value in more.items()}


def check_key(key: str | None, *, model: str) -> None:
    """Raise `ModelUnavailable` for a key that no service can have given out."""
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key and key):
        raise ModelUnavailable(
            f"The key for {model!r} is empty or has a character that no key has.",
            model=model,
            hint="Copy the key again, without spaces and line breaks.",
        )


def refused_here(text: str) -> ProviderError:
    """Return the error of a request that is not sent because it would be refused."""
    return ProviderError(text, kind="bad_request", usage=NOTHING_USED)


def check_tools(endpoint: Endpoint, *, model: str, asked: bool) -> None:
    """Raise `ProviderError` if a model that has no tools is asked to use some."""
    if asked and not endpoint.tools:
        raise refused_here(
            f"{endpoint.provider}:{model} is set up without tools, and the request has some. Choose a model that"
            " supports tools, or remove tools, typed output and sub-agents from the agent."
        )


def chat_tools(endpoint: Endpoint, model: str) -> ChatTools:
    """Return whether the model has tools over Chat Completions; an endpoint with efforts of its own knows better."""
    return facts(model).chat_tools if endpoint.efforts is None else "yes"


_EFFORTS: Final[Mapping[ThinkingLevel, tuple[str, ...]]] = {
    "minimal": ("minimal", "low"),
    "low": ("low",),
    "medium": ("medium",),
    "high": ("high",),
    "max": ("max", "xhigh", "high"),
}
"""For each level the words for it, the best first."""


def effort(endpoint: Endpoint, model: str, level: ThinkingLevel) -> str:
    """Return the service's word for a level of reasoning.

    Raises:
        ProviderError: the model does not reason, or not at that level (`bad_request`).
    """
    taken = facts(model).efforts if endpoint.efforts is None else endpoint.efforts
    name = f"{endpoint.provider}:{model}"
    if not taken:
        raise refused_here(f"{name} takes no effort for reasoning. Leave Settings.thinking at None.")
    if level == "off":
        if "none" not in taken:
            raise refused_here(f"{name} always reasons. Ask for thinking='minimal' instead of 'off'.")
        return "none"
    word = next((word for word in _EFFORTS[level] if word in taken), None)
    if word is None:
        raise refused_here(f"{name} takes no effort {level!r} for reasoning. It takes: {', '.join(taken)}.")
    return word


# -- limits ------------------------------------------------------------------------------------------------------------


def max_output_tokens(endpoint: Endpoint, model: str) -> int:
    """Return the longest answer, in tokens."""
    return facts(model).max_output_tokens if endpoint.max_output_tokens is None else endpoint.max_output_tokens


def context_window(endpoint: Endpoint, model: str) -> int | None:
    """Return the most tokens of input and output together; None when unknown."""
    return facts(model).context_window if endpoint.context_window is None else endpoint.context_window


# -- errors ------------------------------------------------------------------------------------------------------------

KINDS: Final[Mapping[str, ProviderErrorKind]] = {
    "account_deactivated": "auth",
    "api_error": "overloaded",
    "authentication_error": "auth",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "content_filter": "content_filtered",
    "content_policy_violation": "content_filtered",
    "context_length_exceeded": "context_overflow",
    "DeploymentNotFound": "not_found",
    "engine_overloaded": "overloaded",
    "exceed_context_size_error": "context_overflow",
    "insufficient_quota": "quota",
    "invalid_api_key": "auth",
    "invalid_authentication": "auth",
    "invalid_prompt": "content_filtered",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "overloaded_error": "overloaded",
    "permission_error": "auth",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "ResponsibleAIPolicyViolation": "content_filtered",
    "server_error": "overloaded",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "timeout_error": "timeout",
    "tokens_exceeded_error": "context_overflow",
    "unavailable_error": "overloaded",
}
"""Error codes and types that say what happened; `invalid_request_error` does not, it has many statuses."""


def reported_within(error: JsonValue) -> ProviderError:
    """Return the error that a service reports in the middle of an answer: an object, or a text."""
    fields = error if isinstance(error, dict) else {"message": error}
    code, message = fields.get("code"), fields.get("message")
    labels = [label for label in (code, fields.get("type")) if isinstance(label, str) and label]
    said = message if isinstance(message, str) and message else "no message"
    text = f"The answer broke off with {labels[0] if labels else code or 'an error'}: {said}"
    return with_overflow(ProviderError(text, kind=_kind(labels, code), type=labels[0] if labels else None))


def _kind(labels: Sequence[str], code: object) -> ProviderErrorKind:
    for label in labels:
        if label in KINDS:
            return KINDS[label]
    if isinstance(code, int):
        return kind_of_status(code)
    return "bad_request" if "invalid_request_error" in labels else "unknown"


_OVERFLOW: Final = ("maximum context length", "context window of this model", "exceeds the available context size")


def with_overflow(error: ProviderError) -> ProviderError:
    """Tell a conversation that is too long from other bad requests.

    This reads the message, which nothing else does, for the services that give no code: vLLM and OpenRouter (`maximum
    context length is 8192 tokens`), and older versions of llama.cpp.
    """
    text = str(error).lower()
    if error.kind == "bad_request" and any(words in text for words in _OVERFLOW):
        error.kind = "context_overflow"
    return error


# -- the user's own fields ---------------------------------------------------------------------------------------------


def with_extra(head: JsonObject, extra: JsonObject, *, reserved: frozenset[str]) -> JsonObject:
    """Add the user's own fields; of one that is an object on both sides, the members are put together.

    Raises:
        ProviderError: a field of `reserved` is among them (`bad_request`).
    """
    if taken := reserved & extra.keys():
        raise refused_here(f"Settings.extra has {sorted(taken)}. These come from the agent's prompts and history.")
    for key, value in extra.items():
        before = head.get(key)
        head[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return head
