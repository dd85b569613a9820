"""No exception of another package reaches the user: each that there is, raised where the package would raise it.

`tests/models/test_transport.py` does the same for aiohttp, below the adapters that speak HTTP by themselves.
"""

import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import anthropic
import httpcore2
import httpx2
import openai
import pytest
from pydantic_ai import exceptions as bridged
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from journeyman import Agent, Limits, Model, run
from journeyman.errors import ProviderError
from journeyman.models.anthropic.client import AnthropicClientModel
from journeyman.models.bridge.model import BridgeModel
from tests.contracts.fault_wires import ANTHROPIC_EVENTS, EVENTS
from tests.contracts.makers import KEY
from tests.contracts.test_faults import chain_of
from tests.play import failed, instance_of

URL = "http://127.0.0.1:9/v1/messages"


def classes_of(module: ModuleType) -> list[type[Exception]]:
    """Return every exception class that a package shows."""
    # Some clients show proxies, and load most of themselves when one is asked what it is.
    classes = {kind for kind in vars(module).values() if issubclass(type(kind), type)}
    found = {kind for kind in classes if issubclass(kind, Exception)}
    return sorted((kind for kind in found if kind.__module__.startswith(module.__name__.partition(".")[0])), key=str)


def made(kind: type[Exception]) -> Exception:
    """Return an exception as its package makes it; each class wants other arguments."""
    request = httpx2.Request("POST", URL, headers={"x-api-key": KEY})
    response = httpx2.Response(500, request=request, json={"error": {"message": KEY}})
    told = ToolReturnPart("a-tool", "said")
    options: dict[str, Any] = {"message": "said", "request": request, "response": response}
    options |= {"body": {"error": {"message": KEY}}, "status_code": 500, "model_name": "a-model", "tool_name": "a-tool"}
    options |= {"name": "a-name", "timeout": 1.0, "unsent_messages": [], "completion": SimpleNamespace(usage=None)}
    options |= {"tool_retry": told, "tool_failed": told}
    if kind is bridged.FallbackExceptionGroup:
        return bridged.FallbackExceptionGroup("said", [ValueError("said")])
    for n_words in range(4):
        for n_options in range(4):
            for names in itertools.combinations(options, n_options):
                try:
                    exception = kind(*["said"] * n_words, **{name: options[name] for name in names})
                    str(exception)
                except (TypeError, AttributeError, KeyError, ValueError):
                    continue
                return exception
    raise AssertionError(f"no arguments fit {kind}")


@dataclass
class Raising(httpx2.AsyncBaseTransport, httpx2.AsyncByteStream):
    """A connection that raises: instead of an answer, or, as its stream, in the middle of one."""

    error: Exception
    within: bool

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if not self.within:
            raise self.error
        return httpx2.Response(200, headers={"content-type": EVENTS}, stream=self, request=request)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield ANTHROPIC_EVENTS.begun
        raise self.error


@asynccontextmanager
async def by_a_client(error: Exception, *, within: bool) -> AsyncGenerator[Model]:
    http = httpx2.AsyncClient(transport=Raising(error, within))
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url="http://127.0.0.1:9", http_client=http) as client:
        yield AnthropicClientModel("claude-sonnet-5-5", client=client)


@asynccontextmanager
async def over_the_bridge(error: Exception, *, within: bool) -> AsyncGenerator[Model]:
    async def answer(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
        if within:
            yield "Hello"
        raise error

    yield BridgeModel(FunctionModel(stream_function=answer))


Carrier = Callable[..., AbstractAsyncContextManager[Model]]


def cases() -> Iterator[tuple[Carrier, type[Exception]]]:
    for module in (httpx2, httpcore2, anthropic):
        yield from ((by_a_client, kind) for kind in classes_of(module))
    for module in (httpx2, openai, bridged):
        yield from ((over_the_bridge, kind) for kind in classes_of(module))


@pytest.mark.share(one_in=7)
@pytest.mark.parametrize("within", [False, True], ids=["instead of an answer", "in the middle of one"])
@pytest.mark.parametrize(
    ("carrier", "kind"),
    [pytest.param(carrier, kind, id=f"{carrier.__name__}-{kind.__qualname__}") for carrier, kind in cases()],
)
async def test_no_exception_of_a_carrier_leaves(carrier: Carrier, kind: type[Exception], within: bool) -> None:
    async with carrier(made(kind), within=within) as model:
        result = failed(await run(Agent(name="tester", model=model, limits=Limits(request_retries=0)), "Hello."))
    error = instance_of(ProviderError, result.error.cause)
    assert [type(one) for one in chain_of(error)] == [ProviderError]
    assert KEY not in f"{error} {error!r} {vars(error)}"


def test_the_packages_have_the_exceptions_that_are_known_to_leak() -> None:
    known = {httpx2.RemoteProtocolError, httpx2.ReadTimeout, anthropic.APIStatusError, openai.APIConnectionError}
    known |= {bridged.ModelHTTPError, httpcore2.ConnectError}
    assert known <= {kind for _, kind in cases()}
