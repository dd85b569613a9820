"""The last turn is undone: hidden from the model, from whoever looks, and in the session."""

import asyncio
import random
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from journeyman import Agent, Chat
from journeyman.chat.turn import ABORTED
from journeyman.compaction import ClearToolResults
from journeyman.errors import ChatBusy, NothingToUndo, ProviderError, StoreError
from journeyman.model import Request, Response
from journeyman.store import Store
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call
from journeyman.types import Message, Opaque
from journeyman.window import Compaction
from tests.chat.opening import talker
from tests.chat.test_sessions import on_disk
from tests.play import Door, Stage, chatting, echo, look, make_tool, script_of, transcript
from tests.support.invariants_history import history_faults
from tests.support.kept import Kept

Conversation: TypeAlias = tuple[Message, ...]


async def test_an_undone_turn_is_hidden_from_the_model_and_from_the_chat(stage: Stage) -> None:
    model = stage.model(["One.", [call("look", id="a")], "Found.", "Three."])
    async with chatting(model, tools=[look]) as chat:
        await chat.prompt("1.")
        before = chat.messages
        await chat.prompt("2.")
        chat.undo()
        assert chat.messages == before
        await chat.prompt("3.")
    assert transcript(stage.messages(3)) == [("user", "1."), ("assistant", "One."), ("user", "3.")]


async def test_undoing_twice_hides_two_turns_and_then_there_is_nothing_to_undo() -> None:
    async with chatting(echo()) as chat:
        with pytest.raises(
            NothingToUndo, match=r"There is no turn to undo: no turn has said anything, or all are undone\."
        ):
            chat.undo()
        await chat.prompt("1.")
        await chat.prompt("2.")
        chat.undo()
        chat.undo()
        assert chat.messages == ()
        with pytest.raises(NothingToUndo):
            chat.undo()
        assert (await chat.prompt("3.")).unwrap() == "<3.>"
        assert script_of(chat) == [("user", "3."), ("assistant", "<3.>")]


async def test_an_undone_turn_is_not_there_when_the_chat_is_opened_again(kept: Kept) -> None:
    async with Chat.open(talker(), kept.place, id="a", create=True) as chat:
        for text in ("1.", "2.", "3."):
            await chat.prompt(text)
        chat.undo()
        assert on_disk(kept, "a") == list(chat.messages)
    async with Chat.open(talker(), kept.place, id="a") as chat:
        assert script_of(chat)[-1] == ("assistant", "<2.>")
        chat.undo()  # of a turn in an earlier life
        await chat.prompt("4.")
    async with Chat.open(talker(), kept.place, id="a") as chat:
        assert script_of(chat) == [("user", "1."), ("assistant", "<1.>"), ("user", "4."), ("assistant", "<4.>")]
        assert chat.usage.requests == 4  # also of what was undone
        chat.undo()
        chat.undo()
        with pytest.raises(NothingToUndo):
            chat.undo()


async def test_nothing_is_deleted_by_undo(path: Path) -> None:
    async with Chat.open(talker(), path, id="a", create=True) as chat:
        await chat.prompt("The secret of the sea.")
        chat.undo()
    with Store(path) as store:
        assert store.messages("a") == []
    assert any(b"The secret of the sea." in each.read_bytes() for each in path.parent.iterdir())


async def test_steering_and_follow_ups_belong_to_their_turn(door: Door) -> None:
    script = ["One.", call("wait", id="a"), "Two.", "Three."]
    async with chatting(ScriptedModel(script), tools=[door.tool()]) as chat:
        await chat.prompt("1.")
        before = chat.messages
        turn = chat.start("2.")
        await door.reached.wait()
        chat.steer("Shorter.")
        chat.follow_up("And now?")
        await door.open_for(turn)
        assert len(chat.messages) == 8
        chat.follow_up("Later.")
        chat.undo()
        assert chat.messages == before
        assert chat.state.follow_ups == ("Later.",)


