"""The adapters that every conversation is tried on: each carries the same scripted answers, over its provider's wire.

A new adapter is one more entry of `CARRIERS`. An answer is what `Scripted` takes; here it becomes what the strict
server of the adapter's provider says. The servers refuse what the provider would refuse, and fail the test when they
did.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, assert_never

import orjson
from anthropic import AsyncAnthropic

from journeyman.model import Model, Response
from journeyman.models.anthropic.client import AnthropicClientModel
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.bridge import model as bridge
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import OPENAI, OPENROUTER, VLLM, Endpoint
from journeyman.models.openai.responses import OpenAIModel
from journeyman.models.scripted import Scripted
from journeyman.types import (
    Block,
    Document,
    Image,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
)
from tests.support import openai_answers as openai
from tests.support.loopback import Recorded
from tests.support.messages_api import MessagesApi
from tests.support.messages_json import Json, as_object
from tests.support.openai_api import OpenAiApi, Service
from tests.support.stage_wire import reply_of

KEY: Final = "key-of-a-test"
CLAUDE: Final = "claude-sonnet-5-5"
GPT: Final = "gpt-5.2"
ROUTED_CLAUDE: Final = "anthropic/claude-sonnet-5.5"
ANY_SERVICE: Final = Service()
VLLM_SERVICE: Final = Service(reasoning_field="reasoning", longest_id=None)
OPENROUTER_SERVICE: Final = Service(
    reasoning_field="reasoning", longest_id=None, extensions=frozenset({"reasoning", "usage"}), takes_marks=True
)

Feature: TypeAlias = Literal["thinking", "malformed", "no reasoning"]


@dataclass(frozen=True, slots=True)
class Played:
    """A model with its script, and what it was asked."""

    model: Model
    requests: Sequence[Recorded] = ()
    """None in process."""

    @property
    def bodies(self) -> list[Json]:
        return [request.body for request in self.requests]


Play: TypeAlias = Callable[[Sequence[Response]], AbstractAsyncContextManager[Played]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """One adapter, with one form of answers."""

    name: str
    play: Play
    lacks: Mapping[Feature, str] = field(default_factory=dict[Feature, str])
    """What cannot be said over the provider's wire, in this form, and why."""


# -- in process --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _scripted(answers: Sequence[Response]) -> AsyncGenerator[Played]:
    yield Played(Scripted(answers))


# -- Anthropic ---------------------------------------------------------------------------------------------------------


def _anthropic(*, streaming: bool) -> Play:
    @asynccontextmanager
    async def play(answers: Sequence[Response]) -> AsyncGenerator[Played]:
        async with MessagesApi([reply_of(answer, turn=0) for answer in answers], streaming=streaming) as api:
            yield Played(AnthropicModel(CLAUDE, api_key=KEY, base_url=api.url), api.requests)

    return play


def _anthropic_client(*, streaming: bool) -> Play:
    @asynccontextmanager
    async def play(answers: Sequence[Response]) -> AsyncGenerator[Played]:
        async with (
            MessagesApi([reply_of(answer, turn=0) for answer in answers], streaming=streaming) as api,
            AsyncAnthropic(base_url=api.url, api_key=KEY) as client,
        ):
            yield Played(AnthropicClientModel(CLAUDE, client=client), api.requests)

    return play


# -- OpenAI ------------------------------------------------------------------------------------------------------------


def _chat(endpoint: Endpoint, *, streaming: bool, service: Service = ANY_SERVICE, name: str = GPT) -> Play:
    @asynccontextmanager
    async def play(answers: Sequence[Response]) -> AsyncGenerator[Played]:
        async with OpenAiApi([openai_answer(answer) for answer in answers], service=service) as api:
            url = f"{api.url}/v1"
            model = OpenAIChatModel(name, endpoint=endpoint, api_key=KEY, base_url=url, streaming=streaming)
            yield Played(model, api.requests)

    return play


def _responses(*, streaming: bool) -> Play:
    @asynccontextmanager
    async def play(answers: Sequence[Response]) -> AsyncGenerator[Played]:
        async with OpenAiApi([openai_answer(answer) for answer in answers]) as api:
            model = OpenAIModel(GPT, api_key=KEY, base_url=f"{api.url}/v1", streaming=streaming)
            yield Played(model, api.requests)

    return play


# -- the bridge --------------------------------------------------------------------------------------------------------


def _bridged_anthropic() -> Play:
    @asynccontextmanager
    async def play(answers: Sequence[Response]) -> AsyncGenerator[Played]:
        async with MessagesApi([reply_of(answer, turn=0) for answer in answers]) as api:
            model = bridge.from_name(f"anthropic:{CLAUDE}", api_key=KEY, base_url=api.url)
            yield Played(model, api.requests)

    return play


