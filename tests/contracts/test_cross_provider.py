"""A conversation begun on one provider goes on with another, in any order, and every request can be sent.

The strict servers refuse what the providers would refuse, and what was served must come back as it was. Beyond that:
calls and results stay together, an id is sent to one provider always as the same, no word is lost, reasoning and blocks
of another provider become texts or are left out by the rules of `models/wire.py`.
A `Leg` says who answers and what, in its provider's own kind; `travel` lets an agent go from leg to leg.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, Literal, TypeAlias

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Agent, Limits, run, types
from journeyman.history import History
from journeyman.model import Model, ModelSettings, Prefix, Request, Response, ToolSpec
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.google.model import GoogleModel
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import OLLAMA, VLLM, InputMedia
from journeyman.models.openai.responses import OpenAIModel
from journeyman.testing.scripted import call, say
from tests.contracts.carriers import VLLM_SERVICE, gemini_answer, openai_answer
from tests.contracts.conversations import NOTE, PAPER, PIXEL, draw, fail, look
from tests.contracts.makers import CLAUDE, GEMINI, GPT, KEY
from tests.properties.examples import examples, patient
from tests.support import gemini_answers as gemini
from tests.support import gemini_rules, messages_rules, openai_rules
from tests.support.invariants_history import history_faults
from tests.support.loopback import Recorded
from tests.support.messages_answers import Reply
from tests.support.messages_json import Json, as_list, as_object, as_text
from tests.support.openai_answers import Answer
from tests.support.servers import GeminiApi, MessagesApi, OpenAiApi
from tests.support.stage_wire import reply_of

pytestmark = patient

Stop: TypeAlias = Literal["anthropic", "chat", "google", "responses", "vllm"]
STOPS: Final[tuple[Stop, ...]] = ("anthropic", "chat", "google", "responses", "vllm")
PROVIDER: Final[dict[Stop, str]] = {
    "anthropic": "anthropic",
    "chat": "openai",
    "google": f"google:{GEMINI}",
    "responses": "openai",
    "vllm": "vllm",
}
"""Whose blocks each reads as its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One prompt, and what the model at this stop answers until it is done."""

    stop: Stop
    prompt: str
    with_media: bool
    answers: tuple[Response, ...]


_words = st.sampled_from(["Umbrellas.", "“Naïve” 🦜", " two\n\nparagraphs ", "<thinking>not a thought</thinking>", "{"])

_IDS: Final[dict[Stop, tuple[str, ...]]] = {
    "anthropic": ("toolu_{}", "toolu_{}_" + "x" * 40),
    "chat": ("call_{}", "call_{}_" + "x" * 40),
    "google": ("", "fc{}"),
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
    said = draw_from(st.lists(_words.map(types.Text), max_size=1))
    calls = [_call(draw_from, stop, next(numbers)) for _ in range(draw_from(st.integers(1, 3)))]
    return say(*_own(draw_from, stop, next(numbers)), *said, *calls)


def _call(draw_from: st.DrawFn, stop: Stop, number: int) -> types.ToolUse:
    id = draw_from(st.sampled_from(_IDS[stop])).format(number)
    if stop == "vllm":
        strange = [types.ToolUse(id, "delete.all", "{}"), types.ToolUse(id, "look", malformed='{"n": 1')]
        return draw_from(st.sampled_from([*strange, *(types.ToolUse(id, *each) for each in _ARGUMENTS)]))
    return types.ToolUse(id, *draw_from(st.sampled_from([*_ARGUMENTS, ("delete_all", "{}")])))


def _own(draw_from: st.DrawFn, stop: Stop, number: int) -> tuple[types.Block, ...]:
    """Return what only this provider understands, at the beginning of an answer."""
    thought = types.Thinking(f"Thought {number:05}, ümlaut.", f"c2VhbA{number:05}")
    sealed = types.RedactedThinking(f"c2VhbGVk{number:05}")
    kinds: list[tuple[types.Block, ...]] = [()]
    match stop:
        case "anthropic":
            id = f"srvtoolu_{number:05}"
            asked = f'{{"type":"server_tool_use","id":"{id}","name":"web_search","input":{{"query":"x"}}}}'
            found = f'{{"type":"web_search_tool_result","tool_use_id":"{id}","content":[]}}'
            searched = (types.Opaque("anthropic", asked), types.Opaque("anthropic", found))
            kinds += [(thought,), (thought, sealed), searched]
        case "google":
            code = f'{{"language":"PYTHON","code":"print({number:05})"}}'
            ran = types.Opaque(PROVIDER[stop], f'{{"type":"executableCode","executableCode":{code}}}')
            kinds += [(types.Thinking(thought.text),), (ran,)]
        case "responses":
            action = '{"type":"search","query":"x"}'
            search = f'{{"type":"web_search_call","id":"ws_{number:05}","status":"completed","action":{action}}}'
            kinds += [(thought,), (sealed,), (types.Opaque("openai", search),)]
        case "vllm":
            kinds += [(types.Thinking(f"Thought {number:05}, ümlaut."),)]
        case "chat":
            pass
    return draw_from(st.sampled_from(kinds))


Server: TypeAlias = MessagesApi | OpenAiApi | GeminiApi


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: to whom, and the history that it holds."""

    stop: Stop
    request: Recorded
    history: tuple[types.Message, ...]


