"""Conversations that travel: each leg is another provider's, and all providers are strict servers.

A `Leg` says who answers and what; `travel` lets an agent go from leg to leg with its history. Ids, reasoning and blocks
are of each provider's own kind.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, TypeAlias

from hypothesis import strategies as st

from journeyman import Agent, run
from journeyman.model import Model, Response
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import VLLM
from journeyman.models.openai.responses import OpenAIModel
from journeyman.models.scripted import say
from journeyman.types import Block, Message, Opaque, RedactedThinking, Text, Thinking, ToolUse, UserContent
from tests.contracts.carriers import VLLM_SERVICE, openai_answer
from tests.contracts.conversations import PAPER, PIXEL, draw, fail, look
from tests.contracts.makers import CLAUDE, GPT, KEY
from tests.support.loopback import Recorded
from tests.support.messages_answers import Reply
from tests.support.messages_api import MessagesApi
from tests.support.messages_json import Json
from tests.support.openai_answers import Answer
from tests.support.openai_api import OpenAiApi
from tests.support.stage_wire import reply_of

Stop: TypeAlias = Literal["anthropic", "chat", "responses", "vllm"]

STOPS: Final[tuple[Stop, ...]] = ("anthropic", "chat", "responses", "vllm")

PROVIDER: Final[dict[Stop, str]] = {"anthropic": "anthropic", "chat": "openai", "responses": "openai", "vllm": "vllm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One prompt, and what the model at this stop answers until it is done."""

    stop: Stop
    prompt: str
    with_media: bool
    answers: tuple[Response, ...]


# -- routes of any kind ------------------------------------------------------------------------------------------------

_words = st.sampled_from(["Umbrellas.", "“Naïve” 🦜", " two\n\nparagraphs ", "<thinking>not a thought</thinking>", "{"])

_IDS: Final[dict[Stop, tuple[str, ...]]] = {
    "anthropic": ("toolu_{}", "toolu_{}_" + "x" * 40),
    "chat": ("call_{}", "call_{}_" + "x" * 40),
    "responses": ("call_{}", "call_{}_" + "x" * 40),
    # Servers of one's own are careless: ids with dots and colons, none at all, the same one in every answer.
    "vllm": ("functions.look:{}", "chatcmpl-tool-{}", "", "call_0"),
}

_ARGUMENTS: Final = (("look", '{"n":1}'), ("fail", '{"reason":"ümlaut"}'), ("draw", '{"title":"sales"}'))


@st.composite
def routes(draw_from: st.DrawFn) -> list[Leg]:
    """Return a route of two to five legs, whose ids and thoughts are all different, but for the careless server's."""
    numbers = count(1)
    return [_leg(draw_from, draw_from(st.sampled_from(STOPS)), numbers) for _ in range(draw_from(st.integers(2, 5)))]


def _leg(draw_from: st.DrawFn, stop: Stop, numbers: Iterator[int]) -> Leg:
    turns = [_turn(draw_from, stop, numbers) for _ in range(draw_from(st.integers(0, 2)))]
    last = say(*_own(draw_from, stop, next(numbers)), draw_from(_words))
    return Leg(stop=stop, prompt=draw_from(_words), with_media=draw_from(st.booleans()), answers=(*turns, last))


def _turn(draw_from: st.DrawFn, stop: Stop, numbers: Iterator[int]) -> Response:
    said = draw_from(st.lists(_words.map(Text), max_size=1))
    calls = [_call(draw_from, stop, next(numbers)) for _ in range(draw_from(st.integers(1, 3)))]
    return say(*_own(draw_from, stop, next(numbers)), *said, *calls)


def _call(draw_from: st.DrawFn, stop: Stop, number: int) -> ToolUse:
    id = draw_from(st.sampled_from(_IDS[stop])).format(number)
    if stop == "vllm":
        strange = [ToolUse(id, "delete.all", "{}"), ToolUse(id, "look", malformed='{"n": 1')]
        return draw_from(st.sampled_from([*strange, *(ToolUse(id, *each) for each in _ARGUMENTS)]))
    return ToolUse(id, *draw_from(st.sampled_from([*_ARGUMENTS, ("delete_all", "{}")])))