def _bridged_openai(provider: str) -> Play:
    @asynccontextmanager
    async def play(answers: Sequence[Response]) -> AsyncGenerator[Played]:
        async with OpenAiApi([openai_answer(answer) for answer in answers]) as api:
            model = bridge.from_name(f"{provider}:{GPT}", api_key=KEY, base_url=f"{api.url}/v1")
            yield Played(model, api.requests)

    return play


# -- answers in OpenAI's words -----------------------------------------------------------------------------------------


def openai_answer(response: Response) -> openai.Answer:
    """Return an answer of a script as the OpenAI server gives it."""
    refuses = response.stop_reason == "refusal"
    ending: openai.Ending | None = None
    if response.stop_reason == "max_tokens":
        ending = "length"
    elif refuses and not response.content:
        ending = "content_filter"
    blocks = [_openai_block(block, refuses=refuses) for block in response.content]
    return openai.answer(*blocks, ending=ending, usage=_counted(response.usage), model=response.model or None)


def _openai_block(block: Block, *, refuses: bool) -> Json:
    match block:
        case Text(text):
            return openai.refusal(text) if refuses else openai.text(text)
        case Thinking():
            return openai.reasoning(block.text, encrypted=block.signature)
        case RedactedThinking():
            return openai.reasoning("", encrypted=block.data)
        case ToolUse():
            written = block.input_json if block.malformed is None else block.malformed
            return openai.call(block.name, written, id=block.id)
        case Opaque():
            return openai.item(**as_object(orjson.loads(block.json)))
        case Image() | Document() | ToolResult():
            raise TypeError(f"A model does not say {block!r}.")
        case _:
            assert_never(block)


def _counted(usage: Usage) -> openai.Counted:
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    return openai.Counted(
        input=usage.input_tokens + (read or 0) + (written or 0),
        output=usage.output_tokens,
        cached=read,
        reasoning=usage.reasoning_tokens,
        written=written,
    )


# -- all of them -------------------------------------------------------------------------------------------------------

_NO_THINKING: Final[Mapping[Feature, str]] = {
    "thinking": "OpenAI's own Chat Completions say nothing of the model's reasoning and take none back"
}
_NO_MALFORMED: Final[Mapping[Feature, str]] = {
    "malformed": "a document of the Messages API has arguments as a JSON object, which cannot be malformed"
}

_NO_ZERO: Final[Mapping[Feature, str]] = {
    "no reasoning": "pydantic-ai passes on how many tokens Anthropic's models have reasoned with, but not that it was 0"
}

SCRIPTED: Final = Carrier(name="scripted", play=_scripted)
"""What the others are compared with."""

CARRIERS: Final = (
    Carrier(name="anthropic-events", play=_anthropic(streaming=True)),
    Carrier(name="anthropic-document", play=_anthropic(streaming=False), lacks=_NO_MALFORMED),
    Carrier(name="anthropic-client-events", play=_anthropic_client(streaming=True)),
    Carrier(name="anthropic-client-document", play=_anthropic_client(streaming=False), lacks=_NO_MALFORMED),
    Carrier(name="openai-chat-events", play=_chat(OPENAI, streaming=True), lacks=_NO_THINKING),
    Carrier(name="openai-chat-document", play=_chat(OPENAI, streaming=False), lacks=_NO_THINKING),
    Carrier(name="vllm-events", play=_chat(VLLM, streaming=True, service=VLLM_SERVICE)),
    Carrier(name="vllm-document", play=_chat(VLLM, streaming=False, service=VLLM_SERVICE)),
    Carrier(
        name="openrouter-events", play=_chat(OPENROUTER, streaming=True, service=OPENROUTER_SERVICE, name=ROUTED_CLAUDE)
    ),
    Carrier(
        name="openrouter-document",
        play=_chat(OPENROUTER, streaming=False, service=OPENROUTER_SERVICE, name=ROUTED_CLAUDE),
    ),
    Carrier(name="openai-responses-events", play=_responses(streaming=True)),
    Carrier(name="openai-responses-document", play=_responses(streaming=False)),
    Carrier(name="bridge-anthropic", play=_bridged_anthropic(), lacks=_NO_ZERO),
    Carrier(name="bridge-openai-chat", play=_bridged_openai("openai-chat"), lacks=_NO_THINKING),
    Carrier(name="bridge-openai-responses", play=_bridged_openai("openai-responses")),
)
