"""Gemini in whole conversations: those that were shortened or restored, and exchanges shaped like recorded ones.

The numbers beside tests are sections of the measured wire. The shapes are those of recordings, the words are our own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from journeyman import Agent, Chat, Limits, ModelSettings, run, tool
from journeyman.compaction import Compaction
from journeyman.models.google import GoogleModel
from journeyman.types import Message, Opaque, Price, Text, Thinking, ToolResult, ToolUse
from journeyman.window import Shortened
from tests.contracts.makers import GEMINI
from tests.contracts.makers import google as made
from tests.models.asking import Json, ask, request
from tests.models.raw_server import RawServer, http
from tests.play import existing, succeeded
from tests.support.gemini_answers import Counted, answer, call, event, signed, thought
from tests.support.gemini_rules import Memory, judge
from tests.support.servers import GeminiApi


@tool
async def look(n: int) -> str:
    """Look at one row."""
    return f"row {n} " * 200


class KeepTheEnd:
    """Keeps the first message and the last exchange."""

    name = "end"

    async def view(self, messages: Sequence[Message], *, excess_tokens: int) -> Shortened:
        kept = [messages[0], *messages[-2:]] if len(messages) > 3 else messages
        return Shortened(messages=kept, changed=len(kept) < len(messages))


async def test_a_shortened_conversation_has_the_user_first_and_no_result_without_its_call() -> None:  # 7, contract 8
    steps = [answer(call("look", {"n": n}), call("look", {"n": -n})) for n in range(1, 7)]
    async with GeminiApi([*steps, answer("Done.")]) as api, made(api.url) as model:
        compaction = Compaction([KeepTheEnd()], window_tokens=3_000)
        agent = Agent(
            name="a",
            model=model,
            tools=[look],
            compaction=compaction,
            settings=ModelSettings(max_tokens=500),
            limits=Limits(request_retries=0),
        )
        result = succeeded(await run(agent, "Look at everything."))
    lengths = [len(each.body["contents"]) for each in api.requests]  # pyright: ignore[reportArgumentType]
    assert max(lengths) < 2 * len(steps)  # the server judges what is left
    last: Any = api.requests[-1].body["contents"]
    assert [content["role"] for content in last[:2]] == ["user", "model"]
    assert len(result.history) == 2 * len(steps) + 2


async def test_a_restored_session_keeps_signatures(tmp_path: Path) -> None:  # 7, contract 9; the server compares
    script = [answer(thought("Hm."), call("look", {"n": 1})), answer(thought("So."), "One."), answer("Still one.")]
    async with GeminiApi(script) as api, made(api.url) as model:
        agent = Agent(name="a", model=model, tools=[look])
        async with Chat.open(agent, tmp_path / "chats.db") as chat:
            (await chat.prompt("Look.")).unwrap()
            id = existing(chat.session).id
        async with Chat.open(agent, tmp_path / "chats.db", id=id) as chat:
            assert (await chat.prompt("And now?")).unwrap() == "Still one."
    before, after = api.requests[1].raw, api.requests[2].raw
    assert before.count(b"thoughtSignature") == 1
    assert after.count(b"thoughtSignature") == 2
    assert after.startswith(before.removesuffix(b"]}"))  # not a byte of it has changed


async def test_use_counts_cache_thoughts_and_hosted_tools_and_has_its_cost() -> None:  # 7, contract 16
    counted = [Counted(1_000, 10, cached=600, thoughts=30, hosted=70), Counted(2_000, 5, cached=1_500)]
    script = [answer(call("look", {"n": 1}), usage=counted[0]), answer("One.", usage=counted[1])]
    price = Price(input=1, output=10, cache_read=0.1)
    async with GeminiApi(script) as api, made(api.url, price=price) as model:
        result = await run(Agent(name="a", model=model, tools=[look]), "Look.")
    usage = existing(result.metadata.usage)
    told = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.reasoning_tokens)
    assert told == (400 + 70 + 500, 40 + 5, 2_100, 30)
    assert usage.cost == pytest.approx((970 * 1 + 45 * 10 + 2_100 * 0.1) / 1_000_000)
    assert usage.exact


OWNER: Final = f"google:{GEMINI}"
STREAM: Final = "text/event-stream"
DOCUMENT: Final = "application/json; charset=UTF-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An answer as the API gave one like it, what it says, and what goes back of it."""

    name: str
    chunks: tuple[Json, ...]
    is_stream: bool = True
    content: tuple[object, ...]
    """The kinds of blocks, in order, or the blocks themselves."""
    stop: str
    used: tuple[int, int, int | None]
    """Input, output, reasoning."""
    back: tuple[Json, ...] | None = None
    """The parts that go back; None: those that came, but for ids."""


def chunk(*parts: Json, told: Json | None = None, **more: object) -> Json:
    content: Json = {"parts": [*parts], "role": "model"} if parts else {"role": "model"}
    usage: Json = {} if told is None else {"usageMetadata": {**told, "promptTokensDetails": [{"modality": "TEXT"}]}}
    return {"candidates": [{"content": content, "index": 0, **more}], **usage, "modelVersion": GEMINI}


