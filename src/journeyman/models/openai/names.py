"""Models of OpenAI-style services by name: which adapter, which endpoint, and what the environment tells.

One function for each prefix that `connect` knows. What a service can do is said by its endpoint, which may be replaced:
`connect("vllm:qwen3", endpoint=replace(VLLM, tools=False))`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict, TypeVar
from urllib.parse import urlsplit, urlunsplit

from typing_extensions import Unpack

from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import AZURE, LLAMA_CPP, LM_STUDIO, OLLAMA, OPENAI, OPENROUTER, VLLM, Endpoint
from journeyman.models.openai.responses import OpenAIModel
from journeyman.models.prices import price_for
from journeyman.models.requests import environment, missing
from journeyman.models.transport import Network, Timeouts
from journeyman.types import Price

_Model = TypeVar("_Model", OpenAIChatModel, OpenAIModel)


class OpenAIOptions(TypedDict, total=False):
    """The options of `connect` for services with an OpenAI-style API, besides the model's name."""

    endpoint: Endpoint
    """Used instead of the preset of the prefix."""
    api_key: str | None
    base_url: str | None
    streaming: bool
    headers: Mapping[str, str]
    timeouts: Timeouts
    network: Network
    price: Price | None


def responses(name: str, **options: Unpack[OpenAIOptions]) -> OpenAIModel:
    """Return a model of OpenAI over the Responses API; its key is in OPENAI_API_KEY.

    Raises:
        ModelUnavailable: there is no key.
    """
    return make_model(OpenAIModel, f"openai:{name}", OPENAI, options)


def chat(name: str, **options: Unpack[OpenAIOptions]) -> OpenAIChatModel:
    """Return a model of OpenAI, or of what OPENAI_BASE_URL names, over Chat Completions; its key is in OPENAI_API_KEY.

    Raises:
        ModelUnavailable: there is no key.
    """
    return make_model(OpenAIChatModel, f"openai-chat:{name}", OPENAI, options)


def azure(name: str, **options: Unpack[OpenAIOptions]) -> OpenAIChatModel:
    """Return a deployment on Azure over Chat Completions, at AZURE_OPENAI_ENDPOINT, with AZURE_OPENAI_API_KEY.

    A bearer token in AZURE_OPENAI_AD_TOKEN serves instead of the key. OPENAI_API_VERSION, or the endpoint's `query`,
    names a version of the older API by its date.

    Raises:
        ModelUnavailable: there is no key, or no address.
    """
    return make_model(OpenAIChatModel, f"azure:{name}", AZURE, _on_azure(options))


def azure_responses(name: str, **options: Unpack[OpenAIOptions]) -> OpenAIModel:
    """Return a deployment on Azure over the Responses API; see `azure`.

    Raises:
        ModelUnavailable: there is no key, or no address.
    """
    return make_model(OpenAIModel, f"azure-responses:{name}", AZURE, _on_azure(options))


def openrouter(name: str, **options: Unpack[OpenAIOptions]) -> OpenAIChatModel:
    """Return a model of OpenRouter; its key is in OPENROUTER_API_KEY.

    Raises:
        ModelUnavailable: there is no key.
    """
    return make_model(OpenAIChatModel, f"openrouter:{name}", OPENROUTER, options)


def ollama(name: str, **options: Unpack[OpenAIOptions]) -> OpenAIChatModel:
    """Return a model of an Ollama server: the local one, or that of OLLAMA_BASE_URL."""
    return make_model(OpenAIChatModel, f"ollama:{name}", OLLAMA, options)


def vllm(name: str, **options: Unpack[OpenAIOptions]) -> OpenAIChatModel:
    """Return a model of a vLLM server: the local one, or that of VLLM_BASE_URL."""
    return make_model(OpenAIChatModel, f"vllm:{name}", VLLM, options)


def llama_cpp(name: str, **options: Unpack[OpenAIOptions]) -> OpenAIChatModel:
    """Return a model of a llama.cpp server: the local one, or that of LLAMA_CPP_BASE_URL."""
    return make_model(OpenAIChatModel, f"llama-cpp:{name}", LLAMA_CPP, options)