async def test_a_turn_that_a_notice_began_is_a_turn_of_its_own() -> None:
    async with chatting(echo()) as chat:
        await chat.prompt("1.")
        before = chat.messages
        assert chat.inject("The work is done.").disposition == "resumed"
        await asyncio.sleep(0)
        await chat.wait_idle()
        assert len(chat.messages) == 4
        chat.undo()
        assert chat.messages == before
        chat.undo()
        assert chat.messages == ()


async def test_an_aborted_turn_is_undone_with_the_word_about_its_end(stage: Stage, door: Door) -> None:
    async with chatting(stage.model(["One.", call("wait", id="a"), "Three."]), tools=[door.tool()]) as chat:
        await chat.prompt("1.")
        before = chat.messages
        turn = chat.start("2.")
        await door.reached.wait()
        chat.abort()
        await turn
        assert ABORTED in script_of(chat)[-1]
        chat.undo()
        assert (chat.messages, chat.state.last_error) == (before, None)
        assert (await chat.prompt("3.")).unwrap() == "Three."


async def test_a_prompt_that_joined_an_unanswered_one_is_undone_alone(kept: Kept) -> None:
    answers = [ProviderError("no", kind="bad_request"), "Both.", "First."]
    async with Chat.open(Agent(name="tester", model=ScriptedModel(answers)), kept.place, id="a", create=True) as chat:
        await chat.prompt("1.")
        before = chat.messages
        await chat.prompt("2.")
        assert transcript(chat.messages) == [("user", "1.", "2."), ("assistant", "Both.")]
        chat.undo()
        assert chat.messages == before
        assert on_disk(kept, "a") == list(before)
        assert (await chat.continue_()).unwrap() == "First."
        chat.undo()  # with what went on from it
        assert chat.messages == ()
        assert on_disk(kept, "a") == []


async def test_what_went_on_from_a_conversation_that_was_given_is_undone_back_to_it() -> None:
    async with chatting(echo()) as first:
        await first.prompt("1.")
        given = list(first.messages)[:1]
    async with Chat(talker(), history=given) as chat:
        with pytest.raises(NothingToUndo):
            chat.undo()
        await chat.continue_()
        chat.undo()
        assert list(chat.messages) == given


async def test_a_turn_that_said_nothing_is_passed_over(path: Path) -> None:
    def prompt(text: str) -> str:
        if text == "bad":
            raise ValueError("bad")
        return text

    agent = Agent(name="tester", model=echo(), tools=[make_tool("never", "never")], prompt=prompt)
    async with Chat.open(agent, path, id="a", create=True) as chat:
        await chat.prompt("1.")
        assert (await chat.prompt("bad")).code != "SUCCESS"
        chat.undo()
        assert chat.messages == ()


async def test_undo_is_refused_while_a_turn_goes_on_and_outside_of_the_block(door: Door) -> None:
    async with chatting(ScriptedModel([door.before("Hello.")])) as chat:
        turn = chat.start("Hi.")
        with pytest.raises(ChatBusy):
            chat.undo()
        await door.open_for(turn)
        async with chat.hold():
            chat.undo()
    with pytest.raises(RuntimeError, match="not open"):
        chat.undo()


@pytest.mark.parametrize("how", ["reset", "replace"])
async def test_after_a_reset_or_another_conversation_there_is_nothing_to_undo(path: Path, how: str) -> None:
    async with Chat.open(talker(), path, id="a", create=True) as chat:
        await chat.prompt("1.")
        other = chat.messages
        await chat.prompt("2.")
        if how == "reset":
            await chat.reset()
        else:
            chat.replace(other)
        left = chat.messages
        with pytest.raises(NothingToUndo):
            chat.undo()
    async with Chat.open(talker(), path, id="a") as chat:
        with pytest.raises(NothingToUndo):
            chat.undo()
        await chat.prompt("3.")
        chat.undo()
        assert chat.messages == left


async def test_a_branch_can_be_undone_turn_by_turn(kept: Kept) -> None:
    with kept.stored() as store:
        async with Chat.open(talker(), store, id="a", create=True) as chat:
            for text in ("1.", "2.", "3."):
                await chat.prompt(text)
        branch = store.branch("a", 4)
        async with Chat.open(talker(), store, id=branch) as chat:
            chat.undo()
            assert script_of(chat) == [("user", "1."), ("assistant", "<1.>")]


