"""Models of OpenAI-style services by name: which adapter, which endpoint, and what the environment tells.

One function for each prefix that `connect` knows. Every option of the adapter and every field of the endpoint may be
given: `connect("vllm:qwen3", base_url="http://gpu:8000/v1", tools=False)`. Imports the two adapters and
`openai_endpoint`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypedDict, cast
from urllib.parse import urlsplit

from typing_extensions import Unpack

from journeyman.errors import ModelUnavailable
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import (
    AZURE,
    LLAMA_CPP,
    LM_STUDIO,
    OLLAMA,
    OPENAI,
    OPENROUTER,
    VLLM,
    EffortField,
    Endpoint,
    KeyHeader,
)
from journeyman.models.openai.responses import OpenAIModel
from journeyman.models.prices import price_for
from journeyman.models.transport import Timeouts
from journeyman.types import Price


class EndpointOptions(TypedDict, total=False):
    """The fields of `Endpoint`, each to replace the preset's; what they mean is said there."""

    provider: str
    base_url: str | None
    base_url_variable: str | None
    key_variable: str | None
    needs_key: bool
    key_header: KeyHeader
    chat_path: str
    responses_path: str
    query: Mapping[str, str]
    tools: bool
    parallel_tool_calls: bool | None
    strict: bool
    images: bool
    image_urls: bool
    documents: bool
    document_urls: bool
    refusals: bool
    longest_id: int | None
    usage_in_stream: bool
    system_role: Literal["system", "developer"]
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"]
    store: bool | None
    cache_marks: tuple[str, ...]
    tells_cost: bool
    reasoning_field: str
    echoes_reasoning: bool
    reasoning_details: bool
    effort_field: EffortField | None
    efforts: tuple[str, ...] | None
    takes_budget: bool
    max_output_tokens: int | None
    context_window: int | None


class Options(EndpointOptions, total=False):
    """What may be given besides the model's name."""

    endpoint: Endpoint
    """Instead of the preset."""
    api_key: str | None
    streaming: bool
    headers: Mapping[str, str]
    timeouts: Timeouts
    price: Price | None


def responses(name: str, **options: Unpack[Options]) -> OpenAIModel:
    """Return a model of OpenAI over the Responses API; its key is in OPENAI_API_KEY.

    Raises:
        ModelUnavailable: there is no key.
    """
    return _responses(_reached(name, "openai", OPENAI, options), options)


def chat(name: str, **options: Unpack[Options]) -> OpenAIChatModel:
    """Return a model of OpenAI, or of what OPENAI_BASE_URL names, over Chat Completions; its key is in OPENAI_API_KEY.

    Raises:
        ModelUnavailable: there is no key.
    """
    return _chat(_reached(name, "openai-chat", OPENAI, options), options)


def azure(name: str, **options: Unpack[Options]) -> OpenAIChatModel:
    """Return a deployment on Azure over Chat Completions, at AZURE_OPENAI_ENDPOINT, with AZURE_OPENAI_API_KEY.

    A bearer token in AZURE_OPENAI_AD_TOKEN serves instead of the key. OPENAI_API_VERSION, or `query`, names a version
    of the older API by its date.

    Raises:
        ModelUnavailable: there is no key, or no address.
    """
    return _chat(_reached(name, "azure", _azure(options), options), options)


def azure_responses(name: str, **options: Unpack[Options]) -> OpenAIModel:
    """Return a deployment on Azure over the Responses API; see `azure`.

    Raises:
        ModelUnavailable: there is no key, or no address.
    """
    return _responses(_reached(name, "azure-responses", _azure(options), options), options)


def openrouter(name: str, **options: Unpack[Options]) -> OpenAIChatModel:
    """Return a model of OpenRouter; its key is in OPENROUTER_API_KEY.

    Raises:
        ModelUnavailable: there is no key.
    """
    return _chat(_reached(name, "openrouter", OPENROUTER, options), options)


def ollama(name: str, **options: Unpack[Options]) -> OpenAIChatModel:
    """Return a model of an Ollama server: the local one, or that of OLLAMA_BASE_URL."""
    return _chat(_reached(name, "ollama", OLLAMA, options), options)


def vllm(name: str, **options: Unpack[Options]) -> OpenAIChatModel:
    """Return a model of a vLLM server: the local one, or that of VLLM_BASE_URL."""
    return _chat(_reached(name, "vllm", VLLM, options), options)


def llama_cpp(name: str, **options: Unpack[Options]) -> OpenAIChatModel:
    """Return a model of a llama.cpp server: the local one, or that of LLAMA_CPP_BASE_URL."""
    return _chat(_reached(name, "llama-cpp", LLAMA_CPP, options), options)


