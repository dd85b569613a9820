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
from tests.models import test_anthropic_decode as by_anthropic
from tests.models import test_google_decode as by_google
from tests.models import test_openai_chat_decode as by_chat
from tests.models.asking import Json
from tests.models.raw_server import RawServer, http
from tests.play import make_tool

HALF = "half \ud83d."


def chat(*pieces: str, arguments: str = "") -> list[Json]:
    made = [by_chat.chunk({"content": each}) for each in pieces]
    if arguments:
        made.append(by_chat.calls(by_chat.piece("note", arguments, index=0, id="c")))
    return [*made, by_chat.chunk(reason="tool_calls" if arguments else "stop")]


def messages(*pieces: str, arguments: str = "") -> list[Json]:
    said = by_anthropic.block(0, {"type": "text", "text": ""}, *map(by_anthropic.text_delta, pieces))
    if arguments:
        called: Json = {"type": "tool_use", "id": "c", "name": "note", "input": {}}
        said += by_anthropic.block(1, called, {"type": "input_json_delta", "partial_json": arguments})
    return [by_anthropic.start(), *said, *by_anthropic.stop("tool_use" if arguments else "end_turn")]


def gemini(*pieces: str, arguments: str = "") -> list[Json]:
    made = [by_google.chunk(by_google.text(each)) for each in pieces]
    if arguments:
        made.append(by_google.chunk(by_google.call("note", args=json.loads(arguments))))
    return [*made, by_google.chunk(finish="STOP")]


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