async def test_an_undo_that_cannot_be_stored_is_stored_with_the_next_step(path: Path) -> None:
    async with Chat.open(talker(), path, id="a", create=True) as chat:
        await chat.prompt("1.")
        await chat.prompt("2.")
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON jm_conversation BEGIN SELECT RAISE(ABORT, 'full'); END")
        with pytest.raises(StoreError, match="could not be written: full"):
            chat.undo()
        with closing(sqlite3.connect(path)) as other:
            other.execute("DROP TRIGGER full")
        assert len(on_disk(Kept(str(path)), "a")) == 4
        await chat.prompt("3.")
        assert on_disk(Kept(str(path)), "a") == list(chat.messages)
        assert script_of(chat)[-2:] == [("user", "3."), ("assistant", "<3.>")]


async def test_compaction_does_not_show_what_was_undone() -> None:
    seen: list[str] = []

    def answer(request: Request) -> Answer:
        seen.append(" ".join(message.text for message in request.messages))
        return "So it is."

    agent = Agent(
        name="tester", model=FunctionModel(answer), compaction=Compaction([ClearToolResults()], window_tokens=8_192)
    )
    async with Chat(agent) as chat:
        await chat.prompt("1.")
        await chat.prompt("The secret.")
        chat.undo()
        await chat.prompt("3.")
    assert "secret" not in seen[-1]


async def test_what_waited_for_a_tool_of_the_provider_goes_with_the_turn_after_it(path: Path) -> None:
    asked = Opaque("scripted", '{"type":"server_tool_use","id":"s1","name":"search","input":{}}')
    paused = Response(content=(asked,), stop_reason="pause_turn")
    script = [paused, ProviderError("no", kind="bad_request"), "Both."]
    async with Chat.open(Agent(name="tester", model=ScriptedModel(script)), path, id="a", create=True) as chat:
        assert (await chat.prompt("1.")).code == "API_ERROR"
        await chat.prompt("2.")
        chat.undo()
        assert transcript(chat.messages) == [("user", "1.")]
        chat.undo()
        assert chat.messages == ()


async def any_act(chat: Chat, chance: random.Random, door: Door, before: list[Conversation], *, text: str) -> None:
    """Undo the last turn, or have another one that may be steered and then stopped. `before` is what was there before
    each turn."""
    if before and chance.random() < 0.35:
        chat.undo()
        assert chat.messages == before.pop(), text
        return
    before.append(chat.messages)
    if chance.random() < 0.3:
        chat.follow_up(f"follow-up {text}")
    door.reached.clear()
    turn = chat.start(f"prompt {text}")
    ended, waiting = asyncio.ensure_future(turn.wait_until_settled()), asyncio.ensure_future(door.reached.wait())
    await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        chat.steer(f"steering {text}")
        chance.choice([turn.abort, turn.cancel, partial(turn.stop, "stopped")])()
    await ended
    waiting.cancel()
    chat.clear()
    assert chat.messages != before[-1]


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happened_undo_gives_back_what_was_there_before_the_turn(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    door = Door()

    def answer(request: Request) -> Answer:
        if chance.random() < 0.3:
            raise ProviderError("no", kind="bad_request")
        if request.messages[-1].role == "user" and chance.random() < 0.4:
            return [call("look"), call("wait")] if chance.random() < 0.5 else call("look")
        return f"answer {chance.random()}"

    agent = Agent(name="tester", model=FunctionModel(answer), tools=[look, door.tool()])
    before: list[Conversation] = []
    with Store(path, redact=()) as store:
        for life in range(4):
            async with Chat.open(agent, store, id="a", create=True) as chat:
                for number in range(6):
                    await any_act(chat, chance, door, before, text=f"{life}.{number}")
                assert store.messages("a") == list(chat.messages)
                assert list(history_faults(chat.messages)) == []
        async with Chat.open(agent, store, id="a") as chat:
            while before:
                chat.undo()
                assert chat.messages == before.pop()
            with pytest.raises(NothingToUndo):
                chat.undo()