def lm_studio(name: str, **options: Unpack[Options]) -> OpenAIChatModel:
    """Return a model of LM Studio: the local one, or that of LM_STUDIO_BASE_URL."""
    return _chat(_reached(name, "lm-studio", LM_STUDIO, options), options)


# -- from options and environment --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Reached:
    """A model of a service that can be reached."""

    name: str
    endpoint: Endpoint
    base_url: str
    api_key: str | None
    headers: Mapping[str, str]


def _chat(reached: _Reached, options: Options) -> OpenAIChatModel:
    return OpenAIChatModel(
        reached.name,
        endpoint=reached.endpoint,
        api_key=reached.api_key,
        base_url=reached.base_url,
        streaming=options.get("streaming", True),
        headers=reached.headers,
        timeouts=options.get("timeouts") or Timeouts(),
        price=_price(reached, options),
    )


def _responses(reached: _Reached, options: Options) -> OpenAIModel:
    return OpenAIModel(
        reached.name,
        endpoint=reached.endpoint,
        api_key=reached.api_key,
        base_url=reached.base_url,
        streaming=options.get("streaming", True),
        headers=reached.headers,
        timeouts=options.get("timeouts") or Timeouts(),
        price=_price(reached, options),
    )


def _price(reached: _Reached, options: Options) -> Price | None:
    """Return the price that was given, or the list price where OpenAI itself is asked: others bill as they like."""
    price = options.get("price")
    if price is None and reached.base_url.rstrip("/") == OPENAI.base_url:
        return price_for(OPENAI.provider, reached.name)
    return price


_FIELDS: Final = frozenset(each.name for each in fields(Endpoint))


def _reached(name: str, prefix: str, preset: Endpoint, options: Options) -> _Reached:
    given = cast("dict[str, Any]", options)
    unknown = given.keys() - _FIELDS - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"{prefix}:{name} has no options {sorted(unknown)}. It has: {sorted(Options.__annotations__)}.")
    replaced = {key: value for key, value in given.items() if key in _FIELDS}
    preset = options.get("endpoint", preset)
    endpoint = replace(preset, **replaced)
    model = f"{prefix}:{name}"
    return _Reached(
        name=name,
        endpoint=endpoint,
        base_url=_base_url(endpoint, preset, model, given=options.get("base_url")),
        api_key=_key(endpoint, model, given=options.get("api_key")),
        headers=_headers(endpoint) | {**options.get("headers", {})},
    )


def _base_url(endpoint: Endpoint, preset: Endpoint, model: str, *, given: str | None) -> str:
    address = given or _environment(endpoint.base_url_variable) or endpoint.base_url
    if address is None:
        raise ModelUnavailable(
            f"There is no address for the model {model!r}.",
            model=model,
            hint=f"Set the environment variable {endpoint.base_url_variable}, or give base_url.",
        )
    # An address without a path gets the preset's: everybody forgets the `/v1`.
    bare = urlsplit(address).path in ("", "/")
    return address.rstrip("/") + urlsplit(preset.base_url or "").path if bare else address


def _key(endpoint: Endpoint, model: str, *, given: str | None) -> str | None:
    key = given if given is not None else _environment(endpoint.key_variable)
    if key is None and endpoint.needs_key:
        raise ModelUnavailable(
            f"There is no key for the model {model!r}.",
            model=model,
            hint=f"Set the environment variable {endpoint.key_variable}, or give api_key.",
        )
    return key


def _headers(endpoint: Endpoint) -> dict[str, str]:
    """Return the headers that the environment asks for: to whose account OpenAI books the requests."""
    if endpoint.provider != OPENAI.provider:
        return {}
    asked = {
        "openai-organization": _environment("OPENAI_ORG_ID"),
        "openai-project": _environment("OPENAI_PROJECT_ID"),
    }
    return {name: value for name, value in asked.items() if value is not None}


def _azure(options: Options) -> Endpoint:
    """Return Azure's endpoint: with the paths of the older API if a version of that is asked for by its date."""
    endpoint = AZURE
    has_key = options.get("api_key") is not None or _environment(AZURE.key_variable) is not None
    if not has_key and _environment("AZURE_OPENAI_AD_TOKEN"):
        endpoint = replace(endpoint, key_variable="AZURE_OPENAI_AD_TOKEN", key_header="authorization")
    version = options.get("query", {}).get("api-version") or _environment("OPENAI_API_VERSION")
    if version is None:
        return endpoint
    endpoint = replace(endpoint, query={"api-version": version})
    if not version[0].isdigit():
        return endpoint
    return replace(
        endpoint,
        chat_path="/openai/deployments/{model}/chat/completions",
        responses_path="/openai/responses",
    )


def _environment(variable: str | None) -> str | None:
    return os.environ.get(variable, "").strip() or None if variable else None
