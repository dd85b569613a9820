"""The providers of pydantic-ai's that the tests of the bridge speak to, each before one of the strict servers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from journeyman.connect import connect
from journeyman.models.bridge.model import BridgeModel
from tests.models.raw_server import RawServer
from tests.play import instance_of
from tests.support import messages_answers as anthropic_says
from tests.support import openai_answers as openai_says
from tests.support.servers import MessagesApi, OpenAiApi

KEY = "sk-very-secret-key"


@dataclass(frozen=True)
class Service:
    """One provider of pydantic-ai's before one of the strict servers."""

    name: str
    server: Callable[..., Any]
    says: Any
    call: Callable[..., Any]
    thought: Any = None


ANTHROPIC = Service(
    "anthropic:claude-sonnet-5-5",
    partial(MessagesApi, bind_thinking=True),
    anthropic_says,
    anthropic_says.tool_use,
    anthropic_says.thinking("Hm."),
)
CHAT = Service("openai-chat:gpt-5", OpenAiApi, openai_says, openai_says.call)
RESPONSES = Service("openai-responses:gpt-5", OpenAiApi, openai_says, openai_says.call, openai_says.reasoning("Hm."))

each = pytest.mark.parametrize("service", [ANTHROPIC, CHAT, RESPONSES], ids=lambda service: service.name)


def over(api: MessagesApi | OpenAiApi | RawServer, name: str, **options: Any) -> BridgeModel:
    """Return the model of this name, with a loopback server in the place of its provider."""
    url = api.url if name.startswith("anthropic:") else f"{api.url}/v1"
    return instance_of(BridgeModel, connect(f"bridge:{name}", **{"api_key": KEY, "base_url": url, **options}))
