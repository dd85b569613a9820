"""A chat goes on with another model between two turns."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, Chat, DefinitionError
from journeyman.compaction import ClearToolResults
from journeyman.errors import ChatBusy, ChatHeld, ModelUnavailable
from journeyman.events import RunStarted
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.window import Compaction
from tests.chat.opening import Opening
from tests.play import Door, Stage, chatting, look, script_of, transcript


async def test_another_model_goes_on_with_the_whole_conversation(stage: Stage) -> None:
    other = ScriptedModel(["It was there."])
    async with chatting(stage.model([call("look", id="a"), "Found it."]), tools=[look]) as chat:
        names: list[str] = []
        chat.subscribe(lambda event: names.append(event.model) if isinstance(event, RunStarted) else None)
        await chat.prompt("Find it.")
        await chat.use(other)
        assert (await chat.prompt("Where?")).unwrap() == "It was there."
        await chat.use(stage.model(["Again."]))
        assert (await chat.prompt("Sure?")).unwrap() == "Again."
    assert transcript(other.requests[0].messages) == [
        ("user", "Find it."),
        ("assistant", "look({})#a"),
        ("user", "#a: found here"),
        ("assistant", "Found it."),
        ("user", "Where?"),
    ]
    assert names[1] == "scripted:scripted"


async def test_the_model_before_is_closed_and_the_new_one_with_the_chat() -> None:
    told: list[str] = []
    async with chatting(Opening("one", told)) as chat:
        await chat.use(Opening("two", told))
        assert told == ["+one", "+two", "-one"]
        assert (await chat.prompt("Hi.")).unwrap() == "I am two."
    assert told == ["+one", "+two", "-one", "+two", "-two", "-two"]  # each run opens its model, too


async def test_another_model_is_refused_while_a_turn_goes_on_or_the_chat_is_held(door: Door) -> None:
    async with chatting(ScriptedModel([door.before("Hello.")])) as chat:
        turn = chat.start("Hi.")
        with pytest.raises(ChatBusy):
            await chat.use(ScriptedModel([]))
        assert (await door.open_for(turn)).unwrap() == "Hello."
        async with chat.hold():
            with pytest.raises(ChatHeld):
                await chat.use(ScriptedModel([]))


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        ("nonsense", ModelUnavailable, "is not of the form 'provider:model'"),
        ("antropic:x", ModelUnavailable, "No provider is called 'antropic'"),
        (42, DefinitionError, "The model is 42"),
        (None, DefinitionError, "The model is ''"),
        (Opening("bad", [], fails=True), OSError, "no way"),
    ],
)
async def test_what_is_no_model_leaves_the_chat_with_the_one_before(
    model: object, error: type[Exception], words: str
) -> None:
    told: list[str] = []
    wrong: Any = model
    async with chatting(Opening("one", told)) as chat:
        with pytest.raises(error, match=words):
            await chat.use(wrong)
        assert told == ["+one"]
        assert (await chat.prompt("Hi.")).unwrap() == "I am one."


async def test_no_turn_begins_while_the_model_is_opened_and_leaving_closes_it(door: Door) -> None:
    told: list[str] = []
    async with chatting(Opening("one", told)) as chat:
        using = asyncio.ensure_future(chat.use(Opening("two", told, door)))
        await door.reached.wait()
        with pytest.raises(ChatHeld):
            chat.start("Hi.")
    door.opened.set()
    await using
    assert told == ["+one", "-one", "+two", "-two"]


async def test_a_chat_that_is_opened_again_has_the_model_of_its_agent(tmp_path: Path) -> None:
    agent = Agent(name="tester", model=ScriptedModel(["One."], repeat=True))
    async with Chat.open(agent, tmp_path / "chats.db", id="a", create=True) as chat:
        await chat.use(ScriptedModel(["Two."]))
        assert (await chat.prompt("Hi.")).unwrap() == "Two."
    async with Chat.open(agent, tmp_path / "chats.db", id="a") as chat:
        assert (await chat.prompt("Hi.")).unwrap() == "One."


async def test_a_compacted_chat_goes_on_with_another_model() -> None:
    compaction = Compaction([ClearToolResults()], window_tokens=8_192)
    async with chatting(ScriptedModel([call("look"), "One."]), tools=[look], compaction=compaction) as chat:
        await chat.prompt("1.")
        other = ScriptedModel(["Two."])
        await chat.use(other)
        await chat.prompt("2.")
        assert transcript(other.requests[0].messages)[-2:] == script_of(chat)[-3:-1]
