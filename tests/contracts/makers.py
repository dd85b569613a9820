"""How the model of each adapter is made for the address of a service: what the tables of this folder share."""

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import cache
from typing import Any, Final, TypeAlias

from journeyman.model import Model
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.google.model import GoogleModel
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import AZURE
from journeyman.models.openai.responses import OpenAIModel

KEY: Final = "sk-very-secret-0123456789"
"""The key of every model. All that a provider says in a fault says it back."""
CLAUDE: Final = "claude-sonnet-5-5"
GEMINI: Final = "gemini-3-flash-preview"
GPT: Final = "gpt-5.2"
PLAIN_GPT: Final = "gpt-4.1"
"""One that is not known to reason."""

Made: TypeAlias = AbstractAsyncContextManager[Model]
Maker: TypeAlias = Callable[..., Made]
"""Makes the model for the address of a service, and for the model's name; it takes the options of its class."""


def _reached(base_url: str, more: dict[str, Any]) -> dict[str, Any]:
    return {"api_key": KEY, "base_url": base_url, **more}


def anthropic(url: str, name: str = CLAUDE, **more: Any) -> Made:
    return nullcontext(AnthropicModel(name, **_reached(url, more)))


@cache
def _authorities() -> ssl.SSLContext:
    """Return what every client makes for itself, which takes long."""
    return ssl.create_default_context()


@asynccontextmanager
async def client(url: str, **more: Any) -> AsyncGenerator[Model]:
    import anthropic as sdk  # noqa: PLC0415 - the packages of others take seconds, and few tests need them

    from journeyman.models.anthropic.client import AnthropicClientModel  # noqa: PLC0415

    http = sdk.DefaultAsyncHttpxClient(verify=_authorities())
    async with sdk.AsyncAnthropic(api_key=KEY, base_url=url, http_client=http) as made:
        yield AnthropicClientModel(CLAUDE, client=made, **more)


def chat(url: str, name: str = PLAIN_GPT, **more: Any) -> Made:
    return nullcontext(OpenAIChatModel(name, **_reached(f"{url}/v1", more)))


def responses(url: str, name: str = GPT, **more: Any) -> Made:
    return nullcontext(OpenAIModel(name, **_reached(f"{url}/v1", more)))


def azure(url: str, **more: Any) -> Made:
    return responses(url, endpoint=AZURE, base_url=url, **more)


def google(url: str, name: str = GEMINI, **more: Any) -> Made:
    return nullcontext(GoogleModel(name, **_reached(f"{url}/v1beta", more)))


def vertex(url: str, name: str = GEMINI, **more: Any) -> Made:
    place = f"{url}/v1beta1/projects/a-project/locations/global/publishers/google"
    return nullcontext(GoogleModel(name, token=lambda: KEY, base_url=place, **more))


def bridged(url: str, name: str = f"openai-chat:{PLAIN_GPT}", **more: Any) -> Made:
    from journeyman.models.bridge import model as bridge  # noqa: PLC0415

    base_url = url if name.startswith("anthropic") else f"{url}/v1"
    return nullcontext(bridge.from_name(name, api_key=KEY, base_url=base_url, **more))
