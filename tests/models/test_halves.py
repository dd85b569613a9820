"""Halves of surrogate pairs, which JSON allows and UTF-8 does not: one rule on every wire, and for what users give."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from journeyman import Agent, Chat, run
from journeyman.connect import connect
from journeyman.durable import Durable
from journeyman.events import TextDelta
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call, say
from journeyman.types import ToolUse
from tests.models.asking import Json
from tests.models.raw_server import RawServer, http
from tests.play import make_tool

HALF = "half \ud83d."


def chat(*pieces: str, arguments: str = "") -> list[Json]:
    made: list[Json] = [{"choices": [{"index": 0, "delta": {"content": each}}]} for each in pieces]
    if arguments:
        called = {"index": 0, "id": "c", "function": {"name": "note", "arguments": arguments}}
        made.append({"choices": [{"index": 0, "delta": {"tool_calls": [called]}}]})
    return [*made, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if arguments else "stop"}]}]


def messages(*pieces: str, arguments: str = "") -> list[Json]:
    made: list[Json] = [
        {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": each}}
            for each in pieces
        ],
        {"type": "content_block_stop", "index": 0},
    ]
    if arguments:
        block: Json = {"type": "tool_use", "id": "c", "name": "note", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": arguments}
        made += [
            {"type": "content_block_start", "index": 1, "content_block": block},
            {"type": "content_block_delta", "index": 1, "delta": delta},
            {"type": "content_block_stop", "index": 1},
        ]
    reason = "tool_use" if arguments else "end_turn"
    return [*made, {"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


def gemini(*pieces: str, arguments: str = "") -> list[Json]:
    parts: list[Json] = [{"text": each} for each in pieces]
    if arguments:
        parts.append({"functionCall": {"name": "note", "args": json.loads(arguments)}})
    made: list[Json] = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    return [*made, {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}]}]


WIRES = {"openai-chat:m": chat, "anthropic:m": messages, "google:m": gemini}


note = make_tool("note", "{text}")


def answered(events: list[Json]) -> bytes:
    stream = "".join(f"data: {json.dumps(each)}\n\n" for each in events)
    return http(stream.encode())


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["half \ud83d."], "half ?."),
        (["\ude00 first"], "? first"),
        (["an emoji \ud83d", "\ude00 over two"], "an emoji 😀 over two"),
        (["\ud83d", "\ude00", "\ud83d", "\ude00"], "😀😀"),
        (["ends \ud83d"], "ends ?"),
        (["ends \ud83d", "x"], "ends ?x"),
    ],
)
async def test_halves_are_joined_over_pieces_and_replaced_where_the_other_is_missing(
    name: str, pieces: list[str], text: str
) -> None:
    shown: list[str] = []

    def hear(event: object) -> None:
        if isinstance(event, TextDelta):
            shown.append(event.text)

    async with RawServer(answered(WIRES[name](*pieces))) as server:
        agent = Agent(name="bot", model=connect(name, api_key="k", base_url=server.url))
        result = await run(agent, "?", on_event=hear)
    assert result.unwrap() == text
    assert len(server.requests) == 1
    assert "".join(shown) == ("ends " if text == "ends ?" else text)


@pytest.mark.parametrize("name", WIRES)
async def test_arguments_with_half_a_pair_are_arguments(name: str) -> None:
    events = WIRES[name](arguments='{"text": "half \\ud83d, all \\ud83d\\ude00, a path \\\\ud83d"}')
    async with RawServer(answered(events), answered(WIRES[name]("ok"))) as server:
        agent = Agent(name="bot", model=connect(name, api_key="k", base_url=server.url), tools=[note])
        result = await run(agent, "?")
    [use] = [block for message in result.history for block in message.content if isinstance(block, ToolUse)]
    assert json.loads(use.input_json) == {"text": "half ?, all 😀, a path \\ud83d"}
    assert result.unwrap() == "ok"


async def test_a_script_may_hold_halves() -> None:
    script = ScriptedModel([call("note", text=HALF, id="1"), say(HALF)])
    assert (await run(Agent(name="bot", model=script, tools=[note]), HALF)).unwrap() == "half ?."


async def test_durable_runs_and_chats_take_halves_and_names_with_halves_are_refused(tmp_path: Path) -> None:
    bot = Agent(name="bot", model=FunctionModel(lambda _: HALF))
    async with Durable(tmp_path / "runs.db") as durable:
        for _ in range(2):  # the second time it is the same run
            assert (await durable.run(bot, HALF, id="a")).unwrap() == "half ?."
        waiting = await durable.start(bot, HALF, id="b")
        await waiting.steer(HALF)
        for option in ("queue", "idempotency_key", "id"):
            with pytest.raises(ValueError, match=f"The {option} .* cannot be used"):
                await durable.start(bot, "x", **cast("dict[str, Any]", {option: HALF}))
        async with Chat.open(bot, durable, id="c", create=True) as talk:
            assert (await talk.prompt(HALF)).unwrap() == "half ?."
    async with Chat.open(bot, tmp_path / "chats.db", id="c", create=True) as talk:
        talk.steer(HALF)
        talk.follow_up(HALF)
        assert (await talk.prompt(HALF)).unwrap() == "half ?."