def _own(draw_from: st.DrawFn, stop: Stop, number: int) -> tuple[Block, ...]:
    """Return what only this provider understands, at the beginning of an answer."""
    thought = Thinking(f"Thought {number:05}, ümlaut.", f"c2VhbA{number:05}")
    sealed = RedactedThinking(f"c2VhbGVk{number:05}")
    kinds: list[tuple[Block, ...]] = [()]
    match stop:
        case "anthropic":
            asked = (
                f'{{"type":"server_tool_use","id":"srvtoolu_{number:05}","name":"web_search","input":{{"query":"x"}}}}'
            )
            found = f'{{"type":"web_search_tool_result","tool_use_id":"srvtoolu_{number:05}","content":[]}}'
            kinds += [(thought,), (thought, sealed), (Opaque("anthropic", asked), Opaque("anthropic", found))]
        case "responses":
            action = '{"type":"search","query":"x"}'
            search = f'{{"type":"web_search_call","id":"ws_{number:05}","status":"completed","action":{action}}}'
            kinds += [(thought,), (sealed,), (Opaque("openai", search),)]
        case "vllm":
            kinds += [(Thinking(f"Thought {number:05}, ümlaut."),)]
        case "chat":
            pass
    return draw_from(st.sampled_from(kinds))


# -- travelling --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: to whom, and the history that it holds."""

    stop: Stop
    request: Recorded
    history: tuple[Message, ...]


@dataclass(slots=True)
class Journey:
    """The stops with their servers, and what was sent."""

    models: dict[Stop, Model] = field(default_factory=dict[Stop, Model])
    history: tuple[Message, ...] = ()
    sent: list[Sent] = field(default_factory=list[Sent])
    pending: list[Response] = field(default_factory=list[Response])
    """The answers of the leg."""
    servers: dict[Stop, MessagesApi | OpenAiApi] = field(default_factory=dict[Stop, MessagesApi | OpenAiApi])

    def messages_reply(self, body: Json) -> Reply:
        return reply_of(self.pending.pop(0), turn=0)

    def openai_reply(self, body: Json) -> Answer:
        return openai_answer(self.pending.pop(0))

    async def take(self, leg: Leg) -> None:
        """Let the agent go one leg; it must end well."""
        self.pending = list(leg.answers)
        n_before = len(self.servers[leg.stop].requests)

        def prompt(input: str) -> Sequence[UserContent]:
            return [Text(input), PIXEL, PAPER] if leg.with_media else [Text(input)]

        agent = Agent(
            name="traveller",
            model=self.models[leg.stop],
            system="Be careful.",
            tools=[look, fail, draw],
            prompt=prompt,
            retries=0,
        )
        result = await run(agent, leg.prompt, history=self.history)
        assert not self.pending, f"{leg.stop} was not asked for {self.pending}: {result}"
        self.history = result.history
        answers = [index for index, message in enumerate(self.history) if message.role == "assistant"]
        requests = self.servers[leg.stop].requests[n_before:]
        for request, index in zip(requests, answers[-len(requests) :], strict=True):
            self.sent.append(Sent(leg.stop, request, self.history[:index]))


@asynccontextmanager
async def setting_out() -> AsyncGenerator[Journey]:
    """Open all stops. Leaving fails if any request broke a rule of its API."""
    journey = Journey()
    async with AsyncExitStack() as stack:
        messages = await stack.enter_async_context(MessagesApi(journey.messages_reply))
        openai = await stack.enter_async_context(OpenAiApi(journey.openai_reply))
        vllm = await stack.enter_async_context(OpenAiApi(journey.openai_reply, service=VLLM_SERVICE))
        journey.servers = {"anthropic": messages, "chat": openai, "responses": openai, "vllm": vllm}
        journey.models = {
            "anthropic": AnthropicModel(CLAUDE, api_key=KEY, base_url=messages.url),
            "chat": OpenAIChatModel(GPT, api_key=KEY, base_url=f"{openai.url}/v1"),
            "responses": OpenAIModel(GPT, api_key=KEY, base_url=f"{openai.url}/v1"),
            "vllm": OpenAIChatModel("qwen3", endpoint=VLLM, api_key=KEY, base_url=f"{vllm.url}/v1"),
        }
        yield journey


async def travel(route: Sequence[Leg]) -> Journey:
    """Go all legs in order and return the journey."""
    async with setting_out() as journey:
        for leg in route:
            await journey.take(leg)
    return journey
