"""What is sent of a chat's conversation is made shorter when somebody asks, and stays so."""

import asyncio
from pathlib import Path

import pytest

from journeyman import Agent, Chat, DefinitionError, Message
from journeyman.compaction import ClearToolResults, Summarise
from journeyman.errors import ChatBusy
from journeyman.events import ContextCompacted
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel
from journeyman.window import Compaction
from tests.play import Door, Recorder, cancelled, chatting
from tests.support.kept import Kept

LONG = "A long story of the sea. " * 200


class Talker:
    """Answers at length, summarises in short, and keeps what it was sent."""

    def __init__(self, door: Door | None = None) -> None:
        self.door = door
        self.sent: list[list[Message]] = []

    async def answer(self, request: Request) -> Answer:
        self.sent.append(list(request.messages))
        if "ummar" in request.messages[-1].text:
            if self.door is not None:
                await self.door.wait()
            return "They talked of the sea."
        return f"{request.messages[-1].text[:3]} {LONG}"

    def agent(self) -> Agent:
        return Agent(name="tester", model=FunctionModel(self.answer), compaction=[Summarise(keep_tokens=500)])


def length(messages: list[Message]) -> int:
    return sum(len(message.text) for message in messages)


async def test_a_chat_is_compacted_when_somebody_asks_and_its_log_stays(recorder: Recorder) -> None:
    talker = Talker()
    async with Chat(talker.agent(), on_event=recorder) as chat:
        for text in ("1.", "2.", "3.", "4."):
            await chat.prompt(text)
        before, used = chat.messages, chat.usage
        done = await chat.compact()
        assert done.after_tokens < done.before_tokens / 2
        assert (done.reason, [step.error for step in done.steps]) == ("asked", [None])
        assert recorder.events[-1] == done
        assert chat.messages == before
        assert chat.usage == used + done.usage
        await chat.prompt("5.")
        assert length(talker.sent[-1]) < length(talker.sent[3])
        assert "They talked of the sea." in talker.sent[-1][0].text
        assert talker.sent[-1][-1].text == "5."


async def test_a_chat_that_is_opened_again_has_the_same_view(kept: Kept) -> None:
    talker = Talker()
    with kept.stored(redact=()) as store:
        async with Chat.open(talker.agent(), store, id="a", create=True) as chat:
            for text in ("1.", "2.", "3.", "4."):
                await chat.prompt(text)
            await chat.compact()
            await chat.prompt("5.")
            whole = chat.messages
        for text in ("6.", "7."):
            async with Chat.open(talker.agent(), store, id="a") as chat:
                await chat.prompt(text)
                assert chat.messages[: len(whole)] == whole
    fifth, sixth, seventh = talker.sent[-3:]
    assert sixth[: len(fifth)] == fifth
    assert seventh[: len(sixth)] == sixth
    assert len(sixth) == len(fifth) + 2


async def test_what_the_threshold_has_compacted_is_kept_too(path: Path) -> None:
    talker = Talker()
    agent = Agent(
        name="tester",
        model=FunctionModel(talker.answer),
        compaction=Compaction([Summarise(keep_tokens=500)], window_tokens=8_192),
    )
    async with Chat.open(agent, path, id="a", create=True) as chat:
        for number in range(8):
            await chat.prompt(f"{number}.")
    last = talker.sent[-1]
    assert len(last) < 15
    async with Chat.open(agent, path, id="a") as chat:
        await chat.prompt("9.")
        assert len(chat.messages) == 18
    assert length(talker.sent[-1]) <= length(last) + 2 * len(LONG)


@pytest.mark.parametrize("is_stored", [False, True])
async def test_undo_keeps_a_view_from_before_the_turn_and_drops_one_from_in_it(path: Path, is_stored: bool) -> None:
    talker = Talker()
    opened = Chat.open(talker.agent(), path, id="a", create=True) if is_stored else Chat(talker.agent())
    async with opened as chat:
        for text in ("1.", "2.", "3.", "4."):
            await chat.prompt(text)
        await chat.compact()
        await chat.prompt("5.")
        compacted = talker.sent[-1][:-1]
        chat.undo()
        await chat.prompt("6.")
        assert talker.sent[-1][:-1] == compacted
        chat.undo()
        chat.undo()
        await chat.prompt("7.")
        assert [message.text for message in talker.sent[-1]][:-1] == [message.text for message in chat.messages[:-2]]
    if is_stored:
        async with Chat.open(talker.agent(), path, id="a") as chat:
            await chat.prompt("8.")
            assert len(talker.sent[-1]) == len(chat.messages) - 1


@pytest.mark.parametrize("how", ["reset", "replace"])
async def test_another_conversation_is_sent_whole_when_it_is_opened_again(path: Path, how: str) -> None:
    talker = Talker()
    async with Chat.open(talker.agent(), path, id="a", create=True) as chat:
        for text in ("1.", "2.", "3."):
            await chat.prompt(text)
        await chat.compact()
        if how == "reset":
            await chat.reset()
        else:
            chat.replace(chat.messages)
    async with Chat.open(talker.agent(), path, id="a") as chat:
        await chat.prompt("4.")
        assert len(talker.sent[-1]) == len(chat.messages) - 1


async def test_a_chat_without_strategies_says_what_to_give() -> None:
    async with chatting(ScriptedModel(["Hello."])) as chat:
        await chat.prompt("Hi.")
        with pytest.raises(DefinitionError, match=r"'tester' has no strategies to compact with. Give it some: Agent\("):
            await chat.compact()
        assert chat.state.is_held is False


async def test_compacting_is_refused_while_a_turn_goes_on_and_keeps_turns_from_beginning(door: Door) -> None:
    talker = Talker(door)
    async with Chat(talker.agent()) as chat:
        turn = chat.start("1.")
        with pytest.raises(ChatBusy):
            await chat.compact()
        await turn
        for text in ("2.", "3."):
            await chat.prompt(text)
        compacting = asyncio.ensure_future(chat.compact())
        await door.reached.wait()
        assert chat.state.is_held
        await cancelled(compacting)
        assert not chat.state.is_held
        await chat.prompt("4.")
        assert length(talker.sent[-1]) > 3 * len(LONG)


async def test_what_cannot_be_shortened_is_said_and_nothing_changes() -> None:
    async with chatting(ScriptedModel(["Hello."], repeat=True), compaction=[ClearToolResults()]) as chat:
        nothing = await chat.compact()
        assert (nothing.before_tokens, nothing.after_tokens) == (0, 0)
        await chat.prompt("Hi.")
        done = await chat.compact()
        assert done.before_tokens == done.after_tokens > 0
        assert [step.saved_tokens for step in done.steps] == [0]
        assert isinstance(done, ContextCompacted)


async def test_leaving_the_chat_ends_a_compaction_before_its_session_is_closed(path: Path, door: Door) -> None:
    talker = Talker(door)
    async with Chat.open(talker.agent(), path, id="a", create=True) as chat:
        for text in ("1.", "2.", "3."):
            await chat.prompt(text)
        compacting = asyncio.ensure_future(chat.compact())
        await door.reached.wait()
    with pytest.raises(asyncio.CancelledError):
        await compacting
    async with Chat.open(talker.agent(), path, id="a") as chat:
        assert len(chat.messages) == 6