def lm_studio(name: str, **options: Unpack[OpenAIOptions]) -> OpenAIChatModel:
    """Return a model of LM Studio: the local one, or that of LM_STUDIO_BASE_URL."""
    return make_model(OpenAIChatModel, f"lm-studio:{name}", LM_STUDIO, options)


# -- from options and environment --------------------------------------------------------------------------------------


def make_model(kind: type[_Model], full_name: str, preset: Endpoint, options: OpenAIOptions) -> _Model:
    """Return the model that is called `full_name`, at the service of `preset` or of the endpoint in `options`.

    Without a `price`, it is the list price at the preset's own address; at any other, where others may bill, none.

    Raises:
        ModelUnavailable: there is no key, or no address.
        TypeError: there are no such options.
    """
    if unknown := options.keys() - OpenAIOptions.__annotations__.keys():
        raise TypeError(
            f"{full_name} has no options {sorted(unknown)}. It has: {sorted(OpenAIOptions.__annotations__)}."
            " What the service can do is said by endpoint=dataclasses.replace(…), with a preset of"
            " journeyman.models.openai."
        )
    endpoint, name = options.get("endpoint", preset), full_name.partition(":")[2]
    base_url = _base_url(endpoint, full_name, given=options.get("base_url"))
    price = options.get("price")
    if price is None and base_url.rstrip("/") == preset.base_url:
        price = price_for(preset.provider, name)
    return kind(
        name,
        endpoint=endpoint,
        api_key=_key(endpoint, full_name, given=options.get("api_key")),
        base_url=base_url,
        streaming=options.get("streaming", True),
        headers=_headers(endpoint) | {**options.get("headers", {})},
        timeouts=options.get("timeouts") or Timeouts(),
        network=options.get("network") or Network(),
        price=price,
    )


def _base_url(endpoint: Endpoint, model: str, *, given: str | None) -> str:
    address = given or environment(endpoint.base_url_variable) or endpoint.base_url
    if address is None:
        hint = f"Set the environment variable {endpoint.base_url_variable}, or give base_url."
        raise missing("address", model=model, hint=hint, variables=[endpoint.base_url_variable])
    # An address without a path gets that of the endpoint's own: everybody forgets the `/v1`.
    try:
        parts = urlsplit(address.strip())
    except ValueError:  # the model says what is wrong with it
        return address
    if parts.path not in ("", "/"):
        return address
    return urlunsplit(parts._replace(path=urlsplit(endpoint.base_url or "").path))


def _key(endpoint: Endpoint, model: str, *, given: str | None) -> str | None:
    key = given if given is not None else environment(endpoint.key_variable)
    if key is None and endpoint.needs_key:
        hint = f"Set the environment variable {endpoint.key_variable}, or give api_key."
        raise missing("key", model=model, hint=hint, variables=[endpoint.key_variable])
    return key


def _headers(endpoint: Endpoint) -> dict[str, str]:
    """Return the headers that the environment asks for: to whose account OpenAI books the requests."""
    if endpoint.provider != OPENAI.provider:
        return {}
    asked = {"openai-organization": environment("OPENAI_ORG_ID"), "openai-project": environment("OPENAI_PROJECT_ID")}
    return {name: value for name, value in asked.items() if value is not None}


def _on_azure(options: OpenAIOptions) -> OpenAIOptions:
    """Return the options with Azure's endpoint: with the paths of the older API if a date names a version of that."""
    endpoint = options.get("endpoint", AZURE)
    has_key = options.get("api_key") is not None or environment(endpoint.key_variable) is not None
    if not has_key and endpoint.key_variable == AZURE.key_variable and environment("AZURE_OPENAI_AD_TOKEN"):
        endpoint = replace(endpoint, key_variable="AZURE_OPENAI_AD_TOKEN", key_header="authorization")
    version = endpoint.query.get("api-version") or environment("OPENAI_API_VERSION")
    if version is None:
        return {**options, "endpoint": endpoint}
    endpoint = replace(endpoint, query={**endpoint.query, "api-version": version})
    if version[0].isdigit() and endpoint.chat_path == AZURE.chat_path:
        endpoint = replace(
            endpoint, chat_path="/openai/deployments/{model}/chat/completions", responses_path="/openai/responses"
        )
    return {**options, "endpoint": endpoint}
