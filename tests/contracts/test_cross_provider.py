"""A conversation begun on one provider goes on with another, in any order, and every request can be sent.

The strict servers refuse what the providers would refuse, and what was served must come back as it was. Beyond that:
calls and results stay together, an id is sent to one provider always as the same, no word is lost, reasoning and blocks
of another provider become texts or are left out by the rules of `models/wire.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeAlias

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.history import History
from journeyman.model import Prefix, Request, Settings, ToolSpec
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import OLLAMA, VLLM
from journeyman.models.openai.responses import OpenAIModel
from journeyman.models.scripted import call, say
from journeyman.types import (
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Opaque,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Url,
)
from tests.contracts.carriers import VLLM_SERVICE
from tests.contracts.conversations import NOTE, PAPER, PIXEL
from tests.contracts.travels import PROVIDER, STOPS, Leg, Sent, Stop, routes, travel
from tests.properties.examples import examples, patient
from tests.support import messages_rules, openai_rules
from tests.support.invariants_history import history_faults
from tests.support.messages_json import Json, as_list, as_object, as_text

pytestmark = patient

# -- what a request holds ----------------------------------------------------------------------------------------------


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
    for item in map(as_object, [*as_list(body.get("messages")), *as_list(body.get("input"))]):
        for block in [item, *map(as_object, as_list(item.get("content")))]:
            match block:
                case {"type": "tool_use", "id": str(id)} | {"type": "function_call", "call_id": str(id)}:
                    calls.append(id)
                case (
                    {"type": "tool_result", "tool_use_id": str(id)}
                    | {"type": "function_call_output", "call_id": str(id)}
                    | {"role": "tool", "tool_call_id": str(id)}
                ):
                    results.append(id)
                case _:
                    pass
        calls += [as_text(each.get("id")) for each in map(as_object, as_list(item.get("tool_calls")))]
    return calls, results


# -- over HTTP ---------------------------------------------------------------------------------------------------------


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
        if isinstance(block, Text | ToolResult):
            assert block.text.strip() in whole
    for block in blocks:
        if getattr(block, "provider", PROVIDER[sent.stop]) == PROVIDER[sent.stop]:
            continue
        match block:
            case Thinking():
                assert not block.text.strip() or f"<thinking>\n{block.text}\n</thinking>" in whole
                assert not block.signature or block.signature.partition("\n")[0] not in whole
            case RedactedThinking():
                assert block.data not in whole
            case Opaque():
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


SEALED = RedactedThinking("c2VhbGVk")
SEARCH = Opaque(
    "openai", '{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"x"}}'
)


NUMBERS = count(1)


def leg(stop: Stop, *blocks: Block | str) -> Leg:
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
    texts = await last_text(leg("anthropic", Thinking("Hm.", "c2ln"), SEALED, "I look."), leg(stop))
    assert "<thinking>\nHm.\n</thinking>" in texts
    assert "c2ln" not in texts
    assert SEALED.data not in texts


@pytest.mark.parametrize("stop", ["anthropic", "vllm"])
async def test_a_block_that_another_provider_cannot_read_is_a_text_that_says_so(stop: Stop) -> None:
    texts = await last_text(leg("responses", SEARCH), leg(stop))
    assert "[A 'web_search_call' block that only openai can read is left out.]" in texts
    assert "ws_1" not in texts


async def test_reasoning_comes_home_unchanged() -> None:
    thought = Thinking("Hm.", "c2ln")
    route = [leg("responses", thought), leg("anthropic", thought), leg("chat"), leg("responses"), leg("anthropic")]
    journey = await travel(route)  # the servers see to it that nothing has changed
    items = [as_object(item) for item in as_list(journey.sent[-3].request.body["input"])]
    assert [item["encrypted_content"] for item in items if item.get("type") == "reasoning"] == ["c2ln"]
    first = as_object(as_list(journey.sent[-1].request.body["messages"])[5])
    assert {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"} in as_list(first["content"])


# -- any history at all ------------------------------------------------------------------------------------------------


ELSEWHERE = "mistral"

ids = st.sampled_from(["a", "b", "", "call_1", "functions.look:0", "x" * 64, "not sendable!", "漢字"])
names = st.sampled_from(["look", "", "db.query", "n" * 200, "漢字"])
texts = st.sampled_from(["", " ", "word", "two words", "\ud800", "trailing \n", "error: no"])
arguments = st.sampled_from(["{}", '{"x": 1}', "[]", "{", "null", "", '{"x": NaN}', "\ud800"])
elsewhere = (Image(Url("https://example.com/a.png")), Document(Url("https://example.com/a.pdf")))
media: st.SearchStrategy[Text | Image | Document] = st.sampled_from([PIXEL, PAPER, NOTE, *elsewhere, Text("word")])
foreign_blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Thinking, texts, st.none() | st.just("sig"), st.just(ELSEWHERE)),
    st.just(RedactedThinking("xx", ELSEWHERE)),
    st.sampled_from([Opaque(ELSEWHERE, '{"type": "oracle"}'), Opaque(ELSEWHERE, "{}")]),
)
any_block: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, texts),
    foreign_blocks,
    media,
    st.builds(ToolUse, ids, names, arguments),
    st.builds(ToolResult, texts | st.lists(media, max_size=3).map(tuple), st.booleans(), ids),
)
roles: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant"])
contents = st.lists(any_block, max_size=5).map(tuple)
any_messages = st.lists(st.builds(Message, roles, contents, st.booleans()), max_size=8)

SCHEMA: JsonObject = {"type": "object", "properties": {"x": {"type": "integer"}}}
PREFIX = Prefix(system=(Text("Be careful."),), tools=(ToolSpec(name="look", description="Look.", input_schema=SCHEMA),))
HEADERS = {"content-type": "application/json", "authorization": "Bearer k", "anthropic-version": "2026-10-21"}

AnyModel: TypeAlias = AnthropicModel | OpenAIChatModel | OpenAIModel

MODELS: dict[str, AnyModel] = {
    "anthropic": AnthropicModel("claude-sonnet-5-5", api_key="k"),
    "chat": OpenAIChatModel("gpt-5.2", api_key="k"),
    "vllm": OpenAIChatModel("qwen3", endpoint=VLLM),
    "ollama": OpenAIChatModel("qwen3", endpoint=replace(OLLAMA, images=False, parallel_tool_calls=False)),
    "responses": OpenAIModel("gpt-5.2", api_key="k"),
}


def body_of(model: AnyModel, history: Sequence[Message]) -> Json:
    return orjson.loads(model.body(Request(prefix=PREFIX, messages=history, settings=Settings(max_tokens=2_000))))


def violations(name: str, body: Json) -> list[str]:
    """Return what a provider would have against a request."""
    if name == "anthropic":
        return messages_rules.judge(body, HEADERS)
    if name in ("chat", "responses"):
        return openai_rules.judge(name, body, HEADERS)
    return openai_rules.judge("chat", body, HEADERS, service=VLLM_SERVICE)


@pytest.mark.fuzz
@examples(one_in=3)
@given(messages=any_messages)
@pytest.mark.parametrize("name", MODELS)
def test_any_history_can_be_sent_to_any_provider(name: str, messages: list[Message]) -> None:
    history = History([*messages, Message("user", (Text("Go on."),))]).export()
    body = body_of(MODELS[name], history)
    assert violations(name, body) == []
    calls, results = calls_and_results(body)
    assert results == calls
    assert len(calls) == len({*calls}) == sum(len(message.tool_uses) for message in history)
