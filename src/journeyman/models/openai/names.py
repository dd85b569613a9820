"""Models of OpenAI-style services by name: which adapter, which endpoint, and what the environment tells.

One row for each prefix. What a service can do is said by its endpoint, which may be replaced:
`connect("vllm:qwen3", endpoint=replace(VLLM, tools=False))`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NoReturn, TypeAlias, TypedDict
from urllib.parse import urlsplit, urlunsplit

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
    OTHERS,
    PERPLEXITY,
    VLLM,
    Endpoint,
)
from journeyman.models.openai.responses import OpenAIModel
from journeyman.models.prices import price_for
from journeyman.models.requests import check_options, environment, missing
from journeyman.models.transport import Network, Timeouts
from journeyman.types import Price


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


_Adapter: TypeAlias = type[OpenAIChatModel] | type[OpenAIModel]

PREFIXES: Final[Mapping[str, tuple[_Adapter, Endpoint]]] = {
    **{preset.provider: (OpenAIChatModel, preset) for preset in (OPENROUTER, OLLAMA, VLLM, LLAMA_CPP, LM_STUDIO)},
    **{preset.provider: (OpenAIChatModel, preset) for preset in OTHERS},
    "azure": (OpenAIChatModel, AZURE),
    "azure-responses": (OpenAIModel, AZURE),
    "openai": (OpenAIModel, OPENAI),
    "openai-chat": (OpenAIChatModel, OPENAI),
    "perplexity": (OpenAIModel, PERPLEXITY),
}
"""By the prefix of a model's name: which API it is asked over, and which service it is."""


def make_model(prefix: str, name: str, **options: Unpack[OpenAIOptions]) -> OpenAIChatModel | OpenAIModel:
    """Return the model `name` at the service of the prefix, or at that of the endpoint in the options.

    Without a `price`, it is the list price at the service's own address; at any other, where others may bill, none.

    Raises:
        ModelUnavailable: there is no key, no address, or only a version of Azure's older API.
        TypeError: there are no such options.
    """
    full_name = f"{prefix}:{name}"
    hint = " What it can do is said by endpoint=dataclasses.replace(…), with a preset of journeyman.models.openai."
    own = check_options(full_name, options, OpenAIOptions, hint=hint)
    adapter, preset = PREFIXES[prefix]
    endpoint = options.get("endpoint", preset)
    if preset is AZURE:
        endpoint = _adapt_to_azure(endpoint, full_name, key=options.get("api_key"))
    base_url = _base_url(endpoint, full_name, given=options.get("base_url"))
    price = options.get("price")
    if price is None and base_url.rstrip("/") == preset.base_url:
        price = price_for(preset.provider, name)
    key = _key(endpoint, full_name, given=options.get("api_key"))
    headers = _headers(endpoint) | {**own.get("headers", {})}
    own |= {"endpoint": endpoint, "api_key": key, "base_url": base_url, "headers": headers, "price": price}
    return adapter(name, **own)


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


def _adapt_to_azure(endpoint: Endpoint, model: str, *, key: str | None) -> Endpoint:
    """Return Azure's endpoint, with a bearer token in place of the key if only that is there.

    Raises:
        ModelUnavailable: a version of the older API is asked for.
    """
    version = environment("OPENAI_API_VERSION")
    if version is not None and endpoint.chat_path == AZURE.chat_path:
        raise ModelUnavailable(
            f"OPENAI_API_VERSION is {version!r}, and Azure is asked over its v1 API, which has no versions by date.",
            model=model,
            hint="Unset it. A version of v1 stands in the address: 'https://NAME.openai.azure.com?api-version=preview'."
            " The older API has other paths: endpoint=replace(AZURE, chat_path=…, responses_path=…).",
        )
    has_key = key is not None or environment(endpoint.key_variable) is not None
    if not has_key and endpoint.key_variable == AZURE.key_variable and environment("AZURE_OPENAI_AD_TOKEN"):
        return replace(endpoint, key_variable="AZURE_OPENAI_AD_TOKEN", key_header="authorization")
    return endpoint


def refuse_github(name: str, **options: object) -> NoReturn:
    """Say that GitHub Models is no more.

    Raises:
        ModelUnavailable: always.
    """
    raise ModelUnavailable(
        "GitHub ended GitHub Models on 30 July 2026.",
        model=f"github:{name}",
        hint=f"Ask the provider of the model itself, such as 'openai:{name.rpartition('/')[2]}', or another service.",
    )
