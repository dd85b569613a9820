"""The APIs that aimock serves and this package speaks, each with a model that plays against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from journeyman import Settings
from journeyman.model import Model
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.responses import OpenAIModel
from journeyman.models.transport import Timeouts
from tests.aimock.server import Play

KEY = "sk-aimock-any-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API, asked in one way."""

    name: str
    model: Callable[[Play, Timeouts], Model]
    settings: Settings = field(default_factory=Settings)


def _anthropic(play: Play, timeouts: Timeouts) -> Model:
    return AnthropicModel("claude-sonnet-5-5", api_key=KEY, base_url=play.url, headers=play.headers, timeouts=timeouts)


def _openai(kind: type[OpenAIChatModel] | type[OpenAIModel], *, streaming: bool) -> Callable[[Play, Timeouts], Model]:
    return lambda play, timeouts: kind(
        "gpt-4.1", api_key=KEY, base_url=f"{play.url}/v1", headers=play.headers, timeouts=timeouts, streaming=streaming
    )


STREAMED = (
    Api(name="anthropic", model=_anthropic),
    Api(name="openai-chat", model=_openai(OpenAIChatModel, streaming=True)),
    Api(name="openai-responses", model=_openai(OpenAIModel, streaming=True)),
)
IN_ONE_PIECE = (
    Api(name="anthropic-whole", model=_anthropic, settings=Settings(extra={"stream": False})),
    Api(name="openai-chat-whole", model=_openai(OpenAIChatModel, streaming=False)),
    Api(name="openai-responses-whole", model=_openai(OpenAIModel, streaming=False)),
)