@dataclass(slots=True)
class Journey:
    """The stops with their servers, and what was sent."""

    models: dict[Stop, Model] = field(default_factory=dict[Stop, Model])
    history: tuple[types.Message, ...] = ()
    sent: list[Sent] = field(default_factory=list[Sent])
    pending: list[Response] = field(default_factory=list[Response])
    """The answers of the leg."""
    servers: dict[Stop, Server] = field(default_factory=lambda: {})

    def messages_reply(self, body: Json) -> Reply:
        return reply_of(self.pending.pop(0), turn=0)

    def openai_reply(self, body: Json) -> Answer:
        return openai_answer(self.pending.pop(0))

    def gemini_reply(self, body: Json) -> gemini.Answer:
        return gemini_answer(self.pending.pop(0))

    async def take(self, leg: Leg) -> None:
        """Let the agent go one leg; it must end well."""
        self.pending = list(leg.answers)
        n_before = len(self.servers[leg.stop].requests)

        def prompt(input: str) -> Sequence[types.UserContent]:
            return [types.Text(input), PIXEL, PAPER] if leg.with_media else [types.Text(input)]

        model, tools = self.models[leg.stop], [look, fail, draw]
        agent = Agent(
            name="traveller",
            model=model,
            system="Be careful.",
            tools=tools,
            prompt=prompt,
            limits=Limits(request_retries=0),
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
        google = await stack.enter_async_context(GeminiApi(journey.gemini_reply))
        journey.servers = {"anthropic": messages, "chat": openai, "google": google, "responses": openai, "vllm": vllm}
        journey.models = {
            "anthropic": AnthropicModel(CLAUDE, api_key=KEY, base_url=messages.url),
            "chat": OpenAIChatModel(GPT, api_key=KEY, base_url=f"{openai.url}/v1"),
            "google": GoogleModel(GEMINI, api_key=KEY, base_url=f"{google.url}/v1beta"),
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


def strings(value: object) -> Iterator[str]:
    """Yield every text in a JSON value."""
    if isinstance(value, str):
        yield value
    for child in [*as_object(value).values(), *as_list(value)]:
        yield from strings(child)


def calls_and_results(body: Json) -> tuple[list[str], list[str]]:
    """Return the ids of calls and of results in a request of any provider, in order."""
    calls: list[str] = []
    results: list[str] = []
    items = [*as_list(body.get("messages")), *as_list(body.get("input")), *as_list(body.get("contents"))]
    for item in map(as_object, items):
        for block in [item, *map(as_object, [*as_list(item.get("content")), *as_list(item.get("parts"))])]:
            match block:
                case (
                    {"type": "tool_use", "id": str(id)}
                    | {"type": "function_call", "call_id": str(id)}
                    | {"functionCall": {"id": str(id)}}
                ):
                    calls.append(id)
                case (
                    {"type": "tool_result", "tool_use_id": str(id)}
                    | {"type": "function_call_output", "call_id": str(id)}
                    | {"role": "tool", "tool_call_id": str(id)}
                    | {"functionResponse": {"id": str(id)}}
                ):
                    results.append(id)
                case _:
                    pass
        calls += [as_text(each.get("id")) for each in map(as_object, as_list(item.get("tool_calls")))]
    return calls, results


def check_ids(sent: Sequence[Sent]) -> None:
    """An id of ours is always the same one on a provider's wire, and no two are one."""
    for stop in STOPS:
        wire_ids: dict[str, str] = {}
        for each in sent:
            if each.stop == stop:
                calls, results = calls_and_results(each.request.body)
                ours = [call.id for message in each.history for call in message.tool_uses]
                assert results == calls
                for id, wire_id in zip(ours, calls, strict=True):
                    assert wire_ids.setdefault(id, wire_id) == wire_id
        assert len({*wire_ids.values()}) == len(wire_ids)


def check_words(sent: Sent) -> None:
    """Every word of the conversation is in the request, other providers' reasoning in tags, and none of their seals."""
    whole = "\n".join(strings(sent.request.body))
    blocks = [block for message in sent.history for block in message.content]
    for block in blocks:
        if isinstance(block, types.Text | types.ToolResult):
            assert block.text.strip() in whole
    for block in blocks:
        if getattr(block, "provider", PROVIDER[sent.stop]) == PROVIDER[sent.stop]:
            continue
        match block:
            case types.Thinking():
                assert not block.text.strip() or f"<thinking>\n{block.text}\n</thinking>" in whole
                assert not block.signature or block.signature.partition("\n")[0] not in whole
            case types.RedactedThinking():
                assert block.data not in whole
            case types.Opaque():
                assert f"[A {block.kind!r} block that only {block.provider} can read is left out.]" in whole
                assert block.json not in whole
            case _:
                raise AssertionError(block)


@pytest.mark.fuzz
@examples(one_in=4)
@given(route=routes())
def test_a_conversation_goes_on_with_any_provider_in_any_order(route: list[Leg]) -> None:
    journey = asyncio.run(travel(route))
    assert list(history_faults(journey.history)) == []
    check_ids(journey.sent)
    for sent in journey.sent:
        check_words(sent)


SEALED = types.RedactedThinking("c2VhbGVk")
SEARCH = types.Opaque(
    "openai", '{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"x"}}'
)


NUMBERS = count(1)


def leg(stop: Stop, *blocks: types.Block | str) -> Leg:
    """Return a leg with one call, of an id that no other has."""
    called = call("look", n=1, id=f"call_of_{stop}_{next(NUMBERS)}")
    return Leg(stop=stop, prompt="Go on.", with_media=False, answers=(say(*blocks, called), say("Done.")))


async def last_text(*route: Leg) -> str:
    """Return all texts of the last request of a journey."""
    journey = await travel(route)
    assert journey.sent[-1].stop == route[-1].stop
    return "\n".join(strings(journey.sent[-1].request.body))


@pytest.mark.parametrize("stop", [stop for stop in STOPS if stop != "anthropic"])
async def test_what_anthropic_thought_is_a_text_elsewhere_and_what_it_sealed_is_left_out(stop: Stop) -> None:
    texts = await last_text(leg("anthropic", types.Thinking("Hm.", "c2ln"), SEALED, "I look."), leg(stop))
    assert "<thinking>\nHm.\n</thinking>" in texts
    assert "c2ln" not in texts
    assert SEALED.data not in texts


@pytest.mark.parametrize("stop", ["anthropic", "vllm"])
async def test_a_block_that_another_provider_cannot_read_is_a_text_that_says_so(stop: Stop) -> None:
    texts = await last_text(leg("responses", SEARCH), leg(stop))
    assert "[A 'web_search_call' block that only openai can read is left out.]" in texts
    assert "ws_1" not in texts


async def test_reasoning_comes_home_unchanged() -> None:
    thought = types.Thinking("Hm.", "c2ln")
    route = [leg("responses", thought), leg("anthropic", thought), leg("chat"), leg("responses"), leg("anthropic")]
    journey = await travel(route)  # the servers see to it that nothing has changed
    items = [as_object(item) for item in as_list(journey.sent[-3].request.body["input"])]
    assert [item["encrypted_content"] for item in items if item.get("type") == "reasoning"] == ["c2ln"]
    first = as_object(as_list(journey.sent[-1].request.body["messages"])[5])
    assert {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"} in as_list(first["content"])


async def test_a_conversation_goes_to_gemini_and_openai_and_back() -> None:
    thought = types.Thinking("Hm.", "c2ln")
    route = [leg("anthropic", thought), leg("google"), leg("responses"), leg("anthropic"), leg("google")]
    journey = await travel(route)  # the servers see to it that nothing has changed
    first, last = [sent.request.body for sent in journey.sent if sent.stop == "google"][1::2]
    own = signatures(first)[-1]
    assert own not in gemini_rules.DUMMIES
    assert signatures(first) == [*gemini_rules.DUMMIES, own]
    assert signatures(last)[:-1] == [*gemini_rules.DUMMIES, own, *gemini_rules.DUMMIES, *gemini_rules.DUMMIES]
    home = [sent.request.body for sent in journey.sent if sent.stop == "anthropic"][-1]
    assert "c2ln" in [*strings(home)]
    assert own not in [*strings(home)]


def signatures(body: Json) -> list[str]:
    """Return the signatures in a request to Gemini, in order."""
    contents = map(as_object, as_list(body.get("contents")))
    parts = [as_object(part) for content in contents for part in as_list(content.get("parts"))]
    return [as_text(part["thoughtSignature"]) for part in parts if "thoughtSignature" in part]


ELSEWHERE = "mistral"

ids = st.sampled_from(["a", "b", "", "call_1", "functions.look:0", "x" * 64, "not sendable!", "漢字"])
names = st.sampled_from(["look", "", "db.query", "n" * 200, "漢字"])
texts = st.sampled_from(["", " ", "word", "two words", "\ud800", "trailing \n", "error: no"])
arguments = st.sampled_from(["{}", '{"x": 1}', "[]", "{", "null", "", '{"x": NaN}', "\ud800"])
elsewhere = (
    types.Image(types.Url("https://example.com/a.png")),
    types.Document(types.Url("https://example.com/a.pdf")),
)
media: st.SearchStrategy[types.Text | types.Image | types.Document] = st.sampled_from(
    [PIXEL, PAPER, NOTE, *elsewhere, types.Text("word")]
)
foreign_blocks: st.SearchStrategy[types.Block] = st.one_of(
    st.builds(types.Thinking, texts, st.none() | st.just("sig"), st.just(ELSEWHERE)),
    st.just(types.RedactedThinking("xx", ELSEWHERE)),
    st.sampled_from([types.Opaque(ELSEWHERE, '{"type": "oracle"}'), types.Opaque(ELSEWHERE, "{}")]),
)
any_block: st.SearchStrategy[types.Block] = st.one_of(
    st.builds(types.Text, texts),
    foreign_blocks,
    media,
    st.builds(types.ToolUse, ids, names, arguments),
    st.builds(types.ToolResult, texts | st.lists(media, max_size=3).map(tuple), st.booleans(), ids),
)
roles: st.SearchStrategy[types.Role] = st.sampled_from(["user", "assistant"])
contents = st.lists(any_block, max_size=5).map(tuple)
any_messages = st.lists(st.builds(types.Message, roles, contents, st.booleans()), max_size=8)

SCHEMA: types.JsonObject = {"type": "object", "properties": {"x": {"type": "integer"}}}
PREFIX = Prefix(
    system=(types.Text("Be careful."),), tools=(ToolSpec(name="look", description="Look.", input_schema=SCHEMA),)
)
HEADERS = {"content-type": "application/json", "authorization": "Bearer k", "anthropic-version": "2026-10-21"}

AnyModel: TypeAlias = AnthropicModel | GoogleModel | OpenAIChatModel | OpenAIModel

MODELS: dict[str, AnyModel] = {
    "anthropic": AnthropicModel("claude-sonnet-5-5", api_key="k"),
    "chat": OpenAIChatModel("gpt-5.2", api_key="k"),
    "google": GoogleModel(GEMINI, api_key="k"),
    "gemini-2.5": GoogleModel("gemini-2.5-flash", api_key="k"),
    "vllm": OpenAIChatModel("qwen3", endpoint=VLLM),
    "ollama": OpenAIChatModel(
        "qwen3", endpoint=replace(OLLAMA, media=InputMedia(images=False), parallel_tool_calls=False)
    ),
    "responses": OpenAIModel("gpt-5.2", api_key="k"),
}


def body_of(model: AnyModel, history: Sequence[types.Message]) -> Json:
    return orjson.loads(model.body(Request(prefix=PREFIX, messages=history, settings=ModelSettings(max_tokens=2_000))))


def violations(name: str, body: Json) -> list[str]:
    """Return what a provider would have against a request."""
    if name == "anthropic":
        return messages_rules.judge(body, HEADERS)
    model = MODELS[name]
    if isinstance(model, GoogleModel):
        return gemini_rules.judge(model.name, body, HEADERS)
    if name in ("chat", "responses"):
        return openai_rules.judge(name, body, HEADERS)
    return openai_rules.judge("chat", body, HEADERS, service=VLLM_SERVICE)


@pytest.mark.fuzz
@examples(one_in=3)
@given(messages=any_messages)
@pytest.mark.parametrize("name", MODELS)
def test_any_history_can_be_sent_to_any_provider(name: str, messages: list[types.Message]) -> None:
    history = History([*messages, types.Message("user", (types.Text("Go on."),))]).export()
    body = body_of(MODELS[name], history)
    assert violations(name, body) == []
    calls, results = calls_and_results(body)
    assert results == calls
    assert len(calls) == len({*calls}) == sum(len(message.tool_uses) for message in history)
