"""The adapters that every conversation is tried on: each carries the same scripted answers, over its provider's wire.

A new adapter is one more entry of `CARRIERS`. An answer is what `ScriptedModel` takes; here it becomes what the strict
server of the adapter's provider says. The servers refuse what the provider would refuse, and fail the test when they
did.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import orjson

from journeyman import Agent, Event, Limits, Result, run
from journeyman.model import Model, Response
from journeyman.models.openai.endpoint import OPENROUTER, VLLM
from journeyman.testing.scripted import ScriptedModel
from journeyman.types import Block, Opaque, RedactedThinking, Text, Thinking, ToolUse, Usage
from tests.contracts import makers
from tests.contracts.makers import CLAUDE, GPT, Maker
from tests.support import gemini_answers as gemini
from tests.support import openai_answers as openai
from tests.support.loopback import Recorded
from tests.support.messages_json import Json, as_object
from tests.support.servers import GeminiApi, MessagesApi, OpenAiApi, Service
from tests.support.stage_wire import reply_of

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


@dataclass(frozen=True, slots=True)
class Carrier:
    """One adapter, with one form of answers."""

    name: str
    play: Play
    lacks: Mapping[Feature, str] = field(default_factory=dict[Feature, str])
    """What cannot be said over the provider's wire, in this form, and why."""
    tells: Callable[[Usage], Usage] = lambda usage: usage
    """Returns how the provider tells a use."""


@asynccontextmanager
async def _scripted(answers: Sequence[Response]) -> AsyncGenerator[Played]:
    yield Played(ScriptedModel(answers))


def _messages(maker: Maker, *, streaming: bool = True) -> Play:
    """Play the answers by the strict server of the Messages API."""

    @asynccontextmanager
    async def play(answers: Sequence[Response]) -> AsyncGenerator[Played]:
        replies = [reply_of(answer, turn=0) for answer in answers]
        async with MessagesApi(replies, streaming=streaming) as api, maker(api.url) as model:
            yield Played(model, api.requests)

    return play


def _openai(maker: Maker, service: Service = ANY_SERVICE, **more: Any) -> Play:
    """Play the answers by the strict server of OpenAI's APIs."""

    @asynccontextmanager
    async def play(answers: Sequence[Response]) -> AsyncGenerator[Played]:
        replies = [openai_answer(answer) for answer in answers]
        async with OpenAiApi(replies, service=service) as api, maker(api.url, **more) as model:
            yield Played(model, api.requests)

    return play


def _gemini(maker: Maker, *, ids: bool = True, **more: Any) -> Play:
    """Play the answers by the strict server of Gemini's API; without `ids`, calls have none, unless some repeat."""

    @asynccontextmanager
    async def play(answers: Sequence[Response]) -> AsyncGenerator[Played]:
        given = [block.id for answer in answers for block in answer.content if isinstance(block, ToolUse)]
        has_ids = ids or len({*given}) < len(given)
        replies = [gemini_answer(answer, ids=has_ids) for answer in answers]
        async with GeminiApi(replies) as api, maker(api.url, **more) as model:
            yield Played(model, api.requests)

    return play


def gemini_answer(response: Response, *, ids: bool = True, signs: bool = True) -> gemini.Answer:
    """Return an answer of a script as the Gemini server gives it."""
    parts: list[Json] = []
    signature: str | None = None
    for block in response.content:
        if isinstance(block, Thinking):
            parts += [gemini.thought(block.text)] if block.text else []
            signature = block.signature
        elif isinstance(block, RedactedThinking):
            raise TypeError("Gemini's API has nothing like redacted thinking.")
        else:
            part = _gemini_part(block, ids=ids)
            parts.append(gemini.signed(part, signature) if signature and isinstance(block, ToolUse) else part)
            signature = None
    endings = {"refusal": "SAFETY", "max_tokens": "MAX_TOKENS"}
    usage = response.usage
    reasoned = usage.reasoning_tokens or 0
    counted = gemini.Counted(
        prompt=told_by_gemini(usage).input_tokens + (usage.cache_read_tokens or 0),
        candidates=usage.output_tokens - reasoned,
        cached=usage.cache_read_tokens or 0,
        thoughts=reasoned,
    )
    ending = endings.get(response.stop_reason, "STOP")
    return gemini.answer(*parts, ending=ending, usage=counted, model=response.model or None, signs=signs)


def _gemini_part(block: Block, *, ids: bool) -> Json:
    match block:
        case Text(text):
            return gemini.text(text)
        case ToolUse():
            return gemini.call(block.name, orjson.loads(block.input_json), id=block.id if ids and block.id else None)
        case Opaque():
            return {key: value for key, value in as_object(orjson.loads(block.json)).items() if key != "type"}
        case _:
            raise TypeError(f"Gemini does not say {block!r}.")