def told(prompt: int, said: int | None, total: int, thoughts: int | None = None) -> Json:
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": said, "thoughtsTokenCount": thoughts}
    return {name: n for name, n in {**counts, "totalTokenCount": total}.items() if n is not None}


SEARCHED: Final[tuple[Json, Json]] = (
    {
        "toolCall": {"id": "st1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x"]}},
        "thoughtSignature": "c2Ux",
    },
    {"toolResponse": {"id": "st1", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}, "thoughtSignature": "c2Uy"},
)
CALLED: Final = call("look", {})

EXCHANGES: Final = (
    Exchange(
        name="a call, then an empty text that ends the stream",
        chunks=(
            chunk(signed(CALLED, "c2ln"), told=told(29, 10, 149, 110)),
            chunk({"text": ""}, told=told(29, 10, 149, 110), finishReason="STOP"),
        ),
        content=(Thinking("", "c2ln", OWNER), ToolUse),
        stop="tool_use",
        used=(29, 120, 110),
        back=(signed(CALLED, "c2ln"),),
    ),
    Exchange(
        name="three calls at once, of which the first is signed",
        chunks=(
            chunk(
                *(signed(CALLED, "c2ln"), CALLED, CALLED),
                told=told(83, 30, 405, 292),
                finishMessage="Model generated function call(s).",
                finishReason="STOP",
            ),
        ),
        is_stream=False,
        content=(Thinking("", "c2ln", OWNER), ToolUse, ToolUse, ToolUse),
        stop="tool_use",
        used=(83, 322, 292),
    ),
    Exchange(
        name="a text whose input grows with the last chunk",
        chunks=(
            chunk({"text": "It is"}, told=told(55, 4, 59)),
            chunk({"text": " in May."}, told=told(55, 8, 63)),
            chunk({"text": ""}, told=told(165, 8, 173), finishReason="STOP"),
        ),
        content=(Text("It is in May."),),
        stop="end_turn",
        used=(165, 8, 0),
        back=({"text": "It is in May."},),
    ),
    Exchange(
        name="a text with a signature in the last chunk",
        chunks=(
            chunk({"text": "I add. ", "thought": True}, told=told(18, None, 53, 35)),
            chunk({"text": "Three."}, told=told(18, 3, 56, 35)),
            chunk(signed({"text": ""}, "ZW5k"), told=told(18, 3, 56, 35), finishReason="STOP"),
        ),
        content=(Thinking("I add. ", None, OWNER), Text("Three."), Thinking("", "ZW5k", OWNER)),
        stop="end_turn",
        used=(18, 38, 35),
    ),
    Exchange(
        name="nothing but thoughts before the limit",
        chunks=(chunk(told=told(15, None, 17, 2), finishReason="MAX_TOKENS"),),
        is_stream=False,
        content=(),
        stop="max_tokens",
        used=(15, 2, 2),
        back=(),
    ),
    Exchange(
        name="a hosted tool between call and text",
        chunks=(
            chunk(*SEARCHED, told=told(40, None, 40)),
            chunk({"text": "Found."}, told=told(40, 5, 45), finishReason="STOP", groundingMetadata={}),
        ),
        content=(Opaque, Opaque, Text("Found.")),
        stop="end_turn",
        used=(40, 5, 0),
    ),
)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
async def test_an_exchange_shaped_like_a_recorded_one_is_read_and_goes_back(exchange: Exchange) -> None:  # section 5
    body = b"".join(map(event, exchange.chunks)) if exchange.is_stream else orjson.dumps(exchange.chunks[0])
    reply = http(body, content_type=STREAM if exchange.is_stream else DOCUMENT)
    async with RawServer(reply) as server, made(server.url, streaming=exchange.is_stream) as model:
        response = await ask(model)
    blocks = response.content
    assert [b if b in exchange.content else type(b) for b in blocks] == [*exchange.content]
    usage = response.usage
    assert (response.stop_reason, usage.exact) == (exchange.stop, True)
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == exchange.used

    came = [part for chunk in exchange.chunks for part in parts_of(chunk)]
    expected = came if exchange.back is None else [*exchange.back]
    back, faults = sent_back(blocks, came)
    assert (back, faults) == (expected, [])


def parts_of(chunk: Json) -> list[Json]:
    return [part for candidate in chunk["candidates"] for part in candidate["content"].get("parts", [])]


def sent_back(blocks: Sequence[Any], came: Sequence[Json]) -> tuple[list[Json], list[str]]:
    """Return the parts of an answer in the next request, without ids, and what the API would have against that."""
    results = tuple(ToolResult("12", tool_use_id=each.id) for each in blocks if isinstance(each, ToolUse))
    said = results or (Text("Go on."),)
    history = (Message("user", (Text("Look."),)), Message("assistant", tuple(blocks)), Message("user", said))
    model = GoogleModel(GEMINI, api_key="k")
    body: Json = orjson.loads(model.body(request(*history)))
    memory = Memory()
    memory.remember(came)
    faults = judge(GEMINI, body, {"content-type": "application/json", "x-goog-api-key": "k"}, memory=memory)
    parts = [part for content in body["contents"] if content["role"] == "model" for part in content["parts"]]
    for part in parts:
        part.get("functionCall", {}).pop("id", None)
    return parts, faults
