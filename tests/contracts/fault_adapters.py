"""The adapters that every fault is tried on: how a model is made, and how its provider writes.

A new adapter is one more entry of `ADAPTERS`, and one more `Wire` for each form of answer that it reads.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

import anthropic

from journeyman.model import Model
from journeyman.models.anthropic.client import AnthropicClientModel
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.bridge import model as bridge
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.responses import OpenAIModel
from journeyman.models.transport import Timeouts
from tests.contracts.fault_wires import (
    ANTHROPIC_DOCUMENT,
    ANTHROPIC_EVENTS,
    BRIDGED_CHAT_EVENTS,
    CHAT_DOCUMENT,
    CHAT_EVENTS,
    ECHO,
    RESPONSES_DOCUMENT,
    RESPONSES_EVENTS,
    Wire,
)
from tests.contracts.faults import Fault, unknown

import_module("pydantic_ai.models.openai")  # takes long: here, and not within some test's time


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One adapter, with one form of answers."""

    name: str
    wire: Wire
    model: Callable[[str], AbstractAsyncContextManager[Model]]
    """Makes the model for the address of a service."""
    differently: Callable[[Fault], Fault | None] = lambda fault: fault
    """Returns how this adapter tells a fault; None if it is none for it."""

    def meets(self, fault: Fault) -> Fault | None:
        """Return the fault as this adapter must tell it; None if it cannot meet it."""
        if not (self.wire.is_stream or fault.is_within):
            return None  # without an answer its form does not matter, and another row has it
        return self.differently(fault)


def _anthropic(url: str) -> AbstractAsyncContextManager[Model]:
    return nullcontext(AnthropicModel("claude-sonnet-5-5", api_key=ECHO, base_url=url))


@cache
def _authorities() -> ssl.SSLContext:
    """Return what every client makes for itself, which takes long."""
    return ssl.create_default_context()


@asynccontextmanager
async def _anthropic_client(url: str) -> AsyncGenerator[Model]:
    http = anthropic.DefaultAsyncHttpxClient(verify=_authorities())
    async with anthropic.AsyncAnthropic(api_key=ECHO, base_url=url, http_client=http) as client:
        yield AnthropicClientModel("claude-sonnet-5-5", client=client, timeouts=Timeouts())


def _bridge(url: str) -> AbstractAsyncContextManager[Model]:
    return nullcontext(bridge.from_name("openai-chat:gpt-4.1", api_key=ECHO, base_url=f"{url}/v1", timeouts=Timeouts()))


def _openai_chat(url: str) -> AbstractAsyncContextManager[Model]:
    return nullcontext(OpenAIChatModel("gpt-4.1", api_key=ECHO, base_url=f"{url}/v1"))


def _openai(url: str) -> AbstractAsyncContextManager[Model]:
    return nullcontext(OpenAIModel("gpt-4.1", api_key=ECHO, base_url=f"{url}/v1"))


def _by_a_client(fault: Fault) -> Fault | None:
    """The SDK's HTTP client has one class for a service that hangs up and for one that does not speak HTTP, loses the
    status of a refusal whose body breaks off, and reads any amount of data."""
    match fault.name:
        case "another protocol" | "an enormous header":
            return replace(fault, kind="network")
        case "500 with a body that breaks off":
            return replace(fault, kind="network", status=None, used=unknown)
        case "an enormous line":
            return None
        case _:
            return fault


def _over_the_bridge(fault: Fault) -> Fault | None:
    """pydantic-ai tells no status but that of a refusal, has one class for all that it cannot read, and waits for no
    time less than none."""
    match fault.name:
        case "an empty body":
            return replace(fault, kind="unknown", status=None)
        case "an overload reported within":
            return replace(fault, status=500)
        case "307 with a redirect":
            return replace(fault, status=None, used=unknown)
        case "429 with a negative wait":
            return replace(fault, wait_s=None)
        case "the wrong content type" | "no content type":
            return None
        case _:
            told = _by_a_client(fault)
            return replace(told, status=None) if told is not None and told.is_within else told


ADAPTERS = (
    Adapter(name="anthropic", wire=ANTHROPIC_EVENTS, model=_anthropic),
    Adapter(name="anthropic-document", wire=ANTHROPIC_DOCUMENT, model=_anthropic),
    Adapter(name="anthropic-client", wire=ANTHROPIC_EVENTS, model=_anthropic_client, differently=_by_a_client),
    Adapter(
        name="anthropic-client-document", wire=ANTHROPIC_DOCUMENT, model=_anthropic_client, differently=_by_a_client
    ),
    Adapter(name="openai-chat", wire=CHAT_EVENTS, model=_openai_chat),
    Adapter(name="openai-chat-document", wire=CHAT_DOCUMENT, model=_openai_chat),
    Adapter(name="bridge", wire=BRIDGED_CHAT_EVENTS, model=_bridge, differently=_over_the_bridge),
    Adapter(name="openai-responses", wire=RESPONSES_EVENTS, model=_openai),
    Adapter(name="openai-responses-document", wire=RESPONSES_DOCUMENT, model=_openai),
)