def told_by_gemini(usage: Usage) -> Usage:
    """Return a use as Gemini tells it: what is 0 is left out, and what a cache took in is plain input."""
    return replace(
        usage,
        input_tokens=usage.input_tokens + (usage.cache_write_tokens or 0),
        cache_read_tokens=usage.cache_read_tokens or 0,
        cache_write_tokens=None,
        reasoning_tokens=usage.reasoning_tokens or 0,
    )


def openai_answer(response: Response) -> openai.Answer:
    """Return an answer of a script as the OpenAI server gives it."""
    refuses = response.stop_reason == "refusal"
    ending: openai.Ending | None = "length" if response.stop_reason == "max_tokens" else None
    if refuses and not response.content:
        ending = "content_filter"
    blocks = [_openai_block(block, refuses=refuses) for block in response.content]
    usage = response.usage
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    counted = openai.Counted(
        input=usage.input_tokens + (read or 0) + (written or 0),
        output=usage.output_tokens,
        cached=read,
        reasoning=usage.reasoning_tokens,
        written=written,
    )
    return openai.answer(*blocks, ending=ending, usage=counted, model=response.model or None)


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
        case _:
            raise TypeError(f"A model does not say {block!r}.")


_NO_THINKING: Final[Mapping[Feature, str]] = {
    "thinking": "OpenAI's own Chat Completions say nothing of the model's reasoning and take none back"
}
_NO_MALFORMED: Final[Mapping[Feature, str]] = {
    "malformed": "a document of the Messages API has arguments as a JSON object, which cannot be malformed"
}
_NO_TEXT_AS_ARGUMENTS: Final[Mapping[Feature, str]] = {
    "malformed": "Gemini gives arguments as a JSON object, which cannot be malformed"
}
_NO_ZERO: Final[Mapping[Feature, str]] = {
    "no reasoning": "pydantic-ai passes on how many tokens Anthropic's models have reasoned with, but not that it was 0"
}

SCRIPTED: Final = Carrier("scripted", _scripted)
"""What the others are compared with."""


def _both(name: str, play: Callable[..., Play], **lacks: Mapping[Feature, str]) -> Iterator[Carrier]:
    """Yield the two forms of one adapter: answers in events, and in one document."""
    yield Carrier(f"{name}-events", play(streaming=True), lacks.get("events", {}))
    yield Carrier(f"{name}-document", play(streaming=False), lacks.get("document", {}))


_chat: Final = partial(_openai, makers.chat)
_routed: Final = partial(_chat, service=OPENROUTER_SERVICE, endpoint=OPENROUTER, name=ROUTED_CLAUDE)

CARRIERS: Final = (
    *_both("anthropic", partial(_messages, makers.anthropic), document=_NO_MALFORMED),
    *_both("anthropic-client", partial(_messages, makers.client), document=_NO_MALFORMED),
    *_both("openai-chat", partial(_chat, name=GPT), events=_NO_THINKING, document=_NO_THINKING),
    *_both("vllm", partial(_chat, service=VLLM_SERVICE, endpoint=VLLM, name=GPT)),
    *_both("openrouter", _routed),
    *_both("openai-responses", partial(_openai, makers.responses)),
    Carrier("google-events", _gemini(makers.google), _NO_TEXT_AS_ARGUMENTS, told_by_gemini),
    Carrier("google-document", _gemini(makers.google, streaming=False), _NO_TEXT_AS_ARGUMENTS, told_by_gemini),
    Carrier("google-without-ids", _gemini(makers.google, ids=False), _NO_TEXT_AS_ARGUMENTS, told_by_gemini),
    Carrier("vertex-google", _gemini(makers.vertex), _NO_TEXT_AS_ARGUMENTS, told_by_gemini),
    Carrier("gemini-2.5", _gemini(makers.google, name="gemini-2.5-flash"), _NO_TEXT_AS_ARGUMENTS, told_by_gemini),
    Carrier("bridge-anthropic", _messages(partial(makers.bridged, name=f"anthropic:{CLAUDE}")), _NO_ZERO),
    Carrier("bridge-openai-chat", _openai(makers.bridged, name=f"openai-chat:{GPT}"), _NO_THINKING),
    Carrier("bridge-openai-responses", _openai(makers.bridged, name=f"openai-responses:{GPT}")),
)
CARRIER: Final = {carrier.name: carrier for carrier in CARRIERS}


async def run_over(name: str, *answers: Response, **fields: Any) -> tuple[Result[Any], list[Event], list[Any]]:
    """Return the result of a run whose model gives these answers over a wire, its events, and the requests."""
    events: list[Event] = []
    async with CARRIER[name].play(answers) as played:
        given: dict[str, Any] = {"limits": Limits(request_retries=0), **fields}
        agent: Agent[Any] = Agent(name="analyst", model=played.model, **given)
        result = await run(agent, "What sold best?", on_event=events.append)
    return result, events, list(played.bodies)
